//! The rows of sessions and checkpoints.

use std::borrow::Cow;

use ubos_common::canon::{Digest, Domain};
use ubos_common::id::Uuid;
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

use crate::checkpoint::files::{limits, sealed_bytes};
use crate::checkpoint::head::{Head, Piece, damaged, grown, whole};
use crate::checkpoint::seal::sealing::{Place, Sealing};
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::sql::{DbFault, Param, Row, Transaction, int};
use crate::state::AgentState;

/// How sessions are written and read.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) sealing: Sealing,
    pub(super) max_bytes: usize,
    pub(super) history: usize,
}

/// The row of a session: its checkpoints are those from `first` to before `next`, and it has one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionRow {
    pub(super) first: u64,
    pub(super) next: u64,
    pub(super) last: Uuid,
}

impl SessionRow {
    fn read(row: &mut Row) -> Result<(u64, u64, String), DbFault> {
        Ok((row.count(0)?, row.count(1)?, row.text(2)?))
    }

    /// The row of a session, as it is now.
    pub(super) fn find(
        transaction: &mut Transaction<'_>,
        session: &str,
    ) -> Result<Option<Self>, CheckpointError> {
        let found = transaction.one(FIND_SESSION, &[Param::Text(session)], Self::read)?;
        Self::of(found)
    }

    /// The row of a session, which nobody else changes before the end of the transaction.
    pub(super) fn lock(
        transaction: &mut Transaction<'_>,
        session: &str,
    ) -> Result<Option<Self>, CheckpointError> {
        let found = transaction.one(LOCK_SESSION, &[Param::Text(session)], Self::read)?;
        Self::of(found)
    }

    fn of(found: Option<(u64, u64, String)>) -> Result<Option<Self>, CheckpointError> {
        let Some((first, next, last)) = found else {
            return Ok(None);
        };
        // One that is being made in this transaction.
        if next == 0 {
            return Ok(None);
        }
        let last = Uuid::parse_str(&last).map_err(damaged)?;
        if first >= next {
            return Err(damaged("a session without checkpoints"));
        }
        Ok(Some(Self { first, next, last }))
    }

    /// Makes the row of a session, without checkpoints; whether there was none.
    pub(super) fn make(
        transaction: &mut Transaction<'_>,
        session: &str,
    ) -> Result<bool, CheckpointError> {
        let made = transaction.execute(NEW_SESSION, &[Param::Text(session)])?;
        Ok(made == 1)
    }

    /// Sets the row, where it is still at `next`.
    pub(super) fn set(
        self,
        transaction: &mut Transaction<'_>,
        session: &str,
        next: u64,
    ) -> Result<(), CheckpointError> {
        let values = [
            Param::Text(session),
            Param::Int(int(next)),
            Param::Int(int(self.first)),
            Param::Int(int(self.next)),
            Param::Text(&self.last.to_string()),
        ];
        match transaction.execute(SET_SESSION, &values)? {
            1 => Ok(()),
            _ => Err(CheckpointError::Conflict { found: self.last }),
        }
    }
}

const FIND_SESSION: &str =
    "SELECT first, next, substr(last, 1, 37) FROM uap_session WHERE session = ?1";
const LOCK_SESSION: &str =
    "SELECT first, next, substr(last, 1, 37) FROM uap_session WHERE session = ?1/*lock*/";
const NEW_SESSION: &str = "INSERT INTO uap_session (session, first, next, last)
    VALUES (?1, 0, 0, '') ON CONFLICT (session) DO NOTHING";
const SET_SESSION: &str =
    "UPDATE uap_session SET first = ?3, next = ?4, last = ?5 WHERE session = ?1 AND next = ?2";
const ADD: &str = "INSERT INTO uap_checkpoint (session, n, checkpoint, back, about, state, digest)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const REPLACE: &str = "UPDATE uap_checkpoint
    SET checkpoint = ?3, back = ?4, about = ?5, state = ?6, digest = ?7 WHERE session = ?1 AND n = ?2";
/// The checkpoints between two numbers. A value over the limit is not given, whoever wrote it, but its size is.
const READ: &str = "SELECT n, back,
    CASE WHEN octet_length(about) <= CAST(?4 AS BIGINT) THEN about END,
    CASE WHEN octet_length(state) <= CAST(?4 AS BIGINT) THEN state END,
    substr(digest, 1, 33), CAST(octet_length(about) AS BIGINT), CAST(octet_length(state) AS BIGINT)
    FROM uap_checkpoint WHERE session = ?1 AND n >= ?2 AND n <= ?3 ORDER BY n";
const BACK: &str = "SELECT back FROM uap_checkpoint WHERE session = ?1 AND n = ?2";
const NUMBER: &str =
    "SELECT n FROM uap_checkpoint WHERE session = ?1 AND checkpoint = ?2 ORDER BY n";
/// A name that is longer than ours can be is that of nobody's session.
const LIST: &str =
    "SELECT session FROM uap_session WHERE octet_length(session) <= 1024 ORDER BY session";
const CUT: &str = "DELETE FROM uap_checkpoint WHERE session = ?1 AND n < ?2";
const NEARER: &str =
    "UPDATE uap_checkpoint SET back = n - ?2 WHERE session = ?1 AND n > ?2 AND back > n - ?2";

/// The maximum size of all metadata of a session, in bytes.
const MAX_METADATA: usize = 256 << 20;

pub(super) fn list(transaction: &mut Transaction<'_>) -> Result<Vec<String>, CheckpointError> {
    Ok(transaction.names(LIST, &[])?)
}

/// Removes all that there is of a session.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    session: &str,
) -> Result<(), CheckpointError> {
    // The row first: a writer that holds it is waited for, and what it has written goes, too.
    for text in [
        "DELETE FROM uap_session WHERE session = ?1",
        "DELETE FROM uap_checkpoint WHERE session = ?1",
    ] {
        transaction.execute(text, &[Param::Text(session)])?;
    }
    Ok(())
}

/// The checkpoints of one session.
pub(super) struct Checkpoints<'a> {
    session: &'a str,
    options: &'a Options,
    limits: Limits,
    domain: Domain,
}

/// A checkpoint as it is kept, opened.
struct Kept {
    n: u64,
    back: u64,
    about: Vec<u8>,
    state: Vec<u8>,
}

impl<'a> Checkpoints<'a> {
    pub(super) fn of(session: &'a str, options: &'a Options) -> Self {
        Self {
            session,
            options,
            limits: limits(options.max_bytes),
            domain: Domain::new("ubos uap-agent 2026-11 checkpoint in sql"),
        }
    }

    /// Writes a checkpoint.
    pub(super) fn add(
        &self,
        transaction: &mut Transaction<'_>,
        n: u64,
        back: u64,
        metadata: &CheckpointMetadata,
        piece: &Piece,
    ) -> Result<(), CheckpointError> {
        let (Piece::Whole(text) | Piece::Difference(text)) = piece;
        self.write(transaction, ADD, n, back, metadata, text.as_bytes())
    }

    fn write(
        &self,
        transaction: &mut Transaction<'_>,
        statement: &'static str,
        n: u64,
        back: u64,
        metadata: &CheckpointMetadata,
        state: &[u8],
    ) -> Result<(), CheckpointError> {
        let known = json::to_vec(metadata);
        let about = self
            .options
            .sealing
            .seal(&self.place("sql about", n), &known)?;
        let state = self
            .options
            .sealing
            .seal(&self.place("sql state", n), state)?;
        let values = [
            Param::Text(self.session),
            Param::Int(int(n)),
            Param::Text(&metadata.checkpoint_id.to_string()),
            Param::Int(int(back)),
            Param::Bytes(&about),
            Param::Bytes(&state),
            Param::Bytes(&self.digest(n, &about, &state)),
        ];
        transaction.execute(statement, &values)?;
        Ok(())
    }

    fn place<'b>(&'b self, kind: &'b str, number: u64) -> Place<'b> {
        Place {
            session: self.session,
            kind,
            number,
        }
    }

    /// The digest of a row in its place. `back` is not in it: it changes when a past is pruned, and a wrong one is noticed
    /// where differences are applied.
    fn digest(&self, n: u64, about: &[u8], state: &[u8]) -> [u8; 32] {
        let length = |part: &[u8]| (part.len() as u64).to_le_bytes();
        let (session, place) = (self.session.as_bytes(), n.to_le_bytes());
        let lengths = [length(session), length(about)];
        let bytes = [&lengths[0], session, &lengths[1], about, &place, state].concat();
        *Digest::of(&self.domain, &bytes).as_bytes()
    }

    fn kept(&self, row: &mut Row) -> Result<Kept, CheckpointError> {
        let (n, back) = (row.count(0)?, row.count(1)?);
        let (Some(about), Some(state)) = (row.opt_bytes(2)?, row.opt_bytes(3)?) else {
            let bytes = row.count(5)?.max(row.count(6)?);
            return Err(CheckpointError::TooLarge {
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                limit: self.options.max_bytes,
            });
        };
        let digest = row.bytes(4)?;
        if digest != self.digest(n, &about, &state) {
            return Err(damaged(format!("checkpoint {n} was changed")));
        }
        let open = |kind, bytes| {
            let opened = self.options.sealing.open(&self.place(kind, n), bytes);
            opened.map(Cow::into_owned)
        };
        Ok(Kept {
            n,
            back,
            about: open("sql about", &about)?,
            state: open("sql state", &state)?,
        })
    }

    /// Gives the checkpoints from one number to another, both included.
    fn each(
        &self,
        transaction: &mut Transaction<'_>,
        first: u64,
        last: u64,
        mut each: impl FnMut(Kept) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let asked = [
            Param::Text(self.session),
            Param::Int(int(first)),
            Param::Int(int(last)),
            Param::Int(int(sealed_bytes(self.options.max_bytes))),
        ];
        transaction.each(READ, &asked, |mut row| each(self.kept(&mut row)?))
    }

    fn metadata(&self, about: &[u8]) -> Result<CheckpointMetadata, CheckpointError> {
        let read = json::decode::<CheckpointMetadata>(about, &self.limits, Profile::Strict);
        let (mut metadata, _) = read.map_err(damaged)?;
        // That of a fork was written for another session.
        self.session.clone_into(&mut metadata.session_id);
        Ok(metadata)
    }

    /// The checkpoint with a number.
    pub(super) fn at(
        &self,
        transaction: &mut Transaction<'_>,
        number: u64,
    ) -> Result<Head, CheckpointError> {
        let place = [Param::Text(self.session), Param::Int(int(number))];
        let back = transaction.one(BACK, &place, |row| row.count(0))?;
        let whole = back.and_then(|back| number.checked_sub(back));
        let whole = whole.ok_or_else(|| damaged("a checkpoint is gone"))?;
        let (mut last, mut next): (Option<(Kept, AgentState, usize)>, _) = (None, whole);
        self.each(transaction, whole, number, |kept| {
            if kept.n != next {
                return Err(damaged("a checkpoint is gone"));
            }
            next += 1;
            let size = kept.state.len();
            let (state, cost) = match (&last, kept.back) {
                (_, 0) => (self.whole(&kept.state)?, size),
                (Some((_, before, cost)), _) => {
                    let state = grown(before, &kept.state, &self.limits)?;
                    (state, cost.saturating_add(size))
                }
                (None, _) => return Err(damaged("a difference to nothing")),
            };
            last = Some((kept, state, cost));
            Ok(())
        })?;
        let found = last.filter(|(kept, ..)| kept.n == number);
        let (kept, state, cost) = found.ok_or_else(|| damaged("a checkpoint is gone"))?;
        let metadata = self.metadata(&kept.about)?;
        Ok(Head::found(metadata, state, kept.back, cost))
    }

    fn whole(&self, text: &[u8]) -> Result<AgentState, CheckpointError> {
        AgentState::from_json(text, &self.limits).map_err(damaged)
    }

    /// The number of a checkpoint.
    pub(super) fn number(
        &self,
        transaction: &mut Transaction<'_>,
        checkpoint: Uuid,
    ) -> Result<Option<u64>, CheckpointError> {
        let text = checkpoint.to_string();
        let asked = [Param::Text(self.session), Param::Text(&text)];
        Ok(transaction.one(NUMBER, &asked, |row| row.count(0))?)
    }

    /// The metadata of all checkpoints, oldest first.
    pub(super) fn history(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<Vec<CheckpointMetadata>, CheckpointError> {
        let (mut history, mut bytes) = (Vec::new(), 0_usize);
        self.each(transaction, 0, u64::MAX, |kept| {
            bytes = bytes.saturating_add(kept.about.len());
            if bytes > MAX_METADATA {
                return Err(damaged("the metadata have more than 256 MiB"));
            }
            history.push(self.metadata(&kept.about)?);
            Ok(())
        })?;
        Ok(history)
    }

    /// Copies a checkpoint to another session.
    pub(super) fn copy(
        &self,
        transaction: &mut Transaction<'_>,
        number: u64,
        to: &Checkpoints<'_>,
    ) -> Result<(), CheckpointError> {
        let mut found = None;
        self.each(transaction, number, number, |kept| {
            found = Some(kept);
            Ok(())
        })?;
        let kept = found.ok_or_else(|| damaged("a checkpoint is gone"))?;
        let metadata = to.metadata(&kept.about)?;
        to.write(transaction, ADD, number, kept.back, &metadata, &kept.state)
    }

    /// Makes a checkpoint whole, and removes those before it.
    pub(super) fn cut(
        &self,
        transaction: &mut Transaction<'_>,
        first: u64,
    ) -> Result<(), CheckpointError> {
        let head = self.at(transaction, first)?;
        let text = whole(&head.state)?;
        self.write(
            transaction,
            REPLACE,
            first,
            0,
            &head.metadata,
            text.as_bytes(),
        )?;
        let place = [Param::Text(self.session), Param::Int(int(first))];
        transaction.execute(NEARER, &place)?;
        transaction.execute(CUT, &place)?;
        Ok(())
    }
}
