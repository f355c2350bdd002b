//! What can be wrong with the bytes of a log.

use crate::log::{Kind, LogId};

/// One way in which bytes fail to be the log they should be. Offsets are the store's to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file does not begin like a segment.
    #[error("no segment of a log: the file begins with something else")]
    Foreign,
    /// The segment was written in another version of the format.
    #[error("segment format version {found}, this reader knows 2")]
    Version {
        /// The version the segment states.
        found: u32,
    },
    /// The segment header is cut short or fails its digest.
    #[error("segment header is damaged")]
    SegmentHeader,
    /// A segment of another log lies in the folder.
    #[error("segment belongs to log {found}, wanted {wanted}")]
    WrongLog {
        /// The log being read.
        wanted: LogId,
        /// The log the segment names.
        found: LogId,
    },
    /// The segment names another kind of log than the first one does.
    #[error("segment is of kind {found}, wanted {wanted}")]
    WrongKind {
        /// The kind of the first segment.
        wanted: Kind,
        /// The kind the segment names.
        found: Kind,
    },
    /// The segment's number is not the one its name or its place asks for.
    #[error("segment number {found}, wanted {wanted}")]
    WrongSegment {
        /// The number its place asks for.
        wanted: u64,
        /// The number found.
        found: u64,
    },
    /// The header of the block that should begin with record `sequence` fails its checksum.
    #[error("header of the block at record {sequence} is damaged")]
    BlockHeader {
        /// The first record of the block, by what came before.
        sequence: u64,
    },
    /// A block or a record claims to be longer than the limits allow.
    #[error("record {sequence} claims {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The first record concerned.
        sequence: u64,
        /// What is claimed.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A record fails its checksum: it is the first bad one.
    #[error("record {sequence} is damaged")]
    Record {
        /// The bad record.
        sequence: u64,
    },
    /// Every record of the block holds, the block's own digest does not.
    #[error("digest of the block of records {first}..{end} does not match")]
    BlockDigest {
        /// First record of the block.
        first: u64,
        /// One past its last record.
        end: u64,
    },
    /// The block is whole but names another block as the one before it.
    #[error("chain is broken at record {sequence}: the block before it was changed or removed")]
    Chain {
        /// First record of the block that does not follow.
        sequence: u64,
    },
    /// Records are missing or doubled.
    #[error("record {found} where {wanted} should be")]
    Sequence {
        /// The sequence that should follow.
        wanted: u64,
        /// The sequence found.
        found: u64,
    },
    /// Bytes end in the middle of the block that should begin with record `sequence`.
    #[error("block at record {sequence} is cut short")]
    CutShort {
        /// First record of the block, by what came before.
        sequence: u64,
    },
    /// A segment that should be here is not.
    #[error("segment {index} is missing")]
    MissingSegment {
        /// Its number.
        index: u64,
    },
    /// The log ends before the head that was kept: its tail was removed.
    #[error("log ends before record {found}, a kept head says {wanted}")]
    TailRemoved {
        /// The next sequence of the kept head.
        wanted: u64,
        /// The next sequence of the log.
        found: u64,
    },
    /// The log holds other records than those the kept head was taken of.
    #[error("digest before record {sequence} is not the one that was kept")]
    Head {
        /// The next sequence of the kept head.
        sequence: u64,
    },
}

impl Fault {
    /// The first record that can no longer be trusted, where the fault tells.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        match *self {
            Self::BlockHeader { sequence }
            | Self::TooLarge { sequence, .. }
            | Self::Record { sequence }
            | Self::Chain { sequence }
            | Self::CutShort { sequence }
            | Self::Head { sequence } => Some(sequence),
            Self::BlockDigest { first, .. } => Some(first),
            Self::Sequence { wanted, .. } => Some(wanted),
            Self::TailRemoved { found, .. } => Some(found),
            _ => None,
        }
    }
}
