//! The thread of a store in files: the disk blocks it and nobody else.

use core::panic::AssertUnwindSafe;
use std::io;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use futures::channel::oneshot;
use ubos_common::log::{AppendError, Log, OpenError, Position};

use crate::future::{BoxFuture, ready};

/// A log and the thread that works on it.
///
/// Jobs are done in the order in which they were handed over. Records that wait together are committed together.
/// Dropping it waits for nothing: the thread does what was handed over, closes the log and ends. Who opens the folder
/// again in this process waits for that.
#[derive(Debug)]
pub(super) struct StoreThread {
    /// `None` once it is dropped.
    log: Option<Arc<Log>>,
    jobs: Sender<Job>,
    waiting: Arc<Backlog>,
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    last: Arc<Mutex<Option<Arc<Log>>>>,
}

/// Opens the log of a folder. Where the thread of a store that was dropped still has it, it waits for that one.
pub(super) fn opened(
    folder: &Path,
    open: impl Fn() -> Result<Log, OpenError>,
) -> Result<Log, OpenError> {
    match open() {
        Err(OpenError::Locked) => {
            let folder = place_of(folder);
            let ending = ending().clone();
            let of_folder = ending.iter().filter(|it| it.folder == folder);
            of_folder.for_each(Ending::wait);
            open()
        }
        opened => opened,
    }
}

/// Waits until the stores in files that this process has dropped have written what was handed over. A program that ends
/// right after it has dropped its stores calls it last, for a drop waits for nothing. It blocks the thread.
pub fn wait_for_dropped() {
    let ending = ending().clone();
    ending.iter().for_each(Ending::wait);
}

/// The thread of a store that was dropped.
#[derive(Clone)]
struct Ending {
    folder: PathBuf,
    /// `None` once somebody has waited for it. Who waits holds the lock, so that all others wait as well.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Ending {
    fn wait(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        // Every job is caught where it runs.
        drop(thread.take().map(JoinHandle::join));
    }

    fn is_over(&self) -> bool {
        let thread = self.thread.try_lock();
        thread.is_ok_and(|thread| thread.as_ref().is_none_or(JoinHandle::is_finished))
    }
}

fn ending() -> MutexGuard<'static, Vec<Ending>> {
    static ENDING: Mutex<Vec<Ending>> = Mutex::new(Vec::new());
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder by its one name.
fn place_of(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// What was handed over: jobs that have not begun, and bytes of records that are not settled.
#[derive(Debug, Default)]
struct Backlog {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// Whether a record is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Where it is within the bounds.
    WithRoom,
    /// Whatever waits. There are as many of these as who makes them can have under way.
    Always,
}

enum Job {
    Append(Vec<u8>, Written),
    /// The same of a record that is made first.
    Make(Box<dyn FnOnce() -> Vec<u8> + Send>, Written),
    Call(Box<dyn FnOnce(&Log) + Send>),
}

type Written = Box<dyn FnOnce(Result<Position, AppendError>) + Send>;

/// Why a job was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ThreadError {
    #[error("{limit} jobs of the store wait, which is the bound")]
    Full { limit: usize },
    #[error("records of {limit} bytes wait for the store, which is the bound")]
    FullOfBytes { limit: usize },
    #[error("the store's thread ended before the job was done")]
    Gone,
}

impl StoreThread {
    pub(super) fn start(folder: &Path, log: Log) -> io::Result<Self> {
        let log = Arc::new(log);
        let (jobs, waiting) = channel();
        let of_thread = Arc::clone(&log);
        let last = Arc::<Mutex<Option<Arc<Log>>>>::default();
        let left = Arc::clone(&last);
        let thread = std::thread::Builder::new()
            .name("sap-store".into())
            .spawn(move || {
                work(&of_thread, &waiting);
                // To close the log is work for the disk, too.
                let left = left.lock().unwrap_or_else(PoisonError::into_inner).take();
                drop((left, of_thread));
            })?;
        Ok(Self {
            log: Some(log),
            jobs,
            waiting: Arc::default(),
            thread: Some(thread),
            folder: place_of(folder),
            last,
        })
    }

    #[expect(clippy::expect_used, reason = "only the drop takes it")]
    pub(super) const fn log(&self) -> &Arc<Log> {
        self.log.as_ref().expect("the store is not dropped yet")
    }

    /// Waits until all that was handed over is done, and the log is closed.
    pub(super) fn close(mut self) {
        let thread = self.thread.take();
        drop(self);
        // Every job is caught where it runs.
        drop(thread.map(JoinHandle::join));
    }

    /// Appends a record. The call hands it over: dropping the future does not take it back. `then` runs on the
    /// thread, in the order of the records.
    pub(super) fn append<T: Send + 'static>(
        &self,
        taken: Taken,
        record: Vec<u8>,
        then: impl FnOnce(Result<Position, AppendError>) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ThreadError>> {
        let place = self.place(taken, record.len());
        self.append_as(place, |written| Job::Append(record, written), then)
    }

    /// The same of a record of about so many bytes, which is made on the thread.
    pub(super) fn append_made<T: Send + 'static>(
        &self,
        taken: Taken,
        bytes: usize,
        make: impl FnOnce() -> Vec<u8> + Send + 'static,
        then: impl FnOnce(Result<Position, AppendError>) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ThreadError>> {
        let place = self.place(taken, bytes);
        self.append_as(place, |written| Job::Make(Box::new(make), written), then)
    }

    fn append_as<T: Send + 'static>(
        &self,
        place: Result<Place, ThreadError>,
        job: impl FnOnce(Written) -> Job,
        then: impl FnOnce(Result<Position, AppendError>) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ThreadError>> {
        let place = match place {
            Ok(place) => place,
            Err(full) => return ready(Err(full)),
        };
        let (answer, answered) = oneshot::channel();
        let written = move |position| {
            drop(place);
            drop(answer.send(then(position)));
        };
        self.hand_over(job(Box::new(written)), answered)
    }

    /// Runs something that may block, after every record that was handed over before.
    pub(super) fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Log) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ThreadError>> {
        let place = match self.place(Taken::WithRoom, 0) {
            Ok(place) => place,
            Err(full) => return ready(Err(full)),
        };
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move |log: &Log| {
            drop(place);
            drop(answer.send(job(log)));
        });
        self.hand_over(Job::Call(job), answered)
    }

    fn place(&self, taken: Taken, bytes: usize) -> Result<Place, ThreadError> {
        let place = Place::take(&self.waiting, bytes);
        match taken {
            Taken::Always => Ok(place.0),
            Taken::WithRoom => place.1.map(|()| place.0),
        }
    }

    fn hand_over<T: Send + 'static>(
        &self,
        job: Job,
        answered: oneshot::Receiver<T>,
    ) -> BoxFuture<'static, Result<T, ThreadError>> {
        match self.jobs.send(job) {
            Ok(()) => Box::pin(async { answered.await.map_err(|_| ThreadError::Gone) }),
            Err(_) => ready(Err(ThreadError::Gone)),
        }
    }
}

/// A job's share of what may wait; given back when it begins, for a record when it is settled, and when it was refused.
struct Place {
    waiting: Arc<Backlog>,
    bytes: usize,
}

impl Place {
    /// The share, and whether it is within the bounds. One record is whatever its length.
    fn take(waiting: &Arc<Backlog>, bytes: usize) -> (Self, Result<(), ThreadError>) {
        let jobs = waiting.jobs.fetch_add(1, Ordering::Relaxed);
        let before = waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let place = Self {
            waiting: Arc::clone(waiting),
            bytes,
        };
        let room = if jobs >= MAX_JOBS {
            Err(ThreadError::Full { limit: MAX_JOBS })
        } else if before > 0 && before.saturating_add(bytes) > MAX_WAITING_BYTES {
            let limit = MAX_WAITING_BYTES;
            Err(ThreadError::FullOfBytes { limit })
        } else {
            Ok(())
        };
        (place, room)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.jobs.fetch_sub(1, Ordering::Relaxed);
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.log.take();
        let mut ending = ending();
        ending.retain(|it| !it.is_over());
        if let Some(thread) = self.thread.take() {
            ending.push(Ending {
                folder: core::mem::take(&mut self.folder),
                thread: Arc::new(Mutex::new(Some(thread))),
            });
        }
    }
}

/// Does jobs until the store is dropped.
fn work(log: &Log, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut submitted = Vec::new();
        let batch = core::iter::once(first).chain(jobs.try_iter());
        for job in batch.take(MAX_BATCH) {
            match job {
                Job::Append(record, written) => submitted.push((log.submit(&record), written)),
                Job::Make(make, written) => shielded(|| {
                    let record = make();
                    submitted.push((log.submit(&record), written));
                }),
                Job::Call(job) => {
                    settle(log, &mut submitted);
                    shielded(|| job(log));
                }
            }
        }
        settle(log, &mut submitted);
    }
}

/// Waits for records. The first wait commits them all.
fn settle(
    log: &Log,
    submitted: &mut Vec<(Result<ubos_common::log::Ticket, AppendError>, Written)>,
) {
    for (ticket, written) in submitted.drain(..) {
        let position = ticket.and_then(|ticket| log.wait(ticket));
        shielded(|| written(position));
    }
}

/// A job that panics answers nobody, and the thread goes on.
fn shielded(job: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(job)));
}

/// Jobs that may wait, beside records that are always taken: more than the tasks that a processor runs, each of which has one or
/// two.
const MAX_JOBS: usize = 4_096;
/// Bytes of records that may wait, in the same way.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Jobs that are done before records are committed.
const MAX_BATCH: usize = 256;

#[cfg(test)]
mod tests {
    use core::task::{Context, Waker};

    use futures::executor::block_on;
    use ubos_common::log::{Config, LogId};

    use super::*;

    fn started(folder: &tempfile::TempDir) -> StoreThread {
        let config = Config::default()
            .with_kind("test")
            .with_log_id(LogId::from_bytes([7; 16]));
        let log = opened(folder.path(), || Log::open(folder.path(), config.clone()));
        StoreThread::start(folder.path(), log.unwrap()).unwrap()
    }

    fn sequence(position: Result<Position, AppendError>) -> u64 {
        position.unwrap().sequence
    }

    #[test]
    fn a_record_is_kept_though_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let thread = started(&folder);
        drop(thread.append(Taken::WithRoom, b"one".to_vec(), sequence));
        drop(thread);
        assert_eq!(
            started(&folder)
                .log()
                .reader()
                .next()
                .unwrap()
                .unwrap()
                .bytes,
            b"one"
        );
    }

    #[test]
    fn a_store_is_dropped_without_waiting_and_opened_again_after_its_last_job() {
        let folder = tempfile::tempdir().unwrap();
        let thread = started(&folder);
        let (release, held) = channel::<()>();
        let (begin, begun) = channel();
        drop(thread.call(move |_| {
            begin.send(()).unwrap();
            held.recv().unwrap_err();
        }));
        begun.recv().unwrap();
        drop(thread.append(Taken::WithRoom, b"one".to_vec(), sequence));
        drop(thread);
        drop(release);
        let again = started(&folder);
        assert_eq!(
            block_on(again.append(Taken::WithRoom, Vec::new(), sequence)),
            Ok(1)
        );
    }

    #[test]
    fn a_folder_is_opened_though_the_disk_of_another_hangs() {
        let (hanging, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (release, held) = channel::<()>();
        let thread = started(&hanging);
        drop(thread.call(move |_| held.recv().unwrap_err()));
        drop(thread);
        for wanted in 0..20 {
            let again = started(&folder);
            drop(again.append(Taken::WithRoom, Vec::new(), move |position| {
                assert_eq!(sequence(position), wanted)
            }));
        }
        assert_eq!(
            block_on(started(&folder).append(Taken::WithRoom, Vec::new(), sequence)),
            Ok(20)
        );
        let hangs = place_of(hanging.path());
        assert!(ending().iter().any(|it| it.folder == hangs));
        drop(release);
        wait_for_dropped();
        let config = Config::default().with_kind("test");
        assert!(Log::open(hanging.path(), config).is_ok());
    }

    #[test]
    fn a_job_that_panics_is_gone_and_the_next_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let thread = started(&folder);
        let panicking = thread.call(|_| -> u8 { panic!("a job's own fault") });
        assert_eq!(block_on(panicking), Err(ThreadError::Gone));
        assert_eq!(
            block_on(thread.append(Taken::WithRoom, Vec::new(), sequence)),
            Ok(0)
        );
    }

    #[test]
    fn a_record_is_made_on_the_thread_in_its_turn_and_one_that_cannot_be_made_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let thread = started(&folder);
        let (release, held) = channel::<()>();
        let made = thread.append_made(
            Taken::WithRoom,
            3,
            move || {
                held.recv().unwrap_err();
                b"one".to_vec()
            },
            sequence,
        );
        let next = thread.append(Taken::WithRoom, b"two".to_vec(), sequence);
        // Dropped before it is made, and made all the same.
        drop(made);
        drop(release);
        assert_eq!(block_on(next), Ok(1));
        let panicking = thread.append_made(
            Taken::WithRoom,
            3,
            || panic!("the maker's own fault"),
            sequence,
        );
        assert_eq!(block_on(panicking), Err(ThreadError::Gone));
        let first =
            block_on(thread.call(|log| log.reader().next().unwrap().unwrap().bytes.to_vec()));
        assert_eq!(first, Ok(b"one".to_vec()));
        // What is settled has left its room before anybody is told.
        let waiting = Arc::clone(&thread.waiting);
        let left = move |_| waiting.bytes.load(Ordering::Relaxed);
        let told = thread.append(Taken::WithRoom, b"three".to_vec(), left);
        assert_eq!(block_on(told), Ok(0));
    }

    #[test]
    fn what_is_over_the_bound_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let thread = started(&folder);
        let (release, held) = channel::<()>();
        let (begin, begun) = channel();
        let held = thread.call(move |_| {
            begin.send(()).unwrap();
            held.recv().unwrap_err();
        });
        begun.recv().unwrap();
        let waiting: Vec<_> = (0..MAX_JOBS).map(|_| thread.call(|_| ())).collect();
        let limit = MAX_JOBS;
        assert_eq!(
            block_on(thread.call(|_| ())),
            Err(ThreadError::Full { limit })
        );
        let owed = thread.append(Taken::Always, Vec::new(), sequence);
        // The disk takes its time, and whoever waits for it may do something else.
        let mut cx = Context::from_waker(Waker::noop());
        let mut held = held;
        assert!(held.as_mut().poll(&mut cx).is_pending());
        drop(release);
        block_on(held).unwrap();
        for job in waiting {
            block_on(job).unwrap();
        }
        assert_eq!(block_on(owed), Ok(0), "it is taken, whatever waits");
        assert_eq!(thread.waiting.jobs.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn records_that_wait_are_bounded_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let thread = started(&folder);
        let (release, held) = channel::<()>();
        let held = thread.call(move |_| held.recv().unwrap_err());
        let record = || vec![7; 1 << 20];
        let limit = MAX_WAITING_BYTES;
        let waiting: Vec<_> = (0..limit >> 20)
            .map(|_| thread.append(Taken::WithRoom, record(), sequence))
            .collect();
        let refused = thread.append(Taken::WithRoom, record(), sequence);
        assert_eq!(block_on(refused), Err(ThreadError::FullOfBytes { limit }));
        let owed = thread.append(Taken::Always, record(), sequence);
        drop(release);
        block_on(held).unwrap();
        for (wanted, record) in (0..).zip(waiting) {
            assert_eq!(block_on(record), Ok(wanted));
        }
        assert_eq!(block_on(owed), Ok(64), "it is taken, whatever waits");
        let next = thread.append(Taken::WithRoom, record(), sequence);
        assert_eq!(block_on(next), Ok(65));
        let (_one, room) = Place::take(&Arc::default(), limit + 1);
        assert_eq!(room, Ok(()), "one alone is taken, whatever its length");
    }
}
