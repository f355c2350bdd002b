//! What goes into the hub and what comes out of it.

use std::time::Duration;

use prost_types::Timestamp;

use crate::{
    capability::{RegistrationError, Skill},
    id::{ClientId, JobId, SessionId, StreamId},
    message::JobResult,
    role::Rpc,
    state::State,
    status::{Code, Status},
    wire::{
        ListenRequest, ListenResponse, Payload, Telemetry, TestInit, TestResponse, TranslationInit,
        TranslationResponse,
    },
};

/// Something that happened on a stream, told by the driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// An agent opened a call.
    Opened {
        /// The driver's name for it, never used before.
        stream: StreamId,
        /// Which call.
        rpc: Rpc,
        /// Value of the metadata key that belongs to the call ([`CLIENT_ID_KEY`](crate::role::CLIENT_ID_KEY)
        /// or [`SESSION_ID_KEY`](crate::role::SESSION_ID_KEY)), if it is there.
        key: Option<&'a str>,
    },
    /// A message came.
    Message {
        /// On which call.
        stream: StreamId,
        /// The message.
        message: Inbound,
    },
    /// The agent will send no more.
    HalfClosed {
        /// On which call.
        stream: StreamId,
    },
    /// The call broke: reset, connection lost, undecodable or too large message.
    Reset {
        /// Which call.
        stream: StreamId,
        /// Why, for people.
        reason: String,
    },
}

/// A message from an agent.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "one for each call")]
pub enum Inbound {
    /// On `Listen`.
    Listen(ListenRequest),
    /// On `Execute`.
    Test(TestResponse),
    /// On `Translate`.
    Translation(TranslationResponse),
}

/// A message to an agent.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "one for each call")]
pub enum Outbound {
    /// On `Listen`.
    Listen(ListenResponse),
    /// On `Execute`.
    Test(TestInit),
    /// On `Translate`.
    Translation(TranslationInit),
}

/// What the driver shall do, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Send a message.
    Send {
        /// On which call.
        stream: StreamId,
        /// The message.
        message: Outbound,
    },
    /// End a call; no input of it is looked at any more.
    End {
        /// Which call.
        stream: StreamId,
        /// With which status.
        status: Status,
    },
    /// Make ready what the session needs, then call [`Hub::prepared`](super::Hub::prepared).
    Prepare {
        /// The session that an agent accepted.
        session: SessionId,
        /// The job that it runs.
        job: JobId,
    },
    /// News for the caller.
    Event(Event),
}

/// News of the hub.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An agent may be offered jobs.
    AgentAvailable {
        /// The agent.
        agent: ClientId,
    },
    /// An agent is gone; its client id will not be used again.
    AgentGone {
        /// The agent.
        agent: ClientId,
        /// Why, for people.
        reason: String,
    },
    /// News of a job.
    Job {
        /// The job.
        job: JobId,
        /// The news.
        event: JobEvent,
    },
    /// A peer did something that was ignored.
    Audit(Audit),
    /// The hub is shut down; nothing follows.
    Closed,
}

/// News of a job, in order; [`JobEvent::Ended`] is the last.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum JobEvent {
    /// The job was offered to an agent.
    Offered {
        /// The offer.
        session: SessionId,
        /// To whom.
        agent: ClientId,
    },
    /// An offer came to nothing: refused, unanswered or withdrawn. The job goes on waiting.
    Declined {
        /// The offer.
        session: SessionId,
        /// The agent's reason, or ours.
        reason: String,
    },
    /// The agent accepted and was told to begin.
    Ready {
        /// The session.
        session: SessionId,
    },
    /// The agent opened the stream and was sent the job.
    Started {
        /// The session.
        session: SessionId,
    },
    /// The session's state.
    Status {
        /// The state.
        state: State,
        /// The agent's words.
        message: String,
        /// The agent's clock, if it said.
        at: Option<Timestamp>,
    },
    /// A line of the session's log.
    Telemetry {
        /// The line.
        telemetry: Telemetry,
        /// The agent's clock, if it said.
        at: Option<Timestamp>,
    },
    /// The end.
    Ended(Outcome),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The end in one word.
    pub verdict: Verdict,
    /// The end in words for people: the agent's, or the hub's where the hub ended it.
    pub message: String,
    /// What the agent sent as its result, if it did.
    pub result: Option<JobResult>,
    /// The agent that ran it, if one did.
    pub agent: Option<ClientId>,
}

/// How a job ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The agent says that it ended well.
    Completed,
    /// It failed, or its agent or stream was lost.
    Failed,
    /// The agent says that the job makes no sense.
    Invalid,
    /// The caller or the end of the hub cancelled it.
    Cancelled,
    /// The one agent that it was meant for refused it.
    Refused,
    /// No agent took it in time.
    Unplaced,
}

impl Verdict {
    /// Of a terminal state; anything else is a failure.
    pub(super) const fn of(state: State) -> Self {
        match state {
            State::Completed => Self::Completed,
            State::Invalid => Self::Invalid,
            State::Failed | State::Acknowledged | State::Running => Self::Failed,
        }
    }
}

/// What a peer did that had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Which rule.
    pub kind: AuditKind,
    /// The agent, where known.
    pub agent: Option<ClientId>,
    /// The session named, where one was; cut to 1 KiB.
    pub session: Option<SessionId>,
}

/// Kinds of [`Audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditKind {
    /// An answer to a proposal that was never made, is void, or was answered.
    StrayAcceptance,
    /// An answer to a proposal made to somebody else.
    ForeignAcceptance,
    /// A status that goes back.
    Backward,
    /// A status or result whose state is unspecified or unknown.
    UnknownState,
    /// A status after the end.
    LateStatus,
    /// Telemetry after the end, dropped.
    LateTelemetry,
    /// A result after the end.
    SecondResult,
    /// A message of another call's type; a driver's fault.
    WrongMessage,
}

/// A job to be run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Job {
    /// What it needs.
    pub skill: Skill,
    /// What it brings, sent in this order.
    pub payloads: Vec<Payload>,
    /// The one agent that may run it; `None` for any.
    pub agent: Option<ClientId>,
    /// How long it may wait for an agent; `None` for the hub's `wait_limit`.
    pub wait_limit: Option<Duration>,
}

impl Job {
    /// A test of a type.
    #[must_use]
    pub fn test(name: &str, payloads: Vec<Payload>) -> Self {
        Self {
            skill: Skill::test(name),
            payloads,
            agent: None,
            wait_limit: None,
        }
    }

    /// A translation to a format.
    #[must_use]
    pub fn translation(name: &str, payloads: Vec<Payload>) -> Self {
        Self {
            skill: Skill::translation(name),
            payloads,
            agent: None,
            wait_limit: None,
        }
    }

    /// For this agent alone; it ends [`Verdict::Refused`] when the agent refuses.
    #[must_use]
    pub fn only_by(mut self, agent: ClientId) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Waits at most this long for an agent.
    #[must_use]
    pub const fn wait_at_most(mut self, limit: Duration) -> Self {
        self.wait_limit = Some(limit);
        self
    }
}

/// Why `Register` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The registration is wrong.
    #[error(transparent)]
    Invalid(#[from] RegistrationError),
    /// As many agents as may be.
    #[error("{most} agents are registered, more are not taken")]
    Full {
        /// The bound.
        most: usize,
    },
    /// The hub is leaving.
    #[error("the hub is shutting down")]
    ShuttingDown,
}

impl RegisterError {
    /// The status that answers the call.
    #[must_use]
    pub fn status(&self) -> Status {
        let code = match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Full { .. } => Code::ResourceExhausted,
            Self::ShuttingDown => Code::Unavailable,
        };
        Status::new(code, self.to_string())
    }
}

/// Why a command of the caller is refused; it then changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// As many jobs as may be.
    #[error("{most} jobs wait or run, more are not taken")]
    TooManyJobs {
        /// The bound.
        most: usize,
    },
    /// The waiting payloads fill their bound.
    #[error("{seen} bytes of payloads would wait, at most {most} may")]
    QueueFull {
        /// Bytes that would wait.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// One job's init message is too large to be sent.
    #[error("a job of {seen} bytes, at most {most} can be sent")]
    TooLarge {
        /// Bytes of the message.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// The job's type is empty.
    #[error("a job's type is not empty")]
    EmptyType,
    /// The agent that the job is meant for is not registered.
    #[error("no agent has that client id")]
    UnknownAgent,
    /// The agent that the job is meant for never said that it can run it, or wants other payloads.
    #[error("the agent with that client id has no such capability, or requires other payloads")]
    IncapableAgent,
    /// No such job waits or runs.
    #[error("no job that waits or runs has that id")]
    UnknownJob,
    /// The session waits for no preparation.
    #[error("the session does not wait to be prepared")]
    NotPreparing,
    /// The hub is leaving.
    #[error("the hub is shutting down")]
    ShuttingDown,
}

/// Why an input is refused: faults of the driver, for peers' faults are [`Audit`]s and statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The hub is shut down.
    #[error("the hub is shut down")]
    Closed,
    /// A stream name was used twice.
    #[error("a stream of that name is open")]
    StreamInUse,
}
