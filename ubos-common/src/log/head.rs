//! Names for a log, a place in it and its end.

use super::Digest;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Identity of one log; every block of it is bound to it. Written as a hyphenated UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(Uuid);

impl LogId {
    /// An id of these bytes; they should be random, or unique in some other way.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl From<Uuid> for LogId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

/// Where a committed record lies. It stays valid for as long as its segment is in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Position {
    /// The record's sequence, from 0 over the whole log.
    pub sequence: u64,
    /// Number of its segment.
    pub segment: u64,
    /// Offset of its frame from the start of the segment, in bytes.
    pub offset: u64,
}

impl Position {
    /// The position of record `sequence` at `offset` in `segment`, as a caller kept it.
    #[must_use]
    pub const fn new(sequence: u64, segment: u64, offset: u64) -> Self {
        Self {
            sequence,
            segment,
            offset,
        }
    }
}

/// The end of a log at some moment: keep it elsewhere, and nobody can shorten or rewrite what was there.
///
/// Its text form is one word, `ubos-log:1:ID:NEXT_SEQUENCE:DIGEST`.
///
/// ```
/// use ubos_common::log::{Digest, Head, LogId};
///
/// let head = Head::new(LogId::from_bytes([1; 16]), 42, Digest::from_bytes([2; 32]));
/// assert_eq!(head.to_string().parse::<Head>()?, head);
/// # Ok::<(), ubos_common::log::HeadError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Head {
    /// The log.
    pub log: LogId,
    /// Sequence of the record that comes next, which is the number of records ever written.
    pub next_sequence: u64,
    /// Digest of the last block.
    pub digest: Digest,
}

impl Head {
    /// A head of these parts.
    #[must_use]
    pub const fn new(log: LogId, next_sequence: u64, digest: Digest) -> Self {
        Self {
            log,
            next_sequence,
            digest,
        }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{PREFIX}{}:{}:{}",
            self.log, self.next_sequence, self.digest
        )
    }
}

impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let rest = text.strip_prefix(PREFIX).ok_or(HeadError::Prefix)?;
        let mut parts = rest.split(':');
        let mut part = || parts.next().ok_or(HeadError::Parts);
        let (id, sequence, digest) = (part()?, part()?, part()?);
        if parts.next().is_some() {
            return Err(HeadError::Parts);
        }
        let log = Uuid::try_parse(id)
            .ok()
            .filter(|_| id.len() == 36)
            .ok_or(HeadError::Log)?;
        // One number has one text: no sign, no zeroes before it.
        let next_sequence = (sequence.parse().ok())
            .filter(|number: &u64| number.to_string() == sequence)
            .ok_or(HeadError::Sequence)?;
        let digest = digest.parse().map_err(|_| HeadError::Digest)?;
        Ok(Self::new(LogId(log), next_sequence, digest))
    }
}

/// Why a text is no [`Head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// It begins with something else.
    #[error("a head begins with `ubos-log:1:`")]
    Prefix,
    /// It has too few or too many parts.
    #[error("a head has the parts id, next sequence and digest")]
    Parts,
    /// The id is no hyphenated UUID.
    #[error("log id of a head is a hyphenated UUID")]
    Log,
    /// The sequence is no decimal number of 64 bits.
    #[error("next sequence of a head is a decimal number")]
    Sequence,
    /// The digest is not 64 hex digits.
    #[error("digest of a head is 64 hex digits")]
    Digest,
}

const PREFIX: &str = "ubos-log:1:";
