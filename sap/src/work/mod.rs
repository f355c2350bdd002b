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

/// For whom work is done. Each has a line of its own, and the threads serve them in turn: what strangers send holds up a
/// task that was let in for one job a thread and no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// Somebody of whom nothing is known yet.
    Stranger,
    /// A task that was let in, or the application itself.
    Task,
}

/// Does something with a message of so many bytes: at once where it is short, on another thread where it is not. A
/// panic comes back to the one who asks.
///
/// The first poll takes a place in the line, and who drops the future before its turn gives it up: so what waits is never
/// more than there are messages that somebody holds.
pub(crate) async fn done<T: Send + 'static>(
    whom: For,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= HEAVY {
        return work();
    }
    apart(whom, work).await
}

/// The same for what may take its time whatever it is about.
pub(crate) async fn apart<T: Send + 'static>(
    whom: For,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    count();
    threads().run(whom, work).await
}

/// Does what is done even if nobody waits for it, when its turn comes. Until then it is kept: who hands it over bounds what
/// waits so.
pub(crate) fn hand_over(work: impl FnOnce() + Send + 'static) {
    count();
    threads().hand_over(work);
}

fn threads() -> &'static Threads {
    static THREADS: OnceLock<Threads> = OnceLock::new();
    THREADS.get_or_init(Threads::start)
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
    lines: Mutex<Lines>,
    more: Condvar,
}

#[derive(Default)]
struct Lines {
    strangers: VecDeque<Turn>,
    tasks: VecDeque<Turn>,
    /// Whether it is the turn of a task, where both wait.
    is_tasks_turn: bool,
    is_over: bool,
}

/// One in a line.
enum Turn {
    /// For one who waits, and may have given it up.
    Asked(Arc<Slot>),
    /// For nobody.
    Kept(Job),
}

/// What is done for one who waits; `None` once it is begun or given up.
struct Slot(Mutex<Option<Job>>);

impl Slot {
    fn take(&self) -> Option<Job> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Gives up what was not begun.
struct Asking(Arc<Slot>);

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.0.take());
    }
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
        whom: For,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if self.started == 0 {
            return work();
        }
        let (answer, answered) = oneshot::channel();
        let work = move || catch_unwind(AssertUnwindSafe(work));
        let job: Job = Box::new(move || drop(answer.send(work())));
        let asking = Asking(Arc::new(Slot(Mutex::new(Some(job)))));
        self.queue.ask(whom, &asking);
        match answered.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => resume_unwind(panic),
            // Every job answers.
            Err(canceled) => resume_unwind(Box::new(canceled)),
        }
    }

    fn hand_over(&self, work: impl FnOnce() + Send + 'static) {
        if self.started == 0 {
            return work();
        }
        // Nobody is there to whom its panic could come back.
        let job = move || drop(catch_unwind(AssertUnwindSafe(work)));
        self.queue.lock().tasks.push_back(Turn::Kept(Box::new(job)));
        self.queue.more.notify_one();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.more.notify_all();
    }
}

impl Queue {
    fn ask(&self, whom: For, asking: &Asking) {
        let mut lines = self.lock();
        let line = match whom {
            For::Stranger => &mut lines.strangers,
            For::Task => &mut lines.tasks,
        };
        // Those that were given up go before the line takes more room.
        if line.len() == line.capacity() {
            line.retain(|waiting| !waiting.is_given_up());
        }
        line.push_back(Turn::Asked(Arc::clone(&asking.0)));
        drop(lines);
        self.more.notify_one();
    }

    fn work_off(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    /// The next job; `None` where no more come.
    fn next(&self) -> Option<Job> {
        let mut lines = self.lock();
        loop {
            if let Some(job) = lines.pop() {
                return Some(job);
            }
            if lines.is_over {
                return None;
            }
            let woken = self.more.wait(lines);
            lines = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No job runs while it is held.
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// The next that is to be done. What was given up takes no turn of its line.
    fn pop(&mut self) -> Option<Job> {
        for is_task in [self.is_tasks_turn, !self.is_tasks_turn] {
            let line = match is_task {
                true => &mut self.tasks,
                false => &mut self.strangers,
            };
            while let Some(turn) = line.pop_front() {
                let job = match turn {
                    Turn::Kept(job) => Some(job),
                    Turn::Asked(asked) => asked.take(),
                };
                if job.is_some() {
                    // After a task it is the turn of strangers.
                    self.is_tasks_turn = !is_task;
                    return job;
                }
            }
        }
        None
    }
}

impl Turn {
    fn is_given_up(&self) -> bool {
        match self {
            Self::Asked(asked) => asked.0.lock().is_ok_and(|job| job.is_none()),
            Self::Kept(..) => false,
        }
    }
}

/// Threads, however many cores there are.
const MAX_THREADS: usize = 4;

#[cfg(not(test))]
const fn count() {}

#[cfg(test)]
fn count() {
    HANDED_OVER.set(HANDED_OVER.get() + 1);
}

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
pub(crate) mod tests;
