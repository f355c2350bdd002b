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
    /// The slot of each key that has a deadline.
    by_key: HashMap<K, Slot>,
    /// What is set, by slot.
    slots: Vec<Set>,
    free: Vec<Slot>,
    /// What was set, the earliest first. Most deadlines are moved or cleared long before they are due: what is out of date
    /// stays here until it comes first, or until there is more of it than of the rest. The first is never out of date.
    by_time: BinaryHeap<Reverse<(Mono, K, Slot, u64)>>,
    /// How often a deadline was set.
    made: u64,
}

type Slot = usize;

/// A deadline, and which of those ever set it is: 0 where the slot is free.
#[derive(Clone, Copy, Debug)]
struct Set {
    at: Mono,
    number: u64,
}

impl<K: Ord + Hash + Clone> Timers<K> {
    /// No deadline.
    #[must_use]
    pub fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_time: BinaryHeap::new(),
            made: 0,
        }
    }

    /// Sets the deadline of a key, in place of an earlier one.
    pub fn set(&mut self, key: K, at: Mono) {
        let slots = &mut self.slots;
        let free = &mut self.free;
        let slot = *self.by_key.entry(key.clone()).or_insert_with(|| {
            let unset = Set { at, number: 0 };
            free.pop().unwrap_or_else(|| {
                slots.push(unset);
                slots.len() - 1
            })
        });
        let Some(set) = self.slots.get_mut(slot) else {
            return;
        };
        let old = (set.number != 0).then_some(set.at);
        if old != Some(at) {
            self.made += 1;
            let number = self.made;
            *set = Set { at, number };
            self.by_time.push(Reverse((at, key, slot, number)));
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
        if self.by_key.is_empty() {
            return;
        }
        if let Some(slot) = self.by_key.remove(key) {
            let old = self.vacate(slot);
            self.tidy(old);
        }
    }

    /// Removes all deadlines.
    pub fn clear_all(&mut self) {
        let made = self.made;
        *self = Self {
            made,
            ..Self::new()
        };
    }

    /// The deadline of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Mono> {
        self.at(key)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.by_time.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the key whose deadline is the earliest, if that is not after `now`.
    pub fn pop_due(&mut self, now: Mono) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, key, slot, _)) = self.by_time.pop()?;
        self.by_key.remove(&key);
        self.vacate(slot);
        self.tidy(self.next());
        Some(key)
    }

    /// All deadlines, the earliest first. They are sorted for it: this is for tests and views.
    pub fn iter(&self) -> impl Iterator<Item = (Mono, &K)> {
        let all = self.by_key.keys();
        let mut all: Vec<_> = all.filter_map(|key| Some((self.get(key)?, key))).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// Whether no deadline is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Gives a slot back, and says when it was due.
    fn vacate(&mut self, slot: Slot) -> Option<Mono> {
        let set = self.slots.get_mut(slot)?;
        set.number = 0;
        self.free.push(slot);
        Some(set.at)
    }

    /// Removes what is out of date, where it comes first or is too much. What comes first can only be out of date if it is due
    /// when a deadline was that has changed, or if all before it was removed.
    fn tidy(&mut self, changed: Option<Mono>) {
        let slots = &self.slots;
        let is_current = |slot: Slot, number: u64| {
            let set = slots.get(slot);
            set.is_some_and(|set| set.number == number)
        };
        if self.by_time.len() > 2 * self.by_key.len() + SLACK {
            (self.by_time).retain(|Reverse((_, _, slot, number))| is_current(*slot, *number));
        }
        if changed != self.next() {
            return;
        }
        while let Some(Reverse((_, _, slot, number))) = self.by_time.peek()
            && !is_current(*slot, *number)
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
        let has = |key: &K| self.at(key) == other.at(key);
        self.by_key.len() == other.by_key.len() && self.by_key.keys().all(has)
    }
}

impl<K: Eq + Hash> Eq for Timers<K> {}

impl<K: Eq + Hash> Timers<K> {
    fn at(&self, key: &K) -> Option<Mono> {
        let slot = self.by_key.get(key)?;
        self.slots.get(*slot).map(|set| set.at)
    }
}

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
    fn they_are_equal_where_their_deadlines_are() {
        let (mut some, mut others) = (Timers::new(), Timers::new());
        some.set('a', at(1));
        others.set('b', at(2));
        assert_ne!(some, others);
        others.set('a', at(3));
        assert_ne!(some, others);
        others.clear(&'b');
        assert_ne!(some, others);
        others.set('a', at(1));
        assert_eq!(some, others);
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
