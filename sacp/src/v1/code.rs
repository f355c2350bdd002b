//! The twelve codes of 1.0.

ubos_common::words! {
    /// Why a message or step failed. Other codes are read, but never written.
    ///
    /// Spec: SACP 1.0, 7
    open pub enum Code {
        /// The `proto_ver` is not supported.
        UnsupportedVersion = "UNSUPPORTED_VERSION",
        /// The text is not a message of 1.0.
        MalformedMessage = "MALFORMED_MESSAGE",
        /// The lifecycle has no such transition.
        InvalidStateTransition = "INVALID_STATE_TRANSITION",
        /// No verb has that name.
        UnknownVerb = "UNKNOWN_VERB",
        /// No tool has that name, or none supports the verb.
        UnknownTool = "UNKNOWN_TOOL",
        /// A tool failed.
        ToolInvocationFailed = "TOOL_INVOCATION_FAILED",
        /// A step exceeded its timeout.
        Timeout = "TIMEOUT",
        /// A dependency failed.
        DependencyFailed = "DEPENDENCY_FAILED",
        /// The sender is not authorized.
        AuthzDenied = "AUTHZ_DENIED",
        /// A limit was exceeded.
        RateLimited = "RATE_LIMITED",
        /// A fault of the implementation.
        InternalError = "INTERNAL_ERROR",
        /// It was cancelled.
        Cancelled = "CANCELLED",
    }
}

impl Code {
    /// Whether a word is a valid code: 1 to 64 capital letters, digits and underscores.
    ///
    /// Spec: SACP 1.0, 7
    pub(super) fn fits(word: &str) -> bool {
        (1..=64).contains(&word.len())
            && word
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    }
}

impl From<crate::Code> for Code {
    /// The code of 1.0 that is nearest to one of 0.1.
    fn from(code: crate::Code) -> Self {
        use crate::Code as Old;
        match code {
            Old::UnsupportedVersion => Self::UnsupportedVersion,
            Old::MalformedMessage
            | Old::MissingField
            | Old::MalformedPlan
            | Old::InvalidParamType
            | Old::OutFmtViolation => Self::MalformedMessage,
            Old::InvalidState => Self::InvalidStateTransition,
            Old::UnknownVerb => Self::UnknownVerb,
            Old::UnknownTool | Old::VerbToolMismatch | Old::NoAgentFound => Self::UnknownTool,
            Old::StepFailed => Self::ToolInvocationFailed,
            Old::SpawnFailed | Old::InternalError => Self::InternalError,
        }
    }
}
