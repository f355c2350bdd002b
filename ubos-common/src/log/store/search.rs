//! Searching a file for blocks where nothing tells where one begins.

use super::file::{LogFile, read_full, read_up_to};
use crate::log::format::{BLOCK_HEADER_BYTES, Chain, DIGEST_BYTES};
use std::io;
use std::sync::Arc;

/// Searches a file for blocks that hold by themselves. It only goes forward, so that each byte is read a bounded
/// number of times however many blocks there are.
#[derive(Debug)]
pub(crate) struct Search {
    file: Arc<dyn LogFile>,
    /// Bytes of the file from `base` on.
    window: Vec<u8>,
    base: u64,
    /// Where the search goes on.
    at: u64,
    /// One past the last byte that may be of a block; the digest of the last block may end behind it, in zeroes.
    end: u64,
    /// Bytes that may still be hashed: headers that lie about the length of their block overlap.
    budget: u64,
}

/// A block found by searching.
#[derive(Clone, Debug)]
pub(crate) struct Stray {
    pub(crate) offset: u64,
    pub(crate) durable: u64,
    /// The chain as it stands before the block; absent when the budget did not allow to prove the block.
    pub(crate) before: Option<Chain>,
}

impl Search {
    pub(crate) fn new(file: Arc<dyn LogFile>, from: u64, end: u64) -> Self {
        Self {
            file,
            window: Vec::new(),
            base: from,
            at: from,
            end,
            budget: end.saturating_sub(from).saturating_mul(HASHES_A_BYTE),
        }
    }

    /// Goes on at `offset` if the search is not behind it yet.
    pub(crate) fn pass(&mut self, offset: u64) {
        self.at = self.at.max(offset);
    }

    /// Where the search goes on.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next block of the log of `chain` that lies ahead in the chain.
    pub(crate) fn next(&mut self, chain: &Chain) -> io::Result<Option<Stray>> {
        while self.has(BLOCK_HEADER_BYTES)? {
            let Some(skip) = self.ahead().windows(MAGIC_BYTES).position(Chain::is_magic) else {
                self.at += (self.ahead().len() - MAGIC_BYTES + 1) as u64;
                continue;
            };
            self.at += skip as u64;
            if !self.has(BLOCK_HEADER_BYTES)? {
                break;
            }
            let stray = chain
                .stray_header(self.ahead())
                .filter(|header| header.first >= chain.next_sequence());
            if let Some(header) = stray
                && let Some(stray) = self.prove(chain, header.durable, header.bytes)?
            {
                return Ok(Some(stray));
            }
            self.at += 1;
        }
        Ok(None)
    }

    /// Asks for the digest of the block, too: a record may hold what looks like a header.
    fn prove(&mut self, chain: &Chain, durable: u64, bytes: u64) -> io::Result<Option<Stray>> {
        let offset = self.at;
        let Some(length) = usize::try_from(bytes)
            .ok()
            .filter(|_| bytes <= self.end - offset + DIGEST_BYTES as u64 && chain.allows(bytes))
        else {
            return Ok(None);
        };
        let mut stray = Stray {
            offset,
            durable,
            before: None,
        };
        let Some(left) = self.budget.checked_sub(bytes) else {
            // Refusing what cannot be told is the safe side: nothing is cut off then.
            self.at += 1;
            return Ok(Some(stray));
        };
        self.budget = left;
        let before = if length <= self.ahead().len() {
            chain.before_stray(self.ahead())
        } else {
            chain.before_stray(&read_up_to(self.file.as_ref(), length, offset)?)
        };
        if before.is_none() {
            return Ok(None);
        }
        stray.before = before;
        self.at = offset + bytes;
        Ok(Some(stray))
    }

    /// The bytes at hand from where the search goes on.
    fn ahead(&self) -> &[u8] {
        let passed = usize::try_from(self.at - self.base).unwrap_or(usize::MAX);
        self.window.get(passed..).unwrap_or_default()
    }

    /// Whether `wanted` bytes lie ahead; reads on when they are not at hand.
    fn has(&mut self, wanted: usize) -> io::Result<bool> {
        if self.ahead().len() >= wanted {
            return Ok(true);
        }
        if self.end.saturating_sub(self.at) < wanted as u64 {
            return Ok(false);
        }
        let mut window = self.ahead().to_vec();
        let kept = window.len();
        let space = usize::try_from(self.end - self.at).map_or(CHUNK, |left| left.min(CHUNK));
        window.resize(space.max(kept), 0);
        let place = window.get_mut(kept..).unwrap_or_default();
        let read = read_full(self.file.as_ref(), place, self.at + kept as u64)?;
        window.truncate(kept + read);
        self.window = window;
        self.base = self.at;
        Ok(self.window.len() >= wanted)
    }
}

const MAGIC_BYTES: usize = 4;
const CHUNK: usize = 256 << 10;
/// How often a byte may be hashed in one search. Blocks that are sound take one.
const HASHES_A_BYTE: u64 = 8;
