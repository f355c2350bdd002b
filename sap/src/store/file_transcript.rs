//! A transcript on the hash-chained log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ubos_common::json;
use ubos_common::log::{ArchiveError, Config, FsDir, Log, OpenError, ReadError};

use super::proof::prove;
use super::thread::{StoreThread, Taken, opened};
use crate::future::{BoxFuture, ready};
use crate::transcript::{Entry, EntryKind, Head, Proof, Transcript, TranscriptError};

/// A transcript in the files of a folder. One process writes it; anybody can verify it.
///
/// It has a thread of its own, so that the disk holds up no executor. At most 4,096 calls wait for it, and 64 MiB of
/// entries; what is more is refused. Results are taken whatever waits, for each is owed to a task that was begun, which has
/// one under way. Dropping it waits for nothing; what was handed over is written all the same, as long as the process runs
/// ([`close`](Self::close)). Opening the folder again in this process waits for that.
#[derive(Debug)]
pub struct FileTranscript {
    dir: FsDir,
    store: StoreThread,
    newest: Option<Newest>,
}

/// How many entries are kept where the oldest go.
#[derive(Debug)]
struct Newest {
    entries: u64,
    /// Those that were taken since the transcript was opened.
    taken: AtomicU64,
    /// The oldest could not be removed.
    is_stuck: Arc<AtomicBool>,
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
        Ok(Self {
            dir,
            store,
            newest: None,
        })
    }

    /// Keeps the newest entries, at least so many: segments whose entries all come before them are removed. For a log that
    /// anybody can fill, such as that of a processor's [Nacks](crate::processor::Processor::refusals); never for tasks.
    ///
    /// Whole segments go, so that up to two more are there: [`Config::with_segment_bytes`] says how long they are, 64 MiB by
    /// default. To read an entry that went is [`TranscriptError::Archived`], which names the first that is left: so many
    /// have gone. Where nothing can be removed, nothing is taken.
    #[must_use]
    pub fn keeping_newest(mut self, entries: u64) -> Self {
        self.newest = Some(Newest {
            entries,
            taken: AtomicU64::new(0),
            is_stuck: Arc::default(),
        });
        self
    }

    /// Has old entries removed, where they are; says whether nothing can be taken.
    fn make_room(&self) -> Result<(), TranscriptError> {
        let Some(newest) = &self.newest else {
            return Ok(());
        };
        let is_stuck = newest.is_stuck.load(Ordering::Relaxed);
        let taken = newest.taken.fetch_add(1, Ordering::Relaxed);
        if is_stuck || taken.is_multiple_of(LOOK) {
            let (entries, aside) = (newest.entries, self.dir.path().join(ASIDE));
            let is_stuck = Arc::clone(&newest.is_stuck);
            drop(self.store.call(move |log| {
                let removed = remove_before(log, entries, &aside);
                is_stuck.store(removed.is_err(), Ordering::Relaxed);
            }));
        }
        if is_stuck {
            let limit = usize::try_from(newest.entries).unwrap_or(usize::MAX);
            return Err(TranscriptError::Full { limit });
        }
        Ok(())
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
        if let Err(full) = self.make_room() {
            return ready(Err(full));
        }
        let (taken, record) = (taken(entry), json::to_vec(entry));
        let position = self.store.append(taken, record, |position| position);
        Box::pin(async { Ok(position.await.map_err(store)?.map_err(store)?.sequence) })
    }

    fn record_made(
        &self,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        if let Err(full) = self.make_room() {
            return ready(Err(full));
        }
        let (taken, bytes) = (taken(&entry), entry.body.as_str().len());
        let record = move || json::to_vec(&make(entry));
        let position = (self.store).append_made(taken, bytes, record, |position| position);
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

/// A task that was begun is owed its end, and has one result under way.
fn taken(entry: &Entry) -> Taken {
    match entry.kind {
        EntryKind::Result => Taken::Always,
        _ => Taken::WithRoom,
    }
}

/// Removes the segments before the last `keep` entries. What a crash leaves aside is removed the next time.
fn remove_before(log: &Log, keep: u64, aside: &Path) -> Result<(), ArchiveError> {
    let before = log.head().next_sequence.saturating_sub(keep);
    log.archive(before, &FsDir::create(aside)?)?;
    Ok(std::fs::remove_dir_all(aside)?)
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
        error @ ReadError::Damaged(_) => TranscriptError::Damaged(error.into()),
        error => store(error),
    }
}

fn store(error: impl std::error::Error + Send + Sync + 'static) -> TranscriptError {
    TranscriptError::Store(Box::new(error))
}

/// Entries after which it is looked whether old ones can go.
const LOOK: u64 = 64;
/// The folder, in that of the log, of what goes.
const ASIDE: &str = "removed";

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use ubos_common::json::RawObject;
    use ubos_common::log::LogId;

    use super::*;
    use crate::transcript::{EntryKind, Verdict};

    fn opened(folder: &Path) -> FileTranscript {
        let config = Config::default()
            .with_segment_bytes(4 << 10)
            .with_log_id(LogId::from_bytes([7; 16]));
        FileTranscript::open(folder, config).unwrap()
    }

    fn record(transcript: &FileTranscript, count: usize) -> Result<u64, TranscriptError> {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let entry = Entry::new(EntryKind::Nack, at, RawObject::empty());
        let mut recorded = Ok(0);
        for _ in 0..count {
            recorded = block_on(transcript.record(&entry));
        }
        recorded
    }

    fn first(transcript: &FileTranscript) -> u64 {
        match block_on(transcript.read(0, 1)) {
            Err(TranscriptError::Archived { first }) => first,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn where_the_newest_are_kept_whole_segments_go() {
        let folder = tempfile::tempdir().unwrap();
        let transcript = opened(folder.path()).keeping_newest(100);
        assert_eq!(record(&transcript, 1_000).unwrap(), 999);
        let gone = first(&transcript);
        // Two segments have some fifty entries each.
        assert!((700..=900).contains(&gone), "{gone}");
        let proof = transcript.verify(None).unwrap();
        assert_eq!(proof.verdict, Verdict::Intact);
        let left = block_on(transcript.read(gone, 1_000)).unwrap();
        assert_eq!(left.len() as u64, 1_000 - gone);
        assert!(!folder.path().join(ASIDE).exists());
        transcript.close();
        let transcript = opened(folder.path()).keeping_newest(100);
        assert_eq!(record(&transcript, 1_000).unwrap(), 1_999);
        assert!(first(&transcript) >= 1_700);
    }

    // spec: SAP-5-10
    #[test]
    fn a_damaged_entry_is_told_from_one_that_cannot_be_read_now() {
        let folder = tempfile::tempdir().unwrap();
        let transcript = opened(folder.path());
        record(&transcript, 2).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let mut files = files.map(|file| file.path());
        let segment = files.find(|path| path.extension().is_some_and(|it| it == "seg"));
        let segment = segment.unwrap();
        let mut bytes = std::fs::read(&segment).unwrap();
        let place = bytes.windows(4).position(|part| part == b"nack").unwrap();
        bytes[place] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        let read = block_on(transcript.read(0, 1));
        assert!(matches!(read, Err(TranscriptError::Damaged(_))), "{read:?}");
        drop(std::fs::remove_file(&segment));
        std::fs::create_dir(&segment).unwrap();
        let read = block_on(transcript.read(0, 1));
        assert!(matches!(read, Err(TranscriptError::Store(_))), "{read:?}");
    }

    #[test]
    fn where_nothing_can_be_removed_nothing_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let transcript = opened(folder.path()).keeping_newest(100);
        // A file where the folder would be.
        std::fs::write(folder.path().join(ASIDE), "x").unwrap();
        let refused = record(&transcript, 200);
        assert!(matches!(refused, Err(TranscriptError::Full { limit: 100 })));
        std::fs::remove_file(folder.path().join(ASIDE)).unwrap();
        drop(record(&transcript, 1));
        block_on(transcript.store.call(|_| ())).unwrap();
        assert!(record(&transcript, 1).is_ok());
    }
}
