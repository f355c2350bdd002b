//! The way of results to the endpoints that tasks name.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context as Waking, Poll, ready};
use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use ubos_common::driver::Sleep;
use ubos_common::trace_context::TraceContext;

use super::Message;
use crate::processor::Unreachable;
use crate::result::TaskResult;

/// Sends results to the endpoints that tasks name.
pub trait Replies: fmt::Debug + Send + Sync {
    /// Sends one result.
    fn send<'a>(&'a self, sent: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>>;
}

/// A result on its way to the endpoint that its task names, and what goes beside it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ToEndpoint<'a> {
    /// The endpoint, as the task names it.
    pub endpoint: &'a str,
    /// The result.
    pub result: &'a TaskResult,
    /// Its signature as text, where the service signs and the result has a canonical form.
    pub signature: Option<&'a str>,
    /// The place in a trace that came beside the task.
    pub trace: Option<&'a TraceContext>,
}

/// No endpoint can be reached: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoReplies;

impl Replies for NoReplies {
    fn send<'a>(&'a self, _: ToEndpoint<'a>) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(core::future::ready(Err(Unreachable::NoWay)))
    }
}

/// What was said of one task and is not delivered yet.
#[derive(Debug, Default)]
pub(super) struct Undelivered {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// It goes to one who is slow to take it: the caller, or an endpoint.
    is_slow: AtomicBool,
}

impl Undelivered {
    pub(super) fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn are(&self, messages: usize) -> bool {
        self.messages.load(Ordering::Relaxed) >= messages
    }

    /// Whether as many wait as may, or as long ones. One alone may be as long as it is.
    fn is_full(&self) -> bool {
        self.are(MAX_WAITING) || self.bytes.load(Ordering::Relaxed) >= MAX_WAITING_BYTES
    }

    /// Whether a message is not kept for one who is slow, because as many wait as may.
    pub(super) fn is_too_much(&self, message: &Message) -> bool {
        self.is_full() && self.is_passed_over(message)
    }

    /// Whether a message, whose turn it is, is left out because something newer waits for an endpoint that is slow. The
    /// last is not.
    pub(super) fn is_overtaken(&self, message: &Message) -> bool {
        self.are(2) && self.is_passed_over(message)
    }

    fn is_passed_over(&self, message: &Message) -> bool {
        let is_on_the_way =
            matches!(message, Message::Result(result) if !result.status.is_terminal());
        is_on_the_way && self.is_slow.load(Ordering::Relaxed)
    }

    /// Waits until an endpoint has taken a result, as long as one may take.
    pub(super) async fn taken(
        &self,
        clock: &(dyn Sleep + Send + Sync),
        sent: impl Future<Output = Result<(), Unreachable>>,
    ) -> Result<(), Unreachable> {
        let late = clock.sleep_until(clock.now().mono.saturating_add(MAX_SENDING));
        let sent = pin!(self.watched(clock, sent));
        match select(sent, late).await {
            Either::Left((sent, _)) => sent,
            Either::Right(_) => Err(Unreachable::Carrier("nothing within 30 s".into())),
        }
    }

    /// Waits until one message was taken. From a while on, until it was, its taker counts as slow.
    pub(super) async fn watched<T>(
        &self,
        clock: &(dyn Sleep + Send + Sync),
        taken: impl Future<Output = T>,
    ) -> T {
        let mut taking = pin!(taken);
        // Most are taken at once, and need no timer.
        let taken = match (&mut taking).now_or_never() {
            Some(taken) => taken,
            None => {
                let slow = clock.sleep_until(clock.now().mono.saturating_add(SLOW));
                match select(taking, slow).await {
                    Either::Left((taken, _)) => taken,
                    Either::Right(((), taking)) => {
                        self.is_slow.store(true, Ordering::Relaxed);
                        taking.await
                    }
                }
            }
        };
        self.is_slow.store(false, Ordering::Relaxed);
        taken
    }
}

/// Holds a task up while as much is undelivered as may be. It does not for one who is slow: the task's deadline and its cancel
/// would be noticed when that one likes. So one who takes a little of it each time, and leaves it full, counts as slow as well.
pub(super) struct HoldUp<'a> {
    waiting: &'a Undelivered,
    clock: &'a (dyn Sleep + Send + Sync),
    /// Until it was full for a while.
    patience: Option<BoxFuture<'static, ()>>,
    is_over: bool,
}

impl<'a> HoldUp<'a> {
    pub(super) fn new(waiting: &'a Undelivered, clock: &'a (dyn Sleep + Send + Sync)) -> Self {
        Self {
            waiting,
            clock,
            patience: None,
            is_over: false,
        }
    }

    /// Goes on with the task while it is not held up.
    pub(super) async fn around<T>(mut self, mut task: Pin<&mut impl Future<Output = T>>) -> T {
        poll_fn(|cx| {
            ready!(self.poll_over(cx));
            task.as_mut().poll(cx)
        })
        .await
    }

    /// Ready while the task goes on.
    fn poll_over(&mut self, cx: &mut Waking<'_>) -> Poll<()> {
        if !self.waiting.is_full() {
            (self.patience, self.is_over) = (None, false);
            return Poll::Ready(());
        }
        if self.waiting.is_slow.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        if !self.is_over {
            let late = || (self.clock).sleep_until(self.clock.now().mono.saturating_add(SLOW));
            ready!(self.patience.get_or_insert_with(late).poll_unpin(cx));
            self.is_over = true;
        }
        self.waiting.is_slow.store(true, Ordering::Relaxed);
        Poll::Ready(())
    }
}

/// Messages that wait for one that is slow to take them.
pub(crate) const MAX_WAITING: usize = 64;
/// Their bytes; the message that reaches them is the last for which there is room.
pub(crate) const MAX_WAITING_BYTES: usize = 4 << 20;
/// After so long with one message, who takes it is slow.
const SLOW: Duration = Duration::from_secs(1);
/// How long an endpoint may take with one result.
const MAX_SENDING: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ubos_common::time::{Mono, Now, Timestamp};

    use super::*;
    use crate::samples;
    use crate::status::Status;

    // spec: SAP-4.1-17
    #[test]
    fn one_who_is_slow_is_kept_no_more_than_may_wait_but_the_end() {
        let task = samples::task();
        let [part, end] = [Status::Partial, Status::Succeeded]
            .map(|status| Message::Result(Box::new(samples::result(&task, status))));
        for is_slow in [false, true] {
            let waiting = Undelivered::default();
            waiting.is_slow.store(is_slow, Ordering::Relaxed);
            // Many short ones, or a few long ones.
            for (messages, bytes) in [(MAX_WAITING, 1), (4, MAX_WAITING_BYTES / 4)] {
                for _ in 1..messages {
                    waiting.add(bytes);
                }
                let held = || {
                    let mut hold_up = HoldUp::new(&waiting, &crate::processor::fixture::Still);
                    hold_up.poll_over(&mut waking()).is_pending()
                };
                assert!(!waiting.is_too_much(&part) && !held());
                waiting.add(bytes);
                // Who is not slow holds its task up instead.
                assert_eq!((waiting.is_too_much(&part), held()), (is_slow, !is_slow));
                assert!(!waiting.is_too_much(&end));
                (0..messages).for_each(|_| waiting.remove(bytes));
            }
        }
    }

    // spec: SAP-4.1-17
    #[test]
    fn one_who_takes_a_message_for_long_is_slow_until_it_is_taken() {
        let waiting = Undelivered::default();
        let is_slow = || waiting.is_slow.load(Ordering::Relaxed);
        let mut looks = 0;
        let taken = poll_fn(|_| {
            looks += 1;
            // Before the alarm it is looked at twice.
            if looks < 3 {
                return Poll::Pending;
            }
            Poll::Ready(is_slow())
        });
        let clock = Alarm(Arc::new(true.into()));
        let mut watched = pin!(waiting.watched(&clock, taken));
        assert_eq!(watched.as_mut().poll(&mut waking()), Poll::Ready(true));
        assert!(!is_slow());
    }

    fn waking() -> Waking<'static> {
        Waking::from_waker(core::task::Waker::noop())
    }

    /// A clock whose alarms ring all at once, when it is told so.
    #[derive(Clone, Default)]
    struct Alarm(Arc<AtomicBool>);

    impl Sleep for Alarm {
        fn now(&self) -> Now {
            Now::new(Mono::ZERO, Timestamp::EPOCH)
        }

        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            let rings = Arc::clone(&self.0);
            Box::pin(poll_fn(move |_| match rings.load(Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }))
        }
    }

    // spec: SAP-4.1-17, SAP-5-8
    #[test]
    fn a_task_is_not_held_up_again_for_each_message_of_one_who_leaves_it_full() {
        let (waiting, clock) = (Undelivered::default(), Alarm::default());
        let mut hold_up = HoldUp::new(&waiting, &clock);
        let mut goes_on = || hold_up.poll_over(&mut waking()).is_ready();
        waiting.add(MAX_WAITING_BYTES);
        waiting.add(1);
        assert!(!goes_on());
        // A message was taken in time, and leaves it full.
        let taken = |bytes| {
            waiting.is_slow.store(false, Ordering::Relaxed);
            waiting.remove(bytes);
        };
        taken(1);
        assert!(!goes_on());
        clock.0.store(true, Ordering::Relaxed);
        waiting.add(1);
        assert!(goes_on() && waiting.is_slow.load(Ordering::Relaxed));
        // What is taken since gives no new patience before there is room.
        clock.0.store(false, Ordering::Relaxed);
        taken(1);
        assert!(goes_on() && waiting.is_slow.load(Ordering::Relaxed));
        taken(MAX_WAITING_BYTES);
        assert!(goes_on() && !waiting.is_slow.load(Ordering::Relaxed));
        waiting.add(MAX_WAITING_BYTES);
        assert!(!goes_on());
    }
}
