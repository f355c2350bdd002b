//! Deadlines: the earliest is known at once, each can be moved.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::time::Mono;

/// At most one deadline for each key.
#[derive(Debug)]
pub(super) struct Timers<K> {
    order: BTreeSet<(Mono, K)>,
    at: BTreeMap<K, Mono>,
}

impl<K: Ord + Clone> Timers<K> {
    pub(super) const fn new() -> Self {
        Self {
            order: BTreeSet::new(),
            at: BTreeMap::new(),
        }
    }

    /// Sets or moves a deadline.
    pub(super) fn set(&mut self, key: K, at: Mono) {
        self.clear(&key);
        self.at.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// Removes a deadline.
    pub(super) fn clear(&mut self, key: &K) {
        if let Some(old) = self.at.remove(key) {
            self.order.remove(&(old, key.clone()));
        }
    }

    /// Moves a deadline only if that makes it earlier.
    pub(super) fn set_earlier(&mut self, key: K, at: Mono) {
        if self.at.get(&key).is_none_or(|old| at < *old) {
            self.set(key, at);
        }
    }

    pub(super) fn next(&self) -> Option<Mono> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the earliest deadline that is due.
    pub(super) fn pop_due(&mut self, now: Mono) -> Option<K> {
        let (at, key) = self.order.first()?.clone();
        (at <= now).then(|| {
            self.clear(&key);
            key
        })
    }

    pub(super) fn clear_all(&mut self) {
        self.order.clear();
        self.at.clear();
    }
}
