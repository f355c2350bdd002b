//! Code of somebody else, which may panic.

use core::future::Future;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::catch_unwind;

use futures::FutureExt as _;

use crate::future::BoxFuture;

/// Code of somebody else panicked; what it said then is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hook, a handler or a store panicked")]
pub(crate) struct Panicked;

/// Work of somebody else, which may be dropped before its end: a destructor that panics then harms nobody.
pub(crate) struct Fragile<'a, T>(Option<BoxFuture<'a, T>>);

impl<'a, T> From<BoxFuture<'a, T>> for Fragile<'a, T> {
    fn from(work: BoxFuture<'a, T>) -> Self {
        Self(Some(work))
    }
}

impl<T> Future for Fragile<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Some(work) => work.poll_unpin(cx),
            // Only a drop takes it.
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Fragile<'_, T> {
    fn drop(&mut self) {
        let work = self.0.take();
        drop(catch_unwind(AssertUnwindSafe(|| drop(work))));
    }
}

/// What somebody else's code answers.
pub(crate) async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let answer = AssertUnwindSafe(work).catch_unwind().await;
    answer.map_err(|_payload| Panicked)
}
