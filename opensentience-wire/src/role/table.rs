//! Calls by their ids, in the order of the ids.

use std::collections::BTreeMap;

use super::CallId;

/// A map whose tree holds small entries alone: what is known of a call stays in its place, where a tree that held it would
/// move it with each call that comes or goes. What is looked for is an id, whose bytes are compared, and not a text.
#[derive(Debug)]
pub(super) struct Table<T> {
    places: BTreeMap<CallId, usize>,
    /// No longer than the most calls there were at once.
    calls: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: BTreeMap::new(),
            calls: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn contains_key(&self, id: &CallId) -> bool {
        self.places.contains_key(id)
    }

    pub(super) fn get(&self, id: &CallId) -> Option<&T> {
        self.calls.get(*self.places.get(id)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: &CallId) -> Option<&mut T> {
        self.calls.get_mut(*self.places.get(id)?)?.as_mut()
    }

    /// Adds a call, in the place of one of its id.
    pub(super) fn insert(&mut self, id: CallId, call: T) {
        let free = &mut self.free;
        let calls = &mut self.calls;
        let place = *self.places.entry(id).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                calls.push(None);
                calls.len() - 1
            })
        });
        if let Some(there) = self.calls.get_mut(place) {
            *there = Some(call);
        }
    }

    pub(super) fn remove(&mut self, id: &CallId) -> Option<T> {
        let place = self.places.remove(id)?;
        self.free.push(place);
        self.calls.get_mut(place)?.take()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &CallId> {
        self.places.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, call)| call)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&CallId, &T)> {
        let of = |place: &usize| self.calls.get(*place)?.as_ref();
        self.places
            .iter()
            .filter_map(move |(id, place)| Some((id, of(place)?)))
    }

    /// All calls, in the order of their ids; none is left.
    pub(super) fn drain(&mut self) -> Vec<(CallId, T)> {
        let calls = &mut self.calls;
        let places = core::mem::take(&mut self.places);
        let taken = places.into_iter().filter_map(|(id, place)| {
            let call = calls.get_mut(place)?.take()?;
            Some((id, call))
        });
        let taken = taken.collect();
        self.calls.clear();
        self.free.clear();
        taken
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn it_is_a_map_and_needs_no_more_places_than_there_were_calls_at_once() {
        let mut ids = IdSource::seeded(1);
        let mut dice = IdSource::seeded(2);
        let (mut table, mut map) = (Table::new(), BTreeMap::new());
        let mut most = 0;
        for number in 0..2_000 {
            if dice.bits() % 9 < 5 && map.len() < 20 {
                let id = CallId::new(ids.uuid());
                table.insert(id.clone(), number);
                map.insert(id, number);
            } else if let Some(id) = map
                .keys()
                .nth(dice.bits().count_ones() as usize % map.len().max(1))
            {
                let id: CallId = id.clone();
                if dice.bits().is_multiple_of(3) {
                    *table.get_mut(&id).unwrap() += 1;
                    *map.get_mut(&id).unwrap() += 1;
                    let again = table.get(&id).copied().unwrap();
                    table.insert(id.clone(), again);
                } else {
                    assert_eq!(table.remove(&id), map.remove(&id));
                    assert_eq!(table.remove(&id), None);
                    assert!(!table.contains_key(&id));
                }
            }
            most = most.max(map.len());
            assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
            assert!(table.keys().eq(map.keys()) && table.values().eq(map.values()));
            assert!(map.iter().all(|(id, call)| table.get(id) == Some(call)));
        }
        assert!(most > 9 && table.calls.len() == most);
        assert!(table.drain().into_iter().eq(map));
        assert!(table.is_empty() && table.values().next().is_none());
        let id = CallId::new(ids.uuid());
        table.insert(id.clone(), 7);
        assert_eq!((table.get(&id), table.len()), (Some(&7), 1));
        assert_eq!(table.calls.len(), 1);
    }
}
