//! Ended tasks, in the order in which they make room.

use core::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use ubos_common::canon::Digest;

use super::key::Key;

/// Tasks of all issuers, each with its weight. Who has most loses the oldest of his own first, so that nobody pushes out what
/// others have by ending many tasks, or long ones.
#[derive(Debug, Default)]
pub(super) struct Finished {
    by_issuer: HashMap<Digest, Part>,
    /// How much each has, and since when he has the oldest: the last is the one who loses next.
    shares: BTreeSet<Share>,
    count: usize,
    /// How many there ever were.
    ended: u64,
}

#[derive(Debug, Default)]
struct Part {
    tasks: VecDeque<Ended>,
    weight: usize,
}

#[derive(Debug)]
struct Ended {
    ended: u64,
    key: Key,
    weight: usize,
}

type Share = (usize, Reverse<u64>, Digest);

impl Finished {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, key: Key, weight: usize) {
        self.ended += 1;
        let ended = self.ended;
        self.change(key.issuer(), |part| {
            part.weight += weight;
            part.tasks.push_back(Ended { ended, key, weight });
        });
        self.count += 1;
    }

    /// Takes out the one that makes room.
    pub(super) fn pop(&mut self) -> Option<Key> {
        let &(_, _, issuer) = self.shares.last()?;
        self.take(issuer, |_| Some(0))
    }

    /// Takes out one, where it is here.
    pub(super) fn remove(&mut self, key: &Key) {
        self.take(key.issuer(), |tasks| {
            tasks.iter().position(|task| task.key == *key)
        });
    }

    fn take(
        &mut self,
        issuer: Digest,
        find: impl FnOnce(&VecDeque<Ended>) -> Option<usize>,
    ) -> Option<Key> {
        let taken = self.change(issuer, |part| {
            let task = part.tasks.remove(find(&part.tasks)?)?;
            part.weight -= task.weight;
            Some(task.key)
        });
        self.count -= usize::from(taken.is_some());
        taken
    }

    fn change<T>(&mut self, issuer: Digest, change: impl FnOnce(&mut Part) -> T) -> T {
        let part = self.by_issuer.entry(issuer).or_default();
        let share = |part: &Part| {
            let oldest = part.tasks.front()?.ended;
            Some((part.weight, Reverse(oldest), issuer))
        };
        if let Some(before) = share(part) {
            self.shares.remove(&before);
        }
        let changed = change(part);
        match share(part) {
            Some(now) => drop(self.shares.insert(now)),
            None => drop(self.by_issuer.remove(&issuer)),
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;

    use super::*;

    fn keys(issuer: &str, count: usize) -> Vec<Key> {
        let mut ids = IdSource::seeded(7);
        let key = |_| Key::new(ids.uuid().into(), &issuer.parse().unwrap());
        (0..count).map(key).collect()
    }

    fn with(orders: &[&[Key]]) -> Finished {
        let mut finished = Finished::default();
        for key in orders.iter().copied().flatten() {
            finished.push(*key, 1);
        }
        finished
    }

    fn popped(mut finished: Finished) -> Vec<Key> {
        let popped = core::iter::from_fn(|| finished.pop()).collect();
        assert_eq!(finished.len(), 0);
        assert!(finished.by_issuer.is_empty() && finished.shares.is_empty());
        popped
    }

    // spec: SAP-5-10
    #[test]
    fn who_has_most_loses_the_oldest_of_his_own() {
        let (few, many) = (keys("a", 2), keys("b", 5));
        for order in [[&few[..], &many[..]], [&many, &few]] {
            let finished = with(&order);
            assert_eq!(finished.len(), 7);
            let popped = popped(finished);
            assert_eq!(popped[..3], many[..3]);
            // Of those who have as many, who has the oldest.
            assert_eq!(popped[3], order[0][order[0].len() - 2]);
        }
    }

    #[test]
    fn most_is_what_weighs_most() {
        let (light, heavy) = (keys("a", 5), keys("b", 2));
        let mut finished = with(&[&light]);
        finished.push(heavy[0], 9);
        finished.push(heavy[1], 3);
        assert_eq!(popped(finished)[..2], [heavy[0], light[0]]);
    }

    #[test]
    fn of_one_issuer_the_oldest_goes_first_and_one_that_goes_on_is_not_there() {
        let tasks = keys("a", 4);
        let mut finished = with(&[&tasks]);
        finished.remove(&tasks[1]);
        finished.remove(&tasks[1]);
        finished.remove(&keys("b", 1)[0]);
        assert_eq!(finished.len(), 3);
        assert_eq!(popped(finished), [tasks[0], tasks[2], tasks[3]]);
    }
}
