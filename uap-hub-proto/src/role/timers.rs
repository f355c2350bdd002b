//! Deadlines by key: each key has at most one.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::time::Mono;

/// A set of deadlines; setting a key again moves its deadline.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    by_time: BTreeSet<(Mono, K)>,
    by_key: BTreeMap<K, Mono>,
}

impl<K: Ord + Clone> Timers<K> {
    pub(crate) const fn new() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }

    pub(crate) fn set(&mut self, key: K, at: Mono) {
        if let Some(old) = self.by_key.insert(key.clone(), at) {
            self.by_time.remove(&(old, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    pub(crate) fn clear(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    pub(crate) fn is_set(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Mono, K)> {
        self.by_time.iter()
    }

    pub(crate) fn next(&self) -> Option<Mono> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out one key whose time has come.
    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
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
        assert_eq!((timers.next(), timers.pop_due(at(0))), (Some(at(1)), None));
        assert_eq!(timers.pop_due(at(9)), Some('a'));
        assert!(!timers.is_set(&'a') && timers.is_set(&'b'));
        timers.clear(&'b');
        assert_eq!((timers.next(), timers.pop_due(at(9))), (None, None));
    }
}
