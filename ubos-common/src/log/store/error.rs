//! What can go wrong with a log on disk, one enum an operation.

use crate::ConfigError;
use crate::log::format::{EncodeError, Fault};
use crate::log::{Kind, KindError, LogId};
use std::io;

/// Damage with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("segment {segment}, byte {offset}: {fault}")]
#[non_exhaustive]
pub struct Damage {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the block (or 0, of the segment header) concerned, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl Damage {
    pub(crate) fn new(segment: u64, offset: u64, fault: Fault) -> Self {
        Self {
            segment,
            offset,
            fault,
        }
    }
}

/// Why a log cannot be opened for writing. Nothing was cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another writer, in this process or another, holds the log.
    #[error("log is locked by another writer")]
    Locked,
    /// There is no log, and no id to create one with.
    #[error("no log here, and no id to create one")]
    NoId,
    /// Another log is here.
    #[error("folder holds log {found}, wanted {wanted}")]
    WrongLog {
        /// The id of the settings.
        wanted: LogId,
        /// The id of the log.
        found: LogId,
    },
    /// A log of another kind is here; it was not touched.
    #[error("folder holds a log of kind {found}, wanted kind {wanted}")]
    WrongKind {
        /// The kind of the settings.
        wanted: Kind,
        /// The kind of the log.
        found: Kind,
    },
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The settings name no kind.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// No segment has a header that holds, so that there is nothing to go on from; only repairing says so.
    #[error("no segment here has a header that holds")]
    NothingSound,
    /// Something was changed or destroyed that a crash does not explain.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The folder or a file failed.
    #[error("opening the log failed")]
    Io(#[from] io::Error),
}

/// Why records were not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A record or batch exceeds the limits; the log is as before.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A write or sync failed or panicked, now or earlier. Whether the record is there, only opening the log again tells:
    /// after a failed sync the system may have dropped the bytes, and another sync would lie about them.
    #[error("writer failed ({0}) and must be opened again")]
    Poisoned(io::ErrorKind),
}

/// Why a record was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The folder has no segment.
    #[error("no log here")]
    Missing,
    /// The record was archived, or lies before the first segment here.
    #[error("record {wanted} is archived, the first one here is {first}")]
    Archived {
        /// The record asked for.
        wanted: u64,
        /// The first record of the folder.
        first: u64,
    },
    /// No committed record lies at the position.
    #[error("no record {sequence} at this position")]
    NoRecord {
        /// The record asked for.
        sequence: u64,
    },
    /// The bytes are not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The folder or a file failed.
    #[error("reading the log failed")]
    Io(#[from] io::Error),
}

/// Why segments were not archived; those already moved are whole in the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The target is the folder of the log; nothing was moved.
    #[error("target of archiving is the folder of the log, wanted another one")]
    SameFolder,
    /// The target has a different file of this segment's name.
    #[error("target has another segment {index}")]
    Occupied {
        /// Number of the segment.
        index: u64,
    },
    /// The segment does not hold; it is left where it is.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A folder or file failed.
    #[error("archiving failed")]
    Io(#[from] io::Error),
}
