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

    /// Sets, moves or (with `None`) drops a deadline.
    pub(super) fn set(&mut self, key: &K, at: Option<Mono>) {
        if let Some(old) = self.at.remove(key) {
            self.order.remove(&(old, key.clone()));
        }
        if let Some(at) = at {
            self.at.insert(key.clone(), at);
            self.order.insert((at, key.clone()));
        }
    }

    /// Moves a deadline only if that makes it earlier.
    pub(super) fn set_earlier(&mut self, key: &K, at: Mono) {
        if self.at.get(key).is_none_or(|old| at < *old) {
            self.set(key, Some(at));
        }
    }

    pub(super) fn next(&self) -> Option<Mono> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the earliest deadline that is due.
    pub(super) fn pop(&mut self, now: Mono) -> Option<K> {
        let (at, key) = self.order.first()?.clone();
        (at <= now).then(|| {
            self.set(&key, None);
            key
        })
    }

    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.at.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_each_key_once() {
        let at = Mono::from_millis;
        let mut timers = Timers::new();
        timers.set(&'a', Some(at(3)));
        timers.set(&'b', Some(at(2)));
        timers.set(&'a', Some(at(1)));
        timers.set_earlier(&'b', at(5));
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!(
            (timers.pop(at(2)), timers.pop(at(2)), timers.pop(at(9))),
            (Some('a'), Some('b'), None)
        );
    }
}
