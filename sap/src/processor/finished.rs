//! Tasks that have ended, in the order in which they are forgotten.

use core::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use ubos_common::canon::Digest;

use super::key::Key;

/// The ended tasks of all issuers. Who has most of them loses the oldest of his own first, so that nobody pushes out what
/// others have by ending many tasks.
#[derive(Debug, Default)]
pub(super) struct Finished {
    by_issuer: HashMap<Digest, VecDeque<(u64, Key)>>,
    /// How many each has, and since when he has the oldest: the last is the one who loses next.
    shares: BTreeSet<Share>,
    count: usize,
    /// How many there ever were.
    ended: u64,
}

type Share = (usize, Reverse<u64>, Digest);

impl Finished {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, key: Key) {
        self.ended += 1;
        let ended = self.ended;
        self.change(key.issuer(), |tasks| tasks.push_back((ended, key)));
        self.count += 1;
    }

    /// Takes out the one to be forgotten.
    pub(super) fn pop(&mut self) -> Option<Key> {
        let &(_, _, issuer) = self.shares.last()?;
        let oldest = self.change(issuer, VecDeque::pop_front)?;
        self.count -= 1;
        Some(oldest.1)
    }

    /// Takes out one that goes on.
    pub(super) fn remove(&mut self, key: &Key) {
        let removed = self.change(key.issuer(), |tasks| {
            let at = tasks.iter().position(|(_, ended)| ended == key);
            at.and_then(|at| tasks.remove(at))
        });
        self.count -= usize::from(removed.is_some());
    }

    fn change<T>(
        &mut self,
        issuer: Digest,
        change: impl FnOnce(&mut VecDeque<(u64, Key)>) -> T,
    ) -> T {
        let tasks = self.by_issuer.entry(issuer).or_default();
        let share = |tasks: &VecDeque<(u64, Key)>| {
            let oldest = tasks.front().map(|(ended, _)| *ended);
            oldest.map(|oldest| (tasks.len(), Reverse(oldest), issuer))
        };
        if let Some(before) = share(tasks) {
            self.shares.remove(&before);
        }
        let changed = change(tasks);
        match share(tasks) {
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
            finished.push(*key);
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
