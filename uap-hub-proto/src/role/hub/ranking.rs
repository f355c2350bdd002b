//! Rankings of the agents that can do the same work.
//!
//! Shapes of jobs that the same agents can do share a ranking: what an agent does changes the rankings that it is in, and not
//! one for each shape.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    capability::{Shape, Skill},
    id::ClientId,
};

/// Rankings that are kept. A job for which there is none makes one, which holds every agent with the skill to the job.
pub(super) const MAX_RANKINGS: usize = 256;
/// Shapes whose ranking is known.
pub(super) const MAX_SHAPES: usize = 1024;

/// Names a ranking; none is used again.
pub(super) type RankingKey = u64;

/// Rank by the placement, then by age.
type Rank = ([u64; 2], u64);

/// Whether an agent may be offered jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) is_listening: bool,
    /// It listens and is not paused.
    pub(super) is_present: bool,
    /// It is present and may have one session more.
    pub(super) has_room: bool,
}

/// An agent as rankings see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked<'a> {
    pub(super) id: &'a ClientId,
    pub(super) order: u64,
    pub(super) standing: Standing,
    pub(super) rank: [u64; 2],
}

/// The agents that can do jobs of one skill and of some shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    /// Shapes that look at it.
    shapes: usize,
    /// Agents by their order, whether they listen or not, with their rank in `ranks`.
    members: BTreeMap<u64, (Standing, Option<Rank>)>,
    /// Tells sets of members apart, but for chance.
    digest: u64,
    pub(super) listening: usize,
    pub(super) present: usize,
    /// Those that have room.
    ranks: BTreeMap<Rank, ClientId>,
}

impl Ranking {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// How many have room.
    pub(super) fn free(&self) -> usize {
        self.ranks.len()
    }

    /// Those that have room, the best first.
    pub(super) fn ranked(&self) -> impl Iterator<Item = &ClientId> {
        self.ranks.values()
    }

    /// The agents in it, by their order.
    pub(super) fn orders(&self) -> impl Iterator<Item = u64> {
        self.members.keys().copied()
    }

    fn add(&mut self, agent: Ranked<'_>) {
        self.members.insert(agent.order, Default::default());
        self.digest ^= mixed(agent.order);
        self.change(agent);
    }

    pub(super) fn change(&mut self, agent: Ranked<'_>) {
        let Some((standing, kept)) = self.members.get_mut(&agent.order) else {
            return;
        };
        let (before, after) = (std::mem::replace(standing, agent.standing), agent.standing);
        let moved =
            |count: usize, from: bool, to: bool| count + usize::from(to) - usize::from(from);
        self.listening = moved(self.listening, before.is_listening, after.is_listening);
        self.present = moved(self.present, before.is_present, after.is_present);
        let rank = after.has_room.then_some((agent.rank, agent.order));
        let before = std::mem::replace(kept, rank);
        if before == rank {
            return;
        }
        if let Some(before) = before {
            self.ranks.remove(&before);
        }
        if let Some(rank) = rank {
            self.ranks.insert(rank, agent.id.clone());
        }
    }

    /// Takes out an agent that does not listen any more.
    fn remove(&mut self, order: u64) {
        if self.members.remove(&order).is_some() {
            self.digest ^= mixed(order);
        }
    }

    fn has_members_of(&self, other: &Self) -> bool {
        self.digest == other.digest && self.members.keys().eq(other.members.keys())
    }
}

/// Spreads numbers over all 64 bits.
const fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// The rankings of all skills.
#[derive(Debug, Default)]
pub(super) struct Rankings {
    skills: BTreeMap<Skill, OfSkill>,
    rankings: HashMap<RankingKey, (Skill, Ranking)>,
    made: u64,
    /// How often a ranking was asked for.
    uses: u64,
    shapes: usize,
}

#[derive(Debug, Default)]
struct OfSkill {
    shapes: BTreeMap<Shape, Looked>,
    rankings: BTreeSet<RankingKey>,
}

/// Where a shape looks.
#[derive(Clone, Copy, Debug)]
struct Looked {
    at: RankingKey,
    /// When it did last, in uses of any.
    used: u64,
}

impl Rankings {
    /// Whether there is a ranking for this work, which counts as used.
    pub(super) fn is_known(&mut self, skill: &Skill, shape: &Shape) -> bool {
        self.uses += 1;
        let shapes = self.skills.get_mut(skill).map(|found| &mut found.shapes);
        match shapes.and_then(|shapes| shapes.get_mut(shape)) {
            Some(looked) => {
                looked.used = self.uses;
                true
            }
            None => false,
        }
    }

    pub(super) fn get(&self, skill: &Skill, shape: &Shape) -> Option<&Ranking> {
        let looked = self.skills.get(skill)?.shapes.get(shape)?;
        self.rankings.get(&looked.at).map(|(_, ranking)| ranking)
    }

    pub(super) fn is_kept(&self, key: RankingKey) -> bool {
        self.rankings.contains_key(&key)
    }

    /// A ranking and its skill.
    pub(super) fn get_mut(&mut self, key: RankingKey) -> Option<(&Skill, &mut Ranking)> {
        let (skill, ranking) = self.rankings.get_mut(&key)?;
        Some((skill, ranking))
    }

    /// Notes which agents can do this work. Returns the key of a ranking that is new.
    pub(super) fn insert<'a>(
        &mut self,
        skill: &Skill,
        shape: &Shape,
        members: impl Iterator<Item = Ranked<'a>>,
    ) -> Option<RankingKey> {
        let mut ranking = Ranking::default();
        members.for_each(|agent| ranking.add(agent));
        while self.shapes >= MAX_SHAPES {
            self.forget_shape();
        }
        let equal = self.equal_to(skill, &ranking, None);
        let is_new = equal.is_none();
        let at = equal.unwrap_or_else(|| self.keep(skill, ranking));
        let looked = Looked {
            at,
            used: self.uses,
        };
        let of_skill = self.skills.entry(skill.clone()).or_default();
        of_skill.shapes.insert(shape.clone(), looked);
        self.shapes += 1;
        if let Some((_, ranking)) = self.rankings.get_mut(&at) {
            ranking.shapes += 1;
        }
        is_new.then_some(at)
    }

    /// Adds an agent whose capability was not known; `meets` says of which shapes. Returns the rankings that are new, with their
    /// members to be told, and adds to `own` those that the agent is in.
    pub(super) fn join(
        &mut self,
        skill: &Skill,
        agent: Ranked<'_>,
        meets: impl Fn(&Shape) -> bool,
        own: &mut Vec<RankingKey>,
    ) -> Vec<(RankingKey, Vec<u64>)> {
        let mut met: BTreeMap<RankingKey, Vec<Shape>> = BTreeMap::new();
        let shapes = self.skills.get(skill).map(|found| &found.shapes);
        for (shape, looked) in shapes.into_iter().flatten() {
            if meets(shape) {
                met.entry(looked.at).or_default().push(shape.clone());
            }
        }
        let mut new = Vec::new();
        for (key, shapes) in met {
            let is_full = self.rankings.len() >= MAX_RANKINGS;
            let Some((_, ranking)) = self.rankings.get_mut(&key) else {
                continue;
            };
            if ranking.shapes == shapes.len() {
                ranking.add(agent);
                own.push(key);
                continue;
            }
            ranking.shapes -= shapes.len();
            if is_full {
                self.forget(skill, &shapes);
                continue;
            }
            // The agent can do some of what the others can: these shapes get a ranking of their own.
            let mut split = ranking.clone();
            split.shapes = shapes.len();
            let others = split.members.keys().copied().collect();
            split.add(agent);
            let split = self.keep(skill, split);
            own.push(split);
            new.push((split, others));
            let of_skill = self.skills.entry(skill.clone()).or_default();
            for shape in shapes {
                if let Some(looked) = of_skill.shapes.get_mut(&shape) {
                    looked.at = split;
                }
            }
        }
        new
    }

    /// Forgets shapes that no ranking counts any more.
    fn forget(&mut self, skill: &Skill, shapes: &[Shape]) {
        let Some(of_skill) = self.skills.get_mut(skill) else {
            return;
        };
        self.shapes -= shapes.len();
        of_skill.shapes.retain(|shape, _| !shapes.contains(shape));
    }

    /// Takes an agent out of the rankings that it is in; those that are equal then become one.
    pub(super) fn leave(&mut self, skill: &Skill, order: u64, keys: &[RankingKey]) {
        let Some(of_skill) = self.skills.get(skill) else {
            return;
        };
        let own: Vec<_> = keys
            .iter()
            .filter(|key| of_skill.rankings.contains(key))
            .collect();
        for key in &own {
            if let Some((_, ranking)) = self.rankings.get_mut(key) {
                ranking.remove(order);
            }
        }
        for key in own {
            let Some((_, ranking)) = self.rankings.get(key) else {
                continue;
            };
            if let Some(equal) = self.equal_to(skill, ranking, Some(*key)) {
                self.merge(skill, *key, equal);
            }
        }
    }

    /// Forgets all of a skill.
    pub(super) fn remove(&mut self, skill: &Skill) {
        if let Some(of_skill) = self.skills.remove(skill) {
            self.shapes -= of_skill.shapes.len();
            for key in of_skill.rankings {
                self.rankings.remove(&key);
            }
        }
    }

    /// Another ranking of a skill with the same members.
    fn equal_to(
        &self,
        skill: &Skill,
        ranking: &Ranking,
        own: Option<RankingKey>,
    ) -> Option<RankingKey> {
        let mut keys = self.skills.get(skill)?.rankings.iter().copied();
        keys.find(|key| {
            let other = self.rankings.get(key);
            Some(*key) != own && other.is_some_and(|(_, other)| other.has_members_of(ranking))
        })
    }

    fn merge(&mut self, skill: &Skill, from: RankingKey, into: RankingKey) {
        let Some(of_skill) = self.skills.get_mut(skill) else {
            return;
        };
        for looked in of_skill
            .shapes
            .values_mut()
            .filter(|looked| looked.at == from)
        {
            looked.at = into;
        }
        of_skill.rankings.remove(&from);
        let moved = self
            .rankings
            .remove(&from)
            .map_or(0, |(_, ranking)| ranking.shapes);
        if let Some((_, ranking)) = self.rankings.get_mut(&into) {
            ranking.shapes += moved;
        }
    }

    fn keep(&mut self, skill: &Skill, ranking: Ranking) -> RankingKey {
        while self.rankings.len() >= MAX_RANKINGS {
            self.forget_shape();
        }
        self.made += 1;
        let of_skill = self.skills.entry(skill.clone()).or_default();
        of_skill.rankings.insert(self.made);
        self.rankings.insert(self.made, (skill.clone(), ranking));
        self.made
    }

    /// Forgets the shape that was not used for longest, and its ranking if no other shape looks at it.
    fn forget_shape(&mut self) {
        let all = self.skills.iter().flat_map(|(skill, found)| {
            let shapes = found.shapes.iter();
            shapes.map(move |(shape, looked)| (looked.used, looked.at, skill, shape))
        });
        let Some((_, at, skill, shape)) = all.min() else {
            // Rankings have shapes: there is none left.
            return self.rankings.clear();
        };
        let (skill, shape) = (skill.clone(), shape.clone());
        self.shapes -= 1;
        let is_last = self.rankings.get_mut(&at).is_none_or(|(_, ranking)| {
            ranking.shapes -= 1;
            ranking.shapes == 0
        });
        if is_last {
            self.rankings.remove(&at);
        }
        if let Some(found) = self.skills.get_mut(&skill) {
            found.shapes.remove(&shape);
            if is_last {
                found.rankings.remove(&at);
            }
            if found.shapes.is_empty() {
                self.skills.remove(&skill);
            }
        }
    }

    /// How many shapes and rankings are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let shapes = self.skills.values().map(|found| found.shapes.len());
        assert_eq!(shapes.sum::<usize>(), self.shapes);
        let keys = self.skills.values().map(|found| found.rankings.len());
        assert_eq!(keys.sum::<usize>(), self.rankings.len());
        for (key, (skill, ranking)) in &self.rankings {
            let shapes = self.skills[skill].shapes.values();
            let looking = shapes.filter(|looked| looked.at == *key).count();
            assert_eq!(looking, ranking.shapes);
        }
        (self.shapes, self.rankings.len())
    }
}
