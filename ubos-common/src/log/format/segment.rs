//! The header that begins every segment file.

use super::{Fault, LogKeys};
use crate::log::{Digest, Kind, LogId};

/// Length of a segment header, in bytes.
pub const SEGMENT_HEADER_BYTES: usize = 128;

/// What a segment says about its place in the log.
///
/// Bytes, little-endian: magic 8, version 4, header length 4, log id 16, index 8, first sequence 8, digest of
/// the block before 32, kind 16 (zero behind its name), keyed BLAKE3 of all that 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentHeader {
    /// The log.
    pub log: LogId,
    /// What the log is for.
    pub kind: Kind,
    /// Number of the segment, from 0.
    pub index: u64,
    /// Sequence of the segment's first record.
    pub first_sequence: u64,
    /// Digest of the last block of the segment before, or the log's genesis.
    pub previous: Digest,
}

impl SegmentHeader {
    /// A header of segment `index` whose first record will be `first_sequence`.
    #[must_use]
    pub fn new(log: LogId, kind: Kind, index: u64, first_sequence: u64, previous: Digest) -> Self {
        Self {
            log,
            kind,
            index,
            first_sequence,
            previous,
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self, keys: &LogKeys) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&HEADER_LENGTH.to_le_bytes());
        bytes.extend_from_slice(self.log.as_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&self.first_sequence.to_le_bytes());
        bytes.extend_from_slice(self.previous.as_bytes());
        bytes.extend_from_slice(self.kind.as_bytes());
        let digest = keys.header_digest(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    /// Reads the header that `bytes` begin with.
    ///
    /// # Errors
    /// [`Fault::Foreign`] for another magic, [`Fault::Version`] for a version but 2, [`Fault::SegmentHeader`]
    /// for one that is cut short or fails its digest.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        if !bytes.starts_with(&MAGIC) {
            let start = bytes.get(..MAGIC.len()).unwrap_or(bytes);
            return Err(if MAGIC.starts_with(start) {
                Fault::SegmentHeader
            } else {
                Fault::Foreign
            });
        }
        Self::fields(bytes).ok_or(Fault::SegmentHeader)?
    }

    fn fields(bytes: &[u8]) -> Option<Result<Self, Fault>> {
        let (signed, rest) = bytes.split_first_chunk::<SIGNED>()?;
        let (_, rest_of) = signed.split_first_chunk::<8>()?;
        let (version, rest_of) = rest_of.split_first_chunk::<4>()?;
        let found = u32::from_le_bytes(*version);
        if found != VERSION {
            return Some(Err(Fault::Version { found }));
        }
        let (length, rest_of) = rest_of.split_first_chunk::<4>()?;
        let (id, rest_of) = rest_of.split_first_chunk::<16>()?;
        let (index, rest_of) = rest_of.split_first_chunk::<8>()?;
        let (first, rest_of) = rest_of.split_first_chunk::<8>()?;
        let (previous, kind) = rest_of.split_first_chunk::<32>()?;
        let kind = Kind::from_bytes(*kind.first_chunk::<16>()?)?;
        let (digest, _) = rest.split_first_chunk::<32>()?;
        let log = LogId::from_bytes(*id);
        let sound = u32::from_le_bytes(*length) == HEADER_LENGTH
            && LogKeys::new(log).header_digest(signed).as_bytes() == digest;
        sound.then(|| {
            Ok(Self {
                log,
                kind,
                index: u64::from_le_bytes(*index),
                first_sequence: u64::from_le_bytes(*first),
                previous: Digest::from_bytes(*previous),
            })
        })
    }
}

const MAGIC: [u8; 8] = *b"\x89UBOSLOG";
const VERSION: u32 = 2;
const HEADER_LENGTH: u32 = 128;
const SIGNED: usize = SEGMENT_HEADER_BYTES - 32;
