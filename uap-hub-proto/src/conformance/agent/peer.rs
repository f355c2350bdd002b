//! What an agent is driven through.

use std::time::Duration;

use crate::{
    id::StreamId,
    role::{
        Rpc,
        hub::{Inbound, Outbound},
    },
    status::Status,
    wire::AgentRegistration,
};

/// An agent that calls us, behind whatever wire. The kit plays its hub; each case begins with the agent's
/// next `Register`, whatever was before.
pub trait AgentPeer {
    /// Waits for what the agent does next.
    fn next(&mut self, patience: Duration) -> Option<Did>;

    /// Answers the `Register` that waits: with a client id, or a status.
    fn answer(&mut self, answer: Result<String, Status>);

    /// Sends a message on a call.
    fn send(&mut self, stream: StreamId, message: Outbound);

    /// Ends a call.
    fn end(&mut self, stream: StreamId, status: Status);

    /// How much time has passed since some moment before the case.
    fn elapsed(&self) -> Duration;
}

/// What an agent does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Did {
    /// It calls `Register`, and waits for the answer.
    Registers(AgentRegistration),
    /// It opened a call.
    Opens {
        /// Its name from now on.
        stream: StreamId,
        /// Which call.
        rpc: Rpc,
        /// Value of its metadata key.
        key: Option<String>,
    },
    /// It sent a message.
    Says(StreamId, Inbound),
    /// It will send no more on a call.
    HalfCloses(StreamId),
    /// It broke a call off.
    Resets(StreamId),
}

/// A line of a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Line {
    /// When, after some moment before the case.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The agent did something.
    Agent(Did),
    /// `Register` was answered.
    Answered(Result<String, Status>),
    /// A message was sent to the agent.
    Sent(StreamId, Outbound),
    /// A call was ended.
    Ended(StreamId, Status),
}
