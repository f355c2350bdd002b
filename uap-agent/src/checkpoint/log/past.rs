//! Reading the log of a session, which another process may be writing.

use std::io;
use std::path::{Path, PathBuf};

use ubos_common::id::Uuid;
use ubos_common::json::{self, Limits};
use ubos_common::log::{FsDir, ReadError, Reader};
use ubos_common::violation::Profile;

use super::generation;
use super::options::Options;
use super::record::{Record, record_place};
use crate::checkpoint::disk::failed;
use crate::checkpoint::files::limits;
use crate::checkpoint::head::{Head, damaged};
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::state::AgentState;

/// Goes through the records of a session, from the first on or from where it is put.
pub(super) struct Past<'a> {
    session: &'a str,
    options: &'a Options,
    limits: Limits,
    reader: Reader,
    /// Who saved the record before.
    agent: String,
}

/// A session's last checkpoint.
pub(super) struct Last {
    pub(super) metadata: CheckpointMetadata,
    pub(super) state: AgentState,
    /// Records since the last whole state.
    pub(super) back: u64,
    /// Bytes of them and of that state.
    pub(super) cost: usize,
}

impl Last {
    pub(super) fn into_head(self) -> Head {
        Head::found(self.metadata, self.state, self.back, self.cost)
    }
}

/// A record with its number in the log.
pub(super) type Numbered = (u64, Record);

impl<'a> Past<'a> {
    /// Does something with a session's past; none where the session is not there. A past that is pruned meanwhile is
    /// read again.
    pub(super) fn read<T>(
        folder: &Path,
        session: &'a str,
        options: &'a Options,
        mut act: impl FnMut(&mut Self) -> Result<T, CheckpointError>,
    ) -> Result<Option<T>, CheckpointError> {
        /// How often it may be pruned while it is read.
        const TRIES: usize = 10;
        let mut last = None;
        for _ in 0..TRIES {
            let Some(now) = generation::current(folder)? else {
                return Ok(None);
            };
            let place = generation::folder(folder, now);
            match act(&mut Self::of(place, session, options)) {
                Err(error) if generation::current(folder)? != Some(now) => last = Some(error),
                done => return done.map(Some),
            }
        }
        Err(last.unwrap_or(CheckpointError::InUse))
    }

    /// The past in one log.
    pub(super) fn of(log: PathBuf, session: &'a str, options: &'a Options) -> Self {
        let dir = std::sync::Arc::new(FsDir::new(log));
        Self {
            session,
            options,
            limits: limits(options.max_bytes),
            reader: Reader::open_in(dir, options.log_limits()),
            agent: String::new(),
        }
    }

    /// The next record, with the bytes that it has in the log.
    fn next_sized(&mut self) -> Result<Option<(Numbered, usize)>, CheckpointError> {
        let Some(entry) = self.reader.next().map_err(unread)? else {
            return Ok(None);
        };
        let (number, size) = (entry.position.sequence, entry.bytes.len());
        let place = record_place(self.session, number);
        let bytes = self.options.sealing.open(&place, entry.bytes)?;
        let read = json::decode::<Record>(&bytes, &self.limits, Profile::Strict);
        let (record, _) = read.map_err(damaged)?;
        if !record.extra.is_empty() {
            return Err(damaged("a record of a later version"));
        }
        if record
            .session
            .as_deref()
            .is_some_and(|of| of != self.session)
        {
            return Err(CheckpointError::Foreign);
        }
        if let Some(agent) = &record.agent {
            self.agent.clone_from(agent);
        }
        Ok(Some(((number, record), size)))
    }

    pub(super) fn next(&mut self) -> Result<Option<Numbered>, CheckpointError> {
        Ok(self.next_sized()?.map(|(record, _)| record))
    }

    /// What is known of the record that came last.
    pub(super) fn metadata(&self, record: &Record) -> Result<CheckpointMetadata, CheckpointError> {
        record.metadata(self.session, &self.agent, &self.limits)
    }

    /// The last checkpoint, read from the last whole state on.
    pub(super) fn last(&mut self) -> Result<Option<Last>, CheckpointError> {
        if !self.reader.seek_last().map_err(unread)? {
            return Ok(None);
        }
        let Some((number, record)) = self.next()? else {
            return Ok(None);
        };
        self.rebuild(number, &record, |_| false)
    }

    /// The checkpoint of a record, or a later one where more have come and are wanted.
    fn rebuild(
        &mut self,
        number: u64,
        record: &Record,
        mut is_enough: impl FnMut(u64) -> bool,
    ) -> Result<Option<Last>, CheckpointError> {
        let whole = number.checked_sub(record.back.unwrap_or(0));
        self.reader
            .seek(whole.ok_or_else(|| damaged("a difference to nothing"))?);
        let mut last: Option<Last> = None;
        while let Some(((number, record), size)) = self.next_sized()? {
            let before = last.as_ref().map(|last| &last.state);
            let state = record.apply(before, &self.limits)?;
            let cost = last.as_ref().map_or(0, |last| last.cost);
            last = Some(Last {
                metadata: self.metadata(&record)?,
                state,
                back: record.back.unwrap_or(0),
                cost: if record.back.is_some() {
                    cost + size
                } else {
                    size
                },
            });
            if is_enough(number) {
                break;
            }
        }
        Ok(last)
    }

    /// The number of a checkpoint's record, and the record.
    pub(super) fn find(&mut self, checkpoint: Uuid) -> Result<Option<Numbered>, CheckpointError> {
        while let Some((number, record)) = self.next()? {
            if record.checkpoint == checkpoint {
                return Ok(Some((number, record)));
            }
        }
        Ok(None)
    }

    /// The checkpoint of a record that was found. The record behind it comes next.
    pub(super) fn at(&mut self, found: &Numbered) -> Result<Option<Last>, CheckpointError> {
        self.rebuild(found.0, &found.1, |number| number == found.0)
    }

    /// Goes on from a record.
    pub(super) fn seek(&mut self, number: u64) {
        self.reader.seek(number);
    }
}

fn unread(error: ReadError) -> CheckpointError {
    match error {
        ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            damaged("a file is gone")
        }
        ReadError::Io(error) => failed(error),
        other => damaged(other),
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;
    use ubos_common::time::Timestamp;

    use super::*;
    use crate::checkpoint::seal::sealing::Sealing;

    // spec: UAP-12-4
    #[test]
    #[cfg_attr(miri, ignore = "an interpreter takes no place on a disk ahead")]
    fn a_past_that_is_pruned_while_it_is_read_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            sealing: Sealing::default(),
            max_bytes: 1024,
            history: 1,
        };
        let make = |number| std::fs::create_dir(generation::folder(folder.path(), number)).unwrap();
        let mut reads = 0;
        let mut read = |prunes: u64| {
            Past::read(folder.path(), "s", &options, |_| {
                reads += 1;
                match reads <= prunes {
                    true => {
                        make(reads);
                        Err(CheckpointError::Exists)
                    }
                    false => Ok(reads),
                }
            })
        };
        assert_eq!(read(0), Ok(None), "no session");
        make(0);
        assert_eq!(read(2), Ok(Some(3)));
        // An error that pruning has not caused is told at once.
        let refused = Past::read(folder.path(), "s", &options, |_| {
            Err::<(), _>(CheckpointError::Exists)
        });
        assert_eq!(refused, Err(CheckpointError::Exists));
    }

    // spec: UAP-12-4
    #[test]
    #[cfg_attr(miri, ignore = "an interpreter takes no place on a disk ahead")]
    fn a_checkpoint_costs_what_is_read_from_the_last_whole_state_on() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            sealing: Sealing::default(),
            max_bytes: 4096,
            history: 9,
        };
        let ids = &mut IdSource::seeded(1);
        let (mut state, mut head) = (AgentState::initial(ids), None);
        let (mut records, mut sizes) = (Vec::new(), Vec::new());
        for n in 0..3 {
            state = state.with_step(ids, n);
            let (id, at) = (ids.uuid(), Timestamp::EPOCH);
            let metadata = CheckpointMetadata::new("s".into(), id, at, n, "a".into());
            let next = Head::next(head.as_ref(), &metadata, state.clone(), 4096);
            let (piece, next) = next.unwrap();
            let record = Record::new_of(&metadata, piece, "a", next.back);
            let text = json::to_string(&record);
            assert!(!text.contains(r#""n":"#), "no nanoseconds: {text}");
            sizes.push(text.len());
            records.push(record);
            head = Some(next);
        }
        let mut records = records.into_iter();
        generation::write(folder.path(), "s", &options, || Ok(records.next())).unwrap();
        let last = Past::read(folder.path(), "s", &options, Past::last);
        let last = last.unwrap().flatten().unwrap();
        assert_eq!((last.back, last.cost), (2, sizes.iter().sum()));
    }

    #[test]
    fn a_file_that_is_gone_is_damage_and_a_disk_that_fails_is_not() {
        let of = |kind| unread(ReadError::Io(io::Error::from(kind)));
        assert!(matches!(
            of(io::ErrorKind::NotFound),
            CheckpointError::Damaged(_)
        ));
        assert!(matches!(
            of(io::ErrorKind::PermissionDenied),
            CheckpointError::Failed(_)
        ));
        assert!(matches!(
            unread(ReadError::Missing),
            CheckpointError::Damaged(_)
        ));
    }
}
