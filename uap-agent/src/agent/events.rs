//! The queue of events between a run and its reader.

use core::future::Future;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::panic::catch_unwind;
use std::sync::{Arc, PoisonError};

use upp::CancelToken;

use super::sync::{Mutex, MutexGuard};
use crate::checkpoint::CheckpointError;
use crate::event::AgentStreamEvent;
use crate::result::RunResult;

/// The number of queued events from which on no further effect starts.
const CAPACITY: usize = 64;

/// What a run and its reader share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) cancel: CancelToken,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: VecDeque<AgentStreamEvent>,
    /// Wakers of effects and tools that wait for capacity, by number. An entry is removed when its future is dropped.
    waiting: BTreeMap<u64, Waker>,
    /// The number of the last future that waited.
    last_waiter: u64,
    /// The reader's waker: events may come from another thread.
    reader: Option<Waker>,
    /// Whether the run has ended or its reader is gone: events are dropped, and nothing waits for capacity.
    has_ended: bool,
    result: Option<RunResult>,
    /// Why the last save has failed.
    unsaved: Option<CheckpointError>,
}

impl Inner {
    fn has_capacity(&self) -> bool {
        self.has_ended || self.events.len() < CAPACITY
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the last save has ended.
    pub(super) fn set_saved(&self, saved: &Result<(), CheckpointError>) {
        self.lock().unsaved = saved.clone().err();
    }

    pub(super) fn take_unsaved(&self) -> Option<CheckpointError> {
        self.lock().unsaved.take()
    }

    /// Adds an event of the engine, whatever the capacity: the engine must not be interrupted between two outputs.
    pub(super) fn push(&self, event: AgentStreamEvent) {
        self.lock().events.push_back(event);
    }

    pub(super) fn pop(&self) -> Option<AgentStreamEvent> {
        let mut inner = self.lock();
        let event = inner.events.pop_front();
        if inner.has_capacity() {
            Self::wake_waiting(inner);
        }
        event
    }

    /// Wakes the futures that wait for capacity, after the lock is released: a waker is foreign code. The panic of one is nothing
    /// to the others, which nobody else would wake.
    fn wake_waiting(mut inner: MutexGuard<'_, Inner>) {
        let waiting = core::mem::take(&mut inner.waiting);
        drop(inner);
        for waker in waiting.into_values() {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Sets the waker for events from another thread.
    pub(super) fn set_reader(&self, waker: &Waker) {
        let mut inner = self.lock();
        if !inner
            .reader
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            // The former waker is dropped after the lock is released.
            let _former = inner.reader.replace(waker.clone());
            drop(inner);
        }
    }

    pub(super) fn end(&self) {
        let mut inner = self.lock();
        inner.has_ended = true;
        Self::wake_waiting(inner);
    }

    pub(super) fn set_result(&self, result: RunResult) {
        self.lock().result = Some(result);
    }

    #[expect(
        clippy::expect_used,
        reason = "the driver ends with the engine, whose last output is the result"
    )]
    pub(super) fn take_result(&self) -> RunResult {
        self.lock()
            .result
            .take()
            .expect("a run that has ended has a result")
    }

    /// Ready once the queue has capacity.
    pub(super) fn capacity(&self) -> WaitCapacity<'_> {
        let mut inner = self.lock();
        inner.last_waiter += 1;
        WaitCapacity {
            shared: self,
            number: inner.last_waiter,
        }
    }
}

/// Waits until the queue has capacity.
pub(super) struct WaitCapacity<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Future for WaitCapacity<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.shared.lock();
        if inner.has_capacity() {
            return Poll::Ready(());
        }
        // Another's waker is dropped after the lock is released.
        let _former = inner.waiting.insert(self.number, cx.waker().clone());
        drop(inner);
        Poll::Pending
    }
}

impl Drop for WaitCapacity<'_> {
    fn drop(&mut self) {
        // The waker is dropped after the lock is released: its drop is foreign code, too.
        let _waker = self.shared.lock().waiting.remove(&self.number);
    }
}

/// Adds events of a tool to those of the run.
#[derive(Clone)]
pub(crate) struct Emitter(pub(super) Arc<Shared>);

impl Emitter {
    /// Adds an event, once the queue has capacity. After the end of the run it is dropped.
    pub(crate) async fn emit(&self, event: AgentStreamEvent) {
        self.0.capacity().await;
        let mut inner = self.0.lock();
        if inner.has_ended {
            return;
        }
        inner.events.push_back(event);
        let reader = inner.reader.take();
        drop(inner);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use std::task::Wake;

    use futures::FutureExt as _;

    use super::*;
    use crate::event::{EventData, UapEvent, UapEventType};

    /// A waker that notes whether the queue is free when it is woken and when it is dropped.
    struct Foreign(Arc<Shared>, Arc<Mutex<Vec<bool>>>);

    impl Foreign {
        fn note(&self) {
            let is_free = self.0.inner.try_lock().is_ok();
            self.1.lock().unwrap().push(is_free);
        }
    }

    impl Wake for Foreign {
        fn wake(self: Arc<Self>) {
            self.note();
        }
    }

    impl Drop for Foreign {
        fn drop(&mut self) {
            self.note();
        }
    }

    // spec: UAP-11-1
    #[test]
    fn wakers_are_woken_and_dropped_with_the_queue_free() {
        let (shared, noted) = (Arc::<Shared>::default(), Arc::default());
        let waker = || Waker::from(Arc::new(Foreign(Arc::clone(&shared), Arc::clone(&noted))));
        let is_free = |times: usize| {
            let noted = core::mem::take(&mut *noted.lock().unwrap());
            assert_eq!(noted, vec![true; times]);
        };
        let data = EventData::Iteration(1);
        let event = UapEvent::new(UapEventType::StepStart, 1, "a".into(), data);
        let event = AgentStreamEvent::Uap(event);
        // The reader's: another one takes its place, then an event wakes that.
        shared.set_reader(&waker());
        shared.set_reader(&waker());
        is_free(1);
        let emitter = Emitter(Arc::clone(&shared));
        assert!(emitter.emit(event.clone()).now_or_never().is_some());
        is_free(2);
        // One that waits for capacity: replaced, dropped, woken.
        while shared.lock().has_capacity() {
            shared.push(event.clone());
        }
        assert_eq!(shared.lock().events.len(), CAPACITY);
        assert!(emitter.emit(event.clone()).now_or_never().is_none());
        let poll = |wait: Pin<&mut WaitCapacity<'_>>| {
            assert!(wait.poll(&mut Context::from_waker(&waker())).is_pending());
        };
        let mut gone = Box::pin(shared.capacity());
        poll(gone.as_mut());
        poll(gone.as_mut());
        is_free(1);
        drop(gone);
        is_free(1);
        let mut wait = pin!(shared.capacity());
        poll(wait.as_mut());
        shared.pop();
        is_free(2);
        // And by the end of the run.
        shared.push(event);
        poll(wait.as_mut());
        shared.end();
        is_free(2);
        assert!(wait.now_or_never().is_some());
    }

    /// A waker that counts, and panics where it is told to.
    struct Woken(Arc<Mutex<usize>>, bool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
            assert!(!self.1, "a waker of the caller's own panics");
        }
    }

    #[test]
    fn the_panic_of_a_waker_is_nothing_to_the_others() {
        let (shared, woken) = (Arc::<Shared>::default(), Arc::default());
        while shared.lock().has_capacity() {
            let event = UapEvent::new(
                UapEventType::StepStart,
                1,
                "a".into(),
                EventData::Iteration(1),
            );
            shared.push(AgentStreamEvent::Uap(event));
        }
        let mut waits = [true, false, true, false].map(|panics| {
            let waker = Waker::from(Arc::new(Woken(Arc::clone(&woken), panics)));
            (Box::pin(shared.capacity()), waker)
        });
        for (wait, waker) in &mut waits {
            assert!(
                wait.as_mut()
                    .poll(&mut Context::from_waker(waker))
                    .is_pending()
            );
        }
        shared.end();
        assert_eq!(*woken.lock().unwrap(), 4);
    }
}

/// Emitters and reader under every order of their threads that a scheduler finds: `RUSTFLAGS="--cfg shuttle"`.
#[cfg(all(test, shuttle))]
mod model {
    use core::future::poll_fn;

    use shuttle::{future::block_on, thread};

    use super::*;
    use crate::event::{EventData, UapEvent, UapEventType};

    const ORDERS: usize = 1_000;

    fn event(number: u32) -> AgentStreamEvent {
        let data = EventData::Iteration(number.into());
        AgentStreamEvent::Uap(UapEvent::new(UapEventType::StepStart, 1, "a".into(), data))
    }

    /// Emits events `from` to `to` on a thread of its own.
    fn emit(shared: &Arc<Shared>, numbers: core::ops::Range<u32>) -> thread::JoinHandle<()> {
        let emitter = Emitter(Arc::clone(shared));
        thread::spawn(move || {
            for number in numbers {
                block_on(emitter.emit(event(number)));
            }
        })
    }

    /// A queue without room.
    fn full() -> Arc<Shared> {
        let shared = Arc::<Shared>::default();
        (0..CAPACITY).for_each(|_| shared.push(event(0)));
        shared
    }

    async fn next(shared: &Shared) -> AgentStreamEvent {
        poll_fn(|cx| {
            shared.set_reader(cx.waker());
            shared.pop().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    #[test]
    fn every_event_of_two_tools_comes_in_its_order() {
        let order = || {
            let shared = full();
            let tools = [emit(&shared, 1..4), emit(&shared, 4..7)];
            for _ in 0..CAPACITY {
                assert_eq!(block_on(next(&shared)), event(0));
            }
            let seen: Vec<_> = (0..6).map(|_| block_on(next(&shared))).collect();
            for numbers in [1..4, 4..7] {
                let of_one = numbers.map(event).collect::<Vec<_>>();
                let in_order = seen.iter().filter(|seen| of_one.contains(seen));
                assert!(in_order.eq(&of_one), "{seen:?}");
            }
            tools.into_iter().for_each(|tool| tool.join().unwrap());
        };
        shuttle::check_random(order, ORDERS);
    }

    #[test]
    fn no_tool_waits_for_a_reader_that_is_gone() {
        let order = || {
            let shared = full();
            let tools = [emit(&shared, 1..4), emit(&shared, 4..7)];
            block_on(next(&shared));
            shared.end();
            tools.into_iter().for_each(|tool| tool.join().unwrap());
        };
        shuttle::check_random(order, ORDERS);
    }
}
