//! When a task gives way to others.

use core::future::poll_fn;
use core::task::Poll;

/// Lets the runtime's other tasks run.
pub(super) async fn yield_once() {
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

/// Bytes of a task, or of an output, above which others run between two steps.
pub(super) const LARGE: usize = 16 << 10;
