//! The clock and the ids of an agent.

use core::fmt;
use std::sync::Arc;

use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
#[cfg(feature = "os")]
use ubos_common::os::OsError;

#[cfg(feature = "os")]
use super::timer::SystemClock;

/// The clock and the source of ids of an agent.
pub struct Runtime {
    pub(super) clock: Arc<dyn Sleep + Send + Sync>,
    pub(super) ids: IdSource,
}

impl Runtime {
    /// A clock and a source of ids; with a seeded source a run can be repeated.
    ///
    /// Agents that share a budget or a retry strategy need the same clock, or clocks that start at the same time.
    #[must_use]
    pub fn new(clock: Arc<dyn Sleep + Send + Sync>, ids: IdSource) -> Self {
        Self { clock, ids }
    }

    /// The operating system's clock and randomness. All such runtimes share one clock.
    ///
    /// # Errors
    ///
    /// The operating system provided no randomness.
    #[cfg(feature = "os")]
    pub(crate) fn system() -> Result<Self, OsError> {
        Ok(Self::new(Arc::new(SystemClock), IdSource::from_os()?))
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}
