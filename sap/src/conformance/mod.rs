//! Tests of anybody's SAP implementation: messages with known verdicts, and the checklist of section 12.
//!
//! [`vectors`] and their cases ask a validator for its verdict on messages. The [`checklist`] reads what was
//! exchanged, and the logs that were kept of it where they are at hand, and answers the seven points of the
//! specification: pass, fail with where and what, or not applicable with why.
//!
//! ```
//! use sap::conformance::{Kind, VECTORS, Recording, checklist};
//! use sap::validate::{Options, decode_result, decode_task};
//! use ubos_common::conformance::run;
//!
//! // A validator, judged clause by clause: here our own.
//! let report = run(VECTORS, VECTORS.len(), |_| Ok(Box::new(|kind: Kind, text: &[u8]| match kind {
//!     Kind::Task => decode_task(text, &Options::default()).is_ok(),
//!     _ => decode_result(text, &Options::default()).is_ok(),
//! })));
//! assert!(report.is_conformant(), "{report}");
//!
//! // An exchange, judged by the checklist.
//! let recording = Recording::new().task(br#"{"protocolVersion":"2.0"}"#);
//! let report = checklist(&recording);
//! assert_eq!((report.outcomes().len(), report.failed()), (7, 2));
//! assert!(report.to_string().contains("/taskId"));
//! ```
//!
//! Spec: SAP 12

mod checklist;
mod recording;
mod twins;
mod vectors;

pub use checklist::{CHECKLIST, checklist};
pub use recording::{Exchange, Line, Recording};
pub use vectors::{Kind, VECTORS, Validator, Vector, vectors};
