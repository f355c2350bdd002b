//! Who may call what, and how much at once.

use core::time::Duration;
use std::collections::BTreeMap;

use super::RestartPolicy;

/// Settings of a [`Router`](super::Router).
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | `max_agents` | 1,024 | another agent is not taken in, and audited |
/// | `max_calls` | 4,096 | [`Refused::Busy`](super::Refused::Busy) |
/// | `max_remembered_calls`, `max_remembered_bytes` | 1,024, 16 MiB | the oldest results are forgotten |
/// | `grants` | none: no caller of kind agent may call a tool | |
/// | `directives` | a tool that requires one needs a `causation_id` | |
/// | `agent_quota`, `tool_quotas` | no bound beyond those of the connection | refused, retryable |
/// | `restart` | never | |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Agents that are known at once.
    pub max_agents: usize,
    /// Calls that have not ended, of all agents together.
    pub max_calls: usize,
    /// Ended calls with an idempotency key whose results are kept.
    pub max_remembered_calls: usize,
    /// Bytes of their inputs and results.
    pub max_remembered_bytes: usize,
    /// Permissions of callers of kind agent, by the caller's id; `*` is every one of them.
    pub grants: BTreeMap<String, Vec<String>>,
    /// Whether a tool that requires a directive is refused without a cause.
    pub directives: bool,
    /// What each agent gets.
    pub agent_quota: Quota,
    /// What single tools get, by id.
    pub tool_quotas: BTreeMap<String, Quota>,
    /// Whether agents are launched again.
    pub restart: RestartPolicy,
}

/// How much of an agent or a tool may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// So many calls in a span of time: a bucket of that size, filled evenly.
    pub rate: Option<(u32, Duration)>,
    /// Calls at once.
    pub concurrent: Option<usize>,
    /// Bytes of one input.
    pub max_input_bytes: Option<usize>,
    /// Bytes of one output.
    pub max_output_bytes: Option<usize>,
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

    /// Sets whether a tool that requires a directive is refused without a cause.
    #[must_use]
    pub const fn with_directives(mut self, required: bool) -> Self {
        self.directives = required;
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
            directives: true,
            agent_quota: Quota::default(),
            tool_quotas: BTreeMap::new(),
            restart: RestartPolicy::Never,
        }
    }
}
