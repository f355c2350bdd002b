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
        let mut bytes = first.1.weight();
        let mut batch = vec![first];
        while batch.len() < MAX_RECORDS
            && bytes < MAX_BYTES
            && let Ok(next) = records.try_recv()
        {
            bytes += next.1.weight();
            batch.push(next);
        }
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

fn write(store: &dyn JobStore, batch: &[(JobId, Record)]) -> Result<(), String> {
    store.write(batch).map_err(|error| match error {
        StoreError::Failed(cause) => format!("the store failed: {cause}"),
        error => error.to_string(),
    })
}
