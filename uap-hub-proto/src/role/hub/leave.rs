//! Pause, drain and shutdown, of one agent and of the hub.

use std::time::Duration;

use ubos_common::{machine::Timers, time::Now};

use super::{
    CommandError, Event, Hub, JobEvent, Outcome, Output, Phase, Timer, Verdict,
    durable::NOT_STORED, execution::Closed, queue::Stage as JobStage, session::Stage,
};
use crate::{
    id::{ClientId, JobId},
    status::{Code, Status},
};

const LEAVING: &str = "the hub is shutting down";
/// How long a hub that leaves waits for its store once the time for draining is over.
const STORE_GRACE: Duration = Duration::from_secs(10);
const UNANSWERED: &str = "the store had not answered when the hub closed";

impl Hub {
    /// Pauses the hub, or lets it go on. While it is paused it offers nothing: agents can register, jobs are accepted and
    /// wait, sessions and offers that are made go on.
    pub fn set_paused(&mut self, now: Now, paused: bool) {
        match (self.phase, paused) {
            (Phase::Open, true) => self.phase = Phase::Paused,
            (Phase::Paused, false) => {
                self.phase = Phase::Open;
                for job in self.queue.waiting() {
                    self.place(now, job);
                }
            }
            _ => {}
        }
        self.finish(now);
    }

    /// Pauses an agent, or lets it go on, also one that was to be drained. While it is paused it is offered nothing; its
    /// sessions go on.
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn set_agent_paused(
        &mut self,
        now: Now,
        agent: &ClientId,
        paused: bool,
    ) -> Result<(), CommandError> {
        let found = self.fleet.get(agent.as_str());
        let is_draining = found.ok_or(CommandError::UnknownAgent)?.is_draining;
        self.fleet.set_paused(agent, paused, paused && is_draining);
        if paused {
            self.one_less(now);
        } else {
            self.offer_to(now, agent, false);
        }
        self.finish(now);
        Ok(())
    }

    /// Sends an agent home once what it has is over: its `Listen` then ends `UNAVAILABLE`. An agent that
    /// comes back registers anew and is offered jobs; stop it before it does.
    ///
    /// # Errors
    ///
    /// No such agent is registered.
    pub fn drain_agent(&mut self, now: Now, agent: &ClientId) -> Result<(), CommandError> {
        let found = self.fleet.get(agent.as_str());
        found.ok_or(CommandError::UnknownAgent)?;
        self.fleet.set_paused(agent, true, true);
        self.one_less(now);
        self.dismiss_if_drained(now, agent);
        Ok(())
    }

    /// Called whenever an agent has one session less.
    pub(super) fn dismiss_if_drained(&mut self, now: Now, id: &ClientId) {
        let Some(agent) = self.fleet.get(id.as_str()) else {
            return;
        };
        if !agent.is_draining || !agent.sessions.is_empty() {
            return;
        }
        let listen = agent.listen;
        self.agent_gone(now, id, "the agent was drained");
        if let Some(stream) = listen {
            self.end_stream(
                stream,
                Status::new(Code::Unavailable, "the agent was drained"),
            );
        }
    }

    /// Leaves: offers nothing more, ends what waits, gives running sessions `drain`, then ends every
    /// stream `UNAVAILABLE`, whereupon agents look for the hub again. What a durable hub does not end is
    /// [`Kept`](Verdict::Kept). A hub that leaves already may be told to leave earlier, and no later.
    ///
    /// What is being stored when `drain` is over has 10 s. After that the hub closes, and ends told of jobs whose
    /// records are not answered have a [`store_error`](Outcome::store_error): whether they are stored is not known.
    ///
    /// Spec: UAP hub 5
    // impl: HUB-5-3
    pub fn shutdown(&mut self, now: Now, drain: Duration) {
        if self.phase == Phase::Closed {
            return;
        }
        let end = now.mono.saturating_add(drain);
        self.timers.set_earlier(Timer::Drain, end);
        if self.phase == Phase::Draining {
            return;
        }
        self.phase = Phase::Draining;
        for session in self.sessions.in_stage(|stage| *stage == Stage::Proposed) {
            if let Some(Closed { job, .. }) = self.close_session(now, session, Status::ok()) {
                self.queue.set_stage(job, JobStage::Waiting);
            }
        }
        for job in self.queue.waiting() {
            self.leave_job(now, job);
        }
        self.finish(now);
    }

    /// Ends a job that has no session because the hub leaves.
    pub(super) fn leave_job(&mut self, now: Now, job: JobId) {
        if !self.config.durable {
            return self.end_job(now, job, Outcome::new(Verdict::Cancelled, LEAVING));
        }
        self.clear_job_timers(job);
        if self.queue.remove(job).is_some() {
            let outcome = Outcome::new(Verdict::Kept, LEAVING);
            self.job_event(now, job, JobEvent::Ended(outcome));
        }
    }

    /// The drain time is over: sessions that run are broken off, and the store has no longer than its grace.
    pub(super) fn end_sessions(&mut self, now: Now) {
        for id in self.sessions.in_stage(|_| true) {
            let Some(session) = self.sessions.get(id) else {
                continue;
            };
            let (job, stream) = (session.job, session.stage.stream());
            if !matches!(session.stage, Stage::Over { .. }) {
                self.close_session(now, id, Status::ok());
                self.leave_job(now, job);
            }
            if let Some(stream) = stream {
                self.forget(id);
                self.end_stream(stream, Status::new(Code::Unavailable, LEAVING));
            }
        }
        if self.queue.len() > 0 {
            let end = now.mono.saturating_add(STORE_GRACE);
            self.timers.set_earlier(Timer::Store, end);
        }
    }

    /// The store was given its time: the ends of jobs that it holds up are told without it.
    pub(super) fn end_unstored(&mut self, now: Now) {
        let held = self.queue.iter().filter_map(|(job, entry)| {
            let outcome = match &entry.stage {
                JobStage::Storing => Outcome::new(Verdict::Failed, NOT_STORED),
                JobStage::Ending(outcome) => (**outcome).clone(),
                JobStage::Waiting | JobStage::Session(_) => return None,
            };
            Some((job, outcome))
        });
        for (job, mut outcome) in held.collect::<Vec<_>>() {
            outcome.store_error = Some(UNANSWERED.into());
            self.tell_end(now, job, outcome);
        }
    }

    /// Closes when nothing runs and nothing is being stored, or is given up.
    // impl: HUB-2-6
    pub(super) fn close_if_drained(&mut self) {
        if self.phase != Phase::Draining || !self.sessions.is_empty() || self.queue.len() > 0 {
            return;
        }
        for stream in self.streams.close_all() {
            let status = Status::new(Code::Unavailable, LEAVING);
            self.outputs.push(Output::End { stream, status });
        }
        self.fleet.unlisten_all();
        self.timers = Timers::default();
        self.phase = Phase::Closed;
        self.event(Event::Closed);
    }
}
