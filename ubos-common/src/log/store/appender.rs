//! Writing finished blocks to the segment that is open.

use super::catalog::create_segment;
use super::file::LogDir;
use super::open::Tip;
use crate::log::Digest;
use crate::log::format::{BlockBuilder, LogKeys, SEGMENT_HEADER_BYTES, SegmentHeader};
use std::io;
use std::sync::Arc;

/// Where a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

impl Place {
    /// Where the block after one of `bytes` begins, which is decided before either is written.
    pub(crate) fn after(self, bytes: u64, segment_bytes: u64) -> Self {
        let offset = self.offset + bytes;
        if offset < segment_bytes {
            return Self { offset, ..self };
        }
        Self {
            segment: self.segment + 1,
            offset: SEGMENT_HEADER_BYTES as u64,
        }
    }
}

/// The one hand that writes. After an error it must not be used again.
#[derive(Debug)]
pub(crate) struct Appender {
    dir: Arc<dyn LogDir>,
    keys: LogKeys,
    segment_bytes: u64,
    tip: Tip,
}

impl Appender {
    pub(crate) fn new(dir: Arc<dyn LogDir>, keys: LogKeys, segment_bytes: u64, tip: Tip) -> Self {
        Self {
            dir,
            keys,
            segment_bytes,
            tip,
        }
    }

    /// Where the next block goes.
    pub(crate) fn next_place(&self) -> Place {
        Place {
            segment: self.tip.segment,
            offset: self.tip.end,
        }
        .after(0, self.segment_bytes)
    }

    /// Writes `block`, whose place was decided before; syncs when asked.
    pub(crate) fn write(
        &mut self,
        block: &mut BlockBuilder,
        place: Place,
        first: u64,
        durable: u64,
        sync: bool,
    ) -> io::Result<Digest> {
        if place.segment != self.tip.segment {
            self.rotate(first)?;
        }
        let digest = block.finish(self.tip.previous, durable);
        self.tip.file.write_at(block.as_bytes(), place.offset)?;
        if sync {
            self.tip.file.sync()?;
        }
        self.tip.end = place.offset + block.as_bytes().len() as u64;
        self.tip.previous = digest;
        Ok(digest)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.tip.file.sync()
    }

    /// Gives back the space taken ahead and makes all durable.
    pub(crate) fn seal(&self) -> io::Result<()> {
        self.tip.file.set_len(self.tip.end)?;
        self.tip.file.sync()
    }

    /// Number of the segment written to, which must stay where it is.
    pub(crate) fn segment(&self) -> u64 {
        self.tip.segment
    }

    fn rotate(&mut self, first_sequence: u64) -> io::Result<()> {
        self.seal()?;
        let index = self.tip.segment + 1;
        let header = SegmentHeader::new(
            self.keys.id(),
            self.tip.kind,
            index,
            first_sequence,
            self.tip.previous,
        );
        self.tip.file = create_segment(self.dir.as_ref(), &self.keys, &header, self.segment_bytes)?;
        self.tip.segment = index;
        self.tip.end = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }
}
