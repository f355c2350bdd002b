//! What happens at the agents: they come, change, become unwell, go, and are replaced.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use ubos_common::time::Now;

use super::config::Quota;
use super::policy::AgentPolicy;
use super::restart::{Ended, RestartPolicy, Supervision};
use super::state::{Agent, Output, Router, Timer, Tool};
use crate::audit::AuditName;
use crate::error::{ConfigError, ErrorCode, ErrorObject, require};
use crate::message::{Health, ToolSpec};
use crate::role::core::Outcome;
use crate::trace::debug;

impl Router {
    /// Sets what an agent may do and how much of it may be used, whether or not it is there: from the next call on.
    ///
    /// # Errors
    ///
    /// A setting is out of its range, or as many agents have policies as there may be agents.
    pub fn set_policy(&mut self, agent: &str, policy: AgentPolicy) -> Result<(), ConfigError> {
        policy.check()?;
        let is_new = !self.policies.contains_key(agent);
        let policies = self.policies.len() + usize::from(is_new);
        let limit = self.config.max_agents;
        let wanted = "more agents have policies";
        require(policies <= limit, "max_agents", limit, wanted)?;
        let restart = policy.restart.unwrap_or(self.config.restart);
        if let Some(entry) = self.agents.get_mut(agent) {
            entry.supervision.set_policy(restart);
        }
        self.policies.insert(agent.into(), policy);
        Ok(())
    }

    /// Has an agent be under the settings of the router alone.
    pub fn clear_policy(&mut self, agent: &str) {
        self.policies.remove(agent);
    }

    fn restart_of(&self, agent: &str) -> RestartPolicy {
        let own = self.policies.get(agent).and_then(|policy| policy.restart);
        own.unwrap_or(self.config.restart)
    }

    /// How much of an agent its own policy lets be used, and its manifest.
    pub(super) fn policy_quotas(&self, agent: &str) -> [Quota; 2] {
        let policy = self.policies.get(agent);
        policy.map_or_else(Default::default, |policy| {
            [policy.quota, policy.manifest_quota]
        })
    }

    /// The time that a call of an agent's tool has: what was asked for, as far as the agent's policy allows.
    pub(super) fn time_of(&self, agent: &str, asked: Option<Duration>) -> Option<Duration> {
        let own = self.policies.get(agent).and_then(AgentPolicy::longest_call);
        asked.into_iter().chain(own).min()
    }

    /// Whether an agent has a place, or there is one for it. Each has one until its process has ended.
    #[must_use]
    pub fn has_room_for(&self, agent: &str) -> bool {
        self.agents.contains_key(agent) || self.agents.len() < self.config.max_agents
    }

    /// Knows an agent from now on; gives whether there is room for it.
    fn know(&mut self, now: Now, agent: &str) -> bool {
        if self.agents.contains_key(agent) {
            return true;
        }
        if !self.has_room_for(agent) {
            let detail = "more agents than the router takes";
            self.note(now, agent, AuditName::MessageRejected, detail);
            return false;
        }
        let entry = Agent {
            up: false,
            health: Health::Ok,
            tools: BTreeSet::new(),
            routes: BTreeSet::new(),
            supervision: Supervision::new(self.restart_of(agent)),
            stopping: false,
        };
        self.agents.insert(agent.into(), entry);
        true
    }

    pub(super) fn on_up(&mut self, now: Now, agent: &str, tools: Vec<Arc<ToolSpec>>) {
        if !self.know(now, agent) {
            return;
        }
        self.timers.clear(&Timer::Launch(agent.into()));
        self.absent.forget(agent);
        let Some(entry) = self.agents.get_mut(agent) else {
            return;
        };
        debug!(%agent, tools = tools.len(), "agent is up");
        // The calls of the one that it replaces go on there, and end by themselves.
        entry.routes.clear();
        (entry.up, entry.health, entry.stopping) = (true, Health::Ok, false);
        entry.supervision.came_up(now.mono);
        self.on_tools(now, agent, tools);
    }

    /// Takes what an agent offers now. A tool that another agent has stays with that one.
    pub(super) fn on_tools(&mut self, now: Now, agent: &str, tools: Vec<Arc<ToolSpec>>) {
        let Some((name, entry)) = self
            .agents
            .get_key_value(agent)
            .filter(|(_, entry)| entry.up)
        else {
            return;
        };
        let name = Arc::clone(name);
        for id in &entry.tools {
            self.tools.remove(id);
        }
        let mut owned = BTreeSet::new();
        let mut taken = false;
        for spec in tools {
            let id: Box<str> = spec.tool_id.as_str().into();
            if self.tools.contains_key(&id) {
                taken = true;
                continue;
            }
            let agent = Arc::clone(&name);
            self.tools.insert(id.clone(), Tool { agent, spec });
            owned.insert(id);
        }
        if let Some(entry) = self.agents.get_mut(&name) {
            entry.tools = owned;
        }
        if taken {
            self.note(
                now,
                &name,
                AuditName::MessageRejected,
                "a tool that another agent has",
            );
        }
    }

    // impl: OSW-4.5-2
    pub(super) fn on_health(&mut self, agent: &str, health: Health) {
        // One that is being ended for its health is not saved by a last good word.
        if let Some(entry) = self.agents.get_mut(agent).filter(|entry| !entry.stopping) {
            entry.health = health;
        }
        self.stop_if_unwell(agent);
    }

    /// An unhealthy agent whose policy wants another one is ended once none of its calls runs.
    pub(super) fn stop_if_unwell(&mut self, agent: &str) {
        let Some(entry) = self.agents.get_mut(agent) else {
            return;
        };
        let unwell = entry.up && entry.health == Health::Unhealthy && entry.routes.is_empty();
        if unwell && !entry.stopping && entry.supervision.restarts() {
            entry.stopping = true;
            self.out.push(Output::Stop {
                agent: agent.into(),
            });
            // Its process may take long to end.
            self.expect_back(agent);
            self.on_stopping(agent);
        }
    }

    /// Gives an agent no more calls; those that run go on.
    pub(super) fn on_stopping(&mut self, agent: &str) {
        let Some(entry) = self.agents.get_mut(agent) else {
            return;
        };
        entry.up = false;
        for tool in core::mem::take(&mut entry.tools) {
            self.tools.remove(&tool);
        }
    }

    /// Expects the tools of an agent that goes back where it may be launched again.
    fn expect_back(&mut self, agent: &str) {
        let Some((name, entry)) = self.agents.get_key_value(agent) else {
            return;
        };
        if entry.up && entry.supervision.restarts() {
            let (name, tools) = (Arc::clone(name), entry.tools.clone());
            let ledger = self.ledger(&name);
            self.absent.expect(&name, &ledger, tools);
        }
    }

    // impl: OSW-4.5-3
    pub(super) fn on_disconnected(&mut self, agent: &str) {
        self.expect_back(agent);
        self.on_stopping(agent);
    }

    pub(super) fn on_stopped(&mut self, agent: &str) {
        let Some((name, entry)) = self.agents.get_key_value(agent) else {
            return;
        };
        if !entry.up {
            let name = Arc::clone(name);
            self.timers.clear(&Timer::Launch(Arc::clone(&name)));
            self.forget(&name);
        }
    }

    /// Keeps nothing of an agent that is gone for good.
    fn forget(&mut self, agent: &str) {
        self.agents.remove(agent);
        self.absent.forget(agent);
    }

    /// One that never came up is known all the same, for it is to be launched again.
    pub(super) fn on_launch_failed(&mut self, now: Now, agent: &str) {
        if self.know(now, agent) {
            self.on_down(now, agent, Ended::Failed);
        }
    }

    pub(super) fn on_down(&mut self, now: Now, agent: &str, ended: Ended) {
        self.on_disconnected(agent);
        let routes = self.agents.get(agent).map(|entry| entry.routes.clone());
        for route in routes.into_iter().flatten() {
            let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the connection has ended");
            let ended = Outcome::failed(error.noticed_by("core.router"));
            self.on_ended(now, route, ended, true);
        }
        let Some((name, entry)) = self.agents.get_key_value(agent) else {
            return;
        };
        let (name, was_unwell) = (Arc::clone(name), entry.health == Health::Unhealthy);
        let Some(entry) = self.agents.get_mut(&name) else {
            return;
        };
        debug!(%agent, ?ended, "agent is down");
        match entry.supervision.went_down(now.mono, ended, was_unwell) {
            Some(delay) => {
                let at = now.mono.saturating_add(delay);
                self.timers.set(Timer::Launch(name), at);
            }
            None => self.forget(&name),
        }
    }
}
