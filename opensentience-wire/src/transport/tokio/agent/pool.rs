//! Threads for tools that block.

use core::time::Duration;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::super::context::ToolError;
use super::tool::internal;
use crate::error::{ErrorCode, ErrorObject};

/// Threads that run at once, unless another number is set.
const THREADS: usize = 32;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that come with the work and go without it. Unlike a runtime's own, nothing waits for them at the end: a tool
/// that hangs cannot hold up its process.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<SharedPool>);

#[derive(Default)]
struct SharedPool {
    state: Mutex<PoolState>,
    work: Condvar,
}

struct PoolState {
    /// At most one for each call whose tool is waited for.
    jobs: VecDeque<(u64, Job)>,
    /// Numbers the jobs.
    last: u64,
    threads: usize,
    idle: usize,
    max: usize,
    /// How long a thread waits for more work.
    patience: Duration,
    /// Starts a thread; gives whether there is one.
    start: fn(Job) -> bool,
}

impl Default for PoolState {
    fn default() -> Self {
        Self {
            jobs: VecDeque::new(),
            last: 0,
            threads: 0,
            idle: 0,
            max: THREADS,
            patience: IDLE,
            start,
        }
    }
}

impl Pool {
    pub(super) fn set_threads(&self, threads: usize) {
        self.0.lock().max = threads;
    }

    pub(super) fn max_threads(&self) -> usize {
        self.0.lock().max
    }

    /// Runs a job on one of the threads, and gives what it gave.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let (tx, rx) = oneshot::channel();
        // Nobody may wait for the answer any more.
        let number = self.0.push(Box::new(move || drop(tx.send(job()))));
        let _queued = Queued(&self.0, number);
        if !self.0.staff() {
            return Err(ErrorObject::of(ErrorCode::ToolBusy, "no thread is to be had").into());
        }
        // A panic drops the sender.
        rx.await.unwrap_or_else(|_| Err(internal().into()))
    }
}

/// A job that somebody waits for. It leaves the queue with them: threads that are all held by tools that never return
/// would let it grow.
struct Queued<'a>(&'a SharedPool, u64);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let place = state
            .jobs
            .binary_search_by_key(&self.1, |(number, _)| *number);
        let job = place.ok().and_then(|place| state.jobs.remove(place));
        // What it holds may have a drop of its own.
        drop((state, job));
    }
}

impl SharedPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.jobs.push_back((number, job));
        drop(state);
        self.work.notify_one();
        number
    }

    /// Sees to it that somebody will take what waits; gives whether somebody will.
    fn staff(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        if state.jobs.len() <= state.idle || state.threads >= state.max {
            return true;
        }
        let shared = Arc::clone(self);
        if (state.start)(Box::new(move || shared.work())) {
            state.threads += 1;
        }
        // Where no thread is to be had, those that run take it.
        state.threads > 0
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // Who waits for it learns of a panic by the end of its channel.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// The next job; `None` when none came for a while, and the thread is not counted any more.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        state.idle += 1;
        let patience = state.patience;
        let waited = self
            .work
            .wait_timeout_while(state, patience, |state| state.jobs.is_empty());
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        let job = state.jobs.pop_front().map(|(_, job)| job);
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }
}

fn start(work: Job) -> bool {
    let thread = std::thread::Builder::new().name("tool".into());
    thread.spawn(work).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_run_at_once_than_threads_and_all_run() {
        let pool = Pool::default();
        pool.set_threads(3);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // Three of them end only once all three run.
        let three = Arc::new(std::sync::Barrier::new(3));
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..20 {
            let (pool, running, most) = (pool.clone(), Arc::clone(&running), Arc::clone(&most));
            let three = Arc::clone(&three);
            calls.spawn(async move {
                let job = move || {
                    let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(at_once, Ordering::SeqCst);
                    if n < 3 {
                        three.wait();
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    assert!(n != 7, "one panics");
                    Ok(n)
                };
                (n, pool.run(job).await.ok())
            });
        }
        for (n, ended) in calls.join_all().await {
            assert_eq!(ended, (n != 7).then_some(n));
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert!(pool.0.lock().threads <= 3);
    }

    #[tokio::test]
    async fn a_thread_that_waits_is_used_before_another_begins() {
        let pool = Pool::default();
        pool.set_threads(3);
        for n in 0..10 {
            assert_eq!(pool.run(move || Ok(n)).await.ok(), Some(n));
            let all_wait = || {
                let state = pool.0.lock();
                state.idle == state.threads
            };
            while !all_wait() {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(pool.0.lock().threads, 1);
    }

    #[tokio::test]
    async fn a_job_that_nobody_waits_for_any_more_leaves_the_queue() {
        let pool = Pool::default();
        pool.set_threads(1);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let stubborn = pool.clone();
        let mut held = tokio::task::JoinSet::new();
        held.spawn(async move {
            let job = move || Ok(ended.recv().is_err());
            stubborn.run(job).await
        });
        while pool.0.lock().threads == 0 || !pool.0.lock().jobs.is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            let given_up = tokio::time::timeout(Duration::ZERO, pool.run(|| Ok(())));
            assert!(given_up.await.is_err());
        }
        assert_eq!(pool.0.lock().jobs.len(), 0);
        drop(end);
        assert!(held.join_next().await.unwrap().unwrap().unwrap());
    }

    #[tokio::test]
    async fn threads_that_went_without_work_make_room_for_others() {
        let pool = Pool::default();
        pool.set_threads(1);
        pool.0.lock().patience = Duration::ZERO;
        for n in 0..10 {
            assert_eq!(pool.run(move || Ok(n)).await.ok(), Some(n));
            while pool.0.lock().threads > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    // Such as one that gives up a tool that it calls on the same threads.
    #[tokio::test]
    async fn what_a_job_holds_may_use_the_threads_when_it_is_given_up() {
        struct Looks(Pool, Arc<AtomicUsize>);

        impl Drop for Looks {
            fn drop(&mut self) {
                let is_free = self.0.0.state.try_lock().is_ok();
                self.1.fetch_add(usize::from(is_free), Ordering::SeqCst);
            }
        }

        let (pool, free) = (Pool::default(), Arc::<AtomicUsize>::default());
        // Somebody will take it.
        pool.set_threads(0);
        let looks = Looks(pool.clone(), Arc::clone(&free));
        let job = move || {
            drop(looks);
            Ok(())
        };
        let given_up = tokio::time::timeout(Duration::ZERO, pool.run(job)).await;
        assert!(given_up.is_err() && free.load(Ordering::SeqCst) == 1);
    }

    #[tokio::test]
    async fn without_a_thread_a_job_is_refused_and_takes_no_other_with_it() {
        let pool = Pool::default();
        pool.0.lock().start = |_| false;
        // The job of somebody who has not asked for a thread yet.
        pool.0.push(Box::new(|| ()));
        let refused = pool.run(|| Ok(())).await.unwrap_err().into_inner();
        assert_eq!(refused.code, ErrorCode::ToolBusy);
        assert_eq!(pool.0.lock().jobs.len(), 1);
    }

    #[tokio::test]
    async fn a_job_for_which_no_thread_is_to_be_had_waits_for_those_that_run() {
        let pool = Pool::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        pool.0.push(Box::new(move || {
            let _ = ended.recv();
        }));
        assert!(pool.0.staff());
        pool.0.lock().start = |_| false;
        let (waits, ()) = tokio::join!(pool.run(|| Ok(7)), async { drop(end) });
        assert_eq!(waits.ok(), Some(7));
    }
}
