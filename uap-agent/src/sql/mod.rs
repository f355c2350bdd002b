//! Checkpoints and journals in a database: SQLite or PostgreSQL, with the same tables.
//!
//! ```text
//! Database             connections, each with a thread
//! SqlJournal           the journal of a run, one of many      Database::journal
//! SqlCheckpoints       checkpoints with their history         Database::checkpoints
//!
//! uap_run              a run: its next entry, its lease       compared and set by every write
//! uap_entry            its entries
//! uap_session          a session: its checkpoints from first to next
//! uap_checkpoint       whole states, and what makes one of the one before
//! ```
//!
//! | | files | SQLite | PostgreSQL |
//! |---|---|---|---|
//! | who reaches a run or a session | one process at a time | the processes of one machine | any machine |
//! | what says that an owner is gone | the lock of its folder | the term of its lease | the term of its lease |
//! | two that write at once | the second is refused ([`InUse`](crate::CheckpointError::InUse)) | the one that comes later is refused ([`Conflict`](crate::CheckpointError::Conflict)) | the same |
//! | finding abandoned runs | looking into the folders | [`Database::abandoned`] | the same |
//!
//! A finished write is on the disk. Each row carries a digest over its place and its content, so that a changed row is noticed.

mod database;
mod error;
mod link;
#[cfg(feature = "sqlite")]
mod lite;
#[cfg(feature = "postgres")]
mod pg;
mod pool;
#[cfg(all(test, feature = "sqlite"))]
mod pool_tests;
#[cfg(feature = "postgres")]
mod postgres_config;
mod schema;
#[cfg(all(test, feature = "sqlite"))]
mod tests;

pub use crate::checkpoint::SqlCheckpoints;
pub use crate::journal::SqlJournal;
pub use database::Database;
pub use error::OpenError;
#[cfg(feature = "postgres")]
pub use postgres_config::PostgresConfig;

pub(crate) use crate::work_thread::Unawaited;
pub(crate) use link::{DbFault, Param, Row, int};
pub(crate) use pool::{Again, Pool, Transaction, Worker};

/// Bytes of the name of a session or a run. An index takes no more than about 2,700.
const MAX_NAME: usize = 1024;

/// Whether every database takes a name.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        _ if name.len() > MAX_NAME => Err("it has more than 1,024 bytes"),
        _ if name.contains('\0') => Err("it has a zero byte"),
        _ => Ok(()),
    }
}
