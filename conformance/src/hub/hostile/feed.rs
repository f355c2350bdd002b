//! Jobs that are given to the hub.

use std::{fmt, sync::Arc, time::Duration};

use uap_hub_proto::{role::hub::Job, wire::Payload};

/// The test type of the jobs that attackers take.
pub(super) const SKILL: &str = "hostile";
/// How long a job may take, so that none is left behind an attack.
const JOB_LIMIT: Duration = Duration::from_secs(2);

/// Gives the hub a job.
#[derive(Clone)]
pub(super) struct Feed(Arc<dyn Fn(Job) + Send + Sync>);

impl Feed {
    pub(super) fn new(feed: impl Fn(Job) + Send + Sync + 'static) -> Self {
        Self(Arc::new(feed))
    }

    /// Gives a job. The caller's function may block: its thread is none that tasks run on, and it may go on when they have
    /// ended.
    pub(super) async fn give(&self, payloads: Vec<Payload>) {
        let mut job = Job::test(SKILL, payloads);
        job.time_limit = Some(JOB_LIMIT);
        self.give_job(job).await;
    }

    /// Gives a job of any kind.
    pub(super) async fn give_job(&self, job: Job) {
        let feed = Arc::clone(&self.0);
        // A function that panics has given nothing.
        let _ = tokio::task::spawn_blocking(move || feed(job)).await;
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}
