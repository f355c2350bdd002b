//! Decoding blocks and following the chain.

use super::block::MAGIC;
use super::{
    BLOCK_HEADER_BYTES, DIGEST_BYTES, Fault, Limits, LogKeys, RECORD_HEADER_BYTES, block_bytes,
};
use crate::log::Digest;
use std::ops::Range;

/// Where a reader stands in the chain: what must come next, and how to check it.
#[derive(Clone, Debug)]
pub struct Chain {
    keys: LogKeys,
    limits: Limits,
    previous: Digest,
    next_sequence: u64,
}

/// What the first bytes of a block tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// exhaustive: the three cases are all there are
pub enum Extent {
    /// Only zeroes: no block begins here.
    Blank,
    /// A header does not fit into the bytes given; this many are wanted.
    Short(usize),
    /// A sound header; the whole block has this many bytes.
    Whole(usize),
}

/// What is left of a block once its bytes are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Sequence of its first record.
    pub first_sequence: u64,
    /// One past the sequence of its last record.
    pub next_sequence: u64,
    /// Every record below this one was synced before the block was written.
    pub durable: u64,
    /// The block's digest.
    pub digest: Digest,
    /// The block's length, in bytes.
    pub bytes: usize,
    /// Whether it is a note of the log itself, and no record of its user.
    pub is_note: bool,
}

/// A block that holds in every respect.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    body: &'a [u8],
    summary: Summary,
}

/// One record of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'a> {
    /// Its sequence.
    pub sequence: u64,
    /// Its offset from the start of its block.
    pub offset: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Chain {
    /// A chain whose next block must name `previous` and begin with record `next_sequence`.
    #[must_use]
    pub fn new(keys: LogKeys, limits: Limits, previous: Digest, next_sequence: u64) -> Self {
        Self {
            keys,
            limits,
            previous,
            next_sequence,
        }
    }

    /// The keys of the log.
    pub(crate) fn keys(&self) -> &LogKeys {
        &self.keys
    }

    /// Digest of the last block followed.
    #[must_use]
    pub fn previous(&self) -> Digest {
        self.previous
    }

    /// Sequence that the next record must have.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Moves past a block.
    pub fn follow(&mut self, block: &Summary) {
        self.previous = block.digest;
        self.next_sequence = block.next_sequence;
    }

    /// Tells from its header how long the block is that `bytes` begin with.
    ///
    /// # Errors
    /// [`Fault::BlockHeader`] for a header that fails its checksum, [`Fault::TooLarge`] for one beyond the limits.
    pub fn extent(&self, bytes: &[u8]) -> Result<Extent, Fault> {
        let Some(raw) = bytes.first_chunk::<BLOCK_HEADER_BYTES>() else {
            return Ok(Extent::Short(BLOCK_HEADER_BYTES));
        };
        if raw.iter().all(|byte| *byte == 0) {
            return Ok(Extent::Blank);
        }
        let sequence = self.next_sequence;
        let header = Header::decode(&self.keys, raw).ok_or(Fault::BlockHeader { sequence })?;
        if header.body as usize > self.limits.max_block_bytes {
            return Err(Fault::TooLarge {
                sequence,
                bytes: u64::from(header.body),
                limit: self.limits.max_block_bytes as u64,
            });
        }
        usize::try_from(block_bytes(u64::from(header.body)))
            .map(Extent::Whole)
            .map_err(|_| Fault::BlockHeader { sequence })
    }

    /// Decodes the block that `bytes` begin with and proves it: its digest, its frames, its place in the chain.
    ///
    /// # Errors
    /// The [`Fault`] that names what is wrong; [`Fault::CutShort`] when `bytes` hold less than the block.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Block<'a>, Fault> {
        let sequence = self.next_sequence;
        let Extent::Whole(length) = self.extent(bytes)? else {
            return Err(Fault::CutShort { sequence });
        };
        let whole = bytes.get(..length).ok_or(Fault::CutShort { sequence })?;
        let parts = whole
            .split_first_chunk::<BLOCK_HEADER_BYTES>()
            .and_then(|(raw, rest)| {
                Some((
                    Header::decode(&self.keys, raw)?,
                    rest.split_last_chunk::<DIGEST_BYTES>()?,
                ))
            });
        let Some((header, (body, stored))) = parts else {
            return Err(Fault::BlockHeader { sequence });
        };
        let signed = whole.get(..length - DIGEST_BYTES).unwrap_or_default();
        let digest = self.keys.block_digest(signed);
        if digest.as_bytes() != stored {
            return Err(self.locate(&header, body));
        }
        self.check_place(&header)?;
        self.check_frames(&header, body)?;
        let summary = Summary {
            first_sequence: header.first,
            next_sequence: header.end(),
            durable: header.durable,
            digest,
            bytes: length,
            is_note: header.is_note,
        };
        Ok(Block { body, summary })
    }

    fn check_place(&self, header: &Header) -> Result<(), Fault> {
        if header.first != self.next_sequence {
            return Err(Fault::Sequence {
                wanted: self.next_sequence,
                found: header.first,
            });
        }
        if header.previous != self.previous {
            return Err(Fault::Chain {
                sequence: header.first,
            });
        }
        Ok(())
    }

    /// Frames of a block whose digest holds: only a faulty or hostile writer can have made them wrong.
    fn check_frames(&self, header: &Header, body: &[u8]) -> Result<(), Fault> {
        let mut rest = body;
        for sequence in header.first..header.end() {
            let (frame, _, after) = read_frame(rest).ok_or(Fault::Record { sequence })?;
            if frame.sequence != sequence {
                return Err(Fault::Sequence {
                    wanted: sequence,
                    found: frame.sequence,
                });
            }
            if frame.length > self.limits.max_record_bytes {
                return Err(Fault::TooLarge {
                    sequence,
                    bytes: frame.length as u64,
                    limit: self.limits.max_record_bytes as u64,
                });
            }
            rest = after;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Fault::BlockHeader {
                sequence: header.first,
            })
        }
    }

    /// The digest of a block does not hold: the checksums say which record is to blame.
    fn locate(&self, header: &Header, body: &[u8]) -> Fault {
        let mut damage = Damage::new(&self.keys, header, body);
        match damage.next() {
            Some((Some(sequence), _)) => Fault::Record { sequence },
            _ => Fault::BlockDigest {
                first: header.first,
                end: header.end(),
            },
        }
    }

    /// Ranges of the block at the start of `bytes` (which has a sound header) that fail their checks, by
    /// offset from its start; the digest at its end when nothing else does.
    pub(crate) fn damaged_ranges(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let Some((raw, rest)) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>() else {
            return Vec::new();
        };
        let Some(header) = Header::decode(&self.keys, raw) else {
            return Vec::new();
        };
        let body = rest.get(..header.body as usize).unwrap_or(rest);
        let mut ranges: Vec<_> = Damage::new(&self.keys, &header, body)
            .map(|(_, range)| range.start + BLOCK_HEADER_BYTES..range.end + BLOCK_HEADER_BYTES)
            .collect();
        if ranges.is_empty() {
            let digest = BLOCK_HEADER_BYTES + body.len();
            ranges.push(digest..digest + DIGEST_BYTES);
        }
        ranges
    }

    /// Whether these are the bytes of a whole block whose digest holds, whatever its records are.
    pub(crate) fn is_sealed(&self, bytes: &[u8]) -> bool {
        (bytes.split_last_chunk::<DIGEST_BYTES>())
            .is_some_and(|(signed, stored)| self.keys.block_digest(signed).as_bytes() == stored)
    }

    /// Whether the bytes of a block that is not sealed (and has a sound header) end before its digest does: what a write
    /// leaves that failed on the way.
    pub(crate) fn ends_inside(&self, bytes: &[u8]) -> bool {
        let Some((signed, stored)) = bytes.split_last_chunk::<DIGEST_BYTES>() else {
            return true;
        };
        let written = DIGEST_BYTES - stored.iter().rev().take_while(|byte| **byte == 0).count();
        // As long as no byte of the digest is there, the records may end anywhere before.
        written == 0
            || stored.get(..written) == self.keys.block_digest(signed).as_bytes().get(..written)
    }

    /// Whether a block header may begin with these bytes.
    pub(crate) fn is_magic(bytes: &[u8]) -> bool {
        bytes == MAGIC
    }

    /// Whether a block may have this length.
    pub(crate) fn allows(&self, bytes: u64) -> bool {
        bytes <= block_bytes(self.limits.max_block_bytes as u64)
    }

    /// What is wrong with the place of a block whose header is sound; `None` where it follows, and where no sound header is.
    pub(crate) fn misplaced(&self, header: &[u8]) -> Option<Fault> {
        let header = Header::decode(&self.keys, header.first_chunk()?)?;
        self.check_place(&header).err()
    }

    /// Reads a header wherever it stands, whatever its place in the chain.
    pub(crate) fn stray_header(&self, bytes: &[u8]) -> Option<StrayHeader> {
        let header = Header::decode(&self.keys, bytes.first_chunk::<BLOCK_HEADER_BYTES>()?)?;
        Some(StrayHeader {
            first: header.first,
            durable: header.durable,
            bytes: block_bytes(u64::from(header.body)),
        })
    }

    /// If `bytes` begin with a block that holds by itself, the chain as it would stand before it.
    pub(crate) fn before_stray(&self, bytes: &[u8]) -> Option<Self> {
        let header = Header::decode(&self.keys, bytes.first_chunk::<BLOCK_HEADER_BYTES>()?)?;
        let place = Self::new(
            self.keys.clone(),
            self.limits,
            header.previous,
            header.first,
        );
        place.decode(bytes).is_ok().then_some(place)
    }
}

/// What a header says that was found out of its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrayHeader {
    pub(crate) first: u64,
    pub(crate) durable: u64,
    pub(crate) bytes: u64,
}

impl<'a> Block<'a> {
    /// The block without its bytes.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Its records, in order.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        Records {
            rest: self.body,
            offset: BLOCK_HEADER_BYTES,
        }
    }
}

/// Iterator over the records of a [`Block`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (frame, bytes, after) = read_frame(self.rest)?;
        let record = Record {
            sequence: frame.sequence,
            offset: self.offset,
            bytes,
        };
        self.offset += RECORD_HEADER_BYTES + bytes.len();
        self.rest = after;
        Some(record)
    }
}

/// The frame in front of a record's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) length: usize,
    pub(crate) sequence: u64,
    pub(crate) checksum: u64,
    raw: [u8; 12],
}

impl Frame {
    pub(crate) fn decode(raw: &[u8; RECORD_HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, rest @ ..] = *raw;
        Self {
            length: u32::from_le_bytes([a, b, c, d]) as usize,
            sequence: u64::from_le_bytes([e, f, g, h, i, j, k, l]),
            checksum: u64::from_le_bytes(rest),
            raw: [a, b, c, d, e, f, g, h, i, j, k, l],
        }
    }

    pub(crate) fn holds(&self, keys: &LogKeys, bytes: &[u8]) -> bool {
        keys.record_checksum(&self.raw, bytes) == self.checksum
    }
}

/// Splits the first record off: its frame, its bytes, what follows.
pub(crate) fn read_frame(bytes: &[u8]) -> Option<(Frame, &[u8], &[u8])> {
    let (raw, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let frame = Frame::decode(raw);
    let (record, after) = rest.split_at_checked(frame.length)?;
    Some((frame, record, after))
}

/// Walks a damaged body: what fails, with the record's sequence where it is known.
struct Damage<'a> {
    keys: &'a LogKeys,
    body: &'a [u8],
    at: usize,
    sequence: u64,
    end: u64,
}

impl<'a> Damage<'a> {
    fn new(keys: &'a LogKeys, header: &Header, body: &'a [u8]) -> Self {
        Self {
            keys,
            body,
            at: 0,
            sequence: header.first,
            end: header.end(),
        }
    }
}

impl Iterator for Damage<'_> {
    type Item = (Option<u64>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.body.len() {
            let start = self.at;
            let sequence = self.sequence;
            let rest = self.body.get(start..).unwrap_or_default();
            let known = (sequence < self.end).then_some(sequence);
            let Some((frame, bytes, _)) =
                read_frame(rest).filter(|(frame, ..)| frame.sequence == sequence)
            else {
                // No telling where the next record begins: all the rest is lost with this one.
                self.at = self.body.len();
                return Some((known, start..self.at));
            };
            self.at += RECORD_HEADER_BYTES + bytes.len();
            self.sequence += 1;
            if !frame.holds(self.keys, bytes) {
                return Some((known, start..self.at));
            }
        }
        None
    }
}

/// A block header whose checksum holds.
struct Header {
    count: u32,
    body: u32,
    first: u64,
    durable: u64,
    previous: Digest,
    is_note: bool,
}

impl Header {
    fn decode(keys: &LogKeys, raw: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let (signed, checksum) = raw.split_last_chunk::<8>()?;
        let (magic, rest) = signed.split_first_chunk::<4>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (body, rest) = rest.split_first_chunk::<4>()?;
        let (flags, rest) = rest.split_first_chunk::<4>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (durable, previous) = rest.split_first_chunk::<8>()?;
        let header = Self {
            count: u32::from_le_bytes(*count),
            body: u32::from_le_bytes(*body),
            first: u64::from_le_bytes(*first),
            durable: u64::from_le_bytes(*durable),
            previous: Digest::from_bytes(*previous.first_chunk::<32>()?),
            is_note: *flags != [0; 4],
        };
        let sound = *magic == MAGIC
            && u32::from_le_bytes(*flags) <= 1
            && header.count > 0
            && header.first.checked_add(u64::from(header.count)).is_some()
            && keys.header_checksum(signed) == u64::from_le_bytes(*checksum);
        sound.then_some(header)
    }

    fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }
}
