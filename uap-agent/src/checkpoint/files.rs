//! Checkpoints in files, in the layout that other implementations read.

mod name;

use core::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::oneshot;
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

use super::{CheckpointError, CheckpointMetadata, CheckpointStore, StoreFuture};
use crate::state::AgentState;

const STATE: &str = "checkpoint.json";
const METADATA: &str = "metadata.json";

/// Bytes of one file; a longer one is not read.
const MAX_BYTES: usize = 256 << 20;

/// Files of one session that were put aside; beyond them the last one is replaced.
const MOST_ASIDE: u32 = 100;

type Warn = Arc<dyn Fn(&CorruptFile) + Send + Sync>;
type Job = Box<dyn FnOnce(&Folder) + Send>;

/// A file that is no checkpoint. It was put aside, and the session has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is no checkpoint, and was put aside: {why}")]
#[non_exhaustive]
pub struct CorruptFile {
    /// Where it is now.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// Keeps states in a folder: `<folder>/<session>/checkpoint.json` and `metadata.json`.
///
/// A file is there whole or not at all, whatever happens while it is written, and is on the disk when a save is answered.
/// All work is done by one thread, in the order in which it was asked for, so that no runtime waits for a disk. Sessions'
/// names are percent-encoded; one that is empty, `.`, `..` or longer than a file's name may be is refused by
/// [`agent`](crate::agent()). One process at a time should write a session: the last save wins.
///
/// A file that cannot be read as a checkpoint is renamed and told to [`FileCheckpoints::on_corrupt`]; the session then has
/// none.
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
/// Spec: UAP-1.1 12.3
pub struct FileCheckpoints {
    jobs: Mutex<Sender<Job>>,
    warn: Arc<Mutex<Option<Warn>>>,
}

impl FileCheckpoints {
    /// The folder of implementations that are told no other.
    pub const DEFAULT_FOLDER: &str = ".checkpoints";

    /// A store in a folder, which is made where it is not there.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, or no thread is to be had.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, CheckpointError> {
        let warn = Arc::new(Mutex::new(None));
        let folder = Folder {
            path: folder.into(),
            warn: Arc::clone(&warn),
        };
        fs::create_dir_all(&folder.path).map_err(failed)?;
        let (jobs, work) = channel::<Job>();
        let thread = std::thread::Builder::new().name("checkpoints".into());
        // It ends with the store.
        let started = thread.spawn(move || work.iter().for_each(|job| job(&folder)));
        started.map_err(failed)?;
        Ok(Self {
            jobs: Mutex::new(jobs),
            warn,
        })
    }

    /// Sets who is told of files that are no checkpoints.
    #[must_use]
    pub fn on_corrupt(self, warn: impl Fn(&CorruptFile) + Send + Sync + 'static) -> Self {
        *self.warn.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(warn));
        self
    }

    /// Has the thread do something; each caller waits for its answer, so no more wait than there are callers.
    fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Folder) -> Result<T, CheckpointError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        // Nobody may wait for the answer any more.
        let job: Job = Box::new(move |folder| drop(reply.send(act(folder))));
        let sent = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sent.send(job);
        Box::pin(async move {
            let gone = || CheckpointError::Failed("the store's thread is gone".into());
            sent.map_err(|_| gone())?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl CheckpointStore for FileCheckpoints {
    fn takes_session(&self, session_id: &str) -> Result<(), CheckpointError> {
        name::encode(session_id).map(drop)
    }

    fn save<'a>(&'a self, metadata: CheckpointMetadata, state: AgentState) -> StoreFuture<'a, ()> {
        self.ask(move |folder| folder.save(&metadata, &state))
    }

    fn load<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        let session = session_id.to_owned();
        self.ask(move |folder| {
            let limits = Limits::default().with_max_bytes(MAX_BYTES);
            folder.load(&session, STATE, |bytes| {
                AgentState::from_json(bytes, &limits).map_err(|error| error.to_string())
            })
        })
    }

    fn load_metadata<'a>(
        &'a self,
        session_id: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        let session = session_id.to_owned();
        self.ask(move |folder| {
            folder.load(&session, METADATA, |bytes| {
                let read = json::decode(bytes, &Limits::default(), Profile::Strict);
                read.map(|(metadata, _)| metadata)
                    .map_err(|error| error.to_string())
            })
        })
    }

    fn delete<'a>(&'a self, session_id: &'a str) -> StoreFuture<'a, ()> {
        let session = session_id.to_owned();
        self.ask(move |folder| {
            let removed = fs::remove_dir_all(folder.of(&session)?);
            unless_missing(removed).map(drop)
        })
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        self.ask(Folder::list)
    }
}

/// What the thread has.
struct Folder {
    path: PathBuf,
    warn: Arc<Mutex<Option<Warn>>>,
}

impl Folder {
    fn of(&self, session: &str) -> Result<PathBuf, CheckpointError> {
        Ok(self.path.join(name::encode(session)?))
    }

    fn save(
        &self,
        metadata: &CheckpointMetadata,
        state: &AgentState,
    ) -> Result<(), CheckpointError> {
        let folder = self.of(&metadata.session_id)?;
        if !folder.is_dir() {
            fs::create_dir_all(&folder).map_err(failed)?;
            sync(&self.path)?;
        }
        replace(&folder, STATE, state.to_json().as_bytes())?;
        replace(&folder, METADATA, &json::to_vec(metadata))?;
        sync(&folder)
    }

    fn load<T>(
        &self,
        session: &str,
        file: &str,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, CheckpointError> {
        let folder = self.of(session)?;
        let Some(bytes) = unless_missing(read_bounded(&folder.join(file)))? else {
            return Ok(None);
        };
        match read(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(why) => self.put_aside(&folder, file, why).map(|()| None),
        }
    }

    // impl: UAP-12-3
    fn put_aside(&self, folder: &Path, file: &str, why: String) -> Result<(), CheckpointError> {
        let mut places = (0..MOST_ASIDE).map(|n| folder.join(format!("{file}.corrupt-{n}")));
        let free = places.clone().find(|place| !place.exists());
        let Some(place) = free.or_else(|| places.next_back()) else {
            return Ok(());
        };
        fs::rename(folder.join(file), &place).map_err(failed)?;
        let warn = self.warn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warn) = warn.clone() {
            let path = place.display().to_string();
            warn(&CorruptFile { path, why });
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, CheckpointError> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // What has no name of ours is nothing of ours.
            let session = entry.file_name().to_str().and_then(name::decode);
            if let Some(session) = session
                && entry.path().join(STATE).is_file()
            {
                sessions.push(session);
            }
        }
        sessions.sort_unstable();
        Ok(sessions)
    }
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

/// Has a folder's entries on the disk, where folders can be opened.
#[expect(clippy::disallowed_types, reason = "a store in files")]
fn sync(folder: &Path) -> Result<(), CheckpointError> {
    if cfg!(unix) {
        let opened = fs::File::open(folder).map_err(failed)?;
        opened.sync_all().map_err(failed)?;
    }
    Ok(())
}

#[expect(clippy::disallowed_types, reason = "a store in files")]
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    // One byte more than allowed makes it a file that is refused.
    fs::File::open(path)?
        .take(limit + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unless_missing<T>(result: io::Result<T>) -> Result<Option<T>, CheckpointError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: io::Error) -> CheckpointError {
    CheckpointError::Failed(error.to_string().into())
}

impl fmt::Debug for FileCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileCheckpoints")
    }
}
