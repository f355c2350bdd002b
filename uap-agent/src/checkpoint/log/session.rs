//! A session that is held and written.

use std::path::{Path, PathBuf};

use ubos_common::id::Uuid;
use ubos_common::log::Log;

use super::generation;
use super::options::Options;
use super::past::{Last, Past};
use super::record::Record;
use crate::checkpoint::held::SessionLock;
use crate::checkpoint::writers::WriterHistory;
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::state::AgentState;
use crate::state::delta::Delta;

/// Bytes of differences that are always borne, however small the state is.
const SLACK: usize = 64 << 10;

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

/// The last checkpoint, and what reading it costs.
struct Head {
    metadata: CheckpointMetadata,
    state: AgentState,
    /// Records since the last whole state.
    back: u64,
    /// Bytes of them and of that state.
    cost: usize,
    /// About what the state itself has, as JSON.
    live: usize,
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
            session.head = Some(Head::found(last));
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

    pub(super) fn save(
        &mut self,
        seen: Option<Uuid>,
        metadata: &CheckpointMetadata,
        state: AgentState,
        options: &Options,
    ) -> Result<(), CheckpointError> {
        let is_there = |head: &Head| head.metadata == *metadata && head.state == state;
        if self.head.as_ref().is_some_and(is_there) {
            // Asked for again by a run that was killed before it could say that this is done.
            return Ok(());
        }
        let found = self.head.as_ref().map(|head| head.metadata.checkpoint_id);
        if let (Some(found), Some(_)) = (found, seen)
            && ![seen, self.attempted].contains(&Some(found))
        {
            self.is_sound = false;
            return Err(CheckpointError::Conflict { found });
        }
        self.writers.check(metadata, &state)?;
        let (record, mut head) = Head::next(self.head.as_ref(), metadata, state, options)?;
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
            return Err(super::record::damaged("fewer checkpoints than there were"));
        };
        past.seek(first + 1);
        let mut whole = Some(Record::whole(&metadata, &state)?);
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
        self.head = Past::of(place, name, options).last()?.map(Head::found);
        self.log = Some(log);
        Ok(gone)
    }
}

impl Head {
    fn found(last: Last) -> Self {
        Self {
            live: last.state.to_json().len(),
            metadata: last.metadata,
            state: last.state,
            back: last.back,
            cost: last.cost,
        }
    }

    /// What is written for the next checkpoint, and the head after it, its own record's bytes not counted yet.
    ///
    /// The whole state is written where reading the differences would cost more than twice as much. What that takes was
    /// written in differences before, so all that is ever written stays within a multiple of what steps have added.
    fn next(
        before: Option<&Self>,
        metadata: &CheckpointMetadata,
        state: AgentState,
        options: &Options,
    ) -> Result<(Record, Self), CheckpointError> {
        let limit = options.max_bytes;
        let head = |state, back, cost, live| Self {
            metadata: metadata.clone(),
            state,
            back,
            cost,
            live,
        };
        if let Some(before) = before {
            let delta = Delta::between(&before.state, &state);
            let live = if delta.drops() {
                state.to_json().len()
            } else {
                before.live.saturating_add(delta.added_bytes())
            };
            let agent = &before.metadata.agent_id;
            let record = Record::difference(metadata, &delta, agent, before.back + 1);
            let bytes = record
                .delta
                .as_ref()
                .map_or(0, |delta| delta.as_str().len());
            let bearable = live.saturating_mul(2).saturating_add(SLACK);
            if live <= limit && bytes <= limit && before.cost.saturating_add(bytes) <= bearable {
                return Ok((record, head(state, before.back + 1, before.cost, live)));
            }
        }
        let record = Record::whole(metadata, &state)?;
        let bytes = record
            .state
            .as_ref()
            .map_or(0, |state| state.as_str().len());
        if bytes > limit {
            return Err(CheckpointError::TooLarge { bytes, limit });
        }
        Ok((record, head(state, 0, 0, bytes)))
    }
}
