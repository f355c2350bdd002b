//! What is to be done with each job of this hub, and when everything is.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use mission::words::with_causes;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use uap_hub_proto::id::{ClientId, JobId};
use uap_hub_proto::role::hub::{CommandError, JobEvent, Outcome, Verdict};
use uap_hub_proto::store::{JobStore, StoreError};
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

/// A job whose id is looked for in the store, on a thread of its own: disks are slow, and everything else goes on.
struct Looking {
    read: Read,
    place: String,
    found: JoinHandle<Result<Option<Found>, StoreError>>,
}

/// A job that the store has, and how it ended.
type Found = (JobId, Option<Outcome>);

/// A job that has ended, to be told once its line's id is free.
struct Ended {
    job: JobId,
    label: Option<String>,
    /// `None` if the hub went away before the end.
    outcome: Option<Outcome>,
}

struct Desk<'a> {
    hub: &'a HubHandle,
    store: Option<Arc<dyn JobStore>>,
    lines: &'a Lines,
    /// Polled by this task alone, which prints: the hub's own threads do not wait for standard output.
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// The ids of this run's lines whose jobs have not ended.
    given: BTreeSet<String>,
    held: VecDeque<Held>,
    /// Nothing is read meanwhile: lines are taken in their order.
    looking: Option<Looking>,
    /// A job that the hub has no room for; nothing is read before it has.
    next: Option<Read>,
    /// A job did not end well.
    some_failed: bool,
    /// A line was no job.
    some_refused: bool,
}

/// Takes jobs until there is nothing left to do, or the hub has left; gives the exit code.
pub(super) async fn work(
    args: &Args,
    hub: &HubHandle,
    store: Option<Arc<dyn JobStore>>,
    mut inputs: mpsc::Receiver<Input>,
    lines: &Lines,
    mut leaving: watch::Receiver<bool>,
) -> u8 {
    let mut desk = Desk {
        hub,
        store,
        lines,
        running: FuturesUnordered::new(),
        given: BTreeSet::new(),
        held: VecDeque::new(),
        looking: None,
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
    let (mut is_read, mut is_leaving) = (false, false);
    loop {
        let is_done = match is_leaving {
            true => desk.running.is_empty(),
            false => is_read && desk.is_idle() && args.exit_when_done,
        };
        if is_done {
            break;
        }
        if lines.is_broken() {
            return FAILED;
        }
        let may_read = desk.next.is_none() && desk.looking.is_none() && !is_read;
        tokio::select! {
            input = inputs.recv(), if may_read && !is_leaving => match input {
                Some(input) => desk.input(input),
                None => is_read = true,
            },
            found = looked(&mut desk.looking), if !is_leaving => desk.looked(found),
            Some(ended) = desk.running.next() => desk.ended(ended),
            _ = look.tick(), if !desk.held.is_empty() && !is_leaving => desk.look_at_held(),
            // Who says so may be gone, and nobody leaves then.
            Ok(_) = leaving.wait_for(|leaving| *leaving), if !is_leaving => is_leaving = true,
        }
    }
    match (desk.some_refused, desk.some_failed) {
        (true, _) => UNUSABLE,
        (false, failed) => u8::from(failed),
    }
}

/// What the store has of the job that is looked for.
async fn looked(looking: &mut Option<Looking>) -> Result<Option<Found>, String> {
    let Some(looking) = looking else {
        return std::future::pending().await;
    };
    match (&mut looking.found).await {
        Ok(found) => found.map_err(|err| with_causes(&err)),
        Err(err) => Err(err.to_string()),
    }
}

/// The job of a label in the store; it may block.
fn find(store: &dyn JobStore, label: &str) -> Result<Option<Found>, StoreError> {
    let Some(job) = store.labelled(label)? else {
        return Ok(None);
    };
    Ok(Some((job, store.outcome(job)?)))
}

impl Desk<'_> {
    fn input(&mut self, Input { place, line }: Input) {
        let read = line.map_err(|err| err.to_string());
        match read.and_then(|line| jobs::read(&line)) {
            Ok(None) => {}
            Ok(Some(read)) => self.take_new(read, place),
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

    fn is_idle(&self) -> bool {
        let waits = self.next.is_some() || self.looking.is_some() || !self.held.is_empty();
        !waits && self.running.is_empty()
    }

    /// Takes a new job, unless the store has one of its id.
    fn take_new(&mut self, read: Read, place: String) {
        let label = read.job.label.clone();
        let Some(label) = label.as_deref() else {
            return self.take(read, Some(&place));
        };
        if self.given.contains(label) {
            self.some_refused = true;
            let why = "an earlier line has this id, and its job has not ended";
            return self.say_refused(&place, Some(label), why);
        }
        let Some(store) = self.store.clone() else {
            self.given.insert(label.to_owned());
            return self.take(read, Some(&place));
        };
        let label = label.to_owned();
        let found = spawn_blocking(move || find(&*store, &label));
        self.looking = Some(Looking { read, place, found });
    }

    /// The store has answered.
    fn looked(&mut self, found: Result<Option<Found>, String>) {
        let Some(Looking { read, place, .. }) = self.looking.take() else {
            return;
        };
        let label = read.job.label.as_deref();
        match found {
            Ok(Some((job, outcome))) => self.known(job, label, outcome.as_ref()),
            Ok(None) => {
                self.given.extend(label.map(str::to_owned));
                self.take(read, Some(&place));
            }
            // Whether it ran is not known, so it does not run.
            Err(why) => self.refuse(&place, label, &why),
        }
    }

    /// Says of a job that the store has; it is not taken again.
    fn known(&mut self, job: JobId, label: Option<&str>, outcome: Option<&Outcome>) {
        let verdict = outcome.map(|outcome| outcome.verdict);
        self.some_failed |= verdict.is_some_and(|verdict| verdict != Verdict::Completed);
        let state = verdict.map(verdict_word);
        self.lines.say(
            "known",
            json!({"job": job.to_string(), "id": label, "state": state}),
        );
    }

    /// Submits a job, or keeps it until it can be.
    fn take(&mut self, mut read: Read, place: Option<&str>) {
        let label = read.job.label.clone();
        let label = label.as_deref();
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
        self.running.push(Box::pin(async move {
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
        }));
    }

    fn ended(&mut self, ended: Ended) {
        let Ended {
            job,
            label,
            outcome,
        } = ended;
        let verdict = outcome.as_ref().map(|outcome| outcome.verdict);
        self.some_failed |= verdict != Some(Verdict::Completed);
        if let Some(label) = &label {
            self.given.remove(label);
        }
        if let Some(outcome) = outcome {
            self.lines.end(job, label.as_deref(), &outcome);
        }
        if let Some(read) = self.next.take() {
            self.take(read, None);
        }
    }
}

#[cfg(test)]
mod tests;
