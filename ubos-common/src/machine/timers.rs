//! Deadlines.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::Hash,
};

use crate::time::Mono;

/// Entries of the heap beyond two for each deadline, at which those that are out of date are removed.
const SLACK: usize = 64;

/// Deadlines by key: each key has at most one, and the earliest is known at once.
///
/// A machine sets what it waits for, gives [`Timers::next`] from its `poll_timeout`, and takes what is due
/// in its `handle_timeout`. Deadlines of the same moment come in the order of their keys, so that equal
/// inputs give equal outputs.
///
/// ```
/// use ubos_common::machine::Timers;
/// use ubos_common::time::Mono;
///
/// let mut timers = Timers::new();
/// timers.set("heartbeat", Mono::from_millis(5_000));
/// timers.set("call", Mono::from_millis(700));
/// assert_eq!(timers.next(), Some(Mono::from_millis(700)));
/// assert_eq!(timers.pop_due(Mono::from_millis(699)), None);
/// assert_eq!(timers.pop_due(Mono::from_millis(700)), Some("call"));
/// ```
#[derive(Clone, Debug)]
pub struct Timers<K> {
    by_key: HashMap<K, Mono>,
    /// What was set, the earliest first. Most deadlines are moved or cleared long before they are due: what is out of date
    /// stays here until it comes first, or until there is more of it than of the rest. The first is never out of date.
    by_time: BinaryHeap<Reverse<(Mono, K)>>,
}

impl<K: Ord + Hash + Clone> Timers<K> {
    /// No deadline.
    #[must_use]
    pub fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            by_time: BinaryHeap::new(),
        }
    }

    /// Sets the deadline of a key, in place of an earlier one.
    pub fn set(&mut self, key: K, at: Mono) {
        let old = self.by_key.insert(key.clone(), at);
        if old != Some(at) {
            self.by_time.push(Reverse((at, key)));
            self.tidy(old);
        }
    }

    /// Sets the deadline of a key unless it has an earlier one.
    pub fn set_earlier(&mut self, key: K, at: Mono) {
        if self.get(&key).is_none_or(|old| at < old) {
            self.set(key, at);
        }
    }

    /// Removes the deadline of a key.
    pub fn clear(&mut self, key: &K) {
        let old = self.by_key.remove(key);
        if old.is_some() {
            self.tidy(old);
        }
    }

    /// Removes all deadlines.
    pub fn clear_all(&mut self) {
        self.by_time.clear();
        self.by_key.clear();
    }

    /// The deadline of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Mono> {
        self.by_key.get(key).copied()
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.by_time.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the key whose deadline is the earliest, if that is not after `now`.
    pub fn pop_due(&mut self, now: Mono) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, key)) = self.by_time.pop()?;
        self.by_key.remove(&key);
        self.tidy(self.next());
        Some(key)
    }

    /// All deadlines, the earliest first. They are sorted for it: this is for tests and views.
    pub fn iter(&self) -> impl Iterator<Item = (Mono, &K)> {
        let mut all: Vec<_> = self.by_key.iter().map(|(key, at)| (*at, key)).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// Whether no deadline is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Removes what is out of date, where it comes first or is too much. What comes first can only be out of date if it is due
    /// when a deadline was that has changed, or if all before it was removed.
    fn tidy(&mut self, changed: Option<Mono>) {
        let by_key = &self.by_key;
        let is_current = |at: Mono, key: &K| by_key.get(key) == Some(&at);
        if self.by_time.len() > 2 * by_key.len() + SLACK {
            (self.by_time).retain(|Reverse((at, key))| is_current(*at, key));
        }
        if changed != self.by_time.peek().map(|Reverse((at, _))| *at) {
            return;
        }
        while let Some(Reverse((at, key))) = self.by_time.peek()
            && !is_current(*at, key)
        {
            self.by_time.pop();
        }
    }
}

impl<K: Ord + Hash + Clone> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Equal when the same keys have the same deadlines.
impl<K: Eq + Hash> PartialEq for Timers<K> {
    fn eq(&self, other: &Self) -> bool {
        self.by_key == other.by_key
    }
}

impl<K: Eq + Hash> Eq for Timers<K> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Mono {
        Mono::from_nanos(nanos)
    }

    #[test]
    fn a_key_has_one_deadline() {
        let mut timers = Timers::new();
        timers.set('a', at(5));
        timers.set('b', at(3));
        timers.set('a', at(1));
        timers.set_earlier('b', at(9));
        assert_eq!((timers.next(), timers.pop_due(at(0))), (Some(at(1)), None));
        assert_eq!(timers.pop_due(at(9)), Some('a'));
        assert_eq!((timers.get(&'a'), timers.get(&'b')), (None, Some(at(3))));
        timers.set_earlier('b', at(2));
        assert_eq!(timers.iter().collect::<Vec<_>>(), [(at(2), &'b')]);
        timers.clear(&'b');
        assert_eq!((timers.pop_due(at(9)), timers.is_empty()), (None, true));
    }

    #[test]
    fn deadlines_of_one_moment_come_by_key() {
        let mut timers = Timers::new();
        for key in ['c', 'a', 'b'] {
            timers.set(key, Mono::ZERO);
        }
        let due: Vec<_> = core::iter::from_fn(|| timers.pop_due(Mono::ZERO)).collect();
        assert_eq!(due, ['a', 'b', 'c']);
    }

    #[test]
    fn a_deadline_that_is_set_back_is_due_once() {
        let mut timers = Timers::new();
        timers.set('a', at(1));
        timers.set('a', at(2));
        timers.set('a', at(1));
        timers.set('a', at(1));
        assert_eq!(timers.pop_due(at(9)), Some('a'));
        assert_eq!((timers.pop_due(at(9)), timers.next()), (None, None));
    }

    #[test]
    fn what_is_out_of_date_does_not_pile_up() {
        let mut timers = Timers::new();
        timers.set(0, at(1));
        for n in 0..10_000 {
            timers.set(1 + n % 3, at(2 + n));
            assert!(timers.by_time.len() <= 2 * 4 + SLACK + 1);
        }
        for n in 4..10_000 {
            timers.set(n, at(5));
            timers.clear(&n);
        }
        assert!(timers.by_time.len() <= 2 * 4 + SLACK);
        timers.clear(&0);
        assert_eq!(timers.next(), Some(at(9999)));
    }

    /// Against the plainest map that does the same.
    #[test]
    fn any_order_of_calls_gives_what_a_plain_map_gives() {
        let (mut timers, mut plain) = (Timers::new(), std::collections::BTreeMap::new());
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (key, time) = ((state >> 33) % 40, at((state >> 50) % 200));
            match (state >> 40) % 4 {
                0 | 1 => {
                    timers.set(key, time);
                    plain.insert(key, time);
                }
                2 => {
                    timers.clear(&key);
                    plain.remove(&key);
                }
                _ => {
                    let due = plain.iter().map(|(key, at)| (*at, *key)).min();
                    let due = due.filter(|(at, _)| *at <= time).map(|(_, key)| key);
                    plain.retain(|key, _| Some(*key) != due);
                    assert_eq!(timers.pop_due(time), due);
                }
            }
            assert_eq!(timers.next(), plain.values().min().copied());
        }
    }
}
