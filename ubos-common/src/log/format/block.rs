//! Encoding a block.

use super::{Limits, LogKeys};
use crate::log::Digest;

/// Length of a block header, in bytes.
pub(crate) const BLOCK_HEADER_BYTES: usize = 72;
/// Length of a record's frame (length, sequence, checksum), in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 20;
/// Length of the digest that ends a block, in bytes.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Why a record does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The record alone is too long.
    #[error("record of {bytes} bytes, the limit is {limit}")]
    RecordTooLarge {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The record would make its block too long.
    #[error("block of {bytes} bytes, the limit is {limit}")]
    BlockTooLarge {
        /// The length the block would have.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
}

/// Gathers records into one block; the buffer is kept from block to block.
///
/// Header bytes, little-endian: magic 4, record count 4, body length 4, flags 4 (1 for a note of the log itself, else 0), first sequence 8,
/// durable sequence 8, digest of the block before 32, checksum 8.
#[derive(Debug)]
pub struct BlockBuilder {
    keys: LogKeys,
    limits: Limits,
    buffer: Vec<u8>,
    first_sequence: u64,
    count: u32,
    is_note: bool,
}

impl BlockBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new(keys: LogKeys, limits: Limits) -> Self {
        Self {
            keys,
            limits,
            buffer: vec![0; BLOCK_HEADER_BYTES],
            first_sequence: 0,
            count: 0,
            is_note: false,
        }
    }

    /// Drops what is gathered and begins a block whose first record is `first_sequence`.
    pub fn begin(&mut self, first_sequence: u64) {
        self.buffer.truncate(BLOCK_HEADER_BYTES);
        self.buffer.shrink_to(KEPT_BYTES);
        self.first_sequence = first_sequence;
        self.count = 0;
        self.is_note = false;
    }

    /// Adds a record and tells its offset from the start of the block.
    ///
    /// # Errors
    /// [`EncodeError`] when the record or the block would exceed the limits; nothing was added then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, EncodeError> {
        self.check([bytes].into_iter())?;
        let offset = self.buffer.len();
        let sequence = self.next_sequence();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "check() bounds a record by u32::MAX"
        )]
        let length = bytes.len() as u32;
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&sequence.to_le_bytes());
        let checksum = self
            .keys
            .record_checksum(self.buffer.get(offset..).unwrap_or_default(), bytes);
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.buffer.extend_from_slice(bytes);
        self.count += 1;
        Ok(offset)
    }

    /// Makes the block a note of the log itself, which readers pass over.
    pub(crate) fn make_note(&mut self) {
        self.is_note = true;
    }

    /// Whether all of `records` fit into the block as it stands.
    ///
    /// # Errors
    /// The [`EncodeError`] of the first that does not.
    pub(crate) fn check<'r>(
        &self,
        records: impl Iterator<Item = &'r [u8]>,
    ) -> Result<(), EncodeError> {
        let mut body = self.body_bytes();
        for record in records {
            let bytes = record.len();
            let limit = self.limits.max_record_bytes.min(u32::MAX as usize);
            if bytes > limit {
                return Err(EncodeError::RecordTooLarge { bytes, limit });
            }
            body = body
                .saturating_add(bytes)
                .saturating_add(RECORD_HEADER_BYTES);
            let limit = self.limits.max_block_bytes.min(u32::MAX as usize);
            if body > limit {
                return Err(EncodeError::BlockTooLarge { bytes: body, limit });
            }
        }
        Ok(())
    }

    /// Writes header and digest. `previous` is the digest of the block before; every record below `durable`
    /// was synced before this block is written, which is how damage is told from a torn write later.
    pub fn finish(&mut self, previous: Digest, durable: u64) -> Digest {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "check() bounds the body by u32::MAX"
        )]
        let body = self.body_bytes() as u32;
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&self.count.to_le_bytes());
        header.extend_from_slice(&body.to_le_bytes());
        header.extend_from_slice(&u32::from(self.is_note).to_le_bytes());
        header.extend_from_slice(&self.first_sequence.to_le_bytes());
        header.extend_from_slice(&durable.to_le_bytes());
        header.extend_from_slice(previous.as_bytes());
        let checksum = self.keys.header_checksum(&header);
        header.extend_from_slice(&checksum.to_le_bytes());
        if let Some(place) = self.buffer.first_chunk_mut::<BLOCK_HEADER_BYTES>() {
            place.copy_from_slice(&header);
        }
        let digest = self.keys.block_digest(&self.buffer);
        self.buffer.extend_from_slice(digest.as_bytes());
        digest
    }

    /// The block's bytes; whole after [`finish`](Self::finish).
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Whether no record was gathered.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sequence that the next record will have.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.first_sequence + u64::from(self.count)
    }

    /// Length the finished block will have, in bytes.
    pub(crate) fn finished_bytes(&self) -> u64 {
        block_bytes(self.body_bytes() as u64)
    }

    fn body_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(BLOCK_HEADER_BYTES)
    }
}

/// Length of a block whose records take `body` bytes.
pub(crate) fn block_bytes(body: u64) -> u64 {
    (BLOCK_HEADER_BYTES + DIGEST_BYTES) as u64 + body
}

pub(super) const MAGIC: [u8; 4] = *b"UBLK";
/// Capacity a buffer keeps for the next block, so that one huge record does not stay allocated.
const KEPT_BYTES: usize = 4 << 20;
