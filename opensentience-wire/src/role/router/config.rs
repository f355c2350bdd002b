//! Who may call what, and how much at once.

use core::time::Duration;
use std::collections::BTreeMap;

use super::RestartPolicy;
use crate::error::{ConfigError, require};

/// Settings of a [`Router`](super::Router).
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | `max_agents` | 1,024 | another agent is not taken in, and audited |
/// | `max_calls` | 4,096 | [`Refused::Busy`](super::Refused::Busy) |
/// | `max_remembered_calls`, `max_remembered_bytes` | 1,024, 16 MiB | the oldest results are forgotten |
/// | `grants` | none: no caller of kind agent may call a tool | |
/// | `agent_quota`, `tool_quotas` | no bound beyond those of the connection | refused, retryable |
/// | `restart` | never | |
///
/// A tool that requires a directive needs a `causation_id`.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) max_agents: usize,
    pub(crate) max_calls: usize,
    pub(crate) max_remembered_calls: usize,
    pub(crate) max_remembered_bytes: usize,
    pub(crate) grants: BTreeMap<String, Vec<String>>,
    pub(crate) agent_quota: Quota,
    pub(crate) tool_quotas: BTreeMap<String, Quota>,
    pub(crate) restart: RestartPolicy,
}

/// How much of an agent or a tool may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub(super) rate: Option<(u32, Duration)>,
    pub(super) concurrent: Option<usize>,
    pub(super) max_input_bytes: Option<usize>,
    pub(super) max_output_bytes: Option<usize>,
}

impl Quota {
    /// So many calls in a span of time.
    #[must_use]
    pub const fn with_rate(mut self, calls: u32, span: Duration) -> Self {
        self.rate = Some((calls, span));
        self
    }

    /// So many calls at once.
    #[must_use]
    pub const fn with_concurrent(mut self, calls: usize) -> Self {
        self.concurrent = Some(calls);
        self
    }

    /// Bytes of one input, and of one output.
    #[must_use]
    pub const fn with_bytes(mut self, input: usize, output: usize) -> Self {
        (self.max_input_bytes, self.max_output_bytes) = (Some(input), Some(output));
        self
    }

    fn check(&self, setting: &'static str) -> Result<(), ConfigError> {
        require(
            self.rate
                .is_none_or(|(calls, span)| calls > 0 && !span.is_zero()),
            setting,
            self.rate,
            "a rate needs at least 1 call in a span that is not zero",
        )
    }
}

impl Config {
    /// Permits a caller of kind agent (`*`: every one) the tools that a permission names: `tool:invoke:` and a tool id in
    /// which `*` stands for any characters.
    #[must_use]
    pub fn with_grant(mut self, caller: &str, permission: &str) -> Self {
        self.grants
            .entry(caller.to_owned())
            .or_default()
            .push(permission.to_owned());
        self
    }

    /// Sets what each agent gets.
    #[must_use]
    pub const fn with_agent_quota(mut self, quota: Quota) -> Self {
        self.agent_quota = quota;
        self
    }

    /// Sets what a tool gets.
    #[must_use]
    pub fn with_tool_quota(mut self, tool_id: &str, quota: Quota) -> Self {
        self.tool_quotas.insert(tool_id.to_owned(), quota);
        self
    }

    /// Sets whether agents are launched again.
    #[must_use]
    pub const fn with_restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = policy;
        self
    }

    /// Sets how many agents and calls there may be at once.
    #[must_use]
    pub const fn with_bounds(mut self, agents: usize, calls: usize) -> Self {
        (self.max_agents, self.max_calls) = (agents, calls);
        self
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        require(
            self.max_agents > 0,
            "max_agents",
            self.max_agents,
            "a router needs room for at least 1 agent",
        )?;
        require(
            self.max_calls > 0,
            "max_calls",
            self.max_calls,
            "a router needs room for at least 1 call",
        )?;
        self.agent_quota.check("agent_quota")?;
        self.tool_quotas
            .values()
            .try_for_each(|quota| quota.check("tool_quota"))
    }

    /// Whether a caller of kind agent may use a tool.
    pub(super) fn permits(&self, caller: &str, tool_id: &str) -> bool {
        let own = self
            .grants
            .get(caller)
            .into_iter()
            .chain(self.grants.get("*"));
        own.flatten()
            .any(|grant| crate::role::core::permits(grant, tool_id))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_agents: 1_024,
            max_calls: 4_096,
            max_remembered_calls: 1_024,
            max_remembered_bytes: 16 << 20,
            grants: BTreeMap::new(),
            agent_quota: Quota::default(),
            tool_quotas: BTreeMap::new(),
            restart: RestartPolicy::Never,
        }
    }
}
