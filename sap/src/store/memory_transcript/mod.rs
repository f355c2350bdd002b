//! A transcript that lives as long as the process.

use std::iter;
use std::sync::{Arc, Mutex};

use ubos_common::canon::{Digest, Domain};
use ubos_common::json;

use super::made::{Line, Shelf};
use super::memory_cache::{MAX_BYTES, lock};
use crate::future::{BoxFuture, apart, ready};
use crate::transcript::{Entry, Head, Proof, Transcript, TranscriptError, Verdict};

/// A transcript in memory, chained like one in files, and bounded in entries and in bytes: what would be above a bound is
/// not taken, so that its task is not answered. Entries behind the last full block of 32 KiB are proven by a head that was kept.
///
/// A log that anybody can fill, such as that of a processor's [Nacks](crate::processor::Processor::refusals), rather
/// [keeps the newest](Self::keeping_newest).
#[derive(Debug)]
pub struct MemoryTranscript {
    /// Shared with what is being made of long entries on another thread.
    line: Arc<Line<Chain>>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    entries: usize,
    bytes: usize,
    /// At a bound the oldest go.
    keeps_newest: bool,
}

#[derive(Debug)]
struct Chain {
    domain: Domain,
    bounds: Bounds,
    blocks: Mutex<Blocks>,
}

/// Entries in blocks, each of which begins with the digest of the one before: BLAKE3 takes many chunks at once, so a digest
/// of a block costs a fraction of a digest an entry.
#[derive(Debug)]
struct Blocks {
    full: Vec<Block>,
    open: Block,
    /// The number of the first entry that is left.
    first: usize,
    /// All that were taken.
    entries: usize,
    /// Of those that are left.
    bytes: usize,
}

#[derive(Debug)]
struct Block {
    /// The number of its first entry.
    first: usize,
    /// The digest of the block before, then the texts of its entries.
    text: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl MemoryTranscript {
    /// A transcript of at most `max_entries` entries and 64 MiB.
    #[must_use]
    pub fn new(max_entries: usize) -> Self {
        Self::within(Bounds {
            entries: max_entries,
            bytes: MAX_BYTES,
            keeps_newest: false,
        })
    }

    fn within(bounds: Bounds) -> Self {
        let chain = Chain {
            domain: Domain::new("ubos sap 2026-11 transcript in memory"),
            bounds,
            blocks: Mutex::new(Blocks {
                full: Vec::new(),
                open: Block::after(&[0; LINK], 0),
                first: 0,
                entries: 0,
                bytes: 0,
            }),
        };
        Self {
            line: Arc::new(Line::new(chain)),
        }
    }

    /// The same, empty, for at most so many bytes of entries.
    #[must_use]
    pub fn with_max_bytes(self, bytes: usize) -> Self {
        Self::within(Bounds {
            bytes,
            ..self.line.shelf.bounds
        })
    }

    /// The same, empty, keeping the newest: at a bound the oldest entries go, an eighth of the bound at once, and what comes is taken. An
    /// entry that went, and a head before those that are left, are [`TranscriptError::Archived`].
    #[must_use]
    pub fn keeping_newest(self) -> Self {
        Self::within(Bounds {
            keeps_newest: true,
            ..self.line.shelf.bounds
        })
    }

    /// Entries that went, because newer ones came.
    #[must_use]
    pub fn removed(&self) -> u64 {
        lock(&self.line.shelf.blocks).first as u64
    }
}

impl Bounds {
    /// Whether a block is full. Where whole blocks go, each is a part of what may be there.
    const fn is_full(&self, block: &Block) -> bool {
        let is_part =
            block.ends.len() > self.entries / PARTS || block.text.len() > self.bytes / PARTS;
        block.text.len() >= BLOCK || self.keeps_newest && is_part
    }
}

impl Shelf for Chain {
    fn add(&self, entry: &Entry) -> Result<u64, TranscriptError> {
        let bounds = self.bounds;
        let blocks = &mut *lock(&self.blocks);
        while blocks.entries - blocks.first >= bounds.entries {
            if !(bounds.keeps_newest && self.remove_oldest(blocks)) {
                return Err(bounds.full());
            }
        }
        let bytes = loop {
            let left = bounds.bytes.saturating_sub(blocks.bytes);
            if let Some(bytes) = blocks.open.push(entry, left) {
                break bytes;
            }
            // For one that never fits none goes.
            let makes_room = bounds.keeps_newest && json::to_vec(entry).len() <= bounds.bytes;
            if !(makes_room && self.remove_oldest(blocks)) {
                return Err(bounds.full_of_bytes());
            }
        };
        blocks.bytes += bytes;
        blocks.entries += 1;
        if bounds.is_full(&blocks.open) {
            self.seal(blocks);
        }
        Ok(blocks.entries as u64 - 1)
    }

    #[cfg(feature = "driver")]
    fn check_room(&self, entries: usize, bytes: usize) -> Result<(), TranscriptError> {
        let blocks = lock(&self.blocks);
        let (taken, taken_bytes) = match self.bounds.keeps_newest {
            // What is there goes for what comes.
            true => (0, 0),
            false => (blocks.entries, blocks.bytes),
        };
        if entries > self.bounds.entries.saturating_sub(taken) {
            return Err(self.bounds.full());
        }
        if bytes > self.bounds.bytes.saturating_sub(taken_bytes) {
            return Err(self.bounds.full_of_bytes());
        }
        Ok(())
    }
}

impl Bounds {
    const fn full(self) -> TranscriptError {
        TranscriptError::Full {
            limit: self.entries,
        }
    }

    const fn full_of_bytes(self) -> TranscriptError {
        TranscriptError::FullOfBytes { limit: self.bytes }
    }
}

impl Chain {
    /// Ends the open block, and begins the next.
    fn seal(&self, blocks: &mut Blocks) {
        let digest = Digest::of(&self.domain, &blocks.open.text);
        let next = Block::after(digest.as_bytes(), blocks.entries);
        let mut full = std::mem::replace(&mut blocks.open, next);
        full.text.shrink_to_fit();
        full.ends.shrink_to_fit();
        blocks.full.push(full);
    }

    /// Whether there was a block that could go.
    fn remove_oldest(&self, blocks: &mut Blocks) -> bool {
        if blocks.full.is_empty() && !blocks.open.ends.is_empty() {
            self.seal(blocks);
        }
        if blocks.full.is_empty() {
            return false;
        }
        let oldest = blocks.full.remove(0);
        blocks.first += oldest.ends.len();
        blocks.bytes = blocks.bytes.saturating_sub(oldest.text.len() - LINK);
        true
    }

    /// The end of the first `count` entries.
    fn head(&self, blocks: &Blocks, count: usize) -> Head {
        let chained = count.checked_sub(1).and_then(|last| blocks.up_to(last));
        let digest = chained.map_or_else(
            || Digest::of_bytes(b""),
            |text| Digest::of(&self.domain, text),
        );
        Head::from(format!("memory:{count}:{digest}"))
    }

    /// The first entry of a block that is not what the block behind it says.
    fn damaged(&self, blocks: &Blocks) -> Option<usize> {
        let next = blocks.full.iter().skip(1).chain([&blocks.open]);
        let mut pairs = blocks.full.iter().zip(next);
        let holds = |block: &Block, next: &Block| {
            next.text
                .starts_with(Digest::of(&self.domain, &block.text).as_bytes())
        };
        pairs
            .find(|(block, next)| !holds(block, next))
            .map(|(block, _)| block.first)
    }
}

impl Blocks {
    fn all(&self) -> impl Iterator<Item = &Block> {
        self.full.iter().chain([&self.open])
    }

    /// The text of the block that has an entry, up to its end.
    fn up_to(&self, entry: usize) -> Option<&[u8]> {
        let behind = self.full.partition_point(|block| block.first <= entry);
        let full = behind.checked_sub(1).and_then(|n| self.full.get(n));
        let block = if entry >= self.open.first {
            Some(&self.open)
        } else {
            full
        }?;
        let end = block.ends.get(entry - block.first)?;
        block.text.get(..*end)
    }

    /// Whether a head was the end at some time.
    fn knows(&self, head: &Head, chain: &Chain) -> bool {
        count(head).is_some_and(|count| count <= self.entries && chain.head(self, count) == *head)
    }

    const fn archived(&self) -> TranscriptError {
        TranscriptError::Archived {
            first: self.first as u64,
        }
    }
}

/// Of how many entries a head is the end.
fn count(head: &Head) -> Option<usize> {
    head.as_ref().split(':').nth(1)?.parse().ok()
}

impl Block {
    fn after(link: &[u8; LINK], first: usize) -> Self {
        Self {
            first,
            text: link.to_vec(),
            ends: Vec::new(),
        }
    }

    /// Adds an entry of at most so many bytes, and gives how many it has.
    fn push(&mut self, entry: &Entry, most: usize) -> Option<usize> {
        let start = self.text.len();
        json::Write::write(entry, &mut self.text);
        let bytes = self.text.len() - start;
        if bytes > most {
            self.text.truncate(start);
            return None;
        }
        self.ends.push(self.text.len());
        Some(bytes)
    }

    /// The texts from the entry `number` on.
    fn from(&self, number: usize) -> impl Iterator<Item = &[u8]> {
        let starts = iter::once(&LINK).chain(&self.ends);
        let texts = starts
            .zip(&self.ends)
            .skip(number.saturating_sub(self.first));
        texts.filter_map(|(start, end)| self.text.get(*start..*end))
    }
}

impl Default for MemoryTranscript {
    /// At most 100,000 entries and 64 MiB.
    fn default() -> Self {
        Self::new(100_000)
    }
}

impl Transcript for MemoryTranscript {
    fn record(&self, entry: &Entry) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.line.record(entry)
    }

    /// Made on another thread where the entry is long (feature `driver`). What comes behind it waits for it, so that each has
    /// its place in the order of the calls; what waits counts for the bounds.
    fn record_made(
        &self,
        entry: Entry,
        make: fn(Entry) -> Entry,
    ) -> BoxFuture<'_, Result<u64, TranscriptError>> {
        self.line.record_made(entry, make)
    }

    fn read(&self, from: u64, max: usize) -> BoxFuture<'_, Result<Vec<Entry>, TranscriptError>> {
        let blocks = lock(&self.line.shelf.blocks);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        if from < blocks.first {
            return ready(Err(blocks.archived()));
        }
        let behind = blocks
            .all()
            .skip_while(|block| block.first + block.ends.len() <= from);
        let texts = behind.flat_map(|block| block.from(from)).take(max);
        // Others record meanwhile.
        let texts: Vec<Vec<u8>> = texts.map(<[u8]>::to_vec).collect();
        drop(blocks);
        let bytes: usize = texts.iter().map(Vec::len).sum();
        let decode = move || texts.iter().map(|text| Entry::decode(text)).collect();
        if bytes <= LONG {
            return ready(decode());
        }
        Box::pin(apart(decode))
    }

    fn verify(&self, kept: Option<&Head>) -> Result<Proof, TranscriptError> {
        let blocks = &*lock(&self.line.shelf.blocks);
        // Of what went nothing can be proven.
        if kept
            .and_then(count)
            .is_some_and(|count| 0 < count && count <= blocks.first)
        {
            return Err(blocks.archived());
        }
        let verdict = if let Some(entry) = self.line.shelf.damaged(blocks) {
            Verdict::broken(entry as u64, "record is damaged")
        } else if kept.is_some_and(|head| !blocks.knows(head, &self.line.shelf)) {
            Verdict::broken(blocks.entries as u64, "the head that was kept is not here")
        } else {
            Verdict::Intact
        };
        Ok(Proof {
            records: (blocks.entries - blocks.first) as u64,
            head: self.line.shelf.head(blocks, blocks.entries),
            verdict,
        })
    }
}

/// Bytes from which on a block is full.
const BLOCK: usize = 32 << 10;
/// The parts that go one by one where the newest are kept.
const PARTS: usize = 8;
/// Bytes of the digest that a block begins with.
const LINK: usize = 32;
/// Bytes of entries that are read at once.
const LONG: usize = 64 << 10;

#[cfg(test)]
mod tests;
