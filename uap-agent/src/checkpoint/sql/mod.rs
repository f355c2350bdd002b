//! Checkpoints in a database.

mod rows;
mod session;

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ubos_common::id::Uuid;

use super::held::OpenSessions;
use super::seal::Seal;
use super::seal::sealing::Sealing;
use super::writers::Before;
use super::{
    CheckpointConfig, CheckpointError, CheckpointHistory, CheckpointMetadata, CheckpointStore,
    StoreFuture,
};
use crate::sql::{Pool, Unawaited, check_name};
use crate::state::{AgentState, StateId};
use rows::Options;
use session::{At, Session};

/// A store in a [`Database`](crate::sql::Database) that keeps states with their history.
///
/// A save writes what the step has added, as in [`LogCheckpoints`](crate::LogCheckpoints), and compares and sets the last
/// checkpoint of the session: a store that has saved or loaded a session, and continues after another has saved, is refused
/// with [`CheckpointError::Conflict`] until it loads. Nothing is locked between two calls, so any machine can continue a
/// session. A changed row is [`CheckpointError::Damaged`].
///
/// | bound | default |
/// |---|---|
/// | state | 256 MiB as JSON; a row is measured before it is read |
/// | names of all sessions | 64 MiB with 64 bytes for each |
/// | metadata of a session | 256 MiB |
/// | checkpoints of a session | 100,000; at twice as many the older ones are pruned |
/// | sessions whose last state is in memory | 64 for each connection |
/// | sessions whose last checkpoint is remembered | 100,000 for each connection |
#[derive(Clone)]
pub struct SqlCheckpoints {
    pool: Arc<Pool>,
    options: Options,
    /// What this store knows of sessions, for each connection.
    known: Arc<[Mutex<OpenSessions<Session>>]>,
}

impl SqlCheckpoints {
    pub(crate) fn of(pool: Arc<Pool>, config: &CheckpointConfig) -> Self {
        let known = (0..pool.connections()).map(|_| Mutex::new(OpenSessions::new()));
        Self {
            known: known.collect(),
            pool,
            options: Options {
                sealing: Sealing::default(),
                max_bytes: config.max_bytes,
                history: config.history,
            },
        }
    }

    /// Sets the encryption of states and metadata. A store with a seal reads nothing that is not sealed. Names of sessions,
    /// ids of checkpoints and sizes stay readable.
    #[must_use]
    pub fn with_seal(mut self, seal: Arc<dyn Seal>) -> Self {
        self.options.sealing = Sealing::new(seal);
        self
    }

    /// Does something with a session, in the order of the calls for it.
    fn ask<T: Send + 'static>(
        &self,
        session: &str,
        unawaited: Unawaited,
        act: impl FnOnce(&mut At<'_>, &str) -> Result<T, CheckpointError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        if let Err(error) = named(session) {
            return Box::pin(core::future::ready(Err(error)));
        }
        let (known, options) = (Arc::clone(&self.known), self.options.clone());
        let (place, name) = (self.pool.place_of(session), session.to_owned());
        self.pool.ask(session, unawaited, move |worker| {
            let Some(known) = known.get(place) else {
                return Err(CheckpointError::Failed("no connection".into()));
            };
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let mut at = At {
                worker,
                known,
                options: &options,
            };
            act(&mut at, &name)
        })
    }
}

fn named(session: &str) -> Result<(), CheckpointError> {
    match session {
        "" => Err(CheckpointError::Session("it is empty")),
        _ => check_name(session).map_err(CheckpointError::Session),
    }
}

// impl: UAP-12-7
impl CheckpointStore for SqlCheckpoints {
    fn takes_session(&self, session_id: &str) -> Result<(), CheckpointError> {
        named(session_id)
    }

    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        let session = metadata.session_id.clone();
        self.ask(&session, Unawaited::Done, move |at, _| {
            at.save(&metadata, &state, Before::Seen)
        })
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        let session = metadata.session_id.clone();
        self.ask(&session, Unawaited::Done, move |at, _| {
            at.save(&metadata, &state, Before::State(after))
        })
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        self.ask(session_id, Unawaited::Skipped, |at, session| {
            at.load(session)
        })
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        self.ask(session_id, Unawaited::Skipped, |at, session| {
            at.metadata(session)
        })
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        self.ask(session_id, Unawaited::Done, |at, session| {
            at.delete(session)
        })
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        self.pool
            .ask("", Unawaited::Skipped, |worker| worker.read(rows::list))
    }
}

impl CheckpointHistory for SqlCheckpoints {
    fn history<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Vec<CheckpointMetadata>> {
        self.ask(session_id, Unawaited::Skipped, |at, session| {
            at.history(session)
        })
    }

    fn load_at<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
    ) -> StoreFuture<'a, Option<AgentState>> {
        self.ask(session_id, Unawaited::Skipped, move |at, session| {
            at.load_at(session, checkpoint_id)
        })
    }

    fn fork<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
        new_session_id: &'a str,
    ) -> StoreFuture<'a, ()> {
        if let Err(error) = named(session_id) {
            return Box::pin(core::future::ready(Err(error)));
        }
        let from = session_id.to_owned();
        self.ask(new_session_id, Unawaited::Done, move |at, new| {
            at.fork(&from, checkpoint_id, new)
        })
    }

    fn prune<'a>(&'a self, session_id: &'a str, keep: usize) -> StoreFuture<'a, usize> {
        self.ask(session_id, Unawaited::Done, move |at, session| {
            at.prune(session, keep)
        })
    }
}

impl fmt::Debug for SqlCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqlCheckpoints")
    }
}
