//! Deadlines.

use std::collections::{BTreeMap, BTreeSet};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers<K> {
    by_time: BTreeSet<(Mono, K)>,
    by_key: BTreeMap<K, Mono>,
}

impl<K: Ord + Clone> Timers<K> {
    /// No deadline.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }

    /// Sets the deadline of a key, in place of an earlier one.
    pub fn set(&mut self, key: K, at: Mono) {
        if let Some(old) = self.by_key.insert(key.clone(), at) {
            self.by_time.remove(&(old, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Sets the deadline of a key unless it has an earlier one.
    pub fn set_earlier(&mut self, key: K, at: Mono) {
        if self.get(&key).is_none_or(|old| at < old) {
            self.set(key, at);
        }
    }

    /// Removes the deadline of a key.
    pub fn clear(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
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
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the key whose deadline is the earliest, if that is not after `now`.
    pub fn pop_due(&mut self, now: Mono) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// All deadlines, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (Mono, &K)> {
        self.by_time.iter().map(|(at, key)| (*at, key))
    }

    /// Whether no deadline is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

impl<K: Ord + Clone> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_deadline() {
        let (mut timers, at) = (Timers::new(), Mono::from_nanos);
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
}
