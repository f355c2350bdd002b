//! What a store does with a session, and what it knows of it.

use std::sync::MutexGuard;

use ubos_common::id::Uuid;

use super::rows::{Checkpoints, Options, SessionRow, delete};
use crate::checkpoint::head::Head;
use crate::checkpoint::held::{OpenSessions, Seen};
use crate::checkpoint::writers::{Before, WriterHistory};
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::sql::{Again, Worker};
use crate::state::AgentState;

/// A connection, and what the store knows of its sessions.
pub(super) struct At<'a> {
    pub(super) worker: &'a mut Worker,
    pub(super) known: MutexGuard<'a, OpenSessions<Session>>,
    pub(super) options: &'a Options,
}

/// A session that this store has saved.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The checkpoint that was saved or read last, with its number.
    head: Option<(u64, Head)>,
    writers: WriterHistory,
    knows_writers: bool,
    /// A save that failed, and may have been written.
    attempted: Option<Uuid>,
}

impl Session {
    /// The head, where it is the session's last checkpoint still, and what it builds on was not pruned by another store.
    fn head_at(&self, row: SessionRow) -> Option<&Head> {
        let (n, head) = self.head.as_ref()?;
        let is_last = n.checked_add(1) == Some(row.next) && head.metadata.checkpoint_id == row.last;
        let is_there = n
            .checked_sub(head.back)
            .is_some_and(|whole| whole >= row.first);
        (is_last && is_there).then_some(head)
    }

    /// What a save continues from.
    fn before<'a>(&'a self, place: &'a Place) -> Option<&'a Head> {
        let row = place.row?;
        place.read.as_ref().or_else(|| self.head_at(row))
    }

    /// Checks that a save may follow what stands there.
    fn check(
        &mut self,
        place: &Place,
        (seen, before): (Seen, Before),
        metadata: &CheckpointMetadata,
        state: &AgentState,
    ) -> Result<(), CheckpointError> {
        if let Before::State(_) = before {
            let last = self.before(place);
            return before.check(last.map(|last| (last.metadata.checkpoint_id, last.state.id())));
        }
        seen.check(place.row.map(|row| row.last), self.attempted)?;
        if !self.knows_writers {
            if let Some(found) = &place.read {
                self.writers.found(&found.metadata, &found.state);
            }
            self.knows_writers = true;
        }
        self.writers.check(metadata, state)
    }
}

/// Where a save finds its session.
struct Place {
    /// None before the first save.
    row: Option<SessionRow>,
    /// The last checkpoint, where this store had to read it.
    read: Option<Head>,
}

impl Place {
    /// The row after the save.
    fn next(&self, checkpoint: Uuid) -> SessionRow {
        let (first, next) = self.row.map_or((0, 0), |row| (row.first, row.next));
        SessionRow {
            first,
            next: next + 1,
            last: checkpoint,
        }
    }
}

impl At<'_> {
    // impl: UAP-12-4
    pub(super) fn save(
        &mut self,
        metadata: &CheckpointMetadata,
        state: &AgentState,
        after: Before,
    ) -> Result<(), CheckpointError> {
        let name = metadata.session_id.as_str();
        let seen = self.known.seen(name);
        if self.known.get(name).is_none() {
            self.known.open(name, Session::default());
        }
        let Some(session) = self.known.get(name) else {
            return Ok(());
        };
        let rows = Checkpoints::of(name, self.options);
        let written = self.worker.write(Again::Yes, |transaction| {
            let mut row = SessionRow::lock(transaction, name)?;
            if row.is_none() && !SessionRow::make(transaction, name)? {
                // Another store has made it meanwhile.
                row = SessionRow::lock(transaction, name)?;
            }
            let read = match row {
                Some(row) if session.head_at(row).is_none() => {
                    Some(rows.at(transaction, row.next - 1)?)
                }
                _ => None,
            };
            let place = Place { row, read };
            if session
                .before(&place)
                .is_some_and(|before| before.is(metadata, state))
            {
                return Ok((place.row, place.read));
            }
            session.check(&place, (seen, after), metadata, state)?;
            session.attempted = Some(metadata.checkpoint_id);
            let before = session.before(&place);
            let state = state.clone();
            let (piece, mut head) = Head::next(before, metadata, state, self.options.max_bytes)?;
            head.cost = head.cost.saturating_add(piece.bytes());
            let next = place.next(metadata.checkpoint_id);
            rows.add(transaction, next.next - 1, head.back, metadata, &piece)?;
            next.set(transaction, name, next.next - 1)?;
            Ok::<_, CheckpointError>((Some(next), Some(head)))
        });
        let (row, head) = written?;
        if let (Some(row), Some(head)) = (row, head) {
            session.head = Some((row.next - 1, head));
        }
        session.writers.saved(metadata, state);
        self.known.saw(name, Some(metadata.checkpoint_id));
        let checkpoints = row.map_or(0, |row| row.next - row.first);
        if checkpoints >= (self.options.history.max(1) as u64).saturating_mul(2) {
            // The save is done, whatever becomes of the past; the next one tries again.
            let _ = self.prune(name, self.options.history);
        }
        Ok(())
    }

    /// The last checkpoint.
    fn last(&mut self, name: &str) -> Result<Option<Head>, CheckpointError> {
        let rows = Checkpoints::of(name, self.options);
        let session = self.known.get(name);
        let session = session.as_deref();
        self.worker.read(|transaction| {
            let Some(row) = SessionRow::find(transaction, name)? else {
                return Ok(None);
            };
            match session.and_then(|session| session.head_at(row)) {
                Some(head) => Ok(Some(head.clone())),
                None => rows.at(transaction, row.next - 1).map(Some),
            }
        })
    }

    pub(super) fn load(&mut self, name: &str) -> Result<Option<AgentState>, CheckpointError> {
        let last = self.last(name)?;
        let checkpoint = last.as_ref().map(|head| head.metadata.checkpoint_id);
        self.known.saw(name, checkpoint);
        if let Some(session) = self.known.get(name) {
            session.writers.loaded();
        }
        Ok(last.map(|head| head.state))
    }

    pub(super) fn metadata(
        &mut self,
        name: &str,
    ) -> Result<Option<CheckpointMetadata>, CheckpointError> {
        Ok(self.last(name)?.map(|head| head.metadata))
    }

    pub(super) fn history(
        &mut self,
        name: &str,
    ) -> Result<Vec<CheckpointMetadata>, CheckpointError> {
        let rows = Checkpoints::of(name, self.options);
        self.worker.read(|transaction| rows.history(transaction))
    }

    pub(super) fn load_at(
        &mut self,
        name: &str,
        checkpoint: Uuid,
    ) -> Result<Option<AgentState>, CheckpointError> {
        let rows = Checkpoints::of(name, self.options);
        self.worker.read(|transaction| {
            let number = rows.number(transaction, checkpoint)?;
            let found = number.map(|number| rows.at(transaction, number));
            Ok(found.transpose()?.map(|head| head.state))
        })
    }

    pub(super) fn delete(&mut self, name: &str) -> Result<(), CheckpointError> {
        self.known.forget(name);
        self.known.close(name);
        self.worker
            .write(Again::Yes, |transaction| delete(transaction, name))
    }

    pub(super) fn fork(
        &mut self,
        from: &str,
        checkpoint: Uuid,
        new: &str,
    ) -> Result<(), CheckpointError> {
        let (source, target) = (
            Checkpoints::of(from, self.options),
            Checkpoints::of(new, self.options),
        );
        let unknown = CheckpointError::Unknown { checkpoint };
        self.worker.write(Again::No, |transaction| {
            let row = SessionRow::lock(transaction, from)?.ok_or_else(|| unknown.clone())?;
            let number = source.number(transaction, checkpoint)?;
            let number = number.ok_or_else(|| unknown.clone())?;
            if from == new || !SessionRow::make(transaction, new)? {
                return Err(CheckpointError::Exists);
            }
            for n in row.first..=number {
                source.copy(transaction, n, &target)?;
            }
            let set = SessionRow {
                first: row.first,
                next: number + 1,
                last: checkpoint,
            };
            set.set(transaction, new, 0)
        })?;
        self.known.close(new);
        self.known.saw(new, Some(checkpoint));
        Ok(())
    }

    pub(super) fn prune(&mut self, name: &str, keep: usize) -> Result<usize, CheckpointError> {
        let rows = Checkpoints::of(name, self.options);
        let gone = self.worker.write(Again::No, |transaction| {
            let Some(row) = SessionRow::lock(transaction, name)? else {
                return Ok(0);
            };
            let gone = (row.next - row.first).saturating_sub(keep.max(1) as u64);
            if gone == 0 {
                return Ok(0);
            }
            let first = row.first + gone;
            rows.cut(transaction, first)?;
            let set = SessionRow { first, ..row };
            set.set(transaction, name, row.next)?;
            Ok::<_, CheckpointError>(gone)
        })?;
        Ok(usize::try_from(gone).unwrap_or(usize::MAX))
    }
}
