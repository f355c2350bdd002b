//! A timer where no runtime gives one: a thread that sleeps.

use core::time::Duration;
use std::sync::mpsc;

use futures::channel::oneshot;
use futures_core::future::BoxFuture;

/// Ready after a while. Runs wait only between two attempts at a question, and each wait has a thread of its own, which
/// ends with the wait, also with one that is given up. Where no thread is to be had, nothing waits.
pub(super) fn sleep(span: Duration) -> BoxFuture<'static, ()> {
    let (over, wait) = oneshot::channel::<()>();
    let (wanted, given_up) = mpsc::channel::<()>();
    let timer = std::thread::Builder::new().name("timer".into());
    // A thread that was not started drops its end, and the wait is over at once.
    let _ = timer.spawn(move || {
        let _over = over;
        // Nothing is ever sent: it ends with the span, or with who waits.
        let _ = given_up.recv_timeout(span);
    });
    Box::pin(async move {
        let _wanted = wanted;
        let _ = wait.await;
    })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_given_up_leaves_no_thread() {
        let timers = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            tasks
                .filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok())
                .filter(|name| name == b"timer\n")
                .count()
        };
        let waits: Vec<_> = (0..4).map(|_| sleep(Duration::MAX)).collect();
        // A thread is named once it runs.
        while timers() < 4 {
            std::thread::yield_now();
        }
        drop(waits);
        while timers() > 0 {
            std::thread::yield_now();
        }
        futures::executor::block_on(sleep(Duration::from_millis(1)));
    }
}
