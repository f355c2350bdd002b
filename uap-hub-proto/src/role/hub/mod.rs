//! The hub: registers agents, offers them jobs, follows their sessions.
//!
#![doc = include_str!("TRANSITIONS.md")]

mod affinity;
mod config;
mod control;
mod durable;
mod error;
mod event;
mod execution;
mod fleet;
mod flow;
mod job;
mod leave;
mod loss;
mod placement;
mod policy;
mod queue;
mod quota;
mod ranking;
mod ranks;
mod resume;
mod session;
mod shapes;
mod streams;
// Thousands of agents and states are too many for an interpreter.
#[cfg(not(miri))]
#[cfg(test)]
mod tests;
mod view;
mod weight;

use std::{collections::VecDeque, net::IpAddr};

use prost::Message as _;
use ubos_common::{
    id::IdSource,
    machine::{Outbox, Timers},
    time::{Mono, Now},
};

#[cfg(feature = "server")]
pub(crate) use self::quota::network;
pub use self::{
    config::Config,
    error::{CommandError, InputError, RegisterError},
    event::{Audit, AuditKind, Event, Input, JobEvent, Output, Record},
    job::{Job, Outcome, Verdict},
    policy::{Candidate, Placement, Spread},
    view::{AgentInfo, Counts, JobInfo, JobStage, Phase, View},
};
use self::{
    fleet::{Fleet, Registered},
    queue::Queue,
    quota::Peer,
    session::{SessionKey, Sessions, Stage},
    streams::{Streams, Use},
};
pub use super::{AgentMessage as Inbound, HubMessage as Outbound};
use super::{Resume, Rpc, machine::impl_machine};
use crate::{
    ConfigError,
    capability::{Registration, Shape},
    hash::OwnIds,
    id::{ClientId, Identity, JobId, SessionId},
    status::Status,
    trace::{debug, trace},
    wire::{AgentRegistration, AgentRegistrationResponse, Payload},
};

/// Outputs that wait before the driver stops reading.
const MAX_OUTPUTS: usize = 4096;
/// Bytes of a job's group.
const MAX_GROUP_BYTES: usize = 1024;

/// The hub's side of the protocol, without IO: streams and commands in, messages and events out.
///
/// After every call with `&mut self`, the driver takes all outputs
/// ([`poll_output`](Self::poll_output)) and then reads [`poll_timeout`](Self::poll_timeout).
///
/// The stages of a job; each offer is a session of its own:
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
/// use uap_hub_proto::ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
/// use uap_hub_proto::{capability::Skill, id::StreamId, role::{Rpc, hub::*}, wire::AgentRegistration};
///
/// let mut hub = Hub::new(Config::default(), IdSource::seeded(1))?;
/// let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
/// let capabilities = vec![Skill::test("sum").into()];
/// let agent = hub.register(now, AgentRegistration { display_name: "a".into(), capabilities })?.client_id;
/// hub.submit(now, Job::test("sum", vec![]))?;
/// assert!(matches!(hub.poll_output(), Some(Output::Event(Event::AgentRegistered { .. }))));
/// assert!(hub.poll_output().is_none()); // nobody listens yet
/// hub.handle_input(now, Input::Opened { stream: StreamId(1), rpc: Rpc::Listen, key: Some(&agent), resume: None, identity: None })?;
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
    ids: IdSource,
    phase: Phase,
    fleet: Fleet,
    queue: Queue,
    sessions: Sessions,
    streams: Streams,
    timers: Timers<Timer, OwnIds>,
    outputs: Outbox<Output>,
    /// Refused jobs that are to be searched because agents left.
    searched: VecDeque<JobId>,
    /// Whether agents left since that began.
    search_again: bool,
}

/// How the stream of a session is opened.
#[derive(Debug)]
struct Opening<'a> {
    rpc: Rpc,
    key: Option<&'a str>,
    identity: Option<&'a Identity>,
    resume: Option<Resume>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// The agent should have opened `Listen`.
    Unheard(ClientId),
    /// The job has waited long enough.
    Wait(JobId),
    /// The job should have ended.
    Limit(JobId),
    /// The agent that refused may have one session more. Before `Retry`, so that it can be asked by then.
    Cool(ClientId),
    /// Agents went away: refused jobs may have no other candidate left.
    Fewer,
    /// The job that all refused is offered again.
    Retry(JobId),
    /// The timeout of a session; its meaning depends on the stage.
    Session(SessionKey),
    /// The time for draining is over.
    Drain,
    /// So is that of the store after it.
    Store,
}

impl Timer {
    #[cfg(feature = "tracing")]
    const fn name(&self) -> &'static str {
        match self {
            Self::Unheard(_) => "unheard",
            Self::Wait(_) => "wait",
            Self::Limit(_) => "limit",
            Self::Cool(_) => "cool",
            Self::Fewer => "fewer",
            Self::Retry(_) => "retry",
            Self::Session(_) => "session",
            Self::Drain => "drain",
            Self::Store => "store",
        }
    }
}

impl Hub {
    /// A hub without agents and jobs.
    ///
    /// `ids` makes client ids, session ids and job ids. Whoever knows a client id can listen in its place: outside of
    /// tests use [`IdSource::from_os`].
    ///
    /// # Errors
    ///
    /// The configuration cannot work.
    pub fn new(config: Config, ids: IdSource) -> Result<Self, ConfigError> {
        config.check()?;
        let placement = config.placement.clone();
        Ok(Self {
            phase: Phase::Open,
            fleet: Fleet::new(placement, config.max_sessions_per_agent),
            queue: Queue::default(),
            sessions: Sessions::new(),
            streams: Streams::default(),
            timers: Timers::default(),
            outputs: Outbox::new(MAX_OUTPUTS),
            searched: VecDeque::new(),
            search_again: false,
            config,
            ids,
        })
    }

    /// Answers the `Register` call. Each registration is a new agent, also with an equal name.
    ///
    /// # Errors
    ///
    /// A capability is wrong, too many agents are registered, or the hub is shutting down; see [`RegisterError::status`].
    ///
    /// Spec: UAP hub 2
    pub fn register(
        &mut self,
        now: Now,
        registration: AgentRegistration,
    ) -> Result<AgentRegistrationResponse, RegisterError> {
        self.register_as(now, None, None, registration.try_into()?)
    }

    /// As [`register`](Self::register), for a caller of whom the driver knows more. The client id and the sessions of an agent
    /// with an identity are of use to calls of the same identity only: to others they are unknown, and the attempt is
    /// audited. The agent counts for the quota of its identity or, where it has none, of its address, of which an IPv6 one
    /// stands for its network of 64 bits.
    ///
    /// What takes long, reading the registration, is done before: drivers need no lock for it.
    ///
    /// # Errors
    ///
    /// As of [`register`](Self::register).
    // impl: HUB-2-1
    pub fn register_as(
        &mut self,
        now: Now,
        identity: Option<Identity>,
        address: Option<IpAddr>,
        registration: Registration,
    ) -> Result<AgentRegistrationResponse, RegisterError> {
        if self.phase.is_leaving() {
            return Err(RegisterError::ShuttingDown);
        }
        let peer = Peer::of(identity.as_ref(), address);
        let Registration {
            name,
            skills,
            bytes,
        } = registration;
        while let Some(next) = self.in_the_way(peer.as_ref(), bytes)?.cloned() {
            let reason = "the agent had not opened Listen when too many registered";
            self.agent_gone(now, &next, reason);
        }
        let client_id = self.ids.uuid().to_string();
        let id = ClientId::from(client_id.as_str());
        self.timers.set(
            Timer::Unheard(id.clone()),
            now.mono.saturating_add(self.config.listen_timeout),
        );
        self.event(Event::AgentRegistered {
            agent: id.clone(),
            name: name.clone(),
        });
        debug!(
            agents = self.fleet.len() + 1,
            skills = skills.len(),
            "agent registered"
        );
        let registered = Registered {
            name,
            skills,
            identity,
            peer,
            bytes,
        };
        self.fleet.register(now.mono, id, registered);
        Ok(AgentRegistrationResponse { client_id })
    }

    /// Whoever registers and does not listen must not keep the others out: the agent that goes before one of a peer and of so many
    /// bytes registers. The oldest goes first, those of the peer before all others. An error if it would not help.
    // impl: HUB-2-4
    fn in_the_way(
        &self,
        peer: Option<&Peer>,
        bytes: usize,
    ) -> Result<Option<&ClientId>, RegisterError> {
        let (fleet, config) = (&self.fleet, &self.config);
        let most_of_peer = config.max_registered_bytes_per_peer;
        if let Some(peer) = peer
            && fleet.listening_bytes_of(peer).saturating_add(bytes) > most_of_peer
        {
            return Err(RegisterError::PeerFullOfBytes { most: most_of_peer });
        }
        let most = config.max_registered_bytes;
        if fleet.listening_bytes().saturating_add(bytes) > most {
            return Err(RegisterError::FullOfBytes { most });
        }
        if let Some(peer) = peer {
            let most = config.max_agents_per_peer;
            let is_full = fleet.of_peer(peer) >= most;
            let pending = if is_full {
                1
            } else {
                config.max_pending_agents_per_peer
            };
            let left = most_of_peer - bytes;
            match fleet.oldest_pending_of(peer, pending, left) {
                None if is_full => return Err(RegisterError::PeerFull { most }),
                None => {}
                own => return Ok(own),
            }
        }
        let most = config.max_agents;
        let is_full = fleet.len() >= most;
        let pending = if is_full {
            1
        } else {
            config.max_pending_agents
        };
        let quarter = (config.max_registered_bytes / 4).saturating_sub(bytes);
        let left = (config.max_registered_bytes - bytes).saturating_sub(fleet.listening_bytes());
        match fleet.oldest_pending(pending, quarter.min(left)) {
            None if is_full => Err(RegisterError::Full { most }),
            oldest => Ok(oldest),
        }
    }

    /// Accepts a job and offers it, now or when an agent can take it. A durable hub stores it first.
    ///
    /// # Errors
    ///
    /// A limit is reached, the type is empty, the agent of the job is unknown or not capable, or the
    /// hub is leaving.
    ///
    /// Spec: UAP hub 3
    pub fn submit(&mut self, now: Now, job: Job) -> Result<JobId, CommandError> {
        let id = self.ids.next_id::<JobId>();
        self.submit_as(now, id, job)?;
        Ok(id)
    }

    /// As [`submit`](Self::submit), with an id of the caller: a UUID that no other job ever had.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit), or a job with this id waits or runs.
    pub fn submit_as(&mut self, now: Now, id: JobId, job: Job) -> Result<(), CommandError> {
        if self.queue.get(id).is_some() {
            return Err(CommandError::DuplicateJob);
        }
        let shape = Shape::of(&job.payloads);
        let bytes = self.check(&job, &shape)?;
        debug!(job = %id, bytes, priority = job.priority, "job accepted");
        if self.config.durable {
            let record = Record::Accepted(job.clone());
            self.queue.add(id, job, shape, bytes, false);
            self.outputs.push(Output::Store { job: id, record });
        } else {
            self.queue.add(id, job, shape, bytes, true);
            self.begin_waiting(now, id);
        }
        self.finish(now);
        Ok(())
    }

    /// Ends a job: a waiting one leaves the queue, a running one has its stream ended `CANCELLED`, which
    /// is the only way to tell the agent.
    ///
    /// # Errors
    ///
    /// No such job waits or runs.
    pub fn cancel(&mut self, now: Now, job: JobId) -> Result<(), CommandError> {
        let entry = self.queue.get(job).ok_or(CommandError::UnknownJob)?;
        if matches!(entry.stage, queue::Stage::Ending(_)) {
            return Err(CommandError::UnknownJob);
        }
        let outcome = Outcome::new(Verdict::Cancelled, "cancelled by the caller");
        self.stop_job(now, job, outcome, "cancelled");
        self.finish(now);
        Ok(())
    }

    /// Answers [`Output::Prepare`]: the session becomes ready, or fails with a reason.
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
        let session = self.sessions.find(session.as_str());
        let is_preparing = |key: &SessionKey| {
            let found = self.sessions.get(*key);
            found.is_some_and(|found| found.stage == Stage::Preparing)
        };
        let session = session
            .filter(is_preparing)
            .ok_or(CommandError::NotPreparing)?;
        match done {
            Ok(()) => self.ready(now, session),
            Err(reason) => {
                let outcome =
                    Outcome::new(Verdict::Failed, format!("preparation failed: {reason}"));
                self.end_session(now, session, outcome, Status::ok());
            }
        }
        self.finish(now);
        Ok(())
    }

    fn on_input(&mut self, now: Now, input: Input<'_>) -> Result<(), InputError> {
        if self.phase == Phase::Closed {
            return Err(InputError::Closed);
        }
        #[cfg(feature = "tracing")]
        input.trace();
        match input {
            Input::Opened { stream, .. } if self.streams.purpose(stream).is_some() => {
                return Err(InputError::StreamInUse);
            }
            Input::Opened {
                stream,
                rpc: Rpc::Listen,
                key,
                identity,
                ..
            } => self.open_listen(now, stream, key, identity),
            Input::Opened {
                stream,
                rpc,
                key,
                identity,
                resume,
            } => {
                let opening = Opening {
                    rpc,
                    key,
                    identity,
                    resume,
                };
                self.open_session(now, stream, &opening);
            }
            Input::Message { stream, message } => self.message(now, stream, message),
            Input::HalfClosed { stream } => self.half_closed(now, stream),
            Input::Reset { stream, reason } => self.stream_broken(now, stream, &reason, false),
            Input::Lost { stream, reason } => self.stream_broken(now, stream, &reason, true),
            Input::Blocked { stream } => self.streams.block(stream),
            Input::Writable { stream } => self.unblock(stream),
        }
        self.finish(now);
        Ok(())
    }

    fn on_due(&mut self, now: Now) {
        while let Some(timer) = self.timers.pop_due(now.mono) {
            trace!(timer = timer.name(), "hub timer");
            match timer {
                // impl: HUB-2-4
                Timer::Unheard(agent) => {
                    self.agent_gone(now, &agent, "the agent did not open Listen in time")
                }
                Timer::Wait(job) => self.waited_long_enough(now, job),
                Timer::Limit(job) => {
                    let outcome = Outcome::new(Verdict::TimedOut, "the job took too long");
                    self.stop_job(now, job, outcome, "the job took too long");
                }
                Timer::Cool(agent) => self.cooled_down(now, &agent),
                Timer::Fewer => self.place_refused(now),
                Timer::Retry(job) => self.offer_again(now, job),
                Timer::Session(session) => self.session_timeout(now, session),
                Timer::Drain => self.end_sessions(now),
                Timer::Store => self.end_unstored(now),
            }
        }
        self.finish(now);
    }

    fn check(&mut self, job: &Job, shape: &Shape) -> Result<usize, CommandError> {
        if self.phase.is_leaving() {
            return Err(CommandError::ShuttingDown);
        }
        if job.skill.name().is_empty() {
            return Err(CommandError::EmptyType);
        }
        if let Some(seen) = job.group.as_ref().map(|group| group.len())
            && seen > MAX_GROUP_BYTES
        {
            let most = MAX_GROUP_BYTES;
            return Err(CommandError::LongGroup { seen, most });
        }
        if let Some(agent) = &job.agent {
            if self.fleet.get(agent.as_str()).is_none() {
                return Err(CommandError::UnknownAgent);
            }
            if let Some(unmet) = self.fleet.unmet_by(agent.as_str(), &job.skill, shape) {
                return Err(CommandError::IncapableAgent { unmet });
            }
        } else if self.config.fail_fast && !self.fleet.has_capable(&job.skill, shape) {
            let skill = job.skill.clone();
            let unmet = self.fleet.faults(&skill, shape);
            return Err(CommandError::NoCapableAgent { skill, unmet });
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

    /// The end of every call that sends something, or that can end the last job of a hub that leaves.
    fn finish(&mut self, now: Now) {
        while let Some(stream) = self.streams.take_overflown() {
            self.overflown(now, stream);
        }
        self.close_if_drained();
    }

    fn event(&mut self, event: Event) {
        self.outputs.push(Output::Event(event));
    }

    /// Audits what the agent of a session did.
    fn audit_session(&mut self, kind: AuditKind, session: SessionKey) {
        if let Some(found) = self.sessions.get(session) {
            let (agent, session) = (found.agent.clone(), found.id.clone());
            self.audit(kind, Some(agent), Some(session));
        }
    }

    fn audit(&mut self, kind: AuditKind, agent: Option<ClientId>, session: Option<SessionId>) {
        self.event(Event::Audit(Audit {
            kind,
            agent,
            session,
        }));
    }
}

impl_machine!(
    Hub,
    Input<'_>,
    Input<'a>,
    /// Takes an input. Inputs of streams that have ended are ignored.
    ///
    /// # Errors
    ///
    /// Faults of the driver alone: a stream id used twice, or a hub that is shut down.
);

/// Bytes of the init message: two length-delimited fields with tags below 16.
fn init_bytes(name: &str, payloads: &[Payload]) -> usize {
    let field = |len: usize| 1 + prost::length_delimiter_len(len) + len;
    payloads
        .iter()
        .map(|payload| field(payload.encoded_len()))
        .fold(field(name.len()), usize::saturating_add)
}
