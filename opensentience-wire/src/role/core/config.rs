//! How a core treats its agents.

use core::time::Duration;

use crate::error::{ConfigError, require};
use crate::limits::{self, Limits};

/// Settings of a [`CoreConnection`](super::CoreConnection).
///
/// | setting | default |
/// |---|---|
/// | `heartbeat_interval` | 5 s |
/// | `missed_heartbeats` | 3 intervals without one mean unhealthy |
/// | `handshake_timeout` | 10 s |
/// | `agent_grants` | none: no agent may call a tool |
/// | `closing_on_unknown_types` | off: a message of an unknown type that wants no answer is ignored |
///
/// A tool that requires a directive needs a `causation_id`. These spans are fixed: 1 s more than `timeout_ms` before
/// a call ends without a result, 5 s from a cancel to the end, 5 s from a goodbye to the end.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) limits: Limits,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) missed_heartbeats: u32,
    pub(crate) handshake_timeout: Duration,
    pub(crate) agent_grants: Vec<String>,
    pub(crate) directives: bool,
    pub(crate) closing_on_unknown_types: bool,
    pub(crate) core_version: String,
    pub(crate) instance_id: String,
}

impl Config {
    /// Sets the bounds.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how often the agent sends a heartbeat; at least a millisecond.
    #[must_use]
    pub const fn with_heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self
    }

    /// Sets how many intervals of silence mean bad health; at least one.
    #[must_use]
    pub const fn with_missed_heartbeats(mut self, intervals: u32) -> Self {
        self.missed_heartbeats = intervals;
        self
    }

    /// Sets how long to wait for the hello.
    #[must_use]
    pub const fn with_handshake_timeout(mut self, span: Duration) -> Self {
        self.handshake_timeout = span;
        self
    }

    /// Permits callers of kind agent the tools that `permission` names: `tool:invoke:` and a tool id in
    /// which `*` stands for any characters.
    #[must_use]
    pub fn with_agent_grant(mut self, permission: &str) -> Self {
        self.agent_grants.push(permission.into());
        self
    }

    /// Sets whether a tool that requires a directive is refused without a cause.
    #[cfg(feature = "tokio")]
    pub(crate) const fn with_directives(mut self, required: bool) -> Self {
        self.directives = required;
        self
    }

    /// Closes the connection on a message of an unknown type that wants no answer.
    #[must_use]
    pub const fn with_closing_on_unknown_types(mut self) -> Self {
        self.closing_on_unknown_types = true;
        self
    }

    /// Sets what the welcome says of the core.
    #[must_use]
    pub fn with_server(mut self, core_version: &str, instance_id: &str) -> Self {
        self.core_version = core_version.into();
        self.instance_id = instance_id.into();
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        require(
            self.heartbeat_interval >= Duration::from_millis(1),
            "heartbeat_interval",
            self.heartbeat_interval,
            "the welcome announces it in milliseconds and needs at least 1",
        )?;
        require(
            self.missed_heartbeats > 0,
            "missed_heartbeats",
            self.missed_heartbeats,
            "an agent is unhealthy after at least 1 missed heartbeat",
        )
    }

    /// Whether callers of kind agent may use a tool.
    // impl: OSW-4.3-2
    pub(super) fn agents_may_call(&self, tool_id: &str) -> bool {
        self.agent_grants
            .iter()
            .any(|grant| permits(grant, tool_id))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            heartbeat_interval: limits::HEARTBEAT_INTERVAL,
            missed_heartbeats: 3,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            agent_grants: Vec::new(),
            directives: true,
            closing_on_unknown_types: false,
            core_version: env!("CARGO_PKG_VERSION").into(),
            instance_id: "core".into(),
        }
    }
}

/// Whether a permission covers a tool.
pub(crate) fn permits(permission: &str, tool_id: &str) -> bool {
    let pattern = permission.strip_prefix("tool:invoke:");
    pattern.is_some_and(|pattern| matches(pattern, tool_id))
}

/// Whether `text` is `pattern`, in which each `*` stands for any characters, also none.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, same) in [
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("*/b", "x.y/b", true),
            ("*", "", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches(pattern, text), same, "{pattern} {text}");
        }
    }
}
