//! What goes into the hub and what comes out of it.

use prost_types::Timestamp;

use super::job::{Job, Outcome};
use crate::{
    id::{ClientId, JobId, SessionId, StreamId},
    role::Rpc,
    state::State,
    status::Status,
    wire::{
        ListenRequest, ListenResponse, Telemetry, TestInit, TestResponse, TranslationInit,
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
    /// The call takes no more messages for now: what there is to send waits in the hub, within a bound. A
    /// driver that takes everything need never say so.
    Blocked {
        /// Which call.
        stream: StreamId,
    },
    /// The call takes messages again.
    Writable {
        /// Which call.
        stream: StreamId,
    },
}

/// A message from an agent.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: one for each call
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
// exhaustive: one for each call
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
    /// Read no more of a call: the reader of its job does not keep up.
    Pause {
        /// Which call.
        stream: StreamId,
    },
    /// Read a call again.
    Resume {
        /// Which call.
        stream: StreamId,
    },
    /// Store something of a job so that it survives this process, then call
    /// [`Hub::stored`](super::Hub::stored). Those of one job in this order.
    Store {
        /// The job.
        job: JobId,
        /// What is to be stored.
        record: Record,
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

/// What a durable hub stores.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// The job, before it is accepted.
    Accepted(Job),
    /// Its end, before the caller is told.
    Ended(Outcome),
}

/// News of the hub.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An agent registered, and may listen now.
    AgentRegistered {
        /// The agent.
        agent: ClientId,
        /// Its name towards people.
        name: String,
    },
    /// An agent may be offered jobs.
    AgentAvailable {
        /// The agent.
        agent: ClientId,
    },
    /// An agent is offered nothing until it listens again, which it may for a while; its sessions go on.
    AgentAway {
        /// The agent.
        agent: ClientId,
        /// Why, for people.
        reason: String,
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
    /// The job is stored: it is accepted and will not be lost. Only of a durable hub.
    Stored,
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
    /// The agent accepted.
    Accepted {
        /// The session.
        session: SessionId,
    },
    /// The agent was told to begin.
    Ready {
        /// The session.
        session: SessionId,
    },
    /// The agent opened the stream and was sent the job.
    Started {
        /// The session.
        session: SessionId,
    },
    /// The agent or its stream was lost; the job waits again.
    Requeued {
        /// The session that was lost.
        session: SessionId,
        /// How often the job was begun so far.
        attempts: u32,
        /// Why, for people.
        reason: String,
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
    /// A control stream that was not read: it was ended, and its agent is gone.
    SlowReader,
}
