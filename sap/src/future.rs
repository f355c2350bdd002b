//! What asynchronous hooks and stores return, and when a task gives way to others.

use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

/// A future on the heap, of the same type as `futures::future::BoxFuture`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer that is there at once.
pub(crate) fn ready<'a, T: Send + 'a>(answer: T) -> BoxFuture<'a, T> {
    Box::pin(core::future::ready(answer))
}

/// Lets the runtime's other tasks run.
pub(crate) async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if core::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Does something with so many bytes of a task: on the driver's threads where they are many, and here without a driver.
pub(crate) async fn done_apart<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    #[cfg(feature = "driver")]
    return crate::work::done(crate::work::For::Task, bytes, work).await;
    #[cfg(not(feature = "driver"))]
    {
        let _ = bytes;
        work()
    }
}

/// What a future gives that waits for nothing.
#[expect(
    clippy::expect_used,
    reason = "every caller gives one that never gives way"
)]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut waking = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut waking) {
        Poll::Ready(there) => Some(there),
        Poll::Pending => None,
    }
    .expect("what never gives way is ready at once")
}

/// Bytes of a task, or of an output, above which others run between two steps.
pub(crate) const LARGE: usize = 16 << 10;
