//! Stores for the states of agents.
//!
//! ```text
//! CheckpointStore      the last state of each session      UAP-1.1 12.2
//! CheckpointHistory    the earlier states: read, fork, prune
//!
//! MemoryCheckpoints    both, until the process ends
//! FileCheckpoints      the last state, in the standard layout
//! LogCheckpoints       both, in files that only grow: a step costs what the step added    feature `log`
//! sql::SqlCheckpoints  both, in SQLite or PostgreSQL                                      features `sqlite`, `postgres`
//! Seal                 encryption of the files of a store
//! ```
//!
//! A session has one writer at a time. A store that has saved a session locks it: another store, in this process or another,
//! gets [`CheckpointError::InUse`]. A store whose session was saved by another since it last read it gets
//! [`CheckpointError::Conflict`] until it loads the session, and so does an agent or a run that continues from an earlier
//! state after another has saved. In both cases nothing is overwritten.
//!
//! A run of an [`AgentSession`](crate::AgentSession) names the state that it continues from
//! ([`save_after`](CheckpointStore::save_after)): it is saved only where that one is the session's last.

#[cfg(all(feature = "driver", feature = "os"))]
mod config;
#[cfg(all(feature = "driver", feature = "os"))]
mod disk;
#[cfg(all(feature = "driver", feature = "os"))]
mod files;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
mod head;
#[cfg(all(feature = "driver", feature = "os"))]
mod held;
mod history;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
mod log;
mod memory;
#[cfg(all(feature = "driver", feature = "os"))]
mod name;
mod seal;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
#[cfg(all(feature = "driver", feature = "os"))]
mod trailer;
mod writers;

use futures_core::future::BoxFuture;
use ubos_common::ConfigError;
use ubos_common::id::Uuid;
use ubos_common::time::Timestamp;

use crate::state::{AgentState, StateId};

#[cfg(all(feature = "driver", feature = "os"))]
pub use config::CheckpointConfig;
#[cfg(all(feature = "driver", feature = "os"))]
pub use files::{CorruptFile, FileCheckpoints};
pub use history::CheckpointHistory;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub use log::{CutTail, LogCheckpoints};
pub use memory::{MemoryCheckpointConfig, MemoryCheckpoints};
pub use seal::{Seal, SealError};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::SqlCheckpoints;

ubos_common::wire! {
    /// The metadata of a checkpoint.
    ///
    /// Spec: UAP-1.1 12.2
    pub struct CheckpointMetadata {
        /// The session.
        required session_id: String = "sessionId", "UAP-12-7";
        /// The checkpoint's id, a new UUIDv4 for each save.
        required checkpoint_id: Uuid = "checkpointId", "UAP-12-7";
        /// The time of the save.
        required timestamp: Timestamp = "timestamp", "UAP-12-7";
        /// The state's step.
        required step: u64 = "step", "UAP-12-7";
        /// The agent's id.
        required agent_id: String = "agentId", "UAP-12-7";
    }
}

/// An error of a checkpoint store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A setting of the store is out of its range. The store was not made.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// The store is full. Its contents are unchanged.
    #[error("the store has {limit} sessions and takes no more")]
    Full {
        /// The maximum number of sessions.
        limit: usize,
    },
    /// The store does not accept the name of the session.
    #[error("the store does not take the name of the session: {0}")]
    Session(&'static str),
    /// Another store, in this process or another, has locked the session. The checkpoint is unchanged.
    #[error("another store has locked the session")]
    InUse,
    /// Another writer has saved since this one last read the session. The checkpoint is unchanged. After a load this writer
    /// can continue from it.
    #[error(
        "checkpoint {found} was saved by another writer after this one last read the session: load it first"
    )]
    Conflict {
        /// The last checkpoint.
        found: Uuid,
    },
    /// A session with this name exists. It is unchanged.
    #[error("a session with this name exists")]
    Exists,
    /// The session has no such checkpoint.
    #[error("the session has no checkpoint {checkpoint}")]
    Unknown {
        /// The requested checkpoint.
        checkpoint: Uuid,
    },
    /// The state exceeds the limit of the store. Nothing was written.
    #[error("the state has {bytes} bytes, but at most {limit} can be saved")]
    TooLarge {
        /// The size of its JSON, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The state could not be read back. Nothing was written.
    #[error("the state could not be read back: {0}")]
    Unreadable(Box<str>),
    /// A file could not be sealed or opened. The files are unchanged.
    #[error("a file of the session: {0}")]
    Sealed(#[from] SealError),
    /// A file is a checkpoint of another session. It is left in place.
    #[error(
        "a file of the session is a checkpoint of another session: put its own there, or delete the session"
    )]
    Foreign,
    /// A file was changed or is damaged. It is left in place.
    #[error("a file of the session is damaged: {0}")]
    Damaged(Box<str>),
    /// The storage failed.
    #[error("the store failed: {0}")]
    Failed(Box<str>),
    /// A save had failed when the run was recorded that is resumed or replayed now.
    #[error("{0}")]
    Recorded(Box<str>),
}

/// The future of a store operation.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, CheckpointError>>;

/// A store that keeps the last state of each session.
///
/// The package `ubos-conformance` checks a store with `uap::check_store`.
///
/// Spec: UAP-1.1 12.2
pub trait CheckpointStore: Send + Sync {
    /// Checks the name of a session, before a run starts. The default accepts every name.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Session`] where it cannot.
    fn takes_session(&self, session_id: &str) -> Result<(), CheckpointError> {
        let _ = session_id;
        Ok(())
    }
    /// Saves a state as the last one of its session.
    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()>;
    /// As [`save`](Self::save), but only where the session's last state is the one with the id `after`. With `None`, only
    /// where the session has no state.
    ///
    /// Otherwise the future fails with [`CheckpointError::Conflict`], and nothing is overwritten. Comparing and saving is one
    /// step: of two calls with the same `after`, one at most succeeds. A session that has no state takes every save.
    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()>;
    /// The last state of a session; `None` where there is none.
    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>>;
    /// The metadata of the last state of a session.
    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>>;
    /// Deletes a session. A session that does not exist is not an error.
    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()>;
    /// Unlocks a session, so that another store can save it. The default does nothing.
    fn release<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        let _ = session_id;
        Box::pin(core::future::ready(Ok(())))
    }
    /// The names of all sessions, in order.
    fn list(&self) -> StoreFuture<'_, Vec<String>>;
}
