//! A store's records, read beside whoever may be writing it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ubos_common::log::format::Limits;
use ubos_common::log::{FsDir, ReadError, Reader, Verify};

use crate::stores::Store;
use crate::words::with_causes;

/// Bytes of one record: what the hub's store allows, which is the most.
const MAX_RECORD_BYTES: usize = 65 << 20;

/// How a store was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its folder in the state folder.
    pub place: String,
    /// Records that were read.
    pub records: u64,
    /// What is wrong with it.
    pub state: State,
}

/// What is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Whole,
    /// Its last write was not finished, which is what a killed process leaves.
    Torn {
        /// Bytes of that write.
        bytes: u64,
    },
    /// It is not there.
    Missing,
    /// It holds something else.
    OtherKind {
        /// The kind that it says.
        found: String,
        /// The kind that it should have.
        wanted: &'static str,
    },
    /// Records were changed or lost; those before them were read.
    Damaged(String),
    /// It has more folders than are looked into.
    TooMany {
        /// How many are.
        most: usize,
    },
    /// Records hold, and say nothing that this program knows.
    Strange {
        /// How many.
        records: u64,
    },
}

impl Condition {
    /// Whether it is there, and was not read to its end.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        matches!(
            self.state,
            State::OtherKind { .. }
                | State::Damaged(_)
                | State::TooMany { .. }
                | State::Strange { .. }
        )
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, records, .. } = self;
        match &self.state {
            State::Whole => write!(f, "{place}: {records} records"),
            State::Torn { bytes } => write!(
                f,
                "{place}: {records} records, and an unfinished write of {bytes} bytes"
            ),
            State::Missing => write!(f, "{place}: missing"),
            State::OtherKind { found, wanted } => {
                write!(f, "{place}: a log of kind {found}, wanted kind {wanted}")
            }
            State::Damaged(what) => {
                write!(f, "{place}: damaged after {records} records: {what}")
            }
            State::TooMany { most } => {
                write!(
                    f,
                    "{place}: more than {most} folders, the rest was not read"
                )
            }
            State::Strange { records: strange } => {
                write!(f, "{place}: {strange} of {records} records cannot be read")
            }
        }
    }
}

/// Reads the records of a store: `take` says of each whether it could be read.
pub(super) fn records(
    folder: &Path,
    store: Store,
    place: &str,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Condition {
    let limits = Limits::default()
        .with_max_record_bytes(MAX_RECORD_BYTES)
        .with_max_block_bytes(2 * MAX_RECORD_BYTES);
    let dir = FsDir::new(folder.join(place));
    let condition = |records, state| Condition {
        place: place.to_owned(),
        records,
        state,
    };
    let report = match Verify::default().limits(limits).fsck(&dir) {
        Ok(report) => report,
        Err(ReadError::Missing) => return condition(0, State::Missing),
        Err(ReadError::Io(err)) if err.kind() == std::io::ErrorKind::NotFound => {
            return condition(0, State::Missing);
        }
        Err(err) => return condition(0, State::Damaged(with_causes(&err))),
    };
    let found = report.verified.kind.to_string();
    // Of a log whose first segment is damaged the kind is not known; its records say.
    let damage = report.findings.first().map(|finding| finding.damage);
    if damage.is_none() && found != store.kind() {
        let wanted = store.kind();
        return condition(0, State::OtherKind { found, wanted });
    }
    let mut reader = Reader::open_in(Arc::new(dir), limits);
    let (mut records, mut strange) = (0, 0);
    let stopped = loop {
        match reader.next() {
            Ok(Some(entry)) => {
                records += 1;
                strange += u64::from(!take(entry.bytes));
            }
            Ok(None) => break None,
            Err(err) => break Some(with_causes(&err)),
        }
    };
    let state = match (damage, stopped, report.verified.torn) {
        (Some(damage), ..) => State::Damaged(damage.to_string()),
        (None, Some(why), _) => State::Damaged(why),
        _ if strange > 0 => State::Strange { records: strange },
        (None, None, Some(torn)) => State::Torn { bytes: torn.bytes },
        (None, None, None) => State::Whole,
    };
    condition(records, state)
}
