//! Writing finished blocks to the segment that is open.

use super::catalog::create_segment;
use super::file::LogDir;
use super::open::Tip;
use crate::log::Digest;
use crate::log::format::{BlockBuilder, LogKeys, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::trace::debug;
use std::borrow::Cow;
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
    /// Up to where zeroes were written into the segment.
    zeroed: u64,
}

impl Appender {
    pub(crate) fn new(dir: Arc<dyn LogDir>, keys: LogKeys, segment_bytes: u64, tip: Tip) -> Self {
        Self {
            dir,
            keys,
            segment_bytes,
            tip,
            zeroed: 0,
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
        if sync {
            let bytes = self.with_zeroes_ahead(block.as_bytes(), place.offset);
            self.tip.file.write_at(&bytes, place.offset)?;
            self.tip.file.sync()?;
        } else {
            self.tip.file.write_at(block.as_bytes(), place.offset)?;
        }
        self.tip.end = place.offset + block.as_bytes().len() as u64;
        self.tip.previous = digest;
        Ok(digest)
    }

    /// The block with zeroes behind it from time to time. The first write to space that was only allocated changes the
    /// file's metadata, which makes the sync dearer by a sixth (ext4): so that is paid once in many small blocks.
    fn with_zeroes_ahead<'b>(&mut self, block: &'b [u8], offset: u64) -> Cow<'b, [u8]> {
        let end = offset + block.len() as u64;
        if end <= self.zeroed || block.len() > ZEROES_AHEAD / 16 {
            return Cow::Borrowed(block);
        }
        let left = usize::try_from(self.segment_bytes.saturating_sub(end)).unwrap_or(usize::MAX);
        let mut bytes = block.to_vec();
        bytes.resize(block.len() + ZEROES_AHEAD.min(left), 0);
        self.zeroed = offset + bytes.len() as u64;
        Cow::Owned(bytes)
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
        debug!(log = %self.keys.id(), segment = index, "segment begun");
        self.tip.end = SEGMENT_HEADER_BYTES as u64;
        self.zeroed = 0;
        Ok(())
    }
}

/// More would delay the one sync that writes them, less would come too often.
const ZEROES_AHEAD: usize = 256 << 10;
