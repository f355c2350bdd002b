//! How long a run, a request to the model and a tool may take.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use futures::future::{self, Either};
use futures_core::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::time::Mono;
use upp::{CancelToken, ErrorCode, ModelStream, UppError};

/// The limits of an agent; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeLimits {
    pub(super) run: Option<Duration>,
    pub(super) model: Option<Duration>,
    pub(super) tool: Option<Duration>,
}

/// A response that is being read.
pub(super) struct Response {
    pub(super) stream: ModelStream,
    /// When reading ends, and why.
    pub(super) ends: Option<(Mono, Cut)>,
}

/// Why a response is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    /// The middleware has no more time for the run.
    Spent,
    /// The request has taken too long.
    Slow,
}

/// Ready once the clock has reached a time. Where the timer is ready before, it is asked anew: what is ended here must not end
/// early.
pub(super) struct Deadline {
    at: Mono,
    clock: Arc<dyn Sleep + Send + Sync>,
    timer: BoxFuture<'static, ()>,
}

impl Deadline {
    pub(super) fn new(clock: &Arc<dyn Sleep + Send + Sync>, at: Mono) -> Self {
        Self {
            at,
            clock: Arc::clone(clock),
            timer: clock.sleep_until(at),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.clock.now().mono >= self.at
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if self.is_over() {
            return Poll::Ready(());
        }
        self.timer = self.clock.sleep_until(self.at);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// What the work comes to; `None` where the end is there first.
pub(super) async fn until<T>(
    end: Option<impl Future<Output = ()> + Unpin>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let Some(end) = end else {
        return Some(work.await);
    };
    match future::select(pin!(work), end).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// A token of one tool call: cancelled with the run, and where the call is dropped.
pub(super) struct CallToken(pub(super) CancelToken);

impl CallToken {
    /// What the call comes to, while it hears of an abort.
    pub(super) async fn over<T>(&self, run: CancelToken, work: impl Future<Output = T>) -> T {
        let aborted = pin!(async {
            run.cancelled().await;
            self.0.cancel();
            future::pending::<T>().await
        });
        match future::select(pin!(work), aborted).await {
            Either::Left((done, _)) | Either::Right((done, _)) => done,
        }
    }
}

impl Drop for CallToken {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(super) fn slow(what: &str) -> UppError {
    UppError::new(
        ErrorCode::Timeout,
        "uap",
        format!("{what} has taken too long"),
    )
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use futures::task::{ArcWake, waker};
    use ubos_common::time::{Now, Timestamp};

    use super::*;

    /// A clock that stands still, and whose first timer is ready too early.
    #[derive(Default)]
    struct Early(AtomicUsize);

    impl Sleep for Early {
        fn now(&self) -> Now {
            Now::new(Mono::ZERO, Timestamp::EPOCH)
        }
        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Box::pin(future::ready(())),
                _ => Box::pin(future::pending()),
            }
        }
    }

    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_timer_that_is_early_is_asked_anew() {
        let early = Arc::new(Early::default());
        let clock: Arc<dyn Sleep + Send + Sync> = early.clone();
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = waker(woken.clone());
        let mut end = Deadline::new(&clock, Mono::MAX);
        let mut poll = || pin!(&mut end).poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        let seen = (
            early.0.load(Ordering::SeqCst),
            woken.0.load(Ordering::SeqCst),
        );
        assert_eq!(seen, (2, 1), "the second timer has to be polled");
        assert!(poll().is_pending());
        let seen = (
            early.0.load(Ordering::SeqCst),
            woken.0.load(Ordering::SeqCst),
        );
        assert_eq!(seen, (2, 1));
    }
}
