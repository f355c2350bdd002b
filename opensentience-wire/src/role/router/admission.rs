//! What must hold before a call is sent.

use std::sync::Arc;

use ubos_common::time::Now;

use super::config::Quota;
use super::quota::Refused;
use super::state::{Output, Route, RouteId, Router};
use crate::audit::{AuditEvent, AuditName};
use crate::error::named;
use crate::message::{ActorType, Caller, Health};
use crate::role::core::{CallRequest, Outcome};

impl Router {
    /// The agent that a call goes to.
    pub(super) fn admit(&self, now: Now, request: &CallRequest) -> Result<Arc<str>, Refused> {
        let missing = || match self.absent.contains(&request.tool_id) {
            true => Refused::Unavailable,
            false => Refused::ToolNotFound {
                tool: named(&request.tool_id),
            },
        };
        let tool = self.tools.get(request.tool_id.as_str());
        let tool = tool.ok_or_else(missing)?;
        let agent = self.agents.get(&tool.agent).filter(|agent| agent.up);
        let agent = agent.ok_or_else(missing)?;
        // A kind that is not known is trusted no more than an agent.
        let stranger = request.caller.as_ref();
        let stranger =
            stranger.filter(|caller| !matches!(caller.kind, ActorType::Human | ActorType::System));
        if stranger.is_some_and(|caller| !self.permits(caller, &request.tool_id)) {
            let permission = format!("tool:invoke:{}", request.tool_id);
            return Err(Refused::PermissionDenied { permission });
        }
        if tool.spec.requires_directive == Some(true) && request.causation_id.is_none() {
            return Err(Refused::DirectiveRequired);
        }
        if agent.health == Health::Unhealthy {
            return Err(Refused::Unhealthy);
        }
        let bytes = request.input.as_str().len();
        let calls = self.places.get(&tool.agent).copied().unwrap_or_default();
        let is_full =
            self.routes.len() >= self.config.max_calls || calls >= self.config.max_agent_calls;
        if is_full {
            return Err(Refused::Busy);
        }
        let own = self.quota(&request.tool_id);
        let [policy, manifest] = self.policy_quotas(&tool.agent);
        let limits =
            [own, policy, manifest, self.config.agent_quota].map(|quota| quota.max_input_bytes);
        let limit = limits.into_iter().flatten().min();
        if let Some(limit) = limit.filter(|limit| bytes > *limit) {
            return Err(Refused::InputTooLarge { bytes, limit });
        }
        (self.agent_meters).check(now.mono, &tool.agent, &self.config.agent_quota)?;
        (self.policy_meters).check(now.mono, &tool.agent, &policy)?;
        (self.manifest_meters).check(now.mono, &tool.agent, &manifest)?;
        (self.tool_meters).check(now.mono, &request.tool_id, &own)?;
        Ok(Arc::clone(&tool.agent))
    }

    /// Whether a caller that is no person may use a tool.
    fn permits(&self, caller: &Caller, tool_id: &str) -> bool {
        let policy = self.policies.get(caller.id.as_str());
        let policy = policy.filter(|_| caller.kind == ActorType::Agent);
        self.config.permits(&caller.id, tool_id)
            || policy.is_some_and(|policy| policy.permits(tool_id))
    }

    fn quota(&self, tool_id: &str) -> Quota {
        self.config
            .tool_quotas
            .get(tool_id)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn take_place(
        &mut self,
        now: Now,
        agent: &str,
        request: &CallRequest,
        route: RouteId,
    ) {
        let own = self.quota(&request.tool_id);
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.routes.insert(route);
        }
        (self.agent_meters).take(now.mono, agent, &self.config.agent_quota);
        let [policy, manifest] = self.policy_quotas(agent);
        self.policy_meters.take(now.mono, agent, &policy);
        self.manifest_meters.take(now.mono, agent, &manifest);
        self.tool_meters.take(now.mono, &request.tool_id, &own);
    }

    pub(super) fn give_place_back(&mut self, entry: &Route, route: RouteId) {
        self.forget_place(&entry.agent);
        if entry.follows {
            return;
        }
        if let Some(agent) = self.agents.get_mut(&entry.agent) {
            // One that was replaced meanwhile has its calls no more.
            agent.routes.remove(&route);
        }
        self.agent_meters.give_back(&entry.agent);
        self.policy_meters.give_back(&entry.agent);
        self.manifest_meters.give_back(&entry.agent);
        self.tool_meters.give_back(&entry.tool);
    }

    /// Every call takes a place of its agent, also one that waits for another.
    pub(super) fn count_place(&mut self, agent: &Arc<str>) {
        *self.places.entry(Arc::clone(agent)).or_default() += 1;
    }

    pub(super) fn forget_place(&mut self, agent: &Arc<str>) {
        if let Some(count) = self.places.get_mut(agent) {
            *count -= 1;
            if *count == 0 {
                self.places.remove(agent);
            }
        }
    }

    /// The most bytes of output that the quotas let a call have.
    pub(super) fn output_limit(&self, agent: &str, tool: &str) -> Option<usize> {
        let [policy, manifest] = self.policy_quotas(agent);
        let quotas = [self.quota(tool), policy, manifest, self.config.agent_quota];
        let limits = quotas.map(|quota| quota.max_output_bytes);
        limits.into_iter().flatten().min()
    }

    /// An outcome whose output is larger than the quota becomes a failure. A connection knows the quota that a call was sent
    /// with, and records that; what it did not refuse itself is recorded here.
    // impl: OSW-2-7
    pub(super) fn within_quota(&mut self, now: Now, entry: &Route, outcome: Outcome) -> Outcome {
        let limit = self.output_limit(&entry.agent, &entry.tool);
        let bytes = outcome
            .output
            .as_ref()
            .map_or(0, |output| output.as_str().len());
        match limit {
            Some(limit) if bytes > limit => {
                let refused = Outcome::failed(crate::role::output_too_large(bytes, limit));
                self.audit_end(now, entry, &refused, "the output is larger than a quota");
                refused
            }
            _ => outcome,
        }
    }

    /// Records the end of a call that its connection knows nothing of.
    // impl: OSW-8-1
    pub(super) fn audit_end(
        &mut self,
        now: Now,
        entry: &Route,
        outcome: &Outcome,
        detail: &'static str,
    ) {
        let mut event = AuditEvent::of(AuditName::CallCompleted, now.wall).with_detail(detail);
        event.agent_id = Some(entry.agent.to_string());
        event.tool_id = Some(entry.tool.to_string());
        event.status = Some(outcome.status.clone());
        event.code = outcome.error.as_ref().map(|error| error.code.recorded());
        event.bytes = outcome.output.as_ref().map(|o| o.as_str().len());
        if let Some(about) = &entry.about {
            event.request_id.clone_from(&about.request_id);
            event.correlation_id.clone_from(&about.correlation_id);
            event.causation_id.clone_from(&about.causation_id);
            event.caller.clone_from(&about.caller);
            let took = now.mono.saturating_since(about.asked);
            event.duration_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        }
        self.out.push(Output::Audit(Box::new(event)));
    }

    // impl: OSW-8-1
    pub(super) fn audit_refusal(&mut self, now: Now, request: &CallRequest, refused: &Refused) {
        let (name, detail) = match refused {
            Refused::PermissionDenied { .. } => (AuditName::Denied, "tool:invoke"),
            Refused::DirectiveRequired => (AuditName::Denied, "a directive"),
            Refused::ToolNotFound { .. } => (AuditName::CallRefused, "no such tool"),
            Refused::Unavailable => (AuditName::CallRefused, "the agent is being launched again"),
            Refused::Unhealthy => (AuditName::CallRefused, "the agent is unhealthy"),
            Refused::InputTooLarge { .. } => (AuditName::CallRefused, "the input is too large"),
            Refused::RateExceeded { .. } => (AuditName::CallRefused, "too many calls in a time"),
            Refused::ConcurrencyExceeded { .. } => {
                (AuditName::CallRefused, "too many calls at once")
            }
            Refused::Conflict => (
                AuditName::CallRefused,
                "the key was used with another input",
            ),
            Refused::Busy | Refused::Closing => (AuditName::CallRefused, "no room for a call"),
        };
        let mut event = AuditEvent::of(name, now.wall)
            .with_code(refused.into())
            .with_detail(detail);
        event.tool_id = Some(request.tool_id.clone());
        event.caller.clone_from(&request.caller);
        event.request_id.clone_from(&request.request_id);
        event.correlation_id.clone_from(&request.correlation_id);
        event.causation_id.clone_from(&request.causation_id);
        self.out.push(Output::Audit(Box::new(event)));
    }
}
