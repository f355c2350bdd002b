//! A connection that is lost at the worst moments.

#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, and says why"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::time::Timestamp;
use upp::object;

use super::database::Database;
use super::link::{Boundary, DbFault, Link, Param, Row};
use super::lite::LiteLink;
use super::pool::{Open, Pool};
use crate::checkpoint::{CheckpointError, CheckpointHistory, CheckpointMetadata, CheckpointStore};
use crate::journal::{Journal, JournalError};
use crate::state::AgentState;

/// What is lost next.
const COMMIT: u8 = 1;
const ANSWER: u8 = 2;
const STATEMENT: u8 = 3;
const QUERY: u8 = 4;

struct Lossy {
    inner: LiteLink,
    loses: Arc<AtomicU8>,
    is_closed: bool,
    meanwhile: Meanwhile,
}

/// What others do while the connection is lost.
type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

impl Lossy {
    fn loses(&mut self, what: u8) -> bool {
        let is_lost = self
            .loses
            .compare_exchange(what, 0, Ordering::SeqCst, Ordering::SeqCst);
        self.is_closed |= is_lost.is_ok();
        is_lost.is_ok()
    }

    /// The server ends a transaction whose connection is gone.
    fn lost(&mut self) -> DbFault {
        let _ = self.inner.at(Boundary::RollBack);
        DbFault {
            may_pass: true,
            ..DbFault::new("lost")
        }
    }
}

impl Link for Lossy {
    fn at(&mut self, boundary: Boundary) -> Result<(), DbFault> {
        let is_commit = matches!(boundary, Boundary::Commit);
        if self.is_closed || is_commit && self.loses(COMMIT) {
            return Err(self.lost());
        }
        self.inner.at(boundary)?;
        match is_commit && self.loses(ANSWER) {
            true => Err(self.lost()),
            false => Ok(()),
        }
    }

    fn execute(&mut self, text: &'static str, values: &[Param<'_>]) -> Result<u64, DbFault> {
        if self.is_closed || self.loses(STATEMENT) {
            return Err(self.lost());
        }
        self.inner.execute(text, values)
    }

    fn query(
        &mut self,
        text: &'static str,
        values: &[Param<'_>],
        each: &mut dyn FnMut(Row) -> bool,
    ) -> Result<(), DbFault> {
        if self.is_closed || self.loses(QUERY) {
            return Err(self.lost());
        }
        self.inner.query(text, values, each)
    }

    fn renew(&mut self) -> Result<(), DbFault> {
        self.is_closed = false;
        if let Some(act) = self.meanwhile.lock().unwrap().take() {
            act();
        }
        Ok(())
    }
}

fn lossy(file: &Path) -> (Database, Arc<AtomicU8>) {
    let (database, loses, _) = lossy_while(file);
    (database, loses)
}

fn lossy_while(file: &Path) -> (Database, Arc<AtomicU8>, Meanwhile) {
    let loses = Arc::new(AtomicU8::new(0));
    let meanwhile = Meanwhile::default();
    let (file, told, act) = (file.to_owned(), loses.clone(), meanwhile.clone());
    let open: Open = Box::new(move || {
        Ok(Box::new(Lossy {
            inner: LiteLink::open(&file)?,
            loses: told,
            is_closed: false,
            meanwhile: act,
        }))
    });
    (Database::over([open]).unwrap(), loses, meanwhile)
}

fn entry(n: u64) -> RawObject {
    object(&format!(r#"{{"n":{n}}}"#)).unwrap()
}

// spec: UAP-12-5
#[test]
fn an_entry_is_written_once_whatever_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (database, loses) = lossy(&folder.path().join("runs.db"));
    let run = database.journal("run");
    for n in 0..60 {
        loses.store(u8::try_from(n % 5).unwrap(), Ordering::SeqCst);
        block_on(run.append(n, vec![entry(n)])).unwrap();
    }
    let wanted: Vec<_> = (0..60).map(entry).collect();
    loses.store(QUERY, Ordering::SeqCst);
    assert_eq!(block_on(run.read()).unwrap(), wanted);
    assert_eq!(loses.load(Ordering::SeqCst), 0);
}

// spec: UAP-12-5
#[test]
fn an_entry_of_another_is_not_taken_for_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let ((database, loses, meanwhile), (other, _)) = (lossy_while(&file), lossy(&file));
    // Word for word the same: two owners of one name, at one moment.
    let write = move || block_on(other.journal("run").append(0, vec![entry(0)])).unwrap();
    *meanwhile.lock().unwrap() = Some(Box::new(write));
    loses.store(COMMIT, Ordering::SeqCst);
    let refused = block_on(database.journal("run").append(0, vec![entry(0)])).unwrap_err();
    assert_eq!(refused, JournalError::Conflict { wanted: 0, seen: 1 });
}

#[test]
fn names_are_spread_over_the_connections() {
    let folder = tempfile::tempdir().unwrap();
    let open = |_| -> Open {
        let file = folder.path().join("agents.db");
        Box::new(move || Ok(Box::new(LiteLink::open(&file)?)))
    };
    let pool = Pool::open((0..4).map(open)).unwrap();
    assert_eq!(pool.connections(), 4);
    let places: BTreeSet<_> = (0..100).map(|n| pool.place_of(&n.to_string())).collect();
    assert_eq!(places, (0..4).collect());
}

// spec: UAP-12-4
#[test]
fn a_checkpoint_is_saved_once_whatever_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (database, loses) = lossy(&folder.path().join("agents.db"));
    let store = database.checkpoints();
    let ids = &mut IdSource::seeded(3);
    let mut state = AgentState::initial(ids);
    let mut saved = Vec::new();
    for n in 0..60_u64 {
        loses.store(u8::try_from(n % 5).unwrap(), Ordering::SeqCst);
        state = state.with_step(ids, n);
        let (at, agent) = (Timestamp::EPOCH, "agent".to_owned());
        let metadata = CheckpointMetadata::new("s".into(), ids.uuid(), at, n, agent);
        block_on(store.save(metadata.clone(), state.clone())).unwrap();
        saved.push(metadata);
    }
    assert_eq!(block_on(store.history("s")).unwrap(), saved);
    assert_eq!(block_on(store.load("s")).unwrap(), Some(state));

    // Nobody can know whether these were done.
    loses.store(ANSWER, Ordering::SeqCst);
    let last = saved[59].checkpoint_id;
    let unknown = block_on(store.fork("s", last, "forked")).unwrap_err();
    assert!(matches!(unknown, CheckpointError::Failed(_)), "{unknown}");
    let again = block_on(store.fork("s", last, "forked")).unwrap_err();
    assert_eq!(again, CheckpointError::Exists);
    loses.store(ANSWER, Ordering::SeqCst);
    assert!(block_on(store.prune("s", 5)).is_err());
    assert_eq!(block_on(store.history("s")).unwrap(), saved[55..]);
    // What is lost before is done again.
    for what in [COMMIT, STATEMENT] {
        loses.store(what, Ordering::SeqCst);
        block_on(store.delete("forked")).unwrap();
        loses.store(STATEMENT, Ordering::SeqCst);
        block_on(store.fork("s", last, "forked")).unwrap();
    }
}
