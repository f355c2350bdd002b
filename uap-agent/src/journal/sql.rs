//! Journals in a database.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::canon::{Digest, Domain};
use ubos_common::json::{RawObject, decode};
use ubos_common::os::fill_random;
use ubos_common::time::Timestamp;
use ubos_common::violation::Profile;

use super::entry::Entry;
use super::recording::limits;
use super::{Journal, JournalError, JournalFuture, failed, size_with};
use crate::sql::{Again, DbFault, Param, Pool, Row, Transaction, Unawaited, check_name, int};

/// The maximum size of all entries of a run, in bytes, with 32 for each.
const MAX_BYTES: usize = 256 << 20;

/// The journal of one run in a [`Database`](crate::sql::Database).
///
/// Each write compares and sets the place at which the run goes on, in one transaction, so that of two owners of a run one
/// is refused.
#[derive(Clone)]
pub struct SqlJournal {
    run: Arc<str>,
    pool: Arc<Pool>,
}

impl SqlJournal {
    pub(crate) const fn of(run: Arc<str>, pool: Arc<Pool>) -> Self {
        Self { run, pool }
    }

    pub(crate) fn abandoned(pool: &Pool, now: Timestamp) -> JournalFuture<'static, Vec<String>> {
        let now = Param::Int(now.unix_millis());
        pool.ask("", Unawaited::Skipped, move |worker| {
            worker.read(|transaction| Ok::<_, JournalError>(transaction.names(ABANDONED, &[now])?))
        })
    }

    pub(crate) fn delete(pool: &Pool, run: &str) -> JournalFuture<'static, ()> {
        let name = run.to_owned();
        pool.ask(run, Unawaited::Done, move |worker| {
            worker.write(Again::Yes, |transaction| {
                // The row first: a writer that holds it is waited for, and what it has written goes, too.
                for text in [
                    "DELETE FROM uap_run WHERE run = ?1",
                    "DELETE FROM uap_entry WHERE run = ?1",
                ] {
                    transaction.execute(text, &[Param::Text(&name)])?;
                }
                Ok(())
            })
        })
    }
}

/// A name that is longer than ours can be is that of nobody's run.
const ABANDONED: &str = "SELECT run FROM uap_run
    WHERE ended = 0 AND (term_ms IS NULL OR at_ms + term_ms <= ?1) AND octet_length(run) <= 1024 ORDER BY run";

impl Journal for SqlJournal {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        let run = Arc::clone(&self.run);
        self.pool.ask(&self.run, Unawaited::Done, move |worker| {
            named(&run)?;
            let mut batch = [0; 8];
            fill_random(&mut batch).map_err(failed)?;
            let batch = i64::from_le_bytes(batch);
            worker.write(Again::Yes, |transaction| {
                append(transaction, &run, first, &entries, batch)
            })
        })
    }

    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        let run = Arc::clone(&self.run);
        self.pool.ask(&self.run, Unawaited::Skipped, move |worker| {
            named(&run)?;
            let digests = Digests::new();
            worker.read(|transaction| {
                let (mut entries, mut next, mut bytes) = (Vec::new(), 0, 0_usize);
                let asked = [Param::Text(&run), Param::Int(MAX_BYTES as i64)];
                transaction.each(READ, &asked, |mut row| {
                    let (n, text, digest) = (row.count(0)?, row.opt_text(1)?, row.bytes(2)?);
                    next = row.count(3)?;
                    let text_bytes = usize::try_from(row.count(4)?).unwrap_or(usize::MAX);
                    bytes = size_with(bytes, text_bytes, MAX_BYTES)?;
                    let entry = entries.len() as u64;
                    // Text that is none, such as of other bytes than UTF-8, is not given either.
                    let text = text.ok_or(JournalError::Damaged { entry })?;
                    if n != entry || digest != digests.of(&run, n, &text) {
                        return Err(JournalError::Damaged { entry });
                    }
                    entries.push(readable(n, &text)?);
                    Ok(())
                })?;
                match entries.len() as u64 {
                    entry if entry < next => Err(JournalError::Damaged { entry }),
                    _ => Ok(entries),
                }
            })
        })
    }
}

/// No row is larger in memory than a whole run may be, whoever wrote it.
const READ: &str =
    "SELECT e.n, CASE WHEN octet_length(e.entry) <= CAST(?2 AS BIGINT) THEN e.entry END,
    substr(e.digest, 1, 33), r.next, CAST(octet_length(e.entry) AS BIGINT) FROM uap_run r JOIN uap_entry e ON e.run = r.run
    WHERE r.run = ?1 ORDER BY e.n";

fn named(run: &str) -> Result<(), JournalError> {
    check_name(run)
        .map_err(|why| JournalError::Failed(format!("the name of the run: {why}").into()))
}

/// The digest of an entry in its place.
struct Digests(Domain);

impl Digests {
    fn new() -> Self {
        Self(Domain::new("ubos uap-agent 2026-11 journal entry in sql"))
    }

    fn of(&self, run: &str, n: u64, text: &str) -> [u8; 32] {
        let (length, place) = ((run.len() as u64).to_le_bytes(), n.to_le_bytes());
        let bytes = [&length, run.as_bytes(), &place, text.as_bytes()].concat();
        *Digest::of(&self.0, &bytes).as_bytes()
    }
}

/// What the row of a run says.
#[derive(Clone, Default)]
struct RunRow {
    next: u64,
    bytes: usize,
    ended: bool,
    epoch: u64,
    /// `None` where it stays as it is: nobody reads it here.
    owner: Option<Arc<str>>,
    term_ms: Option<i64>,
    at_ms: i64,
}

impl RunRow {
    fn read(row: &mut Row) -> Result<Self, DbFault> {
        Ok(Self {
            next: row.count(0)?,
            bytes: usize::try_from(row.count(1)?).unwrap_or(usize::MAX),
            ended: row.int(2)? != 0,
            epoch: row.count(3)?,
            owner: None,
            term_ms: row.opt_int(4)?,
            at_ms: row.int(5)?,
        })
    }

    /// Takes what an entry says of the run. Entries of others say nothing.
    fn take(&mut self, raw: &RawObject) {
        let Ok(entry) = Entry::read_at(self.next, raw, &limits()) else {
            return;
        };
        let millis = |term: Option<Duration>| {
            term.map(|term| i64::try_from(term.as_millis()).unwrap_or(i64::MAX / 2))
        };
        // The clock of a person who decides says nothing of the owner's life.
        let of_owner = entry.at().filter(|_| !matches!(entry, Entry::Decision(..)));
        if let Some(at) = of_owner {
            self.at_ms = at.wall.unix_millis();
        }
        match entry {
            Entry::Begin(begin) => {
                (self.epoch, self.owner) = (1, Some(begin.owner.clone()));
                self.term_ms = millis(begin.term);
            }
            Entry::Lease(lease) => {
                (self.epoch, self.owner) = (lease.epoch.max(self.epoch), Some(lease.owner));
                self.term_ms = millis(lease.term.filter(|_| !lease.is_released));
            }
            Entry::End(_) => self.ended = true,
            _ => {}
        }
    }

    /// Sets the row, where it is still the one that was read.
    fn set(
        &self,
        transaction: &mut Transaction<'_>,
        run: &str,
        first: u64,
    ) -> Result<(), JournalError> {
        let changed = transaction.execute(
            SET_RUN,
            &[
                Param::Text(run),
                Param::Int(int(first)),
                Param::Int(int(self.next)),
                Param::Int(int(self.bytes as u64)),
                Param::Int(i64::from(self.ended)),
                Param::Int(int(self.epoch)),
                Param::OptText(self.owner.as_deref()),
                Param::OptInt(self.term_ms),
                Param::Int(self.at_ms),
            ],
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(JournalError::Conflict {
                wanted: first,
                seen: self.next,
            }),
        }
    }
}

const NEW_RUN: &str = "INSERT INTO uap_run (run, next, bytes, ended, epoch, owner, term_ms, at_ms)
    VALUES (?1, 0, 0, 0, 0, '', NULL, 0) ON CONFLICT (run) DO NOTHING";
const FIND_RUN: &str =
    "SELECT next, bytes, ended, epoch, term_ms, at_ms FROM uap_run WHERE run = ?1/*lock*/";
const SET_RUN: &str = "UPDATE uap_run
    SET next = ?3, bytes = ?4, ended = ?5, epoch = ?6, owner = COALESCE(?7, owner), term_ms = ?8, at_ms = ?9
    WHERE run = ?1 AND next = ?2";
const ADD_ENTRY: &str =
    "INSERT INTO uap_entry (run, n, entry, batch, digest) VALUES (?1, ?2, ?3, ?4, ?5)";
const WHOSE: &str = "SELECT batch FROM uap_entry WHERE run = ?1 AND n = ?2";

fn append(
    transaction: &mut Transaction<'_>,
    run: &str,
    first: u64,
    entries: &[RawObject],
    batch: i64,
) -> Result<(), JournalError> {
    if first == 0 {
        // Others wait here: of two new runs with one name, one finds that of the other.
        transaction.execute(NEW_RUN, &[Param::Text(run)])?;
    }
    let found = transaction.one(FIND_RUN, &[Param::Text(run)], RunRow::read)?;
    let mut row = found.unwrap_or_default();
    if row.next != first {
        let place = [Param::Text(run), Param::Int(int(first))];
        // Only this very write has this number: another writer may well have written the same entries.
        if transaction.may_be_done()
            && transaction.one(WHOSE, &place, |row| row.int(0))? == Some(batch)
        {
            return Ok(());
        }
        let (wanted, seen) = (first, row.next);
        return Err(JournalError::Conflict { wanted, seen });
    }
    let digests = Digests::new();
    for entry in entries {
        let text = entry.as_str();
        row.bytes = size_with(row.bytes, text.len(), MAX_BYTES)?;
        readable(row.next, text)?;
        row.take(entry);
        let values = [
            Param::Text(run),
            Param::Int(int(row.next)),
            Param::Text(text),
            Param::Int(batch),
            Param::Bytes(&digests.of(run, row.next, text)),
        ];
        transaction.execute(ADD_ENTRY, &values)?;
        row.next += 1;
    }
    row.set(transaction, run, first)
}

/// An entry as it is read.
fn readable(entry: u64, text: &str) -> Result<RawObject, JournalError> {
    let read = decode::<RawObject>(text.as_bytes(), &limits(), Profile::Strict);
    let read = read.map_err(|error| JournalError::Entry { entry, error })?;
    Ok(read.0)
}

impl fmt::Debug for SqlJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlJournal")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UAP-12-5
    #[test]
    fn a_digest_is_of_the_run_the_place_and_the_text() {
        let digests = Digests::new();
        let mut bytes = vec![3, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"run\x02\0\0\0\0\0\0\0{}");
        let wanted = Digest::of(&digests.0, &bytes);
        assert_eq!(digests.of("run", 2, "{}"), *wanted.as_bytes());
    }
}
