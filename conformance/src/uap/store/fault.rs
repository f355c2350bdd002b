//! Faults of stores.

use uap_agent::CheckpointError;

/// A fault of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFault {
    /// An operation failed that must succeed.
    #[error("{doing}: the store failed")]
    Failed {
        /// The operation.
        doing: &'static str,
        /// The error of the store.
        source: CheckpointError,
    },
    /// An operation had a wrong result.
    #[error("{0}")]
    Wrong(&'static str),
}
