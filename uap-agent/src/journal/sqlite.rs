//! Journals in a SQLite database.

use core::fmt;
use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use ubos_common::json::{RawObject, decode};
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use super::entry::Entry;
use super::recording::limits;
use super::thread::{JobThread, failed};
use super::{Journal, JournalError, JournalFuture};

/// The maximum size of all entries of a run, in bytes.
const MAX_BYTES: usize = 256 << 20;

/// How long a write waits for another process.
const BUSY: Duration = Duration::from_secs(10);

/// `next` is compared and set by every write. The columns behind it say what its last entries say.
const SCHEMA: &str = "\
    CREATE TABLE IF NOT EXISTS uap_run (
        run TEXT PRIMARY KEY, next INTEGER NOT NULL, bytes INTEGER NOT NULL, ended INTEGER NOT NULL,
        epoch INTEGER NOT NULL, owner TEXT NOT NULL, term_ms INTEGER, at_ms INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS uap_entry (
        run TEXT NOT NULL, n INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (run, n)) STRICT, WITHOUT ROWID;";

/// The journals of many runs, in one file that any number of processes have open.
///
/// A finished write is on the disk. Each write compares and sets the place at which the run goes on, in one transaction, so
/// that of two owners of a run one is refused. Give runs a lease with a term
/// ([`AgentOptions::with_ownership`](crate::AgentOptions)): unlike a folder, the file does not say whether the process that
/// wrote last is alive.
///
/// | bound | |
/// |---|---|
/// | a run | 256 MiB, and 256 levels of JSON |
/// | waiting for another process | 10 seconds |
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::journal::SqliteJournals;
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel};
///
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("runs.db");
/// # futures::executor::block_on(async {
/// let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")]))))?;
/// let journals = SqliteJournals::open(&file)?;
/// let run = Arc::new(journals.run("order 17"));
/// let result = agent.record(run.clone(), "hi", &agent.initial_state()).result().await?;
/// assert_eq!(agent.resume(run).await?.result().await?, result);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SqliteJournals {
    thread: Arc<JobThread<Connection>>,
}

/// The journal of one run in a [`SqliteJournals`].
#[derive(Clone)]
pub struct SqliteJournal {
    run: Arc<str>,
    thread: Arc<JobThread<Connection>>,
}

impl SqliteJournals {
    /// Opens the database in a file, which is created where it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or is no database.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, JournalError> {
        let connection = Connection::open(file).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        // A commit is on the disk when it returns, and readers do not wait for it.
        let mode = connection.pragma_update(None, "journal_mode", "WAL");
        mode.map_err(failed)?;
        let sync = connection.pragma_update(None, "synchronous", "FULL");
        sync.map_err(failed)?;
        connection.execute_batch(SCHEMA).map_err(failed)?;
        Ok(Self {
            thread: Arc::new(JobThread::start(connection)?),
        })
    }

    /// The journal of a run, by a name of yours. It is empty until the run is recorded.
    #[must_use]
    pub fn run(&self, name: impl Into<Arc<str>>) -> SqliteJournal {
        SqliteJournal {
            run: name.into(),
            thread: Arc::clone(&self.thread),
        }
    }

    /// The runs that have not ended and whose lease has: those that a process may take over. Runs that wait for a person are
    /// among them.
    ///
    /// # Errors
    ///
    /// The database failed.
    pub async fn abandoned(&self, now: Timestamp) -> Result<Vec<String>, JournalError> {
        let now = now.unix_millis();
        let asked = self.thread.ask(move |connection| {
            let text = "SELECT run FROM uap_run
                WHERE ended = 0 AND (term_ms IS NULL OR at_ms + term_ms <= ?1) ORDER BY run";
            let mut statement = connection.prepare_cached(text).map_err(failed)?;
            let rows = statement
                .query_map([now], |row| row.get(0))
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)
        });
        asked.await
    }

    /// Removes the journal of a run. One that does not exist is not an error.
    ///
    /// # Errors
    ///
    /// The database failed.
    pub async fn delete(&self, name: &str) -> Result<(), JournalError> {
        let run = name.to_owned();
        let asked = self.thread.ask(move |connection| {
            let transaction = begin(connection)?;
            for table in ["uap_entry", "uap_run"] {
                let text = format!("DELETE FROM {table} WHERE run = ?1");
                transaction.execute(&text, [&run]).map_err(failed)?;
            }
            transaction.commit().map_err(failed)
        });
        asked.await
    }
}

impl Journal for SqliteJournal {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        let run = Arc::clone(&self.run);
        self.thread.ask(move |connection| {
            let transaction = begin(connection)?;
            append(&transaction, &run, first, &entries)?;
            transaction.commit().map_err(failed)
        })
    }

    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        let run = Arc::clone(&self.run);
        self.thread.ask(move |connection| {
            let text = "SELECT entry FROM uap_entry WHERE run = ?1 ORDER BY n";
            let mut statement = connection.prepare_cached(text).map_err(failed)?;
            let mut rows = statement.query([&*run]).map_err(failed)?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next().map_err(failed)? {
                let text = row.get_ref(0).map_err(failed)?;
                let text = text.as_str().map_err(failed)?;
                entries.push(readable(entries.len() as u64, text)?);
            }
            Ok(entries)
        })
    }
}

/// A transaction that is sure to write: it waits for others here, and not in its middle.
fn begin(connection: &mut Connection) -> Result<Transaction<'_>, JournalError> {
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    begun.map_err(failed)
}

/// What the row of a run says.
#[derive(Clone, Default)]
struct RunRow {
    next: u64,
    bytes: usize,
    ended: bool,
    epoch: u64,
    owner: Arc<str>,
    term_ms: Option<i64>,
    at_ms: i64,
}

fn append(
    transaction: &Transaction<'_>,
    run: &str,
    first: u64,
    entries: &[RawObject],
) -> Result<(), JournalError> {
    let text =
        "SELECT next, bytes, ended, epoch, owner, term_ms, at_ms FROM uap_run WHERE run = ?1";
    let found = transaction.query_row(text, [run], |row| {
        Ok(RunRow {
            next: row.get::<_, i64>(0)?.unsigned_abs(),
            bytes: usize::try_from(row.get::<_, i64>(1)?).unwrap_or(usize::MAX),
            ended: row.get(2)?,
            epoch: row.get::<_, i64>(3)?.unsigned_abs(),
            owner: row.get::<_, String>(4)?.into(),
            term_ms: row.get(5)?,
            at_ms: row.get(6)?,
        })
    });
    let mut row = found.optional().map_err(failed)?.unwrap_or_default();
    let seen = row.next;
    if seen != first {
        let wanted = first;
        return Err(JournalError::Conflict { wanted, seen });
    }
    for entry in entries {
        let text = entry.as_str();
        row.bytes = row.bytes.saturating_add(text.len());
        if row.bytes > MAX_BYTES {
            let (limit, unit) = (MAX_BYTES, "bytes");
            return Err(JournalError::Full { limit, unit });
        }
        readable(row.next, text)?;
        row.take(entry);
        let insert = "INSERT INTO uap_entry (run, n, entry) VALUES (?1, ?2, ?3)";
        let mut insert = transaction.prepare_cached(insert).map_err(failed)?;
        let place = i64::try_from(row.next).unwrap_or(i64::MAX);
        insert.execute(params![run, place, text]).map_err(failed)?;
        row.next += 1;
    }
    let set =
        "INSERT OR REPLACE INTO uap_run (run, next, bytes, ended, epoch, owner, term_ms, at_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (next, epoch) = (number(row.next), number(row.epoch));
    let bytes = i64::try_from(row.bytes).unwrap_or(i64::MAX);
    let values = params![
        run,
        next,
        bytes,
        row.ended,
        epoch,
        &*row.owner,
        row.term_ms,
        row.at_ms
    ];
    transaction.execute(set, values).map_err(failed).map(drop)
}

impl RunRow {
    /// Takes what an entry says of the run. Entries of others say nothing.
    fn take(&mut self, raw: &RawObject) {
        let Ok(entry) = Entry::read_at(self.next, raw, &limits()) else {
            return;
        };
        let millis = |term: Option<Duration>| {
            term.map(|term| i64::try_from(term.as_millis()).unwrap_or(i64::MAX / 2))
        };
        if let Some(at) = entry.at() {
            self.at_ms = at.wall.unix_millis();
        }
        match entry {
            Entry::Begin(begin) => {
                (self.epoch, self.owner) = (1, begin.owner.clone());
                self.term_ms = millis(begin.term);
            }
            Entry::Lease(lease) => {
                (self.epoch, self.owner) = (lease.epoch.max(self.epoch), lease.owner);
                self.term_ms = millis(lease.term.filter(|_| !lease.is_released));
            }
            Entry::End(_) => self.ended = true,
            _ => {}
        }
    }
}

/// An entry as it is read.
fn readable(entry: u64, text: &str) -> Result<RawObject, JournalError> {
    let read = decode::<RawObject>(text.as_bytes(), &limits(), Profile::Strict);
    let read = read.map_err(|error| JournalError::Entry { entry, error })?;
    Ok(read.0)
}

impl fmt::Debug for SqliteJournals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournals").finish_non_exhaustive()
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
