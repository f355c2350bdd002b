//! The interface of every state machine here, and the parts that machines are made of.
//!
//! A machine does no IO. A driver gives it inputs with the time, takes its outputs until there are none,
//! and wakes it when its timeout is due:
//!
//! ```
//! use core::time::Duration;
//! use ubos_common::machine::{Machine, Outbox};
//! use ubos_common::time::{Mono, Now, Timestamp};
//!
//! /// Answers each byte with itself, a second later.
//! struct Echo { due: Option<(Mono, u8)>, out: Outbox<u8> }
//!
//! impl Machine for Echo {
//!     type Input<'a> = u8;
//!     type Output = u8;
//!     type Error = core::convert::Infallible;
//!
//!     fn handle_input(&mut self, now: Now, byte: u8) -> Result<(), Self::Error> {
//!         self.due = Some((now.mono.saturating_add(Duration::from_secs(1)), byte));
//!         Ok(())
//!     }
//!     fn handle_timeout(&mut self, now: Now) {
//!         if let Some((_, byte)) = self.due.take_if(|(at, _)| *at <= now.mono) {
//!             self.out.push(byte);
//!         }
//!     }
//!     fn poll_output(&mut self) -> Option<u8> { self.out.pop() }
//!     fn poll_timeout(&self) -> Option<Mono> { self.due.map(|(at, _)| at) }
//!     fn accepts_input(&self) -> bool { self.due.is_none() && !self.out.is_full() }
//!     fn is_closed(&self) -> bool { false }
//! }
//!
//! let mut echo = Echo { due: None, out: Outbox::new(8) };
//! let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
//! echo.handle_input(now, b'!').unwrap();
//! assert!(!echo.accepts_input() && echo.poll_output().is_none());
//! echo.handle_timeout(now.plus(Duration::from_secs(1)));
//! assert_eq!(echo.poll_output(), Some(b'!'));
//! ```

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::IdSource;
use crate::time::{Mono, Now};

/// A protocol role as a state machine without IO.
///
/// Rules that hold for every implementation:
///
/// * After any call that takes `&mut self` the driver takes outputs until there are none and then asks for
///   the timeout. Forgetting that may delay, never corrupt.
/// * An early or repeated [`handle_timeout`](Self::handle_timeout) changes nothing.
/// * The same inputs at the same times give the same outputs, however a byte stream is split.
/// * An error from [`handle_input`](Self::handle_input) means that the one peer of this machine broke the
///   protocol for good. Its farewell is already among the outputs, so the driver goes on draining.
/// * After its end a machine refuses inputs.
pub trait Machine {
    /// What comes in: bytes, messages, answers to requests.
    type Input<'a>;
    /// What goes out, in one order: bytes or messages to send, events, requests to the world, the end.
    type Output;
    /// Why an input is refused.
    type Error;

    /// Takes one input.
    ///
    /// # Errors
    ///
    /// The peer broke the protocol for good, or the machine has ended.
    fn handle_input(&mut self, now: Now, input: Self::Input<'_>) -> Result<(), Self::Error>;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Now);

    /// The next output, or `None` when there is none.
    fn poll_output(&mut self) -> Option<Self::Output>;

    /// When [`handle_timeout`](Self::handle_timeout) is due next.
    fn poll_timeout(&self) -> Option<Mono>;

    /// Whether more input is welcome; the driver stops reading while it is not.
    fn accepts_input(&self) -> bool;

    /// Whether the machine has ended.
    fn is_closed(&self) -> bool;
}

/// A machine's queue of outputs, with a bound.
///
/// Nothing pushed is dropped: a machine must be able to say its farewell. At the bound
/// [`Outbox::is_full`] is true, the machine stops accepting input, and what one input may still push is
/// all that lies above it.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    queue: VecDeque<T>,
    bound: usize,
    peak: usize,
}

impl<T> Outbox<T> {
    /// An empty queue that is full from `bound` outputs on.
    #[must_use]
    pub const fn new(bound: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bound,
            peak: 0,
        }
    }

    /// Adds an output behind the others.
    pub fn push(&mut self, output: T) {
        self.queue.push_back(output);
        self.peak = self.peak.max(self.queue.len());
    }

    /// Takes the oldest output.
    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// Outputs that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no output waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the bound is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() >= self.bound
    }

    /// The most outputs that ever waited at once.
    #[must_use]
    pub const fn peak(&self) -> usize {
        self.peak
    }
}

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

/// Delays that double up to a ceiling: how long to wait before the next attempt.
///
/// ```
/// use core::time::Duration;
/// use ubos_common::machine::Backoff;
///
/// let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// let delays: Vec<u64> = (0..8).map(|_| backoff.next_delay().as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
/// backoff.reset();
/// assert_eq!(backoff.next_delay().as_secs(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    next: Duration,
    attempts: u32,
}

impl Backoff {
    /// Delays from `first`, doubling, never above `ceiling`.
    #[must_use]
    pub fn new(first: Duration, ceiling: Duration) -> Self {
        let next = first.min(ceiling);
        Self {
            first: next,
            ceiling,
            next,
            attempts: 0,
        }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.ceiling);
        self.attempts = self.attempts.saturating_add(1);
        delay
    }

    /// As [`Backoff::next_delay`], drawn evenly from the upper half of the delay, so that many peers that
    /// lost one server do not come back at once.
    pub fn next_delay_with_jitter(&mut self, ids: &mut IdSource) -> Duration {
        let delay = self.next_delay();
        let half = u64::try_from(delay.as_nanos() / 2).unwrap_or(u64::MAX);
        delay - Duration::from_nanos(ids.bits() % half.saturating_add(1))
    }

    /// Attempts since the start or the last [`Backoff::reset`].
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Begins anew: an attempt went well.
    pub const fn reset(&mut self) {
        self.next = self.first;
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_the_upper_half() {
        let mut ids = IdSource::seeded(1);
        for _ in 0..1000 {
            let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
            let delay = backoff.next_delay_with_jitter(&mut ids);
            assert!((Duration::from_millis(5)..=Duration::from_millis(10)).contains(&delay));
        }
        let mut zero = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(zero.next_delay_with_jitter(&mut ids), Duration::ZERO);
    }

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

    #[test]
    fn an_outbox_keeps_order_and_says_when_it_is_full() {
        let mut outbox = Outbox::new(2);
        outbox.push(1);
        assert!(!outbox.is_full());
        outbox.push(2);
        outbox.push(3);
        assert!(outbox.is_full());
        assert_eq!(
            [outbox.pop(), outbox.pop(), outbox.pop(), outbox.pop()],
            [Some(1), Some(2), Some(3), None]
        );
        assert_eq!(outbox.peak(), 3);
    }
}
