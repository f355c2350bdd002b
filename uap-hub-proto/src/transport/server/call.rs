//! What the tasks of one call share with the hub.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering, fence},
    },
    task::{Context, Poll, Waker},
};

use ubos_common::trace_context::TraceContext;

use crate::{status::Status, transport::lock};

/// The state of a call that its reader, its answers and the hub share.
#[derive(Clone, Debug, Default)]
pub(super) struct CallState(Arc<Parts>);

#[derive(Debug, Default)]
struct Parts {
    reading: Mutex<Reading>,
    /// How the call ends after its last message.
    end: Mutex<Option<Status>>,
    /// What its answer carries.
    trace: Mutex<Option<TraceContext>>,
    /// The hub was told that the call takes no message.
    is_blocked: AtomicBool,
}

#[derive(Debug, Default)]
struct Reading {
    /// The hub wants the call not to be read.
    is_paused: bool,
    /// The peer, or the server, dropped the call.
    is_gone: bool,
    reader: Option<Waker>,
}

impl CallState {
    /// Sets how the call ends once its messages are sent.
    pub(super) fn set_end(&self, status: Status) {
        *lock(&self.0.end) = Some(status);
    }

    pub(super) fn take_end(&self) -> Option<Status> {
        lock(&self.0.end).take()
    }

    /// Sets the place in a trace that its answer carries.
    pub(super) fn set_trace(&self, trace: TraceContext) {
        *lock(&self.0.trace) = Some(trace);
    }

    pub(super) fn take_trace(&self) -> Option<TraceContext> {
        lock(&self.0.trace).take()
    }

    /// Stops the reader, or lets it go on.
    pub(super) fn set_paused(&self, is_paused: bool) {
        let mut reading = lock(&self.0.reading);
        reading.is_paused = is_paused;
        if !is_paused {
            reading.wake();
        }
    }

    /// Nobody takes answers any more.
    pub(super) fn gone(&self) {
        let mut reading = lock(&self.0.reading);
        reading.is_gone = true;
        reading.wake();
    }

    /// What `next` gives where the call may be read, or `None` once it is gone and gives nothing. A call that has ended is
    /// still read until its peer has seen the end.
    pub(super) fn poll_read<T>(
        &self,
        cx: &mut Context<'_>,
        next: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        let (is_paused, is_gone) = lock(&self.0.reading).watch(cx);
        if !is_paused && let Poll::Ready(read) = next(cx) {
            return Poll::Ready(Some(read));
        }
        match is_gone {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    /// Notes that the call takes no message, as `has_room` says; returns whether that still holds, and the hub is to be told.
    pub(super) fn block(&self, has_room: impl Fn() -> bool) -> bool {
        if has_room() {
            return false;
        }
        self.0.is_blocked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // It may have been read meanwhile, before its reader could see the flag.
        !has_room() || !self.0.is_blocked.swap(false, Ordering::SeqCst)
    }

    /// A message was taken; returns whether the hub is to be told that there is room again.
    pub(super) fn unblock(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.is_blocked.swap(false, Ordering::SeqCst)
    }
}

impl Reading {
    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Whether the call is paused and whether it is gone; the task is woken when that changes.
    fn watch(&mut self, cx: &Context<'_>) -> (bool, bool) {
        match &mut self.reader {
            // Mostly it is the same, and nothing is copied.
            Some(reader) => reader.clone_from(cx.waker()),
            None => self.reader = Some(cx.waker().clone()),
        }
        (self.is_paused, self.is_gone)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_reader_is_woken_when_it_may_go_on_and_when_its_call_is_gone() {
        let (call, wakes) = (CallState::default(), Arc::new(Wakes::default()));
        let waker = wakes.clone().into();
        let mut cx = Context::from_waker(&waker);
        let woken = || wakes.0.load(Ordering::Relaxed);
        call.set_paused(true);
        assert_eq!(call.poll_read(&mut cx, |_| Poll::Ready(1)), Poll::Pending);
        call.set_paused(false);
        assert_eq!(woken(), 1);
        assert_eq!(
            call.poll_read(&mut cx, |_| Poll::Ready(1)),
            Poll::Ready(Some(1))
        );
        assert_eq!(
            call.poll_read(&mut cx, |_| Poll::<u8>::Pending),
            Poll::Pending
        );
        call.gone();
        assert_eq!(woken(), 2);
        assert_eq!(
            call.poll_read(&mut cx, |_| Poll::Ready(2)),
            Poll::Ready(Some(2)),
            "what has come is read first"
        );
        assert_eq!(
            call.poll_read(&mut cx, |_| Poll::<u8>::Pending),
            Poll::Ready(None)
        );
    }

    #[test]
    fn a_full_call_is_told_once_and_so_is_its_room() {
        let call = CallState::default();
        assert!(!call.block(|| true) && !call.unblock());
        assert!(call.block(|| false));
        assert!(call.unblock() && !call.unblock());
        let looks = std::cell::Cell::new(0);
        let read_meanwhile = || looks.replace(looks.get() + 1) > 0;
        assert!(
            !call.block(read_meanwhile),
            "there was room at the second look"
        );
        assert!(!call.unblock());
    }
}
