//! The agents, and rankings of those that can do the same work.
//!
//! A ranking belongs to a skill and a shape of jobs, and holds exactly the agents that may be asked now. It is made when
//! the first such job comes and kept up to date from then on, so that a job looks at the agent in front and at nothing
//! else, however much the agents differ. Agents that never listened are in no index: registering costs the others nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ubos_common::time::Mono;

use super::{
    affinity::Homes,
    job::Job,
    policy::{Candidate, Placement},
    quota::{Peer, Quotas},
    session::SessionKey,
};
use crate::{
    capability::{Shape, Skill, Skills},
    id::{ClientId, Identity, StreamId},
};

/// One registered agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) name: String,
    pub(super) skills: Skills,
    /// Who registered it, where the driver knows.
    pub(super) identity: Option<Identity>,
    /// Whose quota it counts for.
    peer: Option<Peer>,
    /// Bytes of its registration.
    bytes: usize,
    /// The open control stream; without one the agent is offered nothing.
    pub(super) listen: Option<StreamId>,
    /// Its proposals and sessions that have not ended.
    pub(super) sessions: BTreeSet<SessionKey>,
    /// Whether the caller has paused it.
    pub(super) is_paused: bool,
    /// Whether it is disconnected when its sessions have ended.
    pub(super) is_draining: bool,
    /// Proposals and sessions that it may have now: fewer than the bound after it refused.
    pub(super) room: usize,
    /// When its last session ended, or it started to listen.
    idle_since: Mono,
    /// Whether it has listened at some time: only then is it in the index.
    is_indexed: bool,
    /// The order of registration, which breaks ties.
    order: u64,
}

/// Rank by the placement, then by age.
type Rank = ([u64; 2], u64);

/// The agents that can do the jobs of one skill and shape.
#[derive(Debug, Default)]
struct Ranking {
    /// When it was used last, in uses of any.
    used: u64,
    /// Agents by their order, whether they listen or not, with their rank in `ranks`.
    members: BTreeMap<u64, Option<Rank>>,
    /// Agents that listen and are not paused, with room or without.
    present: usize,
    /// Those of them that have room.
    ranks: BTreeMap<Rank, ClientId>,
}

impl Ranking {
    /// Takes an agent in, which is not there yet.
    fn add(&mut self, id: &ClientId, order: u64, standing: Standing, rank: [u64; 2]) {
        self.members.insert(order, None);
        self.change(id, order, Standing::default(), standing, rank);
    }

    fn change(
        &mut self,
        id: &ClientId,
        order: u64,
        before: Standing,
        after: Standing,
        rank: [u64; 2],
    ) {
        let Some(kept) = self.members.get_mut(&order) else {
            return;
        };
        self.present =
            self.present + usize::from(after.is_present) - usize::from(before.is_present);
        let rank = after.has_room.then_some((rank, order));
        let before = std::mem::replace(kept, rank);
        if before == rank {
            return;
        }
        if let Some(before) = before {
            self.ranks.remove(&before);
        }
        if let Some(rank) = rank {
            self.ranks.insert(rank, id.clone());
        }
    }
}

/// Whether an agent may be offered jobs.
#[derive(Clone, Copy, Default)]
struct Standing {
    is_listening: bool,
    is_present: bool,
    /// It is present and may have one session more.
    has_room: bool,
}

impl Standing {
    fn of(agent: &Agent) -> Self {
        let is_listening = agent.listen.is_some();
        let is_present = is_listening && !agent.is_paused;
        Self {
            is_listening,
            is_present,
            has_room: is_present && agent.sessions.len() < agent.room,
        }
    }
}

/// What an agent registered.
#[derive(Debug, Default)]
pub(super) struct Registered {
    pub(super) name: String,
    pub(super) skills: Skills,
    pub(super) identity: Option<Identity>,
    pub(super) peer: Option<Peer>,
    pub(super) bytes: usize,
}

/// All agents.
#[derive(Debug)]
pub(super) struct Fleet {
    agents: BTreeMap<ClientId, Agent>,
    /// The agents that have listened, by skill.
    by_skill: BTreeMap<Skill, BTreeSet<ClientId>>,
    rankings: BTreeMap<Skill, BTreeMap<Shape, Ranking>>,
    /// How often a ranking was used.
    uses: u64,
    /// The agents that have not listened yet, oldest first.
    pending: BTreeMap<u64, ClientId>,
    /// Bytes of their registrations.
    pending_bytes: usize,
    /// Bytes of all registrations.
    bytes: usize,
    quotas: Quotas,
    placement: Arc<dyn Placement>,
    homes: Homes,
    max_load: usize,
    registered: u64,
    listening: usize,
}

impl Fleet {
    pub(super) fn new(placement: Arc<dyn Placement>, max_load: usize) -> Self {
        Self {
            agents: BTreeMap::new(),
            by_skill: BTreeMap::new(),
            rankings: BTreeMap::new(),
            uses: 0,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            bytes: 0,
            quotas: Quotas::default(),
            placement,
            homes: Homes::default(),
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

    /// Bytes of all registrations.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn register(&mut self, now: Mono, id: ClientId, registered: Registered) {
        let Registered {
            name,
            skills,
            identity,
            peer,
            bytes,
        } = registered;
        self.registered += 1;
        let agent = Agent {
            name,
            skills,
            identity,
            peer,
            bytes,
            listen: None,
            sessions: BTreeSet::new(),
            is_paused: false,
            is_draining: false,
            room: self.max_load,
            idle_since: now,
            is_indexed: false,
            order: self.registered,
        };
        self.pending.insert(agent.order, id.clone());
        self.quotas.add(agent.peer.as_ref(), agent.order);
        self.bytes += bytes;
        self.pending_bytes += bytes;
        self.agents.insert(id, agent);
    }

    /// How many agents count for the quota of a peer.
    pub(super) fn of_peer(&self, peer: &Peer) -> usize {
        self.quotas.agents(peer)
    }

    /// The oldest agent of a peer that has not listened yet, if the peer has `most` or more of them.
    pub(super) fn oldest_pending_of(&self, peer: &Peer, most: usize) -> Option<&ClientId> {
        self.pending.get(&self.quotas.oldest_pending(peer, most)?)
    }

    /// The oldest agent that has not listened yet, if there are `most` or more of them, or if they have more than `bytes`.
    pub(super) fn oldest_pending(&self, most: usize, bytes: usize) -> Option<&ClientId> {
        let (_, oldest) = self.pending.first_key_value()?;
        (self.pending.len() >= most || self.pending_bytes > bytes).then_some(oldest)
    }

    /// Sets the control stream; returns the one that it replaces.
    pub(super) fn listen(
        &mut self,
        now: Mono,
        id: &ClientId,
        stream: StreamId,
    ) -> Option<StreamId> {
        self.index(id);
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

    // impl: HUB-4-5
    pub(super) fn add_session(&mut self, id: &ClientId, session: SessionKey) {
        self.update(id, |agent| agent.sessions.insert(session));
    }

    pub(super) fn remove_session(&mut self, now: Mono, id: &ClientId, session: SessionKey) {
        self.update(id, |agent| {
            if agent.sessions.remove(&session) {
                agent.idle_since = now;
            }
        });
    }

    pub(super) fn remove(&mut self, id: &ClientId) -> Option<Agent> {
        self.unlisten(id);
        let agent = self.agents.remove(id)?;
        if self.pending.remove(&agent.order).is_some() {
            self.pending_bytes -= agent.bytes;
        }
        self.bytes -= agent.bytes;
        self.quotas.remove(agent.peer.as_ref(), agent.order);
        for skill in agent.skills.keys() {
            let Some(ids) = self.by_skill.get_mut(skill) else {
                continue;
            };
            ids.remove(id);
            if ids.is_empty() {
                self.by_skill.remove(skill);
                self.rankings.remove(skill);
            } else if let Some(rankings) = self.rankings.get_mut(skill) {
                for ranking in rankings.values_mut() {
                    ranking.members.remove(&agent.order);
                }
            }
        }
        Some(agent)
    }

    /// Takes an agent that listens for the first time into the index.
    fn index(&mut self, id: &ClientId) {
        let Some(agent) = self.agents.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut agent.is_indexed, true) {
            return;
        }
        self.pending.remove(&agent.order);
        self.pending_bytes -= agent.bytes;
        self.quotas.listens(agent.peer.as_ref(), agent.order);
        for (skill, requirements) in &agent.skills {
            let ids = self.by_skill.entry(skill.clone()).or_default();
            ids.insert(id.clone());
            for (shape, ranking) in self.rankings.get_mut(skill).into_iter().flatten() {
                if requirements.are_met_by(shape) {
                    ranking.members.insert(agent.order, None);
                }
            }
        }
    }

    /// Sees to it that the agents that can do this work are ranked.
    pub(super) fn rank(&mut self, skill: &Skill, shape: &Shape) {
        let Some(ids) = self.by_skill.get(skill) else {
            return;
        };
        self.uses += 1;
        let known = self.rankings.get_mut(skill);
        if let Some(ranking) = known.and_then(|rankings| rankings.get_mut(shape)) {
            ranking.used = self.uses;
            return;
        }
        let mut ranking = Ranking {
            used: self.uses,
            ..Ranking::default()
        };
        for (id, agent) in ids.iter().filter_map(|id| self.agents.get_key_value(id)) {
            let requirements = agent.skills.get(skill);
            if requirements.is_some_and(|requirements| requirements.are_met_by(shape)) {
                let rank = (self.placement).rank(&candidate(id, agent, self.max_load), skill);
                ranking.add(id, agent.order, Standing::of(agent), rank);
            }
        }
        self.forget_rankings();
        let rankings = self.rankings.entry(skill.clone()).or_default();
        rankings.insert(shape.clone(), ranking);
    }

    /// Makes room for one more ranking: those that were not used for longest go.
    fn forget_rankings(&mut self) {
        while self.rankings.values().map(BTreeMap::len).sum::<usize>() >= MAX_RANKINGS {
            let all = self.rankings.iter().flat_map(|(skill, shapes)| {
                shapes
                    .iter()
                    .map(move |(shape, ranking)| (ranking.used, skill, shape))
            });
            let Some((_, skill, shape)) = all.min() else {
                return;
            };
            let (skill, shape) = (skill.clone(), shape.clone());
            if let Some(rankings) = self.rankings.get_mut(&skill) {
                rankings.remove(&shape);
                if rankings.is_empty() {
                    self.rankings.remove(&skill);
                }
            }
        }
    }

    fn ranking(&self, skill: &Skill, shape: &Shape) -> Option<&Ranking> {
        self.rankings.get(skill)?.get(shape)
    }

    /// Whether the agent is there, is not paused and has room.
    pub(super) fn may_be_asked(&self, id: &ClientId) -> bool {
        self.agents
            .get(id)
            .is_some_and(|agent| Standing::of(agent).has_room)
    }

    /// Whether the agent listens and is not paused.
    pub(super) fn is_present(&self, id: &ClientId) -> bool {
        self.agents
            .get(id)
            .is_some_and(|agent| Standing::of(agent).is_present)
    }

    /// Whether the agent has the capability for a job.
    pub(super) fn is_capable(&self, id: &str, skill: &Skill, shape: &Shape) -> bool {
        let agent = self.agents.get(id);
        let requirements = agent.and_then(|agent| agent.skills.get(skill));
        requirements.is_some_and(|requirements| requirements.are_met_by(shape))
    }

    /// Whether an agent that has listened can do this work.
    pub(super) fn has_capable(&mut self, skill: &Skill, shape: &Shape) -> bool {
        self.rank(skill, shape);
        self.ranking(skill, shape)
            .is_some_and(|ranking| !ranking.members.is_empty())
    }

    /// Why a job that waited was offered to no agent, in words for people.
    pub(super) fn why_unplaced(&mut self, skill: &Skill, shape: &Shape) -> String {
        self.rank(skill, shape);
        let Some(ids) = self.by_skill.get(skill) else {
            return format!("no agent offers {skill}");
        };
        let capable = self
            .ranking(skill, shape)
            .map_or(0, |ranking| ranking.members.len());
        let agent = ids.first().and_then(|id| self.agents.get(id));
        let requirements = agent.and_then(|agent| agent.skills.get(skill));
        let reason = match requirements.and_then(|requirements| requirements.unmet_by(shape)) {
            // What one of them misses stands for all.
            Some(unmet) if capable == 0 => unmet.to_string(),
            _ => "none had room".to_owned(),
        };
        let offering = ids.len();
        format!(
            "agents that offer {skill}: {offering}, of which {capable} take these payloads: {reason}"
        )
    }

    /// How many agents are there, with room or without, that can do this work. It must be [ranked](Self::rank).
    pub(super) fn present(&self, skill: &Skill, shape: &Shape) -> usize {
        self.ranking(skill, shape)
            .map_or(0, |ranking| ranking.present)
    }

    /// The agent that is asked first, among those that can do this work and have room. It must be [ranked](Self::rank).
    // impl: HUB-3-2 HUB-3-6
    pub(super) fn choose(
        &self,
        skill: &Skill,
        shape: &Shape,
        passed_over: &BTreeSet<ClientId>,
    ) -> Option<&ClientId> {
        let mut ranked = self.ranking(skill, shape)?.ranks.values();
        ranked.find(|id| !passed_over.contains(*id))
    }

    /// The agent that jobs of this key go to, if it can take one now. The caller sees to its capability.
    pub(super) fn home(&self, key: &str) -> Option<&ClientId> {
        self.homes.get(key).filter(|id| self.may_be_asked(id))
    }

    /// Notes that the agent has accepted a job.
    pub(super) fn settle(&mut self, job: &Job, agent: &ClientId) {
        if let Some(key) = self.placement.affinity(job) {
            self.homes.set(key, agent);
        }
    }

    /// The key of a job for [`home`](Self::home).
    pub(super) fn affinity<'j>(&self, job: &'j Job) -> Option<&'j str> {
        self.placement.affinity(job)
    }

    /// Changes an agent and keeps the index right.
    fn update<T>(&mut self, id: &ClientId, change: impl FnOnce(&mut Agent) -> T) -> Option<T> {
        let (id, _) = self.agents.get_key_value(id)?;
        let id = id.clone();
        let agent = self.agents.get_mut(&id)?;
        let before = Standing::of(agent);
        let made = change(agent);
        let after = Standing::of(agent);
        self.listening =
            self.listening + usize::from(after.is_listening) - usize::from(before.is_listening);
        for skill in agent.skills.keys() {
            let Some(rankings) = self.rankings.get_mut(skill) else {
                continue;
            };
            let rank = (self.placement).rank(&candidate(&id, agent, self.max_load), skill);
            for ranking in rankings.values_mut() {
                ranking.change(&id, agent.order, before, after, rank);
            }
        }
        Some(made)
    }
}

fn candidate<'a>(id: &'a ClientId, agent: &'a Agent, max_load: usize) -> Candidate<'a> {
    Candidate {
        client_id: id,
        name: &agent.name,
        load: agent.sessions.len(),
        max_load,
        idle_since: agent.idle_since,
    }
}

/// Rankings that are kept. A job of another skill or shape makes one, which holds every agent with the skill to the job.
const MAX_RANKINGS: usize = 256;

#[cfg(test)]
mod tests {
    use super::{super::policy::Spread, *};
    use crate::{
        capability::skills,
        wire::{
            AgentRegistration, Capability, Payload, PayloadRequirement, TestCapability,
            capability::Format,
        },
    };

    const SKILL: &str = "x";

    fn at(nanos: u64) -> Mono {
        Mono::from_nanos(nanos)
    }

    /// The skill, with a payload that it requires.
    fn needing(kind: Option<&str>) -> Skills {
        let payload = |kind: &str| PayloadRequirement {
            r#type: kind.into(),
            is_required: true,
            ..PayloadRequirement::default()
        };
        let format = Some(Format::Test(TestCapability {
            r#type: SKILL.into(),
            payloads: kind.map(payload).into_iter().collect(),
        }));
        skills(AgentRegistration {
            display_name: String::new(),
            capabilities: vec![Capability { format }],
        })
        .unwrap()
    }

    /// Agents a, b and c, of which c has been idle longest.
    fn fleet(placement: Arc<dyn Placement>) -> Fleet {
        let mut fleet = Fleet::new(placement, 2);
        for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
            let id = ClientId::from(id);
            let registered = Registered {
                skills: needing(None),
                ..Registered::default()
            };
            fleet.register(at(0), id.clone(), registered);
            assert_eq!(order(&mut fleet).len(), n, "offered before it listens");
            fleet.listen(at(10 - n as u64), &id, StreamId(n as u64));
        }
        fleet
    }

    fn session(number: u64) -> SessionKey {
        SessionKey::numbered(number)
    }

    fn order(fleet: &mut Fleet) -> String {
        fleet.rank(&Skill::test(SKILL), &Shape::of(&[]));
        let mut passed_over = BTreeSet::new();
        let mut order = String::new();
        while let Some(id) = fleet.choose(&Skill::test(SKILL), &Shape::of(&[]), &passed_over) {
            order.push_str(id.as_str());
            passed_over.insert(id.clone());
        }
        order
    }

    // spec: HUB-3-6
    #[test]
    fn least_loaded_then_longest_idle_comes_first() {
        let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
        assert_eq!(order(&mut fleet), "cba");
        let session = session(1);
        fleet.add_session(&"c".into(), session);
        assert_eq!(order(&mut fleet), "bac");
        fleet.remove_session(at(20), &"c".into(), session);
        assert_eq!(order(&mut fleet), "bac");
        fleet.remove(&"b".into());
        assert_eq!(order(&mut fleet), "ac");
        assert!(!fleet.by_skill.contains_key(&Skill::translation(SKILL)));
        fleet.remove(&"a".into());
        fleet.remove(&"c".into());
        assert!(fleet.by_skill.is_empty() && fleet.rankings.is_empty() && fleet.listening == 0);
    }

    // spec: HUB-3-6
    #[test]
    fn the_other_placements_take_turns_and_fill_up() {
        let mut turns = fleet(Arc::new(Spread::LongestIdle));
        turns.add_session(&"c".into(), session(1));
        assert_eq!(order(&mut turns), "cba", "load is not looked at");
        turns.remove_session(at(20), &"c".into(), session(1));
        assert_eq!(order(&mut turns), "bac");
        let mut full = fleet(Arc::new(Spread::MostLoaded));
        full.add_session(&"b".into(), session(1));
        assert_eq!(order(&mut full), "bac");
        full.add_session(&"b".into(), session(2));
        assert_eq!(order(&mut full), "ac", "no more than it may have");
        assert_eq!(full.present(&Skill::test(SKILL), &Shape::of(&[])), 3);
    }

    // spec: HUB-3-2
    #[test]
    fn agents_of_many_profiles_are_ranked_together() {
        let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
        let registered = Registered {
            skills: needing(Some("need")),
            ..Registered::default()
        };
        fleet.register(at(0), "d".into(), registered);
        fleet.listen(at(9), &"d".into(), StreamId(9));
        assert_eq!(order(&mut fleet), "cba");
        let need = Shape::of(&[Payload::new("need")]);
        let skill = Skill::test(SKILL);
        fleet.rank(&skill, &need);
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
            (
                fleet.present(&skill, &need),
                fleet.present(&skill, &Shape::of(&[]))
            ),
            (3, 3)
        );
    }

    #[test]
    fn rankings_are_bounded_and_made_again() {
        let mut fleet = fleet(Arc::new(Spread::LeastLoaded));
        let skill = Skill::test(SKILL);
        let shape = |n: usize| Shape::of(&[Payload::new(n.to_string())]);
        for n in 0..=MAX_RANKINGS {
            fleet.rank(&skill, &shape(n));
            fleet.rank(&skill, &shape(1));
        }
        assert_eq!(fleet.rankings[&skill].len(), MAX_RANKINGS);
        assert!(
            fleet.ranking(&skill, &shape(0)).is_none(),
            "not used for longest"
        );
        fleet.set_paused(&"c".into(), true, false);
        fleet.rank(&skill, &shape(0));
        for n in [0, 1, MAX_RANKINGS] {
            let first = fleet.choose(&skill, &shape(n), &BTreeSet::new());
            assert_eq!(
                (first.unwrap().as_str(), fleet.present(&skill, &shape(n))),
                ("b", 2)
            );
        }
    }
}
