//! The agents, and an index from skill to agents in the order in which they are offered jobs.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::time::Mono;

use crate::{
    capability::{Skill, Skills, meets},
    id::{ClientId, SessionId, StreamId},
    wire::Payload,
};

/// One registered agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) name: String,
    pub(super) skills: Skills,
    /// The open control stream; without one the agent is offered nothing.
    pub(super) listen: Option<StreamId>,
    /// Its proposals and sessions that have not ended.
    pub(super) sessions: BTreeSet<SessionId>,
    /// When it last got free of a session, or began to listen.
    idle_since: Mono,
    /// Breaks ties.
    order: u64,
}

impl Agent {
    /// Whether the agent may be offered this work, its load aside.
    pub(super) fn can_do(&self, skill: &Skill, payloads: &[Payload]) -> bool {
        self.listen.is_some() && self.has_skill(skill, payloads)
    }

    /// Whether the agent would be capable of this work if it listened.
    pub(super) fn has_skill(&self, skill: &Skill, payloads: &[Payload]) -> bool {
        self.skills
            .get(skill)
            .is_some_and(|required| meets(required, payloads))
    }

    fn rank(&self, id: &ClientId) -> Option<Rank> {
        self.listen?;
        Some(Rank {
            load: self.sessions.len(),
            idle_since: self.idle_since,
            order: self.order,
            id: id.clone(),
        })
    }
}

/// Least loaded first, then longest idle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    load: usize,
    idle_since: Mono,
    order: u64,
    id: ClientId,
}

/// All agents. The index holds exactly the listening ones, under each of their skills, by their rank.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    agents: BTreeMap<ClientId, Agent>,
    index: BTreeMap<Skill, BTreeSet<Rank>>,
    registered: u64,
    listening: usize,
}

impl Fleet {
    pub(super) fn len(&self) -> usize {
        self.agents.len()
    }

    /// Agents whose control stream is open.
    pub(super) const fn listening(&self) -> usize {
        self.listening
    }

    pub(super) fn get(&self, id: &str) -> Option<&Agent> {
        self.agents.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ClientId, &Agent)> {
        self.agents.iter()
    }

    pub(super) fn register(&mut self, now: Mono, id: ClientId, name: String, skills: Skills) {
        self.registered += 1;
        let (listen, sessions) = (None, BTreeSet::new());
        self.agents.insert(
            id,
            Agent {
                name,
                skills,
                listen,
                sessions,
                idle_since: now,
                order: self.registered,
            },
        );
    }

    /// Sets the control stream; gives the one that it replaces.
    pub(super) fn listen(
        &mut self,
        now: Mono,
        id: &ClientId,
        stream: StreamId,
    ) -> Option<StreamId> {
        self.update(id, |agent| {
            let old = agent.listen.replace(stream);
            if old.is_none() {
                agent.idle_since = now;
            }
            old
        })?
    }

    pub(super) fn add_session(&mut self, id: &ClientId, session: SessionId) {
        self.update(id, |agent| agent.sessions.insert(session));
    }

    pub(super) fn remove_session(&mut self, now: Mono, id: &ClientId, session: &SessionId) {
        self.update(id, |agent| {
            if agent.sessions.remove(session) {
                agent.idle_since = now;
            }
        });
    }

    pub(super) fn remove(&mut self, id: &ClientId) -> Option<Agent> {
        self.update(id, |agent| agent.listen = None);
        self.agents.remove(id)
    }

    /// The listening agents with a skill, in the order of choice.
    pub(super) fn candidates(&self, skill: &Skill) -> impl Iterator<Item = (&ClientId, &Agent)> {
        let ranks = self.index.get(skill).into_iter().flatten();
        ranks.filter_map(|rank| self.agents.get_key_value(&rank.id))
    }

    /// Changes an agent and keeps the index right.
    fn update<T>(&mut self, id: &ClientId, change: impl FnOnce(&mut Agent) -> T) -> Option<T> {
        let agent = self.agents.get_mut(id)?;
        let before = agent.rank(id);
        let made = change(agent);
        let after = agent.rank(id);
        if before != after {
            self.listening =
                self.listening + usize::from(after.is_some()) - usize::from(before.is_some());
            for skill in agent.skills.keys() {
                let ranks = self.index.entry(skill.clone()).or_default();
                if let Some(before) = &before {
                    ranks.remove(before);
                }
                if let Some(after) = &after {
                    ranks.insert(after.clone());
                }
                if ranks.is_empty() {
                    self.index.remove(skill);
                }
            }
        }
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: HUB-3-6
    #[test]
    fn least_loaded_then_longest_idle_comes_first() {
        let skill = Skill::test("x");
        let mut fleet = Fleet::default();
        let at = Mono::from_nanos;
        for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
            let id = ClientId::from(id);
            fleet.register(
                at(0),
                id.clone(),
                String::new(),
                [(skill.clone(), Vec::new())].into(),
            );
            assert_eq!(
                fleet.candidates(&skill).count(),
                n,
                "offered before it listens"
            );
            fleet.listen(at(10 - n as u64), &id, StreamId(n as u64));
        }
        let order = |fleet: &Fleet| {
            fleet
                .candidates(&skill)
                .map(|(id, _)| id.to_string())
                .collect::<String>()
        };
        assert_eq!(order(&fleet), "cba");
        let session = SessionId::from("s");
        fleet.add_session(&"c".into(), session.clone());
        assert_eq!(order(&fleet), "bac");
        fleet.remove_session(at(20), &"c".into(), &session);
        assert_eq!(order(&fleet), "bac");
        fleet.remove(&"b".into());
        assert_eq!(order(&fleet), "ac");
        assert_eq!(fleet.candidates(&Skill::translation("x")).count(), 0);
        fleet.remove(&"a".into());
        fleet.remove(&"c".into());
        assert!(fleet.index.is_empty());
    }
}
