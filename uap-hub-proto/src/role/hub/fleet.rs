//! The agents, and an index from skill to agents in order of preference.
//!
//! Agents with equal requirements for a skill share a profile, so that a job is checked against each set of
//! requirements once, however many agents have it. A profile ranks exactly those that may be asked now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use prost::Message as _;
use ubos_common::time::Mono;

use super::policy::{Candidate, Placement};
use crate::{
    capability::{Skill, Skills, meets},
    id::{ClientId, SessionId, StreamId},
    wire::{Payload, PayloadRequirement},
};

/// One registered agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) name: String,
    /// Each skill with the profile that it has there.
    pub(super) skills: BTreeMap<Skill, ProfileKey>,
    /// The open control stream; without one the agent is offered nothing.
    pub(super) listen: Option<StreamId>,
    /// Its proposals and sessions that have not ended.
    pub(super) sessions: BTreeSet<SessionId>,
    /// Whether the caller has paused it.
    pub(super) is_paused: bool,
    /// Whether it is disconnected when its sessions have ended.
    pub(super) is_draining: bool,
    /// Proposals and sessions that it may have now: fewer than the bound after it refused.
    pub(super) room: usize,
    /// When its last session ended, or it started to listen.
    idle_since: Mono,
    /// The order of registration, which breaks ties.
    order: u64,
}

/// The encoded requirements of a skill.
pub(super) type ProfileKey = Arc<[u8]>;

/// Rank by the placement, then by age.
type Rank = ([u64; 2], u64);

/// The agents with equal requirements for a skill.
#[derive(Debug)]
struct Profile {
    requirements: Vec<PayloadRequirement>,
    /// Registered agents.
    members: usize,
    /// Agents that listen and are not paused, with room or without.
    present: usize,
    /// Those of them that have room.
    ranks: BTreeMap<Rank, ClientId>,
}

/// The standing of an agent in the index.
#[derive(Clone, Copy, PartialEq)]
struct Standing {
    is_listening: bool,
    is_present: bool,
    rank: Option<Rank>,
}

/// All agents.
#[derive(Debug)]
pub(super) struct Fleet {
    agents: BTreeMap<ClientId, Agent>,
    index: BTreeMap<Skill, BTreeMap<ProfileKey, Profile>>,
    placement: Arc<dyn Placement>,
    max_load: usize,
    registered: u64,
    listening: usize,
}

impl Fleet {
    pub(super) fn new(placement: Arc<dyn Placement>, max_load: usize) -> Self {
        Self {
            agents: BTreeMap::new(),
            index: BTreeMap::new(),
            placement,
            max_load,
            registered: 0,
            listening: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.agents.len()
    }

    /// The number of agents whose control stream is open.
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
        let skills = skills.into_iter().map(|(skill, requirements)| {
            let key = profile_key(&requirements);
            let profiles = self.index.entry(skill.clone()).or_default();
            let profile = profiles.entry(key.clone()).or_insert_with(|| Profile {
                requirements,
                members: 0,
                present: 0,
                ranks: BTreeMap::new(),
            });
            profile.members += 1;
            (skill, key)
        });
        let agent = Agent {
            name,
            skills: skills.collect(),
            listen: None,
            sessions: BTreeSet::new(),
            is_paused: false,
            is_draining: false,
            room: self.max_load,
            idle_since: now,
            order: self.registered,
        };
        self.agents.insert(id, agent);
    }

    /// Sets the control stream; returns the one that it replaces.
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

    /// Takes the control stream away.
    pub(super) fn unlisten(&mut self, id: &ClientId) {
        self.update(id, |agent| agent.listen = None);
    }

    /// Takes every control stream away.
    pub(super) fn unlisten_all(&mut self) {
        let ids: Vec<ClientId> = self.agents.keys().cloned().collect();
        for id in ids {
            self.unlisten(&id);
        }
    }

    pub(super) fn set_paused(&mut self, id: &ClientId, is_paused: bool, is_draining: bool) {
        self.update(id, |agent| {
            agent.is_paused = is_paused;
            agent.is_draining = is_draining;
        });
    }

    /// Limits the sessions of the agent.
    pub(super) fn set_room(&mut self, id: &ClientId, room: usize) {
        self.update(id, |agent| agent.room = room);
    }

    /// Allows the agent at least so many sessions.
    pub(super) fn raise_room(&mut self, id: &ClientId, room: usize) {
        self.update(id, |agent| agent.room = agent.room.max(room));
    }

    /// Allows the agent one session more; returns whether it still has fewer than the maximum.
    pub(super) fn widen(&mut self, id: &ClientId) -> bool {
        let most = self.max_load;
        let room = self.update(id, |agent| {
            agent.room = most.min(agent.room.saturating_add(1));
            agent.room
        });
        room.is_some_and(|room| room < most)
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
        self.unlisten(id);
        let agent = self.agents.remove(id)?;
        for (skill, key) in &agent.skills {
            let Some(profiles) = self.index.get_mut(skill) else {
                continue;
            };
            if let Some(profile) = profiles.get_mut(key) {
                profile.members -= 1;
                if profile.members == 0 {
                    profiles.remove(key);
                }
            }
            if profiles.is_empty() {
                self.index.remove(skill);
            }
        }
        Some(agent)
    }

    /// Whether the agent is there, is not paused and has room.
    pub(super) fn may_be_asked(&self, id: &ClientId) -> bool {
        self.agents
            .get(id)
            .is_some_and(|agent| self.standing(id, agent).rank.is_some())
    }

    /// Whether the agent listens and is not paused.
    pub(super) fn is_present(&self, id: &ClientId) -> bool {
        self.agents
            .get(id)
            .is_some_and(|agent| agent.listen.is_some() && !agent.is_paused)
    }

    /// Whether the agent has the capability for a job.
    pub(super) fn is_capable(&self, id: &str, skill: &Skill, payloads: &[Payload]) -> bool {
        let profile = self.agents.get(id).and_then(|agent| {
            let key = agent.skills.get(skill)?;
            self.index.get(skill)?.get(key)
        });
        profile.is_some_and(|profile| meets(&profile.requirements, payloads))
    }

    /// Whether any registered agent has a skill.
    pub(super) fn has_skill(&self, skill: &Skill) -> bool {
        self.index.contains_key(skill)
    }

    /// Whether any registered agent can do this work.
    pub(super) fn has_capable(&self, skill: &Skill, payloads: &[Payload]) -> bool {
        self.capable(skill, payloads).next().is_some()
    }

    /// How many agents are there, with room or without, that can do this work.
    pub(super) fn present(&self, skill: &Skill, payloads: &[Payload]) -> usize {
        self.capable(skill, payloads)
            .map(|profile| profile.present)
            .sum()
    }

    /// The agent that is asked first, among those that can do this work and have room.
    // impl: HUB-3-2 HUB-3-6
    pub(super) fn choose(
        &self,
        skill: &Skill,
        payloads: &[Payload],
        passed_over: &BTreeSet<ClientId>,
    ) -> Option<&ClientId> {
        let best = |profile: &'_ Profile| -> Option<Rank> {
            let mut ranks = profile.ranks.iter();
            let found = ranks.find(|(_, id)| !passed_over.contains(*id));
            found.map(|(rank, _)| *rank)
        };
        self.capable(skill, payloads)
            .filter_map(|profile| Some((best(profile)?, profile)))
            .min_by_key(|(rank, _)| *rank)
            .and_then(|(rank, profile)| profile.ranks.get(&rank))
    }

    fn capable(&self, skill: &Skill, payloads: &[Payload]) -> impl Iterator<Item = &Profile> {
        let profiles = self.index.get(skill).into_iter().flat_map(BTreeMap::values);
        profiles.filter(|profile| meets(&profile.requirements, payloads))
    }

    fn standing(&self, id: &ClientId, agent: &Agent) -> Standing {
        let is_listening = agent.listen.is_some();
        let is_present = is_listening && !agent.is_paused;
        let load = agent.sessions.len();
        let rank = (is_present && load < agent.room).then(|| {
            let rank = self.placement.rank(&Candidate {
                client_id: id,
                name: &agent.name,
                load,
                max_load: self.max_load,
                idle_since: agent.idle_since,
            });
            (rank, agent.order)
        });
        Standing {
            is_listening,
            is_present,
            rank,
        }
    }

    /// Changes an agent and keeps the index right.
    fn update<T>(&mut self, id: &ClientId, change: impl FnOnce(&mut Agent) -> T) -> Option<T> {
        let (id, agent) = self.agents.get_key_value(id)?;
        let (id, before) = (id.clone(), self.standing(id, agent));
        let made = change(self.agents.get_mut(&id)?);
        let agent = self.agents.get(&id)?;
        let after = self.standing(&id, agent);
        if before == after {
            return Some(made);
        }
        self.listening =
            self.listening + usize::from(after.is_listening) - usize::from(before.is_listening);
        for (skill, key) in &agent.skills {
            let profiles = self.index.get_mut(skill);
            let Some(profile) = profiles.and_then(|profiles| profiles.get_mut(key)) else {
                continue;
            };
            profile.present =
                profile.present + usize::from(after.is_present) - usize::from(before.is_present);
            if let Some(rank) = before.rank {
                profile.ranks.remove(&rank);
            }
            if let Some(rank) = after.rank {
                profile.ranks.insert(rank, id.clone());
            }
        }
        Some(made)
    }
}

/// The encoded requirements; equal requirements have equal keys.
fn profile_key(requirements: &[PayloadRequirement]) -> ProfileKey {
    let mut bytes = Vec::new();
    for requirement in requirements {
        bytes.extend(requirement.encode_length_delimited_to_vec());
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::{super::policy::Spread, *};

    const SKILL: &str = "x";

    fn at(nanos: u64) -> Mono {
        Mono::from_nanos(nanos)
    }

    /// Agents a, b and c, of which c has been idle longest.
    fn fleet(placement: Arc<dyn Placement>) -> Fleet {
        let mut fleet = Fleet::new(placement, 2);
        for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
            let id = ClientId::from(id);
            let skills = [(Skill::test(SKILL), Vec::new())].into();
            fleet.register(at(0), id.clone(), String::new(), skills);
            assert_eq!(order(&fleet).len(), n, "offered before it listens");
            fleet.listen(at(10 - n as u64), &id, StreamId(n as u64));
        }
        fleet
    }

    fn order(fleet: &Fleet) -> String {
        let mut passed_over = BTreeSet::new();
        let mut order = String::new();
        while let Some(id) = fleet.choose(&Skill::test(SKILL), &[], &passed_over) {
            order.push_str(id.as_str());
            passed_over.insert(id.clone());
        }
        order
    }

    // spec: HUB-3-6
    #[test]
    fn least_loaded_then_longest_idle_comes_first() {
        let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
        assert_eq!(order(&fleet), "cba");
        let session = SessionId::from("s");
        fleet.add_session(&"c".into(), session.clone());
        assert_eq!(order(&fleet), "bac");
        fleet.remove_session(at(20), &"c".into(), &session);
        assert_eq!(order(&fleet), "bac");
        fleet.remove(&"b".into());
        assert_eq!(order(&fleet), "ac");
        assert!(!fleet.has_skill(&Skill::translation(SKILL)));
        fleet.remove(&"a".into());
        fleet.remove(&"c".into());
        assert!(fleet.index.is_empty() && fleet.listening == 0);
    }

    // spec: HUB-3-6
    #[test]
    fn the_other_placements_take_turns_and_fill_up() {
        let mut turns = fleet(Arc::new(Spread::LongestIdle));
        turns.add_session(&"c".into(), "s".into());
        assert_eq!(order(&turns), "cba", "load is not looked at");
        turns.remove_session(at(20), &"c".into(), &"s".into());
        assert_eq!(order(&turns), "bac");
        let mut full = fleet(Arc::new(Spread::MostLoaded));
        full.add_session(&"b".into(), "s".into());
        assert_eq!(order(&full), "bac");
        full.add_session(&"b".into(), "t".into());
        assert_eq!(order(&full), "ac", "no more than it may have");
        assert_eq!(full.present(&Skill::test(SKILL), &[]), 3);
    }

    // spec: HUB-3-2
    #[test]
    fn agents_of_many_profiles_are_ranked_together() {
        let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
        let requirement = PayloadRequirement {
            r#type: "need".into(),
            is_required: true,
            ..PayloadRequirement::default()
        };
        let skills = [(Skill::test(SKILL), vec![requirement])].into();
        fleet.register(at(0), "d".into(), String::new(), skills);
        fleet.listen(at(9), &"d".into(), StreamId(9));
        assert_eq!(order(&fleet), "cba");
        let need = [Payload::new("need")];
        let skill = Skill::test(SKILL);
        let mut passed_over: BTreeSet<ClientId> = ["c".into()].into();
        assert_eq!(
            fleet
                .choose(&skill, &need, &passed_over)
                .map(ClientId::as_str),
            Some("b")
        );
        passed_over.insert("b".into());
        assert_eq!(
            fleet
                .choose(&skill, &need, &passed_over)
                .map(ClientId::as_str),
            Some("d")
        );
        fleet.set_paused(&"d".into(), true, false);
        assert_eq!(
            fleet
                .choose(&skill, &need, &passed_over)
                .map(ClientId::as_str),
            Some("a")
        );
        assert_eq!(
            (fleet.present(&skill, &need), fleet.present(&skill, &[])),
            (3, 3)
        );
    }
}
