//! The agents of a bus, and which of them has a task.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::places::lock;
use crate::ident::{AgentId, TaskId};
use crate::task::Task;
use crate::transport::Service;

/// The agents of a bus.
#[derive(Default)]
pub(super) struct Agents(Mutex<State>);

#[derive(Default)]
struct State {
    agents: BTreeMap<String, Service>,
    /// The agents of the tasks that are on the bus: an agent does not know at once what it is given, and one that another
    /// takes the place of still has what it was given.
    given: BTreeMap<TaskKey, Given>,
    turn: usize,
}

/// Which task it is: the agent that it names is a part of its body.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TaskKey {
    task_id: TaskId,
    issuer: AgentId,
    agent: Option<String>,
}

struct Given {
    agent: Service,
    /// How often the task is on the bus.
    times: usize,
}

/// A task at its agent, until this is dropped.
pub(super) struct AtAgent<'a> {
    pub(super) agent: Service,
    agents: &'a Agents,
    key: TaskKey,
}

impl Agents {
    pub(super) fn attach(&self, id: String, agent: Service) {
        lock(&self.0).agents.insert(id, agent);
    }

    pub(super) fn ids(&self) -> Vec<String> {
        lock(&self.0).agents.keys().cloned().collect()
    }

    /// The agent that a task is given to. A task that is on the bus has its agent, and so has one that an agent knows.
    // impl: SAP-4.1-16, SAP-5-10
    pub(super) fn give(&self, task: &Task) -> Option<AtAgent<'_>> {
        let key = TaskKey::of(task);
        let mut state = lock(&self.0);
        let agent = match state.given.get_mut(&key) {
            Some(given) => {
                given.times += 1;
                given.agent.clone()
            }
            None => {
                let agent = state.choose(task)?;
                let given = Given {
                    agent: agent.clone(),
                    times: 1,
                };
                state.given.insert(key.clone(), given);
                agent
            }
        };
        Some(AtAgent {
            agent,
            agents: self,
            key,
        })
    }

    /// The agents that may know a task, likely ones first.
    pub(super) fn of(&self, task: &Task) -> Vec<Service> {
        let state = lock(&self.0);
        let given = state.given.get(&TaskKey::of(task));
        let given = given.map(|given| &given.agent);
        let named = task.target.agent_id.as_ref();
        let (able, others): (Vec<_>, Vec<_>) = state
            .agents
            .iter()
            .filter(|(id, _)| named.is_none_or(|named| named == *id))
            .map(|(_, agent)| agent)
            .partition(|agent| does(agent, task));
        given
            .into_iter()
            .chain(able)
            .chain(others)
            .cloned()
            .collect()
    }
}

impl State {
    /// The agent that the task names; else the one that knows it, or the next one in turn, of those that do what it wants.
    fn choose(&mut self, task: &Task) -> Option<Service> {
        if let Some(named) = &task.target.agent_id {
            return self
                .agents
                .get(named)
                .filter(|agent| does(agent, task))
                .cloned();
        }
        let able: Vec<_> = self
            .agents
            .values()
            .filter(|agent| does(agent, task))
            .collect();
        if let Some(knows) = able.iter().find(|agent| agent.processor().knows(task)) {
            return Some(Service::clone(knows));
        }
        let next = able.get(self.turn.checked_rem(able.len())?).copied();
        self.turn = self.turn.wrapping_add(1);
        next.cloned()
    }
}

impl TaskKey {
    fn of(task: &Task) -> Self {
        Self {
            task_id: task.task_id,
            issuer: task.issuer.agent_id.clone(),
            agent: task.target.agent_id.clone(),
        }
    }
}

impl Drop for AtAgent<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.agents.0);
        let Some(given) = state.given.get_mut(&self.key) else {
            return;
        };
        given.times -= 1;
        if given.times == 0 {
            state.given.remove(&self.key);
        }
    }
}

fn does(agent: &Service, task: &Task) -> bool {
    agent.processor().handles(&task.target.capability)
}
