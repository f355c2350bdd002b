//! The health of agents, apart from their records.

/// The health of an agent. The better is the lesser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Health {
    /// It works.
    #[default]
    Healthy,
    /// It works, but others are preferred.
    Degraded,
    /// It gets no acts.
    Unhealthy,
}
