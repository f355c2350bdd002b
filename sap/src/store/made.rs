//! Entries that are made on another thread, each in its place in the order of the calls.

use core::panic::AssertUnwindSafe;
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;

use super::memory_cache::lock;
use crate::future::{BoxFuture, ready};
use crate::transcript::{Entry, TranscriptError};
use crate::work::{self, HEAVY};

type Recorded = Result<u64, TranscriptError>;

/// Where entries go when they are made.
pub(super) trait Shelf: Send + Sync + 'static {
    /// Adds an entry, and gives its number.
    fn add(&self, entry: &Entry) -> Recorded;

    /// Whether there will be room for so many entries of so many bytes.
    ///
    /// # Errors
    ///
    /// There is none.
    fn check_room(&self, entries: usize, bytes: usize) -> Result<(), TranscriptError>;
}

/// A shelf and the entries that are not on it yet. While one of them is made, all that come wait behind it.
#[derive(Debug)]
pub(super) struct Line<S> {
    pub(super) shelf: S,
    waiting: Mutex<Unmade>,
}

#[derive(Debug, Default)]
struct Unmade {
    entries: VecDeque<ToMake>,
    /// Of all that are not on the shelf, the one that is being made among them.
    count: usize,
    bytes: usize,
}

#[derive(Debug)]
struct ToMake {
    entry: Entry,
    make: fn(Entry) -> Entry,
    answer: oneshot::Sender<Recorded>,
}

impl<S: Shelf> Line<S> {
    pub(super) fn new(shelf: S) -> Self {
        Self {
            shelf,
            waiting: Mutex::default(),
        }
    }

    /// Adds an entry: at once where nothing waits.
    pub(super) fn record(self: &Arc<Self>, entry: &Entry) -> BoxFuture<'static, Recorded> {
        let waiting = lock(&self.waiting);
        if waiting.count == 0 {
            return ready(self.shelf.add(entry));
        }
        drop(waiting);
        self.wait(entry.clone(), |entry| entry)
    }

    /// Adds what is made of an entry: at once where it is short and nothing waits.
    pub(super) fn record_made(
        self: &Arc<Self>,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'static, Recorded> {
        if length(&entry) > HEAVY {
            return self.wait(entry, make);
        }
        self.record(&make(entry))
    }

    fn wait(
        self: &Arc<Self>,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'static, Recorded> {
        let mut waiting = lock(&self.waiting);
        let bytes = waiting.bytes + length(&entry);
        if let Err(full) = self.shelf.check_room(waiting.count + 1, bytes) {
            return ready(Err(full));
        }
        let (answer, answered) = oneshot::channel();
        let is_first = waiting.count == 0;
        waiting.bytes = bytes;
        waiting.count += 1;
        waiting.entries.push_back(ToMake {
            entry,
            make,
            answer,
        });
        drop(waiting);
        if is_first {
            self.go_on();
        }
        Box::pin(async move {
            let unmade = |_| {
                Err(TranscriptError::Store(
                    "what makes an entry panicked".into(),
                ))
            };
            answered.await.unwrap_or_else(unmade)
        })
    }

    fn go_on(self: &Arc<Self>) {
        let line = Arc::clone(self);
        // One at a time, so that nothing waits there without a bound.
        work::hand_over(move || line.make_next());
    }

    fn make_next(self: Arc<Self>) {
        let Some(next) = lock(&self.waiting).entries.pop_front() else {
            return;
        };
        let ToMake {
            entry,
            make,
            answer,
        } = next;
        let bytes = length(&entry);
        let made = catch_unwind(AssertUnwindSafe(|| make(entry)));
        let mut waiting = lock(&self.waiting);
        if let Ok(entry) = made {
            drop(answer.send(self.shelf.add(&entry)));
        }
        waiting.bytes -= bytes;
        waiting.count -= 1;
        let is_last = waiting.count == 0;
        drop(waiting);
        if !is_last {
            self.go_on();
        }
    }
}

fn length(entry: &Entry) -> usize {
    entry.body.as_str().len()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::executor::block_on;
    use ubos_common::json::{RawBuf, RawObject};
    use ubos_common::time::Timestamp;

    use super::*;
    use crate::transcript::EntryKind;
    use crate::work::tests::Busy;

    /// Bodies, in the order in which they came; of three entries and a megabyte at most.
    #[derive(Debug, Default)]
    struct Bodies(Mutex<Vec<usize>>);

    impl Shelf for Bodies {
        fn add(&self, entry: &Entry) -> Recorded {
            let mut bodies = lock(&self.0);
            bodies.push(length(entry));
            Ok(bodies.len() as u64 - 1)
        }

        fn check_room(&self, entries: usize, bytes: usize) -> Result<(), TranscriptError> {
            match (entries, bytes) {
                (4.., _) => Err(TranscriptError::Full { limit: 3 }),
                (_, 1_000_001..) => Err(TranscriptError::FullOfBytes { limit: 1_000_000 }),
                _ => Ok(()),
            }
        }
    }

    fn entry(bytes: usize) -> Entry {
        let body = format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
        let body = RawObject::new(RawBuf::parse(&body).unwrap()).unwrap();
        Entry::new(EntryKind::Task, Timestamp::EPOCH.into(), body)
    }

    fn line() -> Arc<Line<Bodies>> {
        Arc::new(Line::new(Bodies::default()))
    }

    fn same(entry: Entry) -> Entry {
        entry
    }

    const LONG: usize = HEAVY + 1;

    // spec: SAP-10-1, SAP-5-3
    #[test]
    fn what_is_dropped_at_once_is_recorded_in_the_order_of_the_calls() {
        let line = line();
        let busy = Busy::all();
        drop(line.record_made(entry(LONG), same));
        drop(line.record(&entry(10)));
        drop(line.record_made(entry(20), same));
        assert!(lock(&line.shelf.0).is_empty());
        drop(busy);
        // Behind them.
        assert_eq!(
            block_on(line.record_made(entry(LONG + 1), same)).unwrap(),
            3
        );
        assert_eq!(*lock(&line.shelf.0), [LONG, 10, 20, LONG + 1]);
        let short = line.record_made(entry(HEAVY), same).now_or_never();
        assert_eq!(short.unwrap().unwrap(), 4);
    }

    // spec: SAP-10-1
    #[test]
    fn what_waits_counts_for_the_bounds() {
        let line = line();
        let busy = Busy::all();
        let first = line.record_made(entry(999_900), same);
        let refused = line.record(&entry(101)).now_or_never().unwrap();
        assert!(matches!(refused, Err(TranscriptError::FullOfBytes { .. })));
        let more = [line.record(&entry(10)), line.record(&entry(10))];
        let refused = line.record(&entry(10)).now_or_never().unwrap();
        assert!(matches!(refused, Err(TranscriptError::Full { .. })));
        drop(busy);
        assert_eq!(block_on(first).unwrap(), 0);
        let numbers = more.map(|waits| block_on(waits).unwrap());
        assert_eq!(numbers, [1, 2]);
        // What was made leaves its room to others.
        assert_eq!(block_on(line.record_made(entry(999_900), same)).unwrap(), 3);
    }

    #[test]
    fn a_panic_loses_its_own_entry_alone() {
        let line = line();
        let busy = Busy::all();
        let lost = line.record_made(entry(LONG), |_| panic!("made by a faulty maker"));
        let next = line.record(&entry(10));
        drop(busy);
        let why = block_on(lost).unwrap_err();
        assert!(why.to_string().contains("store"), "{why}");
        assert_eq!(block_on(next).unwrap(), 0);
    }
}
