//! A store on the hash-chained log.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ubos_common::log::{
    AppendError, Config, FsDir, Log, LogDir, OpenError, Position, ReadError, format::Limits,
};

use super::{DecodeError, JobStore, StoreError, decode, encode, memory::new_jobs};
use crate::{
    id::JobId,
    role::hub::{Job, Outcome, Record},
};

/// Jobs in the files of a folder. One process at a time holds it.
///
/// Records are appended and never changed; an index of them is made anew when the folder is opened, and each is
/// proven again when it is read. What a killed process had written is there; what power cuts leave is up to the
/// log's [`Sync`](ubos_common::log::Sync) policy, and by default everything that [`write`](JobStore::write)
/// answered for. Folders only grow: begin a new one now and then, once all jobs of the old one have ended.
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
    log: Log,
    max_jobs: usize,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    jobs: BTreeMap<JobId, Places>,
    /// Unfinished jobs by their places in the log.
    unfinished: BTreeMap<Position, JobId>,
    labels: BTreeMap<Arc<str>, JobId>,
}

#[derive(Clone, Copy, Debug)]
struct Places {
    accepted: Option<Position>,
    ended: Option<Position>,
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
        let limits = Limits::default()
            .with_max_record_bytes(Self::MAX_RECORD_BYTES)
            .with_max_block_bytes(2 * Self::MAX_RECORD_BYTES);
        let log = Log::open_in(dir, config.with_kind(KIND).with_limits(limits))?;
        let mut index = Index::default();
        let mut reader = log.reader();
        while let Some(entry) = reader.next()? {
            let (id, record) = decode(entry.bytes)?;
            index.add(id, &record, entry.position);
            if index.jobs.len() > Self::MAX_JOBS {
                return Err(FileStoreError::TooMany {
                    limit: Self::MAX_JOBS,
                });
            }
        }
        Ok(Self {
            log,
            max_jobs: Self::MAX_JOBS,
            index: Mutex::new(index),
        })
    }

    /// The log beneath: for its report, its head and for proving it.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
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

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, place: Position) -> Result<Record, StoreError> {
        let bytes = self.log.reader().read(place);
        let bytes = bytes.map_err(|error| StoreError::Failed(Box::new(error)))?;
        Ok(decode(&bytes)?.1)
    }
}

impl Index {
    fn add(&mut self, id: JobId, record: &Record, at: Position) {
        let places = self.jobs.entry(id).or_insert(Places {
            accepted: None,
            ended: None,
        });
        match record {
            // The first place is the one that its end removes.
            Record::Accepted(_) if places.accepted.is_some() => {}
            Record::Accepted(job) => {
                places.accepted = Some(at);
                if places.ended.is_none() {
                    self.unfinished.insert(at, id);
                }
                if let Some(label) = &job.label {
                    self.labels.insert(label.clone(), id);
                }
            }
            // The first end of a job is final.
            Record::Ended(_) => {
                places.ended = places.ended.or(Some(at));
                if let Some(accepted) = places.accepted {
                    self.unfinished.remove(&accepted);
                }
            }
        }
    }
}

impl JobStore for FileStore {
    // impl: HUB-6-1
    fn write(&self, records: &[(JobId, Record)]) -> Result<(), StoreError> {
        let (most, new) = (self.max_jobs, new_jobs(records));
        if new > 0 && self.index().jobs.len() + new > most {
            return Err(StoreError::Full { most });
        }
        let failed = |error: AppendError| StoreError::Failed(Box::new(error));
        let bytes: Vec<_> = records
            .iter()
            .map(|(id, record)| encode(*id, record))
            .collect();
        let bytes: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
        let batch = self.log.append_batch(&bytes).map_err(failed)?;
        let mut index = self.index();
        for ((id, record), place) in records.iter().zip(batch.positions) {
            index.add(*id, record, place);
        }
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        let places = self.index().unfinished.clone();
        let mut jobs = Vec::with_capacity(places.len());
        for (place, id) in places {
            if let Record::Accepted(job) = self.read(place)? {
                jobs.push((id, job));
            }
        }
        Ok(jobs)
    }

    fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
        let Some(place) = self.index().jobs.get(&job).and_then(|places| places.ended) else {
            return Ok(None);
        };
        Ok(match self.read(place)? {
            Record::Ended(outcome) => Some(outcome),
            Record::Accepted(_) => None,
        })
    }

    fn labelled(&self, label: &str) -> Result<Option<JobId>, StoreError> {
        Ok(self.index().labels.get(label).copied())
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::log::LogId;

    use super::*;
    use crate::{
        role::hub::Verdict,
        store::tests::{keeps_jobs_until_they_end, takes_the_first_end},
    };

    fn open(dir: &tempfile::TempDir) -> Result<FileStore, FileStoreError> {
        FileStore::open(
            dir.path(),
            Config::default().with_log_id(LogId::from_bytes([7; 16])),
        )
    }

    // spec: HUB-6-1
    #[test]
    fn files_keep_jobs_over_restarts_until_they_end() {
        let dir = tempfile::tempdir().unwrap();
        keeps_jobs_until_they_end(&open(&dir).unwrap());
        let store = open(&dir).unwrap();
        let unfinished: Vec<_> = store.unfinished().unwrap();
        assert_eq!(unfinished.len(), 2);
        let label = unfinished[1].1.label.clone().unwrap();
        assert_eq!(store.labelled(&label).unwrap(), Some(unfinished[1].0));
        let ends: Vec<_> = store.outcomes().map(Result::unwrap).collect();
        assert_eq!(ends.len(), 3);
        let ended = ends.iter().find_map(|(_, outcome)| outcome.clone());
        assert_eq!(ended.unwrap().verdict, Verdict::Completed);
    }

    #[test]
    fn a_full_store_takes_no_jobs_and_still_takes_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(&dir).unwrap();
        store.max_jobs = 3;
        keeps_jobs_until_they_end(&store);
        let (id, job) = store.unfinished().unwrap().remove(0);
        let again = store.write(&[(id, Record::Accepted(job))]);
        assert!(matches!(again, Err(StoreError::Full { most: 3 })));
        let end = Record::Ended(Outcome::new(Verdict::Failed, ""));
        assert!(store.write(&[(id, end)]).is_ok());
    }

    #[test]
    fn another_programs_log_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
        let log = Log::open(dir.path(), config).unwrap();
        log.append(b"\xff something else").unwrap();
        log.close().unwrap();
        assert!(matches!(
            open(&dir),
            Err(FileStoreError::Open(OpenError::WrongKind { .. }))
        ));
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
        let log = Log::open(dir.path(), config.with_kind(KIND)).unwrap();
        log.append(b"\xff something else").unwrap();
        log.close().unwrap();
        assert!(matches!(open(&dir), Err(FileStoreError::Record(_))));
    }

    // spec: HUB-6-1
    #[test]
    fn the_first_end_in_files_is_final() {
        let dir = tempfile::tempdir().unwrap();
        takes_the_first_end(&open(&dir).unwrap());
        let again = open(&dir).unwrap();
        assert_eq!(again.unfinished().unwrap(), []);
    }
}
