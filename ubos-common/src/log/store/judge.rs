//! Telling the end of a log, a write that a crash tore, and damage apart.
//!
//! Everything behind the last block is zero before a block is written there, and a disk writes a sector of 512
//! bytes whole or not at all. So a torn block has a sector that is still zero (or past the end of the file)
//! where its records or its digest fail; one that was there in full and fails was changed. And a later block
//! that was written after this one had been synced proves that no crash tore it.

use super::file::{LogFile, read_full};
use crate::log::format::{BLOCK_HEADER_BYTES, Chain, Extent, Fault};
use std::io;
use std::ops::Range;

/// What lies behind the last block that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    Clean,
    /// What a crash left of blocks that were never acknowledged as durable, this many bytes.
    Torn(u64),
    /// Bytes that were whole once.
    Damaged(Fault),
}

/// Judges what `file` holds from `offset` on, where `chain` should go on; `fault` is what decoding said.
pub(crate) fn judge(
    file: &dyn LogFile,
    chain: &Chain,
    offset: u64,
    fault: Option<Fault>,
) -> io::Result<Tail> {
    let Some(end) = end_of_data(file, offset)? else {
        return Ok(Tail::Clean);
    };
    let sequence = chain.next_sequence();
    let named = fault.unwrap_or(Fault::BlockHeader { sequence });
    if matches!(
        named,
        Fault::Sequence { .. } | Fault::Chain { .. } | Fault::TooLarge { .. }
    ) {
        return Ok(Tail::Damaged(named));
    }
    let mut header = vec![0; BLOCK_HEADER_BYTES];
    read_full(file, &mut header, offset)?;
    let claimed = match chain.extent(&header) {
        Ok(Extent::Whole(length)) => Some(length),
        _ => None,
    };
    let behind = offset + claimed.map_or(1, |length| length as u64);
    if synced_later(file, chain, behind, end)? {
        return Ok(Tail::Damaged(named));
    }
    let torn = match claimed {
        Some(length) => misses_sector(file, chain, offset, length)?,
        None => header_misses_sector(file, offset)?,
    };
    Ok(if torn {
        Tail::Torn(end - offset)
    } else {
        Tail::Damaged(named)
    })
}

/// One past the last byte that is not zero, if there is one from `offset` on.
fn end_of_data(file: &dyn LogFile, offset: u64) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; CHUNK];
    let (mut at, mut end) = (offset, None);
    loop {
        let read = read_full(file, &mut buffer, at)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            end = Some(at + last as u64 + 1);
        }
        if read < buffer.len() {
            return Ok(end);
        }
        at += read as u64;
    }
}

/// Whether a block behind says that the one in question had been synced.
fn synced_later(file: &dyn LogFile, chain: &Chain, from: u64, end: u64) -> io::Result<bool> {
    let mut at = from;
    while let Some(found) = find_header(file, chain, at, end)? {
        if found.durable > chain.next_sequence() {
            return Ok(true);
        }
        at = found.offset + 1;
    }
    Ok(false)
}

/// A block header found by searching.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stray {
    pub(crate) offset: u64,
    pub(crate) durable: u64,
    pub(crate) bytes: u64,
}

/// Searches `file` from `from` to `end` for a header of this log that lies ahead in the chain.
pub(crate) fn find_header(
    file: &dyn LogFile,
    chain: &Chain,
    from: u64,
    end: u64,
) -> io::Result<Option<Stray>> {
    let mut buffer = vec![0; CHUNK];
    let mut at = from;
    while at < end {
        let read = read_full(file, &mut buffer, at)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        for (skip, window) in bytes.windows(BLOCK_HEADER_BYTES).enumerate() {
            if let Some((first, _, durable, length)) = chain.stray_header(window)
                && first >= chain.next_sequence()
            {
                return Ok(Some(Stray {
                    offset: at + skip as u64,
                    durable,
                    bytes: length,
                }));
            }
        }
        if read < buffer.len() {
            break;
        }
        at += (read - BLOCK_HEADER_BYTES + 1) as u64;
    }
    Ok(None)
}

/// Whether a sector is missing where the block at `offset` fails its checks.
fn misses_sector(
    file: &dyn LogFile,
    chain: &Chain,
    offset: u64,
    length: usize,
) -> io::Result<bool> {
    let mut bytes = vec![0; length];
    if read_full(file, &mut bytes, offset)? < length {
        return Ok(true);
    }
    let damaged = chain.damaged_ranges(&bytes);
    let missing = sectors(offset, length).any(|sector| {
        let blank = bytes
            .get(sector.clone())
            .is_some_and(|piece| piece.iter().all(|byte| *byte == 0));
        blank
            && damaged
                .iter()
                .any(|range| range.start < sector.end && sector.start < range.end)
    });
    Ok(missing)
}

/// Whether one of the sectors that the header at `offset` lies in is missing, from `offset` on.
fn header_misses_sector(file: &dyn LogFile, offset: u64) -> io::Result<bool> {
    let into = usize::try_from(offset % SECTOR as u64).unwrap_or(0);
    let length = (into + BLOCK_HEADER_BYTES).next_multiple_of(SECTOR) - into;
    let mut bytes = vec![0; length];
    if read_full(file, &mut bytes, offset)? < BLOCK_HEADER_BYTES {
        return Ok(true);
    }
    let blank = |sector: Range<usize>| {
        bytes
            .get(sector)
            .is_some_and(|piece| piece.iter().all(|byte| *byte == 0))
    };
    Ok(sectors(offset, length).any(blank))
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

const SECTOR: usize = 512;
const CHUNK: usize = 256 << 10;
