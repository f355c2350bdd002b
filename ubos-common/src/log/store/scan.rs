//! Walking the blocks of one segment in large reads.

use super::ahead::{HEADROOM, ReadAhead};
use super::file::{LogFile, read_full, read_up_to};
use crate::log::format::{BLOCK_HEADER_BYTES, Chain, Extent, Fault, Summary};
use std::io;
use std::sync::Arc;

/// Reads block after block and follows the chain; a block's bytes stay at hand until the next one is read.
#[derive(Debug)]
pub(crate) struct Scanner {
    file: Arc<dyn LogFile>,
    chain: Chain,
    /// Where the next block begins in the file.
    offset: u64,
    /// Room for what is read; the bytes from `start` to `filled` are those of the file from `base` on.
    window: Vec<u8>,
    start: usize,
    filled: usize,
    base: u64,
    ahead: Option<ReadAhead>,
}

/// What comes next in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// A block that holds, at this offset.
    Block(u64, Summary),
    /// Zeroes or the end of the file: nothing (more) was written here, as far as the next header tells.
    End,
    /// The bytes are no block, or not the one that must follow.
    Fault(Fault),
}

/// What stands at the next place of the file now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A block that holds.
    Block,
    /// Zeroes, or less than a header.
    End,
    /// The bytes are no block, or not the one that must follow.
    Fault(Fault),
}

impl Look {
    pub(crate) fn fault(self) -> Option<Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Block | Self::End => None,
        }
    }
}

impl Scanner {
    pub(crate) fn new(file: Arc<dyn LogFile>, chain: Chain, offset: u64) -> Self {
        Self {
            file,
            chain,
            offset,
            window: Vec::new(),
            start: 0,
            filled: 0,
            base: offset,
            ahead: None,
        }
    }

    /// Reads with a thread ahead if the file is large: for going through all of it.
    pub(crate) fn read_ahead(mut self) -> io::Result<Self> {
        /// Below this a thread and its buffers cost more than they save.
        const LARGE: u64 = 4 << 20;
        if self.file.len()? >= LARGE {
            self.ahead = ReadAhead::new(Arc::clone(&self.file));
        }
        Ok(self)
    }

    pub(crate) fn chain(&self) -> &Chain {
        &self.chain
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn file(&self) -> &Arc<dyn LogFile> {
        &self.file
    }

    /// Forgets what was read ahead: the writer may have gone on since.
    pub(crate) fn refresh(&mut self) {
        (self.start, self.filled) = (0, 0);
        self.base = self.offset;
        self.ahead = None;
    }

    /// Looks at the next place of the file as it is now. What was read ahead stays, unless a block is there now
    /// that holds; [`next`](Self::next) takes it.
    pub(crate) fn look(&mut self) -> io::Result<Look> {
        let mut bytes = read_up_to(self.file.as_ref(), BLOCK_HEADER_BYTES, self.offset)?;
        match self.chain.extent(&bytes) {
            Ok(Extent::Whole(length)) => {
                bytes = read_up_to(self.file.as_ref(), length, self.offset)?;
            }
            Ok(Extent::Short(_) | Extent::Blank) => return Ok(Look::End),
            Err(fault) => return Ok(Look::Fault(fault)),
        }
        Ok(match self.chain.decode(&bytes) {
            Ok(_) => {
                self.refresh();
                Look::Block
            }
            Err(fault) => Look::Fault(fault),
        })
    }

    /// Goes on behind a gap.
    pub(crate) fn jump(&mut self, offset: u64, chain: Chain) {
        self.offset = offset;
        self.chain = chain;
    }

    pub(crate) fn next(&mut self) -> io::Result<Next> {
        loop {
            let have = self.ahead();
            let wanted = match self.chain.extent(have) {
                Ok(Extent::Blank) => return Ok(Next::End),
                Ok(Extent::Short(wanted)) => wanted,
                Ok(Extent::Whole(wanted)) if have.len() < wanted => wanted,
                Ok(Extent::Whole(_)) => return Ok(self.take()),
                Err(fault) => return Ok(Next::Fault(fault)),
            };
            if !self.fill(wanted)? {
                let blank = self.ahead().iter().all(|byte| *byte == 0);
                let sequence = self.chain.next_sequence();
                return Ok(if blank {
                    Next::End
                } else {
                    Next::Fault(Fault::CutShort { sequence })
                });
            }
        }
    }

    /// The bytes from `offset` of the file on, as far as they are at hand.
    pub(crate) fn bytes_from(&self, offset: u64) -> &[u8] {
        let behind = usize::try_from(offset.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let start = self.start.saturating_add(behind);
        self.window.get(start..self.filled).unwrap_or_default()
    }

    fn ahead(&self) -> &[u8] {
        self.bytes_from(self.offset)
    }

    fn take(&mut self) -> Next {
        let summary = match self.chain.decode(self.ahead()) {
            Ok(block) => block.summary(),
            Err(fault) => return Next::Fault(fault),
        };
        let at = self.offset;
        self.chain.follow(&summary);
        self.offset += summary.bytes as u64;
        Next::Block(at, summary)
    }

    /// Reads on until `wanted` bytes lie ahead; `false` when the file ends before.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        let left = self.ahead().len();
        let passed = self.filled - left;
        if left <= HEADROOM
            && let Some(ahead) = &mut self.ahead
        {
            let spare = core::mem::take(&mut self.window);
            let kept = spare.get(passed..self.filled).unwrap_or_default().to_vec();
            let (piece, count) = ahead.piece(self.offset + left as u64, spare)?;
            self.window = piece;
            self.start = HEADROOM - left;
            if let Some(place) = self.window.get_mut(self.start..HEADROOM) {
                place.copy_from_slice(&kept);
            }
            self.filled = HEADROOM + count;
            self.base = self.offset;
            if left + count >= wanted || count == 0 {
                return Ok(left + count >= wanted);
            }
            // A block over one piece: the rest of it comes the plain way.
            return self.fill_behind(left + count, self.start, wanted);
        }
        self.fill_behind(left, passed, wanted)
    }

    /// Moves the `left` bytes at `passed` of the window to its front and reads behind them.
    fn fill_behind(&mut self, left: usize, passed: usize, wanted: usize) -> io::Result<bool> {
        if self.window.len() < wanted.max(READ_BYTES) {
            // Fresh zeroes cost nothing; growing would write them one by one.
            let mut larger = vec![0; wanted.max(READ_BYTES)];
            let kept = self.window.get(passed..self.filled).unwrap_or_default();
            if let Some(place) = larger.get_mut(..kept.len()) {
                place.copy_from_slice(kept);
            }
            self.window = larger;
        } else {
            self.window.copy_within(passed..self.filled, 0);
        }
        (self.start, self.filled) = (0, left);
        self.base = self.offset;
        let space = self.window.get_mut(self.filled..).unwrap_or_default();
        self.filled += read_full(self.file.as_ref(), space, self.base + self.filled as u64)?;
        Ok(self.filled >= wanted)
    }
}

/// One read: large enough that the system call does not count, small enough for the cache.
const READ_BYTES: usize = 1024 << 10;
