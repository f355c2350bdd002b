//! Agents in the order in which they are asked, in blocks that say what their agents can do.

use super::shapes::Shapes;
use crate::{capability::steps::count, role::slots::SlotKey};

/// Rank by the placement, then by age.
pub(super) type Rank = ([u64; 2], u64);

/// Entries of a block; a fuller one is split in two.
const MAX_BLOCK: usize = 128;

/// The agents of a skill that have room, the best first. The first that can do jobs of a shape is found by a look at each block
/// before it: however many come before it that cannot, they are not looked at one by one.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    blocks: Vec<Block>,
    len: usize,
}

#[derive(Debug, Default)]
struct Block {
    /// What any of its agents can do.
    any: Shapes,
    /// By their ranks; at least one.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: Rank,
    meets: Shapes,
    agent: SlotKey,
}

impl Ranks {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an agent that can do jobs of some shapes. No other has this rank.
    pub(super) fn insert(&mut self, rank: Rank, meets: Shapes, agent: SlotKey) {
        let entry = Entry { rank, meets, agent };
        let at = self.block_of(rank);
        self.len += 1;
        let Some(block) = self.blocks.get_mut(at) else {
            return self.blocks.push(Block::of(vec![entry]));
        };
        let (Ok(place) | Err(place)) = block.place(rank);
        block.entries.insert(place, entry);
        block.any.join(&meets);
        if block.entries.len() > MAX_BLOCK {
            let tail = block.entries.split_off(MAX_BLOCK / 2);
            block.sum_up();
            self.blocks.insert(at + 1, Block::of(tail));
        }
    }

    pub(super) fn remove(&mut self, rank: Rank) {
        let at = self.block_of(rank);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let Ok(place) = block.place(rank) else {
            return;
        };
        block.entries.remove(place);
        block.sum_up();
        self.len -= 1;
        if block.entries.is_empty() {
            self.blocks.remove(at);
        }
        // Two that are almost empty become one, so that there are never many more blocks than are needed.
        for at in [at, at.wrapping_sub(1)] {
            if let Some([one, next]) = self.blocks.get_mut(at..at.saturating_add(2))
                && one.entries.len() + next.entries.len() <= MAX_BLOCK / 2
            {
                one.entries.append(&mut next.entries);
                one.sum_up();
                self.blocks.remove(at + 1);
                return;
            }
        }
    }

    /// The agents that can do jobs of a shape, the best first.
    pub(super) fn of(&self, shape: usize) -> impl Iterator<Item = SlotKey> {
        let blocks = self.blocks.iter().filter(move |block| {
            count(1);
            block.any.has(shape)
        });
        let entries = blocks.flat_map(|block| &block.entries);
        let able = entries.filter(move |entry| {
            count(1);
            entry.meets.has(shape)
        });
        able.map(|entry| entry.agent)
    }

    /// Notes anew who can do jobs of a shape.
    pub(super) fn note(&mut self, shape: usize, can: impl Fn(SlotKey) -> bool) {
        for block in &mut self.blocks {
            for entry in &mut block.entries {
                entry.meets.set(shape, can(entry.agent));
            }
            block.sum_up();
        }
    }

    /// The block that a rank is in, or would be.
    fn block_of(&self, rank: Rank) -> usize {
        let begins_after =
            |block: &Block| block.entries.first().is_some_and(|one| one.rank <= rank);
        let after = self.blocks.partition_point(begins_after);
        after.saturating_sub(1)
    }
}

impl Block {
    fn of(entries: Vec<Entry>) -> Self {
        let any = Shapes::default();
        let mut block = Self { any, entries };
        block.sum_up();
        block
    }

    /// Where a rank is, or would be.
    fn place(&self, rank: Rank) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&rank, |entry| entry.rank)
    }

    fn sum_up(&mut self) {
        self.any = Shapes::default();
        for entry in &self.entries {
            self.any.join(&entry.meets);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{capability::steps::STEPS, role::slots::Slots};

    fn shapes(numbers: u64) -> Shapes {
        let mut shapes = Shapes::default();
        (0..3).for_each(|n| shapes.set(n, numbers & (1 << n) != 0));
        shapes
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn the_first_of_a_shape_is_who_a_search_finds() {
        let mut number = 1_u64;
        let mut random = |below: u64| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (number >> 33) % below
        };
        let (mut ranks, mut keys, mut kept) = (Ranks::default(), Slots::new(), BTreeMap::new());
        let mut blocks = 0;
        for round in 0..200 {
            for _ in 0..100 {
                let number = random(1000);
                let rank = ([number % 7, number], number);
                ranks.remove(rank);
                kept.remove(&rank);
                // Many are there for a while, then few.
                if random(100) < 99 - round / 2 {
                    let (meets, agent) = (shapes(random(8)), keys.add(()));
                    ranks.insert(rank, meets, agent);
                    kept.insert(rank, (meets, agent));
                }
            }
            let shape = usize::try_from(random(3)).unwrap();
            let able = kept
                .values()
                .filter(|(meets, _): &&(Shapes, SlotKey)| meets.has(shape));
            let able: Vec<_> = able.map(|(_, agent)| *agent).collect();
            assert_eq!(ranks.of(shape).collect::<Vec<_>>(), able);
            assert_eq!(ranks.len(), kept.len());
            blocks = blocks.max(ranks.blocks.len());
            let mut pairs = ranks.blocks.windows(2);
            let is_full =
                |pair: &[Block]| pair[0].entries.len() + pair[1].entries.len() > MAX_BLOCK / 2;
            assert!(pairs.all(is_full), "blocks that are almost empty");
            let is_bounded = |block: &Block| block.entries.len() <= MAX_BLOCK;
            assert!(ranks.blocks.iter().all(is_bounded));
        }
        assert!(blocks > 4, "{blocks}");
        let all: Vec<_> = kept.values().map(|(_, agent)| *agent).collect();
        ranks.note(8, |agent| {
            all.iter().step_by(3).any(|other| *other == agent)
        });
        assert!(ranks.of(8).eq(all.iter().step_by(3).copied()));
        ranks.note(8, |agent| agent == all[1]);
        assert!(ranks.of(8).eq([all[1]]));
    }

    #[test]
    fn what_a_block_has_goes_with_the_last_that_has_it() {
        let (mut ranks, mut keys) = (Ranks::default(), Slots::new());
        for n in 0..4 {
            ranks.insert(([0, n], n), shapes(1 << (n / 2)), keys.add(()));
        }
        for (gone, has) in [(0, true), (1, false)] {
            ranks.remove(([0, gone], gone));
            let any = &ranks.blocks[0].any;
            assert_eq!((any.has(0), any.has(1)), (has, true));
        }
    }

    #[test]
    fn of_two_blocks_that_lose_agents_one_is_left_that_has_what_both_had() {
        const HALF: u64 = MAX_BLOCK as u64 / 2;
        // The agents of the second block alone have the second shape.
        let two_without = |gone: &mut dyn Iterator<Item = u64>| {
            let (mut ranks, mut keys) = (Ranks::default(), Slots::new());
            for n in 0..=2 * HALF {
                assert!(ranks.blocks.len() < 2, "it was not full");
                ranks.insert(([n, 0], n), shapes(1 + n / HALF), keys.add(()));
            }
            assert_eq!(ranks.blocks.len(), 2);
            assert!(!ranks.blocks[0].any.has(1), "it would be looked into");
            gone.for_each(|n| ranks.remove(([n, 0], n)));
            (ranks.blocks.len(), ranks.of(1).count())
        };
        let half = MAX_BLOCK / 2;
        let few_together = &mut (0..HALF - 2).chain(HALF..HALF + 3);
        assert_eq!(two_without(few_together), (1, half - 2));
        let all_of_the_first = &mut (0..HALF);
        assert_eq!(two_without(all_of_the_first), (1, half + 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn those_who_cannot_are_passed_over_block_by_block() {
        let (mut ranks, mut keys) = (Ranks::default(), Slots::new());
        for rank in 0..10_000 {
            ranks.insert(([rank, 0], rank), shapes(1), keys.add(()));
        }
        let last = keys.add(());
        ranks.insert(([10_000, 0], 0), shapes(2), last);
        let before = STEPS.get();
        assert_eq!(ranks.of(1).next(), Some(last));
        let blocks = ranks.blocks.len();
        assert!(blocks <= 10_000 / (MAX_BLOCK / 2) + 1, "{blocks}");
        // All blocks, and of the last all agents.
        let steps = blocks + ranks.blocks[blocks - 1].entries.len();
        assert_eq!(STEPS.get() - before, steps);
    }
}
