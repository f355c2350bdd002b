//! The two roles of the protocol, as machines without IO.

pub mod agent;
pub mod hub;
mod machine;
pub(crate) mod report;
mod slots;

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

/// Metadata key with which an agent says that it can resume a session, on `Execute` and `Translate`; its value is a
/// [`Resume`]. An extension: hubs that do not know it pass it over.
pub const RESUME_KEY: &str = "x-session-resume";

/// What an agent that can resume sessions wants when it opens the stream of one, and how often it has opened it, from 1. A
/// stream that was opened earlier but comes later, on another connection, is thereby known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// exhaustive: what an agent can lack
pub enum Resume {
    /// The job, which it does not have yet.
    Job(u64),
    /// To go on reporting: it has the job.
    Reports(u64),
}

impl Resume {
    /// The value of the metadata key.
    #[must_use]
    pub fn to_value(self) -> String {
        match self {
            Self::Job(opening) => format!("job {opening}"),
            Self::Reports(opening) => format!("reports {opening}"),
        }
    }

    /// Of a value of the metadata key; `None` of any other.
    #[must_use]
    pub fn from_value(value: &str) -> Option<Self> {
        let (wanted, opening) = value.split_once(' ')?;
        let opening = opening.parse().ok()?;
        match wanted {
            "job" => Some(Self::Job(opening)),
            "reports" => Some(Self::Reports(opening)),
            _ => None,
        }
    }

    /// How often the stream was opened.
    const fn opening(self) -> u64 {
        match self {
            Self::Job(opening) | Self::Reports(opening) => opening,
        }
    }
}

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
