//! What a core keeps for one agent, in one account.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(any(feature = "tokio", test))]
use core::task::Context;
use core::task::Waker;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::time::Mono;

/// The one account of an agent: the bytes of everything that a core keeps for it, under one bound. A clone is the same account.
///
/// A [`CoreConnection`](crate::role::core::CoreConnection) has one of its own, unless it is given that of the router that it is
/// behind: [`Router::ledger`](crate::role::router::Router::ledger). All connections of an agent, its log, its calls and its
/// results count against it, whoever keeps them; what is handed on is counted once, and what is dropped is given back.
///
/// Each kind has a share of the bound that no other kind takes, so that callers cannot use up what a registration needs, nor a
/// log what a call needs. The shares are the whole bound:
///
/// | share | of the bound | by default | at its bound |
/// |---|---|---|---|
/// | [`Tools`](Share::Tools) | 4/16 | 20 MiB | the tool is rejected with `tool.conflict`; a session has a quarter of the share for the tools that stand, and another for those that are being registered |
/// | [`Calls`](Share::Calls) | 3/16 | 15 MiB | the call is refused with `tool.busy` |
/// | [`Output`](Share::Output) | 3/16 | 15 MiB | the agent is not read while it has calls, until output is taken; a call whose piece finds no room all the same ends with `tool.output_too_large` |
/// | [`Results`](Share::Results) | 3/16 | 15 MiB | the call ends with `tool.output_too_large`; from half of it on readers come first |
/// | [`Remembered`](Share::Remembered) | 1/16 | 5 MiB | the oldest results of the agent are forgotten |
/// | [`Log`](Share::Log) | 2/16 | 10 MiB | the oldest lines of the run go, and are counted; where it has none, the new ones |
///
/// Beside it a connection holds the frame that is being received, or the id of one whose schemas are compiled, and what waits to be sent: 1 MiB, and as much again as the share
/// of calls where an agent ends its calls and does not read those behind them.
#[derive(Clone)]
pub struct Ledger(Arc<Accounts>);

/// What bytes are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// Tools that an agent offers: names, descriptions, schemas; those that are being registered, too, and the names of those
    /// that it had before it is launched again.
    Tools,
    /// Calls that have not ended: what is still to be sent, ids, callers, inputs that idempotency keys stand for.
    Calls,
    /// Pieces of output that nobody has taken yet, and room for those that are being received.
    Output,
    /// Results that nobody has taken yet, with their figures and errors.
    Results,
    /// Results that are kept for idempotency keys, with their inputs.
    Remembered,
    /// Lines that the agent's process wrote.
    Log,
}

struct Accounts {
    max_bytes: usize,
    /// By share.
    held: [AtomicUsize; Share::ALL.len()],
    /// Somebody waits for output to be taken.
    is_awaited: AtomicBool,
    /// At most one for each connection.
    waiting: Mutex<Vec<Waker>>,
    /// When all that the agent has sent beside its calls is forgotten, in nanoseconds: the later, the more it was.
    even_at: AtomicU64,
}

impl Ledger {
    /// An account without entries.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Accounts {
            max_bytes,
            held: Default::default(),
            is_awaited: AtomicBool::new(false),
            waiting: Mutex::default(),
            even_at: AtomicU64::new(0),
        }))
    }

    /// The bytes that may be kept.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.0.max_bytes
    }

    /// The bytes of a share that may be kept.
    #[must_use]
    pub fn max_bytes_of(&self, share: Share) -> usize {
        share.of(self.0.max_bytes)
    }

    /// The bytes that are kept; at most [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        Share::ALL
            .iter()
            .map(|share| self.held_bytes_of(*share))
            .sum()
    }

    /// The bytes that are kept of a share.
    #[must_use]
    pub fn held_bytes_of(&self, share: Share) -> usize {
        self.held(share).load(Ordering::SeqCst)
    }

    /// Enters so many bytes, where there is room for all of them.
    pub(crate) fn take(&self, share: Share, bytes: usize) -> Option<Charge> {
        let mut charge = Charge::on(self, share);
        charge.grow(bytes).then_some(charge)
    }

    /// Counts what the agent has sent beside its calls, on whichever connection, as the time in which it may be sent. Gives when
    /// all of it is forgotten: after `most` at the latest.
    pub(crate) fn owe(&self, now: Mono, span: Duration, most: Duration) -> Mono {
        let latest = now.saturating_add(most);
        let more = |even_at| {
            let even_at = Mono::from_nanos(even_at).max(now);
            even_at.saturating_add(span).min(latest)
        };
        let owe = |even_at| Some(more(even_at).as_nanos());
        let even_at = &self.0.even_at;
        let before = even_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, owe);
        // It is always set.
        let (Ok(before) | Err(before)) = before;
        more(before)
    }

    /// Whether half of a share is in use.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_half_full(&self, share: Share) -> bool {
        self.held_bytes_of(share) > self.max_bytes_of(share) / 2
    }

    /// Whether anybody else knows the account.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn held(&self, share: Share) -> &AtomicUsize {
        let [tools, calls, output, results, remembered, log] = &self.0.held;
        match share {
            Share::Tools => tools,
            Share::Calls => calls,
            Share::Output => output,
            Share::Results => results,
            Share::Remembered => remembered,
            Share::Log => log,
        }
    }

    fn enter(&self, share: Share, bytes: usize) -> bool {
        let bound = self.max_bytes_of(share);
        let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= bound);
        self.held(share)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    fn give_back(&self, share: Share, bytes: usize) {
        self.held(share).fetch_sub(bytes, Ordering::SeqCst);
        let is_news = share == Share::Output && self.0.is_awaited.load(Ordering::SeqCst);
        if is_news && self.0.is_awaited.swap(false, Ordering::SeqCst) {
            let waiting = core::mem::take(&mut *self.waiting());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes all who wait for output to be taken: one of them has ended, and those that have not wait anew.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake_waiting(&self) {
        let waiting = core::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(Waker::wake);
    }

    #[cfg(any(feature = "tokio", test))]
    fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.0.is_awaited.store(true, Ordering::SeqCst);
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether they are the same account.
impl PartialEq for Ledger {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ledger({} of {} bytes)",
            self.held_bytes(),
            self.0.max_bytes
        )
    }
}

impl Share {
    const ALL: [Self; 6] = [
        Self::Tools,
        Self::Calls,
        Self::Output,
        Self::Results,
        Self::Remembered,
        Self::Log,
    ];

    /// Its part of a bound. Together they are no more than the bound.
    const fn of(self, max_bytes: usize) -> usize {
        let parts = match self {
            Self::Tools => 4,
            Self::Calls | Self::Output | Self::Results => 3,
            Self::Remembered => 1,
            Self::Log => 2,
        };
        max_bytes / 16 * parts
    }
}

/// An entry of a ledger: dropping it gives its bytes back. What it stands for keeps it, and takes it along.
///
/// A copy of what it stands for is another thing, which whoever keeps it enters anew: a clone is an entry of nothing.
#[derive(Default)]
pub(crate) struct Charge {
    account: Option<(Ledger, Share)>,
    bytes: usize,
}

impl Charge {
    /// An entry of no bytes yet.
    pub(crate) fn on(ledger: &Ledger, share: Share) -> Self {
        Self {
            account: Some((ledger.clone(), share)),
            bytes: 0,
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it stands in a ledger.
    pub(crate) const fn is_entered(&self) -> bool {
        self.account.is_some()
    }

    /// Enters more bytes, where there is room for all of them. What stands in no ledger has room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let Some((ledger, share)) = &self.account else {
            return true;
        };
        let entered = ledger.enter(*share, bytes);
        if entered {
            self.bytes += bytes;
        }
        entered
    }

    /// Gives bytes back, until no more than so many are left.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let excess = self.bytes.saturating_sub(bytes);
        self.bytes -= excess;
        if let (Some((ledger, share)), 1..) = (&self.account, excess) {
            ledger.give_back(*share, excess);
        }
    }

    /// Gives bytes back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.shrink_to(self.bytes.saturating_sub(bytes));
    }

    /// Makes an entry of its own of so many of its bytes, where it has them.
    pub(crate) fn split(&mut self, bytes: usize) -> Option<Self> {
        let account = self.account.clone();
        if account.is_some() {
            self.bytes = self.bytes.checked_sub(bytes)?;
        }
        let bytes = account.as_ref().map_or(0, |_| bytes);
        Some(Self { account, bytes })
    }

    /// Takes the bytes of an entry of the same share of the same ledger.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.bytes += core::mem::take(&mut other.bytes);
    }

    /// Grows to so many bytes; where there is no room for them, the task is woken when there may be.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn fill(&mut self, bytes: usize, context: &Context<'_>) -> bool {
        let missing = bytes.saturating_sub(self.bytes);
        if missing == 0 || self.grow(missing) {
            return true;
        }
        if let Some((ledger, _)) = &self.account {
            ledger.wait(context.waker());
        }
        // What was given back before the task waited has woken nobody.
        self.grow(missing)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Clone for Charge {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What things are is not where they are counted.
impl PartialEq for Charge {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    #[cfg(feature = "tokio")]
    #[test]
    fn a_share_is_half_full_behind_its_half() {
        let ledger = Ledger::new(1_600);
        let half = ledger.max_bytes_of(Share::Results) / 2;
        let _half = ledger.take(Share::Results, half).unwrap();
        assert!(!ledger.is_half_full(Share::Results));
        let _more = ledger.take(Share::Results, 1).unwrap();
        assert!(ledger.is_half_full(Share::Results));
    }

    #[test]
    fn the_shares_are_the_bound_and_no_share_takes_of_another() {
        let ledger = Ledger::new(1_600);
        let parts = Share::ALL.map(|share| ledger.max_bytes_of(share));
        assert_eq!(parts.iter().sum::<usize>(), ledger.max_bytes());
        let mut held = Vec::new();
        for share in Share::ALL {
            let bound = ledger.max_bytes_of(share);
            assert!(ledger.take(share, bound + 1).is_none());
            held.push(ledger.take(share, bound).unwrap());
            assert!(ledger.take(share, 1).is_none());
            assert_eq!(ledger.held_bytes_of(share), bound);
        }
        assert_eq!(ledger.held_bytes(), 1_600);
        assert!(ledger.take(Share::Log, usize::MAX).is_none());
        drop(held);
        assert_eq!(ledger.held_bytes(), 0);
    }

    #[test]
    fn a_clone_is_the_same_account_and_another_of_the_same_size_is_not() {
        let ledger = Ledger::new(1_600);
        assert_eq!(ledger, ledger.clone());
        assert_ne!(ledger, Ledger::new(1_600));
    }

    #[test]
    fn an_entry_is_given_back_once_whoever_has_it() {
        let ledger = Ledger::new(1_600);
        let mut charge = ledger.take(Share::Calls, 100).unwrap();
        let copy = charge.clone();
        let part = charge.split(30).unwrap();
        assert!(charge.split(71).is_none());
        assert_eq!(
            (charge.bytes(), part.bytes(), ledger.held_bytes()),
            (70, 30, 100)
        );
        charge.merge(part);
        charge.shrink(20);
        charge.shrink_to(500);
        assert_eq!((charge.bytes(), ledger.held_bytes()), (80, 80));
        drop(copy);
        assert_eq!(ledger.held_bytes(), 80);
        drop(charge);
        assert_eq!(ledger.held_bytes(), 0);
        let mut nowhere = Charge::default();
        assert!(nowhere.grow(usize::MAX) && nowhere.split(7).is_some());
        assert_eq!(nowhere.bytes(), 0);
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter tells two wakers of one task apart")]
    fn who_waits_for_output_to_be_taken_is_woken_by_that_alone() {
        let ledger = Ledger::new(1_600);
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let taken = ledger.take(Share::Output, 300).unwrap();
        let call = ledger.take(Share::Calls, 10).unwrap();
        let mut room = Charge::on(&ledger, Share::Output);
        assert!(!room.fill(50, &context) && !room.fill(50, &context));
        drop(call);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        drop(taken);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(room.fill(50, &context) && room.fill(50, &context));
        drop(room);
        assert_eq!(
            (woken.0.load(Ordering::SeqCst), ledger.held_bytes()),
            (1, 0)
        );
    }

    // What woke them last may have been meant for one that has ended.
    #[cfg(feature = "tokio")]
    #[test]
    fn who_waits_for_output_to_be_taken_is_woken_when_another_ends() {
        let ledger = Ledger::new(1_600);
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let _taken = ledger.take(Share::Output, 300).unwrap();
        let mut room = Charge::on(&ledger, Share::Output);
        assert!(!room.fill(50, &Context::from_waker(&waker)));
        ledger.wake_waiting();
        ledger.wake_waiting();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }
}
