//! Deadlines.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

use crate::time::Mono;

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
pub struct Timers<K, S = RandomState> {
    /// The slot of each key that has a deadline.
    by_key: HashMap<K, Slot, S>,
    /// What is set, by slot; `None` where the slot is free.
    slots: Vec<Option<Set<K>>>,
    free: Vec<Slot>,
    /// A binary heap of all that are set: none is due before the one above it, so the first is the earliest.
    heap: Vec<(Mono, Slot)>,
}

type Slot = usize;

/// A key whose deadline is set.
#[derive(Clone, Debug)]
struct Set<K> {
    key: K,
    /// Where it is in the heap.
    place: usize,
}

impl<K: Ord> Timers<K> {
    /// No deadline. Keys are hashed as others may have chosen them; [`Default`] makes deadlines with another hasher.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<K: Ord + Hash + Clone, S: BuildHasher> Timers<K, S> {
    /// Sets the deadline of a key, in place of an earlier one.
    pub fn set(&mut self, key: K, at: Mono) {
        match self.by_key.get(&key) {
            Some(slot) => {
                if let Some(place) = self.place(*slot) {
                    self.put(place, (at, *slot));
                    self.settle(place);
                }
            }
            None => {
                let place = self.heap.len();
                let set = Some(Set {
                    key: key.clone(),
                    place,
                });
                let slot = self.take_slot(set);
                self.by_key.insert(key, slot);
                self.heap.push((at, slot));
                self.settle(place);
            }
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
        if !self.by_key.is_empty()
            && let Some(slot) = self.by_key.remove(key)
        {
            self.vacate(slot);
        }
    }

    /// Removes all deadlines.
    pub fn clear_all(&mut self) {
        self.by_key.clear();
        self.slots.clear();
        self.free.clear();
        self.heap.clear();
    }

    /// The deadline of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Mono> {
        self.at(key)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// Takes the key whose deadline is the earliest, if that is not after `now`.
    pub fn pop_due(&mut self, now: Mono) -> Option<K> {
        let (at, slot) = *self.heap.first()?;
        if at > now {
            return None;
        }
        let key = self.vacate(slot)?;
        self.by_key.remove(&key);
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

    fn take_slot(&mut self, set: Option<Set<K>>) -> Slot {
        let Some(slot) = self.free.pop() else {
            self.slots.push(set);
            return self.slots.len() - 1;
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = set;
        }
        slot
    }

    /// Takes what is in a slot out of it and of the heap.
    fn vacate(&mut self, slot: Slot) -> Option<K> {
        let Set { key, place } = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        self.heap.swap_remove(place);
        if let Some(last) = self.heap.get(place) {
            self.put(place, *last);
            self.settle(place);
        }
        Some(key)
    }
}

/// The heap. No place and no slot in it is out of range; where one were, nothing would be moved.
impl<K: Ord, S> Timers<K, S> {
    fn place(&self, slot: Slot) -> Option<usize> {
        let set = self.slots.get(slot)?.as_ref()?;
        Some(set.place)
    }

    fn put(&mut self, place: usize, entry: (Mono, Slot)) {
        if let (Some(to), Some(Some(set))) = (self.heap.get_mut(place), self.slots.get_mut(entry.1))
        {
            *to = entry;
            set.place = place;
        }
    }

    /// Moves an entry up or down to where it belongs.
    fn settle(&mut self, mut place: usize) {
        let Some(entry) = self.heap.get(place).copied() else {
            return;
        };
        let from = place;
        while let Some(above) = place.checked_sub(1).map(|place| place / 2)
            && let Some(upper) = self.heap.get(above).copied()
            && self.is_before(entry, upper)
        {
            self.put(place, upper);
            place = above;
        }
        while let Some((below, lower)) = self.first_below(place)
            && self.is_before(lower, entry)
        {
            self.put(place, lower);
            place = below;
        }
        if place != from {
            self.put(place, entry);
        }
    }

    /// The earlier of the two below a place.
    fn first_below(&self, place: usize) -> Option<(usize, (Mono, Slot))> {
        let left = 2 * place + 1;
        let one = *self.heap.get(left)?;
        match self.heap.get(left + 1) {
            Some(other) if self.is_before(*other, one) => Some((left + 1, *other)),
            _ => Some((left, one)),
        }
    }

    fn is_before(&self, one: (Mono, Slot), other: (Mono, Slot)) -> bool {
        let key = |slot: Slot| Some(&self.slots.get(slot)?.as_ref()?.key);
        one.0 < other.0 || (one.0 == other.0 && key(one.1) < key(other.1))
    }
}

impl<K: Ord, S: Default> Default for Timers<K, S> {
    fn default() -> Self {
        Self {
            by_key: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            heap: Vec::new(),
        }
    }
}

/// Equal when the same keys have the same deadlines.
impl<K: Eq + Hash, S: BuildHasher> PartialEq for Timers<K, S> {
    fn eq(&self, other: &Self) -> bool {
        let has = |key: &K| self.at(key) == other.at(key);
        self.by_key.len() == other.by_key.len() && self.by_key.keys().all(has)
    }
}

impl<K: Eq + Hash, S: BuildHasher> Eq for Timers<K, S> {}

impl<K: Eq + Hash, S: BuildHasher> Timers<K, S> {
    fn at(&self, key: &K) -> Option<Mono> {
        let slot = self.by_key.get(key)?;
        let set = self.slots.get(*slot)?.as_ref()?;
        self.heap.get(set.place).map(|(at, _)| *at)
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
        assert!(!timers.is_empty());
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
    fn nothing_is_kept_of_deadlines_that_are_moved_or_cleared() {
        let mut timers = Timers::new();
        for n in 0..if cfg!(miri) { 200 } else { 10_000 } {
            timers.set(n % 3, at(n));
            timers.set(n, at(5));
            timers.clear(&n);
            assert!(timers.heap.len() <= 3 && timers.slots.len() <= 4);
        }
        timers.clear_all();
        assert_eq!((timers.next(), timers.is_empty()), (None, true));
        assert!(timers.slots.is_empty());
        timers.set(1, at(7));
        assert_eq!(timers.pop_due(at(7)), Some(1));
    }

    /// Against the plainest map that does the same.
    #[test]
    fn any_order_of_calls_gives_what_a_plain_map_gives() {
        let (mut timers, mut plain) = (Timers::new(), std::collections::BTreeMap::new());
        let mut state = 1_u64;
        // An interpreter that looks for undefined behaviour is far slower.
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
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
        let mut all: Vec<_> = plain.iter().map(|(key, at)| (*at, key)).collect();
        all.sort_unstable();
        assert_eq!(timers.iter().collect::<Vec<_>>(), all);
    }
}
