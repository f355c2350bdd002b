//! The error model of the wire.

use ubos_common::json::RawObject;

ubos_common::words! {
    /// Why a task failed or was turned away; codes of others are kept. Spec: SAP 8
    open pub enum ErrorCode {
        /// The task is not valid.
        InvalidTask = "INVALID_TASK",
        /// The issuer is not known.
        Unauthorized = "UNAUTHORIZED",
        /// The issuer may not do this.
        Forbidden = "FORBIDDEN",
        /// No such capability or agent.
        NotFound = "NOT_FOUND",
        /// Payload or output does not keep its contract.
        Unprocessable = "UNPROCESSABLE",
        /// The deadline or the budget of seconds is over.
        Timeout = "TIMEOUT",
        /// A budget is used up, or a queue is full.
        RateLimit = "RATE_LIMIT",
        /// The handler failed.
        Internal = "INTERNAL",
        /// Only the cache may answer, and it has no good record.
        CacheMiss = "CACHE_MISS",
        /// The verdict is that the output breaks a principle.
        NonConstitutional = "NON_CONSTITUTIONAL",
    }
}

ubos_common::wire! {
    /// What went wrong. Spec: SAP 4.2, 8
    // impl: SAP-4.2-6
    pub struct ErrorObject {
        /// The code.
        optional code: ErrorCode = "code", "SAP-4.2-6";
        /// What happened, for a person; a failed result must say it.
        optional message: String = "message", "SAP-4.2-6";
        /// Whatever else is known.
        optional details: RawObject = "details", "SAP-4.2-6";
    }
}

impl ErrorObject {
    /// An error with a code and a message.
    pub(crate) fn with(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut error = Self::new();
        error.code = Some(code);
        error.message = Some(message.into());
        error
    }
}

/// Why a store, a sink of signals or a librarian did not keep or find something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room for more; nothing is removed to make room.
    #[error("{what} at their limit of {limit}")]
    Full {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// It failed.
    #[error("store failed")]
    Failed(#[from] Box<dyn std::error::Error + Send + Sync>),
}
