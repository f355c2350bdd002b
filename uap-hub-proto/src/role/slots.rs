//! Things by a key of their own: on the wire sessions have ids, which are looked up once a message.

/// Names a thing in the table that it is in. Keys are in the order in which the things were added, and none is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlotKey {
    number: u64,
    slot: u32,
}

#[cfg(test)]
impl SlotKey {
    /// A key of no session.
    pub(super) const fn numbered(number: u64) -> Self {
        Self { number, slot: 0 }
    }
}

/// Things that come and go.
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

    pub(super) fn get(&self, key: SlotKey) -> Option<&T> {
        match self.slots.get(key.slot as usize) {
            Some(Some((number, item))) if *number == key.number => Some(item),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        match self.slots.get_mut(key.slot as usize) {
            Some(Some((number, item))) if *number == key.number => Some(item),
            _ => None,
        }
    }

    pub(super) fn add(&mut self, item: T) -> SlotKey {
        self.made += 1;
        let number = self.made;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // choice: 2^32 of them at once fit into no memory
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some((number, item));
        }
        SlotKey { number, slot }
    }

    pub(super) fn remove(&mut self, key: SlotKey) -> Option<T> {
        self.get(key)?;
        let place = self.slots.get_mut(key.slot as usize)?;
        let (_, item) = place.take()?;
        self.free.push(key.slot);
        Some(item)
    }

    /// All, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotKey, &T)> {
        self.slots.iter().zip(0..).filter_map(|(place, slot)| {
            let (number, item) = place.as_ref()?;
            let number = *number;
            Some((SlotKey { number, slot }, item))
        })
    }

    /// All, to be changed, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let places = self.slots.iter_mut().flatten();
        places.map(|(_, item)| item)
    }

    /// The keys of some, the first made first.
    pub(super) fn keys_of(&self, is: impl Fn(&T) -> bool) -> Vec<SlotKey> {
        let some = self.iter().filter(|(_, item)| is(item));
        let mut keys: Vec<_> = some.map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_what_is_gone_names_no_other() {
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
