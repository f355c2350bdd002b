//! Ends that leave the store for another folder, at the start and while the hub runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mission::words::with_causes;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use uap_hub_proto::id::JobId;
use uap_hub_proto::role::hub::{Job, Outcome, Record};
use uap_hub_proto::store::{FileStore, JobStore, StoreError};
use ubos_common::log::FsDir;

use super::lines::Lines;

/// A store that has some of its ends archived: all but the last `keep`, whenever as many have come since.
#[derive(Debug)]
pub(super) struct Archiving {
    store: Arc<FileStore>,
    folder: PathBuf,
    keep: usize,
    /// Ends since the last time.
    ends: AtomicUsize,
    are_many: Notify,
}

impl Archiving {
    pub(super) fn new(store: Arc<FileStore>, folder: &Path, keep: usize) -> Arc<Self> {
        Arc::new(Self {
            store,
            folder: folder.to_owned(),
            keep,
            ends: AtomicUsize::new(0),
            are_many: Notify::new(),
        })
    }

    /// Archives; returns how many jobs went. It blocks.
    pub(super) fn archive(&self) -> Result<usize, String> {
        let said = |why: String| format!("{}: {why}", self.folder.display());
        let folder = FsDir::create(&self.folder).map_err(|err| said(err.to_string()))?;
        let moved = self.store.compact(self.keep, &folder);
        moved.map_err(|err| said(with_causes(&err)))
    }

    /// Archives whenever it is time, on a thread of its own: jobs go on meanwhile. What fails is said, and tried again when as
    /// many have ended once more.
    pub(super) async fn run(self: Arc<Self>, lines: &Lines) {
        loop {
            self.are_many.notified().await;
            self.ends.store(0, Ordering::Relaxed);
            let archiving = Arc::clone(&self);
            let moved = spawn_blocking(move || archiving.archive()).await;
            match moved.unwrap_or_else(|err| Err(err.to_string())) {
                Ok(0) => {}
                Ok(jobs) => lines.say("archived", json!({"jobs": jobs})),
                Err(why) => lines.say("not-archived", json!({"reason": why})),
            }
        }
    }
}

impl JobStore for Archiving {
    fn write(&self, records: &[(JobId, Record)]) -> Result<(), StoreError> {
        self.store.write(records)?;
        let is_end = |(_, record): &&(JobId, Record)| matches!(record, Record::Ended(_));
        let ended = records.iter().filter(is_end).count();
        if self.ends.fetch_add(ended, Ordering::Relaxed) + ended >= self.keep {
            self.are_many.notify_one();
        }
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(JobId, Job)>, StoreError> {
        self.store.unfinished()
    }

    fn outcome(&self, job: JobId) -> Result<Option<Outcome>, StoreError> {
        self.store.outcome(job)
    }

    fn labelled(&self, label: &str) -> Result<Option<JobId>, StoreError> {
        self.store.labelled(label)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uap_hub_proto::role::hub::{self, Event, JobEvent, Output};
    use uap_hub_proto::wire::Payload;
    use ubos_common::id::IdSource;
    use ubos_common::log::{Config, LogId};
    use ubos_common::time::{Mono, Now, Timestamp};

    use super::super::lines::Page;
    use super::*;

    const KEEP: usize = 50;

    fn open(folder: &Path) -> FileStore {
        let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
        FileStore::open(folder, config.with_segment_bytes(64 << 10)).unwrap()
    }

    fn ends(store: &FileStore) -> Vec<(JobId, String)> {
        let ends = store.outcomes().map(Result::unwrap);
        let ends = ends.filter_map(|(job, outcome)| Some((job, outcome?.message)));
        ends.collect()
    }

    /// An end, which only a hub makes.
    fn end() -> Outcome {
        let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
        let mut hub = hub::Hub::new(hub::Config::default(), IdSource::seeded(1)).unwrap();
        let job = hub.submit(now, Job::test("t", Vec::new())).unwrap();
        hub.cancel(now, job).unwrap();
        let said = std::iter::from_fn(|| hub.poll_output());
        let mut ends = said.filter_map(|output| match output {
            Output::Event(Event::Job {
                event: JobEvent::Ended(outcome),
                ..
            }) => Some(outcome),
            _ => None,
        });
        ends.next().unwrap()
    }

    /// Writes jobs and their ends.
    fn fill(store: &dyn JobStore, jobs: &[JobId]) {
        let mut outcome = end();
        for job in jobs {
            let payload = Payload::file("p", "p", "text/plain", vec![7; 4_000]);
            let accepted = Record::Accepted(Job::test("t", vec![payload]));
            outcome.message = job.to_string();
            let ended = Record::Ended(outcome.clone());
            store.write(&[(*job, accepted), (*job, ended)]).unwrap();
        }
    }

    // spec: HUB-6-1
    #[tokio::test]
    async fn ends_leave_the_store_of_a_hub_that_runs_and_can_be_read_where_they_are() {
        let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut ids = IdSource::seeded(1);
        let mut written = Vec::new();
        // The second time the archive goes on.
        for _ in 0..2 {
            let archiving = Archiving::new(Arc::new(open(dir.path())), old.path(), KEEP);
            let jobs: Vec<JobId> = (0..5 * KEEP).map(|_| ids.next_id()).collect();
            written.extend(jobs.iter().map(|job| (*job, job.to_string())));
            let page = Page::default();
            let lines = Lines::to(page.clone());
            let store = Arc::clone(&archiving);
            let work = async {
                spawn_blocking(move || fill(&*store, &jobs)).await.unwrap();
                page.until("archived").await;
            };
            tokio::select! {
                () = Arc::clone(&archiving).run(&lines) => {}
                () = work => {}
            }
            // It may be at it.
            while Arc::strong_count(&archiving) > 1 {
                tokio::task::yield_now().await;
            }
            assert!(!page.text().contains("not-archived"), "{}", page.text());
            drop(archiving);
            let (here, there) = (ends(&open(dir.path())), ends(&open(old.path())));
            assert!(here.len() < written.len() - KEEP, "{}", here.len());
            let mut all: BTreeMap<_, _> = there.into_iter().chain(here).collect();
            for (job, words) in &written {
                assert_eq!(all.remove(job).as_ref(), Some(words));
            }
            assert!(all.is_empty());
        }
    }

    // spec: HUB-6-1
    #[tokio::test]
    async fn an_archive_that_cannot_be_written_is_said_and_the_store_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (store, file) = (dir.path().join("store"), dir.path().join("file"));
        std::fs::write(&file, "no folder").unwrap();
        let archiving = Archiving::new(Arc::new(open(&store)), &file, KEEP);
        let mut ids = IdSource::seeded(1);
        let jobs: Vec<JobId> = (0..KEEP).map(|_| ids.next_id()).collect();
        let page = Page::default();
        let lines = Lines::to(page.clone());
        fill(&*archiving, &jobs);
        tokio::select! {
            () = Arc::clone(&archiving).run(&lines) => {}
            () = page.until("not-archived") => {}
        }
        assert_eq!(ends(&archiving.store).len(), KEEP);
    }
}
