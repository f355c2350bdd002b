//! Work that takes its time, done where it holds up no executor.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use futures::channel::oneshot;

use crate::future::yield_once;

/// Bytes of a message above which work on the whole of it is done apart. The worst messages known take some 35 ms a
/// MiB, so that what stays takes 2 ms.
pub(crate) const HEAVY: usize = 64 << 10;

/// Does something with a message of so many bytes: at once where it is short, on another thread where it is not. A
/// panic comes back to the one who asks.
///
/// The first poll hands it over, and dropping the future does not take it back.
pub(crate) async fn done<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    static THREADS: OnceLock<Threads> = OnceLock::new();
    if bytes <= HEAVY {
        return work();
    }
    #[cfg(test)]
    HANDED_OVER.with(|times| times.set(times.get() + 1));
    THREADS.get_or_init(Threads::start).run(work).await
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads that work; none where a platform has none.
struct Threads(Option<SyncSender<Job>>);

impl Threads {
    fn start() -> Self {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let receiver = Arc::new(Mutex::new(receiver));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let started = (0..cores.min(MAX_THREADS)).filter(|_| {
            let receiver = Arc::clone(&receiver);
            let thread = thread::Builder::new().name("sap-work".into());
            thread.spawn(move || work_off(&receiver)).is_ok()
        });
        Self((started.count() > 0).then_some(sender))
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = oneshot::channel();
        let work = move || catch_unwind(AssertUnwindSafe(work));
        let job: Job = Box::new(move || drop(answer.send(work())));
        if let Err(job) = self.hand_over(job) {
            // More work waits than may: others have their turn, at least.
            yield_once().await;
            job();
        }
        match answered.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => resume_unwind(panic),
            // Every job answers.
            Err(canceled) => resume_unwind(Box::new(canceled)),
        }
    }

    /// Gives a job to the threads, or gives it back.
    fn hand_over(&self, job: Job) -> Result<(), Job> {
        let Some(jobs) = &self.0 else {
            return Err(job);
        };
        jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

fn work_off(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // One waits for the next job, and the others for it.
        let next = {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.recv()
        };
        let Ok(job) = next else { return };
        job();
    }
}

/// Jobs that wait for a thread.
const MAX_WAITING: usize = 1_024;
/// Threads, however many cores there are.
const MAX_THREADS: usize = 4;

#[cfg(test)]
std::thread_local! {
    static HANDED_OVER: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// How often this thread has handed work over while it does something.
#[cfg(test)]
pub(crate) fn handed_over<T>(during: impl FnOnce() -> T) -> (T, usize) {
    let before = HANDED_OVER.get();
    let done = during();
    (done, HANDED_OVER.get() - before)
}

#[cfg(test)]
mod tests {
    use core::task::{Context, Waker};
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use futures::FutureExt as _;
    use futures::executor::block_on;

    use super::*;

    fn here() -> ThreadId {
        thread::current().id()
    }

    #[test]
    fn what_is_short_is_done_at_once_and_what_is_long_apart() {
        assert_eq!(done(HEAVY, here).now_or_never(), Some(here()));
        assert_ne!(block_on(done(HEAVY + 1, here)), here());
    }

    #[test]
    fn a_panic_comes_back_and_the_threads_go_on() {
        let threads = Threads::start();
        for _ in 0..10 {
            let panicking = threads.run(|| -> u8 { panic!("work's own fault") });
            let caught = block_on(AssertUnwindSafe(panicking).catch_unwind());
            assert!(caught.is_err());
        }
        assert_eq!(block_on(threads.run(|| 7)), 7);
    }

    #[test]
    fn what_was_handed_over_is_done_though_nobody_waits() {
        let threads = Threads::start();
        let (told, heard) = channel();
        let mut work = Box::pin(threads.run(move || told.send(7).unwrap()));
        let _ = work.poll_unpin(&mut Context::from_waker(Waker::noop()));
        drop(work);
        assert_eq!(heard.recv(), Ok(7));
    }

    #[test]
    fn where_too_much_waits_or_no_thread_is_it_is_done_where_it_is_asked_for() {
        assert_eq!(block_on(Threads(None).run(here)), here());
        let threads = Threads::start();
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let jobs: Vec<_> = (0..MAX_THREADS + MAX_WAITING)
            .map(|_| {
                let held = Arc::clone(&held);
                let mut job = Box::pin(threads.run(move || {
                    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = held.recv();
                }));
                // What finds no room waits for its turn here.
                let _ = job.poll_unpin(&mut Context::from_waker(Waker::noop()));
                job
            })
            .collect();
        assert_eq!(block_on(threads.run(here)), here());
        drop(release);
        jobs.into_iter().for_each(block_on);
    }
}
