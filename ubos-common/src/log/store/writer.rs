//! The writer: appends from many threads, gathered into one block and one sync.

use super::appender::{Appender, Place};
use super::archive::{Archived, archive};
use super::config::{Config, Sync};
use super::error::{AppendError, ArchiveError, OpenError};
use super::file::{DirLock, LogDir};
use super::fs::FsDir;
use super::open::{OpenReport, open};
use super::reader::Reader;
use super::repair::{Repaired, cut, finish};
use super::ticket::{Batch, Ticket};
use crate::log::format::{BlockBuilder, LogKeys, RECORD_HEADER_BYTES};
use crate::log::{Digest, Head, Position};
use crate::trace::debug;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A log opened for writing; there is one at a time, readers are many.
///
/// All methods take `&self`: share it in an `Arc`. Appends of several threads are gathered: whoever finds no
/// commit under way leads one for all that wait, so there is no thread of the log's own. The calls block; on
/// an asynchronous runtime make them where blocking is allowed.
///
/// ```
/// use ubos_common::log::{Config, Log, LogId};
///
/// let folder = tempfile::tempdir()?;
/// let log = Log::open(folder.path(), Config::default().with_log_id(LogId::from_bytes([9; 16])))?;
/// let position = log.append(b"a record")?;
/// let tickets = [log.submit(b"two in")?, log.submit(b"flight")?];
/// for ticket in tickets {
///     log.wait(ticket)?;
/// }
/// let mut reader = log.reader();
/// assert_eq!(reader.read(position)?, b"a record");
/// assert_eq!(log.close()?.next_sequence, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Log {
    dir: Arc<dyn LogDir>,
    config: Config,
    keys: LogKeys,
    report: OpenReport,
    state: Mutex<State>,
    /// Locked by the leader of a commit alone.
    appender: Mutex<Appender>,
    committed: Condvar,
    /// Locked while segments are moved away; what is sealed no commit touches.
    archiving: Mutex<()>,
    /// Next sequence as readers of this process may see it.
    visible: Arc<AtomicU64>,
    _lock: DirLock,
}

#[derive(Debug)]
struct State {
    pending: BlockBuilder,
    /// The other of the two buffers, while no commit uses it.
    spare: Option<BlockBuilder>,
    /// Where the pending block will begin.
    place: Place,
    committing: bool,
    /// Every record below is committed as the sync policy says.
    committed: u64,
    /// Every record below is on the disk.
    durable: u64,
    digest: Digest,
    failed: Option<io::ErrorKind>,
}

impl Log {
    /// Opens the log in the folder `path`, making both where there is none.
    ///
    /// # Errors
    /// [`OpenError`]; damage is named and left as it is.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, OpenError> {
        config.check()?;
        Self::open_in(Arc::new(FsDir::create(path)?), config)
    }

    /// Opens the log in a folder of any kind.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(dir: Arc<dyn LogDir>, config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let lock = dir.lock()?.ok_or(OpenError::Locked)?;
        Self::open_locked(dir, config, lock)
    }

    /// Takes out of the log in `dir` what keeps it from being opened, and nothing of a log that can be opened. What
    /// is taken out is kept in files beside the segments, and the chain records it, as
    /// [`Verify`](crate::log::Verify) tells. Records behind the damage are taken out, too: they follow on nothing.
    ///
    /// # Errors
    /// [`OpenError`]; calling again goes on where an attempt stopped.
    pub fn repair(dir: Arc<dyn LogDir>, config: Config) -> Result<Repaired, OpenError> {
        config.check()?;
        let lock = dir.lock()?.ok_or(OpenError::Locked)?;
        let cuts = cut(dir.as_ref(), &config)?;
        debug!(cuts = cuts.len(), "log repaired");
        let log = Self::open_locked(Arc::clone(&dir), config, lock)?;
        let unwritten = |error| OpenError::Io(io::Error::other::<AppendError>(error));
        for cut in &cuts {
            log.note(&[&cut.encode()]).map_err(unwritten)?;
        }
        let head = log.close().map_err(unwritten)?;
        finish(dir.as_ref(), &cuts)?;
        Ok(Repaired { cuts, head })
    }

    fn open_locked(dir: Arc<dyn LogDir>, config: Config, lock: DirLock) -> Result<Self, OpenError> {
        let (keys, tip, report) = open(dir.as_ref(), &config)?;
        let appender = Appender::new(Arc::clone(&dir), keys.clone(), config.segment_bytes, tip);
        let next = report.head.next_sequence;
        debug!(
            log = %keys.id(),
            segments = report.segments,
            records = next - report.first_sequence,
            torn_bytes = report.torn.map_or(0, |torn| torn.bytes),
            "log opened"
        );
        let mut pending = BlockBuilder::new(keys.clone(), config.limits);
        pending.begin(next);
        let state = State {
            pending,
            spare: Some(BlockBuilder::new(keys.clone(), config.limits)),
            place: appender.next_place(),
            committing: false,
            committed: next,
            durable: next,
            digest: report.head.digest,
            failed: None,
        };
        Ok(Self {
            dir,
            config,
            keys,
            report,
            state: Mutex::new(state),
            appender: Mutex::new(appender),
            committed: Condvar::new(),
            archiving: Mutex::new(()),
            visible: Arc::new(AtomicU64::new(next)),
            _lock: lock,
        })
    }

    /// What opening found.
    #[must_use]
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// The end of the log as committed so far; keep it elsewhere to detect a shortened log.
    #[must_use]
    pub fn head(&self) -> Head {
        let state = self.state();
        Head::new(self.keys.id(), state.committed, state.digest)
    }

    /// Appends one record and returns when it is committed as the sync policy says.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn append(&self, record: &[u8]) -> Result<Position, AppendError> {
        self.append_batch(&[record]).map(|batch| batch.first)
    }

    /// Appends several records as one: after a crash all of them are there or none.
    ///
    /// # Errors
    /// [`AppendError`]; the limits are those of one block.
    pub fn append_batch(&self, records: &[&[u8]]) -> Result<Batch, AppendError> {
        let ticket = self.submit_batch(records)?;
        self.wait(ticket)?;
        Ok(Batch::new(ticket, records))
    }

    /// Adds a record to the next commit without waiting for it. Its place in the order is taken now.
    ///
    /// With [`Sync::Each`], and at the bound of pending bytes, it commits what came before.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn submit(&self, record: &[u8]) -> Result<Ticket, AppendError> {
        self.submit_batch(&[record])
    }

    /// Adds several records to the next commit, which are never torn apart.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn submit_batch(&self, records: &[&[u8]]) -> Result<Ticket, AppendError> {
        let mut state = self.room_for(records)?;
        let sequence = state.pending.next_sequence();
        let (segment, start) = (state.place.segment, state.place.offset);
        let offset = start + state.pending.as_bytes().len() as u64;
        for record in records {
            state.pending.push(record)?;
        }
        let ticket = Ticket {
            first: Position::new(sequence, segment, offset),
            end: state.pending.next_sequence(),
        };
        if self.config.sync == Sync::Each {
            drop(self.commit_until(state, ticket.end)?);
        }
        Ok(ticket)
    }

    /// Appends a block of notes of the log itself; nothing else may wait.
    pub(super) fn note(&self, records: &[&[u8]]) -> Result<(), AppendError> {
        let mut state = self.room_for(records)?;
        for bytes in records {
            state.pending.push(bytes)?;
        }
        state.pending.make_note();
        let end = state.pending.next_sequence();
        drop(self.commit_until(state, end)?);
        Ok(())
    }

    /// Waits until the ticket's records are committed, leading the commit when nobody does.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`].
    pub fn wait(&self, ticket: Ticket) -> Result<Position, AppendError> {
        drop(self.commit_until(self.state(), ticket.end)?);
        Ok(ticket.first)
    }

    /// Commits all that was submitted before.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`].
    pub fn commit(&self) -> Result<Head, AppendError> {
        let state = self.state();
        let end = state.pending.next_sequence();
        let state = self.commit_until(state, end)?;
        Ok(Head::new(self.keys.id(), state.committed, state.digest))
    }

    /// Commits and makes durable all that was submitted before, whatever the sync policy.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`].
    pub fn sync(&self) -> Result<Head, AppendError> {
        self.commit()?;
        let mut state = self.state();
        while state.committing {
            state = self.pause(state);
        }
        if let Some(kind) = state.failed {
            return Err(AppendError::Poisoned(kind));
        }
        if state.durable < state.committed {
            let leading = Leading::begin(self, &mut state);
            let head = (state.committed, state.digest);
            drop(state);
            let synced = self.appender().sync();
            state = leading.end(synced.map(|()| (head.0, head.1, true)));
            if let Some(kind) = state.failed {
                return Err(AppendError::Poisoned(kind));
            }
        }
        Ok(Head::new(self.keys.id(), state.committed, state.digest))
    }

    /// A reader from the first record of the folder on; it sees what is committed.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::of_writer(
            Arc::clone(&self.dir),
            self.config.limits,
            self.keys.clone(),
            Arc::clone(&self.visible),
        )
    }

    /// Moves sealed segments whose records all lie below `before` into the folder `target`, oldest first, each
    /// proven, copied and synced there before it goes here. The segment being written always stays.
    ///
    /// # Errors
    /// [`ArchiveError`]; what was moved by then stays moved, and calling again goes on.
    pub fn archive(&self, before: u64, target: &dyn LogDir) -> Result<Archived, ArchiveError> {
        let _alone = self
            .archiving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let tip = self.appender().segment();
        archive(
            self.dir.as_ref(),
            &self.keys,
            self.config.limits,
            tip,
            before,
            target,
        )
    }

    /// Commits what is pending, gives space taken ahead back, and releases the lock.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`]. Dropping the log does the same and tells nobody.
    pub fn close(self) -> Result<Head, AppendError> {
        self.shut()
    }

    fn shut(&self) -> Result<Head, AppendError> {
        let head = self.sync()?;
        let mut state = self.state();
        // Nothing may be written behind the cut that follows; nor is it tried again where the folder's code panics.
        state.failed = Some(io::ErrorKind::BrokenPipe);
        let sealed = self.appender().seal().map_err(|error| error.kind());
        state.failed = Some(sealed.err().unwrap_or(io::ErrorKind::BrokenPipe));
        sealed.map(|()| head).map_err(AppendError::Poisoned)
    }

    /// The state once `records` fit into the pending block.
    fn room_for(&self, records: &[&[u8]]) -> Result<MutexGuard<'_, State>, AppendError> {
        let mut state = self.state();
        loop {
            if let Some(kind) = state.failed {
                return Err(AppendError::Poisoned(kind));
            }
            let fits = state.pending.check(records.iter().copied());
            let alone = state.pending.is_empty();
            match fits {
                Ok(()) if alone => return Ok(state),
                Ok(())
                    if self.config.sync != Sync::Each && self.is_below_bound(&state, records) =>
                {
                    return Ok(state);
                }
                Err(error) if alone => return Err(error.into()),
                _ => {}
            }
            let end = state.pending.next_sequence();
            state = self.commit_until(state, end)?;
        }
    }

    fn is_below_bound(&self, state: &State, records: &[&[u8]]) -> bool {
        let more: usize = records
            .iter()
            .map(|record| record.len() + RECORD_HEADER_BYTES)
            .sum();
        state.pending.as_bytes().len().saturating_add(more) <= self.config.max_pending_bytes
    }

    /// Leads or follows commits until every record below `end` is committed.
    fn commit_until<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        end: u64,
    ) -> Result<MutexGuard<'s, State>, AppendError> {
        loop {
            if state.committed >= end {
                return Ok(state);
            }
            if let Some(kind) = state.failed {
                return Err(AppendError::Poisoned(kind));
            }
            state = if state.committing {
                self.pause(state)
            } else {
                self.lead(state)
            };
        }
    }

    /// Commits the pending block while others gather the next one.
    fn lead<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let first = state.committed;
        let end = state.pending.next_sequence();
        let mut fresh = state
            .spare
            .take()
            .unwrap_or_else(|| BlockBuilder::new(self.keys.clone(), self.config.limits));
        fresh.begin(end);
        let mut block = std::mem::replace(&mut state.pending, fresh);
        let place = state.place;
        state.place = place.after(block.finished_bytes(), self.config.segment_bytes);
        let leading = Leading::begin(self, &mut state);
        let durable = state.durable;
        drop(state);
        let sync = self.config.sync != Sync::None;
        let written = self
            .appender()
            .write(&mut block, place, first, durable, sync);
        let mut state = leading.end(written.map(|digest| (end, digest, sync)));
        state.spare = Some(block);
        state
    }

    fn finish(&self, outcome: Result<(u64, Digest, bool), io::ErrorKind>) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.committing = false;
        match outcome {
            Ok((end, digest, synced)) => {
                state.committed = end;
                state.digest = digest;
                if synced {
                    state.durable = end;
                }
                self.visible.store(end, Ordering::Release);
            }
            Err(kind) => state.failed = Some(kind),
        }
        self.committed.notify_all();
        state
    }

    fn pause<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.committed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A commit or a sync under way, for which others wait. A folder whose code panics fails the log as a write does that
/// failed: what may be half written is not appended to.
struct Leading<'l> {
    log: &'l Log,
    has_ended: bool,
}

impl<'l> Leading<'l> {
    fn begin(log: &'l Log, state: &mut State) -> Self {
        state.committing = true;
        let has_ended = false;
        Self { log, has_ended }
    }

    /// Tells everybody how it went.
    fn end(mut self, outcome: io::Result<(u64, Digest, bool)>) -> MutexGuard<'l, State> {
        let log = self.log;
        let outcome = outcome.map_err(|error| {
            let kind = error.kind();
            // Without the lock, and before this has ended: a subscriber is the caller's code, too.
            debug!(log = %log.keys.id(), ?kind, "log failed");
            kind
        });
        self.has_ended = true;
        log.finish(outcome)
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            drop(self.log.finish(Err(io::ErrorKind::Other)));
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.state().failed.is_none() {
            // Nobody is left to hear of a failure; opening again tells what is there.
            let _ = self.shut();
        }
    }
}
