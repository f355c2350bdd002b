use core::task::{Context, Waker};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

use futures::FutureExt as _;
use futures::executor::block_on;
use futures::future::{BoxFuture, join_all};

use super::*;

fn here() -> ThreadId {
    thread::current().id()
}

/// The threads that all share, while they are busy; one test at a time has them.
pub(crate) struct Busy {
    release: Option<Sender<()>>,
    jobs: Vec<BoxFuture<'static, ()>>,
    _alone: MutexGuard<'static, ()>,
}

impl Busy {
    pub(crate) fn all() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (release, jobs) = busy(threads());
        Self {
            release: Some(release),
            jobs,
            _alone: alone,
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.release.take());
        block_on(join_all(self.jobs.drain(..)));
    }
}

fn begun<'a, T>(work: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    let mut work = work.boxed();
    let polled = work.poll_unpin(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    work
}

/// Threads that are all busy until the sender is dropped, and what keeps them so.
fn busy(threads: &Threads) -> (Sender<()>, Vec<BoxFuture<'_, ()>>) {
    let (release, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let (at_work, works) = channel();
    let jobs = (0..threads.started).map(|_| {
        let (held, at_work) = (Arc::clone(&held), at_work.clone());
        begun(threads.run(For::Task, move || {
            at_work.send(()).unwrap();
            let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }))
    });
    let jobs = jobs.collect();
    (0..threads.started).for_each(|_| works.recv().unwrap());
    (release, jobs)
}

#[test]
fn what_is_short_is_done_at_once_and_what_is_long_apart() {
    assert_eq!(done(For::Task, HEAVY, here).now_or_never(), Some(here()));
    assert_ne!(block_on(done(For::Task, HEAVY + 1, here)), here());
    assert_ne!(block_on(apart(For::Stranger, here)), here());
}

#[test]
fn a_panic_comes_back_and_the_threads_go_on() {
    let threads = Threads::start();
    for _ in 0..10 {
        let panicking = threads.run(For::Task, || -> u8 { panic!("work's own fault") });
        let caught = block_on(AssertUnwindSafe(panicking).catch_unwind());
        assert!(caught.is_err());
        threads.hand_over(|| panic!("work's own fault"));
    }
    assert_eq!(block_on(threads.run(For::Task, || 7)), 7);
}

#[test]
fn what_was_handed_over_is_done_though_nobody_waits_and_what_was_asked_for_is_given_up() {
    let threads = Threads::start();
    let (release, jobs) = busy(&threads);
    let (told, heard) = channel();
    let tell = told.clone();
    threads.hand_over(move || tell.send(7).unwrap());
    let asked = begun(threads.run(For::Task, move || told.send(8).unwrap()));
    drop(asked);
    drop(release);
    block_on(join_all(jobs));
    assert_eq!(heard.iter().collect::<Vec<_>>(), [7]);
}

/// Begins what a line says its name in, and gives the names in the order in which they were done.
fn in_order(threads: &Threads, lines: &[(For, usize, &'static str)]) -> Vec<&'static str> {
    let (told, heard): (_, Receiver<&str>) = channel();
    let (release, jobs) = busy(threads);
    let mut asked = Vec::new();
    for &(whom, count, name) in lines {
        for _ in 0..count {
            let told = told.clone();
            asked.push(begun(threads.run(whom, move || told.send(name).unwrap())));
        }
    }
    drop((release, told));
    block_on(join_all(jobs));
    block_on(join_all(asked));
    heard.iter().collect()
}

/// One thread, so that there is one order.
fn one_thread() -> Threads {
    let queue = Arc::<Queue>::default();
    let working = Arc::clone(&queue);
    thread::Builder::new()
        .spawn(move || working.work_off())
        .unwrap();
    Threads { queue, started: 1 }
}

#[test]
fn the_first_who_comes_is_the_first_who_is_served() {
    let lines = ["a", "b", "c", "d"].map(|name| (For::Task, 1, name));
    assert_eq!(in_order(&one_thread(), &lines), ["a", "b", "c", "d"]);
}

// spec: SAP-5-8
#[test]
fn however_many_strangers_wait_a_task_waits_for_one_of_them() {
    let lines = [(For::Stranger, 100, "stranger"), (For::Task, 3, "task")];
    let order = in_order(&one_thread(), &lines);
    let last = order.iter().rposition(|name| *name == "task").unwrap();
    assert!(last <= 6, "{:?}", &order[..=last]);
    assert_eq!(order.len(), 103);
    // Nor does a task that comes again and again keep strangers out.
    let order = in_order(
        &one_thread(),
        &[(For::Task, 100, "task"), (For::Stranger, 1, "stranger")],
    );
    assert!(order.iter().position(|name| *name == "stranger").unwrap() <= 2);
}

// spec: SAP-5-8
#[test]
fn those_who_gave_up_take_no_turn() {
    let threads = one_thread();
    let (told, heard) = channel();
    let (release, jobs) = busy(&threads);
    let ask = |whom, name: &'static str| {
        let told = told.clone();
        begun(threads.run(whom, move || told.send(name).unwrap()))
    };
    let mut asked: Vec<_> = (0..50).map(|_| ask(For::Stranger, "stranger")).collect();
    // More than the line has room for would be swept.
    let given_up: Vec<_> = (0..3).map(|_| ask(For::Task, "given up")).collect();
    asked.push(ask(For::Task, "task"));
    drop(given_up);
    drop(release);
    block_on(join_all(jobs));
    block_on(join_all(asked));
    drop(told);
    let order: Vec<&str> = heard.iter().collect();
    assert!(
        order.iter().position(|name| *name == "task") <= Some(1),
        "{order:?}"
    );
}

#[test]
fn those_who_gave_up_take_no_room() {
    let threads = Threads::start();
    let (release, jobs) = busy(&threads);
    for _ in 0..10_000 {
        drop(begun(threads.run(For::Stranger, || {})));
    }
    assert!(threads.queue.lock().strangers.capacity() <= 8);
    drop(release);
    block_on(join_all(jobs));
}

#[test]
fn where_no_thread_is_it_is_done_where_it_is_asked_for() {
    let threads = Threads {
        queue: Arc::default(),
        started: 0,
    };
    assert_eq!(block_on(threads.run(For::Task, here)), here());
    let (told, heard) = channel();
    threads.hand_over(move || told.send(here()).unwrap());
    assert_eq!(heard.recv(), Ok(here()));
}

#[test]
fn the_threads_end_with_whom_they_work_for() {
    std::thread_local! {
        static ALIVE: core::cell::RefCell<Option<Sender<()>>> = const { core::cell::RefCell::new(None) };
    }
    let threads = Threads::start();
    let (alive, ended) = channel();
    for _ in 0..100 {
        let alive = alive.clone();
        block_on(threads.run(For::Task, move || ALIVE.set(Some(alive))));
    }
    // They have time to wait for more.
    (0..100).for_each(|_| thread::yield_now());
    drop((alive, threads));
    assert!(ended.recv().is_err(), "what a thread has goes with it");
}
