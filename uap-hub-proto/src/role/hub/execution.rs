//! The execution plane: session streams, what they report, and how sessions end.

use std::num::NonZeroU64;

use prost::Message as _;
use prost_types::Timestamp;
use ubos_common::time::Now;

use super::{
    AuditKind, Hub, Inbound, JobEvent, Opening, Outbound, Outcome, Output, Rpc, Timer, Use,
    Verdict,
    queue::Entry,
    session::{Reports, SessionKey, Stage},
};
use crate::trace::trace;
use crate::{
    capability::Kind,
    id::{ClientId, JobId, SessionId, StreamId},
    message::JobResult,
    role::{Resume, report::Report},
    state::State,
    status::{Code, Status, brief},
    wire::{Payload, TestInit, TranslationInit},
};

impl Hub {
    /// Sends the job as soon as its stream opens: deployed agents send nothing before they receive it.
    // impl: HUB-2-2 HUB-3-5 HUB-4-1
    pub(super) fn open_session(&mut self, now: Now, stream: StreamId, opening: &Opening<'_>) {
        let id = match self.check_key(opening) {
            Ok(id) => id,
            Err(status) => return self.end_stream(stream, status),
        };
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if let (Stage::Open { .. }, Some(resume)) = (&session.stage, opening.resume) {
            return self.reattach(now, stream, id, resume);
        }
        session.stage = Stage::Open {
            stream: Some(stream),
            state: None,
            message: String::new(),
        };
        let resume = opening
            .resume
            .filter(|_| !self.config.resume_grace.is_zero());
        session.reports = resume.map(Reports::new);
        let job = session.job;
        let started = JobEvent::Started {
            session: session.id.clone(),
        };
        trace!(session = %session.id, stream = stream.0, "session opened");
        self.streams.open(stream, Use::Session(id));
        let keep = resume.is_some() || self.may_be_sent_again(job);
        let payloads = self.queue.payloads(job, keep);
        self.job_event(now, job, started);
        self.send_init(stream, id, payloads);
        self.watch(now, id);
    }

    /// Whether the job may be started again.
    pub(super) fn may_be_sent_again(&self, job: JobId) -> bool {
        let attempts = self.queue.get(job).map_or(0, |entry| entry.attempts);
        attempts < self.max_attempts(job)
    }

    /// Sends the job, and with it what the hub has of the reports. Its place in a trace goes before it.
    pub(super) fn send_init(&mut self, stream: StreamId, id: SessionKey, payloads: Vec<Payload>) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let entry = self.queue.get(session.job);
        if let Some(trace) = entry.and_then(|entry| entry.job.trace.clone()) {
            self.outputs.push(Output::Trace { stream, trace });
        }
        let name = session.skill.name().to_owned();
        let acknowledged = session.reports.as_mut().map(Reports::acknowledge);
        let message = init(session.skill.kind(), name, payloads, acknowledged);
        self.send(stream, message);
    }

    fn check_key(&mut self, opening: &Opening<'_>) -> Result<SessionKey, Status> {
        let Opening {
            rpc,
            key,
            identity,
            resume,
        } = *opening;
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return Err(Status::new(
                Code::InvalidArgument,
                "x-session-id is missing",
            ));
        };
        let refused = |why: &str| Err(Status::new(Code::FailedPrecondition, why));
        let unknown = || Err(Status::new(Code::NotFound, "no session has that id"));
        let Some(owner) = self.sessions.owner(key) else {
            return unknown();
        };
        if !self.is_of(&owner, identity, Some(key)) {
            return unknown();
        }
        let id = self.sessions.find(key);
        let Some((id, session)) = id.and_then(|id| Some((id, self.sessions.get(id)?))) else {
            return refused("the session has ended");
        };
        match (session.skill.kind(), rpc) {
            (Kind::Test, Rpc::Execute) | (Kind::Translation, Rpc::Translate) => {}
            _ => return refused("the session is of the other kind"),
        }
        match &session.stage {
            Stage::Ready => Ok(id),
            Stage::Proposed | Stage::Preparing => refused("the session is not ready"),
            Stage::Open { .. } => match (resume, session.reports) {
                (Some(resume), Some(reports)) if resume.opening() <= reports.opening => {
                    refused("the session has a newer stream")
                }
                (Some(Resume::Job(_)), Some(reports)) if reports.has_job() => {
                    refused("the session has its job")
                }
                (Some(_), Some(_)) => Ok(id),
                _ => refused("the session has a stream"),
            },
            Stage::Over { .. } => refused("the session has ended"),
        }
    }

    pub(super) fn message(&mut self, now: Now, stream: StreamId, message: Inbound) {
        let number = numbered(&message);
        let report = match (self.streams.purpose(stream).cloned(), message) {
            (None, _) => return,
            (Some(Use::Listen(agent)), Inbound::Listen(message)) => {
                return self.listen_message(now, agent, message);
            }
            (Some(Use::Session(id)), Inbound::Test(message)) => (id, Report::of_test(message)),
            (Some(Use::Session(id)), Inbound::Translation(message)) => {
                (id, Report::of_translation(message))
            }
            (Some(Use::Session(id)), Inbound::Listen(_)) => {
                return self.audit_session(AuditKind::WrongMessage, id);
            }
            (Some(Use::Listen(agent)), _) => {
                return self.audit(AuditKind::WrongMessage, Some(agent), None);
            }
        };
        let (id, (at, Some(report))) = report else {
            return;
        };
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        if session.skill.kind() != report.kind() {
            return self.audit_session(AuditKind::WrongMessage, id);
        }
        let Stage::Open { state, .. } = &session.stage else {
            let kind = match report {
                Report::Status { .. } => AuditKind::LateStatus,
                Report::Telemetry(..) => AuditKind::LateTelemetry,
                Report::Result(_) => AuditKind::SecondResult,
            };
            return self.audit_session(kind, id);
        };
        let state = *state;
        if self.is_new(stream, id, number) {
            self.has_spoken(now, id);
            self.report(now, id, state, report, at);
        }
    }

    /// Takes a report of an open session in `state`.
    fn report(
        &mut self,
        now: Now,
        id: SessionKey,
        state: Option<State>,
        report: Report,
        at: Option<Timestamp>,
    ) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let job = session.job;
        match report {
            Report::Status {
                kind,
                state: number,
                message,
            } => {
                let next = State::from_wire(kind, number);
                match check_status(state, next) {
                    Ok(next) => self.status(now, id, next, message, at),
                    Err(fault) => self.audit_session(fault, id),
                }
            }
            Report::Telemetry(_, _) if state.is_some_and(State::is_terminal) => {
                self.audit_session(AuditKind::LateTelemetry, id);
            }
            Report::Telemetry(_, telemetry) => {
                self.job_event(now, job, JobEvent::Telemetry { telemetry, at });
            }
            Report::Result(result) => self.result(now, id, result),
        }
    }

    // impl: HUB-4-2 HUB-4-3
    fn status(
        &mut self,
        now: Now,
        id: SessionKey,
        next: State,
        words: String,
        at: Option<Timestamp>,
    ) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let job = session.job;
        if let Stage::Open { state, message, .. } = &mut session.stage {
            *state = Some(next);
            if next.is_terminal() {
                message.clone_from(&words);
                self.timers.set(
                    Timer::Session(id),
                    now.mono.saturating_add(self.config.linger),
                );
            }
        }
        self.job_event(
            now,
            job,
            JobEvent::Status {
                state: next,
                message: words,
                at,
            },
        );
    }

    /// The result ends the session, in the first terminal state.
    // impl: HUB-4-3 HUB-4-7
    fn result(&mut self, now: Now, id: SessionKey, result: JobResult) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let said = result.state();
        let mut outcome = match &session.stage {
            Stage::Open {
                state: Some(state),
                message,
                ..
            } if state.is_terminal() => {
                let words = if message.is_empty() {
                    result.message()
                } else {
                    message
                };
                Outcome::new(Verdict::of(*state), brief(words))
            }
            _ => match said.filter(|state| state.is_terminal()) {
                // The result has all of them: twice they may be more than a store takes.
                Some(state) => Outcome::new(Verdict::of(state), brief(result.message())),
                None => Outcome::new(Verdict::Failed, "result without a terminal status"),
            },
        };
        outcome.result = Some(result);
        if said.is_none() {
            self.audit_session(AuditKind::UnknownState, id);
        }
        self.end_session(now, id, outcome, Status::ok());
    }

    /// The agent closed its half of a stream.
    // impl: HUB-4-7
    pub(super) fn half_closed(&mut self, now: Now, stream: StreamId) {
        match self.streams.purpose(stream).cloned() {
            None => return,
            Some(Use::Listen(agent)) => self.agent_gone(now, &agent, "the agent closed Listen"),
            Some(Use::Session(id)) => {
                self.settle(now, id, "stream closed without result".to_owned());
                self.forget(id);
            }
        }
        self.end_stream(stream, Status::ok());
    }

    /// A stream broke, alone or because its connection was lost: then the agent is gone, whichever of its streams is seen
    /// to end first.
    // impl: HUB-4-7 HUB-4-8 HUB-5-1
    pub(super) fn stream_broken(
        &mut self,
        now: Now,
        stream: StreamId,
        reason: &str,
        is_lost: bool,
    ) {
        match self.streams.purpose(stream).cloned() {
            None => return,
            Some(Use::Listen(agent)) => {
                self.agent_lost(now, &agent, &format!("Listen broke: {reason}"));
            }
            Some(Use::Session(id)) if is_lost && self.detach(now, id, reason) => {}
            Some(Use::Session(id)) => {
                let why = match is_lost {
                    true => "Agent disconnected".to_owned(),
                    false => format!("Stream error: {}", brief(reason)),
                };
                self.lose_session(now, id, why, Status::ok());
                self.forget(id);
            }
        }
        self.streams.close(stream);
    }

    // impl: HUB-3-5
    pub(super) fn session_timeout(&mut self, now: Now, id: SessionKey) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        match session.stage.clone() {
            Stage::Proposed => self.decline(now, id, "the agent did not answer in time"),
            Stage::Preparing => {}
            Stage::Ready => {
                let why = "the agent did not open the stream in time";
                self.lose_session(now, id, why.to_owned(), Status::ok());
            }
            Stage::Open {
                state: Some(state), ..
            } if state.is_terminal() => self.settle(now, id, String::new()),
            Stage::Open { stream: None, .. } => {
                self.lose_session(now, id, "Agent disconnected".to_owned(), Status::ok());
            }
            Stage::Open { .. } => self.stalled(now, id),
            Stage::Over { stream, status } => {
                self.forget(id);
                self.end_stream(stream, status);
            }
        }
    }

    /// Ends an open session without a result: in its terminal state, or as a failure `otherwise`.
    pub(super) fn settle(&mut self, now: Now, id: SessionKey, otherwise: String) {
        let outcome = match self.sessions.get(id).map(|session| &session.stage) {
            Some(Stage::Open {
                state: Some(state),
                message,
                ..
            }) if state.is_terminal() => Outcome::new(Verdict::of(*state), message.as_str()),
            Some(Stage::Open { .. }) => Outcome::new(Verdict::Failed, otherwise),
            _ => return,
        };
        self.end_session(now, id, outcome, Status::ok());
    }

    /// Ends a session and its job, once. An open stream stays a while to be closed by the agent, then
    /// ends with `status`.
    pub(super) fn end_session(
        &mut self,
        now: Now,
        id: SessionKey,
        mut outcome: Outcome,
        status: Status,
    ) {
        let stage = self.sessions.get(id).map(|found| &found.stage);
        let ran = stage.is_some_and(|stage| *stage != Stage::Proposed);
        let Some(Closed { job, agent, .. }) = self.close_session(now, id, status) else {
            return;
        };
        if ran {
            outcome.agent = Some(agent.clone());
        }
        self.end_job(now, job, outcome);
        self.offer_to(now, &agent, ran);
        self.dismiss_if_drained(now, &agent);
    }

    /// Detaches a session from its agent and returns its job, which needs a next stage; `None` if it is over.
    pub(super) fn close_session(
        &mut self,
        now: Now,
        id: SessionKey,
        status: Status,
    ) -> Option<Closed> {
        let session = self.sessions.get_mut(id)?;
        trace!(session = %session.id, code = ?status.code, "session closed");
        let closed = Closed {
            job: session.job,
            agent: session.agent.clone(),
            session: session.id.clone(),
        };
        match session.stage.stream() {
            _ if matches!(session.stage, Stage::Over { .. }) => return None,
            Some(stream) => {
                session.stage = Stage::Over { stream, status };
                self.timers.set(
                    Timer::Session(id),
                    now.mono.saturating_add(self.config.linger),
                );
                self.go_on_reading(now, id, stream);
            }
            None => self.forget(id),
        }
        self.fleet.remove_session(now.mono, &closed.agent, id);
        Some(closed)
    }

    /// Ends a job wherever it is, and tells its agent at once.
    pub(super) fn stop_job(&mut self, now: Now, job: JobId, outcome: Outcome, why: &str) {
        let session = self.queue.get(job).and_then(Entry::session);
        let Some(id) = session else {
            return self.end_job(now, job, outcome);
        };
        let status = Status::new(Code::Cancelled, why);
        self.abort_session(now, id, outcome, status);
    }

    /// Ends a session, if it has not ended, and its stream at once.
    pub(super) fn abort_session(
        &mut self,
        now: Now,
        id: SessionKey,
        outcome: Outcome,
        status: Status,
    ) {
        let stream = self
            .sessions
            .get(id)
            .and_then(|session| session.stage.stream());
        self.end_session(now, id, outcome, Status::ok());
        if let Some(stream) = stream {
            self.forget(id);
            self.end_stream(stream, status);
        }
    }

    pub(super) fn forget(&mut self, id: SessionKey) {
        self.timers.clear(&Timer::Session(id));
        self.sessions.forget(id, self.config.max_remembered);
    }
}

/// A session that has ended, and the job that it leaves.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) job: JobId,
    pub(super) agent: ClientId,
    pub(super) session: SessionId,
}

/// The number of a report and its bytes; `None` where it has no number.
fn numbered(message: &Inbound) -> Option<(NonZeroU64, usize)> {
    match message {
        Inbound::Test(message) => Some((NonZeroU64::new(message.number)?, message.encoded_len())),
        Inbound::Translation(message) => {
            Some((NonZeroU64::new(message.number)?, message.encoded_len()))
        }
        Inbound::Listen(_) => None,
    }
}

/// The message that begins a session, or acknowledges.
// impl: HUB-4-9
pub(super) fn init(
    kind: Kind,
    name: String,
    payloads: Vec<Payload>,
    acknowledged: Option<u64>,
) -> Outbound {
    match kind {
        Kind::Translation => Outbound::Translation(TranslationInit {
            target_format: name,
            payloads,
            acknowledged,
        }),
        Kind::Test => Outbound::Test(TestInit {
            test_type: name,
            payloads,
            acknowledged,
        }),
    }
}

/// Whether a session in `state` may report `next`.
fn check_status(state: Option<State>, next: Option<State>) -> Result<State, AuditKind> {
    let next = next.ok_or(AuditKind::UnknownState)?;
    match state {
        Some(state) if state.is_terminal() => Err(AuditKind::LateStatus),
        Some(state) if !state.may_become(next) => Err(AuditKind::Backward),
        _ => Ok(next),
    }
}
