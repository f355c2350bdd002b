//! A store on the hash-chained log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
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
/// answered for. What is not needed any more leaves the folder by [`compact`](FileStore::compact).
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
    /// Held by whoever compacts.
    compacting: Mutex<()>,
    /// Read while records are on their way into log and index.
    writing: RwLock<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Jobs whose records are written again at once.
const COMPACTED: usize = 64;

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
        let log = Log::open_in(dir, config.with_kind(KIND).with_limits(limits))?;
        let mut index = Index::default();
        let mut reader = log.reader();
        while let Some(entry) = reader.next()? {
            let (id, record) = decode(entry.bytes)?;
            index.add(id, &record, entry.position);
            if index.jobs.len() > max_jobs {
                return Err(FileStoreError::TooMany { limit: max_jobs });
            }
        }
        Ok(Self {
            log,
            max_jobs,
            index: Mutex::new(index),
            compacting: Mutex::default(),
            writing: RwLock::default(),
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
        let (before, (kept, gone)) = {
            let _still = self.writing.write().unwrap_or_else(PoisonError::into_inner);
            (self.log.head().next_sequence, self.index().divide(keep))
        };
        for jobs in kept.chunks(COMPACTED) {
            self.write_again(jobs)?;
        }
        self.index().forget(&gone);
        let moved = self.log.archive(before, target);
        moved.map_err(|error| StoreError::Failed(Box::new(error)))?;
        Ok(gone.len())
    }

    /// Appends the records of jobs once more. Of ended ones the payloads are not needed.
    fn write_again(&self, jobs: &[JobId]) -> Result<(), StoreError> {
        let mut records = Vec::new();
        for id in jobs {
            let places = self.index().jobs.get(id).copied();
            let places = places.map_or([None; 2], |places| [places.accepted, places.ended]);
            for place in places.into_iter().flatten() {
                let mut record = self.read(place)?;
                if let (Record::Accepted(job), [_, Some(_)]) = (&mut record, places) {
                    job.payloads.clear();
                }
                records.push((*id, record));
            }
        }
        let places = self.append(&records)?;
        let mut index = self.index();
        for ((id, record), place) in records.iter().zip(places) {
            index.move_to(*id, record, place);
        }
        Ok(())
    }

    fn append(&self, records: &[(JobId, Record)]) -> Result<Vec<Position>, StoreError> {
        let failed = |error: AppendError| StoreError::Failed(Box::new(error));
        let bytes: Vec<_> = records
            .iter()
            .map(|(id, record)| encode(*id, record))
            .collect();
        let bytes: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
        Ok(self.log.append_batch(&bytes).map_err(failed)?.positions)
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

    /// The jobs to be kept, in the order in which they came, and those that may go: all that ended but the last `keep`.
    fn divide(&self, keep: usize) -> (Vec<JobId>, Vec<JobId>) {
        let mut ended: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|(id, places)| Some((places.ended?, *id)))
            .collect();
        ended.sort_unstable();
        let gone = ended.len().saturating_sub(keep);
        let gone: Vec<_> = ended.into_iter().take(gone).map(|(_, id)| id).collect();
        let without: BTreeSet<_> = gone.iter().collect();
        let mut kept: Vec<_> = self
            .jobs
            .iter()
            .filter(|(id, _)| !without.contains(id))
            .map(|(id, places)| (places.accepted, *id))
            .collect();
        kept.sort_unstable();
        (kept.into_iter().map(|(_, id)| id).collect(), gone)
    }

    fn forget(&mut self, jobs: &[JobId]) {
        for id in jobs {
            self.jobs.remove(id);
        }
        self.labels.retain(|_, id| self.jobs.contains_key(id));
    }

    /// A record was written again.
    fn move_to(&mut self, id: JobId, record: &Record, to: Position) {
        let Some(places) = self.jobs.get_mut(&id) else {
            return;
        };
        match record {
            Record::Accepted(_) => {
                let old = places.accepted.replace(to);
                if old.is_some_and(|old| self.unfinished.remove(&old).is_some()) {
                    self.unfinished.insert(to, id);
                }
            }
            Record::Ended(_) => places.ended = Some(to),
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
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        let places = self.append(records)?;
        let mut index = self.index();
        for ((id, record), place) in records.iter().zip(places) {
            index.add(*id, record, place);
        }
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        let ids: Vec<_> = self.index().unfinished.values().copied().collect();
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            let record = self.find(|index| index.jobs.get(&id)?.accepted)?;
            if let Some(Record::Accepted(job)) = record {
                jobs.push((id, job));
            }
        }
        Ok(jobs)
    }

    fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
        let record = self.find(|index| index.jobs.get(&job)?.ended)?;
        Ok(match record {
            Some(Record::Ended(outcome)) => Some(outcome),
            Some(Record::Accepted(_)) | None => None,
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
        let end = || Record::Ended(Outcome::new(Verdict::Failed, ""));
        assert!(store.write(&[(id, end())]).is_ok());
        store.max_jobs = 0;
        assert!(store.write(&[(id, end())]).is_ok());
    }

    #[test]
    fn a_store_at_its_bound_is_opened_and_one_beyond_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        keeps_jobs_until_they_end(&open(&dir).unwrap());
        let open = |most| {
            let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
            FileStore::open_bounded(Arc::new(archive(&dir)), config, most)
        };
        assert!(matches!(open(2), Err(FileStoreError::TooMany { limit: 2 })));
        assert_eq!(open(3).unwrap().index().jobs.len(), 3);
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

    fn archive(dir: &tempfile::TempDir) -> FsDir {
        FsDir::create(dir.path()).unwrap()
    }

    /// Bytes of the segments in a folder.
    fn bytes(dir: &tempfile::TempDir) -> u64 {
        let files = std::fs::read_dir(dir.path()).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    }

    // spec: HUB-6-1
    #[test]
    fn a_compacted_store_keeps_what_is_needed() {
        let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = || {
            Config::default()
                .with_log_id(LogId::from_bytes([7; 16]))
                .with_segment_bytes(64 << 10)
        };
        let store = FileStore::open(dir.path(), config()).unwrap();
        let mut ids = ubos_common::id::IdSource::seeded(1);
        let jobs: Vec<JobId> = (0..1000).map(|_| ids.next_id()).collect();
        let job = |n: usize| {
            let payload = crate::wire::Payload::file("p", "p", "text/plain", vec![7; 1000]);
            Job::test("t", vec![payload]).with_label(&n.to_string())
        };
        for (n, id) in jobs.iter().enumerate() {
            store.write(&[(*id, Record::Accepted(job(n)))]).unwrap();
            if n % 100 != 7 {
                let end = Record::Ended(Outcome::new(Verdict::Completed, n.to_string()));
                store.write(&[(*id, end)]).unwrap();
            }
        }
        let before = bytes(&dir);
        assert_eq!(store.compact(20, &archive(&old)).unwrap(), 970);
        assert_eq!(
            store.compact(20, &archive(&old)).unwrap(),
            0,
            "nothing more"
        );
        // Ten jobs that have not ended keep their payloads; of those that have and stay the ends are needed.
        assert!(bytes(&dir) < before / 4, "{} of {before}", bytes(&dir));
        for (n, id) in jobs.iter().enumerate().skip(980) {
            let accepted = store.index().jobs[id].accepted.unwrap();
            let Record::Accepted(kept) = store.read(accepted).unwrap() else {
                panic!("another record");
            };
            assert_eq!(kept.payloads.is_empty(), n % 100 != 7, "{n}");
        }
        let holds = |store: &FileStore| {
            let unfinished = jobs.iter().enumerate().skip(7).step_by(100);
            let unfinished = unfinished.map(|(n, id)| (*id, job(n)));
            assert_eq!(store.unfinished().unwrap(), unfinished.collect::<Vec<_>>());
            for (n, id) in jobs.iter().enumerate() {
                let outcome = store.outcome(*id).unwrap().map(|outcome| outcome.message);
                let label = store.labelled(&n.to_string()).unwrap();
                let is_kept = n >= 980;
                assert_eq!(outcome, (is_kept && n % 100 != 7).then(|| n.to_string()));
                assert_eq!(label, (is_kept || n % 100 == 7).then_some(*id));
            }
        };
        holds(&store);
        store.log.close().unwrap();
        holds(&FileStore::open(dir.path(), config()).unwrap());
    }

    // spec: HUB-6-1
    #[test]
    fn a_store_is_compacted_while_it_is_used() {
        let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = || {
            Config::default()
                .with_log_id(LogId::from_bytes([7; 16]))
                .with_segment_bytes(64 << 10)
        };
        let store = FileStore::open(dir.path(), config()).unwrap();
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut ids = ubos_common::id::IdSource::seeded(1);
                let mut open: Vec<JobId> = Vec::new();
                for n in 0..1500 {
                    let id = ids.next_id();
                    let job = Job::test("t", vec![crate::wire::Payload::new("p".repeat(500))]);
                    store.write(&[(id, Record::Accepted(job))]).unwrap();
                    open.push(id);
                    if n % 3 > 0 {
                        let id = open.remove(n % open.len());
                        let end = Record::Ended(Outcome::new(Verdict::Completed, "done"));
                        store.write(&[(id, end)]).unwrap();
                        // It ended just now, and is among those that stay.
                        assert!(store.outcome(id).unwrap().is_some());
                    }
                }
                open
            });
            while !writer.is_finished() {
                store.compact(300, &archive(&old)).unwrap();
            }
            writer.join().unwrap()
        });
        let holds = |store: &FileStore| {
            let unfinished = store.unfinished().unwrap();
            let mut unfinished: Vec<_> = unfinished.into_iter().map(|(id, _)| id).collect();
            let mut wanted = written.clone();
            unfinished.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(unfinished, wanted);
        };
        holds(&store);
        store.log.close().unwrap();
        holds(&FileStore::open(dir.path(), config()).unwrap());
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
