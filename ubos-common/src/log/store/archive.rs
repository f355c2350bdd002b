//! Moving sealed segments to another folder.

use super::catalog::{Segment, segment_name, segments};
use super::error::{ArchiveError, Damage, ReadError};
use super::file::{LogDir, LogFile, read_full};
use super::judge::{Judge, Tail};
use super::scan::{Next, Scanner};
use crate::log::Head;
use crate::log::format::{Fault, Limits, LogKeys, SEGMENT_HEADER_BYTES};
use crate::trace::debug;
use std::io;

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Archived {
    /// Number of segments moved.
    pub segments: u64,
    /// The end of what is archived: the log here goes on from it, which
    /// [`Verify::after`](crate::log::Verify::after) proves. Absent when nothing was moved.
    pub head: Option<Head>,
}

/// Moves the segments below `tip` whose records lie below `before`.
pub(crate) fn archive(
    dir: &dyn LogDir,
    keys: &LogKeys,
    limits: Limits,
    tip: u64,
    before: u64,
    target: &dyn LogDir,
) -> Result<Archived, ArchiveError> {
    let own = dir.identity()?;
    if own.is_some() && own == target.identity()? {
        return Err(ArchiveError::SameFolder);
    }
    let mut archived = Archived {
        segments: 0,
        head: None,
    };
    for index in segments(dir)?.into_iter().filter(|index| *index < tip) {
        let next = Segment::open(dir, index + 1, Some(keys), false)?;
        if next.header.first_sequence > before {
            break;
        }
        let segment = Segment::open(dir, index, Some(keys), false)?;
        prove(&segment, keys, limits, &next)?;
        copy(dir, segment.file.as_ref(), index, target)?;
        dir.remove(&segment_name(index))?;
        dir.sync()?;
        archived.segments += 1;
        debug!(log = %keys.id(), segment = index, "segment archived");
        archived.head = Some(Head::new(
            keys.id(),
            next.header.first_sequence,
            next.header.previous,
        ));
    }
    Ok(archived)
}

/// Only what holds is archived: later nobody could tell where it was damaged.
fn prove(
    segment: &Segment,
    keys: &LogKeys,
    limits: Limits,
    next: &Segment,
) -> Result<(), ArchiveError> {
    let chain = segment.chain(keys, limits);
    let mut scanner = Scanner::new(segment.file.clone(), chain, SEGMENT_HEADER_BYTES as u64);
    let fault = loop {
        match scanner.next()? {
            Next::Block(..) => {}
            Next::End => break None,
            Next::Fault(fault) => break Some(fault),
        }
    };
    let (offset, sequence) = (scanner.offset(), scanner.chain().next_sequence());
    let mut judge = Judge::new(segment.file.clone());
    match judge.judge(scanner.chain(), offset, fault)? {
        Tail::Clean => Ok(next.follows(scanner.chain())?),
        Tail::Torn(_) => {
            Err(Damage::new(segment.header.index, offset, Fault::CutShort { sequence }).into())
        }
        Tail::Damaged(fault) => Err(Damage::new(segment.header.index, offset, fault).into()),
    }
}

/// Copies a segment durably. One that an earlier attempt brought there is compared, not replaced.
fn copy(
    dir: &dyn LogDir,
    from: &dyn LogFile,
    index: u64,
    target: &dyn LogDir,
) -> Result<(), ArchiveError> {
    let name = segment_name(index);
    match target.open(&name, false) {
        Ok(there) if is_same(from, there.as_ref())? => {
            if is_shared(dir, target)? {
                return Err(ArchiveError::SameFolder);
            }
            return Ok(target.sync()?);
        }
        Ok(_) => return Err(ArchiveError::Occupied { index }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let to = target.create(COPY)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    loop {
        let read = read_full(from, &mut buffer, at)?;
        if read == 0 {
            break;
        }
        to.write_at(buffer.get(..read).unwrap_or_default(), at)?;
        at += read as u64;
    }
    to.sync()?;
    target.rename(COPY, &name)?;
    Ok(target.sync()?)
}

/// Whether a file made in `target` appears in `dir`: then they are one folder, whatever they say.
fn is_shared(dir: &dyn LogDir, target: &dyn LogDir) -> io::Result<bool> {
    if dir.list()?.iter().any(|name| name == PROBE) {
        dir.remove(PROBE)?;
    }
    target.create(PROBE)?;
    let shared = dir.list()?.iter().any(|name| name == PROBE);
    target.remove(PROBE)?;
    Ok(shared)
}

fn is_same(one: &dyn LogFile, other: &dyn LogFile) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    let mut at = 0;
    loop {
        let read = read_full(one, &mut left, at)?;
        let same =
            read_full(other, &mut right, at)? == read && left.get(..read) == right.get(..read);
        if !same || read == 0 {
            return Ok(same);
        }
        at += read as u64;
    }
}

impl From<ReadError> for ArchiveError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(damage) => Self::Damaged(damage),
            ReadError::Io(error) => Self::Io(error),
            other => Self::Io(io::Error::other(other)),
        }
    }
}

const COPY: &str = "segment.copy";
const PROBE: &str = "segment.probe";
const COPY_BYTES: usize = 1 << 20;
