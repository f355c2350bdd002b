//! Who may call what, and how much at once.

use core::time::Duration;
use std::collections::BTreeMap;

use super::RestartPolicy;
use crate::error::{ConfigError, require};
use crate::limits::MAX_AGENT_BYTES;

ubos_common::config! {
    /// Settings of a [`Router`](super::Router).
    ///
    /// | setting | default | at the bound |
    /// |---|---|---|
    /// | `max_agents` | 1,024 | another agent is not taken in, and audited |
    /// | `max_calls` | 4,096 | [`Refused::Busy`](super::Refused::Busy) |
    /// | `max_agent_calls` | 1,024 | the same, for one agent: it takes no place of the others |
    /// | `max_agent_bytes` | 80 MiB | as the [`Ledger`](crate::Ledger) of the agent says for each kind |
    /// | `max_remembered_calls`, `max_remembered_bytes` | 1,024, 16 MiB of all agents | the oldest results of the agent that holds the most are forgotten |
    /// | `grants` | none: no caller of kind agent may call a tool | |
    /// | `agent_quota`, `tool_quotas` | no bound beyond those of the connection | refused, retryable |
    /// | `restart` | never | |
    ///
    /// A tool that requires a directive needs a `causation_id`.
    Config {
        /// Sets how many agents there may be at once: 1,024 by default.
        with_max_agents: max_agents: usize = 1_024,
        /// Sets how many calls may run at once: 4,096 by default.
        with_max_calls: max_calls: usize = 4_096,
        /// Sets how many calls of one agent's tools may run at once: 1,024 by default.
        with_max_agent_calls: max_agent_calls: usize = 1_024,
        /// Sets the bytes of everything that is kept for one agent, by the router and by its connections: 80 MiB by default.
        with_max_agent_bytes: max_agent_bytes: usize = MAX_AGENT_BYTES,
        /// Sets what each agent gets.
        with_agent_quota: agent_quota: Quota = Quota::default(),
        /// Sets whether agents are launched again.
        with_restart: restart: RestartPolicy = RestartPolicy::Never,
    }
    also {
        max_remembered_calls: usize = 1_024,
        max_remembered_bytes: usize = 16 << 20,
        grants: BTreeMap<String, Vec<String>> = BTreeMap::new(),
        tool_quotas: BTreeMap<String, Quota> = BTreeMap::new(),
    }
}

ubos_common::config! {
    /// How much of an agent or a tool may be used: no bound by default.
    #[derive(Copy, PartialEq, Eq)]
    Quota {}
    into {
        /// Sets how many calls may run at once.
        with_concurrent: concurrent: Option<usize> = None,
        /// Sets the bytes of one input.
        with_max_input_bytes: max_input_bytes: Option<usize> = None,
        /// Sets the bytes of the output of one result. Pieces on the way, figures and errors have bounds of their own: see
        /// [`Ledger`](crate::Ledger).
        with_max_output_bytes: max_output_bytes: Option<usize> = None,
    }
    also {
        rate: Option<(u32, Duration)> = None,
    }
}

impl Quota {
    /// Sets how many calls may begin in a span of time.
    #[must_use]
    pub const fn with_rate(mut self, calls: u32, span: Duration) -> Self {
        self.rate = Some((calls, span));
        self
    }

    pub(super) fn check(&self, setting: &'static str) -> Result<(), ConfigError> {
        require(
            self.concurrent != Some(0),
            setting,
            self.concurrent,
            "at least 1 call must be allowed at once",
        )?;
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

    /// Sets what a tool gets.
    #[must_use]
    pub fn with_tool_quota(mut self, tool_id: &str, quota: Quota) -> Self {
        self.tool_quotas.insert(tool_id.to_owned(), quota);
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
