//! What is derived once from a log's id.

use super::checksum::xxh64;
use crate::log::{Digest, LogId};

/// Keys that bind every byte of a log to its id and to its role: a block of one log is no block of another,
/// and a segment header can never pass for a block.
#[derive(Clone, Debug)]
pub struct LogKeys {
    id: LogId,
    block: [u8; 32],
    header: [u8; 32],
    genesis: Digest,
    salt: u64,
}

impl LogKeys {
    /// Derives the keys of log `id`.
    #[must_use]
    pub fn new(id: LogId) -> Self {
        let genesis = blake3::derive_key(GENESIS, id.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = blake3::derive_key(CHECKSUM, id.as_bytes());
        Self {
            id,
            block: blake3::derive_key(BLOCK, id.as_bytes()),
            header: blake3::derive_key(HEADER, id.as_bytes()),
            genesis: Digest::from_bytes(genesis),
            salt: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        }
    }

    /// The log these keys belong to.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.id
    }

    /// What the first block of the log names as the block before it.
    #[must_use]
    pub fn genesis(&self) -> Digest {
        self.genesis
    }

    /// Digest of a block: its header and its records, without the digest itself.
    pub(crate) fn block_digest(&self, bytes: &[u8]) -> Digest {
        Digest::from_bytes(*blake3::keyed_hash(&self.block, bytes).as_bytes())
    }

    /// Digest of a segment header.
    pub(crate) fn header_digest(&self, bytes: &[u8]) -> Digest {
        Digest::from_bytes(*blake3::keyed_hash(&self.header, bytes).as_bytes())
    }

    /// Checksum of a block header.
    pub(crate) fn header_checksum(&self, bytes: &[u8]) -> u64 {
        xxh64(bytes, self.salt)
    }

    /// Checksum of a record: its frame (length and sequence) seeds that of its bytes.
    pub(crate) fn record_checksum(&self, frame: &[u8], bytes: &[u8]) -> u64 {
        xxh64(bytes, xxh64(frame, self.salt))
    }
}

const BLOCK: &str = "ubos-common 2026 log format 2: block";
const HEADER: &str = "ubos-common 2026 log format 2: segment header";
const GENESIS: &str = "ubos-common 2026 log format 2: genesis";
const CHECKSUM: &str = "ubos-common 2026 log format 2: checksum salt";
