//! What asynchronous hooks and stores return, and when a task gives way to others.

use core::future::Future;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;

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

/// Does what takes its time: on the driver's threads, and here without a driver.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    #[cfg(feature = "driver")]
    return crate::work::apart(crate::work::For::Task, work).await;
    #[cfg(not(feature = "driver"))]
    work()
}

/// Bytes of a task, or of a result, above which it is long.
pub(crate) const LARGE: usize = 16 << 10;
