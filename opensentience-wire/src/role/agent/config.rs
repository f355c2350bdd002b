//! What an agent is, and how it treats its core.

use core::time::Duration;

use crate::error::{ConfigError, require};
use crate::limits::{self, Limits};
use crate::message::{Sdk, SemVer};
use crate::token::SessionToken;

/// Settings of an [`AgentConnection`](super::AgentConnection).
///
/// | setting | default |
/// |---|---|
/// | `welcome_timeout` | 10 s |
/// | `drain_time` | 5 s from a goodbye to the end |
/// | `debug_errors` | off: the `debug` member of errors is not written |
/// | `tools_check_inputs` | off: inputs are held against the tool's schema (feature `schema`) |
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) agent_id: String,
    pub(crate) agent_version: SemVer,
    pub(crate) token: SessionToken,
    pub(crate) manifest_hash: Option<String>,
    pub(crate) sdk: Option<Sdk>,
    pub(crate) limits: Limits,
    pub(crate) welcome_timeout: Duration,
    pub(crate) drain_time: Duration,
    pub(crate) debug_errors: bool,
    pub(crate) tools_check_inputs: bool,
}

impl Config {
    /// Settings of an agent with the token that it was launched with.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, agent_version: SemVer, token: SessionToken) -> Self {
        let version = SemVer::parse(env!("CARGO_PKG_VERSION"));
        Self {
            agent_id: agent_id.into(),
            agent_version,
            token,
            manifest_hash: None,
            sdk: version.map(|version| Sdk::new(env!("CARGO_PKG_NAME").into(), version)),
            limits: Limits::default(),
            welcome_timeout: limits::HANDSHAKE_TIMEOUT,
            drain_time: limits::DRAIN_TIME,
            debug_errors: false,
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

    /// Sets how long to wait for the welcome.
    #[must_use]
    pub const fn with_welcome_timeout(mut self, span: Duration) -> Self {
        self.welcome_timeout = span;
        self
    }

    /// Sets how long running calls may take after a goodbye.
    #[must_use]
    pub const fn with_drain_time(mut self, span: Duration) -> Self {
        self.drain_time = span;
        self
    }

    /// Sets whether the `debug` member of errors is written.
    #[must_use]
    pub const fn with_debug_errors(mut self, written: bool) -> Self {
        self.debug_errors = written;
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
