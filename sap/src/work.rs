//! Work that takes its time, done where it holds up no executor.

use core::panic::AssertUnwindSafe;
use std::collections::VecDeque;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use futures::channel::oneshot;

/// Bytes of a message above which work on the whole of it is done apart. The worst messages known take some 35 ms a
/// MiB, so that what stays takes 2 ms.
pub(crate) const HEAVY: usize = 64 << 10;

/// Does something with a message of so many bytes: at once where it is short, on another thread where it is not. A
/// panic comes back to the one who asks.
///
/// The first poll hands it over, and dropping the future does not take it back. Where as much waits as may, it is handed
/// over when there is room.
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
    THREADS.get_or_init(Threads::start).run(bytes, work).await
}

/// The same for what nobody else needs: it is left undone where the one who asks is gone when its turn comes.
pub(crate) async fn wanted<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let asks = Arc::new(());
    let asked = Arc::downgrade(&asks);
    let done = done(bytes, move || (asked.strong_count() > 0).then(work)).await;
    drop(asks);
    match done {
        Some(done) => done,
        // Left undone, because nobody waits here.
        None => core::future::pending().await,
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads that work, and what waits for them.
struct Threads {
    queue: Arc<Queue>,
    /// None where a platform has none.
    started: usize,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Backlog>,
    more: Condvar,
}

#[derive(Default)]
struct Backlog {
    jobs: VecDeque<(usize, Job)>,
    /// Of the messages that the jobs are about.
    bytes: usize,
    /// Those who found no room; each looks again when there is some.
    turned_back: Vec<oneshot::Sender<()>>,
    is_over: bool,
}

impl Threads {
    fn start() -> Self {
        let queue = Arc::<Queue>::default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let started = (0..cores.min(MAX_THREADS)).filter(|_| {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new().name("sap-work".into());
            thread.spawn(move || queue.work_off()).is_ok()
        });
        let started = started.count();
        Self { queue, started }
    }

    async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = oneshot::channel();
        let work = move || catch_unwind(AssertUnwindSafe(work));
        let mut job: Job = Box::new(move || drop(answer.send(work())));
        if self.started == 0 {
            job();
        } else {
            // Above a bound it waits for room: done here, it would hold up all others.
            while let Err((refused, room)) = self.queue.hand_over(bytes, job) {
                job = refused;
                // Dropped where there is room.
                let _ = room.await;
            }
        }
        match answered.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => resume_unwind(panic),
            // Every job answers.
            Err(canceled) => resume_unwind(Box::new(canceled)),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.more.notify_all();
    }
}

impl Queue {
    /// Gives a job to the threads, or gives it back with what is ready when there may be room.
    fn hand_over(&self, bytes: usize, job: Job) -> Result<(), (Job, oneshot::Receiver<()>)> {
        let bytes = bytes.min(MAX_BYTES);
        let mut waiting = self.lock();
        if waiting.jobs.len() >= MAX_WAITING || waiting.bytes + bytes > MAX_BYTES {
            let (sender, room) = oneshot::channel();
            waiting.turned_back.push(sender);
            return Err((job, room));
        }
        waiting.bytes += bytes;
        waiting.jobs.push_back((bytes, job));
        drop(waiting);
        self.more.notify_one();
        Ok(())
    }

    fn work_off(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    /// The next job; `None` where no more come.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some((bytes, job)) = waiting.jobs.pop_front() {
                waiting.bytes -= bytes;
                // All of them, for one that is gone would keep the turn of another.
                waiting.turned_back.clear();
                return Some(job);
            }
            if waiting.is_over {
                return None;
            }
            let woken = self.more.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No job runs while it is held.
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Jobs that wait for a thread.
const MAX_WAITING: usize = 1_024;
/// Bytes of the messages that they are about.
const MAX_BYTES: usize = 64 << 20;
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
    use std::sync::mpsc::{Sender, channel};
    use std::thread::ThreadId;

    use futures::FutureExt as _;
    use futures::executor::block_on;
    use futures::future::BoxFuture;

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
            let panicking = threads.run(1, || -> u8 { panic!("work's own fault") });
            let caught = block_on(AssertUnwindSafe(panicking).catch_unwind());
            assert!(caught.is_err());
        }
        assert_eq!(block_on(threads.run(1, || 7)), 7);
    }

    #[test]
    fn what_was_handed_over_is_done_though_nobody_waits() {
        let threads = Threads::start();
        let (told, heard) = channel();
        let mut work = Box::pin(threads.run(1, move || told.send(7).unwrap()));
        let _ = work.poll_unpin(&mut Context::from_waker(Waker::noop()));
        drop(work);
        assert_eq!(heard.recv(), Ok(7));
    }

    /// Threads whose every place is taken until the sender is dropped, and the jobs that take them.
    fn held(threads: &Threads, jobs: usize, bytes: usize) -> (Sender<()>, Vec<BoxFuture<'_, ()>>) {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let jobs = (0..jobs).map(|_| {
            let held = Arc::clone(&held);
            let job = threads.run(bytes, move || {
                let held = held.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = held.recv();
            });
            let mut job: BoxFuture<'_, ()> = Box::pin(job);
            assert!(
                job.poll_unpin(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            job
        });
        let jobs = jobs.collect();
        (release, jobs)
    }

    #[test]
    fn what_nobody_wants_any_more_is_left_undone() {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let mut waking = Context::from_waker(Waker::noop());
        let mut all_busy: Vec<_> = (0..MAX_THREADS)
            .map(|_| {
                let held = Arc::clone(&held);
                Box::pin(done(HEAVY + 1, move || {
                    let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
                }))
            })
            .collect();
        for busy in &mut all_busy {
            assert!(busy.poll_unpin(&mut waking).is_pending());
        }
        let (told, heard) = channel();
        let mut work = Box::pin(wanted(HEAVY + 1, move || told.send(7)));
        assert!(work.poll_unpin(&mut waking).is_pending());
        drop(work);
        drop(release);
        assert!(heard.recv().is_err());
        assert_eq!(block_on(wanted(HEAVY + 1, || 7)), 7);
    }

    #[test]
    fn where_no_thread_is_it_is_done_where_it_is_asked_for() {
        let threads = Threads {
            queue: Arc::default(),
            started: 0,
        };
        assert_eq!(block_on(threads.run(1, here)), here());
    }

    #[test]
    fn where_too_much_waits_the_next_one_waits_for_room_and_is_done_apart() {
        for (jobs, bytes) in [(MAX_WAITING + MAX_THREADS, 1), (100, 1 << 20)] {
            let threads = Threads::start();
            let (release, jobs) = held(&threads, jobs, bytes);
            let mut last = Box::pin(threads.run(bytes, here));
            let mut waking = Context::from_waker(Waker::noop());
            assert!(last.poll_unpin(&mut waking).is_pending());
            assert!(last.poll_unpin(&mut waking).is_pending());
            {
                let waiting = threads.queue.lock();
                assert!(waiting.jobs.len() <= MAX_WAITING && waiting.bytes <= MAX_BYTES);
                assert!(!waiting.turned_back.is_empty());
            }
            drop(release);
            let done = block_on(futures::future::join(last, futures::future::join_all(jobs))).0;
            assert_ne!(done, here());
        }
    }
}
