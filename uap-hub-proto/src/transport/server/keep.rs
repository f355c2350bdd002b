//! Stores the records of a durable hub, many with one write.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use tokio::task::spawn_blocking;

use super::{
    handle::JobHandle,
    shared::{Records, Shared},
};
use crate::{
    id::JobId,
    role::hub::{Hub, Record},
    store::{JobStore, StoreError},
    transport::{inbox::Inbox, spawn},
};

/// Records of one write.
const MAX_RECORDS: usize = 256;
/// Bytes of one write, one record more at most.
const MAX_BYTES: usize = 32 << 20;

/// Takes the jobs of an earlier process, and starts storing.
pub(super) async fn start(
    shared: &Arc<Shared>,
    store: Arc<dyn JobStore>,
    records: Records,
) -> io::Result<Vec<JobHandle>> {
    let reader = store.clone();
    let unfinished = spawn_blocking(move || reader.unfinished()).await;
    let unfinished = unfinished.map_err(io::Error::other)?;
    let mut restored = Vec::new();
    for (id, job) in unfinished.map_err(io::Error::other)? {
        let restore = |hub: &mut Hub, now| hub.restore(now, id, job).map(|()| id);
        // Whoever restored it may not ask for it.
        let taken = shared.submit_into(restore, Inbox::unclaimed);
        let (id, inbox) = taken.map_err(io::Error::other)?;
        restored.push(JobHandle::new(id, inbox, shared));
    }
    spawn(keep(Arc::downgrade(shared), store, records));
    Ok(restored)
}

async fn keep(shared: std::sync::Weak<Shared>, store: Arc<dyn JobStore>, mut records: Records) {
    while let Some(first) = records.recv().await {
        let batch = collect(first, &mut records);
        let jobs: Vec<JobId> = batch.iter().map(|(job, _)| *job).collect();
        let store = store.clone();
        let done = spawn_blocking(move || write(&*store, &batch)).await;
        let panicked = || Err("the store panicked".to_owned());
        let done = done.unwrap_or_else(|_| vec![panicked(); jobs.len()]);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.act(|hub, now| {
            for (job, done) in jobs.into_iter().zip(done) {
                // The hub asked for every record; where it closed meanwhile, it waits for none.
                if hub.stored(now, job, done).is_ok() {
                    shared.unstored.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
    }
}

/// A record and those that wait behind it, for one write.
fn collect(first: (JobId, Record), records: &mut Records) -> Vec<(JobId, Record)> {
    let mut bytes = first.1.weight();
    let mut batch = vec![first];
    while batch.len() < MAX_RECORDS
        && bytes < MAX_BYTES
        && let Ok(next) = records.try_recv()
    {
        bytes += next.1.weight();
        batch.push(next);
    }
    batch
}

/// Writes records together, and what became of each. Where one of them alone is the reason to refuse them, the others are
/// written without it: they are of other agents and callers.
// impl: HUB-6-1
fn write(store: &dyn JobStore, batch: &[(JobId, Record)]) -> Vec<Result<(), String>> {
    match store.write(batch) {
        Err(StoreError::Full { .. } | StoreError::TooLarge { .. }) if batch.len() > 1 => {
            let alone = batch.chunks(1).map(|one| store.write(one).map_err(words));
            alone.collect()
        }
        done => vec![done.map_err(words); batch.len()],
    }
}

fn words(error: StoreError) -> String {
    match error {
        StoreError::Failed(cause) => format!("the store failed: {}", chain(&*cause)),
        error => error.to_string(),
    }
}

/// An error and what caused it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::mpsc;
    use ubos_common::id::IdSource;

    use super::*;
    use crate::{
        role::hub::{Job, Outcome, Verdict},
        store::MemoryStore,
        wire::Payload,
    };

    /// How many of these records go into each write.
    fn writes(record: &Record, count: usize) -> Vec<usize> {
        let (sender, mut records) = mpsc::unbounded_channel();
        let mut ids = IdSource::seeded(0);
        for _ in 0..count {
            sender.send((ids.next_id(), record.clone())).unwrap();
        }
        std::iter::from_fn(|| Some(collect(records.try_recv().ok()?, &mut records).len())).collect()
    }

    // spec: HUB-6-1
    #[test]
    fn a_write_is_bounded_by_its_records_and_by_its_bytes() {
        let small = Record::Accepted(Job::test("t", vec![]));
        assert_eq!(writes(&small, 3), [3]);
        let most = MAX_RECORDS;
        assert_eq!(writes(&small, 2 * most + 1), [most, most, 1]);
        let of = |bytes| {
            let payload = Payload::file("p", "", "", vec![0; bytes]);
            Record::Accepted(Job::test("t", vec![payload]))
        };
        // Two have just so many bytes.
        let half = MAX_BYTES / 2;
        let large = of(half - (of(half).weight() - half));
        assert_eq!(large.weight(), half);
        assert_eq!(writes(&large, 5), [2, 2, 1]);
    }

    /// A store that fails.
    #[derive(Debug)]
    struct Broken;

    impl JobStore for Broken {
        fn write(&self, _: &[(JobId, Record)]) -> Result<(), StoreError> {
            Err(StoreError::Failed("no disk".into()))
        }

        fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
            Ok(Vec::new())
        }

        fn outcome(&self, _: JobId) -> Result<Option<Outcome>, StoreError> {
            Ok(None)
        }

        fn labelled(&self, _: &str) -> Result<Option<JobId>, StoreError> {
            Ok(None)
        }
    }

    // spec: HUB-6-1
    #[test]
    fn a_store_that_fails_is_told_of_with_the_cause() {
        let mut ids = IdSource::seeded(0);
        let record = || Record::Accepted(Job::test("t", vec![]));
        let batch = [(ids.next_id(), record()), (ids.next_id(), record())];
        // Whether they are there after all is not known, so they are not written again.
        let told = Err("the store failed: no disk".to_owned());
        assert_eq!(write(&Broken, &batch), [told.clone(), told]);
    }

    /// A store that keeps two jobs without an end, and how often it was written to.
    #[derive(Debug, Default)]
    struct Small(MemoryStore, AtomicUsize);

    impl JobStore for Small {
        fn write(&self, records: &[(JobId, Record)]) -> Result<(), StoreError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let is_job = |(_, record): &&(JobId, Record)| matches!(record, Record::Accepted(_));
            let new = records.iter().filter(is_job).count();
            if new > 0 && self.unfinished()?.len() + new > 2 {
                return Err(StoreError::Full { most: 2 });
            }
            self.0.write(records)
        }

        fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
            self.0.unfinished()
        }

        fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
            self.0.outcome(job)
        }

        fn labelled(&self, label: &str) -> Result<Option<JobId>, StoreError> {
            self.0.labelled(label)
        }
    }

    /// An acceptance, and an end of a job that it has, in one batch with a record that the store does not take.
    fn beside(store: &dyn JobStore, refused: Record) -> Vec<Result<(), String>> {
        let mut ids = IdSource::seeded(0);
        let [old, new, other] = std::array::from_fn(|_| ids.next_id());
        let job = || Record::Accepted(Job::test("t", vec![]));
        store.write(&[(old, job())]).unwrap();
        let end = Record::Ended(Outcome::new(Verdict::Completed, "done"));
        let done = write(store, &[(new, job()), (other, refused), (old, end)]);
        assert_eq!(store.outcome(old).unwrap().unwrap().message, "done");
        let unfinished = store.unfinished().unwrap();
        assert_eq!(unfinished.len(), 1, "{unfinished:?}");
        assert_eq!(unfinished[0].0, new);
        done
    }

    // spec: HUB-6-1
    #[cfg(feature = "log")]
    #[test]
    fn a_record_that_is_too_large_fails_no_other() {
        use crate::wire::TestResult;
        use ubos_common::log::{Config, LogId};

        let dir = tempfile::tempdir().unwrap();
        let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
        let store = crate::store::FileStore::open(dir.path(), config).unwrap();
        let mut large = Outcome::new(Verdict::Completed, "w".repeat(33 << 20));
        large.result = Some(TestResult::completed(large.message.clone()).into());
        let done = beside(&store, Record::Ended(large));
        assert!(done[1].as_ref().unwrap_err().contains("at most"));
        assert!(done[0].is_ok() && done[2].is_ok(), "{done:?}");
    }

    // spec: HUB-6-1
    #[test]
    fn one_job_too_many_fails_no_other() {
        let (store, job) = (Small::default(), || {
            Record::Accepted(Job::test("t", vec![]))
        });
        let done = beside(&store, job());
        assert!(done[1].as_ref().unwrap_err().contains("2 jobs"));
        assert!(done[0].is_ok() && done[2].is_ok(), "{done:?}");
        // One that was alone is not tried again.
        let mut ids = IdSource::seeded(1);
        for is_taken in [true, false] {
            let (batch, before) = ([(ids.next_id(), job())], store.1.load(Ordering::Relaxed));
            assert_eq!(write(&store, &batch)[0].is_ok(), is_taken);
            assert_eq!(store.1.load(Ordering::Relaxed), before + 1);
        }
    }
}
