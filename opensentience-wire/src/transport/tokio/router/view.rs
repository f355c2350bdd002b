//! What a router shows of its agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::Ledger;
use crate::message::{Health, SharedTools, ToolSpec};

/// What is there to be called, as it was a moment ago.
///
/// A view never changes, but for what ledgers say. The next one shares with it whatever is the same, so that a change costs what has changed, and an
/// older view costs what has changed since.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct View {
    /// Counts the changes: views of one router with the same version are the same.
    pub version: u64,
    /// The agents that are connected, by id.
    pub agents: BTreeMap<Arc<str>, Arc<AgentView>>,
}

/// What an agent that is connected offers, and how it is.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentView {
    /// How it is.
    pub health: Health,
    /// Its tools, by id, without those whose ids another agent has.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// What is kept for it, now: the one thing of a view that changes.
    pub ledger: Ledger,
}

impl View {
    /// The tools of all agents, by agent.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.agents.values().flat_map(|agent| agent.tools.iter())
    }

    /// Shows an agent as it is now, or no more; gives whether that is a change.
    pub(super) fn show(this: &mut Arc<Self>, agent: &Arc<str>, now: Option<AgentView>) -> bool {
        let shown = this.agents.get(agent);
        match (shown, now) {
            (None, None) => return false,
            (Some(_), None) => {
                Self::next(this).agents.remove(agent);
            }
            (shown, Some(mut now)) => {
                if let Some(shown) = shown
                    && are_same(&shown.tools, &now.tools)
                {
                    if shown.health == now.health {
                        return false;
                    }
                    now.tools = Arc::clone(&shown.tools);
                }
                let agents = &mut Self::next(this).agents;
                agents.insert(Arc::clone(agent), Arc::new(now));
            }
        }
        true
    }

    /// The view that takes the place of this one; it is this one where nobody else has it.
    fn next(this: &mut Arc<Self>) -> &mut Self {
        let next = Arc::make_mut(this);
        next.version += 1;
        next
    }
}

/// Declarations are shared: the same one is the same pointer.
fn are_same(some: &SharedTools, others: &SharedTools) -> bool {
    let others = others.iter().map(Arc::as_ptr);
    some.iter().map(Arc::as_ptr).eq(others)
}

#[cfg(test)]
mod tests {
    use ubos_common::json::RawObject;

    use super::*;

    fn tools(count: usize) -> SharedTools {
        let tool = |n| Arc::new(ToolSpec::local(&format!("t{n}"), "d", RawObject::empty()));
        (0..count).map(tool).collect()
    }

    fn agent(health: Health, tools: &SharedTools) -> Option<AgentView> {
        let tools = tools.iter().cloned().collect();
        let ledger = Ledger::new(0);
        Some(AgentView {
            health,
            tools,
            ledger,
        })
    }

    #[test]
    fn a_change_of_one_agent_among_a_thousand_leaves_the_others_where_they_are() {
        let ids: Vec<Arc<str>> = (0..1_000).map(|n| format!("agent-{n:04}").into()).collect();
        let mut view = Arc::<View>::default();
        for id in &ids {
            assert!(View::show(&mut view, id, agent(Health::Ok, &tools(3))));
        }
        assert_eq!((view.version, view.tools().count()), (1_000, 3_000));
        let own = Arc::clone(&view.agents[&ids[500]].tools);
        for (count, health, is_change) in [
            (3, Health::Ok, false),
            (3, Health::Degraded, true),
            (4, Health::Degraded, true),
            (0, Health::Degraded, true),
        ] {
            let before = Arc::clone(&view);
            let offered = if count == 3 {
                Arc::clone(&own)
            } else {
                tools(count)
            };
            let changed = View::show(&mut view, &ids[500], agent(health, &offered));
            assert_eq!(changed, is_change, "{count}");
            assert_eq!(view.version, before.version + u64::from(is_change));
            let is_shared = |id: &&Arc<str>| Arc::ptr_eq(&view.agents[*id], &before.agents[*id]);
            let shared = ids.iter().filter(is_shared).count();
            assert_eq!(shared, 1_000 - usize::from(is_change), "{count}");
            assert_eq!(view.agents[&ids[500]].tools.len(), count);
            // One who is well again offers what it has offered.
            let is_kept = Arc::ptr_eq(&own, &view.agents[&ids[500]].tools);
            assert_eq!(is_kept, count == 3);
        }
        // What nobody else looks at is changed in its place.
        let place = Arc::as_ptr(&view);
        assert!(View::show(&mut view, &ids[0], None));
        assert!(!View::show(&mut view, &ids[0], None));
        assert_eq!((Arc::as_ptr(&view), view.agents.len()), (place, 999));
    }
}
