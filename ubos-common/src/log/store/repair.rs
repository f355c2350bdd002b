//! Making a log that cannot be opened one that can, without losing a byte.

use super::catalog::{Segment, listed, segment_name};
use super::config::Config;
use super::error::{OpenError, ReadError};
use super::file::{LogDir, LogFile, read_full};
use super::judge::{Judge, Tail};
use super::open::check;
use super::scan::{Next, Scanner};
use crate::log::format::{LogKeys, SEGMENT_HEADER_BYTES};
use crate::log::{Digest, Head};
use std::io;
use std::sync::Arc;

/// Bytes that were taken out of a log. They lie in a file beside the segments, and the chain says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// Number of the segment they were in.
    pub segment: u64,
    /// Where they began, in bytes; 0 where the whole segment was taken out.
    pub offset: u64,
    /// How many there were.
    pub bytes: u64,
    /// Their BLAKE3, by which the file is known.
    pub digest: Digest,
}

/// What repairing a log did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// What was taken out; empty where the log could be opened as it was.
    pub cuts: Vec<Cut>,
    /// The end of the log now.
    pub head: Head,
}

impl Cut {
    /// Name of the file beside the segments.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{:016x}-{:x}.cut", self.segment, self.offset)
    }

    /// As the log records it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(NOTE_BYTES);
        for number in [self.segment, self.offset, self.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(self.digest.as_bytes());
        bytes
    }

    /// Reads what a log records; `None` for the note of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, digest) = bytes.split_first_chunk::<24>()?;
        let mut numbers = numbers
            .as_chunks::<8>()
            .0
            .iter()
            .map(|raw| u64::from_le_bytes(*raw));
        Some(Self {
            segment: numbers.next()?,
            offset: numbers.next()?,
            bytes: numbers.next()?,
            digest: Digest::from_bytes(digest.try_into().ok()?),
        })
    }

    /// The cut that a file is of which was named by an attempt that did not end.
    fn of_name(name: &str) -> Option<(u64, u64)> {
        let (segment, offset) = name.strip_suffix(UNFINISHED)?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some((number(segment)?, number(offset)?))
    }
}

/// Takes out of a log what keeps it from being opened; the lock is held.
///
/// The bytes are copied beside first, then taken out, then recorded, and then the copies get their names. Whatever a
/// crash leaves, another attempt ends it; at worst a cut is recorded twice.
pub(crate) fn cut(dir: &dyn LogDir, config: &Config) -> Result<Vec<Cut>, OpenError> {
    let places = plan(dir, config)?;
    let mut cuts = Vec::new();
    for name in dir.list()? {
        if let Some((segment, offset)) = Cut::of_name(&name)
            && !places.contains(&(segment, offset))
        {
            let file = dir.open(&name, false)?;
            cuts.push(keep(file.as_ref(), segment, offset, 0, None)?);
        }
    }
    for (segment, offset) in &places {
        let file = dir.open(&segment_name(*segment), false)?;
        let to = dir.create(&format!("{segment:016x}-{offset:x}{UNFINISHED}"))?;
        cuts.push(keep(
            file.as_ref(),
            *segment,
            *offset,
            *offset,
            Some(to.as_ref()),
        )?);
        to.sync()?;
    }
    dir.sync()?;
    for (segment, offset) in places {
        let name = segment_name(segment);
        if offset == 0 {
            dir.remove(&name)?;
            continue;
        }
        let file = dir.open(&name, true)?;
        if !file.lock()? {
            return Err(OpenError::Locked);
        }
        file.set_len(offset)?;
        file.sync()?;
    }
    // Opening makes the names durable, before the cuts are recorded.
    Ok(cuts)
}

/// Gives the files their names: their cuts are recorded.
pub(crate) fn finish(dir: &dyn LogDir, cuts: &[Cut]) -> io::Result<()> {
    for cut in cuts {
        let unfinished = format!("{:016x}-{:x}{UNFINISHED}", cut.segment, cut.offset);
        dir.rename(&unfinished, &cut.file_name())?;
    }
    dir.sync()
}

/// What must be taken out: places by segment and offset, 0 for all of a segment.
fn plan(dir: &dyn LogDir, config: &Config) -> Result<Vec<(u64, u64)>, OpenError> {
    let found = listed(dir)?;
    let mut places = Vec::new();
    let mut sound: Vec<(u64, Segment)> = Vec::new();
    for index in found {
        let keys = sound
            .first()
            .map(|(_, first)| LogKeys::new(first.header.log));
        match Segment::open(dir, index, keys.as_ref(), false) {
            // The log ends where segments are missing.
            Ok(segment) if sound.last().is_none_or(|(last, _)| last + 1 == index) => {
                sound.push((index, segment));
            }
            Ok(_) | Err(ReadError::Damaged(_)) => places.push((index, 0)),
            Err(error) => return Err(error.into()),
        }
    }
    let (Some((_, first)), Some((index, last))) = (sound.first(), sound.last()) else {
        return Err(OpenError::NothingSound);
    };
    check(&first.header, config)?;
    let keys = LogKeys::new(first.header.log);
    let chain = last.chain(&keys, config.limits);
    let mut scanner = Scanner::new(Arc::clone(&last.file), chain, SEGMENT_HEADER_BYTES as u64);
    let fault = loop {
        match scanner.next()? {
            Next::Block(..) => {}
            Next::End => break None,
            Next::Fault(fault) => break Some(fault),
        }
    };
    let offset = scanner.offset();
    let mut judge = Judge::new(Arc::clone(&last.file));
    if let Tail::Damaged(_) = judge.judge(scanner.chain(), offset, fault)? {
        places.push((*index, offset));
    }
    Ok(places)
}

/// Copies `file` from byte `from` on, and tells what it is.
fn keep(
    file: &dyn LogFile,
    segment: u64,
    offset: u64,
    from: u64,
    to: Option<&dyn LogFile>,
) -> io::Result<Cut> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut done = 0;
    loop {
        let read = read_full(file, &mut buffer, from + done)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        hasher.update(bytes);
        if let Some(to) = to {
            to.write_at(bytes, done)?;
        }
        done += read as u64;
        if read < buffer.len() {
            break;
        }
    }
    Ok(Cut {
        segment,
        offset,
        bytes: done,
        digest: Digest::from_bytes(*hasher.finalize().as_bytes()),
    })
}

const UNFINISHED: &str = ".cut.new";
const NOTE_BYTES: usize = 56;
const COPY_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::{Arc, Config, Cut, Digest};
    use crate::log::{Log, LogId, SimDisk, Verify};

    /// This version writes one note a block: what a block of two says, a later one knows.
    #[test]
    fn only_a_note_that_is_alone_in_its_block_is_a_cut() {
        let dir = SimDisk::new().dir();
        let config = Config::default().with_log_id(LogId::from_bytes([1; 16]));
        let log = Log::open_in(Arc::clone(&dir), config).unwrap();
        let cut = |bytes| Cut {
            segment: 1,
            offset: 128,
            bytes,
            digest: Digest::of_bytes(b"taken out"),
        };
        let (one, two) = (cut(1), cut(2));
        log.note(&[&one.encode(), &two.encode()]).unwrap();
        log.append(b"a record").unwrap();
        log.note(&[&two.encode()]).unwrap();
        let head = log.close().unwrap();
        let verified = Verify::default().run(dir.as_ref()).unwrap();
        assert_eq!((verified.head, verified.cuts), (head, vec![two]));
    }
}
