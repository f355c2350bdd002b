//! A store on the hash-chained log.

mod held;
mod index;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use ubos_common::log::{
    AppendError, Config, FsDir, Head, Log, LogDir, OpenError, OpenReport, Position, ReadError,
    format::{EncodeError, Limits},
};

use self::{
    held::{Held, Journal, JournalError},
    index::Index,
};
use super::{DecodeError, JobStore, StoreError, decode, encode, memory::new_jobs};
use crate::{
    id::JobId,
    role::hub::{Job, Outcome, Record, Verdict},
};

/// Jobs in the files of a folder. One process at a time holds it.
///
/// Records are appended and never changed; an index of them is made anew when the folder is opened, and each is
/// proven again when it is read. What a killed process had written is there; what power cuts leave is up to the
/// log's [`Sync`](ubos_common::log::Sync) policy, and by default everything that [`write`](JobStore::write)
/// answered for. What is not needed any more leaves the folder by [`compact`](FileStore::compact).
///
/// A write that fails, because the disk is full for example, is refused and stores nothing. Each later one opens the log
/// again at its last whole record and proves it; until that succeeds, all are refused and what is there can be read. A job
/// that was refused and is found in the log after all has its end written before anything else is.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use ubos_common::log::{Config, LogId};
/// use uap_hub_proto::store::{FileStore, JobStore};
///
/// let store = FileStore::open(dir.path(), Config::default().with_log_id(LogId::from_bytes([7; 16])))?;
/// assert!(store.unfinished()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    journal: Journal,
    max_jobs: usize,
    index: Mutex<Index>,
    /// Held by whoever compacts.
    compacting: Mutex<()>,
    /// Read while records are on their way into log and index.
    writing: RwLock<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a store in files cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileStoreError {
    /// The log cannot be opened; it may be damaged.
    #[error("opening the job store failed")]
    Open(#[from] OpenError),
    /// A record cannot be read; it may be damaged.
    #[error("reading the job store failed")]
    Read(#[from] ReadError),
    /// A record does not belong to a job store: the folder belongs to another program.
    #[error("the log is not a job store")]
    Record(#[from] DecodeError),
    /// It holds more jobs than it may.
    #[error("the job store holds more than {limit} jobs, which is its bound")]
    TooMany {
        /// The bound.
        limit: usize,
    },
}

/// Jobs whose records are written again at once, and their bytes, one job more at most.
const COMPACTED: usize = 64;
const COMPACTED_BYTES: usize = 32 << 20;

/// How a job ends that was refused and is in the log all the same.
const REFUSED: &str = "the job could not be stored";

/// The kind of a job store's log.
const KIND: &str = "hub-jobs";

impl FileStore {
    /// Jobs that are kept, ended ones included; at the limit none is accepted. An entry takes about 150 bytes.
    const MAX_JOBS: usize = 1_000_000;

    /// Bytes of one record: a job of 64 MiB, and what is said about it.
    const MAX_RECORD_BYTES: usize = 65 << 20;

    /// Opens the store in a folder, or makes it there; `config` needs a log id for that. Its bounds of records
    /// are replaced by what jobs may be.
    ///
    /// # Errors
    ///
    /// [`FileStoreError`]; damage is named and left as it is.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, FileStoreError> {
        let dir = FsDir::create(path).map_err(OpenError::from)?;
        Self::open_in(Arc::new(dir), config)
    }

    /// Opens the store in a folder of any kind.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(dir: Arc<dyn LogDir>, config: Config) -> Result<Self, FileStoreError> {
        Self::open_bounded(dir, config, Self::MAX_JOBS)
    }

    fn open_bounded(
        dir: Arc<dyn LogDir>,
        config: Config,
        max_jobs: usize,
    ) -> Result<Self, FileStoreError> {
        let limits = Limits::default()
            .with_max_record_bytes(Self::MAX_RECORD_BYTES)
            .with_max_block_bytes(2 * Self::MAX_RECORD_BYTES);
        let config = config.with_kind(KIND).with_limits(limits);
        let journal = Journal::open(Held::lock(dir)?, config, limits)?;
        let mut index = Index::default();
        let mut reader = journal.reader();
        while let Some(entry) = reader.next()? {
            let (id, record) = decode(entry.bytes)?;
            index.add(id, &record, entry.position);
            if index.jobs.len() > max_jobs {
                return Err(FileStoreError::TooMany { limit: max_jobs });
            }
        }
        Ok(Self {
            journal,
            max_jobs,
            index: Mutex::new(index),
            compacting: Mutex::default(),
            writing: RwLock::default(),
        })
    }

    /// The end of the log as acknowledged so far; keep it elsewhere to detect a shortened log.
    #[must_use]
    pub fn head(&self) -> Head {
        self.journal.head()
    }

    /// What opening the log found, when it was opened last.
    #[must_use]
    pub fn report(&self) -> OpenReport {
        self.journal.report()
    }

    /// All jobs that were ever accepted, with how they ended; reads the ends one by one.
    ///
    /// # Errors
    ///
    /// A record cannot be read.
    pub fn outcomes(
        &self,
    ) -> impl Iterator<Item = Result<(JobId, Option<Outcome>), StoreError>> + '_ {
        let jobs: Vec<JobId> = self.index().jobs.keys().copied().collect();
        jobs.into_iter().map(|id| Ok((id, self.outcome(id)?)))
    }

    /// Moves what is not needed any more into another folder: jobs that have ended, but for the last `keep`. What
    /// stays is written once more, so that whole segments can go; the segment being written stays in any case. The other folder
    /// is part of the same log: together they are proven as before. Returns how many jobs went.
    ///
    /// May be called while the store is used. A process that is killed meanwhile loses nothing.
    ///
    /// # Errors
    ///
    /// A record cannot be read or written, or a segment cannot be moved; calling again goes on.
    pub fn compact(&self, keep: usize, target: &dyn LogDir) -> Result<usize, StoreError> {
        let _alone = lock(&self.compacting);
        self.reopen()?;
        let (before, (kept, gone)) = {
            let _still = self.writing.write().unwrap_or_else(PoisonError::into_inner);
            (self.head().next_sequence, self.index().divide(keep))
        };
        self.write_again(&kept)?;
        self.end_again(&gone)?;
        self.index().forget(&gone);
        let moved = self.journal.with_log(|log| log.archive(before, target));
        moved?.map_err(|error| StoreError::Failed(Box::new(error)))?;
        Ok(gone.len())
    }

    /// Appends the records of jobs once more, some at a time. Of ended ones the payloads are not needed.
    fn write_again(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        for id in jobs {
            let places = self.index().places(*id);
            let is_ended = places[1].is_some();
            for place in places.into_iter().flatten() {
                let mut record = self.read(place)?;
                if let (Record::Accepted(job), true) = (&mut record, is_ended) {
                    job.payloads.clear();
                }
                bytes += record.weight();
                records.push((*id, record));
            }
            if records.len() >= COMPACTED || bytes >= COMPACTED_BYTES {
                self.append_again(&std::mem::take(&mut records))?;
                bytes = 0;
            }
        }
        self.append_again(&records)
    }

    /// Appends the ends of jobs that were accepted once more behind them: as segments go, the first records go first, and of a
    /// job that has ended an acceptance alone must never be left.
    fn end_again(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        for id in jobs {
            let place = self.index().end_before_acceptance(*id);
            if let Some(place) = place {
                let end = self.read(place)?;
                self.append_again(&[(*id, end)])?;
            }
        }
        Ok(())
    }

    fn append_again(&self, records: &[(JobId, Record)]) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let places = self.append(records.iter())?;
        let mut index = self.index();
        for ((id, record), place) in records.iter().zip(places) {
            index.move_to(*id, record, place);
        }
        Ok(())
    }

    fn append<'a>(
        &self,
        records: impl Iterator<Item = &'a (JobId, Record)>,
    ) -> Result<Vec<Position>, StoreError> {
        let bytes: Vec<_> = records.map(|(id, record)| encode(*id, record)).collect();
        let bytes: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
        Ok(self.journal.append(&bytes)?)
    }

    /// Opens the log again where it failed.
    fn reopen(&self) -> Result<(), StoreError> {
        match self.journal.has_failed() {
            true => self.journal.reopen(|log, from| self.settle(log, from)),
            false => Ok(()),
        }
    }

    /// Takes the records that are there though they were refused. A job among them ends, because its caller was told so.
    fn settle(&self, log: &Log, from: u64) -> Result<(), StoreError> {
        let failed = |error: ReadError| StoreError::Failed(Box::new(error));
        let mut index = self.index();
        let (mut found, mut refused) = (Vec::new(), BTreeSet::new());
        let mut reader = log.reader();
        reader.seek(from);
        while let Some(entry) = reader.next().map_err(failed)? {
            let (id, record) = decode(entry.bytes)?;
            match &record {
                Record::Accepted(_) if index.jobs.contains_key(&id) => {}
                Record::Accepted(_) => drop(refused.insert(id)),
                Record::Ended(_) => drop(refused.remove(&id)),
            }
            found.push((id, record, entry.position));
        }
        let end = || Record::Ended(Outcome::new(Verdict::Failed, REFUSED));
        let ends: Vec<_> = refused.into_iter().map(|id| (id, end())).collect();
        let bytes: Vec<_> = ends.iter().map(|(id, end)| encode(*id, end)).collect();
        if !ends.is_empty() {
            let bytes: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
            let places = log.append_batch(&bytes).map_err(JournalError::from)?;
            let placed = ends.into_iter().zip(places.positions);
            found.extend(placed.map(|((id, end), place)| (id, end, place)));
        }
        for (id, record, place) in &found {
            index.add(*id, record, *place);
        }
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// Reads the record of a place, which may move meanwhile.
    fn find(
        &self,
        place: impl Fn(&Index) -> Option<Position>,
    ) -> Result<Option<Record>, StoreError> {
        let mut found = place(&self.index());
        loop {
            let Some(at) = found else {
                return Ok(None);
            };
            let record = self.read(at);
            found = place(&self.index());
            if record.is_ok() || found == Some(at) {
                return record.map(Some);
            }
        }
    }

    fn read(&self, place: Position) -> Result<Record, StoreError> {
        let bytes = self.journal.reader().read(place);
        let bytes = bytes.map_err(|error| StoreError::Failed(Box::new(error)))?;
        Ok(decode(&bytes)?.1)
    }
}

impl JobStore for FileStore {
    // impl: HUB-6-1
    fn write(&self, records: &[(JobId, Record)]) -> Result<(), StoreError> {
        self.reopen()?;
        let (most, new) = (self.max_jobs, new_jobs(records));
        if new > 0 && self.index().jobs.len() + new > most {
            return Err(StoreError::Full { most });
        }
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        // The first end of a job is final. Another is not kept: it would be the first when the first is archived.
        let is_late = |index: &Index, id, record: &Record| {
            matches!(record, Record::Ended(_)) && index.places(id)[1].is_some()
        };
        let news = {
            let index = self.index();
            let all = records.iter();
            all.filter(|(id, record)| !is_late(&index, *id, record))
                .collect::<Vec<_>>()
        };
        if news.is_empty() {
            return Ok(());
        }
        let places = self.append(news.iter().copied())?;
        let mut index = self.index();
        for ((id, record), place) in news.into_iter().zip(places) {
            index.add(*id, record, place);
        }
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        let ids: Vec<_> = self.index().unfinished.values().copied().collect();
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            let record = self.find(|index| index.places(id)[0])?;
            if let Some(Record::Accepted(job)) = record {
                jobs.push((id, job));
            }
        }
        Ok(jobs)
    }

    fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
        let record = self.find(|index| index.places(job)[1])?;
        Ok(match record {
            Some(Record::Ended(outcome)) => Some(outcome),
            Some(Record::Accepted(_)) | None => None,
        })
    }

    fn labelled(&self, label: &str) -> Result<Option<JobId>, StoreError> {
        Ok(self.index().labels.get(label).copied())
    }
}

impl From<JournalError> for StoreError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Append(AppendError::Encode(
                EncodeError::RecordTooLarge { bytes, limit }
                | EncodeError::BlockTooLarge { bytes, limit },
            )) => Self::TooLarge {
                seen: bytes,
                most: limit,
            },
            error => Self::Failed(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests;
