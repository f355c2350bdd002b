//! How grave issues are.

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

impl Severity {
    /// The word in a violation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}
