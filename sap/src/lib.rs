//! SAP V2.0: agent tasks and results under constitutional governance, sans-IO.
//!
//! A [`Task`] says who wants which capability done, in which constitutional context; each [`TaskResult`] says how
//! far it is, with the evidence that principles were kept. This crate reads and writes both without losing
//! anything, finds everything that is wrong with them, and knows what may follow what. Around them stand a
//! write-once cache, a transcript that shows tampering, and a processor that ends every task.
//!
//! It does not carry messages, and it does not judge a JSON Schema: that is plugged in.
//!
//! ```text
//! processor                     bytes in, Ack and results out          feature `driver`
//! store                         memory; hash-chained files             feature `log`
//! cache, transcript, alignment  what is kept, and what is aligned      pure, or traits
//! lifecycle, status, producer   what may follow, what may be sent
//! validate, secrets             all findings, with pointer and clause
//! task, result, receipt, …      types and codec
//! ```
//!
//! ```
//! use sap::validate::{Options, decode_task};
//! use ubos_common::json::DecodeError;
//!
//! let text = br#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
//!     "correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z",
//!     "issuer":{"agentId":"A-prime","agentKind":"robot"},"target":{"capability":"consult.align"},
//!     "constitutionalContext":{"territory":"EUFM"},"payload":{"n":1.50}}"#;
//! let Err(DecodeError::Invalid(report)) = decode_task(text, &Options::default()) else { panic!("refused") };
//! assert!(report.to_string().contains("MUST /issuer/agentKind"));
//! assert!(report.to_string().contains("MUST /constitutionalContext/pressureLevel"));
//!
//! let (task, report) = decode_task(text, &Options::lenient())?;
//! assert!(report.is_valid() && task.payload.as_str() == r#"{"n":1.50}"#);
//! # Ok::<(), DecodeError>(())
//! ```
//!
//! | bound | default | at the bound |
//! |---|---|---|
//! | one message | [`Limits`](ubos_common::json::Limits) | refused |
//! | results a lifecycle remembers | 1,024 | the oldest is forgotten |
//! | tasks that run in a processor | 1,024 | Nack `RATE_LIMIT` |
//! | ended tasks it remembers | 10,000 | the oldest is forgotten |
//! | reports of a handler that wait | 16 | the handler waits |
//! | records of a cache in memory, in files | 10,000, 1,000,000 | not kept, with a warning |
//! | entries of a transcript in memory | 100,000 | refused, so the task is not delivered |
//! | what is learned of | [`learning::Bounds`] | refused or left out, and counted |
//! | open tasks of a producer, ended ones it remembers | 10,000, 10,000 | refused; the oldest is forgotten |
//! | constraints of a task that are checked | 64 | listed as unchecked |
//! | a predicate | 1,024 bytes, 16 terms, 32 tokens a place | refused |
//!
//! Specification: SAP V2.0. A clause that a place of the code stands for is cited there (`impl: SAP-6-1`).

pub mod alignment;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod cache;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod context;
pub mod error;
pub mod evidence;
pub mod ident;
pub mod learning;
pub mod lifecycle;
mod limits;
pub mod number;
#[cfg(feature = "driver")]
pub mod processor;
pub mod producer;
pub mod receipt;
pub mod result;
pub mod role;
pub mod schemas;
pub mod secrets;
pub mod status;
pub mod store;
pub mod task;
#[cfg(feature = "driver")]
mod trace;
pub mod transcript;
#[cfg(feature = "driver")]
pub mod transport;
pub mod validate;
pub mod view;

pub use context::{CacheMode, CachePolicy, ConstitutionalContext, PressureLevel, RiskTolerance};
pub use error::{ErrorCode, ErrorObject};
pub use evidence::{
    Alignment, CacheEvidence, CacheKey, ConstitutionalEvidence, Fingerprint, PolicyCheck,
    PolicyViolation,
};
pub use ident::{AgentId, Capability, CorrelationId, TaskId, Version};
pub use receipt::{Ack, Nack};
pub use result::{Producer, ProducerKind, TaskResult};
pub use status::Status;
pub use task::{AgentKind, Issuer, Target, Task};

/// The README's examples.
#[cfg(all(doctest, feature = "driver"))]
#[doc = include_str!("../README.md")]
struct Readme;
