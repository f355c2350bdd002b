//! Why a database is not opened, and what the others say of a database that failed.

use ubos_common::ConfigError;

use super::link::DbFault;
use crate::checkpoint::CheckpointError;
use crate::journal::JournalError;
use crate::work_thread::ThreadFault;

/// Why a database was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is out of its range.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// Another version of this crate has made the tables.
    #[error("the tables have version {seen}, but this version of the crate has version {wanted}")]
    Version {
        /// Their version.
        seen: i64,
        /// The version that this crate reads and writes.
        wanted: i64,
    },
    /// The database is not there, or refuses.
    #[error("the database failed: {0}")]
    Failed(Box<str>),
}

impl OpenError {
    pub(super) fn of(fault: DbFault) -> Self {
        Self::Failed(fault.text)
    }
}

impl From<ThreadFault> for OpenError {
    fn from(fault: ThreadFault) -> Self {
        Self::Failed(fault.into_text())
    }
}

impl From<DbFault> for JournalError {
    fn from(fault: DbFault) -> Self {
        Self::Failed(fault.text)
    }
}

impl From<DbFault> for CheckpointError {
    fn from(fault: DbFault) -> Self {
        Self::Failed(fault.text)
    }
}
