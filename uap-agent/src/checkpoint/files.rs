//! Checkpoints in files, in the standard layout.

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubos_common::id::Uuid;
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

use super::disk::{create_folders, failed, sync, unless_missing};
use super::held::{OpenSessions, Seen, SessionLock};
use super::name;
use super::seal::Seal;
use super::seal::sealing::{Place, Sealing};
use super::trailer::{Unsound, checked, signed, signed_in};
use super::writers::{Before, WriterHistory};
use super::{CheckpointConfig, CheckpointError, CheckpointMetadata, CheckpointStore, StoreFuture};
use crate::state::{AgentState, StateId};
use crate::work_thread::WorkThread;

const STATE: &str = "checkpoint.json";
const METADATA: &str = "metadata.json";

/// The number of corrupt files that are kept for a session; beyond it the last one is replaced.
const MOST_ASIDE: u32 = 100;

type OnCorrupt = Box<dyn Fn(&CorruptFile) + Send>;

/// A file that is not a checkpoint. It was renamed, and the session has no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a file is not a checkpoint and was renamed to {path}: {why}")]
#[non_exhaustive]
pub struct CorruptFile {
    /// Its new path.
    pub path: String,
    /// The fault.
    pub why: String,
}

/// A store in a folder: `<folder>/<session>/checkpoint.json` and `metadata.json`.
///
/// Files are written atomically, and are on the disk when a save returns.
/// A thread does all work in the order of the calls, so that no runtime waits for the disk; dropping the
/// store waits for it. The names of sessions are percent-encoded; one that is empty, `.`, `..` or too long for a file name
/// is refused by [`agent`](crate::agent()). On a file system that ignores case, the second of two sessions whose names
/// differ in case only is refused, and the files of the first are unchanged.
///
/// Each file carries a digest of its JSON, as white space behind it, so that a changed file is noticed; one without, which
/// another implementation wrote, is read as it is. The digest of a state is bound to its session: one that was copied from
/// another session is [`CheckpointError::Foreign`], and stays in place.
///
/// A file that is not a checkpoint is renamed and reported to [`FileCheckpoints::with_on_corrupt`]; the session then has no
/// checkpoint. A file that the [seal](FileCheckpoints::with_seal) cannot open is left in place, and is an error.
///
/// A session that was saved is locked until the store is dropped or [releases](CheckpointStore::release) it: another store
/// is refused, and so is this one where another has saved since it last read the session. A save writes two files, so a
/// process that dies between them leaves the new state with the metadata of the previous save.
///
/// ```
/// use uap_agent::{AgentState, CheckpointStore, FileCheckpoints};
///
/// # let folder = std::env::temp_dir().join(format!("doc-{}", std::process::id()));
/// let store = FileCheckpoints::open(&folder)?;
/// let loaded = futures::executor::block_on(store.load("a session"))?;
/// assert!(loaded.is_none());
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), uap_agent::CheckpointError>(())
/// ```
///
/// | bound | default |
/// |---|---|
/// | state | 256 MiB as JSON |
/// | sessions held | 64, then the one that was used longest ago is let go |
/// | sessions whose last checkpoint is remembered | 100,000 |
///
/// Spec: UAP-1.1 12.3
pub struct FileCheckpoints {
    worker: WorkThread<FileStore>,
}

impl FileCheckpoints {
    /// Opens a store in a folder, which is created if it does not exist. The specification's default is `.checkpoints`.
    ///
    /// # Errors
    ///
    /// The folder could not be created, or the thread could not be started.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, CheckpointError> {
        Self::open_with(folder, &CheckpointConfig::default())
    }

    /// As [`FileCheckpoints::open`], with a configuration.
    ///
    /// # Errors
    ///
    /// As [`FileCheckpoints::open`], and [`CheckpointError::Setting`].
    pub fn open_with(
        folder: impl Into<PathBuf>,
        config: &CheckpointConfig,
    ) -> Result<Self, CheckpointError> {
        config.check()?;
        let folder = FileStore {
            path: folder.into(),
            warn: None,
            sealing: Sealing::default(),
            max_bytes: config.max_bytes,
            held: OpenSessions::new(),
        };
        create_folders(&folder.path)?;
        let worker = WorkThread::start("checkpoints", || Ok::<_, CheckpointError>(folder))?;
        Ok(Self { worker })
    }

    /// Opens the store of the specification's default folder, `.checkpoints` in the present one.
    ///
    /// # Errors
    ///
    /// As [`FileCheckpoints::open`].
    pub fn open_default() -> Result<Self, CheckpointError> {
        Self::open(".checkpoints")
    }

    /// Sets a callback for files that are not checkpoints.
    #[must_use]
    pub fn with_on_corrupt(self, warn: impl Fn(&CorruptFile) + Send + 'static) -> Self {
        self.set(|folder| folder.warn = Some(Box::new(warn)))
    }

    /// Sets the encryption of states and metadata. A store with a seal reads nothing that is not sealed.
    #[must_use]
    pub fn with_seal(self, seal: Arc<dyn Seal>) -> Self {
        self.set(|folder| folder.sealing = Sealing::new(seal))
    }

    /// Applies a setting before all later calls.
    fn set(self, change: impl FnOnce(&mut FileStore) + Send + 'static) -> Self {
        drop(self.worker.ask(|folder| {
            change(folder);
            Ok::<_, CheckpointError>(())
        }));
        self
    }
}

// impl: UAP-12-7
impl CheckpointStore for FileCheckpoints {
    // impl: UAP-12-3
    fn takes_session(&self, session_id: &str) -> Result<(), CheckpointError> {
        name::encode(session_id).map(drop)
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
            .ask(move |folder| folder.save(&metadata, &state, Before::Seen))
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        self.worker
            .ask(move |folder| folder.save(&metadata, &state, Before::State(after)))
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        let session = session_id.to_owned();
        self.worker.ask(move |folder| folder.load(&session))
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        let session = session_id.to_owned();
        self.worker.ask(move |folder| folder.metadata(&session))
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        let session = session_id.to_owned();
        self.worker.ask(move |folder| folder.delete(&session))
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        self.worker.ask(|folder| folder.list())
    }
}

/// The state of the thread.
struct FileStore {
    path: PathBuf,
    warn: Option<OnCorrupt>,
    sealing: Sealing,
    max_bytes: usize,
    held: OpenSessions<OpenSession>,
}

/// A locked session.
struct OpenSession {
    hold: SessionLock,
    writers: WriterHistory,
    /// The state of the files, and the checkpoint that the metadata told when it was read or written.
    last: Option<(Option<Uuid>, StateId)>,
    /// A save that failed, and may have been written, in part or in whole.
    attempted: Option<(Uuid, StateId)>,
}

impl OpenSession {
    /// Checks a save that continues from a state. `found` is what the metadata tells.
    fn check(&self, before: Before, found: Option<Uuid>) -> Result<(), CheckpointError> {
        let Some((_, last)) = self.last else {
            return Ok(());
        };
        // A state without metadata is one of a save that was cut short. Its conflict names no checkpoint.
        let found = found.unwrap_or_default();
        let checked = before.check(Some((found, last)));
        match (checked, self.attempted) {
            (Err(_), Some((_, state))) => before.check(Some((found, state))),
            (checked, _) => checked,
        }
    }
}

impl FileStore {
    fn of(&self, session: &str) -> Result<PathBuf, CheckpointError> {
        Ok(self.path.join(name::encode(session)?))
    }

    // impl: UAP-12-3, UAP-12-4
    fn save(
        &mut self,
        metadata: &CheckpointMetadata,
        state: &AgentState,
        before: Before,
    ) -> Result<(), CheckpointError> {
        let session = metadata.session_id.as_str();
        let (folder, json) = (self.of(session)?, state.to_json());
        if json.len() > self.max_bytes {
            return Err(CheckpointError::TooLarge {
                bytes: json.len(),
                limit: self.max_bytes,
            });
        }
        if let Some(why) = state.breach() {
            return Err(CheckpointError::Unreadable(why.into()));
        }
        let (sealing, known) = (self.sealing.clone(), json::to_vec(metadata));
        let (json, known) = (signed_in(session, json.as_bytes()), signed(&known));
        let sealed_state = sealing.seal(&place(session, STATE), &json)?;
        let sealed_metadata = sealing.seal(&place(session, METADATA), &known)?;
        let is_held = |open: &mut OpenSession| open.hold.is_of(&folder);
        let was_held = self.held.get(session).is_some_and(is_held);
        if !was_held {
            let open = self.take(&folder, session)?;
            self.held.open(session, open);
        }
        let may = self.check(metadata, state, before);
        if let Err(CheckpointError::Conflict { found }) = &may
            && (!was_held || self.held.seen(session) != Seen::Checkpoint(*found))
        {
            // Whoever saved that may go on.
            self.held.close(session);
        }
        may?;
        let Some(open) = self.held.get(session) else {
            return Ok(());
        };
        let saving = (metadata.checkpoint_id, state.id());
        open.attempted = Some(saving);
        replace(&folder, STATE, &sealed_state)?;
        replace(&folder, METADATA, &sealed_metadata)?;
        sync(&folder)?;
        open.writers.saved(metadata, state);
        (open.last, open.attempted) = (Some((Some(saving.0), saving.1)), None);
        self.held.saw(session, Some(metadata.checkpoint_id));
        Ok(())
    }

    /// Checks that a save may follow what stands in the files of a session that is open.
    fn check(
        &mut self,
        metadata: &CheckpointMetadata,
        state: &AgentState,
        before: Before,
    ) -> Result<(), CheckpointError> {
        let session = metadata.session_id.as_str();
        let found = self.metadata(session)?.map(|found| found.checkpoint_id);
        let is_same = found == Some(metadata.checkpoint_id);
        let seen = self.held.seen(session);
        if let Before::State(_) = before {
            let Some(open) = self.held.get(session) else {
                return Ok(());
            };
            // One that writes without a lock was here.
            if open.last.is_some_and(|(known, _)| known != found) {
                let last = self.last_state(session)?.map(|state| (found, state.id()));
                if let Some(open) = self.held.get(session) {
                    open.last = last;
                }
            }
        }
        let Some(open) = self.held.get(session) else {
            return Ok(());
        };
        match before {
            _ if is_same => Ok(()),
            Before::State(_) => open.check(before, found),
            Before::Seen => {
                seen.check(found, open.attempted.map(|(checkpoint, _)| checkpoint))?;
                open.writers.check(metadata, state)
            }
        }
    }

    /// Locks a session.
    fn take(&self, folder: &Path, session: &str) -> Result<OpenSession, CheckpointError> {
        let hold = SessionLock::take(folder)?;
        let (known, state) = (self.metadata(session)?, self.last_state(session)?);
        let mut writers = WriterHistory::default();
        if let (Some(known), Some(state)) = (&known, &state) {
            // Whose run another store has left there.
            writers.found(known, state);
        }
        let found = known.map(|known| known.checkpoint_id);
        Ok(OpenSession {
            hold,
            writers,
            last: state.map(|state| (found, state.id())),
            attempted: None,
        })
    }

    fn load(&mut self, session: &str) -> Result<Option<AgentState>, CheckpointError> {
        // Before the state: a save in between makes this store's next one a conflict, not a loss.
        let known = self.read(session, METADATA)?;
        let known = known.and_then(|bytes| read_metadata(checked(session, &bytes).ok()?).ok());
        let known = known.map(|known| of_session(session, known)).transpose()?;
        let limits = limits(self.max_bytes);
        let state = self.load_file(session, STATE, |bytes| {
            AgentState::from_json(bytes, &limits).map_err(|error| error.to_string())
        })?;
        // Metadata whose state was put aside is seen, too.
        self.held
            .saw(session, known.map(|known| known.checkpoint_id));
        if let Some(open) = self.held.get(session) {
            open.writers.loaded();
        }
        Ok(state)
    }

    /// The state of a session that is taken up. One that cannot be read is nobody's.
    fn last_state(&self, session: &str) -> Result<Option<AgentState>, CheckpointError> {
        let limits = limits(self.max_bytes);
        let bytes = match self.read(session, STATE) {
            Err(CheckpointError::TooLarge { .. }) => None,
            bytes => bytes?,
        };
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        match checked(session, &bytes) {
            Ok(text) => Ok(AgentState::from_json(text, &limits).ok()),
            Err(Unsound::Foreign) => Err(CheckpointError::Foreign),
            Err(Unsound::Changed) => Ok(None),
        }
    }

    fn metadata(&self, session: &str) -> Result<Option<CheckpointMetadata>, CheckpointError> {
        let known = self.load_file(session, METADATA, read_metadata)?;
        known.map(|known| of_session(session, known)).transpose()
    }

    fn load_file<T>(
        &self,
        session: &str,
        file: &str,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(bytes) = self.read(session, file)? else {
            return Ok(None);
        };
        let read = match checked(session, &bytes) {
            Ok(text) => read(text),
            Err(Unsound::Foreign) => return Err(CheckpointError::Foreign),
            Err(Unsound::Changed) => Err("it was changed: its digest is another".to_owned()),
        };
        match read {
            Ok(value) => Ok(Some(value)),
            Err(why) => {
                self.put_aside(&self.of(session)?, file, why)?;
                Ok(None)
            }
        }
    }

    /// A file's bytes, opened.
    fn read(&self, session: &str, file: &str) -> Result<Option<Vec<u8>>, CheckpointError> {
        let path = self.of(session)?.join(file);
        let Some(bytes) = unless_missing(read_bounded(&path, self.max_bytes))? else {
            return Ok(None);
        };
        let opened = self.sealing.open(&place(session, file), &bytes)?;
        let bytes = checked(session, &opened).unwrap_or(&opened).len();
        let limit = self.max_bytes;
        if bytes > limit {
            return Err(CheckpointError::TooLarge { bytes, limit });
        }
        Ok(Some(opened.into_owned()))
    }

    // impl: UAP-12-3
    fn put_aside(&self, folder: &Path, file: &str, why: String) -> Result<(), CheckpointError> {
        let mut places = (0..MOST_ASIDE).map(|n| folder.join(format!("{file}.corrupt-{n}")));
        let free = places.clone().find(|place| !place.exists());
        let Some(place) = free.or_else(|| places.next_back()) else {
            return Ok(());
        };
        fs::rename(folder.join(file), &place).map_err(failed)?;
        if let Some(warn) = &self.warn {
            let path = place.display().to_string();
            // A callback that panics must not end the thread of the store.
            let told = AssertUnwindSafe(|| warn(&CorruptFile { path, why }));
            let _ = std::panic::catch_unwind(told);
        }
        Ok(())
    }

    fn delete(&mut self, session: &str) -> Result<(), CheckpointError> {
        let folder = self.of(session)?;
        // What cannot be read is removed with the rest.
        let known = self.read(session, METADATA).ok().flatten();
        if let Some(known) =
            known.and_then(|bytes| read_metadata(checked(session, &bytes).ok()?).ok())
        {
            of_session(session, known)?;
        }
        self.held.forget(session);
        let held = self.held.close(session).map(|open| open.hold);
        let held = held.filter(|hold| hold.is_of(&folder));
        if !folder.is_dir() {
            return Ok(());
        }
        let _hold = match held {
            Some(hold) => hold,
            None => SessionLock::take(&folder)?,
        };
        unless_missing(fs::remove_dir_all(folder)).map(drop)
    }

    fn list(&self) -> Result<Vec<String>, CheckpointError> {
        list(&self.path, name::decode, |folder| {
            folder.join(STATE).is_file()
        })
    }
}

fn place<'a>(session: &'a str, kind: &'a str) -> Place<'a> {
    Place {
        session,
        kind,
        number: 0,
    }
}

fn read_metadata(bytes: &[u8]) -> Result<CheckpointMetadata, String> {
    let read = json::decode(bytes, &Limits::default(), Profile::Strict);
    read.map(|(metadata, _)| metadata)
        .map_err(|error| error.to_string())
}

/// The metadata, where it is of this session: some file systems do not tell upper from lower case.
fn of_session(
    session: &str,
    known: CheckpointMetadata,
) -> Result<CheckpointMetadata, CheckpointError> {
    if known.session_id == session {
        return Ok(known);
    }
    Err(CheckpointError::Session("its folder is another session's"))
}

/// What a store reads back: whatever it wrote, and no more than so many bytes.
pub(super) fn limits(max_bytes: usize) -> Limits {
    Limits::default()
        .with_max_bytes(max_bytes)
        .with_max_string_bytes(max_bytes)
        .with_max_array_len(max_bytes)
        .with_max_members(max_bytes)
        .with_max_depth(Limits::DEEPEST)
}

/// The size of what is read where `max_bytes` may be sealed.
pub(super) fn sealed_bytes(max_bytes: usize) -> u64 {
    const SEAL: u64 = 64 << 10;
    u64::try_from(max_bytes)
        .unwrap_or(u64::MAX)
        .saturating_add(SEAL)
}

/// The sessions of a folder whose own folders are what they should be.
pub(super) fn list(
    folder: &Path,
    decode: impl Fn(&str) -> Option<String>,
    is_session: impl Fn(&Path) -> bool,
) -> Result<Vec<String>, CheckpointError> {
    let mut sessions = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // What has no name of ours is nothing of ours.
        let session = entry.file_name().to_str().and_then(&decode);
        sessions.extend(session.filter(|_| is_session(&entry.path())));
    }
    sessions.sort_unstable();
    Ok(sessions)
}

/// Puts a file in the place of another, whole or not at all.
#[expect(clippy::disallowed_types, reason = "a store in files")]
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
    let written = folder.join(format!("{name}.new"));
    let mut file = fs::File::create(&written).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(written, folder.join(name)).map_err(failed)
}

#[expect(clippy::disallowed_types, reason = "a store in files")]
fn read_bounded(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    // One byte that is too many.
    let limit = sealed_bytes(max_bytes).saturating_add(1);
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl fmt::Debug for FileCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileCheckpoints")
    }
}
