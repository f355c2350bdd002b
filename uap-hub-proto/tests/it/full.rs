//! A hub whose store is on a full disk refuses jobs, and takes them again when there is room.

use std::sync::Arc;

use uap_hub_proto::{
    role::hub::{Job, JobEvent, Outcome, Verdict},
    store::{FileStore, JobStore as _},
    transport::server::{HubHandle, ServerConfig, serve},
    wire::Payload,
};
use ubos_common::log::{Config, LogId, SimDisk};

/// Submits a job that nobody takes; returns its end if it is not stored.
async fn submit(hub: &HubHandle) -> Option<Outcome> {
    let job = Job::test("t", vec![Payload::new("p".repeat(1000))]);
    let mut job = hub.submit(job).unwrap();
    let first = job.next_event().await;
    match first {
        Some(JobEvent::Stored) => None,
        Some(JobEvent::Ended(outcome)) => Some(outcome),
        other => panic!("{other:?}"),
    }
}

// spec: HUB-6-1
#[tokio::test]
async fn jobs_are_refused_while_the_disk_is_full_and_taken_after() {
    let disk = SimDisk::new();
    let config = || {
        Config::default()
            .with_log_id(LogId::from_bytes([7; 16]))
            .with_segment_bytes(4 << 10)
    };
    let store = Arc::new(FileStore::open_in(disk.dir(), config()).unwrap());
    let server = ServerConfig::default().with_store(store.clone());
    let hub = serve("127.0.0.1:0".parse().unwrap(), server).await.unwrap();
    let ended = hub.submit(Job::test("t", vec![])).unwrap();
    let id = ended.id();
    ended.cancel().unwrap();
    ended.outcome().await;
    assert_eq!(store.compact(0, &*SimDisk::new().dir()).unwrap(), 1);
    disk.set_capacity(Some(20 << 10));
    let mut stored = 0;
    let refused = loop {
        match submit(&hub).await {
            None => stored += 1,
            Some(outcome) => break outcome,
        }
        assert!(stored < 100, "the disk is never full");
    };
    assert_eq!(refused.verdict, Verdict::Failed);
    assert_eq!(refused.message, "the job could not be stored");
    for _ in 0..3 {
        let refused = submit(&hub).await.unwrap();
        let told = refused.store_error.unwrap();
        assert!(told.contains("no storage space"), "{told}");
    }
    disk.set_capacity(None);
    for _ in 0..3 {
        assert_eq!(submit(&hub).await, None);
        stored += 1;
    }
    assert_eq!(store.unfinished().unwrap().len(), stored);
    // What it gave up it does not read again.
    assert_eq!(store.outcome(id).unwrap(), None);
    hub.shutdown(std::time::Duration::ZERO).await.unwrap();
    drop((hub, store));
}
