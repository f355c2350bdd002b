//! The interface to an agent under test, and the lines of a recording.

use std::time::Duration;

use uap_hub_proto::{
    id::StreamId,
    role::{
        Rpc,
        hub::{Inbound, Outbound},
    },
    status::Status,
    wire::AgentRegistration,
};

/// An agent under test, behind any transport. The kit acts as its hub; each case begins with the agent's next
/// `Register`, whatever it did before.
pub trait AgentPeer {
    /// Waits for the next action of the agent, at most `timeout`.
    fn next(&mut self, timeout: Duration) -> Option<AgentAction>;

    /// Answers the open `Register` with a client id or a status.
    fn answer(&mut self, answer: Result<String, Status>);

    /// Sends a message on a call.
    fn send(&mut self, stream: StreamId, message: Outbound);

    /// Ends a call.
    fn end(&mut self, stream: StreamId, status: Status);

    /// The time since a fixed moment before the case.
    fn elapsed(&self) -> Duration;
}

/// An action of an agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentAction {
    /// It called `Register` and waits for the answer.
    Registered(AgentRegistration),
    /// It opened a call.
    Opened {
        /// The id of the call.
        stream: StreamId,
        /// The method.
        rpc: Rpc,
        /// The value of its metadata key.
        key: Option<String>,
    },
    /// It sent a message.
    Sent(StreamId, Inbound),
    /// It half-closed a call.
    HalfClosed(StreamId),
    /// It reset a call.
    Reset(StreamId),
}

/// A line of a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentLine {
    /// The time since a fixed moment before the case.
    pub at: Duration,
    /// What happened.
    pub kind: LineKind,
}

/// What happened at a line of a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LineKind {
    /// The agent acted.
    Agent(AgentAction),
    /// `Register` was answered.
    Answered(Result<String, Status>),
    /// A message was sent to the agent.
    Sent(StreamId, Outbound),
    /// A call was ended.
    Ended(StreamId, Status),
}
