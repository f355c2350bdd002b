//! Work that waits for a database: for a server that is away, or behind other work.

#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, and says why"
)]

use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use futures::future::join_all;
use ubos_common::json::RawObject;
use ubos_common::time::Mono;
use upp::object;

use super::SqlJournal;
use super::link::{Boundary, DbFault, Link, Param, Row};
use super::lite::LiteLink;
use super::pool::{Open, Pool, Time};
use crate::journal::{Journal, JournalError};

/// Far longer than anything here takes.
const BOUND: Duration = Duration::from_secs(300);

/// How long a silent server is listened to, and a new connection takes.
const SILENCE: Duration = Duration::from_secs(15);

/// A server and its time, which passes while it is waited for.
#[derive(Default)]
struct Server {
    passed: Mutex<Duration>,
    /// It takes connections, and says nothing.
    is_silent: AtomicBool,
    /// The next commit takes longer than anybody waits, and the connection is lost behind it.
    is_slow: AtomicBool,
    reads: AtomicUsize,
    /// The next transaction begins when it is told to.
    gate: Mutex<Option<Receiver<()>>>,
}

impl Server {
    /// What is asked from now on is queued until the sender has sent.
    fn held(&self) -> Sender<()> {
        let (open, gate) = channel();
        *self.gate.lock().unwrap() = Some(gate);
        open
    }

    /// Opens one connection; a drop waits for its work as long as this.
    fn pool(self: &Arc<Self>, file: &std::path::Path, ending: Duration) -> Pool {
        let (server, file) = (Arc::clone(self), file.to_owned());
        let open: Open = Box::new(move || {
            Ok(Box::new(Connection {
                inner: LiteLink::open(&file)?,
                server,
                is_lost: false,
            }))
        });
        let time = Arc::clone(self) as Arc<dyn Time>;
        Pool::open_with(time, ending, [open]).unwrap()
    }

    fn open(self: &Arc<Self>, file: &std::path::Path) -> SqlJournal {
        SqlJournal::of("run".into(), Arc::new(self.pool(file, BOUND)))
    }
}

impl Time for Server {
    fn now(&self) -> Mono {
        Mono::ZERO.saturating_add(*self.passed.lock().unwrap())
    }

    fn pause(&self, span: Duration) {
        *self.passed.lock().unwrap() += span;
    }
}

struct Connection {
    inner: LiteLink,
    server: Arc<Server>,
    is_lost: bool,
}

impl Link for Connection {
    fn at(&mut self, boundary: Boundary) -> Result<(), DbFault> {
        let gate = self.server.gate.lock().unwrap().take();
        gate.inspect(|gate| gate.recv_timeout(BOUND).unwrap());
        if self.server.is_silent.load(Ordering::SeqCst) && !self.is_lost {
            self.server.pause(SILENCE);
            self.is_lost = true;
        }
        if self.is_lost {
            return Err(DbFault {
                may_pass: true,
                ..DbFault::new("lost")
            });
        }
        let is_read = matches!(boundary, Boundary::BeginRead);
        self.server
            .reads
            .fetch_add(usize::from(is_read), Ordering::SeqCst);
        self.inner.at(boundary)?;
        let is_commit = matches!(boundary, Boundary::Commit);
        if is_commit && self.server.is_slow.swap(false, Ordering::SeqCst) {
            self.server.pause(Duration::from_secs(100));
            self.is_lost = true;
        }
        Ok(())
    }

    fn execute(&mut self, text: &'static str, values: &[Param<'_>]) -> Result<u64, DbFault> {
        self.inner.execute(text, values)
    }

    fn query(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(Row) -> bool,
    ) -> Result<(), DbFault> {
        self.inner.query(text, values, each)
    }

    fn renew(&mut self) -> Result<(), DbFault> {
        self.server.pause(SILENCE);
        self.is_lost = false;
        Ok(())
    }
}

fn entry(n: u64) -> Vec<RawObject> {
    vec![object(&format!(r#"{{"n":{n}}}"#)).unwrap()]
}

#[test]
fn all_that_is_asked_of_a_silent_server_has_an_error_within_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::<Server>::default();
    let run = server.open(&folder.path().join("runs.db"));
    let open = server.held();
    server.is_silent.store(true, Ordering::SeqCst);
    let asked: Vec<_> = (0..3).map(|n| run.append(n, entry(n))).collect();
    open.send(()).unwrap();
    for answer in block_on(join_all(asked)) {
        let refused = answer.unwrap_err();
        assert!(matches!(refused, JournalError::Failed(_)), "{refused}");
    }
    let passed = *server.passed.lock().unwrap();
    assert!(passed >= Duration::from_secs(30), "{passed:?}");
    assert!(passed <= Duration::from_secs(60), "{passed:?}");
    // What is asked next has its own time, and finds that the server is there again.
    server.is_silent.store(false, Ordering::SeqCst);
    block_on(run.append(0, entry(0))).unwrap();
    assert_eq!(block_on(run.read()).unwrap(), entry(0));
}

#[test]
fn what_waited_behind_slow_work_is_tried_again_when_its_connection_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::<Server>::default();
    let run = server.open(&folder.path().join("runs.db"));
    let open = server.held();
    server.is_slow.store(true, Ordering::SeqCst);
    let asked: Vec<_> = (0..2).map(|n| run.append(n, entry(n))).collect();
    open.send(()).unwrap();
    for answer in block_on(join_all(asked)) {
        answer.unwrap();
    }
}

#[test]
fn a_read_for_nobody_is_left_out_and_a_write_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::<Server>::default();
    let run = server.open(&folder.path().join("runs.db"));
    let open = server.held();
    let first = run.append(0, entry(0));
    drop((run.read(), run.append(1, entry(1)), run.read()));
    let last = run.read();
    open.send(()).unwrap();
    block_on(first).unwrap();
    let wanted = [entry(0), entry(1)].concat();
    assert_eq!(block_on(last).unwrap(), wanted);
    assert_eq!(server.reads.load(Ordering::SeqCst), 1);
}

#[test]
fn a_drop_does_not_wait_without_end_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Arc::<Server>::default();
    let pool = server.pool(&folder.path().join("runs.db"), Duration::ZERO);
    let open = server.held();
    let asked = [(); 3].map(|()| SqlJournal::delete(&pool, "run"));
    let (dropped, ends) = channel();
    let drops = std::thread::Builder::new();
    let drops = drops.spawn(move || {
        drop(pool);
        dropped.send(()).unwrap();
    });
    ends.recv_timeout(BOUND).expect("the drop has an end");
    drops.unwrap().join().unwrap();
    open.send(()).unwrap();
    for answer in block_on(join_all(asked)) {
        answer.unwrap();
    }
}

#[test]
fn a_drop_waits_for_what_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let server = Arc::<Server>::default();
    let run = server.open(&file);
    for n in 0..20 {
        // Nobody awaits it.
        drop(run.append(n, entry(n)));
    }
    drop(run);
    assert_eq!(Arc::strong_count(&server), 1, "the thread has ended");
    let again = server.open(&file);
    assert_eq!(block_on(again.read()).unwrap().len(), 20);
}
