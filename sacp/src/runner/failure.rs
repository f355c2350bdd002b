//! Why a step or a run failed.

use core::fmt;
use core::time::Duration;

/// Why a step failed, or the run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The step's number; `None` where the run as a whole failed.
    pub step: Option<usize>,
    /// Why.
    pub cause: Cause,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Who carried it out says so.
    Tool {
        /// The code it gave; `TOOL_INVOCATION_FAILED` where it gave none.
        code: Option<String>,
        /// Why, in words that may be shown.
        why: String,
        /// Whether it may be tried again.
        retryable: bool,
    },
    /// An attempt took too long.
    Timeout {
        /// How long it may take.
        after: Duration,
        /// Whether it showed no progress, rather than no end.
        idle: bool,
    },
    /// The run took too long.
    RunTimeout {
        /// How long it may take.
        after: Duration,
    },
    /// An output over its bound.
    TooLarge {
        /// The bound, in bytes.
        limit: usize,
        /// Whether it is the bound on all outputs.
        total: bool,
    },
    /// Something that it waited for failed or was skipped.
    Dependency,
    /// The caller ended the run.
    Cancelled,
}

impl Cause {
    /// A failure that may be tried again.
    #[must_use]
    pub fn tool(why: impl Into<String>) -> Self {
        Self::Tool {
            code: None,
            why: why.into(),
            retryable: true,
        }
    }

    /// A failure that stays, however often it is tried.
    #[must_use]
    pub fn lasting(why: impl Into<String>) -> Self {
        Self::Tool {
            code: None,
            why: why.into(),
            retryable: false,
        }
    }

    /// Whether it may be tried again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Tool { retryable, .. } => *retryable,
            Self::Timeout { .. } => true,
            _ => false,
        }
    }

    /// The code that 1.0 has for it.
    ///
    /// Spec: SACP 1.0, 7
    #[must_use]
    pub fn code(&self) -> &str {
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
            Self::Tool { why, .. } => f.write_str(why),
            Self::Timeout { after, idle: false } => write!(f, "over its time of {after:?}"),
            Self::Timeout { after, idle: true } => write!(f, "no progress for {after:?}"),
            Self::RunTimeout { after } => write!(f, "the plan is over its time of {after:?}"),
            Self::TooLarge {
                limit,
                total: false,
            } => write!(f, "an output of more than {limit} bytes"),
            Self::TooLarge { limit, total: true } => {
                write!(f, "outputs of more than {limit} bytes in all")
            }
            Self::Dependency => f.write_str("something that it waited for failed or was skipped"),
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
