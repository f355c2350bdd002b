//! What an agent is, and how it treats its core.

use crate::error::{ConfigError, require};
use crate::limits::Limits;
use crate::message::{Sdk, SemVer};
use crate::token::SessionToken;

/// Settings of an [`AgentConnection`](super::AgentConnection).
///
/// | setting | default |
/// |---|---|
/// | `tools_check_inputs` | off: inputs are held against the tool's schema (feature `schema`) |
///
/// The agent waits 10 s for the welcome, and its calls have 5 s from a goodbye to the end. The `debug` member of
/// errors is never written.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) agent_id: String,
    pub(crate) agent_version: SemVer,
    pub(crate) token: SessionToken,
    pub(crate) manifest_hash: Option<String>,
    pub(crate) sdk: Option<Sdk>,
    pub(crate) limits: Limits,
    pub(crate) tools_check_inputs: bool,
}

impl Config {
    /// Settings of an agent with the token that it was launched with.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, agent_version: SemVer, token: SessionToken) -> Self {
        let version = env!("CARGO_PKG_VERSION").parse().ok();
        Self {
            agent_id: agent_id.into(),
            agent_version,
            token,
            manifest_hash: None,
            sdk: version.map(|version| Sdk::new(env!("CARGO_PKG_NAME").into(), version)),
            limits: Limits::default(),
            tools_check_inputs: false,
        }
    }

    /// Sets the bounds.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Names the manifest.
    #[must_use]
    pub fn with_manifest_hash(mut self, hash: impl Into<String>) -> Self {
        self.manifest_hash = Some(hash.into());
        self
    }

    /// Says that the tools check their inputs themselves.
    #[must_use]
    pub const fn with_tools_checking_inputs(mut self) -> Self {
        self.tools_check_inputs = true;
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        require(
            !self.agent_id.is_empty(),
            "agent_id",
            &self.agent_id,
            "an agent needs the id of its manifest",
        )
    }
}
