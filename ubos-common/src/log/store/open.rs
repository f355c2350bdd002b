//! Opening a log for writing: what is there, what a crash left, what must not be touched.

use super::catalog::{NEW_SEGMENT, Segment, create_segment, segments};
use super::config::Config;
use super::error::{Damage, OpenError, ReadError};
use super::file::{LogDir, LogFile, read_full};
use super::judge::{Judge, Tail};
use super::scan::{Next, Scanner};
use crate::log::format::{Fault, LogKeys, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::log::{Digest, Head, Kind};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What opening a log found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Whether the log was created.
    pub created: bool,
    /// Number of segments in the folder.
    pub segments: usize,
    /// Sequence of the first record in the folder; those before are archived.
    pub first_sequence: u64,
    /// The log's end after opening.
    pub head: Head,
    /// What a crash had left half written; it is cut off now.
    pub torn: Option<TornTail>,
}

/// A write that a crash tore. No record in it was acknowledged as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TornTail {
    /// Number of the segment.
    pub segment: u64,
    /// Where it began, in bytes.
    pub offset: u64,
    /// How much was there, in bytes.
    pub bytes: u64,
    /// Sequence of its first record.
    pub sequence: u64,
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Tip {
    pub(crate) file: Arc<dyn LogFile>,
    pub(crate) segment: u64,
    pub(crate) end: u64,
    pub(crate) previous: Digest,
    pub(crate) kind: Kind,
}

pub(crate) fn open(
    dir: &dyn LogDir,
    config: &Config,
) -> Result<(LogKeys, Tip, OpenReport), OpenError> {
    let found = segments(dir)?;
    let (Some(first), Some(last)) = (found.first(), found.last()) else {
        return create(dir, config);
    };
    let oldest = Segment::open(dir, *first, None, false)?.header;
    check(&oldest, config)?;
    clean(dir)?;
    let keys = LogKeys::new(oldest.log);
    let (tip, head, torn) = recover(dir, &keys, config, *last)?;
    if tip.kind != oldest.kind {
        let (wanted, found) = (oldest.kind, tip.kind);
        return Err(Damage::new(*last, 0, Fault::WrongKind { wanted, found }).into());
    }
    let report = OpenReport {
        created: false,
        segments: found.len(),
        first_sequence: oldest.first_sequence,
        head,
        torn,
    };
    Ok((keys, tip, report))
}

/// Whether a log is the one that the settings say.
pub(crate) fn check(header: &SegmentHeader, config: &Config) -> Result<(), OpenError> {
    let (wanted, found) = (kind_of(config)?, header.kind);
    if wanted != found {
        return Err(OpenError::WrongKind { wanted, found });
    }
    let found = header.log;
    match config.log_id.filter(|wanted| *wanted != found) {
        Some(wanted) => Err(OpenError::WrongLog { wanted, found }),
        None => Ok(()),
    }
}

fn kind_of(config: &Config) -> Result<Kind, OpenError> {
    match config.kind {
        "" => Ok(Kind::default()),
        name => Ok(name.parse()?),
    }
}

/// Removes a segment that a crash left half made.
fn clean(dir: &dyn LogDir) -> io::Result<()> {
    if dir.list()?.iter().any(|name| name == NEW_SEGMENT) {
        dir.remove(NEW_SEGMENT)?;
    }
    Ok(())
}

fn create(dir: &dyn LogDir, config: &Config) -> Result<(LogKeys, Tip, OpenReport), OpenError> {
    let kind = kind_of(config)?;
    let log = config.log_id.ok_or(OpenError::NoId)?;
    let keys = LogKeys::new(log);
    let previous = keys.genesis();
    let header = SegmentHeader::new(log, kind, 0, 0, previous);
    let tip = Tip {
        file: create_segment(dir, &keys, &header, config.segment_bytes)?,
        segment: 0,
        end: SEGMENT_HEADER_BYTES as u64,
        previous,
        kind,
    };
    let report = OpenReport {
        created: true,
        segments: 1,
        first_sequence: 0,
        head: Head::new(log, 0, previous),
        torn: None,
    };
    Ok((keys, tip, report))
}

/// Finds the end of the last segment and makes it good to write on.
fn recover(
    dir: &dyn LogDir,
    keys: &LogKeys,
    config: &Config,
    index: u64,
) -> Result<(Tip, Head, Option<TornTail>), OpenError> {
    let segment = lock_segment(dir, keys, index)?;
    let kind = segment.header.kind;
    let chain = segment.chain(keys, config.limits);
    let mut scanner = Scanner::new(segment.file, chain, SEGMENT_HEADER_BYTES as u64);
    let mut unsure = VecDeque::new();
    let fault = loop {
        match scanner.next()? {
            Next::Block(offset, block) => {
                unsure.push_back((block.first_sequence, offset));
                while unsure
                    .front()
                    .is_some_and(|(first, _)| *first < block.durable)
                {
                    unsure.pop_front();
                }
            }
            Next::End => break None,
            Next::Fault(fault) => break Some(fault),
        }
    };
    let (file, chain, end) = (scanner.file(), scanner.chain(), scanner.offset());
    let torn = match Judge::new(Arc::clone(file)).judge(chain, end, fault)? {
        Tail::Clean => None,
        Tail::Damaged(fault) => return Err(Damage::new(index, end, fault).into()),
        Tail::Torn(bytes) => Some(TornTail {
            segment: index,
            offset: end,
            bytes,
            sequence: chain.next_sequence(),
        }),
    };
    if torn.is_some() {
        file.set_len(end)?;
    }
    if end < config.segment_bytes {
        file.allocate(config.segment_bytes)?;
    }
    let from = unsure.front().map_or(end, |(_, offset)| *offset);
    rewrite(file.as_ref(), from, end)?;
    file.sync()?;
    // The same holds for the segment's name.
    dir.sync()?;
    let tip = Tip {
        file: Arc::clone(file),
        segment: index,
        end,
        previous: chain.previous(),
        kind,
    };
    let head = Head::new(keys.id(), chain.next_sequence(), chain.previous());
    Ok((tip, head, torn))
}

fn lock_segment(dir: &dyn LogDir, keys: &LogKeys, index: u64) -> Result<Segment, OpenError> {
    let segment = Segment::open(dir, index, Some(keys), true)?;
    if segment.file.lock()? {
        Ok(segment)
    } else {
        Err(OpenError::Locked)
    }
}

/// Writes the blocks again that no later block proves synced. After a failed sync the system may hold them in
/// memory and believe them written; without this, records would be built on bytes that a power cut takes.
fn rewrite(file: &dyn LogFile, from: u64, end: u64) -> io::Result<()> {
    let mut at = from;
    while at < end {
        let length = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(REWRITE_BYTES);
        let mut bytes = vec![0; length];
        if read_full(file, &mut bytes, at)? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_at(&bytes, at)?;
        at += length as u64;
    }
    Ok(())
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(damage) => Self::Damaged(damage),
            ReadError::Io(error) => Self::Io(error),
            other => Self::Io(io::Error::other(other)),
        }
    }
}

const REWRITE_BYTES: usize = 1 << 20;
