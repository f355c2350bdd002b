//! Lost agents and streams, stuck sessions, and what becomes of their jobs.

use ubos_common::time::Now;

use super::{
    Hub, JobEvent, Outcome, Phase, Timer, Verdict,
    execution::Closed,
    queue::Stage as JobStage,
    session::{SessionKey, Stage},
};
use crate::{
    id::{ClientId, JobId},
    state::State,
    status::{Code, Status},
};

impl Hub {
    /// The agent or stream of a session was lost. A session with a terminal state ends in it; otherwise the job waits
    /// for another agent, if it may be started again, or fails.
    // impl: HUB-5-1
    pub(super) fn lose_session(&mut self, now: Now, id: SessionKey, why: String, status: Status) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let job = session.job;
        match &session.stage {
            Stage::Open {
                state: Some(state), ..
            } if state.is_terminal() => self.settle(now, id, String::new()),
            // None of these does anything to a session that is over.
            _ if self.may_start_again(job) => self.requeue(now, id, why, status),
            _ if self.may_be_kept(job) => {
                if self.close_session(now, id, status).is_some() {
                    self.leave_job(now, job);
                }
            }
            _ => {
                let outcome = Outcome::new(Verdict::Failed, why);
                self.end_session(now, id, outcome, status);
            }
        }
    }

    fn may_start_again(&self, job: JobId) -> bool {
        let Some(entry) = self.queue.get(job).filter(|_| !self.phase.is_leaving()) else {
            return false;
        };
        let is_there = |agent: &ClientId| self.fleet.get(agent.as_str()).is_some();
        self.may_be_sent_again(job) && entry.job.agent.as_ref().is_none_or(is_there)
    }

    /// Whether a job that this hub does not start again is left to the next one.
    fn may_be_kept(&self, job: JobId) -> bool {
        self.config.durable && self.phase.is_leaving() && self.may_be_sent_again(job)
    }

    /// How often a job may be started.
    pub(super) fn max_attempts(&self, job: JobId) -> u32 {
        let own = self.queue.get(job).and_then(|entry| entry.job.max_attempts);
        own.unwrap_or(self.config.max_attempts)
    }

    /// Requeues the job of a lost session in its old place; other agents are asked before the same one.
    fn requeue(&mut self, now: Now, id: SessionKey, reason: String, status: Status) {
        let Some(Closed {
            job,
            agent,
            session,
        }) = self.close_session(now, id, status)
        else {
            return;
        };
        let Some(entry) = self.queue.get_mut(job) else {
            return;
        };
        let attempts = entry.attempts;
        entry.reason = Some(reason.clone());
        if self.fleet.get(agent.as_str()).is_some() {
            self.pass_over(job, &agent);
        }
        self.queue.set_stage(job, JobStage::Waiting);
        let event = JobEvent::Requeued {
            session,
            attempts,
            reason,
        };
        self.job_event(now, job, event);
        self.begin_waiting(now, job);
        // Not for the same job at once: its cause may break the next stream as well.
        self.offer_to(now, &agent, false);
    }

    /// The session has sent something.
    pub(super) fn has_spoken(&mut self, now: Now, id: SessionKey) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.has_spoken = true;
        }
        self.watch(now, id);
    }

    /// Restarts the timer of a session that should send something. A paused session is not watched, for its agent may be
    /// sending.
    pub(super) fn watch(&mut self, now: Now, id: SessionKey) {
        let stall = self.config.stall_limit;
        if let Some(session) = self.sessions.get(id)
            && let Stage::Open {
                stream: Some(stream),
                state,
                ..
            } = session.stage
            && !state.is_some_and(State::is_terminal)
            && !self.streams.is_paused(stream)
        {
            let first = self.config.first_message_timeout;
            let limit = match session.has_spoken {
                true => stall,
                false => Some(stall.map_or(first, |stall| stall.min(first))),
            };
            let timer = Timer::Session(id);
            match limit {
                Some(limit) => self.timers.set(timer, now.mono.saturating_add(limit)),
                None => self.timers.clear(&timer),
            }
        }
    }

    /// Takes back [`watch`](Self::watch); a terminal state goes on waiting for its result.
    pub(super) fn unwatch(&mut self, id: SessionKey) {
        if let Some(session) = self.sessions.get(id)
            && let Stage::Open { state, .. } = session.stage
            && !state.is_some_and(State::is_terminal)
        {
            self.timers.clear(&Timer::Session(id));
        }
    }

    /// The session sent nothing for too long: its stream is ended.
    pub(super) fn stalled(&mut self, now: Now, id: SessionKey) {
        let stream = self
            .sessions
            .get(id)
            .and_then(|session| session.stage.stream());
        let why = "the session stood still for too long";
        self.lose_session(now, id, why.to_owned(), Status::ok());
        if let Some(stream) = stream {
            self.forget(id);
            self.end_stream(stream, Status::new(Code::Cancelled, why));
        }
    }

    /// A `Listen` stream broke: the agent may come back for a while, or is gone.
    // impl: HUB-5-4
    pub(super) fn agent_lost(&mut self, now: Now, id: &ClientId, reason: &str) {
        let grace = self.config.resume_grace;
        let sessions = (self.fleet.get(id.as_str())).map(|agent| agent.sessions.len());
        if grace.is_zero() || (self.phase == Phase::Draining && sessions == Some(0)) {
            return self.agent_gone(now, id, reason);
        }
        let Some(agent) = self.fleet.get(id.as_str()) else {
            return;
        };
        let sessions: Vec<_> = agent.sessions.iter().copied().collect();
        self.fleet.unlisten(id);
        self.one_less(now);
        self.timers
            .set(Timer::Unheard(id.clone()), now.mono.saturating_add(grace));
        self.event(super::Event::AgentAway {
            agent: id.clone(),
            reason: crate::status::brief(reason),
        });
        for session in sessions {
            let stage = self.sessions.get(session).map(|found| &found.stage);
            match stage {
                Some(Stage::Proposed) => {
                    if let Some(job) = self.withdraw(now, session, "the agent disconnected") {
                        self.place(now, job);
                    }
                }
                // The agent may have missed the ready: it is sent again when the agent is back.
                Some(Stage::Ready) => self.timers.clear(&Timer::Session(session)),
                _ => {}
            }
        }
    }

    /// The agent has a new control stream: what was said last on the one before may be lost, on either side, so sessions that are
    /// offered or ready are announced again.
    pub(super) fn tell_again(&mut self, now: Now, id: &ClientId) {
        let sessions = self.fleet.get(id.as_str()).map(|agent| &agent.sessions);
        let sessions: Vec<_> = sessions.into_iter().flatten().copied().collect();
        for session in sessions {
            match self.sessions.get(session).map(|found| &found.stage) {
                Some(Stage::Proposed) => self.tell_proposal(now, session),
                Some(Stage::Ready) => self.tell_ready(now, session),
                _ => {}
            }
        }
    }
}
