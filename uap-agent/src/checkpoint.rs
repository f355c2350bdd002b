//! Keeping states between runs.

#[cfg(all(feature = "driver", feature = "os"))]
mod files;
#[cfg(feature = "testing")]
mod suite;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::id::Uuid;
use ubos_common::time::Timestamp;

use crate::state::AgentState;

#[cfg(all(feature = "driver", feature = "os"))]
pub use files::{CorruptFile, FileCheckpoints};
#[cfg(feature = "testing")]
pub use suite::{StoreFault, check_store};

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
    /// The store failed, for a reason of its own.
    #[error("the store failed: {0}")]
    Failed(Box<str>),
}

/// The answer of a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, CheckpointError>>;

/// Where states are kept, one for each session.
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
    /// Forgets a session; one that is not there is fine.
    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()>;
    /// The sessions that are kept, in order of their names.
    fn list(&self) -> StoreFuture<'_, Vec<String>>;
}

/// Keeps states in memory, for as long as the process lives.
#[derive(Debug)]
pub struct MemoryCheckpoints {
    limit: usize,
    sessions: Mutex<BTreeMap<String, (CheckpointMetadata, AgentState)>>,
}

impl MemoryCheckpoints {
    /// Sessions of [`MemoryCheckpoints::default`].
    pub const DEFAULT_LIMIT: usize = 100_000;

    /// A store for at most `limit` sessions; a save for one more is refused.
    #[must_use]
    pub const fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            sessions: Mutex::new(BTreeMap::new()),
        }
    }

    fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(
            &mut BTreeMap<String, (CheckpointMetadata, AgentState)>,
        ) -> Result<T, CheckpointError>,
    ) -> StoreFuture<'static, T> {
        let done = act(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(core::future::ready(done))
    }
}

impl Default for MemoryCheckpoints {
    fn default() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }
}

impl CheckpointStore for MemoryCheckpoints {
    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        let limit = self.limit;
        self.with(|sessions| {
            if sessions.len() >= limit && !sessions.contains_key(&metadata.session_id) {
                return Err(CheckpointError::Full { limit });
            }
            sessions.insert(metadata.session_id.clone(), (metadata, state));
            Ok(())
        })
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        self.with(|sessions| Ok(sessions.get(session_id).map(|(_, state)| state.clone())))
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        self.with(|sessions| {
            Ok(sessions
                .get(session_id)
                .map(|(metadata, _)| metadata.clone()))
        })
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        self.with(|sessions| {
            sessions.remove(session_id);
            Ok(())
        })
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        self.with(|sessions| Ok(sessions.keys().cloned().collect()))
    }
}
