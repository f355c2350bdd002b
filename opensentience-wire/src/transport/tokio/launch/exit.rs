//! How a process ended.

use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};

/// How a process ended, for when it has.
#[derive(Clone, Debug, Default)]
pub struct Exit(Arc<OnceLock<ExitStatus>>);

impl Exit {
    /// The status; `None` while the process runs.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        self.0.get().copied()
    }

    pub(super) fn set(&self, status: Option<ExitStatus>) {
        if let Some(status) = status {
            // It ends once.
            let _ = self.0.set(status);
        }
    }
}
