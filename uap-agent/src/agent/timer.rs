//! A timer where no runtime gives one: a thread that sleeps.

use core::time::Duration;

use futures::channel::oneshot;
use futures_core::future::BoxFuture;

/// Ready after a while. Runs wait only between two attempts at a question, and each wait has a thread of its own, which
/// outlives a wait that is given up by at most its span. Where no thread is to be had, nothing waits.
pub(super) fn sleep(span: Duration) -> BoxFuture<'static, ()> {
    let (over, wait) = oneshot::channel::<()>();
    let timer = std::thread::Builder::new().name("timer".into());
    // A thread that was not started drops its end, and the wait is over at once.
    let _ = timer.spawn(move || {
        std::thread::sleep(span);
        drop(over);
    });
    Box::pin(async move {
        let _ = wait.await;
    })
}
