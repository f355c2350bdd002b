//! What results say is told to those who learn of it, on a thread of its own.

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use futures::channel::oneshot;

use crate::error::StoreError;
use crate::learning::{Signal, SignalSink};

/// Tells a sink what results say, in their order. Nobody who runs a task waits for the sink: one that is slow holds up what
/// is told after that, and no more.
///
/// What waits is bounded; at the bound what is new is lost, and counted. So is what the sink refuses, or panics at. Dropping
/// it waits for nothing: the thread tells what was handed over, and ends.
pub(super) struct Teller {
    untold: Arc<Untold>,
    sink: Arc<dyn SignalSink>,
    /// Not where a platform has no threads.
    has_thread: bool,
}

#[derive(Default)]
struct Untold {
    line: Mutex<UntoldSignals>,
    more: Condvar,
}

#[derive(Default)]
struct UntoldSignals {
    waiting: VecDeque<(usize, Tell)>,
    /// Of what waits and what is being told.
    bytes: usize,
    handed_over: u64,
    told: u64,
    lost: u64,
    /// Who waits until so many are told. No more than there are futures that somebody holds.
    followers: Vec<(u64, oneshot::Sender<()>)>,
    is_over: bool,
}

/// Makes a signal, which takes its time where a result is long, and tells it; whether somebody learns of it. It has the sink
/// itself: whoever drops that when all is told drops the last of it, and may open its files again.
type Tell = Box<dyn FnOnce() -> bool + Send>;

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
    }
}

impl Teller {
    /// Signals that wait.
    pub(super) const MAX_WAITING: usize = 10_000;
    /// Bytes of the tasks and results that they are made of. One is taken whatever its length where no other waits.
    pub(super) const MAX_WAITING_BYTES: usize = 64 << 20;

    pub(super) fn start(sink: Arc<dyn SignalSink>) -> Self {
        let untold = Arc::<Untold>::default();
        let telling = Arc::clone(&untold);
        let thread = thread::Builder::new().name("sap-signals".into());
        let thread = thread.spawn(move || telling.work_off());
        Self {
            untold,
            sink,
            has_thread: thread.is_ok(),
        }
    }

    /// Hands over what is made of a task and a result of so many bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]: it is lost, and counted.
    pub(super) fn tell(
        &self,
        bytes: usize,
        make: impl FnOnce() -> Option<Signal> + Send + 'static,
    ) -> Result<(), StoreError> {
        let mut line = self.untold.lock();
        if let Err(full) = line.has_room(bytes) {
            line.lost += 1;
            return Err(full);
        }
        let sink = Arc::clone(&self.sink);
        let tell = move || is_told(&*sink, make);
        line.waiting.push_back((bytes, Box::new(tell)));
        line.bytes += bytes;
        line.handed_over += 1;
        drop(line);
        if self.has_thread {
            self.untold.more.notify_one();
        } else {
            self.untold.tell_all();
        }
        Ok(())
    }

    /// Signals of which nobody learned.
    pub(super) fn lost(&self) -> u64 {
        self.untold.lock().lost
    }

    /// Ready when all that was handed over is told; dropped where that is so already.
    pub(super) fn all_told(&self) -> oneshot::Receiver<()> {
        let (told, all_told) = oneshot::channel();
        let mut line = self.untold.lock();
        if line.told < line.handed_over {
            let wanted = line.handed_over;
            line.followers.retain(|(_, waits)| !waits.is_canceled());
            line.followers.push((wanted, told));
        }
        all_told
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.untold.lock().is_over = true;
        self.untold.more.notify_one();
    }
}

impl Untold {
    fn work_off(&self) {
        loop {
            self.tell_all();
            let line = self.lock();
            if !line.waiting.is_empty() {
                continue;
            }
            if line.is_over {
                return;
            }
            drop(self.more.wait(line));
        }
    }

    fn tell_all(&self) {
        while let Some((bytes, tell)) = self.next() {
            self.told(bytes, tell());
        }
    }

    fn next(&self) -> Option<(usize, Tell)> {
        self.lock().waiting.pop_front()
    }

    fn told(&self, bytes: usize, is_told: bool) {
        let mut line = self.lock();
        line.bytes -= bytes;
        line.told += 1;
        line.lost += u64::from(!is_told);
        let told = line.told;
        let woken = line.followers.extract_if(.., |(wanted, _)| *wanted <= told);
        let woken: Vec<_> = woken.collect();
        drop(line);
        // They are woken by being dropped, and may ask here at once.
        drop(woken);
    }

    /// No sink is called while it is held.
    fn lock(&self) -> MutexGuard<'_, UntoldSignals> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UntoldSignals {
    fn has_room(&self, bytes: usize) -> Result<(), StoreError> {
        let full = |what, limit| Err(StoreError::Full { what, limit });
        if self.waiting.len() >= Teller::MAX_WAITING {
            return full("signals that wait", Teller::MAX_WAITING);
        }
        if self.bytes > 0 && bytes > Teller::MAX_WAITING_BYTES.saturating_sub(self.bytes) {
            return full("bytes of signals that wait", Teller::MAX_WAITING_BYTES);
        }
        Ok(())
    }
}

fn is_told(sink: &dyn SignalSink, make: impl FnOnce() -> Option<Signal>) -> bool {
    let told = catch_unwind(AssertUnwindSafe(|| {
        make().is_none_or(|signal| sink.emit(signal).is_ok())
    }));
    told.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use core::task::{Context, Waker};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake;

    use futures::FutureExt as _;
    use futures::executor::block_on;

    use super::*;
    use crate::samples::{result, task};
    use crate::status::Status;

    /// Waits for a word before it takes a signal.
    #[derive(Debug)]
    struct Slow {
        begun: Mutex<Sender<()>>,
        go_on: Mutex<Receiver<()>>,
    }

    impl SignalSink for Slow {
        fn emit(&self, _: Signal) -> Result<(), StoreError> {
            self.begun.lock().unwrap().send(()).unwrap();
            // An error: it need not wait any more.
            let _ = self.go_on.lock().unwrap().recv();
            Ok(())
        }
    }

    fn signal() -> Option<Signal> {
        let task = task();
        Signal::of_result(&task, None, &result(&task, Status::Succeeded))
    }

    /// A teller whose sink is at the first signal until the sender is dropped.
    fn at_work() -> (Teller, Sender<()>, Receiver<()>) {
        let (begin, begun) = channel();
        let (release, go_on) = channel();
        let sink = Slow {
            begun: Mutex::new(begin),
            go_on: Mutex::new(go_on),
        };
        let teller = Teller::start(Arc::new(sink));
        teller.tell(1, signal).unwrap();
        begun.recv().unwrap();
        (teller, release, begun)
    }

    // spec: SAP-7-6
    #[test]
    fn what_waits_is_bounded_and_what_is_above_is_lost_and_counted() {
        let (teller, release, _begun) = at_work();
        for _ in 0..Teller::MAX_WAITING {
            teller.tell(1, signal).unwrap();
        }
        let full = teller.tell(1, signal).unwrap_err().to_string();
        assert_eq!(full, "signals that wait at their limit of 10000");
        assert_eq!(teller.lost(), 1);
        drop(release);
        // Who waits is woken by a drop.
        block_on(teller.all_told()).unwrap_err();
        assert_eq!(teller.untold.lock().bytes, 0);
        assert!(teller.tell(1, signal).is_ok());
    }

    // spec: SAP-7-6
    #[test]
    fn what_waits_is_bounded_in_bytes_and_one_alone_is_not() {
        let (teller, release, _begun) = at_work();
        let all = Teller::MAX_WAITING_BYTES;
        teller.tell(all - 1, signal).unwrap();
        assert!(teller.tell(1, signal).is_err());
        drop(release);
        block_on(teller.all_told()).unwrap_err();
        assert!(teller.tell(all + 1, signal).is_ok());
    }

    /// Refuses the first, and panics at the second.
    #[derive(Debug, Default)]
    struct Faulty(Mutex<usize>);

    impl SignalSink for Faulty {
        fn emit(&self, _: Signal) -> Result<(), StoreError> {
            let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *calls += 1;
            match *calls {
                1 => Err(StoreError::Full {
                    what: "signals",
                    limit: 0,
                }),
                2 => panic!("a sink's own fault"),
                _ => Ok(()),
            }
        }
    }

    // spec: SAP-7-6, SAP-5-2
    #[test]
    fn what_a_sink_refuses_or_panics_at_is_counted_and_the_next_is_told() {
        let sink = Arc::new(Faulty::default());
        let teller = Teller::start(sink.clone());
        for _ in 0..2 {
            teller.tell(1, signal).unwrap();
        }
        teller
            .tell(1, || panic!("an extractor's own fault"))
            .unwrap();
        teller.tell(1, || None).unwrap();
        teller.tell(1, signal).unwrap();
        block_on(teller.all_told()).unwrap_err();
        assert_eq!(teller.lost(), 3);
        let calls = sink.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*calls, 3);
    }

    // spec: SAP-7-6
    #[test]
    fn a_teller_is_dropped_without_waiting_and_tells_what_it_has() {
        let (teller, release, _begun) = at_work();
        let (told, heard) = channel();
        teller
            .tell(1, move || {
                told.send(thread::current().id()).unwrap();
                None
            })
            .unwrap();
        drop(teller);
        drop(release);
        assert_ne!(heard.recv().unwrap(), thread::current().id());
    }

    // spec: SAP-7-6
    #[test]
    fn the_thread_of_a_teller_ends_with_it() {
        let (teller, release, _begun) = at_work();
        drop(release);
        block_on(teller.all_told()).unwrap_err();
        let untold = Arc::downgrade(&teller.untold);
        drop(teller);
        let is_over = (0..60_000).any(|_| {
            thread::sleep(core::time::Duration::from_millis(1));
            untold.strong_count() == 0
        });
        assert!(is_over, "it waits for more");
    }

    /// Asks when it is woken.
    struct Asking(Teller, Mutex<Sender<u64>>);

    impl Wake for Asking {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().send(self.0.lost()).unwrap();
        }
    }

    #[test]
    fn who_is_woken_may_ask_at_once() {
        let (teller, release, _begun) = at_work();
        let (woken, heard) = channel();
        let mut all_told = teller.all_told();
        let waker = Waker::from(Arc::new(Asking(teller, Mutex::new(woken))));
        let polled = all_told.poll_unpin(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(release);
        assert_eq!(heard.recv(), Ok(0));
    }

    #[test]
    fn who_waits_no_more_takes_no_room() {
        let (teller, release, _begun) = at_work();
        for _ in 0..100 {
            drop(teller.all_told());
        }
        assert!(teller.untold.lock().followers.len() <= 1);
        drop(release);
    }

    #[test]
    fn where_no_thread_is_it_is_told_where_it_is_said() {
        let teller = Teller {
            untold: Arc::default(),
            sink: Arc::new(Faulty::default()),
            has_thread: false,
        };
        let (told, heard) = channel();
        let here = thread::current().id();
        teller
            .tell(1, move || {
                told.send(thread::current().id()).unwrap();
                None
            })
            .unwrap();
        assert_eq!(heard.recv(), Ok(here));
    }
}
