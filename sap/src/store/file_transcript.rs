//! A transcript on the hash-chained log.

use std::path::PathBuf;
use std::sync::Arc;

use ubos_common::json;
use ubos_common::log::{Config, FsDir, Log, OpenError, ReadError};

use super::proof::prove;
use super::thread::{StoreThread, opened};
use crate::future::BoxFuture;
use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError};

/// A transcript in the files of a folder. One process writes it; anybody can verify it.
///
/// It has a thread of its own, so that the disk holds up no executor. At most 4,096 calls wait for it; one more is
/// refused. Dropping it waits for nothing; what was handed over is written all the same, as long as the process runs
/// ([`close`](Self::close)). Opening the folder again in this process waits for that.
#[derive(Debug)]
pub struct FileTranscript {
    dir: FsDir,
    store: StoreThread,
}

/// The kind of a transcript's log.
const KIND: &str = "sap-transcript";

impl FileTranscript {
    /// Opens the transcript in a folder, or makes it there; `config` needs a log id for that.
    ///
    /// ```
    /// use sap::store::FileTranscript;
    /// use sap::transcript::{Transcript as _, Verdict};
    /// use sap::ubos_common::log::{Config, LogId};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
    /// let transcript = FileTranscript::open(folder.path(), config)?;
    /// assert_eq!(transcript.verify(None)?.verdict, Verdict::Intact);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError`]; damage is named and left as it is. A last entry that a crash cut short is dropped, and
    /// the [log's report](Self::log) says so.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, OpenError> {
        let (path, config) = (path.into(), config.with_kind(KIND));
        let dir = FsDir::create(&path)?;
        let log = opened(&path, || {
            Log::open_in(Arc::new(dir.clone()), config.clone())
        })?;
        let store = StoreThread::start(&path, log)?;
        Ok(Self { dir, store })
    }

    /// Waits until all that was handed over is written, and the log is closed. It blocks the thread; a drop does not.
    pub fn close(self) {
        self.store.close();
    }

    /// The log beneath: for what opening found, for syncing, and for archiving.
    ///
    /// [`Log::archive`] moves whole segments into another folder. The chain holds over both folders: the head of
    /// what was moved is where this one goes on, which [`Verify::after`](ubos_common::log::Verify::after) proves.
    #[must_use]
    pub fn log(&self) -> &Log {
        self.store.log()
    }
}

impl Transcript for FileTranscript {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        let position = self.store.append(json::to_vec(entry), |position| position);
        Box::pin(async { Ok(position.await.map_err(store)?.map_err(store)?.sequence) })
    }

    fn record_made(
        &self,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        let bytes = entry.body.as_str().len();
        let record = move || json::to_vec(&make(entry));
        let position = self.store.append_made(bytes, record, |position| position);
        Box::pin(async { Ok(position.await.map_err(store)?.map_err(store)?.sequence) })
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        let entries = self.store.call(move |log| entries(log, from, max));
        Box::pin(async { entries.await.map_err(store)? })
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        prove(&self.dir, self.log(), kept)
    }
}

fn entries(log: &Log, from: u64, max: usize) -> Result<Vec<Entry>, TranscriptError> {
    let mut reader = log.reader();
    reader.seek(from);
    let mut entries = Vec::new();
    while entries.len() < max
        && let Some(entry) = reader.next().map_err(unread)?
    {
        entries.push(Entry::decode(entry.bytes)?);
    }
    Ok(entries)
}

fn unread(error: ReadError) -> TranscriptError {
    match error {
        ReadError::Archived { first, .. } => TranscriptError::Archived { first },
        error => store(error),
    }
}

fn store(error: impl std::error::Error + Send + Sync + 'static) -> TranscriptError {
    TranscriptError::Store(Box::new(error))
}
