//! SAP V2.0: agent tasks and results under constitutional governance, sans-IO.

pub mod alignment;
pub mod cache;
pub mod context;
pub mod error;
pub mod evidence;
pub mod ident;
pub mod lifecycle;
pub mod number;
#[cfg(feature = "driver")]
pub mod processor;
pub mod producer;
pub mod receipt;
pub mod result;
pub mod secrets;
pub mod status;
pub mod store;
pub mod task;
pub mod transcript;
pub mod validate;

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
