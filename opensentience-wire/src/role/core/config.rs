//! How a core treats its agents.

use core::time::Duration;

use crate::error::{ConfigError, require};
use crate::ledger::{Ledger, Share};
use crate::limits::{self, Limits, SHORT_PIECES};
use crate::role::rate::Rate;

/// How long a call waits for room by default.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);

ubos_common::config! {
    /// Settings of a [`CoreConnection`](super::CoreConnection).
    ///
    /// | setting | default |
    /// |---|---|
    /// | `heartbeat_interval` | 5 s |
    /// | `missed_heartbeats` | 3 intervals without one mean unhealthy |
    /// | `handshake_timeout` | 10 s |
    /// | `call_timeout` | no bound |
    /// | `call_rate` | no bound |
    /// | `room_timeout` | 30 s |
    /// | `agent_grants` | none: no agent may call a tool |
    /// | `closing_on_unknown_types` | off: a message of an unknown type that wants no answer is ignored |
    /// | `schemas_apart` | off: a registration compiles the schemas of its tools; the transport `tokio` has them compiled on other threads |
    ///
    /// A tool that requires a directive needs a `causation_id`. These spans are fixed: 1 s more than `timeout_ms` before
    /// a call ends without a result, 5 s from a cancel to the end, 5 s from a goodbye to the end.
    Config {
        /// Sets the bounds.
        with_limits: limits: Limits = Limits::default(),
        /// Sets how often the agent sends a heartbeat; at least a millisecond.
        with_heartbeat_interval: heartbeat_interval: Duration = limits::HEARTBEAT_INTERVAL,
        /// Sets how many intervals of silence mean bad health; at least one.
        with_missed_heartbeats: missed_heartbeats: u32 = 3,
        /// Sets how long to wait for the hello.
        with_handshake_timeout: handshake_timeout: Duration = limits::HANDSHAKE_TIMEOUT,
        /// Sets how long a call waits for room while too much waits to be sent, where the call's own time is not shorter. The
        /// transport `tokio` waits; the machine refuses what it has no room for.
        with_room_timeout: room_timeout: Duration = ROOM_TIMEOUT,
        /// Sets whether a message of an unknown type that wants no answer closes the connection.
        with_closing_on_unknown_types: closing_on_unknown_types: bool = false,
        /// Sets whether schemas are compiled elsewhere, as [`Output::CheckSchemas`](super::Output::CheckSchemas) asks, instead
        /// of by the connection while it takes the registration.
        with_schemas_apart: schemas_apart: bool = false,
    }
    into {
        /// Sets the longest time that a call may take, from the call on: one that asks for more, or for no end, gets this.
        ///
        /// Without it a call that asks for no end waits for as long as its agent is connected, healthy or not: a process that
        /// stands still keeps its connection. A router does not launch an unhealthy agent again while one of its calls runs.
        with_call_timeout: call_timeout: Option<Duration> = None,
    }
    also {
        agent_grants: Vec<String> = Vec::new(),
        call_rate: Option<Rate> = None,
        manifest_rate: Option<Rate> = None,
        directives: bool = true,
        core_version: String = env!("CARGO_PKG_VERSION").into(),
        instance_id: String = "core".into(),
    }
}

impl Config {
    /// Permits callers of kind agent the tools that `permission` names: `tool:invoke:` and a tool id in
    /// which `*` stands for any characters.
    #[must_use]
    pub fn with_agent_grant(mut self, permission: &str) -> Self {
        self.agent_grants.push(permission.into());
        self
    }

    /// Sets how many calls are taken in a span of time: at once, or each as soon as its part of the span is over. Both at least 1.
    /// Each connection begins anew: what outlives launches is the matter of a router's quotas.
    #[must_use]
    pub const fn with_call_rate(mut self, calls: u32, span: Duration) -> Self {
        self.call_rate = Some((calls, span));
        self
    }

    /// Sets whether a tool that requires a directive is refused without a cause.
    #[cfg(feature = "tokio")]
    pub(crate) const fn with_directives(mut self, required: bool) -> Self {
        self.directives = required;
        self
    }

    /// Sets what the welcome says of the core.
    #[must_use]
    pub fn with_server(mut self, core_version: &str, instance_id: &str) -> Self {
        self.core_version = core_version.into();
        self.instance_id = instance_id.into();
        self
    }

    /// Room for output that the agent may send before the core has looked at it.
    pub(crate) const fn room_bytes(&self) -> usize {
        self.limits.max_frame_bytes.saturating_add(SHORT_PIECES)
    }

    /// How many calls are taken in a span of time: all of them bind.
    pub(super) const fn rates(&self) -> [Option<Rate>; 2] {
        [self.call_rate, self.manifest_rate]
    }

    /// Refuses a ledger with which an agent could not be read.
    pub(super) fn check_ledger(&self, ledger: &Ledger) -> Result<(), ConfigError> {
        require(
            ledger.max_bytes_of(Share::Output) >= self.room_bytes(),
            "max_agent_bytes",
            ledger.max_bytes(),
            "3 of its 16 parts must have room for a frame of max_frame_bytes and 256 KiB of short pieces",
        )
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
            self.call_timeout.is_none_or(|span| !span.is_zero()),
            "call_timeout",
            self.call_timeout,
            "a call needs some time",
        )?;
        require(
            self.call_rate
                .is_none_or(|(calls, span)| calls > 0 && !span.is_zero()),
            "call_rate",
            self.call_rate,
            "a rate is of at least 1 call in a span of time",
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
    fn a_ledger_has_room_for_what_one_read_may_bring() {
        let mut config = Config::default();
        config.limits.max_frame_bytes = 1 << 20;
        let sixteenth = config.room_bytes().div_ceil(3);
        // A frame that makes it three parts to the byte.
        config.limits.max_frame_bytes += 3 * sixteenth - config.room_bytes();
        let check = |sixteenth| config.check_ledger(&Ledger::new(16 * sixteenth));
        assert_eq!(check(sixteenth), Ok(()));
        assert!(check(sixteenth - 1).is_err());
    }

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
