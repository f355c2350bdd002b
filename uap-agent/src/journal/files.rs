//! Journals in files.

use core::fmt;
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ubos_common::ConfigError;
use ubos_common::json::{RawObject, decode};
use ubos_common::log::format::EncodeError;
use ubos_common::log::{AppendError, Config, FsDir, Log, LogId, OpenError, ReadError, Reader};
use ubos_common::os::fill_random;
use ubos_common::violation::Profile;

use super::failed;
use super::recording::limits;
use super::{Journal, JournalError, JournalFuture, size_with};
use crate::work_thread::WorkThread;

/// The maximum size of all entries, in bytes, with 32 for each.
const MAX_BYTES: usize = 256 << 20;

/// The size of a segment file, in bytes. Most runs fit into one.
const SEGMENT: u64 = 1 << 20;

/// The kind of a journal's log.
const KIND: &str = "uap-journal";

/// The log, and the size of its entries; `None` before it was counted.
struct JournalLog {
    log: Log,
    bytes: Option<usize>,
}

impl JournalLog {
    /// The size of all entries.
    fn bytes(&mut self) -> Result<usize, JournalError> {
        if let Some(bytes) = self.bytes {
            return Ok(bytes);
        }
        let (mut reader, mut bytes) = (self.log.reader(), 0_usize);
        while let Some(record) = reader.next().map_err(failed)? {
            bytes = size_with(bytes, record.bytes.len(), MAX_BYTES)?;
        }
        Ok(*self.bytes.insert(bytes))
    }

    fn append(
        &mut self,
        first: u64,
        entries: &[RawObject],
        limit: usize,
    ) -> Result<(), JournalError> {
        let seen = self.log.head().next_sequence;
        if seen != first {
            return Err(JournalError::Conflict {
                wanted: first,
                seen,
            });
        }
        let records: Vec<&[u8]> = entries.iter().map(|e| e.as_str().as_bytes()).collect();
        let size = |bytes, record: &&[u8]| size_with(bytes, record.len(), limit);
        let all = records.iter().try_fold(self.bytes()?, size)?;
        for (entry, record) in (first..).zip(&records) {
            let read = decode::<RawObject>(record, &limits(), Profile::Strict);
            read.map_err(|error| JournalError::Entry { entry, error })?;
        }
        match self.log.append_batch(&records) {
            Ok(_) => {
                self.bytes = Some(all);
                Ok(())
            }
            Err(AppendError::Encode(EncodeError::RecordTooLarge { limit, .. })) => {
                let unit = "bytes in an entry";
                Err(JournalError::Full { limit, unit })
            }
            Err(AppendError::Encode(EncodeError::BlockTooLarge { limit, .. })) => {
                let unit = "bytes in one write";
                Err(JournalError::Full { limit, unit })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

ubos_common::config! {
    /// How a journal in files is kept.
    FileJournalConfig {
        /// Sets the maximum size of all entries, in bytes, with 32 for each: at most and by default 256 MiB.
        with_max_bytes: max_bytes: usize = MAX_BYTES,
    }
}

/// A journal in a folder: a hash-chained log with one record per entry.
///
/// A finished write is on the disk. A write that was interrupted by a crash is cut off when the folder is opened again;
/// changed entries are refused. One process at a time can open the folder. A thread does all work, so that no runtime
/// waits for the disk.
///
/// | bound | |
/// |---|---|
/// | an entry | 16 MiB, as [`Config::limits`](ubos_common::log::Config) says, and 256 levels of JSON |
/// | a run | 256 MiB, with 32 bytes for each entry |
///
/// What exceeds a bound is refused before it is written, so that a run which was recorded can be read.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::journal::FileJournal;
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel};
///
/// # let folder = std::env::temp_dir().join(format!("doc-journal-{}", std::process::id()));
/// # futures::executor::block_on(async {
/// let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")]))))?;
/// let journal = Arc::new(FileJournal::open(&folder)?);
/// let state = agent.initial_state();
/// let result = agent.record(journal, "hi", &state).result().await?;
///
/// // Later, perhaps in another process:
/// let journal = Arc::new(FileJournal::open(&folder)?);
/// assert_eq!(agent.resume(journal).await?.result().await?, result);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # std::fs::remove_dir_all(&folder).unwrap();
/// ```
pub struct FileJournal {
    thread: WorkThread<JournalLog>,
    max_bytes: usize,
}

impl FileJournal {
    /// Opens the journal in a folder, which is created where it does not exist.
    ///
    /// # Errors
    ///
    /// [`JournalError::InUse`] where another writer has the folder open; a record is damaged; the file system failed.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let folder = folder.into();
        let opened = match Log::open(&folder, config()) {
            Err(OpenError::NoId) => {
                let mut id = [0; 16];
                fill_random(&mut id).map_err(failed)?;
                Log::open(&folder, config().with_log_id(LogId::from_bytes(id)))
            }
            opened => opened,
        };
        Self::over(opened.map_err(unopened)?)
    }

    /// Opens the journal that is in a folder; `None` where there is none. Nothing is created: who only looks does not bring
    /// back a folder that is being removed.
    ///
    /// # Errors
    ///
    /// As [`FileJournal::open`].
    pub fn open_existing(folder: impl Into<PathBuf>) -> Result<Option<Self>, JournalError> {
        match Log::open_in(Arc::new(FsDir::new(folder.into())), config()) {
            Err(OpenError::NoId) => Ok(None),
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Self::over(opened.map_err(unopened)?).map(Some),
        }
    }

    /// Reads the entries of the journal in a folder, which another process may be writing.
    ///
    /// It takes no lock and writes nothing. An entry that is being written may be there or not, and damage at the end looks
    /// the same: whoever can open the journal is told it by [`FileJournal::open_existing`].
    ///
    /// ```no_run
    /// use uap_agent::journal::{FileJournal, Recording};
    ///
    /// let recording = Recording::from_entries(&FileJournal::peek("runs/7")?)?;
    /// for question in recording.questions() {
    ///     println!("{} waits for an approval", question.tool);
    /// }
    /// # Ok::<(), uap_agent::journal::JournalError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`JournalError::Empty`] where there is no journal; a record is damaged or no entry; the entries exceed 256 MiB; the
    /// file system failed.
    pub fn peek(folder: impl Into<PathBuf>) -> Result<Vec<RawObject>, JournalError> {
        entries(Reader::open(folder), |error| match error {
            ReadError::Missing => JournalError::Empty,
            ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => JournalError::Empty,
            error => failed(error),
        })
    }

    /// As [`FileJournal::open`], with a configuration.
    ///
    /// # Errors
    ///
    /// As [`FileJournal::open`], and [`JournalError::Setting`].
    pub fn open_with(
        folder: impl Into<PathBuf>,
        config: &FileJournalConfig,
    ) -> Result<Self, JournalError> {
        let max_bytes = config.max_bytes;
        ConfigError::at_least("max_bytes", max_bytes as u64, 1)?;
        let wanted = "at most 268435456, which is what is read back";
        ConfigError::require(max_bytes <= MAX_BYTES, "max_bytes", max_bytes, wanted)?;
        let mut journal = Self::open(folder)?;
        journal.max_bytes = max_bytes;
        Ok(journal)
    }

    /// A journal in an open log, such as one with other settings.
    ///
    /// # Errors
    ///
    /// The thread could not be started.
    pub fn over(log: Log) -> Result<Self, JournalError> {
        let start = || Ok::<_, JournalError>(JournalLog { log, bytes: None });
        Ok(Self {
            thread: WorkThread::start("journal", start)?,
            max_bytes: MAX_BYTES,
        })
    }
}

fn config() -> Config {
    Config::default()
        .with_segment_bytes(SEGMENT)
        .with_kind(KIND)
}

fn unopened(error: OpenError) -> JournalError {
    match error {
        OpenError::Locked => JournalError::InUse,
        error => failed(error),
    }
}

impl Journal for FileJournal {
    /// None: the lock of the folder says whether its owner is alive.
    fn default_term(&self) -> Option<Duration> {
        None
    }

    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        let limit = self.max_bytes;
        self.thread
            .ask(move |log| log.append(first, &entries, limit))
    }

    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.thread.ask(|log| entries(log.log.reader(), failed))
    }
}

/// All entries of a log.
fn entries(
    mut reader: Reader,
    unread: impl Fn(ReadError) -> JournalError,
) -> Result<Vec<RawObject>, JournalError> {
    let (limits, mut entries, mut bytes) = (limits(), Vec::new(), 0_usize);
    while let Some(record) = reader.next().map_err(&unread)? {
        bytes = size_with(bytes, record.bytes.len(), MAX_BYTES)?;
        let entry = entries.len() as u64;
        let read = decode::<RawObject>(record.bytes, &limits, Profile::Strict);
        let (read, _) = read.map_err(|error| JournalError::Entry { entry, error })?;
        entries.push(read);
    }
    Ok(entries)
}

impl fmt::Debug for FileJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileJournal").finish_non_exhaustive()
    }
}
