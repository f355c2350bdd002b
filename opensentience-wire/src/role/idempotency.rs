//! Calls with one key have one effect.

use std::collections::{BTreeMap, VecDeque};

use ubos_common::json::RawObject;

use crate::error::{ErrorCode, ErrorObject};
use crate::message::{ActorType, Caller};

/// What is remembered under one name: callers have keys of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    caller: Option<(ActorType, Box<str>)>,
    pub(super) tool: Box<str>,
    key: Box<str>,
}

impl Key {
    pub(super) fn new(caller: Option<&Caller>, tool: &str, key: &str) -> Self {
        Self {
            caller: caller.map(|caller| (caller.kind.clone(), caller.id.as_str().into())),
            tool: tool.into(),
            key: key.into(),
        }
    }

    /// Whose tool it is.
    pub(super) fn owner(&self) -> &str {
        self.tool
            .rsplit_once('/')
            .map_or(&*self.tool, |(owner, _)| owner)
    }

    pub(super) fn weight(&self) -> usize {
        let caller = self.caller.as_ref().map_or(0, |(_, id)| id.len());
        caller + self.tool.len() + self.key.len()
    }
}

/// What a key of a tool was used for.
#[derive(Debug)]
struct Entry<C, R> {
    input: RawObject,
    state: State<C, R>,
}

#[derive(Debug)]
enum State<C, R> {
    /// The call that runs, and those that wait for its end.
    Running { leader: C, followers: Vec<C> },
    /// What came of it.
    Ended(R),
}

/// What a call with a key is to do.
#[derive(Debug, PartialEq)]
pub(super) enum Turn<R> {
    /// Run: it is the first.
    Run,
    /// Wait: another runs, and its end will be this one's, too.
    Join,
    /// Take the end of the one before.
    Repeat(R),
    /// Refuse: the key was used with another input.
    Conflict,
    /// Refuse: as many wait for this key already as may.
    Full,
}

/// Remembers what keys were used for: at most `entries` ended calls, of which everything that is kept has at most `bytes`
/// together. At either bound the oldest one of the tools' owner that holds the most is forgotten, so that nobody's results
/// push out those of another. What runs is bounded by the calls that may run.
#[derive(Debug)]
pub(super) struct Memory<C, R> {
    entries: usize,
    bytes: usize,
    held: Held,
    known: BTreeMap<Key, Entry<C, R>>,
    /// By owner of the tools.
    ended: BTreeMap<Box<str>, Ended>,
}

/// The ended calls of one owner, oldest first, and what each holds in bytes.
#[derive(Debug, Default)]
struct Ended {
    calls: VecDeque<(Key, usize)>,
    held: Held,
}

/// How much is held, in shares of either bound.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    entries: usize,
    bytes: usize,
}

impl Held {
    const fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    const fn remove(&mut self, bytes: usize) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl<C: Clone + PartialEq, R: Clone> Memory<C, R> {
    pub(super) const fn new(entries: usize, bytes: usize) -> Self {
        Self {
            entries,
            bytes,
            held: Held {
                entries: 0,
                bytes: 0,
            },
            known: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Takes a call in.
    pub(super) fn turn(&mut self, key: &Key, input: &RawObject, call: &C) -> Turn<R> {
        match self.known.get_mut(key) {
            None => {
                let state = State::Running {
                    leader: call.clone(),
                    followers: Vec::new(),
                };
                let input = input.clone();
                self.known.insert(key.clone(), Entry { input, state });
                Turn::Run
            }
            Some(entry) if entry.input != *input => Turn::Conflict,
            Some(Entry {
                state: State::Ended(end),
                ..
            }) => Turn::Repeat(end.clone()),
            Some(Entry {
                state: State::Running { followers, .. },
                ..
            }) if followers.len() >= FOLLOWERS => Turn::Full,
            Some(Entry {
                state: State::Running { followers, .. },
                ..
            }) => {
                followers.push(call.clone());
                Turn::Join
            }
        }
    }

    /// The bytes that are kept of a call that runs, where it is remembered with an end of so many bytes.
    pub(super) fn bytes_with(&self, key: &Key, end: usize) -> usize {
        let input = self
            .known
            .get(key)
            .map_or(0, |entry| entry.input.as_str().len());
        // The key is kept twice.
        end.saturating_add(input + 2 * key.weight() + ENTRY_BYTES)
    }

    /// A call ended: gives those that waited for it. Its end is remembered where `end` is given, with the bytes that it holds.
    ///
    /// Nothing happens for a call that does not lead.
    pub(super) fn end(&mut self, key: &Key, call: &C, end: Option<(R, usize)>) -> Vec<C> {
        let end = end.map(|(end, bytes)| (end, self.bytes_with(key, bytes)));
        let Some(entry) = self.known.get_mut(key) else {
            return Vec::new();
        };
        let State::Running { leader, followers } = &mut entry.state else {
            return Vec::new();
        };
        if leader != call {
            return Vec::new();
        }
        let waited = core::mem::take(followers);
        match end {
            Some((end, bytes)) => {
                entry.state = State::Ended(end);
                self.held.add(bytes);
                let ended = self.ended.entry(key.owner().into()).or_default();
                ended.held.add(bytes);
                ended.calls.push_back((key.clone(), bytes));
                self.forget();
            }
            None => drop(self.known.remove(key)),
        }
        waited
    }

    /// A follower no longer waits.
    pub(super) fn leave(&mut self, key: &Key, call: &C) {
        if let Some(Entry {
            state: State::Running { followers, .. },
            ..
        }) = self.known.get_mut(key)
        {
            followers.retain(|other| other != call);
        }
    }

    /// What is known: each key with the bytes of its input, and the end, if it has come.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, usize, Option<&R>)> {
        self.known.iter().map(|(key, entry)| {
            let end = match &entry.state {
                State::Ended(end) => Some(end),
                State::Running { .. } => None,
            };
            (key, entry.input.as_str().len(), end)
        })
    }

    /// Whether others wait for the end of a call.
    pub(super) fn is_waited_for(&self, key: &Key, call: &C) -> bool {
        matches!(self.known.get(key), Some(Entry { state: State::Running { leader, followers }, .. })
            if leader == call && !followers.is_empty())
    }

    fn forget(&mut self) {
        loop {
            let is_long = self.held.entries > self.entries;
            if !is_long && self.held.bytes <= self.bytes {
                return;
            }
            let most = self.ended.iter().max_by_key(|(_, ended)| match is_long {
                true => ended.held.entries,
                false => ended.held.bytes,
            });
            let Some((owner, _)) = most else { return };
            let owner = owner.clone();
            self.forget_oldest(&owner);
        }
    }

    /// Forgets the oldest end of the tools of an owner, if there is one.
    pub(super) fn forget_oldest(&mut self, owner: &str) -> bool {
        let Some(ended) = self.ended.get_mut(owner) else {
            return false;
        };
        let oldest = ended.calls.pop_front();
        if let Some((oldest, bytes)) = &oldest {
            self.known.remove(oldest);
            ended.held.remove(*bytes);
            self.held.remove(*bytes);
        }
        if ended.calls.is_empty() {
            self.ended.remove(owner);
        }
        oldest.is_some()
    }
}

/// The refusal of a key that was used with another input.
pub(super) fn conflict() -> ErrorObject {
    ErrorObject::of(
        ErrorCode::ToolConflict,
        "the idempotency key was used with another input",
    )
}

/// Calls that wait for one and the same.
const FOLLOWERS: usize = 64;

/// Bytes that a remembered call takes beside its texts.
const ENTRY_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// One after another: the tool and the bytes of each; gives which are still known.
    fn remembered(entries: usize, bytes: usize, calls: &[(&str, usize)]) -> Vec<usize> {
        let mut memory = Memory::new(entries, bytes);
        let input = RawObject::empty();
        let key = |n: usize| Key::new(None, calls[n].0, &format!("{n:02}"));
        for (n, (_, held)) in calls.iter().enumerate() {
            assert_eq!(memory.turn(&key(n), &input, &n), Turn::Run);
            memory.end(&key(n), &n, Some((n, *held)));
        }
        let known = |n: &usize| memory.turn(&key(*n), &input, &99) == Turn::Repeat(*n);
        (0..calls.len()).filter(known).collect()
    }

    #[test]
    fn nobody_pushes_out_the_results_of_another() {
        let mut calls = vec![("a/t", 0)];
        calls.extend([("b/t", 0), ("b/u", 0), ("b/t", 0), ("b/t", 0)]);
        assert_eq!(remembered(3, usize::MAX, &calls), [0, 3, 4]);
        let calls = [("a/t", 1 << 20), ("b/t", 3 << 20), ("b/u", 2 << 20)];
        assert_eq!(remembered(9, 4 << 20, &calls), [0, 2]);
        assert_eq!(remembered(9, 1 << 20, &calls), Vec::<usize>::new());
        assert_eq!(remembered(0, 9 << 20, &calls), Vec::<usize>::new());
    }

    #[test]
    fn nothing_is_kept_of_an_owner_without_results() {
        let (mut memory, input) = (Memory::new(1, usize::MAX), RawObject::empty());
        for (n, tool) in ["a/t", "b/t", "c/t"].into_iter().enumerate() {
            let key = Key::new(None, tool, "k");
            assert_eq!(memory.turn(&key, &input, &n), Turn::Run);
            memory.end(&key, &n, Some((n, 0)));
        }
        assert_eq!((memory.known.len(), memory.ended.len()), (1, 1));
    }

    #[test]
    fn one_who_was_pushed_out_has_less_than_before() {
        let mut calls = vec![("z/t", 0); 8];
        calls.extend([("b/t", 0); 6]);
        // Three of `z` go until both have five; then the oldest of `b`.
        let known: Vec<_> = (3..14).filter(|n| *n != 8).collect();
        assert_eq!(remembered(10, usize::MAX, &calls), known);
    }

    #[test]
    fn what_a_key_is_called_counts_for_the_bound() {
        let caller = Caller::new(ActorType::Human, "c".repeat(40));
        let input = RawObject::empty();
        let own = |key: &Key| 2 * (40 + 4 + key.key.len()) + ENTRY_BYTES + input.as_str().len();
        for key in ["k".repeat(300), "k".to_owned()] {
            let key = Key::new(Some(&caller), "tool", &key);
            for (bytes, turn) in [(own(&key), Turn::Repeat(7)), (own(&key) - 1, Turn::Run)] {
                let mut memory = Memory::new(1, bytes);
                assert_eq!(memory.turn(&key, &input, &1), Turn::Run);
                memory.end(&key, &1, Some((7, 0)));
                assert_eq!(memory.turn(&key, &input, &2), turn);
            }
        }
    }
}
