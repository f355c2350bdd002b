//! The two roles of the protocol, as machines without IO.

pub mod agent;
pub mod hub;
mod machine;
pub(crate) mod report;

use crate::wire::{
    ListenRequest, ListenResponse, TestInit, TestResponse, TranslationInit, TranslationResponse,
};

/// Metadata key that names the agent on `Listen`.
///
/// Spec: UAP hub 2
pub const CLIENT_ID_KEY: &str = "x-client-id";

/// Metadata key that names the session on `Execute` and `Translate`.
///
/// Spec: UAP hub 2
pub const SESSION_ID_KEY: &str = "x-session-id";

/// The streaming calls of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rpc {
    /// The control stream of an agent.
    Listen,
    /// The stream of a test.
    Execute,
    /// The stream of a translation.
    Translate,
}

/// A message from the hub to an agent.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: one for each call
pub enum HubMessage {
    /// On `Listen`.
    Listen(ListenResponse),
    /// On `Execute`.
    Test(TestInit),
    /// On `Translate`.
    Translation(TranslationInit),
}

/// A message from an agent to the hub.
#[derive(Clone, Debug, PartialEq)]
// exhaustive: one for each call
pub enum AgentMessage {
    /// On `Listen`.
    Listen(ListenRequest),
    /// On `Execute`.
    Test(TestResponse),
    /// On `Translate`.
    Translation(TranslationResponse),
}
