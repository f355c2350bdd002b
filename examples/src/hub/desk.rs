//! What is to be done with each job of this hub, and when everything is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uap_hub_proto::id::{ClientId, JobId};
use uap_hub_proto::role::hub::{CommandError, JobEvent, Outcome, Verdict};
use uap_hub_proto::store::{FileStore, JobStore as _};
use uap_hub_proto::transport::server::{HubHandle, JobHandle};

use super::args::Args;
use super::jobs::{self, Input, Read};
use super::lines::{Lines, verdict_word};
use super::{FAILED, UNUSABLE};

/// Jobs that wait for an agent that is not there.
const MAX_HELD: usize = 1000;
/// How often those are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A job for an agent that is not there.
struct Held {
    read: Read,
    until: Option<Instant>,
}

/// A job that has ended, to be told once its line's id is free.
struct Ended {
    job: JobId,
    label: Option<String>,
    /// `None` if the hub went away before the end.
    outcome: Option<Outcome>,
}

struct Desk<'a> {
    hub: &'a HubHandle,
    store: Option<&'a FileStore>,
    lines: &'a Lines,
    running: JoinSet<Ended>,
    /// The ids of this run's lines whose jobs have not ended.
    given: BTreeSet<String>,
    held: VecDeque<Held>,
    /// A job that the hub has no room for; nothing is read before it has.
    next: Option<Read>,
    /// A job did not end well.
    some_failed: bool,
    /// A line was no job.
    some_refused: bool,
}

/// Takes jobs until there is nothing left to do; gives the exit code.
pub(super) async fn work(
    args: &Args,
    hub: &HubHandle,
    store: Option<&FileStore>,
    mut inputs: mpsc::Receiver<Input>,
    lines: &Lines,
) -> u8 {
    let mut desk = Desk {
        hub,
        store,
        lines,
        running: JoinSet::new(),
        given: BTreeSet::new(),
        held: VecDeque::new(),
        next: None,
        some_failed: false,
        some_refused: false,
    };
    for job in hub.take_restored() {
        let label = hub.inspect(|view| view.job(job.id()).and_then(|info| info.label));
        lines.say(
            "restored",
            json!({"job": job.id().to_string(), "id": label}),
        );
        desk.follow(job, label);
    }
    let mut look = tokio::time::interval(LOOK);
    let mut is_read = false;
    loop {
        let is_idle = desk.running.is_empty() && desk.held.is_empty() && desk.next.is_none();
        if is_read && is_idle && args.exit_when_done {
            break;
        }
        if lines.is_broken() {
            return FAILED;
        }
        tokio::select! {
            input = inputs.recv(), if desk.next.is_none() && !is_read => match input {
                Some(input) => desk.input(input),
                None => is_read = true,
            },
            Some(ended) = desk.running.join_next() => desk.ended(ended.ok()),
            _ = look.tick(), if !desk.held.is_empty() => desk.look_at_held(),
            // Without anything to wait for there is still somebody to be interrupted by.
            else => std::future::pending().await,
        }
    }
    match (desk.some_refused, desk.some_failed) {
        (true, _) => UNUSABLE,
        (false, failed) => u8::from(failed),
    }
}

impl Desk<'_> {
    fn input(&mut self, Input { place, line }: Input) {
        let read = line.map_err(|err| err.to_string());
        match read.and_then(|line| jobs::read(&line)) {
            Ok(None) => {}
            Ok(Some(read)) => self.take(read, Some(&place)),
            Err(why) => self.refuse(&place, None, &why),
        }
    }

    fn refuse(&mut self, place: &str, label: Option<&str>, why: &str) {
        self.some_refused = true;
        if let Some(label) = label {
            self.given.remove(label);
        }
        self.say_refused(place, label, why);
    }

    fn say_refused(&self, place: &str, label: Option<&str>, why: &str) {
        self.lines.say(
            "refused",
            json!({"line": place, "id": label, "reason": why}),
        );
    }

    /// Submits a job, or keeps it until it can be.
    fn take(&mut self, mut read: Read, place: Option<&str>) {
        let label = read.job.label.clone();
        let label = label.as_deref();
        if let Some(place) = place {
            if label.is_some_and(|label| self.given.contains(label)) {
                self.some_refused = true;
                let why = "an earlier line has this id, and its job has not ended";
                return self.say_refused(place, label, why);
            }
            if self.is_known(label) {
                return;
            }
            self.given.extend(label.map(str::to_owned));
        }
        if let Some(name) = &read.agent {
            let Some(agent) = self.find(name) else {
                return self.hold(read, place);
            };
            read.job.agent = Some(agent);
        }
        match self.hub.submit(read.job.clone()) {
            Ok(job) => {
                self.lines.say(
                    "submitted",
                    json!({"job": job.id().to_string(), "id": label}),
                );
                self.follow(job, label.map(str::to_owned));
            }
            // The agent left in this moment.
            Err(CommandError::UnknownAgent) => self.hold(read, place),
            Err(CommandError::TooManyJobs { .. } | CommandError::QueueFull { .. })
                if !self.running.is_empty() =>
            {
                self.next = Some(read);
            }
            Err(err) => self.refuse(place.unwrap_or("held"), label, &err.to_string()),
        }
    }

    /// Whether the store has a job of that name: then it is not taken again.
    fn is_known(&mut self, label: Option<&str>) -> bool {
        let (Some(store), Some(label)) = (self.store, label) else {
            return false;
        };
        let Ok(Some(job)) = store.labelled(label) else {
            return false;
        };
        let outcome: Option<Outcome> = store.outcome(job).ok().flatten();
        let state = outcome
            .as_ref()
            .map(|outcome| verdict_word(outcome.verdict));
        self.some_failed |= outcome.is_some_and(|outcome| outcome.verdict != Verdict::Completed);
        self.lines.say(
            "known",
            json!({"job": job.to_string(), "id": label, "state": state}),
        );
        true
    }

    /// An agent by its client id, or the first that listens by its display name.
    fn find(&self, name: &str) -> Option<ClientId> {
        let agents = self.hub.agents();
        let mut listening = agents.iter().filter(|agent| agent.is_available);
        let found = listening.find(|agent| agent.client_id.as_str() == name || agent.name == name);
        found.map(|agent| agent.client_id.clone())
    }

    fn hold(&mut self, read: Read, place: Option<&str>) {
        if self.held.len() >= MAX_HELD {
            let label = read.job.label.clone();
            let why = "too many jobs wait for agents that are not there";
            return self.refuse(place.unwrap_or("held"), label.as_deref(), why);
        }
        let until = read.job.time_limit.map(|limit| Instant::now() + limit);
        self.held.push_back(Held { read, until });
    }

    fn look_at_held(&mut self) {
        for mut held in std::mem::take(&mut self.held) {
            let now = Instant::now();
            if held.until.is_some_and(|until| until <= now) {
                self.some_failed = true;
                if let Some(label) = &held.read.job.label {
                    self.given.remove(&**label);
                }
                self.lines.say(
                    "failed",
                    json!({
                        "id": held.read.job.label.as_deref(), "state": verdict_word(Verdict::TimedOut),
                        "message": format!("no agent {:?} listened in time", held.read.agent.unwrap_or_default()),
                    }),
                );
            } else if held
                .read
                .agent
                .as_deref()
                .and_then(|name| self.find(name))
                .is_some()
            {
                held.read.job.time_limit = held.until.map(|until| until - now);
                self.take(held.read, None);
            } else {
                self.held.push_back(held);
            }
        }
    }

    fn follow(&mut self, mut job: JobHandle, label: Option<String>) {
        let lines = self.lines.clone();
        self.running.spawn(async move {
            while let Some(event) = job.next_event().await {
                if let JobEvent::Ended(outcome) = event {
                    let (job, outcome) = (job.id(), Some(outcome));
                    return Ended {
                        job,
                        label,
                        outcome,
                    };
                }
                lines.job(job.id(), label.as_deref(), &event);
            }
            let (job, outcome) = (job.id(), None);
            Ended {
                job,
                label,
                outcome,
            }
        });
    }

    fn ended(&mut self, ended: Option<Ended>) {
        let verdict = ended
            .as_ref()
            .and_then(|ended| ended.outcome.as_ref())
            .map(|outcome| outcome.verdict);
        self.some_failed |= verdict != Some(Verdict::Completed);
        if let Some(Ended {
            job,
            label,
            outcome,
        }) = ended
        {
            if let Some(label) = &label {
                self.given.remove(label);
            }
            if let Some(outcome) = outcome {
                let event = JobEvent::Ended(outcome);
                self.lines.job(job, label.as_deref(), &event);
            }
        }
        if let Some(read) = self.next.take() {
            self.take(read, None);
        }
    }
}
