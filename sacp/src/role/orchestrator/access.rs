//! Whether a plan may run: what the check says of it, and whether its sender may have what it asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use ubos_common::time::Now;
use ubos_common::violation::{Level, Violation};

use crate::any::MessageRef;
use crate::check::{Finding, check_plan};
use crate::error::Code;
use crate::graph::{Graph, Step};
use crate::plan::Act;
use crate::registry::{AgentRecord, Registry, is_merge};
use crate::reply::{Clarify, ErrReply};
use crate::role::{Access, Authorizer};
use crate::trace::debug;
use crate::validate::code_of;

use super::Orchestrator;
use super::event::{Decision, Output};

impl<R: Registry> Orchestrator<R> {
    /// Answers a plan with a MUST finding. Where only inputs are wanting that the sender can give, it is asked for them.
    // impl: SACP-3-7
    pub(super) fn is_refused(&mut self, now: Now, with_registry: bool) -> bool {
        let musts = self.refusals(with_registry);
        let Some(first) = musts.first() else {
            return false;
        };
        match musts.iter().find(|finding| finding.question.is_none()) {
            Some(fault) => self.refuse(now, refusal(&fault.violation)),
            None => {
                let missing = musts
                    .iter()
                    .filter_map(|finding| finding.question.as_deref());
                let clarify = Clarify::new(missing, first.violation.message.as_ref());
                self.ask_back(now, clarify);
            }
        }
        true
    }

    /// The MUST findings for which the plan is refused: none where they are overruled, which is remembered.
    fn refusals(&mut self, with_registry: bool) -> Vec<Finding> {
        let message = &self.request;
        let registry = with_registry.then_some(&self.registry as &dyn Registry);
        let graph = Graph::from(message);
        // A rehearsed spawn registers nothing, so that its acts are served by nobody.
        let is_rehearsed = |finding: &Finding| {
            let act = finding.step.and_then(|step| graph.step(step));
            let pair = act.map(|step| (step.act.verb.clone(), step.act.tool.clone()));
            let unserved = [Code::UnknownVerb, Code::UnknownTool, Code::NoAgentFound];
            unserved
                .iter()
                .any(|code| code.as_str() == finding.violation.code)
                && pair.is_some_and(|pair| self.simulated_spawns.contains(&pair))
        };
        let musts: Vec<Finding> = check_plan(message, registry, &self.config.check)
            .into_iter()
            .filter(|finding| finding.violation.level == Level::Must && !is_rehearsed(finding))
            .collect();
        if self.config.overrule {
            self.overruled = musts.into_iter().map(|finding| finding.violation).collect();
            return Vec::new();
        }
        musts
    }

    /// The first step that the sender may not have, of all those that an agent would be asked or spawned for. Each verb and
    /// tool is decided once.
    pub(super) fn denied(&mut self) -> Option<Step> {
        let authorizer = self.config.authorizer.clone()?;
        let graph = Graph::from(&self.request);
        let mut decided = BTreeSet::new();
        for step in graph.steps().iter().filter(|step| step.subtask.is_none()) {
            let (verb, tool) = (step.act.verb.as_str(), step.act.tool.as_str());
            if is_merge(verb, tool) || !decided.insert((verb, tool)) {
                continue;
            }
            let agents = self.registry.agents_for(verb, tool);
            // A verb of the protocol that nobody serves is neither delegated nor spawned.
            if agents.is_empty() && crate::registry::KNOWN_VERBS.contains(&verb) {
                continue;
            }
            if !self
                .decide(&*authorizer, step.number, &step.act, &agents, 0)
                .0
            {
                return Some(step.clone());
            }
        }
        None
    }

    /// The agent with this rank among those that the sender may ask; `Err` if it may ask none of them.
    pub(super) fn allowed(
        &mut self,
        step: usize,
        act: &Act,
        rank: usize,
    ) -> Result<Option<Arc<AgentRecord>>, ()> {
        let agents = self.registry.ready_for(&act.verb, &act.tool);
        let Some(authorizer) = self
            .config
            .authorizer
            .clone()
            .filter(|_| !agents.is_empty())
        else {
            return Ok(agents.get(rank).cloned());
        };
        match self.decide(&*authorizer, step, act, &agents, rank) {
            (true, agent) => Ok(agent),
            (false, _) => Err(()),
        }
    }

    /// Whether one of the agents may be asked, or one may be spawned where there is none; and the one with this rank.
    fn decide(
        &mut self,
        authorizer: &dyn Authorizer,
        step: usize,
        act: &Act,
        agents: &[Arc<AgentRecord>],
        rank: usize,
    ) -> (bool, Option<Arc<AgentRecord>>) {
        let def = self.registry.verb(&act.verb);
        let verb = def.map_or_else(|| act.verb.clone(), |def| def.name.clone());
        let sender = match (&self.config.requester, MessageRef::from(&self.request)) {
            (Some(requester), _) => Some(requester.clone()),
            (None, MessageRef::V10(request)) => Some(request.sender.as_str().to_owned()),
            (None, MessageRef::V01(_)) => None,
        };
        let allows = |agent: Option<&str>| {
            authorizer.allows(&Access {
                sender: sender.as_deref(),
                verb: &verb,
                tool: &act.tool,
                agent,
            })
        };
        let mut allowed = agents
            .iter()
            .filter(|agent| allows(Some(&*agent.agent_name)));
        let first = allowed.next();
        let chosen = match rank.checked_sub(1) {
            None => first,
            Some(further) => allowed.nth(further),
        };
        let is_allowed = first.is_some() || agents.is_empty() && allows(None);
        debug!(step, allowed = is_allowed, "authorization decided");
        let chosen = chosen.cloned();
        self.out.push(Output::Decided(Box::new(Decision {
            step,
            agent: chosen.as_ref().map(|agent| agent.agent_name.clone()),
            sender,
            verb,
            tool: act.tool.clone(),
            is_allowed,
        })));
        (is_allowed, chosen)
    }
}

/// The answer to a plan with a finding.
fn refusal(finding: &Violation) -> ErrReply {
    ErrReply::new(code_of(finding), finding.message.as_ref()).at(&finding.pointer)
}
