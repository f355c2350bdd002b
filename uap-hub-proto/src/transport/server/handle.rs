//! Handles of a hub and of its jobs.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{broadcast, oneshot},
    task::JoinHandle,
};

use tonic_health::{ServingStatus, server::HealthReporter};

use super::{calls::SERVICE, shared::Shared};
use crate::{
    id::JobId,
    role::hub::{AgentInfo, CommandError, Event, Job, JobEvent, Outcome, Verdict},
    transport::{inbox::Inbox, lock},
};

/// A running hub. Clones are handles of the same hub, which stops when the last one is dropped.
#[derive(Clone, Debug)]
pub struct HubHandle(pub(super) Arc<Running>);

#[derive(Debug)]
pub(super) struct Running {
    scheme: &'static str,
    addr: SocketAddr,
    pub(super) shared: Arc<Shared>,
    serving: Mutex<Option<Serving>>,
    /// Jobs of an earlier process, until the caller takes them.
    pub(super) restored: Mutex<Vec<JobHandle>>,
}

/// The serving task, its stop signal, and its health reporter.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) server: JoinHandle<io::Result<()>>,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) health: HealthReporter,
}

impl HubHandle {
    pub(super) fn new(
        scheme: &'static str,
        addr: SocketAddr,
        shared: Arc<Shared>,
        serving: Serving,
        restored: Vec<JobHandle>,
    ) -> Self {
        Self(Arc::new(Running {
            scheme,
            addr,
            shared,
            serving: Mutex::new(Some(serving)),
            restored: Mutex::new(restored),
        }))
    }

    /// Where the hub listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.addr
    }

    /// The URL for agents on this machine.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.0.scheme, self.0.addr)
    }

    /// Submits a job.
    ///
    /// # Errors
    ///
    /// As [`Hub::submit`](crate::role::hub::Hub::submit).
    pub fn submit(&self, job: Job) -> Result<JobHandle, CommandError> {
        let shared = &self.0.shared;
        let (id, inbox) = shared.submit(|hub, now| hub.submit(now, job))?;
        Ok(JobHandle::new(id, inbox, shared))
    }

    /// Ends a job that waits or runs.
    ///
    /// # Errors
    ///
    /// No such job waits or runs.
    pub fn cancel(&self, job: JobId) -> Result<(), CommandError> {
        self.0.shared.command(|hub, now| hub.cancel(now, job))
    }

    /// Why a job waits, in words for people; `None` where it does not. It costs a look at no more than 64 agents.
    #[must_use]
    pub fn why_waiting(&self, job: JobId) -> Option<String> {
        self.0.shared.act(|hub, _| hub.why_waiting(job))
    }

    /// The registered agents, ordered by client id.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentInfo> {
        self.0.shared.act(|hub, _| hub.view().agents().collect())
    }

    /// Waits until at least `count` agents may be offered jobs.
    ///
    /// # Errors
    ///
    /// [`CommandError::ShuttingDown`] where the hub has left: no agent comes any more.
    pub async fn wait_for_agents(&self, count: usize) -> Result<(), CommandError> {
        let mut available = self.0.shared.available.subscribe();
        let mut closed = self.0.shared.closed.subscribe();
        // The senders live as long as this handle.
        tokio::select! {
            biased;
            _ = available.wait_for(|available| *available >= count) => Ok(()),
            _ = closed.wait_for(|closed| *closed) => Err(CommandError::ShuttingDown),
        }
    }

    /// Events of agents and audits, without those of jobs: the first time from the start on, then from now on. A reader that
    /// lags behind by more than 1,024 loses the oldest and is told so.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        let first = lock(&self.0.shared.first_news).take();
        first.unwrap_or_else(|| self.0.shared.news.subscribe())
    }

    /// Leaves: running sessions get `drain`, then agents are told that the hub is unavailable, and the
    /// port is closed. Called once more, it may shorten that time. A store that has not answered by then has 10 s.
    ///
    /// # Errors
    ///
    /// The server had failed. [`TimedOut`](io::ErrorKind::TimedOut): the store did not answer for some records, and the hub
    /// closed without it; what was told of their jobs has a [`store_error`](Outcome::store_error). The write then holds a
    /// thread that the runtime waits for when it is dropped: end the process, or the runtime with a bound
    /// (`Runtime::shutdown_timeout`, `shutdown_background`).
    pub async fn shutdown(&self, drain: Duration) -> io::Result<()> {
        /// How long connections may take to close once every call has ended.
        const CLOSING: Duration = Duration::from_secs(2);
        self.0.shared.act(|hub, now| hub.shutdown(now, drain));
        let health = lock(&self.0.serving)
            .as_ref()
            .map(|serving| serving.health.clone());
        if let Some(health) = health {
            health
                .set_service_status(SERVICE, ServingStatus::NotServing)
                .await;
        }
        let _ = self
            .0
            .shared
            .closed
            .subscribe()
            .wait_for(|closed| *closed)
            .await;
        let serving = lock(&self.0.serving).take();
        if let Some(Serving { server, stop, .. }) = serving {
            // The server may have failed, and then hears nothing.
            let _ = stop.send(());
            // One that is late accepts nothing more and only waits for connections, which have tasks of their own.
            if let Ok(Ok(done)) = tokio::time::timeout(CLOSING, server).await {
                done?;
            }
        }
        match self.0.shared.unstored.load(Ordering::Relaxed) {
            0 => Ok(()),
            records => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the hub closed before its store had answered; records that wait for it: {records}"
                ),
            )),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Connections outlive the server's task: without this, agents would keep listening. The timer ends with the hub.
        self.shared.act(|hub, now| {
            hub.shutdown(now, Duration::ZERO);
            hub.handle_timeout(now);
        });
        // The server accepts nothing more once its stop signal is dropped with this.
        self.shared.close_inboxes();
    }
}

/// A submitted job. Dropping the handle drops its events, not the job.
#[derive(Debug)]
pub struct JobHandle {
    id: JobId,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    /// The end, once it was given as an event.
    ended: Option<Outcome>,
}

impl JobHandle {
    pub(super) fn new(id: JobId, inbox: Arc<Inbox>, shared: &Arc<Shared>) -> Self {
        Self {
            id,
            inbox,
            shared: shared.clone(),
            ended: None,
        }
    }

    pub(super) fn claim(&self) {
        self.inbox.claim();
    }

    /// The job's name.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// The next event; `None` after [`JobEvent::Ended`], or when the hub is gone.
    pub async fn next_event(&mut self) -> Option<JobEvent> {
        let (event, taken) = self.inbox.next().await;
        if let Some(taken) = taken {
            self.shared
                .act(|hub, now| hub.events_read(now, self.id, taken.events, taken.bytes));
        }
        if let Some(JobEvent::Ended(outcome)) = &event {
            self.ended = Some(outcome.clone());
        }
        event
    }

    /// As [`HubHandle::why_waiting`].
    #[must_use]
    pub fn why_waiting(&self) -> Option<String> {
        self.shared.act(|hub, _| hub.why_waiting(self.id))
    }

    /// Waits for the end, and skips all other events; the same end where [`next_event`](Self::next_event) gave it already.
    /// [`Verdict::Cancelled`] where the hub is gone before it.
    pub async fn outcome(mut self) -> Outcome {
        if let Some(outcome) = self.ended.take() {
            return outcome;
        }
        self.inbox.wait_for_end();
        self.shared.mute(self.id);
        while let Some(event) = self.next_event().await {
            if let JobEvent::Ended(outcome) = event {
                return outcome;
            }
        }
        Outcome::new(Verdict::Cancelled, "the hub is gone")
    }

    /// Ends the job.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn cancel(&self) -> Result<(), CommandError> {
        self.shared.command(|hub, now| hub.cancel(now, self.id))
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        if self.inbox.detach() {
            self.shared.mute(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServerConfig, serve};
    use super::*;

    // spec: HUB-4-4
    #[tokio::test]
    async fn the_end_of_a_job_is_the_same_after_all_of_its_events() {
        let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
        let hub = hub.await.unwrap();
        let mut job = hub.submit(Job::test("t", vec![])).unwrap();
        job.cancel().unwrap();
        let mut ends = Vec::new();
        while let Some(event) = job.next_event().await {
            ends.extend(match event {
                JobEvent::Ended(outcome) => Some(outcome),
                _ => None,
            });
        }
        let outcome = job.outcome().await;
        assert_ne!(outcome.message, "the hub is gone");
        assert_eq!(ends, [outcome]);
    }

    // spec: HUB-4-4
    #[tokio::test]
    async fn nothing_is_kept_of_the_events_of_a_job_that_has_ended() {
        let hub = serve(([127, 0, 0, 1], 0).into(), ServerConfig::default());
        let hub = hub.await.unwrap();
        let job = hub.submit(Job::test("t", vec![])).unwrap();
        assert_eq!(Arc::strong_count(&job.inbox), 2);
        job.cancel().unwrap();
        assert_eq!(Arc::strong_count(&job.inbox), 1);
    }
}
