//! The two roles of the protocol, as machines without IO.

pub mod agent;
pub mod hub;
pub(crate) mod report;

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
