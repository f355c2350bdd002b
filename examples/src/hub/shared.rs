//! Jobs on a queue that several hubs share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use uap_hub_proto::id::JobId;
use uap_hub_proto::role::hub::{JobEvent, JobInfo, JobStage, Outcome, Verdict};
use uap_hub_proto::transport::nats::{JobQueue, QueueConfig, QueueError};
use uap_hub_proto::transport::server::HubHandle;
use ubos_common::id::IdSource;

use super::args::Args;
use super::desk::wait::Wait;
use super::jobs::{self, Input};
use super::lines::Lines;
use super::{FAILED, Problem, UNUSABLE};
use crate::secured::shown;

/// How often the ends of jobs that run elsewhere are looked for.
const LOOK: Duration = Duration::from_millis(200);
/// Jobs of this hub's own input that have no end; no more are read.
const MAX_OPEN: usize = 1000;

/// How long agents have for what they run for other hubs when all own jobs have ended: as long as a job may wait.
const OTHERS: Duration = Duration::from_secs(24 * 60 * 60);

/// Why the desk stopped.
#[derive(PartialEq)]
enum RunEnd {
    /// All own jobs have ended.
    Done,
    /// Nobody reads the lines.
    Unread,
}

struct Desk<'a> {
    queue: &'a JobQueue,
    lines: &'a Lines,
    ids: RefCell<IdSource>,
    /// Jobs that came in here and have no end, with their labels.
    open: RefCell<BTreeMap<JobId, Option<String>>>,
    /// Of the jobs that this hub has, whosever they are: no more than it takes of the queue.
    waits: RefCell<BTreeMap<JobId, Wait>>,
    some_failed: Cell<bool>,
    some_refused: Cell<bool>,
    /// Whether all input was read.
    is_read: Cell<bool>,
}

/// Puts this hub's input on the queue, runs what the queue gives, and says how the own jobs end, wherever.
pub(super) async fn work(
    args: &Args,
    url: &str,
    hub: &HubHandle,
    inputs: mpsc::Receiver<Input>,
    lines: &Lines,
    mut leaving: watch::Receiver<bool>,
) -> Result<u8, Problem> {
    let config = QueueConfig::default()
        .with_ack_wait(args.ack_wait)
        .with_max_deliveries(args.max_deliveries);
    let queue = JobQueue::connect(url, config).await;
    let queue = queue.map_err(|err| (UNUSABLE, words(url, &err)))?;
    let ids = IdSource::from_os().map_err(|err| (FAILED, err.to_string()))?;
    let desk = Desk {
        queue: &queue,
        lines,
        ids: RefCell::new(ids),
        open: RefCell::default(),
        waits: RefCell::default(),
        some_failed: Cell::default(),
        some_refused: Cell::default(),
        is_read: Cell::default(),
    };
    // Never waits: the hub would say nothing of its jobs to the queue, which would give them to another.
    let hear = |job, event: &JobEvent| desk.hear(job, event);
    let done = Notify::new();
    let left = async {
        tokio::select! {
            // Who says so may be gone, and nobody leaves then.
            Ok(_) = leaving.wait_for(|leaving| *leaving) => {}
            () = done.notified() => {}
        }
    };
    let own = async {
        let end = desk.run(args, hub, inputs).await?;
        done.notify_one();
        // Agents end what they run for other hubs, and what waits goes back.
        let drain = if end == RunEnd::Done {
            OTHERS
        } else {
            args.drain
        };
        // Who began to serve the port looks at how that went.
        drop(hub.shutdown(drain).await);
        std::future::pending::<Result<(), QueueError>>().await
    };
    let worked = tokio::select! {
        worked = queue.work(hub, hear, left) => worked,
        failed = own => failed,
    };
    worked.map_err(|err| (FAILED, words(url, &err)))?;
    // The hub has left the queue.
    Ok(desk.done(args).unwrap_or(FAILED))
}

fn words(url: &str, err: &QueueError) -> String {
    let cause = std::error::Error::source(err).map(|cause| format!(": {cause}"));
    format!("{}: {err}{}", shown(url), cause.unwrap_or_default())
}

impl Desk<'_> {
    /// The exit code, when everything is done.
    fn done(&self, args: &Args) -> Option<u8> {
        let is_done = self.is_read.get() && self.open.borrow().is_empty();
        let code = match (self.some_refused.get(), self.some_failed.get()) {
            (true, _) => UNUSABLE,
            (false, failed) => u8::from(failed),
        };
        (is_done && args.exit_when_done).then_some(code)
    }

    /// Goes on until there is nothing left to do of this hub's own, or nobody reads its lines.
    async fn run(
        &self,
        args: &Args,
        hub: &HubHandle,
        mut inputs: mpsc::Receiver<Input>,
    ) -> Result<RunEnd, QueueError> {
        let mut look = tokio::time::interval(LOOK);
        loop {
            if self.done(args).is_some() {
                return Ok(RunEnd::Done);
            }
            let has_room = self.lines.has_room();
            let may_read = has_room && !self.is_read.get() && self.open.borrow().len() < MAX_OPEN;
            tokio::select! {
                input = inputs.recv(), if may_read => match input {
                    Some(input) => self.input(input).await?,
                    None => self.is_read.set(true),
                },
                _ = look.tick(), if has_room => {
                    self.tell_waiting(hub);
                    self.look().await?;
                }
                () = self.lines.room(), if !has_room => {}
                () = self.lines.broken() => return Ok(RunEnd::Unread),
            }
        }
    }

    async fn input(&self, Input { place, line }: Input) -> Result<(), QueueError> {
        let read = line.map_err(|err| err.to_string());
        let read = match read.and_then(|line| jobs::read(&line)) {
            Ok(None) => return Ok(()),
            Ok(Some(read)) if read.agent.is_some() => {
                Err("a job on a shared queue is for any agent: leave agent out".to_owned())
            }
            Ok(Some(read)) => Ok(read.job),
            Err(why) => Err(why),
        };
        let job = match read {
            Ok(job) => job,
            Err(why) => {
                self.some_refused.set(true);
                self.lines
                    .say("refused", json!({"line": place, "reason": why}));
                return Ok(());
            }
        };
        let label = job.label.as_deref();
        if label.is_some()
            && self
                .open
                .borrow()
                .values()
                .any(|open| open.as_deref() == label)
        {
            self.some_refused.set(true);
            let why = "an earlier line has this id, and its job has not ended";
            self.lines.say(
                "refused",
                json!({"line": place, "id": label, "reason": why}),
            );
            return Ok(());
        }
        let id: JobId = self.ids.borrow_mut().next_id();
        let label = job.label.as_deref().map(str::to_owned);
        match self.queue.submit(id, &job).await {
            Ok(()) => {
                self.lines
                    .say("submitted", json!({"job": id.to_string(), "id": label}));
                self.open.borrow_mut().insert(id, label);
                Ok(())
            }
            Err(err @ (QueueError::TooLarge { .. } | QueueError::TooManyFields)) => {
                self.some_refused.set(true);
                self.lines
                    .say("refused", json!({"line": place, "reason": err.to_string()}));
                Ok(())
            }
            Err(err) => Err(err),
        }
    }

    /// News of a job that runs here, whosever it is.
    fn hear(&self, job: JobId, event: &JobEvent) {
        if let JobEvent::Ended(outcome) = event {
            return self.end(job, outcome);
        }
        let label = self.open.borrow().get(&job).cloned().flatten();
        self.lines.job(job, label.as_deref(), event);
    }

    /// Tells the end of an own job. Where there is no room for it, it stays in the queue until there is.
    fn end(&self, job: JobId, outcome: &Outcome) {
        if !self.lines.has_room() {
            return;
        }
        if let Some(label) = self.open.borrow_mut().remove(&job) {
            let is_good = outcome.verdict == Verdict::Completed;
            self.some_failed.set(self.some_failed.get() || !is_good);
            self.lines.end(job, label.as_deref(), outcome);
        }
    }

    /// Says why jobs that this hub has wait, when they do and when the reason is another.
    fn tell_waiting(&self, hub: &HubHandle) {
        let job = |job: JobInfo| (job.id, job.stage == JobStage::Waiting);
        let here: BTreeMap<JobId, bool> = hub.inspect(|view| view.jobs().map(job).collect());
        let mut waits = self.waits.borrow_mut();
        waits.retain(|id, _| here.contains_key(id));
        for (id, is_waiting) in here {
            let wait = waits.entry(id).or_default();
            wait.set_waiting(is_waiting);
            if wait.is_due(Instant::now())
                && let Some(why) = wait.changed(hub.why_waiting(id))
            {
                let label = self.open.borrow().get(&id).cloned().flatten();
                self.lines.waiting(Some(id), label.as_deref(), &why);
            }
        }
    }

    /// Looks for the ends of own jobs that run elsewhere.
    async fn look(&self) -> Result<(), QueueError> {
        let open: Vec<JobId> = self.open.borrow().keys().copied().collect();
        for job in open {
            if let Some(outcome) = self.queue.outcome(job).await? {
                self.end(job, &outcome);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        for (url, wanted) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://user:secret@host:4222", "nats://host:4222"),
            ("tls://token@host", "tls://host"),
            ("user:secret@host", "host"),
            ("nats://user:a/b@c://d@host", "nats://host"),
            ("nats://a:secret@one,nats://b:secret@two", "nats://two"),
        ] {
            let said = words(url, &QueueError::Name);
            assert_eq!(said, format!("{wanted}: {}", QueueError::Name));
        }
    }
}
