//! The agents of one skill, and which of them can do jobs of which shape.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ranks::{Rank, Ranks},
    shapes::{MAX_SHAPES, Shapes},
};
use crate::{
    capability::{Requirements, Shape, Skill, steps::count},
    id::ClientId,
    role::slots::{SlotKey, Slots},
};

/// Bytes of the shapes of a skill. A larger one is alone.
const MAX_SHAPE_BYTES: usize = 1 << 20;

/// Whether an agent may be offered jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) is_listening: bool,
    /// It listens and is not paused.
    pub(super) is_present: bool,
    /// It is present and may have one session more.
    pub(super) has_room: bool,
}

/// The agents of one skill that have listened. What one of them does changes its own place in one order, and of each it is known
/// which shapes of jobs it can do. A job of a shape that is not known takes the place of the one that was not used for longest, and
/// each agent is held against it.
#[derive(Debug)]
pub(super) struct Ranking {
    skill: Skill,
    members: Slots<Member>,
    shapes: BTreeMap<Shape, Known>,
    /// The numbers of `shapes`.
    taken: Shapes,
    shape_bytes: usize,
    /// How often a shape was asked for.
    uses: u64,
    /// Of each number.
    counts: Vec<Capable>,
    ranks: Ranks,
}

#[derive(Debug)]
struct Member {
    id: ClientId,
    /// The order of registration, which breaks ties.
    order: u64,
    requirements: Arc<Requirements>,
    /// The shapes that it can do, among those that are known.
    meets: Shapes,
    standing: Standing,
    rank: Option<Rank>,
}

/// A shape that is known.
#[derive(Clone, Copy, Debug)]
struct Known {
    number: usize,
    /// When it was asked for last, in uses of any.
    used: u64,
}

/// Agents that can do jobs of a shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capable {
    pub(super) all: usize,
    pub(super) listening: usize,
    pub(super) present: usize,
}

impl Capable {
    /// Capable an agent that was in one standing and is in another; `None` where it is not there.
    fn move_one(&mut self, before: Option<Standing>, after: Option<Standing>) {
        let moved = |count: usize, is: fn(Standing) -> bool| {
            count + usize::from(after.is_some_and(is)) - usize::from(before.is_some_and(is))
        };
        self.all = moved(self.all, |_| true);
        self.listening = moved(self.listening, |standing| standing.is_listening);
        self.present = moved(self.present, |standing| standing.is_present);
    }
}

impl Ranking {
    pub(super) fn new(skill: Skill) -> Self {
        Self {
            skill,
            members: Slots::new(),
            shapes: BTreeMap::new(),
            taken: Shapes::default(),
            shape_bytes: 0,
            uses: 0,
            counts: Vec::new(),
            ranks: Ranks::default(),
        }
    }

    pub(super) const fn skill(&self) -> &Skill {
        &self.skill
    }

    pub(super) const fn len(&self) -> usize {
        self.members.len()
    }

    /// How many have room, whatever they can do.
    pub(super) const fn free(&self) -> usize {
        self.ranks.len()
    }

    /// Adds an agent without room, until it is [changed](Self::change). It is held against the shapes that are known, which are bounded.
    pub(super) fn add(
        &mut self,
        id: &ClientId,
        order: u64,
        requirements: &Arc<Requirements>,
    ) -> SlotKey {
        let mut meets = Shapes::default();
        for (shape, known) in &self.shapes {
            meets.set(known.number, requirements.are_met_by(shape));
        }
        let standing = Standing::default();
        self.tally(meets, None, Some(standing));
        self.members.add(Member {
            id: id.clone(),
            order,
            requirements: Arc::clone(requirements),
            meets,
            standing,
            rank: None,
        })
    }

    /// Removes an agent that has no room any more.
    pub(super) fn remove(&mut self, key: SlotKey) {
        let Some(member) = self.members.remove(key) else {
            return;
        };
        debug_assert!(member.rank.is_none(), "who leaves has stopped to listen");
        self.tally(member.meets, Some(member.standing), None);
    }

    pub(super) fn change(&mut self, key: SlotKey, standing: Standing, rank: [u64; 2]) {
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        count(1);
        let before = std::mem::replace(&mut member.standing, standing);
        let rank = standing.has_room.then_some((rank, member.order));
        let old = std::mem::replace(&mut member.rank, rank);
        let meets = member.meets;
        if old != rank {
            if let Some(rank) = rank {
                self.ranks.insert(rank, meets, key);
            }
            // The last, so that a block with this agent alone is not made anew.
            old.into_iter().for_each(|old| self.ranks.remove(old));
        }
        let is_as_before = |is: fn(Standing) -> bool| is(before) == is(standing);
        if !is_as_before(|one| one.is_listening) || !is_as_before(|one| one.is_present) {
            self.tally(meets, Some(before), Some(standing));
        }
    }

    fn tally(&mut self, meets: Shapes, before: Option<Standing>, after: Option<Standing>) {
        for shape in meets.in_both(&self.taken) {
            if let Some(counts) = self.counts.get_mut(shape) {
                counts.move_one(before, after);
            }
        }
    }

    /// The number of a shape, if it is known.
    pub(super) fn number_of(&self, shape: &Shape) -> Option<usize> {
        self.shapes.get(shape).map(|known| known.number)
    }

    /// The number of a shape. Against one that is not known, all members are held.
    pub(super) fn know(&mut self, shape: &Shape) -> usize {
        self.uses += 1;
        if let Some(known) = self.shapes.get_mut(shape) {
            known.used = self.uses;
            return known.number;
        }
        let bytes = shape.weight();
        while self.shapes.len() >= MAX_SHAPES
            || (self.shape_bytes + bytes > MAX_SHAPE_BYTES && !self.shapes.is_empty())
        {
            self.forget_oldest();
        }
        let number = self.taken.first_free();
        self.taken.set(number, true);
        self.shape_bytes += bytes;
        let used = self.uses;
        self.shapes.insert(shape.clone(), Known { number, used });
        let mut counts = Capable::default();
        for member in self.members.iter_mut() {
            let is_met = member.requirements.are_met_by(shape);
            member.meets.set(number, is_met);
            if is_met {
                counts.move_one(None, Some(member.standing));
            }
        }
        let members = &self.members;
        let can = |key| {
            members
                .get(key)
                .is_some_and(|member| member.meets.has(number))
        };
        self.ranks.note(number, can);
        let counted = self.counts.len().max(number + 1);
        self.counts.resize(counted, Capable::default());
        if let Some(place) = self.counts.get_mut(number) {
            *place = counts;
        }
        number
    }

    /// Forgets the shape that was not used for longest. What is noted of its number means nothing until another shape has it.
    fn forget_oldest(&mut self) {
        let oldest = self.shapes.iter().min_by_key(|(_, known)| known.used);
        let Some(shape) = oldest.map(|(shape, _)| shape.clone()) else {
            return;
        };
        self.shape_bytes -= shape.weight();
        if let Some(known) = self.shapes.remove(&shape) {
            self.taken.set(known.number, false);
        }
    }

    /// Who can do jobs of a shape.
    pub(super) fn counts(&self, shape: usize) -> Capable {
        self.counts.get(shape).copied().unwrap_or_default()
    }

    /// The agents that have room and can do jobs of a shape, the best first.
    pub(super) fn ranked(&self, shape: usize) -> impl Iterator<Item = &ClientId> {
        let members = self.ranks.of(shape);
        members.filter_map(|key| self.members.get(key).map(|member| &member.id))
    }

    /// The first that has room, whatever it can do.
    #[cfg(test)]
    pub(super) fn first(&self) -> Option<&ClientId> {
        let ranked = self
            .members
            .iter()
            .filter(|(_, member)| member.rank.is_some());
        let first = ranked.min_by_key(|(_, member)| member.rank);
        first.map(|(_, member)| &member.id)
    }

    /// How many shapes are known, and that what is counted of each is so.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        let numbers = self.shapes.values().map(|known| known.number);
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        assert!(self.taken.in_both(&self.taken).eq(numbers));
        let bytes = self.shapes.keys().map(Shape::weight);
        assert_eq!(bytes.sum::<usize>(), self.shape_bytes);
        for (shape, known) in &self.shapes {
            let mut counts = Capable::default();
            let mut free = 0;
            for (_, member) in self.members.iter() {
                let meets = member.meets.has(known.number);
                assert_eq!(meets, member.requirements.are_met_by(shape));
                if meets {
                    counts.move_one(None, Some(member.standing));
                    free += usize::from(member.rank.is_some());
                }
            }
            assert_eq!(self.counts(known.number), counts);
            assert_eq!(self.ranked(known.number).count(), free);
        }
        self.shapes.len()
    }
}
