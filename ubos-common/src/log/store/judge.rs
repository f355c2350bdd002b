//! Telling the end of a log, a write that failed or that a crash tore, and damage apart.
//!
//! Everything behind the last block is zero before a block is written there. A disk writes a sector of 512 bytes
//! whole or not at all, and a write that fails has written its first bytes or none. So a torn block has a sector
//! that is still zero (or past the end of the file) where its records or its digest fail, or its bytes end before
//! its digest does; one that was there in full and fails was changed. And a later block that was written after
//! this one had been synced proves that no crash tore it.

use super::file::{LogFile, read_full, read_up_to};
use super::search::{Search, Stray};
use crate::log::format::{BLOCK_HEADER_BYTES, Chain, Extent, Fault};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What lies behind the last block that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    Clean,
    /// What is left of blocks that were never acknowledged as durable, this many bytes.
    Torn(u64),
    /// Bytes that were whole once.
    Damaged(Fault),
}

/// Judges places of one file, in their order. It keeps what it learned, so that many faults do not mean many
/// readings of the file; bytes that a writer adds meanwhile are for another judge.
#[derive(Debug)]
pub(crate) struct Judge {
    file: Arc<dyn LogFile>,
    /// One past the last byte that is not zero, once it is known; 0 where all are.
    end: Option<u64>,
    search: Option<Search>,
    /// The block at which the search stands.
    found: Option<Stray>,
}

impl Judge {
    pub(crate) fn new(file: Arc<dyn LogFile>) -> Self {
        Self {
            file,
            end: None,
            search: None,
            found: None,
        }
    }

    /// Judges what the file holds from `offset` on, where `chain` should go on; `fault` is what decoding said.
    pub(crate) fn judge(
        &mut self,
        chain: &Chain,
        offset: u64,
        fault: Option<Fault>,
    ) -> io::Result<Tail> {
        let end = self.end_of_data(offset)?;
        if end <= offset {
            return Ok(Tail::Clean);
        }
        let sequence = chain.next_sequence();
        let named = fault.unwrap_or(Fault::BlockHeader { sequence });
        if matches!(
            named,
            Fault::Sequence { .. } | Fault::Chain { .. } | Fault::TooLarge { .. }
        ) {
            return Ok(Tail::Damaged(named));
        }
        let header = read_up_to(self.file.as_ref(), BLOCK_HEADER_BYTES, offset)?;
        // A header that is there in full says where its block belongs: no torn write stands elsewhere.
        if let Some(misplaced) = chain.misplaced(&header) {
            return Ok(Tail::Damaged(misplaced));
        }
        let claimed = match chain.extent(&header) {
            Ok(Extent::Whole(length)) => Some(length),
            _ => None,
        };
        let behind = offset + claimed.map_or(1, |length| length as u64);
        if self.synced_later(chain, behind, end)? {
            return Ok(Tail::Damaged(named));
        }
        let torn = match claimed {
            Some(length) => self.misses_bytes(chain, offset, length)?,
            None => self.header_misses_bytes(offset, end)?,
        };
        Ok(if torn {
            Tail::Torn(end - offset)
        } else {
            Tail::Damaged(named)
        })
    }

    /// One past the last byte from `offset` on that is not zero; at most `offset` where all are.
    fn end_of_data(&mut self, offset: u64) -> io::Result<u64> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        let mut buffer = vec![0; CHUNK];
        let (mut at, mut end) = (offset, 0);
        loop {
            let read = read_full(self.file.as_ref(), &mut buffer, at)?;
            let bytes = buffer.get(..read).unwrap_or_default();
            if let Some(length) = without_zeroes(bytes) {
                end = at + length as u64;
            }
            if read < buffer.len() {
                break;
            }
            at += read as u64;
        }
        self.end = Some(end);
        Ok(end)
    }

    /// Whether a block behind says that the one in question had been synced.
    fn synced_later(&mut self, chain: &Chain, from: u64, end: u64) -> io::Result<bool> {
        let search = self
            .search
            .get_or_insert_with(|| Search::new(Arc::clone(&self.file), from, end));
        search.pass(from);
        // What was passed before proved nothing of an earlier record, and so nothing of this one.
        while !self
            .found
            .as_ref()
            .is_some_and(|found| found.offset >= from && found.durable > chain.next_sequence())
        {
            self.found = search.next(chain)?;
            if self.found.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether bytes are missing that explain why the block at `offset` fails its checks.
    fn misses_bytes(&self, chain: &Chain, offset: u64, length: usize) -> io::Result<bool> {
        let bytes = self.to_end_of_sector(offset, length)?;
        let Some(block) = bytes.get(..length) else {
            return Ok(true);
        };
        if chain.is_sealed(block) {
            return Ok(false);
        }
        if chain.ends_inside(block) {
            return Ok(true);
        }
        let damaged = chain.damaged_ranges(block);
        let missing = sectors(offset, bytes.len()).any(|sector| {
            is_blank(bytes.get(sector.clone()))
                && damaged
                    .iter()
                    .any(|range| range.start < sector.end && sector.start < range.end)
        });
        Ok(missing)
    }

    /// Whether the bytes end inside the header at `offset`, or one of its sectors is missing.
    fn header_misses_bytes(&self, offset: u64, end: u64) -> io::Result<bool> {
        if end - offset < BLOCK_HEADER_BYTES as u64 {
            return Ok(true);
        }
        let bytes = self.to_end_of_sector(offset, BLOCK_HEADER_BYTES)?;
        Ok(sectors(offset, bytes.len()).any(|sector| is_blank(bytes.get(sector))))
    }

    /// So many bytes at `offset` and the rest of the sector in which they end, as far as the file goes.
    fn to_end_of_sector(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let into = usize::try_from(offset % SECTOR as u64).unwrap_or(0);
        let length = (into + length).next_multiple_of(SECTOR) - into;
        read_up_to(self.file.as_ref(), length, offset)
    }
}

/// Length of what is left of `bytes` without the zeroes at their end, if anything is.
fn without_zeroes(bytes: &[u8]) -> Option<usize> {
    // Compared piece by piece: nearly all of a file that was taken ahead is zero.
    let mut length = bytes.len();
    for piece in bytes.rchunks(ZEROES.len()) {
        if ZEROES.get(..piece.len()) != Some(piece) {
            let last = piece.iter().rposition(|byte| *byte != 0)?;
            return Some(length - piece.len() + last + 1);
        }
        length -= piece.len();
    }
    None
}

fn is_blank(bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// The pieces of `length` bytes at `offset` that a disk writes as a whole, relative to `offset`.
fn sectors(offset: u64, length: usize) -> impl Iterator<Item = Range<usize>> {
    let into = usize::try_from(offset % SECTOR as u64).unwrap_or(0);
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = length.min((into + start + 1).next_multiple_of(SECTOR) - into);
        let piece = (start < length).then_some(start..end);
        start = end;
        piece
    })
}

static ZEROES: [u8; 4096] = [0; 4096];
const SECTOR: usize = 512;
const CHUNK: usize = 256 << 10;
