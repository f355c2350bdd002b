//! The machine of a task, and the end of a run that was dropped.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use futures::FutureExt as _;
use ubos_common::time::Now;

use super::books::Books;
use crate::role::consumer::{Input, Output, ReceivedTask, Record, Reply, Request};

/// The machine of a task, which may be at work on another thread when the run is dropped.
pub(super) struct SharedMachine {
    machine: Mutex<ReceivedTask>,
    /// What is still to be ended by the one that works.
    left: Mutex<Option<(Now, Left)>>,
}

/// A run that was dropped.
pub(super) struct Left {
    pub(super) books: Books,
}

impl SharedMachine {
    pub(super) fn new(machine: ReceivedTask) -> Self {
        Self {
            machine: Mutex::new(machine),
            left: Mutex::new(None),
        }
    }

    /// For a run that has nothing at work: nobody else holds it then.
    pub(super) fn machine(&self) -> MutexGuard<'_, ReceivedTask> {
        // What a panic in it left is what it was, and the task ends by its time.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the machine, and then ends the run where it was dropped meanwhile.
    pub(super) fn work(&self, work: impl FnOnce(&mut ReceivedTask)) {
        let worked = catch_unwind(AssertUnwindSafe(|| work(&mut self.machine())));
        // It looks while the machine is free: who drops the run after this look finds it so.
        if let Some((now, left)) = self.take_left() {
            end(&mut self.machine(), now, || left);
        }
        if let Err(panic) = worked {
            resume_unwind(panic);
        }
    }

    /// Ends the run: at once where nothing is at work, else as soon as that is done. It waits for nothing.
    // impl: SAP-5-2
    pub(super) fn leave(&self, now: Now, left: impl FnOnce() -> Left) {
        if let Some(mut machine) = self.free() {
            return end(&mut machine, now, left);
        }
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, left()));
        // What was at work may have looked before.
        if let Some(mut machine) = self.free()
            && let Some((now, left)) = self.take_left()
        {
            end(&mut machine, now, || left);
        }
    }

    fn free(&self) -> Option<MutexGuard<'_, ReceivedTask>> {
        match self.machine.try_lock() {
            Ok(machine) => Some(machine),
            Err(TryLockError::Poisoned(machine)) => Some(machine.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn take_left(&self) -> Option<(Now, Left)> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.take()
    }
}

/// The transcript is handed the end of the task, and nobody waits for it.
fn end(machine: &mut ReceivedTask, now: Now, left: impl FnOnce() -> Left) {
    // It may have its end.
    drop(machine.handle_input(now, Input::Shutdown));
    let mut next = machine.poll_output();
    if next.is_none() {
        return;
    }
    let left = left();
    while let Some(output) = next {
        left.perform(machine, now, output);
        next = machine.poll_output();
    }
}

impl Left {
    fn perform(&self, machine: &mut ReceivedTask, now: Now, output: Output) {
        match output {
            Output::Request {
                id,
                request: Request::Record(Record::Result(written)),
            } => {
                let recorded = self.books.result(now, &written).now_or_never();
                let reply = match recorded {
                    Some(Err(_)) => Reply::NotRecorded,
                    // What is not kept yet was handed over.
                    Some(Ok(_)) | None => Reply::Recorded,
                };
                drop(machine.handle_input(now, Input::Reply { id, reply }));
            }
            Output::Remember(written) => {
                self.books.remember(&written);
                // Nobody is there to be warned; what is lost is counted.
                drop(self.books.signal(&written));
            }
            Output::Forget => self.books.forget(),
            // The handler is gone.
            Output::Request { .. } | Output::Cancel(_) | Output::Stop(_) | Output::Close(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use core::task::{Context as Waking, Waker};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use futures::future::{BoxFuture, pending};
    use ubos_common::driver::Sleep as _;

    use super::super::drive::Driver;
    use super::super::effects::Effects;
    use super::super::fixture::{Still, TASK, processor};
    use super::super::peer::Peer;
    use super::super::{Config, Context, HandlerError, Outcome, Processor};
    use super::*;
    use crate::store::MemoryTranscript;
    use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError};
    use crate::validate::{Options, decode_task_alone};

    /// Tells what it is given.
    #[derive(Debug)]
    struct Telling(MemoryTranscript, Sender<String>);

    impl Transcript for Telling {
        fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
            self.1.send(entry.body.as_str().to_owned()).unwrap();
            self.0.record(entry)
        }

        fn read(
            &self,
            from: u64,
            max: usize,
        ) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
            self.0.read(from, max)
        }

        fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
            self.0.verify(kept)
        }
    }

    fn hanging(transcript: Arc<Telling>) -> Processor {
        let hangs = |_: Context| pending::<Result<Outcome, HandlerError>>();
        processor(transcript, Config::default()).handle("text.echo".parse().unwrap(), hangs)
    }

    fn task() -> crate::task::Task {
        decode_task_alone(TASK.as_bytes(), &Options::default()).unwrap()
    }

    // spec: SAP-5-2, SAP-10-1
    #[test]
    fn a_run_whose_machine_is_at_work_is_dropped_without_waiting_and_ends_after_it() {
        let (told, heard) = channel();
        let processor = hanging(Arc::new(Telling(MemoryTranscript::default(), told)));
        let (task, peer) = (task(), Peer::default());
        let effects = Effects::new(&processor, Arc::new(task), TASK.as_bytes().into(), &peer);
        let driver = Driver::new(&Still, &effects);
        let machine = driver.held();
        let mut sink = |_: super::super::Delivery<'_>| {};
        let mut run = Box::pin(driver.run(&mut sink));
        let mut waking = Waking::from_waker(Waker::noop());
        assert!(run.as_mut().poll(&mut waking).is_pending());
        assert!(heard.try_iter().last().unwrap().contains("RUNNING"));
        let (begun, dropped) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                machine.work(|_| {
                    begun.wait();
                    dropped.wait();
                });
            });
            begun.wait();
            assert_eq!(processor.running(), 1);
            drop(run);
            assert_eq!(heard.try_iter().count(), 0);
            dropped.wait();
        });
        let ends: Vec<String> = heard.try_iter().collect();
        assert_eq!(ends.len(), 1);
        assert!(ends[0].contains(r#""status":"FAILED""#), "{}", ends[0]);
        assert_eq!(processor.running(), 0);
    }

    /// A run under way, and what its transcript is told.
    fn begun(peer: &Peer, told: Sender<String>, then: impl FnOnce(Arc<SharedMachine>, &Books)) {
        let processor = hanging(Arc::new(Telling(MemoryTranscript::default(), told)));
        let effects = Effects::new(&processor, Arc::new(task()), TASK.as_bytes().into(), peer);
        let driver = Driver::new(&Still, &effects);
        let machine = driver.held();
        let mut sink = |_: super::super::Delivery<'_>| {};
        let mut run = Box::pin(driver.run(&mut sink));
        assert!(
            run.as_mut()
                .poll(&mut Waking::from_waker(Waker::noop()))
                .is_pending()
        );
        then(machine, &effects.books);
    }

    // spec: SAP-5-2
    #[test]
    fn a_run_that_is_left_while_its_work_ends_has_its_end() {
        let (told, heard) = channel();
        begun(&Peer::default(), told, |machine, books| {
            let (begun, dropped) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                let work = scope.spawn(|| {
                    machine.work(|_| {
                        begun.wait();
                        dropped.wait();
                    });
                });
                begun.wait();
                // The work looks for it, and is over, before it is there.
                machine.leave(Still.now(), || {
                    dropped.wait();
                    work.join().unwrap();
                    let books = books.clone();
                    Left { books }
                });
            });
            // Before the run is dropped, which would end it, too.
            let ends = heard.try_iter().filter(|entry| entry.contains("FAILED"));
            assert_eq!(ends.count(), 1);
        });
    }

    #[test]
    fn a_panic_at_work_comes_back() {
        let (told, _heard) = channel();
        begun(&Peer::default(), told, |machine, _| {
            let work = || machine.work(|_| panic!("work's own fault"));
            assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        });
    }
}
