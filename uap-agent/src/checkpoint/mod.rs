//! Keeping states between runs.
//!
//! ```text
//! CheckpointStore      the last state of each session      UAP-1.1 12.2
//! CheckpointHistory    and the ones before it: look back, fork, prune
//!
//! MemoryCheckpoints    both, for as long as the process lives
//! FileCheckpoints      the last state, in the layout that other implementations read
//! LogCheckpoints       both, in files that only grow: a step costs what the step added    feature `log`
//! Seal                 what a store in files writes, encrypted by the developer
//! ```
//!
//! A session has one writer at a time. A store that writes a session holds it, so that another store, in this process or
//! another, is told [`CheckpointError::InUse`]; one that comes back after another has saved is told
//! [`CheckpointError::Conflict`] until it loads what is there. So is an agent, or a run, that goes on from an earlier state
//! while another has taken over. Nothing is overwritten by either.

#[cfg(all(feature = "driver", feature = "os"))]
mod files;
#[cfg(all(feature = "driver", feature = "os"))]
mod held;
mod history;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
mod log;
mod memory;
#[cfg(all(feature = "driver", feature = "os"))]
mod name;
mod seal;
#[cfg(all(feature = "driver", feature = "os"))]
mod worker;
mod writers;

use futures_core::future::BoxFuture;
use ubos_common::id::Uuid;
use ubos_common::time::Timestamp;

use crate::state::AgentState;

#[cfg(all(feature = "driver", feature = "os"))]
pub use files::{CorruptFile, FileCheckpoints};
pub use history::CheckpointHistory;
#[cfg(all(feature = "driver", feature = "os", feature = "log"))]
pub use log::{CutTail, LogCheckpoints};
pub use memory::MemoryCheckpoints;
pub use seal::{Seal, SealError};

ubos_common::wire! {
    /// What is known of a checkpoint without reading it.
    ///
    /// Spec: UAP-1.1 12.2
    pub struct CheckpointMetadata {
        /// Whose checkpoint.
        required session_id: String = "sessionId", "UAP-12-7";
        /// Fresh for each save, UUIDv4.
        required checkpoint_id: Uuid = "checkpointId", "UAP-12-7";
        /// When it was saved.
        required timestamp: Timestamp = "timestamp", "UAP-12-7";
        /// The state's step.
        required step: u64 = "step", "UAP-12-7";
        /// The agent that saved it.
        required agent_id: String = "agentId", "UAP-12-7";
    }
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The store is full; what it held, it holds.
    #[error("{limit} sessions are the most this store holds")]
    Full {
        /// Sessions that it holds.
        limit: usize,
    },
    /// The store has no place for a session of this name.
    #[error("no session of this name can be kept: {0}")]
    Session(&'static str),
    /// Another store, here or in another process, is writing the session. What is kept stays as it is.
    #[error("another store is writing this session")]
    InUse,
    /// Another writer has saved since this one last saw the session. What is kept stays as it is; loading it lets this
    /// writer go on from there.
    #[error("checkpoint {found} was saved by another writer since this one last saw the session")]
    Conflict {
        /// The last checkpoint that is kept.
        found: Uuid,
    },
    /// A session of that name is there already, and stays as it is.
    #[error("a session of this name is there already")]
    Exists,
    /// The session has no such checkpoint.
    #[error("the session has no checkpoint {checkpoint}")]
    Unknown {
        /// The one that was asked for.
        checkpoint: Uuid,
    },
    /// The state is larger than what the store reads back; nothing was written.
    #[error("a state of {bytes} bytes, where {limit} are the most")]
    TooLarge {
        /// Its bytes as JSON.
        bytes: usize,
        /// What the store takes.
        limit: usize,
    },
    /// The state could not be read back; nothing was written.
    #[error("a state that could not be read back: {0}")]
    Unreadable(Box<str>),
    /// What is kept cannot be opened, or not be sealed. The files stay where they are.
    #[error("what is kept of this session: {0}")]
    Sealed(#[from] SealError),
    /// What is kept was changed or destroyed. It stays where it is.
    #[error("what is kept of this session is damaged: {0}")]
    Damaged(Box<str>),
    /// The store failed, for a reason of its own.
    #[error("the store failed: {0}")]
    Failed(Box<str>),
}

/// The answer of a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, CheckpointError>>;

/// Where states are kept, one for each session.
///
/// The package `ubos-conformance` checks a store with `uap::check_store`.
///
/// Spec: UAP-1.1 12.2
pub trait CheckpointStore: Send + Sync {
    /// Whether a session of this name can be kept; asked before anything runs. Every name by default.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Session`] where it cannot.
    fn takes_session(&self, session_id: &str) -> Result<(), CheckpointError> {
        let _ = session_id;
        Ok(())
    }
    /// Keeps a state in place of the session's last.
    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()>;
    /// The session's last state; none where nothing is kept.
    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>>;
    /// What is known of it.
    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>>;
    /// Forgets a session; one that is not there is no error.
    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()>;
    /// The sessions that are kept, in order of their names.
    fn list(&self) -> StoreFuture<'_, Vec<String>>;
}
