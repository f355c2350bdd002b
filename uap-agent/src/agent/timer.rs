//! The system's clocks and a thread that wakes those who wait.

use core::future::Future;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::machine::Timers;
use ubos_common::os::Clock;
use ubos_common::time::{Mono, Now};

/// The system's clocks, and a timer where no runtime gives one. One thread serves all waits of the process: it begins with the
/// first, and ends when there has been none for a while. Where no thread can be started, who waits looks at the clock whenever it
/// is polled, and asks to be polled again, until a thread can be started.
pub(super) struct SystemClock;

impl Sleep for SystemClock {
    fn now(&self) -> Now {
        CLOCK.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        Box::pin(Timer::wait(&TIMER, deadline))
    }
}

/// One clock for all agents: a shared budget or retry strategy compares times of different agents.
static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);

static TIMER: LazyLock<Arc<Timer>> =
    LazyLock::new(|| Arc::new(Timer::new(LINGER, Box::new(start_thread))));

/// How long the thread stays without a wait, since a run that streams has one for each event; and how long it does not look
/// whether there are any: to wake it for each that ends would cost more.
const LINGER: Duration = Duration::from_secs(10);

/// When another thread is tried, after one could not be started.
const TRY_AGAIN: Duration = Duration::from_millis(10);

type Work = Box<dyn FnOnce() + Send>;

fn start_thread(work: Work) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("timer".into());
    thread.spawn(work).map(drop)
}

struct Timer {
    waits: Mutex<Waits>,
    /// There is a deadline before the thread looks next.
    earlier: Condvar,
    linger: Duration,
    start: Box<dyn Fn(Work) -> io::Result<()> + Send + Sync>,
}

/// All that wait. An entry is removed when its wait is over or dropped.
#[derive(Default)]
struct Waits {
    deadlines: Timers<u64>,
    wakers: BTreeMap<u64, Waker>,
    last: u64,
    thread: Option<TimerThread>,
    /// When another thread may be tried.
    try_at: Mono,
}

struct TimerThread {
    /// A forked process has no threads but one.
    process: u32,
    /// When it looks at the deadlines next.
    looks_at: Mono,
}

impl Timer {
    fn new(linger: Duration, start: Box<dyn Fn(Work) -> io::Result<()> + Send + Sync>) -> Self {
        Self {
            waits: Mutex::default(),
            earlier: Condvar::new(),
            linger,
            start,
        }
    }

    fn wait(timer: &Arc<Self>, at: Mono) -> Wait {
        Wait {
            timer: Arc::clone(timer),
            at,
            key: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a wait, or its present waker. Returns whether a thread will wake it.
    fn enter(self: &Arc<Self>, now: Mono, at: Mono, key: &mut Option<u64>, waker: Waker) -> bool {
        let mut waits = self.lock();
        let key = *key.get_or_insert_with(|| {
            waits.last += 1;
            waits.last
        });
        waits.deadlines.set(key, at);
        // Dropped with the lock free: it is the caller's code.
        let _former = waits.wakers.insert(key, waker);
        let is_served = self.has_thread(now, at, &mut waits);
        drop(waits);
        is_served
    }

    fn has_thread(self: &Arc<Self>, now: Mono, at: Mono, waits: &mut Waits) -> bool {
        let process = process();
        match &waits.thread {
            Some(thread) if thread.process == process => {
                if at < thread.looks_at {
                    self.earlier.notify_one();
                }
                return true;
            }
            _ => {}
        }
        if now < waits.try_at {
            return false;
        }
        let timer = Arc::clone(self);
        match (self.start)(Box::new(move || timer.serve())) {
            Ok(()) => {
                // It looks as soon as it has the lock.
                waits.thread = Some(TimerThread {
                    process,
                    looks_at: Mono::ZERO,
                });
                true
            }
            Err(_) => {
                waits.try_at = now.saturating_add(TRY_AGAIN);
                false
            }
        }
    }

    fn leave(&self, key: u64) {
        let mut waits = self.lock();
        waits.deadlines.clear(&key);
        // Dropped with the lock free: it is the caller's code.
        let _waker = waits.wakers.remove(&key);
        drop(waits);
    }

    /// Wakes who waits, until nobody has for a while.
    fn serve(&self) {
        let mut waits = self.lock();
        loop {
            let now = CLOCK.now().mono;
            let due = waits.take_due(now);
            if !due.is_empty() {
                drop(waits);
                for waker in due {
                    // The panic of one waker is nothing to the others.
                    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
                waits = self.lock();
                continue;
            }
            let next = waits.deadlines.next();
            let span = next.map_or(self.linger, |at| at.saturating_since(now).min(self.linger));
            if let Some(thread) = &mut waits.thread {
                thread.looks_at = now.saturating_add(span);
            }
            let waited = self.earlier.wait_timeout(waits, span);
            let timed_out;
            (waits, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if next.is_none() && timed_out.timed_out() && waits.deadlines.is_empty() {
                waits.deadlines = Timers::new();
                waits.thread = None;
                return;
            }
        }
    }
}

impl Waits {
    fn take_due(&mut self, now: Mono) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(key) = self.deadlines.pop_due(now) {
            due.extend(self.wakers.remove(&key));
        }
        due
    }
}

/// The number of this process, where processes fork.
fn process() -> u32 {
    if cfg!(unix) { std::process::id() } else { 0 }
}

/// One wait.
struct Wait {
    timer: Arc<Timer>,
    at: Mono,
    /// Its place among the waits, once it was polled.
    key: Option<u64>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let now = CLOCK.now().mono;
        if now >= this.at {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        if !this.timer.enter(now, this.at, &mut this.key, waker) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timer.leave(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::thread::JoinHandle;

    use futures::executor::block_on;
    use futures::future::{FutureExt, join};
    use futures::task::{ArcWake, waker};

    use super::*;

    /// Starts threads, unless there are none to be had.
    #[derive(Default)]
    struct Threads {
        all: Mutex<Vec<JoinHandle<()>>>,
        is_out: AtomicBool,
    }

    impl Threads {
        fn timer(self: &Arc<Self>, linger: Duration) -> Arc<Timer> {
            let threads = Arc::clone(self);
            let start = move |work: Work| {
                if threads.is_out.load(Ordering::SeqCst) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let thread = std::thread::Builder::new().spawn(work)?;
                threads.all.lock().unwrap().push(thread);
                Ok(())
            };
            Arc::new(Timer::new(linger, Box::new(start)))
        }

        fn started(&self) -> usize {
            self.all.lock().unwrap().len()
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(wait: &mut Wait, woken: &Arc<Woken>) -> bool {
        let waker = waker(Arc::clone(woken));
        wait.poll_unpin(&mut Context::from_waker(&waker)).is_ready()
    }

    fn soon() -> Mono {
        CLOCK.now().mono.saturating_add(Duration::from_millis(1))
    }

    const NEVER: Mono = Mono::MAX;

    /// Far longer than anything here takes.
    const BOUND: Duration = Duration::from_secs(300);

    /// Waits until a wait is over, on a thread of its own: one that is never woken fails its test.
    fn is_over(wait: impl Future + Send + 'static) {
        let (over, is_over) = channel();
        let wait = move || drop((block_on(wait), over.send(())));
        std::thread::Builder::new().spawn(wait).unwrap();
        is_over.recv_timeout(BOUND).expect("the wait is over");
    }

    #[test]
    fn one_thread_serves_all_waits_and_ends_after_the_last() {
        let threads = Arc::new(Threads::default());
        let timer = threads.timer(Duration::from_millis(1));
        let woken = Arc::new(Woken::default());
        let mut waits: Vec<_> = (0..100).map(|_| Timer::wait(&timer, NEVER)).collect();
        for wait in &mut waits {
            assert!(!poll(wait, &woken));
        }
        // An earlier deadline is kept although the thread waits for a later one.
        is_over(join(
            Timer::wait(&timer, soon()),
            Timer::wait(&timer, soon()),
        ));
        assert_eq!(threads.started(), 1);
        assert_eq!(timer.lock().wakers.len(), 100);
        drop(waits);
        assert!(timer.lock().wakers.is_empty() && timer.lock().deadlines.is_empty());
        // The next wait starts another.
        let thread = threads.all.lock().unwrap().pop().unwrap();
        let (ended, ends) = channel();
        std::thread::Builder::new()
            .spawn(move || ended.send(thread.join().is_ok()))
            .unwrap();
        assert!(ends.recv_timeout(BOUND).expect("the thread ends"));
        assert!(timer.lock().thread.is_none());
        assert!(!poll(&mut Timer::wait(&timer, NEVER), &woken));
        assert_eq!(threads.started(), 1);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn many_waits_one_after_the_other_have_one_thread() {
        let threads = Arc::new(Threads::default());
        let timer = threads.timer(Duration::MAX);
        let woken = Arc::new(Woken::default());
        let rounds = if cfg!(miri) { 100 } else { 10_000 };
        for _ in 0..rounds {
            assert!(!poll(&mut Timer::wait(&timer, NEVER), &woken));
        }
        assert_eq!(threads.started(), 1);
        assert!(timer.lock().wakers.is_empty());
    }

    #[test]
    fn without_a_thread_no_wait_is_over_early() {
        let threads = Arc::new(Threads::default());
        threads.is_out.store(true, Ordering::SeqCst);
        let timer = threads.timer(Duration::MAX);
        let (mut wait, woken) = (Timer::wait(&timer, NEVER), Arc::new(Woken::default()));
        for asked in 1..=100 {
            assert!(!poll(&mut wait, &woken));
            assert_eq!(
                woken.0.load(Ordering::SeqCst),
                asked,
                "it asks to be polled"
            );
        }
        // The clock ends it.
        is_over(Timer::wait(&timer, soon()));
        assert_eq!(threads.started(), 0);
        // A thread is there when another may be tried: the wait is left to it.
        threads.is_out.store(false, Ordering::SeqCst);
        let try_at = timer.lock().try_at;
        assert!(timer.enter(try_at, NEVER, &mut wait.key, waker(Arc::clone(&woken))));
        let asked = woken.0.load(Ordering::SeqCst);
        assert!(!poll(&mut wait, &woken));
        assert_eq!(woken.0.load(Ordering::SeqCst), asked);
        // The thread sleeps, and an earlier deadline wakes it.
        let sleeps = || timer.lock().thread.as_ref().unwrap().looks_at > Mono::ZERO;
        let clock = Clock::start();
        while !sleeps() {
            let waited = clock.mono().saturating_since(Mono::ZERO);
            assert!(waited < BOUND, "the thread looks at nothing");
            std::thread::yield_now();
        }
        is_over(Timer::wait(&timer, soon()));
    }

    #[test]
    fn a_waker_is_kept_no_longer_than_it_is_waited_for() {
        let threads = Arc::new(Threads::default());
        let timer = threads.timer(Duration::MAX);
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut wait = Timer::wait(&timer, NEVER);
        assert!(!poll(&mut wait, &first));
        assert_eq!(Arc::strong_count(&first), 2);
        assert!(!poll(&mut wait, &second));
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&second)),
            (1, 2)
        );
        drop(wait);
        assert_eq!(Arc::strong_count(&second), 1);
    }

    /// A waker that waits once more when it is dropped.
    struct WaitsAgain(Arc<Timer>, Arc<Woken>);

    impl ArcWake for WaitsAgain {
        fn wake_by_ref(_: &Arc<Self>) {}
    }

    impl Drop for WaitsAgain {
        fn drop(&mut self) {
            assert!(!poll(&mut Timer::wait(&self.0, NEVER), &self.1));
        }
    }

    #[test]
    fn a_waker_is_dropped_with_the_lock_free() {
        let threads = Arc::new(Threads::default());
        let timer = threads.timer(Duration::MAX);
        let woken = Arc::new(Woken::default());
        let again = || waker(Arc::new(WaitsAgain(Arc::clone(&timer), Arc::clone(&woken))));
        let mut wait = Timer::wait(&timer, NEVER);
        // Replaced by another, and by none.
        for _ in 0..2 {
            let waker = again();
            assert!(
                wait.poll_unpin(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        }
        drop(wait);
        assert!(timer.lock().wakers.is_empty());
    }

    #[test]
    fn the_clock_of_agents_wakes_those_who_wait() {
        let end = soon();
        is_over(SystemClock.sleep_until(end));
        assert!(SystemClock.now().mono >= end);
    }

    #[test]
    fn a_waker_that_panics_stops_nobody_else() {
        struct Panics;
        impl ArcWake for Panics {
            fn wake_by_ref(_: &Arc<Self>) {
                panic!("a waker of a test");
            }
        }
        let threads = Arc::new(Threads::default());
        let timer = threads.timer(Duration::MAX);
        let waker = waker(Arc::new(Panics));
        let mut wait = Timer::wait(&timer, soon());
        let _ = wait.poll_unpin(&mut Context::from_waker(&waker));
        is_over(Timer::wait(&timer, soon()));
        is_over(Timer::wait(&timer, soon()));
    }

    #[test]
    fn a_forked_process_starts_a_thread_of_its_own() {
        let threads = Arc::new(Threads::default());
        let timer = threads.timer(Duration::MAX);
        let woken = Arc::new(Woken::default());
        let mut wait = Timer::wait(&timer, NEVER);
        assert!(!poll(&mut wait, &woken));
        // As a child sees it: the process that started the thread is another one.
        if let Some(thread) = &mut timer.lock().thread {
            thread.process = thread.process.wrapping_add(1);
        }
        assert!(!poll(&mut wait, &woken));
        assert_eq!(threads.started(), 2);
    }
}
