//! What is to be done with each job of this hub, and when everything is.

mod held;
pub(super) mod wait;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use mission::words::with_causes;
use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use uap_hub_proto::id::{ClientId, JobId};
use uap_hub_proto::role::hub::{CommandError, Event, JobEvent, Outcome, Verdict, View};
use uap_hub_proto::store::{JobStore, StoreError};
use uap_hub_proto::transport::server::{HubHandle, JobHandle};

use super::args::Args;
use super::jobs::{self, Input, Read};
use super::lines::{Lines, verdict_word};
use super::{FAILED, UNUSABLE};
use held::{Held, HeldJob};
use wait::Wait;

/// Why a job ends that the hub did not take before it left.
const LEFT: &str = "the hub left before it took the job";

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
    /// Each waits for room for its lines before it takes the next event of its job: what is not taken, the hub bounds.
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// The ids of this run's lines whose jobs have not ended.
    given: BTreeSet<String>,
    held: Held,
    /// Told when an agent begins to listen; read while jobs are held.
    news: broadcast::Receiver<Event>,
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
        held: Held::default(),
        news: hub.events(),
        looking: None,
        next: None,
        some_failed: false,
        some_refused: false,
    };
    for job in hub.take_restored() {
        let label = hub.inspect(|view| view.job(job.id()).and_then(|info| info.label));
        desk.follow(job, label, true);
    }
    let (mut is_read, mut is_leaving) = (false, false);
    loop {
        let is_done = match is_leaving {
            true => desk.running.is_empty(),
            false => is_read && desk.is_idle() && args.exit_when_done,
        };
        if is_done {
            break;
        }
        // Where lines find no room, nothing begins that makes more of them.
        let has_room = lines.has_room();
        let may_begin = has_room && !is_leaving;
        let may_read = may_begin && desk.next.is_none() && desk.looking.is_none() && !is_read;
        let looks_at_held = may_begin && !desk.held.is_empty();
        tokio::select! {
            input = inputs.recv(), if may_read => match input {
                Some(input) => desk.input(input),
                None => is_read = true,
            },
            found = looked(&mut desk.looking), if may_begin => desk.looked(found),
            Some(ended) = desk.running.next() => desk.ended(ended),
            agent = listening(&mut desk.news), if looks_at_held => desk.came(agent.as_ref()),
            () = desk.held.due(), if looks_at_held => desk.held_due(),
            () = lines.room(), if !has_room => {}
            () = lines.broken() => return FAILED,
            // Who says so may be gone, and nobody leaves then.
            Ok(_) = leaving.wait_for(|leaving| *leaving), if !is_leaving => {
                is_leaving = true;
                desk.leave();
            }
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

/// The next agent that begins to listen; `None` where there were more than were read.
async fn listening(news: &mut broadcast::Receiver<Event>) -> Option<ClientId> {
    loop {
        match news.recv().await {
            Ok(Event::AgentAvailable { agent }) => return Some(agent),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return None,
            Err(RecvError::Closed) => std::future::pending().await,
        }
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
            if self.held.is_empty() {
                // Before the look: who comes after it is told of, and who came earlier need not be.
                self.news = self.news.resubscribe();
            }
            let find = |view: View<'_>| view.listening_agent(name);
            let Some(agent) = self.hub.inspect(find) else {
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
                self.follow(job, label.map(str::to_owned), false);
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

    fn hold(&mut self, read: Read, place: Option<&str>) {
        if self.held.is_full() {
            let label = read.job.label.clone();
            let why = "too many jobs wait for agents that are not there";
            return self.refuse(place.unwrap_or("held"), label.as_deref(), why);
        }
        self.held.add(read);
    }

    /// An agent listens, or several may: their jobs are submitted.
    fn came(&mut self, agent: Option<&ClientId>) {
        let agents = match agent {
            Some(agent) => self
                .hub
                .inspect(|view| view.agent(agent))
                .into_iter()
                .collect(),
            None => self.hub.agents(),
        };
        let listening = agents.into_iter().filter(|agent| agent.is_available);
        let names: BTreeSet<_> = listening
            .flat_map(|agent| [agent.client_id.as_str().to_owned(), agent.name])
            .collect();
        for HeldJob {
            mut read, until, ..
        } in self.held.take_for(|name| names.contains(name))
        {
            read.job.time_limit = until.map(|until| until - Instant::now());
            self.take(read, None);
        }
    }

    /// The time of a held job is over, or it is time to say why it waits.
    fn held_due(&mut self) {
        let now = Instant::now();
        let listening = self.hub.inspect(|view| view.counts().available_agents);
        let why =
            |name: &str| format!("no agent {name:?} listens; agents that listen: {listening}");
        for (read, why) in self.held.look(now, why) {
            self.lines.waiting(None, read.job.label.as_deref(), &why);
        }
        for HeldJob { read, .. } in self.held.take_due(now) {
            let name = read.agent.as_deref().unwrap_or_default();
            let why = format!("no agent {name:?} listened in time");
            self.fail(&read, Verdict::TimedOut, &why);
        }
    }

    /// The hub leaves: what was read and not submitted has its end here, because nobody else has it.
    fn leave(&mut self) {
        let held = self.held.take_for(|_| true).into_iter();
        let looking = self.looking.take().map(|looking| looking.read);
        let unsubmitted = held.map(|job| job.read).chain(looking);
        for read in unsubmitted.chain(self.next.take()).collect::<Vec<_>>() {
            self.fail(&read, Verdict::Cancelled, LEFT);
        }
    }

    /// Says how a job ends that the hub never had.
    fn fail(&mut self, read: &Read, verdict: Verdict, why: &str) {
        self.some_failed = true;
        let label = read.job.label.as_deref();
        if let Some(label) = label {
            self.given.remove(label);
        }
        self.lines.say(
            "failed",
            json!({"id": label, "state": verdict_word(verdict), "message": why}),
        );
    }

    fn follow(&mut self, mut job: JobHandle, label: Option<String>, is_restored: bool) {
        let lines = self.lines.clone();
        self.running.push(Box::pin(async move {
            let id = job.id();
            if is_restored {
                lines.room().await;
                lines.say("restored", json!({"job": id.to_string(), "id": label}));
            }
            let mut wait = Wait::default();
            let outcome = loop {
                let event = tokio::select! {
                    event = job.next_event() => event,
                    () = wait.look() => {
                        if let Some(why) = wait.changed(job.why_waiting()) {
                            lines.waiting(Some(id), label.as_deref(), &why);
                        }
                        continue;
                    }
                };
                lines.room().await;
                match event {
                    Some(JobEvent::Ended(outcome)) => break Some(outcome),
                    Some(event) => {
                        wait.heard(&event);
                        lines.job(id, label.as_deref(), &event);
                    }
                    None => break None,
                }
            };
            Ended {
                job: id,
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
