//! A folder of the caller's own that panics: nobody waits for ever, and nothing more is written.

use super::{BOUND, config, read_all};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use ubos_common::log::{AppendError, DirLock, Log, LogDir, LogFile, SimDisk, Sync};

/// The panic of the next sync.
#[derive(Debug, Default)]
struct Panics {
    /// Tells that the sync has begun, and waits for a word before it panics.
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    have_been: AtomicUsize,
    /// What was changed after the panic.
    later: AtomicUsize,
}

impl Panics {
    /// The next sync panics, once it is told to.
    fn arm(&self) -> (Receiver<()>, Sender<()>) {
        let (begins, begun) = channel();
        let (go, goes) = channel();
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some((begins, goes));
        (begun, go)
    }

    fn change(&self) {
        let have_been = self.have_been.load(Ordering::SeqCst);
        self.later.fetch_add(have_been, Ordering::SeqCst);
    }

    fn sync(&self) {
        self.change();
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let next = { next }.take();
        if let Some((begins, goes)) = next {
            begins.send(()).unwrap();
            goes.recv_timeout(BOUND).unwrap();
            self.have_been.fetch_add(1, Ordering::SeqCst);
            panic!("a folder of the caller's own panics");
        }
    }
}

#[derive(Debug)]
struct Panicking<T>(T, Arc<Panics>);

impl LogDir for Panicking<Arc<dyn LogDir>> {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.1.change();
        let file = self.0.create(name)?;
        Ok(Arc::new(Panicking(file, Arc::clone(&self.1))))
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(name, write)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn lock(&self) -> io::Result<Option<DirLock>> {
        self.0.lock()
    }
}

impl LogFile for Panicking<Arc<dyn LogFile>> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.1.change();
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.sync();
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.1.change();
        self.0.set_len(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.1.change();
        self.0.allocate(bytes)
    }
}

/// Does something on a thread of its own, so that a test whose log waits for ever fails.
fn on_a_thread<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, ends) = channel();
    #[expect(clippy::disallowed_methods, reason = "a thread beside the test")]
    std::thread::spawn(move || done.send(act()));
    ends
}

fn panicking(sync: Sync) -> (SimDisk, Arc<Panics>, Arc<Log>) {
    let (disk, panics) = (SimDisk::new(), Arc::<Panics>::default());
    let dir = Panicking(disk.dir(), Arc::clone(&panics));
    let log = Log::open_in(Arc::new(dir), config().with_sync(sync)).unwrap();
    (disk, panics, Arc::new(log))
}

/// While a sync of `first` stands and panics, another waits for it; both and the drop end, and the log takes nothing more.
fn all_are_told(sync: Sync, first: impl FnOnce(&Log) -> bool + Send + 'static) {
    let (disk, panics, log) = panicking(sync);
    log.append(b"acknowledged").unwrap();
    let (begun, go) = panics.arm();
    let leader = Arc::clone(&log);
    let led = on_a_thread(move || catch_unwind(AssertUnwindSafe(|| first(&leader))));
    begun.recv_timeout(BOUND).unwrap();
    let follower = Arc::clone(&log);
    let (waits, waiting) = channel();
    let followed = on_a_thread(move || {
        let ticket = follower.submit(b"gathered meanwhile").unwrap();
        waits.send(()).unwrap();
        follower.wait(ticket)
    });
    waiting.recv_timeout(BOUND).unwrap();
    go.send(()).unwrap();
    assert!(led.recv_timeout(BOUND).expect("the panic goes on").is_err());
    let refused = followed.recv_timeout(BOUND).expect("it is woken");
    assert!(matches!(refused, Err(AppendError::Poisoned(_))));
    for refused in [log.append(b"more").map(drop), log.sync().map(drop)] {
        assert!(matches!(refused, Err(AppendError::Poisoned(_))));
    }
    on_a_thread(move || drop(log)).recv_timeout(BOUND).unwrap();
    assert_eq!(panics.later.load(Ordering::SeqCst), 0, "nothing is written");
    let there = read_all(disk.dir());
    assert_eq!(there.first().unwrap().1, b"acknowledged");
    drop(Log::open_in(disk.dir(), config()).unwrap());
}

#[test]
fn a_panic_in_a_commit_reaches_everybody_who_waits() {
    all_are_told(Sync::Group, |log| log.append(b"panics").is_ok());
}

#[test]
fn a_panic_in_a_sync_reaches_everybody_who_waits() {
    all_are_told(Sync::None, |log| log.sync().is_ok());
}

#[test]
fn a_log_whose_end_has_panicked_is_not_ended_again() {
    let (disk, panics, log) = panicking(Sync::Group);
    log.append(b"acknowledged").unwrap();
    let (_begun, go) = panics.arm();
    go.send(()).unwrap();
    let log = Arc::into_inner(log).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| log.close())).is_err());
    assert_eq!(panics.later.load(Ordering::SeqCst), 0, "nothing is written");
    assert_eq!(read_all(disk.dir()).len(), 1);
}
