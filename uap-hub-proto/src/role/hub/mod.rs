//! The hub: registers agents, offers them jobs, follows their sessions.

mod config;
mod control;
mod event;
mod execution;
mod fleet;
mod placement;
mod queue;
mod session;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use prost::Message as _;
use ubos_common::{
    machine::{Machine, Outbox},
    time::{Mono, Now},
};

pub use self::{
    config::Config,
    event::{
        Audit, AuditKind, CommandError, Event, Inbound, Input, InputError, Job, JobEvent, Outbound,
        Outcome, Output, RegisterError, Verdict,
    },
};
use self::{
    fleet::Fleet,
    queue::Queue,
    session::{Sessions, Stage},
};
use super::{Rpc, timers::Timers};
use crate::{
    capability::{Skill, skills},
    id::{ClientId, JobId, SessionId, StreamId},
    status::{Code, Status},
    wire::{AgentRegistration, AgentRegistrationResponse, Payload},
};

/// Outputs that wait before the driver stops reading.
const MAX_OUTPUTS: usize = 4096;

/// The hub's side of the protocol, without IO: streams and commands in, messages, ends and news out.
///
/// After every call that takes `&mut self` the driver takes all outputs
/// ([`poll_output`](Self::poll_output)) and then reads [`poll_timeout`](Self::poll_timeout).
///
/// A job goes this way; each offer is a session of its own:
///
/// ```text
///           offer            accepted             (prepared)        stream opened
/// waiting ---------> Proposed ---------> Preparing ---------> Ready --------------> Open ----> Over
///    ^                  |                                       |                    |   end    |
///    +------------------+ refused, no answer, agent gone        +---- no stream -----+          +-> forgotten
/// ```
///
/// ```
/// use std::time::Duration;
/// use ubos_common::time::{Mono, Now, Timestamp};
/// use uap_hub_proto::{capability::Skill, id::StreamId, role::{Rpc, hub::*}, wire::AgentRegistration};
///
/// let mut hub = Hub::new(Config::default());
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let capabilities = vec![Skill::test("sum").into()];
/// let agent = hub.register(now, AgentRegistration { display_name: "a".into(), capabilities })?.client_id;
/// hub.submit(now, Job::test("sum", vec![]))?;
/// assert!(hub.poll_output().is_none()); // nobody listens yet
/// hub.handle_input(now, Input::Opened { stream: StreamId(1), rpc: Rpc::Listen, key: Some(&agent) })?;
/// while let Some(output) = hub.poll_output() {
///     println!("{output:?}"); // the agent is available, the job is offered, the proposal is to be sent
/// }
/// assert_eq!(hub.poll_timeout(), Some(Mono::ZERO.saturating_add(Duration::from_secs(30))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: UAP hub 2 to 5
#[derive(Debug)]
pub struct Hub {
    config: Config,
    phase: Phase,
    fleet: Fleet,
    queue: Queue,
    sessions: Sessions,
    streams: BTreeMap<StreamId, Use>,
    timers: Timers<Timer>,
    outputs: Outbox<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
    Closed,
}

/// What an open stream is for.
#[derive(Clone, Debug)]
enum Use {
    Listen(ClientId),
    Session(SessionId),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The agent should have opened `Listen`.
    Unheard(ClientId),
    /// The job has waited long enough.
    Wait(JobId),
    /// The job that all refused is offered again.
    Retry(JobId),
    /// The session should have gone on; what that means depends on its stage.
    Session(SessionId),
    /// The active sessions have had their time.
    Drain,
}

/// An agent, as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentInfo {
    /// Its name towards the hub.
    pub client_id: ClientId,
    /// Its name towards people.
    pub name: String,
    /// What it can do.
    pub skills: Vec<Skill>,
    /// Whether its control stream is open.
    pub is_available: bool,
    /// Its proposals and sessions that have not ended.
    pub load: usize,
}

impl Hub {
    /// A hub without agents and jobs.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::Open,
            fleet: Fleet::default(),
            queue: Queue::default(),
            sessions: Sessions::default(),
            streams: BTreeMap::new(),
            timers: Timers::new(),
            outputs: Outbox::new(MAX_OUTPUTS),
        }
    }

    /// Answers the `Register` call. Each registration is a new agent, also under an equal name.
    ///
    /// # Errors
    ///
    /// A wrong capability, as many agents as may be, or a hub that is leaving; see [`RegisterError::status`].
    ///
    /// Spec: UAP hub 2
    pub fn register(
        &mut self,
        now: Now,
        registration: AgentRegistration,
    ) -> Result<AgentRegistrationResponse, RegisterError> {
        if self.phase != Phase::Open {
            return Err(RegisterError::ShuttingDown);
        }
        let most = self.config.max_agents;
        if self.fleet.len() >= most {
            return Err(RegisterError::Full { most });
        }
        let name = registration.display_name.clone();
        let skills = skills(registration)?;
        let client_id = self.config.ids.uuid().to_string();
        let id = ClientId::from(client_id.as_str());
        self.timers.set(
            Timer::Unheard(id.clone()),
            now.mono.saturating_add(self.config.listen_timeout),
        );
        self.fleet.register(now.mono, id, name, skills);
        Ok(AgentRegistrationResponse { client_id })
    }

    /// Takes a job and offers it, now or when an agent can take it.
    ///
    /// # Errors
    ///
    /// A bound is reached, the type is empty, the agent it is pinned to is unknown or not capable, or the
    /// hub is leaving.
    ///
    /// Spec: UAP hub 3
    pub fn submit(&mut self, now: Now, job: Job) -> Result<JobId, CommandError> {
        let bytes = self.check(&job)?;
        let id = self.config.ids.next_id::<JobId>();
        let limit = job.wait_limit.unwrap_or(self.config.wait_limit);
        self.timers
            .set(Timer::Wait(id), now.mono.saturating_add(limit));
        self.queue
            .add(id, job.skill, job.payloads, bytes, job.agent);
        self.place(now, id);
        Ok(id)
    }

    /// Ends a job: one that waits leaves the queue, one that runs has its stream ended `CANCELLED`, which
    /// is the only way to tell the agent.
    ///
    /// # Errors
    ///
    /// No such job waits or runs.
    pub fn cancel(&mut self, now: Now, job: JobId) -> Result<(), CommandError> {
        let entry = self.queue.get(job).ok_or(CommandError::UnknownJob)?;
        let outcome = Outcome::new(Verdict::Cancelled, "cancelled by the caller");
        match entry.session.clone() {
            None => self.end_job(job, outcome),
            Some(session) => self.abort_session(
                now,
                &session,
                outcome,
                Status::new(Code::Cancelled, "cancelled"),
            ),
        }
        self.close_if_drained();
        Ok(())
    }

    /// Answers [`Output::Prepare`]: the session is made ready, or fails with a reason.
    ///
    /// # Errors
    ///
    /// The session does not wait for this; it may have ended meanwhile.
    ///
    /// Spec: UAP hub 3
    pub fn prepared(
        &mut self,
        now: Now,
        session: &SessionId,
        done: Result<(), String>,
    ) -> Result<(), CommandError> {
        let found = self
            .sessions
            .get(session.as_str())
            .ok_or(CommandError::NotPreparing)?;
        if found.stage != Stage::Preparing {
            return Err(CommandError::NotPreparing);
        }
        match done {
            Ok(()) => self.ready(now, session),
            Err(reason) => {
                let outcome =
                    Outcome::new(Verdict::Failed, format!("preparation failed: {reason}"));
                self.end_session(now, session, outcome, Status::ok());
                self.close_if_drained();
            }
        }
        Ok(())
    }

    /// Leaves: offers nothing more, ends what waits, gives running sessions `drain`, then ends every
    /// stream `UNAVAILABLE`, whereupon agents look for the hub again.
    ///
    /// Spec: UAP hub 5
    pub fn shutdown(&mut self, now: Now, drain: Duration) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Draining;
        self.timers
            .set(Timer::Drain, now.mono.saturating_add(drain));
        let leaving = || Outcome::new(Verdict::Cancelled, "the hub is shutting down");
        for session in self.sessions.in_stage(|stage| *stage == Stage::Proposed) {
            self.end_session(now, &session, leaving(), Status::ok());
        }
        for job in self.queue.waiting() {
            self.end_job(job, leaving());
        }
        self.close_if_drained();
    }

    /// Takes what happened on a stream. Inputs of streams that have ended are ignored.
    ///
    /// # Errors
    ///
    /// Faults of the driver alone: a stream name used twice, or a hub that is shut down.
    pub fn handle_input(&mut self, now: Now, input: Input<'_>) -> Result<(), InputError> {
        if self.phase == Phase::Closed {
            return Err(InputError::Closed);
        }
        match input {
            Input::Opened { stream, .. } if self.streams.contains_key(&stream) => {
                return Err(InputError::StreamInUse);
            }
            Input::Opened {
                stream,
                rpc: Rpc::Listen,
                key,
            } => self.open_listen(now, stream, key),
            Input::Opened { stream, rpc, key } => self.open_session(stream, rpc, key),
            Input::Message { stream, message } => self.message(now, stream, message),
            Input::HalfClosed { stream } => self.stream_done(now, stream, None),
            Input::Reset { stream, reason } => self.stream_done(now, stream, Some(&reason)),
        }
        self.close_if_drained();
        Ok(())
    }

    /// Does what is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(timer) = self.timers.pop_due(now.mono) {
            match timer {
                Timer::Unheard(agent) => {
                    self.agent_gone(now, &agent, "the agent did not open Listen in time")
                }
                Timer::Wait(job) => self.waited_long_enough(now, job),
                Timer::Retry(job) => self.offer_again(now, job),
                Timer::Session(session) => self.session_timeout(now, &session),
                Timer::Drain => self.end_all(now),
            }
        }
        self.close_if_drained();
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.timers.next()
    }

    /// Whether the driver may go on reading; false while more than 4,096 outputs wait.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        self.phase != Phase::Closed && !self.outputs.is_full()
    }

    /// Whether the hub is shut down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// The registered agents, ordered by client id.
    pub fn agents(&self) -> impl Iterator<Item = AgentInfo> {
        self.fleet.iter().map(|(id, agent)| AgentInfo {
            client_id: id.clone(),
            name: agent.name.clone(),
            skills: agent.skills.keys().cloned().collect(),
            is_available: agent.listen.is_some(),
            load: agent.sessions.len(),
        })
    }

    /// Agents that may be offered jobs.
    #[must_use]
    pub fn available_count(&self) -> usize {
        self.fleet.listening()
    }

    /// The job whose session runs on a stream, so that a driver knows whose reader to wait for.
    #[must_use]
    pub fn job_of(&self, stream: StreamId) -> Option<JobId> {
        match self.streams.get(&stream)? {
            Use::Listen(_) => None,
            Use::Session(session) => Some(self.sessions.get(session.as_str())?.job),
        }
    }

    /// Jobs that wait or run.
    #[must_use]
    pub fn job_count(&self) -> usize {
        self.queue.len()
    }

    fn check(&self, job: &Job) -> Result<usize, CommandError> {
        if self.phase != Phase::Open {
            return Err(CommandError::ShuttingDown);
        }
        if job.skill.name().is_empty() {
            return Err(CommandError::EmptyType);
        }
        if let Some(agent) = &job.agent {
            let agent = self
                .fleet
                .get(agent.as_str())
                .ok_or(CommandError::UnknownAgent)?;
            if !agent.has_skill(&job.skill, &job.payloads) {
                return Err(CommandError::IncapableAgent);
            }
        }
        if self.queue.len() >= self.config.max_jobs {
            return Err(CommandError::TooManyJobs {
                most: self.config.max_jobs,
            });
        }
        let bytes = init_bytes(job.skill.name(), &job.payloads);
        if bytes > self.config.max_message_bytes {
            return Err(CommandError::TooLarge {
                seen: bytes,
                most: self.config.max_message_bytes,
            });
        }
        let seen = self.queue.bytes() + bytes;
        if seen > self.config.max_queued_bytes {
            return Err(CommandError::QueueFull {
                seen,
                most: self.config.max_queued_bytes,
            });
        }
        Ok(bytes)
    }

    /// Ends every stream, and with them the sessions that did not end in the drain time.
    fn end_all(&mut self, now: Now) {
        let gone = || Status::new(Code::Unavailable, "the hub is shutting down");
        for session in self.sessions.in_stage(|_| true) {
            let outcome = Outcome::new(Verdict::Cancelled, "the hub is shutting down");
            self.abort_session(now, &session, outcome, gone());
        }
        for (stream, _) in std::mem::take(&mut self.streams) {
            self.outputs.push(Output::End {
                stream,
                status: gone(),
            });
        }
        self.timers = Timers::new();
        self.phase = Phase::Closed;
        self.event(Event::Closed);
    }

    fn close_if_drained(&mut self) {
        if self.phase == Phase::Draining && self.sessions.is_empty() {
            // Without sessions `end_all` looks at no time.
            self.end_all(Now::new(Mono::ZERO, ubos_common::time::Timestamp::EPOCH));
        }
    }

    fn send(&mut self, stream: StreamId, message: Outbound) {
        self.outputs.push(Output::Send { stream, message });
    }

    fn end_stream(&mut self, stream: StreamId, status: Status) {
        self.streams.remove(&stream);
        self.outputs.push(Output::End { stream, status });
    }

    fn event(&mut self, event: Event) {
        self.outputs.push(Output::Event(event));
    }

    fn job_event(&mut self, job: JobId, event: JobEvent) {
        self.event(Event::Job { job, event });
    }

    fn audit(&mut self, kind: AuditKind, agent: Option<ClientId>, session: Option<SessionId>) {
        self.event(Event::Audit(Audit {
            kind,
            agent,
            session,
        }));
    }
}

impl Machine for Hub {
    type Input<'a> = Input<'a>;
    type Output = Output;
    type Error = InputError;

    fn handle_input(&mut self, now: Now, input: Input<'_>) -> Result<(), InputError> {
        Self::handle_input(self, now, input)
    }

    fn handle_timeout(&mut self, now: Now) {
        Self::handle_timeout(self, now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        Self::poll_output(self)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Self::poll_timeout(self)
    }

    fn accepts_input(&self) -> bool {
        Self::accepts_input(self)
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }
}

impl Outcome {
    /// An outcome without result and agent.
    pub(crate) fn new(verdict: Verdict, message: impl Into<String>) -> Self {
        Self {
            verdict,
            message: message.into(),
            result: None,
            agent: None,
        }
    }
}

/// Bytes of the init message: two length-delimited fields with tags below 16.
fn init_bytes(name: &str, payloads: &[Payload]) -> usize {
    let field = |len: usize| 1 + prost::length_delimiter_len(len) + len;
    payloads
        .iter()
        .map(|payload| field(payload.encoded_len()))
        .fold(field(name.len()), usize::saturating_add)
}
