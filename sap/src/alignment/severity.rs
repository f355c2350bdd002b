//! How grave issues are.

use core::fmt;

/// How grave an issue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Worth a look.
    Low,
    /// Somebody has to decide.
    Medium,
    /// Not to be handed out.
    High,
}

/// The word in a violation.
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}
