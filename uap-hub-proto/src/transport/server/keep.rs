//! Stores the records of a durable hub, many with one write.

use std::{io, sync::Arc};

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
        let done = done.unwrap_or_else(|_| Err("the store panicked".to_owned()));
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.act(|hub, now| {
            for job in jobs {
                // The hub asked for every record.
                let _ = hub.stored(now, job, done.clone());
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

fn write(store: &dyn JobStore, batch: &[(JobId, Record)]) -> Result<(), String> {
    store.write(batch).map_err(|error| match error {
        StoreError::Failed(cause) => format!("the store failed: {}", chain(&*cause)),
        error => error.to_string(),
    })
}

/// An error and what caused it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use ubos_common::id::IdSource;

    use super::*;
    use crate::{
        role::hub::{Job, Outcome},
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
        let payload = Payload::file("p", "", "", vec![0; MAX_BYTES / 2]);
        let large = Record::Accepted(Job::test("t", vec![payload]));
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
        let told = write(&Broken, &[]).unwrap_err();
        assert_eq!(told, "the store failed: no disk");
    }
}
