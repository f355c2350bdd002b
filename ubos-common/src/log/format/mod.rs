//! The bytes of a log: pure functions over slices, no IO, no clock, no randomness.
//!
//! A segment is a [`SegmentHeader`] and then blocks. A block is the records of one commit: a header of 72
//! bytes, the records, and a keyed BLAKE3 of both. A record is its length, sequence and checksum (20 bytes)
//! and its bytes. Everything behind the last block is zero.
//!
//! ```
//! use ubos_common::log::LogId;
//! use ubos_common::log::format::{BlockBuilder, Chain, Limits, LogKeys};
//!
//! let keys = LogKeys::new(LogId::from_bytes([7; 16]));
//! let mut block = BlockBuilder::new(keys.clone(), Limits::default());
//! block.begin(0);
//! block.push(b"first")?;
//! block.push(b"second")?;
//! let digest = block.finish(keys.genesis(), 0);
//!
//! let mut chain = Chain::new(keys.clone(), Limits::default(), keys.genesis(), 0);
//! let decoded = chain.decode(block.as_bytes())?;
//! assert_eq!(decoded.records().map(|record| record.bytes).collect::<Vec<_>>(), [&b"first"[..], b"second"]);
//! chain.follow(&decoded.summary());
//! assert_eq!((chain.previous(), chain.next_sequence()), (digest, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod checksum;
mod decode;
mod fault;
mod keys;
mod limits;
mod segment;
#[cfg(test)]
mod tests;

pub use block::{BlockBuilder, EncodeError};
pub use decode::{Block, Chain, Extent, Record, Records, Summary};
pub use fault::Fault;
pub use keys::LogKeys;
pub use limits::Limits;
pub use segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

pub(crate) use block::{BLOCK_HEADER_BYTES, DIGEST_BYTES, RECORD_HEADER_BYTES, block_bytes};
pub(crate) use decode::{Frame, read_frame};
