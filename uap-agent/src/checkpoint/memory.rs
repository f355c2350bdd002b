//! Checkpoints in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use ubos_common::ConfigError;
use ubos_common::id::Uuid;

use super::writers::{Before, WriterHistory};
use super::{CheckpointError, CheckpointHistory, CheckpointMetadata, CheckpointStore, StoreFuture};
use crate::state::{AgentState, StateId};

ubos_common::config! {
    /// How much a store in memory takes.
    MemoryCheckpointConfig {
        /// Sets how many sessions the store takes: 100,000 by default. A save of one more is refused.
        with_sessions: sessions: usize = 100_000,
        /// Sets how many checkpoints of a session are kept: 1,000 by default. Beyond that the oldest is removed.
        with_history: history: usize = 1_000,
    }
}

/// A store in memory. States share structure, so the size of a history is proportional to
/// what its steps have added.
#[derive(Debug, Default)]
pub struct MemoryCheckpoints {
    config: MemoryCheckpointConfig,
    sessions: Mutex<BTreeMap<String, MemorySession>>,
}

#[derive(Debug, Default)]
struct MemorySession {
    /// Never empty, once it is in the map.
    checkpoints: VecDeque<(CheckpointMetadata, AgentState)>,
    writers: WriterHistory,
}

impl MemoryCheckpoints {
    /// A store with a configuration.
    ///
    /// # Errors
    ///
    /// A setting is 0.
    pub fn new(config: MemoryCheckpointConfig) -> Result<Self, ConfigError> {
        ConfigError::at_least("sessions", config.sessions, 1)?;
        ConfigError::at_least("history", config.history, 1)?;
        Ok(Self {
            config,
            sessions: Mutex::default(),
        })
    }

    fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut BTreeMap<String, MemorySession>) -> Result<T, CheckpointError>,
    ) -> StoreFuture<'static, T> {
        let done = act(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(core::future::ready(done))
    }

    fn put(
        &self,
        metadata: CheckpointMetadata,
        state: AgentState,
        before: Before,
    ) -> StoreFuture<'static, ()> {
        self.with(|sessions| {
            if !sessions.contains_key(&metadata.session_id) {
                self.room(sessions)?;
            }
            let session = sessions.entry(metadata.session_id.clone()).or_default();
            let last = session.checkpoints.back();
            if last.is_some_and(|last| last.0 == metadata && last.1 == state) {
                return Ok(());
            }
            match before {
                Before::Seen => session.writers.check(&metadata, &state)?,
                Before::State(_) => {
                    before.check(last.map(|last| (last.0.checkpoint_id, last.1.id())))?;
                }
            }
            session.writers.saved(&metadata, &state);
            session.checkpoints.push_back((metadata, state));
            if session.checkpoints.len() > self.config.history {
                session.checkpoints.pop_front();
            }
            Ok(())
        })
    }

    fn room(&self, sessions: &BTreeMap<String, MemorySession>) -> Result<(), CheckpointError> {
        let limit = self.config.sessions;
        if sessions.len() < limit {
            Ok(())
        } else {
            Err(CheckpointError::Full { limit })
        }
    }
}

// impl: UAP-12-7
impl CheckpointStore for MemoryCheckpoints {
    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        self.put(metadata, state, Before::Seen)
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        self.put(metadata, state, Before::State(after))
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        self.with(|sessions| {
            let session = sessions.get_mut(session_id).map(|session| {
                session.writers.loaded();
                session.checkpoints.back()
            });
            Ok(session.flatten().map(|(_, state)| state.clone()))
        })
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        self.with(|sessions| {
            let last = sessions.get(session_id).and_then(|s| s.checkpoints.back());
            Ok(last.map(|(metadata, _)| metadata.clone()))
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

impl CheckpointHistory for MemoryCheckpoints {
    fn history<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Vec<CheckpointMetadata>> {
        self.with(|sessions| {
            let kept = sessions.get(session_id).map(|s| &s.checkpoints);
            let kept = kept.into_iter().flatten();
            Ok(kept.map(|(metadata, _)| metadata.clone()).collect())
        })
    }

    fn load_at<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
    ) -> StoreFuture<'a, Option<AgentState>> {
        self.with(|sessions| {
            let session = sessions.get(session_id);
            let found = session.and_then(|session| Some((session, session.find(checkpoint_id)?)));
            let found = found.and_then(|(session, n)| session.checkpoints.get(n));
            Ok(found.map(|(_, state)| state.clone()))
        })
    }

    fn fork<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
        new_session_id: &'a str,
    ) -> StoreFuture<'a, ()> {
        self.with(|sessions| {
            let unknown = CheckpointError::Unknown {
                checkpoint: checkpoint_id,
            };
            let session = sessions.get(session_id).ok_or_else(|| unknown.clone())?;
            let last = session.find(checkpoint_id).ok_or(unknown)?;
            if sessions.contains_key(new_session_id) {
                return Err(CheckpointError::Exists);
            }
            self.room(sessions)?;
            let mut forked = MemorySession::default();
            for (metadata, state) in session.checkpoints.iter().take(last + 1) {
                let mut metadata = metadata.clone();
                metadata.session_id = new_session_id.to_owned();
                forked.writers.found(&metadata, state);
                forked.checkpoints.push_back((metadata, state.clone()));
            }
            sessions.insert(new_session_id.to_owned(), forked);
            Ok(())
        })
    }

    fn prune<'a>(&'a self, session_id: &'a str, keep: usize) -> StoreFuture<'a, usize> {
        self.with(|sessions| {
            let Some(session) = sessions.get_mut(session_id) else {
                return Ok(0);
            };
            let gone = session.checkpoints.len().saturating_sub(keep.max(1));
            session.checkpoints.drain(..gone);
            Ok(gone)
        })
    }
}

impl MemorySession {
    fn find(&self, checkpoint: Uuid) -> Option<usize> {
        let mut checkpoints = self.checkpoints.iter();
        checkpoints.position(|(metadata, _)| metadata.checkpoint_id == checkpoint)
    }
}
