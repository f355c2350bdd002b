//! A session that is held and written.

use std::path::{Path, PathBuf};

use ubos_common::id::Uuid;
use ubos_common::log::Log;

use super::generation;
use super::options::Options;
use super::past::{Last, Past};
use super::record::Record;
use crate::checkpoint::head::{Head, damaged, whole};
use crate::checkpoint::held::{Seen, SessionLock};
use crate::checkpoint::writers::{Before, WriterHistory};
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::state::AgentState;

pub(super) struct LogSession {
    hold: SessionLock,
    folder: PathBuf,
    /// None before the first save.
    log: Option<Log>,
    head: Option<Head>,
    writers: WriterHistory,
    is_sound: bool,
    /// A save that failed, and may have been written.
    attempted: Option<Uuid>,
}

impl LogSession {
    /// Opens what is there; tells how much of it a crash had cut short.
    pub(super) fn open(
        hold: SessionLock,
        folder: PathBuf,
        name: &str,
        options: &Options,
    ) -> Result<(Self, Option<u64>), CheckpointError> {
        generation::clean(&folder)?;
        let mut session = Self {
            hold,
            folder,
            log: None,
            head: None,
            writers: WriterHistory::default(),
            is_sound: true,
            attempted: None,
        };
        let Some(number) = generation::current(&session.folder)? else {
            return Ok((session, None));
        };
        let log = generation::open(&session.folder, number, options)?;
        let cut = log.report().torn.map(|torn| torn.bytes);
        session.log = Some(log);
        let place = generation::folder(&session.folder, number);
        if let Some(last) = Past::of(place, name, options).last()? {
            session.writers.found(&last.metadata, &last.state);
            session.head = Some(last.into_head());
        }
        Ok((session, cut))
    }

    /// Whether it may be used after an error.
    pub(super) const fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// Records of the log.
    pub(super) fn records(&self) -> usize {
        let next = self.log.as_ref().map_or(0, |log| log.head().next_sequence);
        usize::try_from(next).unwrap_or(usize::MAX)
    }

    pub(super) fn last(&self) -> Option<(CheckpointMetadata, AgentState)> {
        let head = self.head.as_ref()?;
        Some((head.metadata.clone(), head.state.clone()))
    }

    pub(super) fn loaded(&mut self) {
        self.writers.loaded();
    }

    /// Whether this is still the session's folder.
    pub(super) fn is_of(&self, folder: &Path) -> bool {
        self.hold.is_of(folder)
    }

    pub(super) fn into_hold(self) -> SessionLock {
        self.hold
    }

    /// Checks that a save may follow what stands there.
    pub(super) fn check(
        &mut self,
        seen: Seen,
        before: Before,
        metadata: &CheckpointMetadata,
        state: &AgentState,
    ) -> Result<(), CheckpointError> {
        let last = self.head.as_ref();
        if last.is_some_and(|last| last.is(metadata, state)) {
            return Ok(());
        }
        let last = last.map(|last| (last.metadata.checkpoint_id, last.state.id()));
        match before {
            Before::State(_) => before.check(last),
            Before::Seen => {
                seen.check(last.map(|(found, _)| found), self.attempted)?;
                self.writers.check(metadata, state)
            }
        }
    }

    /// Writes a save that [may follow](Self::check) what stands there.
    pub(super) fn save(
        &mut self,
        metadata: &CheckpointMetadata,
        state: AgentState,
        options: &Options,
    ) -> Result<(), CheckpointError> {
        let last = self.head.as_ref();
        if last.is_some_and(|last| last.is(metadata, &state)) {
            return Ok(());
        }
        let before = self.head.as_ref();
        let (piece, mut head) = Head::next(before, metadata, state, options.max_bytes)?;
        let agent = before.map_or("", |before| before.metadata.agent_id.as_str());
        let record = Record::new_of(metadata, piece, agent, head.back);
        self.attempted = Some(metadata.checkpoint_id);
        head.cost += self.append(&metadata.session_id, &record, options)?;
        self.writers.saved(metadata, &head.state);
        self.head = Some(head);
        Ok(())
    }

    fn append(
        &mut self,
        name: &str,
        record: &Record,
        options: &Options,
    ) -> Result<usize, CheckpointError> {
        if let Some(log) = &self.log {
            let written = generation::append(log, name, options, record);
            self.is_sound = !matches!(written, Err(CheckpointError::Failed(_)));
            return written;
        }
        self.is_sound = false;
        let mut first = Some(record.clone());
        let number = generation::write(&self.folder, name, options, || Ok(first.take()))?;
        self.log = Some(generation::open(&self.folder, number, options)?);
        self.is_sound = true;
        Ok(record
            .state
            .as_ref()
            .map_or(0, |state| state.as_str().len()))
    }

    /// Writes the last `keep` checkpoints anew, the first of them whole, and forgets the rest.
    pub(super) fn prune(
        &mut self,
        name: &str,
        keep: usize,
        options: &Options,
    ) -> Result<usize, CheckpointError> {
        let gone = self.records().saturating_sub(keep);
        let Some(number) = generation::current(&self.folder)? else {
            return Ok(0);
        };
        if gone == 0 {
            return Ok(0);
        }
        // All of it is on the disk: a save is answered when it is.
        self.log = None;
        let first = gone as u64;
        let mut past = Past::of(generation::folder(&self.folder, number), name, options);
        past.seek(first);
        let found = past.next()?;
        let Some(Last {
            metadata, state, ..
        }) = found.map_or(Ok(None), |found| past.at(&found))?
        else {
            return Err(damaged("fewer checkpoints than there were"));
        };
        let mut whole = Some(Record::whole(&metadata, whole(&state)?));
        let number = generation::write(&self.folder, name, options, || {
            if let Some(whole) = whole.take() {
                return Ok(Some(whole));
            }
            Ok(past.next()?.map(|(number, mut record)| {
                record.back = record.back.map(|back| back.min(number - first));
                record
            }))
        })?;
        let log = generation::open(&self.folder, number, options)?;
        let place = generation::folder(&self.folder, number);
        self.head = Past::of(place, name, options).last()?.map(Last::into_head);
        self.log = Some(log);
        Ok(gone)
    }
}
