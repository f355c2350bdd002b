//! The inputs and outputs of the hub.

use prost_types::Timestamp;
use ubos_common::trace_context::TraceContext;

#[cfg(feature = "tracing")]
use prost::Message as _;

use super::job::{Job, Outcome};
#[cfg(feature = "tracing")]
use crate::trace::trace;
use crate::{
    id::{ClientId, Identity, JobId, SessionId, StreamId},
    role::{AgentMessage as Inbound, HubMessage as Outbound, Resume, Rpc},
    state::State,
    status::Status,
    wire::Telemetry,
};

/// An event on a stream, reported by the driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// An agent opened a call.
    Opened {
        /// The driver's name for it, never used before.
        stream: StreamId,
        /// The call.
        rpc: Rpc,
        /// Value of the metadata key that belongs to the call ([`CLIENT_ID_KEY`](crate::role::CLIENT_ID_KEY)
        /// or [`SESSION_ID_KEY`](crate::role::SESSION_ID_KEY)), if it is there.
        key: Option<&'a str>,
        /// Value of [`RESUME_KEY`](crate::role::RESUME_KEY), if it is there and known.
        resume: Option<Resume>,
        /// Who opened it, where the driver knows; see [`Hub::register_as`](super::Hub::register_as).
        identity: Option<&'a Identity>,
    },
    /// A message was received.
    Message {
        /// The call.
        stream: StreamId,
        /// The message.
        message: Inbound,
    },
    /// The agent will send no more.
    HalfClosed {
        /// The call.
        stream: StreamId,
    },
    /// The call broke: reset, connection lost, undecodable or too large message.
    Reset {
        /// The call.
        stream: StreamId,
        /// The reason, for people.
        reason: String,
    },
    /// The connection of the call was lost, and with it the agent's other calls.
    Lost {
        /// The call.
        stream: StreamId,
        /// The reason, for people.
        reason: String,
    },
    /// The call is full: messages wait in the hub, up to a limit. Those that [`Output::Send`] has said, or that are among the
    /// outputs to be taken, do not. A driver with unlimited queues need not report it.
    Blocked {
        /// The call.
        stream: StreamId,
    },
    /// The call takes messages again.
    Writable {
        /// The call.
        stream: StreamId,
    },
}

#[cfg(feature = "tracing")]
impl Input<'_> {
    pub(super) fn trace(&self) {
        match self {
            Self::Opened { stream, rpc, .. } => {
                trace!(stream = stream.0, ?rpc, "hub: call opened");
            }
            Self::Message { stream, message } => {
                let bytes = match message {
                    Inbound::Listen(message) => message.encoded_len(),
                    Inbound::Test(message) => message.encoded_len(),
                    Inbound::Translation(message) => message.encoded_len(),
                };
                trace!(stream = stream.0, bytes, "hub: message received");
            }
            Self::HalfClosed { stream } => trace!(stream = stream.0, "hub: call half-closed"),
            Self::Reset { stream, .. } => trace!(stream = stream.0, "hub: call reset"),
            Self::Lost { stream, .. } => trace!(stream = stream.0, "hub: connection lost"),
            Self::Blocked { stream } => trace!(stream = stream.0, "hub: call blocked"),
            Self::Writable { stream } => trace!(stream = stream.0, "hub: call writable"),
        }
    }
}

/// What the machine asks of its driver, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Answer a call with the place of its job in a trace, as metadata: comes before the first message of the call, once, and
    /// only where the job has one.
    Trace {
        /// The call.
        stream: StreamId,
        /// What the metadata is to carry.
        trace: TraceContext,
    },
    /// Send a message.
    Send {
        /// The call.
        stream: StreamId,
        /// The message.
        message: Outbound,
    },
    /// End a call; no input of it is looked at any more.
    End {
        /// The call.
        stream: StreamId,
        /// The status.
        status: Status,
    },
    /// Read no more of a call: the reader of its job does not keep up.
    Pause {
        /// The call.
        stream: StreamId,
    },
    /// Read a call again.
    Resume {
        /// The call.
        stream: StreamId,
    },
    /// Store something of a job so that it survives this process, then call
    /// [`Hub::stored`](super::Hub::stored). Those of one job in this order.
    Store {
        /// The job.
        job: JobId,
        /// The record.
        record: Record,
    },
    /// Prepare the session, then call [`Hub::prepared`](super::Hub::prepared).
    Prepare {
        /// The session that an agent accepted.
        session: SessionId,
        /// The job that it runs.
        job: JobId,
    },
    /// An event for the caller.
    Event(Event),
}

/// A record of a durable hub.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// The job, before it is accepted.
    Accepted(Job),
    /// Its end, before it is reported.
    Ended(Outcome),
}

/// Events of the hub.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An agent registered.
    AgentRegistered {
        /// The agent.
        agent: ClientId,
        /// Its display name.
        name: String,
    },
    /// An agent may be offered jobs.
    AgentAvailable {
        /// The agent.
        agent: ClientId,
    },
    /// An agent lost its control stream. It is offered nothing until it listens again within the grace; its sessions go on.
    AgentAway {
        /// The agent.
        agent: ClientId,
        /// The reason, for people.
        reason: String,
    },
    /// An agent is gone. Its client id is not used again.
    AgentGone {
        /// The agent.
        agent: ClientId,
        /// The reason, for people.
        reason: String,
    },
    /// An event of a job.
    Job {
        /// The job.
        job: JobId,
        /// The event.
        event: JobEvent,
    },
    /// An action of a peer was ignored.
    Audit(Audit),
    /// The hub is shut down; nothing follows.
    Closed,
}

/// Events of a job, in order; [`JobEvent::Ended`] is the last.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum JobEvent {
    /// The job is stored: it is accepted and will not be lost. Only of a durable hub.
    Stored,
    /// The job was offered to an agent.
    Offered {
        /// The offer.
        session: SessionId,
        /// The agent.
        agent: ClientId,
    },
    /// An offer was refused, unanswered or withdrawn. The job waits again.
    Declined {
        /// The offer.
        session: SessionId,
        /// The reason, of the agent or of the hub.
        reason: String,
    },
    /// The agent accepted.
    Accepted {
        /// The session.
        session: SessionId,
    },
    /// The agent was told that the session is ready.
    Ready {
        /// The session.
        session: SessionId,
    },
    /// The agent opened the stream and was sent the job.
    Started {
        /// The session.
        session: SessionId,
    },
    /// The connection was lost. The session goes on if its agent opens the stream again within the grace. A reader that is
    /// behind is not told.
    Cut {
        /// The session.
        session: SessionId,
        /// The reason, for people.
        reason: String,
    },
    /// The agent opened the stream again. No report is lost or comes twice. A reader that is behind is not told.
    Resumed {
        /// The session.
        session: SessionId,
    },
    /// The agent or its stream was lost; the job waits again.
    Requeued {
        /// The session that was lost.
        session: SessionId,
        /// How often the job was started so far.
        attempts: u32,
        /// The reason, for people.
        reason: String,
    },
    /// The session's state.
    Status {
        /// The state.
        state: State,
        /// The agent's message.
        message: String,
        /// The time of the agent's clock, if it sent one.
        at: Option<Timestamp>,
    },
    /// A line of the session's log.
    Telemetry {
        /// The line.
        telemetry: Telemetry,
        /// The time of the agent's clock, if it sent one.
        at: Option<Timestamp>,
    },
    /// The end.
    Ended(Outcome),
}

/// An action of a peer that had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// The kind.
    pub kind: AuditKind,
    /// The agent, where known.
    pub agent: Option<ClientId>,
    /// The session id that the agent sent, cut to 1 KiB.
    pub session: Option<SessionId>,
}

/// Kinds of [`Audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditKind {
    /// An answer to a proposal that was never made, is void, or was answered.
    StrayAcceptance,
    /// An answer to a proposal that was made to another agent.
    ForeignAcceptance,
    /// A status that goes back to an earlier state.
    Backward,
    /// A status or result whose state is unspecified or unknown.
    UnknownState,
    /// A status after the end.
    LateStatus,
    /// Telemetry after the end, dropped.
    LateTelemetry,
    /// A result after the end.
    SecondResult,
    /// A message of another call's type: a fault of the driver.
    WrongMessage,
    /// A call with the client or session id of another identity: refused as if the id were unknown.
    ForeignIdentity,
    /// The numbers of two reports do not follow each other: some are missing.
    MissingReports,
    /// A control stream was not read: it is ended, and its agent is gone.
    SlowReader,
}
