//! Checkpoints in append-only files.

mod generation;
mod options;
mod past;
mod record;
mod session;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubos_common::id::Uuid;

use super::disk::create_folders;
use super::files::list;
use super::held::{OpenSessions, Seen, SessionLock};
use super::name;
use super::seal::Seal;
use super::seal::sealing::Sealing;
use super::writers::Before;
use super::{
    CheckpointConfig, CheckpointError, CheckpointHistory, CheckpointMetadata, CheckpointStore,
    StoreFuture,
};
use crate::state::{AgentState, StateId};
use crate::work_thread::WorkThread;
use options::Options;
use past::Past;
use session::LogSession;

/// A save that was interrupted by a crash before it returned. It is removed; the session is at the save before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutTail {
    /// The session.
    pub session: String,
    /// The number of bytes that were written.
    pub bytes: u64,
}

type OnCutTail = Box<dyn Fn(&CutTail) + Send>;

/// A store in a folder that keeps states with their history: one hash-chained log per session.
///
/// A save writes what the step has added, and is on the disk when its future ends. If the differences since the last whole
/// state exceed twice the state, the whole state is written. So n steps cost what they added, not n states, and loading
/// reads a small multiple of the state. The tail that a crash cut short is removed and reported to
/// [`LogCheckpoints::with_on_cut`]. A changed log is [`CheckpointError::Damaged`] and stays in place, and so does the log of
/// another session ([`CheckpointError::Foreign`]).
///
/// A session that was saved is locked until the store is dropped or [releases](CheckpointStore::release) it: another store
/// is refused, and so is this one if another has saved since it last read the session. Reading takes no lock.
///
/// A thread does all work in the order of the calls; dropping the store waits for it. The names of sessions are
/// percent-encoded names of folders, as in [`FileCheckpoints`](super::FileCheckpoints). Upper-case letters are encoded too,
/// because some file systems ignore case.
///
/// ```
/// use uap_agent::{AgentState, CheckpointHistory, CheckpointMetadata, CheckpointStore, LogCheckpoints};
/// use ubos_common::{id::IdSource, time::Timestamp};
///
/// # let folder = std::env::temp_dir().join(format!("doc-log-{}", std::process::id()));
/// # futures::executor::block_on(async {
/// let (store, ids) = (LogCheckpoints::open(&folder)?, &mut IdSource::seeded(1));
/// let first = AgentState::initial(ids);
/// for state in [first.clone(), first.with_step(ids, 1)] {
///     let metadata = CheckpointMetadata::new("s".into(), ids.uuid(), Timestamp::EPOCH, state.step(), "agent".into());
///     store.save(metadata, state).await?;
/// }
/// let history = store.history("s").await?;
/// assert_eq!(store.load_at("s", history[0].checkpoint_id).await?, Some(first));
/// # Ok::<(), uap_agent::CheckpointError>(())
/// # })?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), uap_agent::CheckpointError>(())
/// ```
///
/// | bound | default |
/// |---|---|
/// | state | 256 MiB as JSON |
/// | checkpoints of a session | 100,000; at twice as many the older ones are pruned |
/// | sessions held | 64, then the one that was used longest ago is let go |
/// | sessions whose last checkpoint is remembered | 100,000 |
/// | disk that a held session takes ahead | 1 MiB |
pub struct LogCheckpoints {
    worker: WorkThread<LogStore>,
}

impl LogCheckpoints {
    /// Opens a store in a folder, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// The folder could not be created, or the thread could not be started.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, CheckpointError> {
        Self::open_with(folder, &CheckpointConfig::default())
    }

    /// As [`LogCheckpoints::open`], with a configuration.
    ///
    /// # Errors
    ///
    /// As [`LogCheckpoints::open`], and [`CheckpointError::Setting`].
    pub fn open_with(
        folder: impl Into<PathBuf>,
        config: &CheckpointConfig,
    ) -> Result<Self, CheckpointError> {
        config.check()?;
        let folder = LogStore {
            path: folder.into(),
            options: Options {
                sealing: Sealing::default(),
                max_bytes: config.max_bytes,
                history: config.history,
            },
            told: None,
            held: OpenSessions::new(),
        };
        create_folders(&folder.path)?;
        let worker = WorkThread::start("checkpoints", || Ok::<_, CheckpointError>(folder))?;
        Ok(Self { worker })
    }

    /// Sets a callback for saves that a crash cut short.
    #[must_use]
    pub fn with_on_cut(self, told: impl Fn(&CutTail) + Send + 'static) -> Self {
        self.set(|folder| folder.told = Some(Box::new(told)))
    }

    /// Sets the encryption of checkpoints. A store with a seal reads nothing that is not sealed.
    #[must_use]
    pub fn with_seal(self, seal: Arc<dyn Seal>) -> Self {
        self.set(|folder| folder.options.sealing = Sealing::new(seal))
    }

    /// Applies a setting before all later calls.
    fn set(self, change: impl FnOnce(&mut LogStore) + Send + 'static) -> Self {
        drop(self.worker.ask(|folder| {
            change(folder);
            Ok::<_, CheckpointError>(())
        }));
        self
    }

    fn ask<T: Send + 'static>(
        &self,
        session: &str,
        act: impl FnOnce(&mut LogStore, &str) -> Result<T, CheckpointError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let session = session.to_owned();
        self.worker.ask(move |folder| act(folder, &session))
    }
}

// impl: UAP-12-7
impl CheckpointStore for LogCheckpoints {
    fn takes_session(&self, session_id: &str) -> Result<(), CheckpointError> {
        name::encode_caseless(session_id).map(drop)
    }

    fn release<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        let session = session_id.to_owned();
        self.worker.ask(move |folder| {
            folder.held.close(&session);
            Ok(())
        })
    }

    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        self.worker
            .ask(move |folder| folder.save(&metadata, state, Before::Seen))
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        self.worker
            .ask(move |folder| folder.save(&metadata, state, Before::State(after)))
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        self.ask(session_id, LogStore::load)
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        self.ask(session_id, |folder, session| {
            Ok(folder.last(session)?.map(|(metadata, _)| metadata))
        })
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        self.ask(session_id, LogStore::delete)
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        self.worker.ask(|folder| {
            list(&folder.path, name::decode_caseless, |session| {
                generation::current(session).is_ok_and(|log| log.is_some())
            })
        })
    }
}

impl CheckpointHistory for LogCheckpoints {
    fn history<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Vec<CheckpointMetadata>> {
        self.ask(session_id, |folder, session| folder.history(session))
    }

    fn load_at<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
    ) -> StoreFuture<'a, Option<AgentState>> {
        self.ask(session_id, move |folder, session| {
            folder.load_at(session, checkpoint_id)
        })
    }

    fn fork<'a>(
        &'a self,
        session_id: &'a str,
        checkpoint_id: Uuid,
        new_session_id: &'a str,
    ) -> StoreFuture<'a, ()> {
        let new = new_session_id.to_owned();
        self.ask(session_id, move |folder, session| {
            folder.fork(session, checkpoint_id, &new)
        })
    }

    fn prune<'a>(&'a self, session_id: &'a str, keep: usize) -> StoreFuture<'a, usize> {
        self.ask(session_id, move |folder, session| {
            folder.prune(session, keep)
        })
    }
}

/// The state of the thread.
struct LogStore {
    path: PathBuf,
    options: Options,
    told: Option<OnCutTail>,
    held: OpenSessions<LogSession>,
}

impl LogStore {
    fn of(&self, session: &str) -> Result<PathBuf, CheckpointError> {
        Ok(self.path.join(name::encode_caseless(session)?))
    }

    // impl: UAP-12-4
    fn save(
        &mut self,
        metadata: &CheckpointMetadata,
        state: AgentState,
        before: Before,
    ) -> Result<(), CheckpointError> {
        let name = metadata.session_id.as_str();
        let was_held = self.hold(name)?;
        let (seen, Some(session)) = (self.held.seen(name), self.held.get(name)) else {
            return Ok(());
        };
        let saved = match session.check(seen, before, metadata, &state) {
            Ok(()) => session.save(metadata, state, &self.options),
            refused => refused,
        };
        if let Err(error) = saved {
            // A conflict leaves the session to who saves it.
            let is_theirs = match error {
                CheckpointError::Conflict { found } => !was_held || seen != Seen::Checkpoint(found),
                _ => false,
            };
            // After a failed write only opening tells what is there.
            if is_theirs || !session.is_sound() {
                self.held.close(name);
            }
            return Err(error);
        }
        let is_long = session.records() >= self.options.history.saturating_mul(2);
        self.held.saw(name, Some(metadata.checkpoint_id));
        if is_long {
            // The save is done, whatever becomes of the past; the next one tries again.
            let _ = self.prune(name, self.options.history);
        }
        Ok(())
    }

    /// A session that is open, unless its folder is another by now.
    fn open(&mut self, name: &str, folder: &Path) -> Option<&mut LogSession> {
        self.held.get(name).filter(|open| open.is_of(folder))
    }

    /// Opens a session for writing; whether it was open.
    fn hold(&mut self, name: &str) -> Result<bool, CheckpointError> {
        let folder = self.of(name)?;
        if self.open(name, &folder).is_some() {
            return Ok(true);
        }
        self.held.close(name);
        let (session, cut) =
            LogSession::open(SessionLock::take(&folder)?, folder, name, &self.options)?;
        self.held.open(name, session);
        if let (Some(told), Some(bytes)) = (&self.told, cut) {
            let session = name.to_owned();
            // Whoever is told must not take the store down.
            let told = AssertUnwindSafe(|| told(&CutTail { session, bytes }));
            let _ = std::panic::catch_unwind(told);
        }
        Ok(false)
    }

    /// The last checkpoint: the one that this store saved, or the one on the disk.
    fn last(
        &mut self,
        session: &str,
    ) -> Result<Option<(CheckpointMetadata, AgentState)>, CheckpointError> {
        let folder = self.of(session)?;
        if let Some(last) = self.open(session, &folder).and_then(|open| open.last()) {
            return Ok(Some(last));
        }
        let last = Past::read(&folder, session, &self.options, Past::last)?;
        Ok(last.flatten().map(|last| (last.metadata, last.state)))
    }

    fn load(&mut self, session: &str) -> Result<Option<AgentState>, CheckpointError> {
        let last = self.last(session)?;
        let checkpoint = last.as_ref().map(|(metadata, _)| metadata.checkpoint_id);
        self.held.saw(session, checkpoint);
        if let Some(open) = self.held.get(session) {
            open.loaded();
        }
        Ok(last.map(|(_, state)| state))
    }

    fn history(&self, session: &str) -> Result<Vec<CheckpointMetadata>, CheckpointError> {
        let history = Past::read(&self.of(session)?, session, &self.options, |past| {
            let mut history = Vec::new();
            while let Some((_, record)) = past.next()? {
                history.push(past.metadata(&record)?);
            }
            Ok(history)
        });
        history.map(Option::unwrap_or_default)
    }

    fn load_at(
        &self,
        session: &str,
        checkpoint: Uuid,
    ) -> Result<Option<AgentState>, CheckpointError> {
        let found = Past::read(
            &self.of(session)?,
            session,
            &self.options,
            |past| match past.find(checkpoint)? {
                Some(found) => past.at(&found),
                None => Ok(None),
            },
        )?;
        Ok(found.flatten().map(|last| last.state))
    }

    fn fork(&mut self, name: &str, checkpoint: Uuid, new: &str) -> Result<(), CheckpointError> {
        let (from, to) = (self.of(name)?, self.of(new)?);
        let unknown = CheckpointError::Unknown { checkpoint };
        let find = |past: &mut Past<'_>| past.find(checkpoint);
        let found = Past::read(&from, name, &self.options, find)?;
        found.flatten().ok_or_else(|| unknown.clone())?;
        if self.open(new, &to).is_some() || generation::current(&to)?.is_some() {
            return Err(CheckpointError::Exists);
        }
        let _hold = SessionLock::take(&to)?;
        if generation::current(&to)?.is_some() {
            return Err(CheckpointError::Exists);
        }
        let copied = Past::read(&from, name, &self.options, |past| {
            let mut is_done = false;
            generation::write(&to, new, &self.options, || {
                if is_done {
                    return Ok(None);
                }
                let (_, mut record) = past.next()?.ok_or_else(|| unknown.clone())?;
                record.session = record.session.map(|_| new.to_owned());
                is_done = record.checkpoint == checkpoint;
                Ok(Some(record))
            })
        });
        if !matches!(copied, Ok(Some(_))) {
            generation::remove(&to)?;
        }
        copied?.ok_or(unknown)?;
        self.held.saw(new, Some(checkpoint));
        Ok(())
    }

    fn prune(&mut self, name: &str, keep: usize) -> Result<usize, CheckpointError> {
        let folder = self.of(name)?;
        if generation::current(&folder)?.is_none() {
            return Ok(0);
        }
        self.hold(name)?;
        let Some(mut session) = self.held.close(name) else {
            return Ok(0);
        };
        let gone = session.prune(name, keep.max(1), &self.options)?;
        self.held.open(name, session);
        Ok(gone)
    }

    fn delete(&mut self, session: &str) -> Result<(), CheckpointError> {
        let folder = self.of(session)?;
        self.held.forget(session);
        let held = self.held.close(session).map(LogSession::into_hold);
        let held = held.filter(|hold| hold.is_of(&folder));
        if !folder.is_dir() {
            return Ok(());
        }
        let _hold = match held {
            Some(hold) => hold,
            None => SessionLock::take(&folder)?,
        };
        generation::remove(&folder)
    }
}

impl fmt::Debug for LogCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogCheckpoints")
    }
}
