//! The agent's settings, and what goes into it and comes out of it.

use std::time::Duration;

use ubos_common::id::IdSource;

use crate::{
    capability::{Kind, Skill},
    id::{ClientId, SessionId, StreamId},
    message::JobResult,
    role::{Rpc, settings::settings},
    status::Status,
    wire::{
        AgentRegistration, Capability, ListenRequest, ListenResponse, Payload, TestInit,
        TestResponse, TranslationInit, TranslationResponse,
    },
};

settings! {
    /// Settings of a [`FleetAgent`](super::FleetAgent).
    Config {
        /// The name for people; empty.
        name: String = String::new(),
        /// What the agent can do; nothing.
        capabilities: Vec<Capability> = Vec::new(),
        /// Sessions at once, accepted ones included; beyond it proposals are refused. 16.
        max_sessions: usize = 16,
        /// The first pause before connecting again; 1 s, doubled each time.
        first_retry: Duration = Duration::from_secs(1),
        /// The longest pause before connecting again; 60 s.
        longest_retry: Duration = Duration::from_secs(60),
        /// Whether pauses are drawn from their upper half, so that a fleet does not come back at once; no.
        jitter: bool = false,
        /// Where jitter comes from.
        ids: IdSource = IdSource::seeded(0),
        /// Whether a control stream that ended is opened again under the same name, for hubs that keep it a
        /// while; accepted sessions are kept over the pause. A hub that does not know the name any more is
        /// registered with anew. No.
        resume: bool = false,
        /// How long `Register` may take; 10 s.
        register_timeout: Duration = Duration::from_secs(10),
        /// How long an accepted session waits for `SessionReady`; 5 minutes.
        ready_timeout: Duration = Duration::from_secs(300),
        /// How long an opened session waits for its job; 30 s.
        init_timeout: Duration = Duration::from_secs(30),
        /// How long a call is kept after the half-close; 5 s.
        linger: Duration = Duration::from_secs(5),
        /// Bytes of one message; larger reports are refused. 64 MiB.
        max_message_bytes: usize = 64 << 20,
    }
}

/// What the driver tells the agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// `Register` was answered.
    Registered {
        /// Of [`Output::Register`].
        attempt: u64,
        /// The agent's new name.
        client_id: String,
    },
    /// The hub could not be reached, or refused.
    RegisterFailed {
        /// Of [`Output::Register`].
        attempt: u64,
        /// Why, for people.
        reason: String,
    },
    /// A message came.
    Message {
        /// On which call.
        stream: StreamId,
        /// The message.
        message: Inbound,
    },
    /// A call ended, well or badly.
    Ended {
        /// Which call.
        stream: StreamId,
        /// How.
        status: Status,
    },
}

/// A message from the hub.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: one for each call
pub enum Inbound {
    /// On `Listen`.
    Listen(ListenResponse),
    /// On `Execute`.
    Test(TestInit),
    /// On `Translate`.
    Translation(TranslationInit),
}

/// A message to the hub.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: one for each call
pub enum Outbound {
    /// On `Listen`.
    Listen(ListenRequest),
    /// On `Execute`.
    Test(TestResponse),
    /// On `Translate`.
    Translation(TranslationResponse),
}

/// What the driver shall do, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Connect, call `Register`, and tell what came of it.
    Register {
        /// To be given back.
        attempt: u64,
        /// The request.
        registration: AgentRegistration,
    },
    /// Open a call. It counts as up at once, because hubs send no response headers before they have
    /// something to say; it has no deadline.
    Open {
        /// The call's name from now on.
        stream: StreamId,
        /// Which call.
        rpc: Rpc,
        /// Value of its metadata key.
        key: String,
    },
    /// Send a message.
    Send {
        /// On which call.
        stream: StreamId,
        /// The message.
        message: Outbound,
    },
    /// Send no more on a call, but go on reading.
    HalfClose {
        /// Which call.
        stream: StreamId,
    },
    /// Give a call up; nothing of it is wanted any more.
    Drop {
        /// Which call.
        stream: StreamId,
    },
    /// Run the handler of a skill.
    Run {
        /// The session, for reports and the result.
        session: SessionId,
        /// Whose handler.
        skill: Skill,
        /// The job.
        payloads: Vec<Payload>,
    },
    /// Stop the handler: nobody wants its result.
    Stop {
        /// Its session.
        session: SessionId,
    },
    /// News for the caller.
    Event(Event),
}

/// News of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The agent is registered and listens.
    Listening {
        /// Its name.
        client_id: ClientId,
    },
    /// The hub is not to be had; the agent tries again.
    Retrying {
        /// After this pause.
        after: Duration,
        /// Why, for people.
        reason: String,
    },
    /// A proposal was refused.
    Refused {
        /// The proposal.
        session: SessionId,
        /// With this reason.
        reason: &'static str,
    },
    /// A session is over: its result is sent and the call closed, or it was lost.
    SessionOver {
        /// The session.
        session: SessionId,
        /// How its call ended, where the hub ended it.
        status: Option<Status>,
    },
    /// The agent has left; nothing follows.
    Closed,
}

/// Why a report or result is refused; it then changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No handler runs for that session: it is finished, or was lost.
    #[error("no running session has that id")]
    NotRunning,
    /// A terminal state is said by the result alone.
    #[error("a terminal state is for the result to say")]
    Terminal,
    /// A session that runs is not acknowledged again.
    #[error("a state that goes back")]
    Backward,
    /// A result says a terminal state.
    #[error("a result whose state is not terminal")]
    NotTerminal,
    /// A test has the result of a translation, or the other way about.
    #[error("a result of {seen:?} for a session of {wanted:?}")]
    WrongKind {
        /// The result's.
        seen: Kind,
        /// The session's.
        wanted: Kind,
    },
    /// The message cannot be sent.
    #[error("a message of {seen} bytes, at most {most} can be sent")]
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

/// A report of a session, before it is put in its kind's message.
#[derive(Debug)]
pub(super) enum Say {
    Status(crate::state::State, String),
    Telemetry(crate::wire::Telemetry),
    Result(JobResult),
}
