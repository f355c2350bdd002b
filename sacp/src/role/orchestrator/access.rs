//! Whether the sender of a message may have what its plan asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::any::MessageRef;
use crate::graph::{Graph, Step};
use crate::plan::Act;
use crate::registry::{AgentRecord, Registry, is_merge};
use crate::role::{Access, Authorizer};
use crate::trace::debug;

use super::Orchestrator;
use super::event::{Decision, Output};

impl<R: Registry> Orchestrator<R> {
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
