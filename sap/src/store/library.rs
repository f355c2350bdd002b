//! What was learned, kept for whoever asks: a librarian on the hash-chained log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::json;
use ubos_common::log::{AppendError, Config, Log, OpenError, Position, ReadError};
use ubos_common::violation::Profile;

use super::file_signals::ReadBackError;
use super::thread::{StoreThread, Taken, opened};
use crate::error::StoreError;
use crate::evidence::BodyDigest;
use crate::future::{BoxFuture, ready};
use crate::learning::{Artifact, Librarian, Publisher, SignalKey};
use crate::limits::unbounded;

/// Playbooks and punch-cards in the files of a folder. Each is there once; the newest about a subject is what is given
/// out, and the older ones stay.
///
/// It has a thread of its own, as [`FileTranscript`](super::FileTranscript) has. With the feature `driver` an
/// `Arc<Library>` is a handler: its tasks ask with `capability`, and where they like `territory` and `fingerprint`, and
/// the output is the playbook, the punch-card, or null.
///
/// ```
/// use sap::learning::{Aggregate, Heuristics, Support};
/// use sap::store::Library;
/// use sap::ubos_common::{log::{Config, LogId}, time::Timestamp};
///
/// let folder = tempfile::tempdir()?;
/// let library = Library::open(folder.path(), Config::default().with_log_id(LogId::from_bytes([7; 16])))?;
/// // It knows what is there, so that nothing is filed twice.
/// let mut publisher = library.publisher();
/// let (known, learned) = (Aggregate::default(), Heuristics::default());
/// let filed = publisher.publish(Timestamp::now(), &known, &learned, Support::default(), &library);
/// assert!(futures::executor::block_on(filed)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SAP 7
#[derive(Debug)]
pub struct Library {
    store: StoreThread,
    shelves: Arc<Mutex<Shelves>>,
}

#[derive(Debug, Default)]
struct Shelves {
    newest: BTreeMap<SignalKey, Position>,
    filed: BTreeSet<BodyDigest>,
}

/// The kind of a library's log.
const KIND: &str = "sap-knowledge";

impl Library {
    /// Pieces that it holds; at the bound no more are taken.
    pub(crate) const MAX_ARTIFACTS: usize = 100_000;

    /// Opens the library in a folder, or makes it there; `config` needs a log id for that.
    ///
    /// # Errors
    ///
    /// [`ReadBackError`]; damage is named and left as it is.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, ReadBackError> {
        let (path, config) = (path.into(), config.with_kind(KIND));
        let log = opened(&path, || Log::open(&path, config.clone()))?;
        let mut shelves = Shelves::default();
        let mut reader = log.reader();
        while let Some(entry) = reader.next()? {
            // A piece of a later version of this crate is kept and not given out.
            if let Some(artifact) = decode(entry.bytes) {
                shelves.put(&artifact, entry.position);
            }
            if shelves.filed.len() > Self::MAX_ARTIFACTS {
                return Err(ReadBackError::TooMany {
                    what: "artifacts",
                    limit: Self::MAX_ARTIFACTS,
                });
            }
        }
        Ok(Self {
            store: StoreThread::start(&path, log).map_err(OpenError::Io)?,
            shelves: Arc::new(Mutex::new(shelves)),
        })
    }

    /// A publisher that offers nothing that is here.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        locked(&self.shelves).filed.iter().copied().collect()
    }

    /// The newest piece about a subject: a playbook where no fingerprint is named, otherwise a punch-card. One that was
    /// archived is not here any more.
    ///
    /// # Errors
    ///
    /// The library cannot be read.
    pub fn newest(&self, about: &SignalKey) -> BoxFuture<'_, Result<Option<Artifact>, StoreError>> {
        let Some(position) = locked(&self.shelves).newest.get(about).copied() else {
            return ready(Ok(None));
        };
        let read = self.store.call(move |log| log.reader().read(position));
        Box::pin(async {
            let bytes: Result<Vec<u8>, ReadError> = read.await.map_err(failed)?;
            match bytes {
                // It was moved, and is not here any more.
                Err(ReadError::Archived { .. }) => Ok(None),
                bytes => Ok(decode(&bytes.map_err(failed)?)),
            }
        })
    }

    /// Waits until all that was handed over is written, and the log is closed. It blocks the thread; a drop does not.
    pub fn close(self) {
        self.store.close();
    }

    /// The log beneath: for its report, its head and for archiving.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.store.log()
    }
}

impl Shelves {
    fn put(&mut self, artifact: &Artifact, position: Position) {
        self.newest.insert(SignalKey::from(artifact), position);
        self.filed.insert(artifact.digest);
    }
}

impl Librarian for Library {
    // impl: SAP-7-3
    fn file<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<(), StoreError>> {
        {
            let shelves = locked(&self.shelves);
            if shelves.filed.contains(&artifact.digest) {
                return ready(Ok(()));
            }
            let limit = Self::MAX_ARTIFACTS;
            if shelves.filed.len() >= limit {
                let what = "artifacts";
                return ready(Err(StoreError::Full { what, limit }));
            }
        }
        let (shelves, kept) = (Arc::clone(&self.shelves), artifact.clone());
        let filed = self
            .store
            .append(Taken::WithRoom, json::to_vec(artifact), move |position| {
                locked(&shelves).put(&kept, position?);
                Ok(())
            });
        Box::pin(async {
            let filed: Result<(), AppendError> = filed.await.map_err(failed)?;
            filed.map_err(failed)
        })
    }
}

pub(super) fn decode(bytes: &[u8]) -> Option<Artifact> {
    let artifact = json::decode(bytes, &unbounded(), Profile::Strict);
    artifact.ok().map(|(artifact, _)| artifact)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Failed(Box::new(error))
}

fn locked(shelves: &Mutex<Shelves>) -> MutexGuard<'_, Shelves> {
    shelves.lock().unwrap_or_else(PoisonError::into_inner)
}
