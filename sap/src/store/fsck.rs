//! Going through a store on disk, whatever is wrong with it.

use core::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ubos_common::log::{FsDir, LogDir, ReadError, Reader, Verify, format::Limits};

use super::{file_cache, file_signals, library};
use crate::transcript::{Entry, Head, TranscriptError};

/// What a folder is meant to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// Cache records.
    Cache,
    /// Entries of a transcript.
    Transcript,
    /// Signals for learning.
    Signals,
    /// Playbooks and punch-cards.
    Knowledge,
}

/// What was found in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// Records that hold.
    pub records: u64,
    /// The end of the store.
    pub head: Head,
    /// A last record that a crash cut short; the next opening drops it.
    pub torn: Option<u64>,
    /// What is wrong, in the order of the store.
    pub findings: Vec<StoreFinding>,
}

/// One thing that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreFinding {
    /// The first record concerned.
    pub record: u64,
    /// One past the last record concerned, where that is known.
    pub to: Option<u64>,
    /// What is wrong, and where in the files.
    pub what: String,
}

/// Goes through the store in a folder to its end: the bytes, the chain, and whether each record is what it should
/// be. It takes no lock and changes nothing. Heads that were kept elsewhere show whether its end was cut.
///
/// ```
/// use sap::store::{FileCache, StoreKind, fsck};
/// use sap::ubos_common::log::{Config, LogId};
///
/// let folder = tempfile::tempdir()?;
/// drop(FileCache::open(folder.path(), Config::default().with_log_id(LogId::from_bytes([7; 16])))?);
/// let report = fsck(folder.path(), StoreKind::Cache, &[])?;
/// assert!(report.findings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// There is no store, or it cannot be read, or a head is none. What is wrong with it is in the report. Spec: SAP 11
// impl: SAP-11-3
pub fn fsck(
    path: impl Into<PathBuf>,
    kind: StoreKind,
    kept: &[Head],
) -> Result<StoreReport, TranscriptError> {
    let dir: Arc<dyn LogDir> = Arc::new(FsDir::new(path));
    let mut verify = Verify::default();
    for head in kept {
        let head = head.as_ref().parse().map_err(|_| TranscriptError::Head)?;
        verify = verify.kept(head);
    }
    let log = verify.fsck(dir.as_ref()).map_err(store)?;
    let mut findings: Vec<StoreFinding> = log
        .findings
        .iter()
        .map(|finding| StoreFinding {
            record: finding.lost_from,
            to: finding.lost_to,
            what: finding.damage.to_string(),
        })
        .collect();
    let all = log.verified.first_sequence..log.verified.head.next_sequence;
    strangers(dir, kind, all, &mut findings)?;
    findings.sort_by_key(|finding| finding.record);
    Ok(StoreReport {
        records: log.verified.records,
        head: Head::from(log.verified.head.to_string()),
        torn: log.verified.torn.map(|torn| torn.sequence),
        findings,
    })
}

/// Finds records that hold and are none of this kind. Behind damage, which is known already, it goes on at the next segment: what
/// is between cannot be read.
fn strangers(
    dir: Arc<dyn LogDir>,
    kind: StoreKind,
    all: Range<u64>,
    findings: &mut Vec<StoreFinding>,
) -> Result<(), TranscriptError> {
    let mut reader = Reader::open_in(dir, Limits::default());
    let mut reached = all.start;
    loop {
        let damage = match reader.next() {
            Ok(None) => return Ok(()),
            Ok(Some(entry)) => {
                reached = entry.position.sequence + 1;
                if !is_one(kind, entry.bytes) {
                    findings.push(StoreFinding {
                        record: entry.position.sequence,
                        to: Some(reached),
                        what: "a record that is none of this kind".into(),
                    });
                }
                continue;
            }
            Err(ReadError::Io(error)) => return Err(store(error)),
            Err(ReadError::Damaged(damage)) => damage,
            Err(_) => return Ok(()),
        };
        let mut next = all.end;
        while reached < next {
            let middle = u64::midpoint(reached, next);
            reader.seek(middle);
            match reader.next() {
                Err(ReadError::Damaged(again)) if again.segment == damage.segment => {
                    reached = middle + 1;
                }
                _ => next = middle,
            }
        }
        if next == all.end {
            return Ok(());
        }
        reader.seek(next);
    }
}

fn is_one(kind: StoreKind, bytes: &[u8]) -> bool {
    match kind {
        StoreKind::Cache => file_cache::decode(bytes).is_some(),
        StoreKind::Transcript => Entry::decode(bytes).is_ok(),
        StoreKind::Signals => file_signals::decode(bytes).is_some(),
        StoreKind::Knowledge => library::decode(bytes).is_some(),
    }
}

fn store(error: impl std::error::Error + Send + Sync + 'static) -> TranscriptError {
    TranscriptError::Store(Box::new(error))
}
