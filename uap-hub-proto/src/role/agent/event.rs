//! The inputs and outputs of the agent.

use std::time::Duration;

use ubos_common::trace_context::TraceContext;

use crate::{
    capability::{Kind, Skill},
    id::{ClientId, SessionId, StreamId},
    message::JobResult,
    role::{AgentMessage as Outbound, HubMessage as Inbound, Resume, Rpc},
    status::Status,
    wire::{AgentRegistration, Payload},
};

/// What the driver reports to the agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// `Register` was answered.
    Registered {
        /// Of [`Output::Register`].
        attempt: u64,
        /// The agent's client id.
        client_id: String,
    },
    /// The hub could not be reached, or refused.
    RegisterFailed {
        /// Of [`Output::Register`].
        attempt: u64,
        /// The reason, for people.
        reason: String,
    },
    /// The hub answered a call, and the metadata of its answer has a place in a trace. Comes before the first message of the
    /// call; one that is not valid need not be reported.
    Trace {
        /// The call.
        stream: StreamId,
        /// What the metadata carries.
        trace: TraceContext,
    },
    /// A message was received.
    Message {
        /// The call.
        stream: StreamId,
        /// The message.
        message: Inbound,
    },
    /// The hub ended a call.
    Ended {
        /// The call.
        stream: StreamId,
        /// The status.
        status: Status,
    },
    /// A call broke, or could not be opened: the connection was lost, and the hub has not spoken.
    Broken {
        /// The call.
        stream: StreamId,
        /// The reason, as the transport gives it.
        status: Status,
    },
}

/// What the machine asks of its driver, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Connect, call `Register`, and report the answer.
    Register {
        /// To be returned with the answer.
        attempt: u64,
        /// The request.
        registration: AgentRegistration,
    },
    /// Open a call. It counts as open at once, because hubs send no response headers before they have
    /// something to send; it has no deadline.
    Open {
        /// The call's name from now on.
        stream: StreamId,
        /// The call.
        rpc: Rpc,
        /// Value of its metadata key.
        key: String,
        /// Value of [`RESUME_KEY`](crate::role::RESUME_KEY), if the agent can resume the session.
        resume: Option<Resume>,
        /// The place of the session's job in a trace, for the call's metadata: known when its call is opened again.
        trace: Option<TraceContext>,
    },
    /// Send a message.
    Send {
        /// The call.
        stream: StreamId,
        /// The message.
        message: Outbound,
    },
    /// Send no more on a call, but go on reading.
    HalfClose {
        /// The call.
        stream: StreamId,
    },
    /// Drop a call: no further input of it is needed.
    Drop {
        /// The call.
        stream: StreamId,
    },
    /// Run the handler of a skill.
    Run {
        /// The session, for reports and the result.
        session: SessionId,
        /// The skill.
        skill: Skill,
        /// The job.
        payloads: Vec<Payload>,
        /// The place of the job in a trace, if the hub has told one.
        trace: Option<TraceContext>,
    },
    /// Stop the handler: its result is not needed any more.
    Stop {
        /// Its session.
        session: SessionId,
    },
    /// An event for the caller.
    Event(Event),
}

/// Events of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The agent is registered and listens.
    Listening {
        /// Its name.
        client_id: ClientId,
    },
    /// The hub cannot be reached or ended the control stream; the agent tries again.
    Retrying {
        /// The pause before that.
        after: Duration,
        /// The reason, for people.
        reason: String,
    },
    /// A proposal was refused. One whose id is longer than 1,024 bytes gets no answer.
    Refused {
        /// The proposal: no more than the first 1,024 bytes of its id.
        session: SessionId,
        /// The reason, as it was sent.
        reason: &'static str,
    },
    /// The call of a session broke. Its handler goes on; the call is opened again.
    SessionCut {
        /// The session.
        session: SessionId,
        /// The reason, for people.
        reason: String,
    },
    /// The call of a session is open again, and the hub has said what it has.
    SessionResumed {
        /// The session.
        session: SessionId,
    },
    /// A session is over: its result is sent and its call closed, or it was lost.
    SessionOver {
        /// The session.
        session: SessionId,
        /// The status of its call, if the hub ended it.
        status: Option<Status>,
    },
    /// The agent has left; nothing follows.
    Closed,
}

/// Why a report or result is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No handler runs for this session: it is finished, or was lost.
    #[error("no session with this id runs")]
    NotRunning,
    /// Only the result may report a terminal state.
    #[error("a terminal state belongs to the result: send a result instead")]
    Terminal,
    /// A session that runs is not acknowledged again.
    #[error("the session runs and cannot be acknowledged again")]
    Backward,
    /// A result has a terminal state.
    #[error("the state of the result is not terminal")]
    NotTerminal,
    /// A test has the result of a translation, or the reverse.
    #[error("the result is of a {seen:?}, but the session is a {wanted:?}")]
    WrongKind {
        /// The result's.
        seen: Kind,
        /// The session's.
        wanted: Kind,
    },
    /// The message cannot be sent.
    #[error("the message has {seen} bytes, at most {most} can be sent")]
    TooLarge {
        /// Bytes of the message.
        seen: usize,
        /// The bound.
        most: usize,
    },
}

/// Why an input is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The agent has left.
    #[error("the agent has left")]
    Closed,
}

/// A report of a session, before it is put into the message of its kind.
#[derive(Debug)]
pub(super) enum Say {
    Status(crate::state::State, String),
    Telemetry(crate::wire::Telemetry),
    Result(JobResult),
}
