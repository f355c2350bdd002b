//! Reading while the log is written, here or in another process.

use super::catalog::{Segment, gap, has_segment, segment_name, with_segments};
use super::error::{Damage, ReadError};
use super::file::{LogDir, LogFile, read_full, read_up_to};
use super::fs::FsDir;
use super::judge::{Judge, Tail};
use super::scan::{Look, Next, Scanner};
use crate::log::Position;
use crate::log::format::{
    BLOCK_HEADER_BYTES, DIGEST_BYTES, Fault, Frame, Limits, LogKeys, RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES, read_frame,
};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Goes through a log record by record, and fetches single records by position.
///
/// It never writes and takes no lock. It sees whole blocks whose digest and place in the chain hold, and
/// nothing else. A reader made by [`Log::reader`](crate::log::Log::reader) sees what is committed; one of
/// another process also sees a block that is written and not yet synced.
#[derive(Debug)]
pub struct Reader {
    dir: Arc<dyn LogDir>,
    limits: Limits,
    keys: Option<LogKeys>,
    visible: Option<Arc<AtomicU64>>,
    /// The first record wanted.
    from: Option<u64>,
    cursor: Option<Cursor>,
    /// The segment last read from by position.
    opened: Option<(u64, Arc<dyn LogFile>)>,
}

/// A record as [`Reader::next`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// Where it lies; its sequence too.
    pub position: Position,
    /// Its bytes.
    pub bytes: &'a [u8],
}

#[derive(Debug)]
struct Cursor {
    segment: u64,
    scanner: Scanner,
    /// Where in the segment the next record of the present block begins, and where they end.
    at: u64,
    end: u64,
}

impl Reader {
    /// A reader of the log in the folder `path`, from its first record on.
    #[must_use]
    pub fn open(path: impl Into<PathBuf>) -> Self {
        Self::open_in(Arc::new(FsDir::new(path)), Limits::default())
    }

    /// A reader of a folder of any kind; what exceeds `limits` is damage.
    #[must_use]
    pub fn open_in(dir: Arc<dyn LogDir>, limits: Limits) -> Self {
        Self {
            dir,
            limits,
            keys: None,
            visible: None,
            from: None,
            cursor: None,
            opened: None,
        }
    }

    pub(crate) fn of_writer(
        dir: Arc<dyn LogDir>,
        limits: Limits,
        keys: LogKeys,
        visible: Arc<AtomicU64>,
    ) -> Self {
        Self {
            keys: Some(keys),
            visible: Some(visible),
            ..Self::open_in(dir, limits)
        }
    }

    /// Goes on with record `sequence`, which may not be written yet.
    pub fn seek(&mut self, sequence: u64) {
        self.from = Some(sequence);
        self.cursor = None;
    }

    /// Goes to the last record that is there, so that [`next`](Self::next) gives it; `false` where there is none. One
    /// segment is read however long the log is.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn seek_last(&mut self) -> Result<bool, ReadError> {
        // No record is so far: all of the last segment is gone over.
        self.seek(u64::MAX);
        while self.next()?.is_some() {}
        let chain = self.cursor.as_ref().map(|cursor| cursor.scanner.chain());
        let last = chain.and_then(|chain| chain.next_sequence().checked_sub(1));
        self.seek(last.unwrap_or(0));
        Ok(last.is_some())
    }

    /// The next record; `None` when there is none yet: call again later.
    ///
    /// # Errors
    /// [`ReadError`]; the reader stays where it is.
    #[expect(
        clippy::should_implement_trait,
        reason = "the record is lent until the next call"
    )]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        loop {
            if self
                .cursor
                .as_ref()
                .is_none_or(|cursor| cursor.at >= cursor.end)
                && !self.next_block()?
            {
                return Ok(None);
            }
            let Some((at, position, length)) = self.step() else {
                return Ok(None);
            };
            if self.from.is_some_and(|from| position.sequence < from) {
                continue;
            }
            self.from = Some(position.sequence + 1);
            let bytes = self
                .cursor
                .as_ref()
                .and_then(|cursor| cursor.scanner.bytes_from(at).get(..length));
            return Ok(bytes.map(|bytes| Entry { position, bytes }));
        }
    }

    /// Moves past one record of the present block: where its bytes begin, its position, its length.
    fn step(&mut self) -> Option<(u64, Position, usize)> {
        let cursor = self.cursor.as_mut()?;
        let (frame, bytes, _) = read_frame(cursor.scanner.bytes_from(cursor.at))?;
        let position = Position::new(frame.sequence, cursor.segment, cursor.at);
        let start = cursor.at + RECORD_HEADER_BYTES as u64;
        cursor.at = start + bytes.len() as u64;
        Some((start, position, bytes.len()))
    }

    /// The record at `position`, proven by its checksum; one or two reads however long the log is.
    ///
    /// # Errors
    /// [`ReadError::NoRecord`] when that record is not there, [`ReadError::Archived`] when its segment is gone,
    /// [`ReadError::Damaged`] when its bytes fail the checksum.
    pub fn read(&mut self, position: Position) -> Result<Vec<u8>, ReadError> {
        let sequence = position.sequence;
        let missing = ReadError::NoRecord { sequence };
        if self.visible().is_some_and(|end| sequence >= end)
            || position.offset < (SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES) as u64
        {
            return Err(missing);
        }
        let file = self.segment_at(position)?;
        let first = read_up_to(file.as_ref(), FIRST_READ_BYTES, position.offset)?;
        let Some((raw, rest)) = first.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err(missing);
        };
        let frame = Frame::decode(raw);
        if frame.sequence != sequence || frame.length > self.limits.max_record_bytes {
            return Err(missing);
        }
        let mut bytes = rest
            .get(..rest.len().min(frame.length))
            .unwrap_or_default()
            .to_vec();
        let have = bytes.len();
        if have < frame.length {
            bytes.resize(frame.length, 0);
            let behind = position.offset + (RECORD_HEADER_BYTES + have) as u64;
            read_full(
                file.as_ref(),
                bytes.get_mut(have..).unwrap_or_default(),
                behind,
            )?;
        }
        if self.keys()?.is_some_and(|keys| frame.holds(&keys, &bytes)) {
            return Ok(bytes);
        }
        Err(Damage::new(
            position.segment,
            position.offset,
            Fault::Record { sequence },
        )
        .into())
    }

    fn segment_at(&mut self, position: Position) -> Result<Arc<dyn LogFile>, ReadError> {
        if let Some((index, file)) = &self.opened
            && *index == position.segment
        {
            return Ok(Arc::clone(file));
        }
        let file = match self.dir.open(&segment_name(position.segment), false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.absent(position.sequence)?);
            }
            answer => answer?,
        };
        self.opened = Some((position.segment, Arc::clone(&file)));
        Ok(file)
    }

    /// Why the segment of record `wanted` is not there.
    fn absent(&self, wanted: u64) -> Result<ReadError, ReadError> {
        with_segments(self.dir.as_ref(), |found| {
            let first = *found.first().ok_or(ReadError::Missing)?;
            let oldest = Segment::open(self.dir.as_ref(), first, None, false)?.header;
            let first = oldest.first_sequence;
            Ok(if wanted < first {
                ReadError::Archived { wanted, first }
            } else {
                ReadError::NoRecord { sequence: wanted }
            })
        })
    }

    /// Brings the next block under the cursor.
    fn next_block(&mut self) -> Result<bool, ReadError> {
        if self.cursor.is_none() && !self.start()? {
            return Ok(false);
        }
        loop {
            let visible = self.visible();
            let (dir, limits) = (Arc::clone(&self.dir), self.limits);
            let Some(cursor) = self.cursor.as_mut() else {
                return Ok(false);
            };
            if visible.is_some_and(|end| cursor.scanner.chain().next_sequence() >= end) {
                return Ok(false);
            }
            if cursor.take_block()? {
                return Ok(true);
            }
            // Only a look after the next segment was seen tells that this one is at its end.
            let keys = cursor.scanner.chain().keys().clone();
            let next = match Segment::open(dir.as_ref(), cursor.segment + 1, Some(&keys), false) {
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
                answer => Some(answer),
            };
            cursor.scanner.refresh();
            if cursor.take_block()? {
                return Ok(true);
            }
            let wanted = cursor.scanner.chain().next_sequence();
            match next {
                Some(next) => cursor.go_on(next?, limits)?,
                // Segments are archived in their order: while this one is there, the next one was not there yet.
                None if has_segment(dir.as_ref(), cursor.segment)? => {
                    // A writer's reader comes here for what is visible alone.
                    return cursor.wait_or_fail(visible.is_some());
                }
                None => {
                    let index = cursor.segment;
                    self.pass_gone(index, wanted)?;
                }
            }
        }
    }

    /// Segment `index`, which was read to record `wanted`, is gone: fails unless the next one is there by now.
    fn pass_gone(&self, index: u64, wanted: u64) -> Result<(), ReadError> {
        match self.absent(wanted)? {
            ReadError::NoRecord { .. } if has_segment(self.dir.as_ref(), index + 1)? => Ok(()),
            ReadError::NoRecord { .. } => {
                let fault = Fault::MissingSegment { index };
                Err(Damage::new(index, 0, fault).into())
            }
            error => Err(error),
        }
    }

    /// Puts the cursor at the start of the segment that has the first record wanted.
    fn start(&mut self) -> Result<bool, ReadError> {
        let dir = Arc::clone(&self.dir);
        let started = with_segments(dir.as_ref(), |found| match gap(&found) {
            Some(index) => Err(Damage::new(index, 0, Fault::MissingSegment { index }).into()),
            None => self.start_in(&found),
        })?;
        self.cursor = started;
        match (&self.cursor, self.visible.is_some()) {
            (Some(_), _) => Ok(true),
            (None, true) => Ok(false),
            (None, false) => Err(ReadError::Missing),
        }
    }

    fn start_in(&self, found: &[u64]) -> Result<Option<Cursor>, ReadError> {
        let Some(first) = found.first() else {
            return Ok(None);
        };
        let oldest = Segment::open(self.dir.as_ref(), *first, self.keys.as_ref(), false)?;
        let keys = LogKeys::new(oldest.header.log);
        let (mut chosen, first) = (oldest.clone(), oldest.header.first_sequence);
        let wanted = self.from.unwrap_or(first);
        if wanted < first {
            return Err(ReadError::Archived { wanted, first });
        }
        let (mut low, mut high) = (0, found.len());
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            let Some(index) = found.get(middle) else {
                break;
            };
            let segment = Segment::open(self.dir.as_ref(), *index, Some(&keys), false)?;
            if segment.header.first_sequence <= wanted {
                (low, chosen) = (middle, segment);
            } else {
                high = middle;
            }
        }
        let chain = chosen.chain(&keys, self.limits);
        Ok(Some(Cursor::new(chosen, chain)))
    }

    /// Keys of the log; `None` while the folder has no segment.
    fn keys(&mut self) -> Result<Option<LogKeys>, ReadError> {
        if self.keys.is_none() {
            let dir = Arc::clone(&self.dir);
            self.keys = with_segments(dir.as_ref(), |found| {
                let first = found.first();
                let first = first.map(|first| Segment::open(dir.as_ref(), *first, None, false));
                Ok(first
                    .transpose()?
                    .map(|first| LogKeys::new(first.header.log)))
            })?;
        }
        Ok(self.keys.clone())
    }

    fn visible(&self) -> Option<u64> {
        self.visible.as_ref().map(|end| end.load(Ordering::Acquire))
    }
}

impl Cursor {
    fn new(segment: Segment, chain: crate::log::format::Chain) -> Self {
        Self {
            segment: segment.header.index,
            scanner: Scanner::new(segment.file, chain, SEGMENT_HEADER_BYTES as u64),
            at: 0,
            end: 0,
        }
    }

    /// Takes the next block if a whole one is there.
    fn take_block(&mut self) -> io::Result<bool> {
        let (offset, block) = loop {
            match self.scanner.next()? {
                Next::Block(_, block) if block.is_note => {}
                Next::Block(offset, block) => break (offset, block),
                Next::End | Next::Fault(_) => return Ok(false),
            }
        };
        self.at = offset + BLOCK_HEADER_BYTES as u64;
        self.end = offset + (block.bytes - DIGEST_BYTES) as u64;
        Ok(true)
    }

    /// At the end of the last segment: nothing there yet, a block being written, or damage. What `is_committed` must be
    /// there.
    fn wait_or_fail(&mut self, is_committed: bool) -> Result<bool, ReadError> {
        let offset = self.scanner.offset();
        let sequence = self.scanner.chain().next_sequence();
        let mut damage = None;
        for _ in 0..CONFIRMING_LOOKS {
            let look = self.scanner.look()?;
            if look == Look::Block {
                return Ok(self.take_block()?);
            }
            if look == Look::End && !is_committed {
                return Ok(false);
            }
            let mut judge = Judge::new(Arc::clone(self.scanner.file()));
            damage = match judge.judge(self.scanner.chain(), offset, look.fault())? {
                Tail::Damaged(fault) => Some(fault),
                Tail::Clean | Tail::Torn(_) if is_committed => Some(Fault::CutShort { sequence }),
                Tail::Clean | Tail::Torn(_) => return Ok(false),
            };
        }
        damage.map_or(Ok(false), |fault| {
            Err(Damage::new(self.segment, offset, fault).into())
        })
    }

    /// Goes over to the next segment, which is there; this one must be at its very end.
    fn go_on(&mut self, next: Segment, limits: Limits) -> Result<(), ReadError> {
        if let Next::Fault(fault) = self.scanner.next()? {
            return Err(Damage::new(self.segment, self.scanner.offset(), fault).into());
        }
        next.follows(self.scanner.chain())?;
        let chain = next.chain(self.scanner.chain().keys(), limits);
        *self = Self::new(next, chain);
        Ok(())
    }
}

/// Enough for most records in one read.
const FIRST_READ_BYTES: usize = 4096;
/// How often damage must show: a writer may be at work, and its bytes change while they are read.
const CONFIRMING_LOOKS: u32 = 3;
