//! The agents.
//!
//! Jobs of a skill look at a ranking of its agents, in which the first that can do a job of their shape is found at once, however
//! much the agents differ. Each skill has its own: what is kept for one never takes the place of what is kept for another. What
//! an agent does costs as much as it registered, whatever others did. Agents that never listened are in no index: registering
//! costs the others nothing.

mod reasons;

#[cfg(test)]
pub(super) use self::reasons::MAX_ASKED;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ubos_common::time::Mono;

use super::{
    affinity::Homes,
    job::Job,
    policy::{Candidate, Guarded, Placement},
    quota::{Peer, Quotas},
    ranking::{Capable, Ranking, Standing},
    session::SessionKey,
};
use crate::{
    capability::{Shape, Skill, Skills},
    id::{ClientId, Identity, StreamId},
    role::slots::{SlotKey, Slots},
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
    /// Its place among those that wait to listen and have no session, which goes first.
    waits: Option<u64>,
    /// The order of registration, which breaks ties.
    order: u64,
    /// Where it is in the rankings of its skills.
    ranked: Vec<Ranked>,
}

impl Agent {
    fn is_capable(&self, skill: &Skill, shape: &Shape) -> bool {
        let requirements = self.skills.get(skill);
        requirements.is_some_and(|requirements| requirements.are_met_by(shape))
    }
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

/// The agents of a skill.
#[derive(Debug, Default)]
struct OfSkill {
    agents: BTreeSet<ClientId>,
    ranking: Option<SlotKey>,
}

/// An agent's place in a ranking.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    ranking: SlotKey,
    member: SlotKey,
}

/// What is known of jobs of a skill and a shape, while nothing else is asked of the fleet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    ranking: SlotKey,
    shape: usize,
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
    by_skill: BTreeMap<Skill, OfSkill>,
    /// Of skills of which there were jobs.
    rankings: Slots<Ranking>,
    /// The agents that do not listen and have no session, by their place: the one that has not listened for longest first.
    pending: BTreeMap<u64, ClientId>,
    /// How many places were given.
    places: u64,
    /// Bytes of their registrations.
    pending_bytes: usize,
    /// Bytes of all registrations.
    bytes: usize,
    quotas: Quotas,
    placement: Guarded,
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
            rankings: Slots::new(),
            pending: BTreeMap::new(),
            places: 0,
            pending_bytes: 0,
            bytes: 0,
            quotas: Quotas::default(),
            placement: Guarded(placement),
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

    /// Bytes of the registrations that do not make room for others.
    pub(super) const fn listening_bytes(&self) -> usize {
        self.bytes - self.pending_bytes
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
            waits: Some(self.places),
            order: self.registered,
            ranked: Vec::new(),
        };
        self.pending.insert(self.places, id.clone());
        self.quotas.add(agent.peer.as_ref(), self.places, bytes);
        self.places += 1;
        self.bytes += bytes;
        self.pending_bytes += bytes;
        self.agents.insert(id, agent);
    }

    /// Has an agent wait that does not listen and has no session, and no other.
    fn await_listen(&mut self, id: &ClientId) {
        let Some(agent) = self.agents.get_mut(id) else {
            return;
        };
        let is_waiting = agent.listen.is_none() && agent.sessions.is_empty();
        match agent.waits {
            None if is_waiting => {
                agent.waits = Some(self.places);
                self.pending.insert(self.places, id.clone());
                self.quotas
                    .is_away(agent.peer.as_ref(), self.places, agent.bytes);
                self.places += 1;
                self.pending_bytes += agent.bytes;
            }
            Some(place) if !is_waiting => {
                agent.waits = None;
                self.pending.remove(&place);
                self.quotas.listens(agent.peer.as_ref(), place, agent.bytes);
                self.pending_bytes -= agent.bytes;
            }
            _ => {}
        }
    }

    /// How many agents count for the quota of a peer.
    pub(super) fn of_peer(&self, peer: &Peer) -> usize {
        self.quotas.agents(peer)
    }

    /// Bytes of a peer's registrations that do not make room for others of it.
    pub(super) fn listening_bytes_of(&self, peer: &Peer) -> usize {
        self.quotas.listening_bytes(peer)
    }

    /// The agent of a peer that has not listened for longest, if the peer has `most` or more that do not, or if all its
    /// registrations have more than `bytes`.
    pub(super) fn oldest_pending_of(
        &self,
        peer: &Peer,
        most: usize,
        bytes: usize,
    ) -> Option<&ClientId> {
        let place = self.quotas.oldest_pending(peer, most, bytes)?;
        self.pending.get(&place)
    }

    /// The agent that has not listened for longest, if there are `most` or more that do not, or if they have more than `bytes`.
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
        if let Some(place) = agent.waits {
            self.pending.remove(&place);
            self.quotas.listens(agent.peer.as_ref(), place, agent.bytes);
            self.pending_bytes -= agent.bytes;
        }
        self.bytes -= agent.bytes;
        self.quotas.remove(agent.peer.as_ref(), agent.bytes);
        for Ranked { ranking, member } in &agent.ranked {
            if let Some(ranking) = self.rankings.get_mut(*ranking) {
                ranking.remove(*member);
            }
        }
        for skill in agent.skills.keys() {
            let Some(of_skill) = self.by_skill.get_mut(skill) else {
                continue;
            };
            of_skill.agents.remove(id);
            if of_skill.agents.is_empty() {
                let ranking = of_skill.ranking;
                ranking.and_then(|ranking| self.rankings.remove(ranking));
                self.by_skill.remove(skill);
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
        for (skill, requirements) in &agent.skills {
            let of_skill = self.by_skill.entry(skill.clone()).or_default();
            of_skill.agents.insert(id.clone());
            if let Some(key) = of_skill.ranking
                && let Some(ranking) = self.rankings.get_mut(key)
            {
                let member = ranking.add(id, agent.order, requirements);
                let ranking = key;
                agent.ranked.push(Ranked { ranking, member });
            }
        }
    }

    /// Whether an agent of the skill has room, whatever it can do.
    pub(super) fn has_room(&mut self, skill: &Skill) -> bool {
        let ranking = self.ranking_of(skill);
        ranking.is_some_and(|(_, ranking)| ranking.free() > 0)
    }

    /// The ranking of a skill. For its first job its agents are ranked.
    fn ranking_of(&mut self, skill: &Skill) -> Option<(SlotKey, &mut Ranking)> {
        let of_skill = self.by_skill.get_mut(skill)?;
        if let Some(key) = of_skill.ranking {
            return Some((key, self.rankings.get_mut(key)?));
        }
        let key = self.rankings.add(Ranking::new(skill.clone()));
        of_skill.ranking = Some(key);
        let ranking = self.rankings.get_mut(key)?;
        for id in &of_skill.agents {
            if let Some(agent) = self.agents.get_mut(id)
                && let Some(requirements) = agent.skills.get(skill)
            {
                let member = ranking.add(id, agent.order, requirements);
                let candidate = candidate(id, agent, self.max_load);
                let rank = self.placement.rank(&candidate, skill);
                ranking.change(member, Standing::of(agent), rank);
                let ranking = key;
                agent.ranked.push(Ranked { ranking, member });
            }
        }
        Some((key, ranking))
    }

    /// Looks up who can do this work; `None` where no agent has the skill. Nothing is looked up where it is known.
    pub(super) fn rank(&mut self, skill: &Skill, shape: &Shape) -> Option<Work> {
        let (key, ranking) = self.ranking_of(skill)?;
        let shape = ranking.know(shape);
        Some(Work {
            ranking: key,
            shape,
        })
    }

    /// The agent of a skill that comes first, if its agents are ranked.
    #[cfg(test)]
    pub(super) fn first_free(&self, skill: &Skill) -> Option<&ClientId> {
        let ranking = self.by_skill.get(skill)?.ranking?;
        self.rankings.get(ranking)?.first()
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
        agent.is_some_and(|agent| agent.is_capable(skill, shape))
    }

    /// Whether an agent that has listened can do this work.
    pub(super) fn has_capable(&mut self, skill: &Skill, shape: &Shape) -> bool {
        let work = self.rank(skill, shape);
        work.is_some_and(|work| self.counts(work).all > 0)
    }

    fn counts(&self, work: Work) -> Capable {
        let ranking = self.rankings.get(work.ranking);
        ranking.map_or_else(Capable::default, |ranking| ranking.counts(work.shape))
    }

    /// How many agents are there, with room or without, that can do this work.
    pub(super) fn present(&self, work: Work) -> usize {
        self.counts(work).present
    }

    /// The agent that is asked first, among those that can do this work and have room.
    // impl: HUB-3-2 HUB-3-6
    pub(super) fn choose(&self, work: Work, passed_over: &BTreeSet<ClientId>) -> Option<&ClientId> {
        let mut ranked = self.rankings.get(work.ranking)?.ranked(work.shape);
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
        let before = agent.listen.is_some();
        let made = change(agent);
        let after = Standing::of(agent);
        self.listening = self.listening + usize::from(after.is_listening) - usize::from(before);
        let candidate = candidate(&id, agent, self.max_load);
        for Ranked { ranking, member } in &agent.ranked {
            if let Some(ranking) = self.rankings.get_mut(*ranking) {
                let rank = self.placement.rank(&candidate, ranking.skill());
                ranking.change(*member, after, rank);
            }
        }
        self.await_listen(&id);
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

#[cfg(test)]
mod tests;
