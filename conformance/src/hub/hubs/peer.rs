//! The interface to a hub under test, and the lines of a recording.

use std::time::Duration;

use uap_hub_proto::{
    capability::Skill,
    id::StreamId,
    role::{
        Rpc,
        agent::{Inbound, Outbound},
    },
    status::Status,
    wire::AgentRegistration,
};

/// A hub under test, behind any transport. The kit acts as its agents. Calls that a case leaves open are reset when the
/// peer is dropped.
pub trait HubPeer {
    /// Calls `Register`.
    ///
    /// # Errors
    ///
    /// The status of the call.
    fn register(&mut self, registration: AgentRegistration) -> Result<String, Status>;

    /// Opens a call with the value of its metadata key, and returns its id.
    fn open(&mut self, rpc: Rpc, key: Option<&str>) -> StreamId;

    /// Sends a message.
    fn send(&mut self, stream: StreamId, message: Outbound);

    /// Half-closes a call.
    fn half_close(&mut self, stream: StreamId);

    /// Resets a call.
    fn reset(&mut self, stream: StreamId);

    /// Waits for the next message or the end of a call, at most `timeout`.
    fn next(&mut self, stream: StreamId, timeout: Duration) -> Option<HubAction>;

    /// Submits one more job to the hub, if the peer can do that.
    fn want_job(&mut self);

    /// The skill that its jobs require, a test or a translation: the kit plays what it is.
    fn skill(&self) -> Skill;
}

/// An action of a hub on a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HubAction {
    /// It sent a message.
    Sent(Inbound),
    /// It ended the call.
    Ended(Status),
}

/// A line of a recording.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HubLine {
    /// `Register` was answered.
    Registered(Result<String, Status>),
    /// A call was opened.
    Opened(StreamId, Rpc),
    /// A session was accepted on a call.
    Accepted(StreamId, String),
    /// The hub acted.
    Hub(StreamId, HubAction),
    /// The hub did nothing in time.
    Silence(StreamId),
}
