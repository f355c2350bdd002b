//! Cancellation.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Signals all holders of its clones to stop their work. A token cannot be reset.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// One waker for each waiting future. It is removed when the future is dropped.
#[derive(Default)]
struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl CancelToken {
    /// Cancels the token.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let wakers = core::mem::take(&mut self.waiting().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Whether the token is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Ready once the token is cancelled.
    #[must_use]
    pub fn cancelled(&self) -> Cancelled {
        let mut waiting = self.waiting();
        waiting.next += 1;
        Cancelled {
            token: self.clone(),
            number: waiting.next,
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelToken(cancelled: {})", self.is_cancelled())
    }
}

/// Waits for a [`CancelToken`].
#[derive(Debug)]
pub struct Cancelled {
    token: CancelToken,
    number: u64,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The waker is there before the flag is read, so that no cancel falls between.
        let waker = cx.waker().clone();
        self.token.waiting().wakers.insert(self.number, waker);
        if self.token.is_cancelled() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.token.waiting().wakers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::stream::{FuturesUnordered, StreamExt};

    #[test]
    fn all_who_wait_are_told_and_those_who_left_are_forgotten() {
        let token = CancelToken::default();
        // It polls what was woken alone.
        let mut first = FuturesUnordered::from_iter([token.cancelled()]);
        assert_eq!(first.next().now_or_never(), None);
        drop(token.cancelled());
        assert_eq!(token.waiting().wakers.len(), 1);
        token.clone().cancel();
        assert_eq!(first.next().now_or_never(), Some(Some(())));
        assert!(token.is_cancelled() && token.waiting().wakers.is_empty());
    }
}
