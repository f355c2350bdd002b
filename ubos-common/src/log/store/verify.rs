//! Proving a log, and telling all that is wrong with one.

use super::error::ReadError;
use super::file::LogDir;
use super::open::TornTail;
use super::repair::Cut;
use super::walk::{Finding, Scope, Walk, walk};
use crate::log::format::Limits;
use crate::log::{Head, Kind};

/// Proves the whole chain of a log, or of what is left of it after archiving.
///
/// It reads the bytes on the disk and hashes whole blocks. It takes no lock and never writes; a log that is
/// being written is proven up to the block that is the last when it gets there.
///
/// ```
/// use std::sync::Arc;
/// use ubos_common::log::{Config, FsDir, Log, LogId, Verify};
///
/// let folder = tempfile::tempdir()?;
/// let log = Log::open(folder.path(), Config::default().with_log_id(LogId::from_bytes([9; 16])))?;
/// log.append(b"a record")?;
/// let kept = log.close()?;
/// let proven = Verify::default().kept(kept).run(&FsDir::new(folder.path()))?;
/// assert_eq!((proven.records, proven.head), (1, kept));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Verify(Scope);

impl Verify {
    /// Begins with the segment that holds record `sequence`; what its header says of the chain before is believed.
    #[must_use]
    pub fn from(mut self, sequence: u64) -> Self {
        self.0.from = Some(sequence);
        self
    }

    /// Demands that the log goes on from `head`, which is the end of what was archived.
    #[must_use]
    pub fn after(self, head: Head) -> Self {
        self.from(head.next_sequence).kept(head)
    }

    /// Demands that the log once ended with `head`; may be said for several. A log that ends before was cut.
    #[must_use]
    pub fn kept(mut self, head: Head) -> Self {
        self.0.heads.push(head);
        self
    }

    /// Sets the bounds beyond which a length is damage.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.0.limits = limits;
        self
    }

    /// Proves the log in `dir`.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] names the first record that does not hold; [`ReadError::Archived`] when the folder
    /// begins after the record or a head asked for; [`ReadError::Missing`] when there is no log.
    // impl: SAP-11-3
    pub fn run(&self, dir: &dyn LogDir) -> Result<Verified, ReadError> {
        let outcome = walk(dir, &self.0, true)?;
        match outcome.findings.first() {
            Some(finding) => Err(finding.damage.into()),
            None => Ok(Verified::of(&outcome)),
        }
    }

    /// Goes through the log in `dir` to its end, whatever is wrong with it.
    ///
    /// # Errors
    /// [`ReadError::Io`], [`ReadError::Missing`] or [`ReadError::Archived`]; damage is in the report.
    // impl: SAP-11-3
    pub fn fsck(&self, dir: &dyn LogDir) -> Result<FsckReport, ReadError> {
        let outcome = walk(dir, &self.0, false)?;
        let verified = Verified::of(&outcome);
        Ok(FsckReport {
            verified,
            findings: outcome.findings,
        })
    }
}

/// What was proven.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Sequence of the first record looked at.
    pub first_sequence: u64,
    /// Records that hold.
    pub records: u64,
    /// Blocks that hold.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Segments looked at.
    pub segments: u64,
    /// The end of the log.
    pub head: Head,
    /// A write that a crash tore, or that is under way.
    pub torn: Option<TornTail>,
    /// What the log is for, as its first segment says.
    pub kind: Kind,
    /// What was taken out of it when it was repaired; each is a record that readers do not see.
    pub cuts: Vec<Cut>,
}

impl Verified {
    fn of(walk: &Walk) -> Self {
        Self {
            first_sequence: walk.first_sequence,
            records: walk.records,
            blocks: walk.blocks,
            bytes: walk.bytes,
            segments: walk.segments,
            head: walk.head,
            torn: walk.torn,
            kind: walk.kind,
            cuts: walk.cuts.clone(),
        }
    }
}

/// All that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FsckReport {
    /// What holds, taken by itself.
    pub verified: Verified,
    /// What does not, in the order of the log; empty for a sound one.
    pub findings: Vec<Finding>,
}
