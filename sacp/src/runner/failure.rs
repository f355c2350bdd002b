//! The reasons for which steps and runs fail.

use core::fmt;
use core::time::Duration;

/// The failure of a step or of the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The step's number; `None` if the run as a whole failed.
    pub step: Option<usize>,
    /// The reason.
    pub cause: Cause,
}

/// The reason for a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The executor of the act reported a failure.
    Tool {
        /// Its code; absent means `TOOL_INVOCATION_FAILED`.
        code: Option<String>,
        /// A description that may be shown to the sender.
        message: String,
        /// Whether a retry may help.
        retryable: bool,
    },
    /// An attempt exceeded its timeout.
    Timeout {
        /// The timeout.
        after: Duration,
        /// Whether it was the idle timeout: the attempt made no progress.
        idle: bool,
    },
    /// The run exceeded its timeout.
    RunTimeout {
        /// The timeout.
        after: Duration,
    },
    /// An output exceeds its limit.
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
        /// Whether it is the limit on all outputs together.
        total: bool,
    },
    /// A step that it depends on failed or was skipped.
    Dependency,
    /// The caller cancelled the run.
    Cancelled,
}

impl Cause {
    /// A failure that a retry may mend.
    #[must_use]
    pub fn tool(message: impl Into<String>) -> Self {
        Self::Tool {
            code: None,
            message: message.into(),
            retryable: true,
        }
    }

    /// A failure that no retry mends.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::Tool {
            code: None,
            message: message.into(),
            retryable: false,
        }
    }

    /// Whether a retry may help.
    pub(crate) const fn is_retryable(&self) -> bool {
        match self {
            Self::Tool { retryable, .. } => *retryable,
            Self::Timeout { .. } => true,
            _ => false,
        }
    }

    /// Its code in 1.0.
    ///
    /// Spec: SACP 1.0, 7
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Tool { code, .. } => code.as_deref().unwrap_or("TOOL_INVOCATION_FAILED"),
            Self::Timeout { .. } | Self::RunTimeout { .. } => "TIMEOUT",
            Self::TooLarge { .. } => "TOOL_INVOCATION_FAILED",
            Self::Dependency => "DEPENDENCY_FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool { message, .. } => f.write_str(message),
            Self::Timeout { after, idle: false } => {
                write!(f, "the attempt exceeded its timeout of {after:?}")
            }
            Self::Timeout { after, idle: true } => {
                write!(f, "the attempt made no progress for {after:?}")
            }
            Self::RunTimeout { after } => write!(f, "the run exceeded its timeout of {after:?}"),
            Self::TooLarge {
                limit,
                total: false,
            } => write!(f, "the output has more than {limit} bytes"),
            Self::TooLarge { limit, total: true } => {
                write!(f, "the outputs of the run have more than {limit} bytes")
            }
            Self::Dependency => f.write_str("a step that it depends on failed or was skipped"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.cause),
            None => self.cause.fmt(f),
        }
    }
}
