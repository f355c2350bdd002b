//! Sessions by a key of their own: on the wire they have ids, which are looked up once a message.

use std::hash::{Hash, Hasher};

/// Names a session in the tables of one machine. Keys are in the order in which the sessions were made, and none is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionKey {
    number: u64,
    slot: u32,
}

impl Hash for SessionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // No two keys of a table share it.
        state.write_u64(self.number);
    }
}

#[cfg(test)]
impl SessionKey {
    /// A key of no session.
    pub(super) const fn numbered(number: u64) -> Self {
        Self { number, slot: 0 }
    }
}

/// The live sessions of a machine.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// Each with its number.
    slots: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
    /// How many there were.
    made: u64,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            made: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, key: SessionKey) -> Option<&T> {
        match self.slots.get(key.slot as usize) {
            Some(Some((number, session))) if *number == key.number => Some(session),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: SessionKey) -> Option<&mut T> {
        match self.slots.get_mut(key.slot as usize) {
            Some(Some((number, session))) if *number == key.number => Some(session),
            _ => None,
        }
    }

    pub(super) fn add(&mut self, session: T) -> SessionKey {
        self.made += 1;
        let number = self.made;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // choice: 2^32 sessions at once fit into no memory
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some((number, session));
        }
        SessionKey { number, slot }
    }

    pub(super) fn remove(&mut self, key: SessionKey) -> Option<T> {
        self.get(key)?;
        let place = self.slots.get_mut(key.slot as usize)?;
        let (_, session) = place.take()?;
        self.free.push(key.slot);
        Some(session)
    }

    /// All sessions, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionKey, &T)> {
        self.slots.iter().zip(0..).filter_map(|(place, slot)| {
            let (number, session) = place.as_ref()?;
            let number = *number;
            Some((SessionKey { number, slot }, session))
        })
    }

    /// The keys of some, the first made first.
    pub(super) fn keys_of(&self, is: impl Fn(&T) -> bool) -> Vec<SessionKey> {
        let some = self.iter().filter(|(_, session)| is(session));
        let mut keys: Vec<_> = some.map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_session_that_is_gone_names_no_other() {
        let mut slots = Slots::new();
        let gone = slots.add('a');
        assert_eq!(slots.remove(gone), Some('a'));
        let there = slots.add('b');
        assert_eq!(gone.slot, there.slot, "its place is used again");
        assert_eq!(slots.get(gone), None);
        assert_eq!(slots.get_mut(gone), None);
        assert_eq!(slots.remove(gone), None);
        assert_eq!(slots.get(there), Some(&'b'));
        assert_eq!(slots.len(), 1);
    }
}
