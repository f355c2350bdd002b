//! How agents are, apart from what they are.

/// How an agent is. Ordered: the better comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Health {
    /// It does its work.
    #[default]
    Healthy,
    /// It works, and others are preferred.
    Degraded,
    /// It gets nothing.
    Unhealthy,
}
