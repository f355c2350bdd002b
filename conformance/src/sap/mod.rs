//! Kits for SAP V2.0.
//!
//! [`vector_kit`] asks a validator about messages. [`checklist`] reads what was exchanged, and the logs that
//! were kept of it where they are known, and answers the seven points of section 12: pass, fail with where and
//! what, or not applicable with why; [`checklist_kit`] is its kit. [`endpoint_kit`] drives an endpoint over HTTP.
//!
//! ```
//! use sap::validate::{Options, decode_result, decode_task};
//! use ubos_conformance::sap::{MessageKind, Recording, Vector, checklist, vector_kit};
//! use ubos_conformance::{Expectations, Validity};
//!
//! // A validator, judged clause by clause: here the one of the crate `sap`.
//! let report = vector_kit().run(&Expectations::new(), |_| Ok(Box::new(|vector: &Vector| {
//!     let (text, options) = (vector.text.as_bytes(), Options::default());
//!     Some(Validity::of(match vector.kind {
//!         MessageKind::Task => decode_task(text, &options).is_ok(),
//!         MessageKind::Result => decode_result(text, &options).is_ok(),
//!     }))
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
mod endpoint;
mod recording;
mod reference;
mod vectors;

pub use checklist::{checklist, checklist_kit};
pub use endpoint::{Endpoint, HttpEndpoint, HttpResponse, Posted, Posts, Work, endpoint_kit};
pub use recording::{Exchange, Line, Recording};
pub use vectors::{MessageKind, Vector, vector_kit, vectors};
