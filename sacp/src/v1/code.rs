//! The twelve codes of 1.0.

ubos_common::words! {
    /// Why a message or step failed. Others are read, and never written by this crate.
    ///
    /// Spec: SACP 1.0, 7
    open pub enum Code {
        /// A `proto_ver` that is not spoken here.
        UnsupportedVersion = "UNSUPPORTED_VERSION",
        /// No message of 1.0.
        MalformedMessage = "MALFORMED_MESSAGE",
        /// A move that the lifecycle does not have.
        InvalidStateTransition = "INVALID_STATE_TRANSITION",
        /// No verb of that name.
        UnknownVerb = "UNKNOWN_VERB",
        /// No tool of that name, or none that supports the verb.
        UnknownTool = "UNKNOWN_TOOL",
        /// A tool failed.
        ToolInvocationFailed = "TOOL_INVOCATION_FAILED",
        /// A step was over its time.
        Timeout = "TIMEOUT",
        /// A step that this one waits for failed.
        DependencyFailed = "DEPENDENCY_FAILED",
        /// The sender may not ask for it.
        AuthzDenied = "AUTHZ_DENIED",
        /// Too much was asked for.
        RateLimited = "RATE_LIMITED",
        /// A fault of the implementation.
        InternalError = "INTERNAL_ERROR",
        /// It was called off.
        Cancelled = "CANCELLED",
    }
}

impl Code {
    /// Whether a word has the form of a code: 1 to 64 of capital letters, digits and underscores.
    ///
    /// Spec: SACP 1.0, 7
    #[must_use]
    pub fn fits(word: &str) -> bool {
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
