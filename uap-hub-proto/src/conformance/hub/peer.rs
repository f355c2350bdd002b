//! What a hub is driven through.

use std::time::Duration;

use crate::{
    capability::Skill,
    id::StreamId,
    role::{
        Rpc,
        agent::{Inbound, Outbound},
    },
    status::Status,
    wire::AgentRegistration,
};

/// A hub, behind whatever wire. The kit plays agents; calls that are left open are the peer's to reset.
pub trait HubPeer {
    /// Calls `Register`.
    ///
    /// # Errors
    ///
    /// How the call ended.
    fn register(&mut self, registration: AgentRegistration) -> Result<String, Status>;

    /// Opens a call with the value of its metadata key, and names it.
    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId;

    /// Sends a message.
    fn send(&mut self, stream: StreamId, message: Outbound);

    /// Sends no more on a call.
    fn half_close(&mut self, stream: StreamId);

    /// Resets a call.
    fn reset(&mut self, stream: StreamId);

    /// Waits for what comes next on a call.
    fn next(&mut self, stream: StreamId, patience: Duration) -> Option<Said>;

    /// Sees to it that the hub has one more job, if that can be done from here.
    fn want_job(&mut self);

    /// What its jobs ask for: a test.
    fn skill(&self) -> Skill;
}

/// What a hub said on a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Said {
    /// A message.
    Message(Inbound),
    /// The end of the call.
    Ended(Status),
}

/// A line of a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Line {
    /// `Register` was answered.
    Registered(Result<String, Status>),
    /// A call was opened.
    Opened(StreamId, Rpc),
    /// A session was accepted on a call.
    Accepted(StreamId, String),
    /// The hub said something.
    Said(StreamId, Said),
    /// Nothing came in time.
    Silence(StreamId),
}
