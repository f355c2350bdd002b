//! Which segments a folder has, and how one is made.

use super::error::{Damage, ReadError};
use super::file::{LogDir, LogFile, read_full};
use crate::log::format::{Chain, Fault, Limits, LogKeys, SEGMENT_HEADER_BYTES, SegmentHeader};
use std::io;
use std::sync::Arc;

/// Name of the file of segment `index`.
pub(crate) fn segment_name(index: u64) -> String {
    format!("{index:016x}{SUFFIX}")
}

/// Numbers of the segments in a folder, in order and without a gap.
pub(crate) fn segments(dir: &dyn LogDir) -> Result<Vec<u64>, ReadError> {
    let found = listed(dir)?;
    match gap(&found) {
        Some(index) => Err(Damage::new(index, 0, Fault::MissingSegment { index }).into()),
        None => Ok(found),
    }
}

/// Numbers of the segments in a folder, in order, whatever is missing.
pub(crate) fn listed(dir: &dyn LogDir) -> io::Result<Vec<u64>> {
    let mut found = list_once(dir)?;
    // A folder is not listed in one moment: while segments come and go, one in the middle may be passed over.
    while found.is_empty() || gap(&found).is_some() {
        let again = list_once(dir)?;
        if again == found {
            break;
        }
        found = again;
    }
    Ok(found)
}

/// Runs `act` on the segments of a folder; again when one went away meanwhile because it was archived.
pub(crate) fn with_segments<T>(
    dir: &dyn LogDir,
    mut act: impl FnMut(Vec<u64>) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let mut found = listed(dir)?;
    loop {
        let answer = act(found.clone());
        let gone =
            matches!(&answer, Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound);
        if !gone {
            return answer;
        }
        let again = listed(dir)?;
        if again.first() == found.first() {
            return answer;
        }
        found = again;
    }
}

/// Whether the folder has segment `index` now.
pub(crate) fn has_segment(dir: &dyn LogDir, index: u64) -> io::Result<bool> {
    match dir.open(&segment_name(index), false) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first number that is missing between others.
pub(crate) fn gap(found: &[u64]) -> Option<u64> {
    found.windows(2).find_map(|pair| match pair {
        [before, after] if before + 1 != *after => Some(before + 1),
        _ => None,
    })
}

fn list_once(dir: &dyn LogDir) -> io::Result<Vec<u64>> {
    let names = dir.list()?;
    let mut found: Vec<u64> = names.iter().filter_map(|name| index_of(name)).collect();
    found.sort_unstable();
    Ok(found)
}

fn index_of(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(SUFFIX)
        .filter(|digits| digits.len() == 16)?;
    let index = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(index) == name).then_some(index)
}

/// A segment whose header holds.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn LogFile>,
    pub(crate) header: SegmentHeader,
}

impl Segment {
    /// Opens segment `index`; `keys` are those of the log when they are known already.
    pub(crate) fn open(
        dir: &dyn LogDir,
        index: u64,
        keys: Option<&LogKeys>,
        write: bool,
    ) -> Result<Self, ReadError> {
        let file = dir.open(&segment_name(index), write)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = read_full(file.as_ref(), &mut bytes, 0)?;
        let damage = |fault| Damage::new(index, 0, fault);
        let header =
            SegmentHeader::decode(bytes.get(..read).unwrap_or_default()).map_err(damage)?;
        if header.index != index {
            return Err(damage(Fault::WrongSegment {
                wanted: index,
                found: header.index,
            })
            .into());
        }
        match keys.map(LogKeys::id).filter(|wanted| *wanted != header.log) {
            Some(wanted) => {
                let found = header.log;
                Err(damage(Fault::WrongLog { wanted, found }).into())
            }
            None => Ok(Self { file, header }),
        }
    }

    /// The chain as it stands before the segment's first block.
    pub(crate) fn chain(&self, keys: &LogKeys, limits: Limits) -> Chain {
        Chain::new(
            keys.clone(),
            limits,
            self.header.previous,
            self.header.first_sequence,
        )
    }

    /// Whether this segment goes on where `chain` stands.
    pub(crate) fn follows(&self, chain: &Chain) -> Result<(), Damage> {
        let damage = |fault| Damage::new(self.header.index, 0, fault);
        if self.header.first_sequence != chain.next_sequence() {
            return Err(damage(Fault::Sequence {
                wanted: chain.next_sequence(),
                found: self.header.first_sequence,
            }));
        }
        if self.header.previous != chain.previous() {
            let sequence = self.header.first_sequence;
            return Err(damage(Fault::Chain { sequence }));
        }
        Ok(())
    }
}

/// Makes a segment under a name that counts only once the header is durable.
pub(crate) fn create_segment(
    dir: &dyn LogDir,
    keys: &LogKeys,
    header: &SegmentHeader,
    bytes: u64,
) -> io::Result<Arc<dyn LogFile>> {
    let file = dir.create(NEW_SEGMENT)?;
    if !file.lock()? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file.allocate(bytes)?;
    file.write_at(&header.encode(keys), 0)?;
    file.sync()?;
    dir.rename(NEW_SEGMENT, &segment_name(header.index))?;
    dir.sync()?;
    Ok(file)
}

/// A segment that is being made.
pub(crate) const NEW_SEGMENT: &str = "segment.new";
const SUFFIX: &str = ".seg";
