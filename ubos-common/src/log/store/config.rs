//! How a log is opened.

use crate::log::LogId;
use crate::log::format::Limits;

/// When the bytes of an append reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sync {
    /// Every append is a block of its own with a sync of its own.
    Each,
    /// Appends that wait at the same time share one block and one sync. The default.
    #[default]
    Group,
    /// No append syncs; bytes are durable after [`Log::sync`](crate::log::Log::sync), at the end of a segment
    /// and after closing. A power cut takes what came since, a killed process nothing.
    None,
}

/// Settings of a [`Log`](crate::log::Log).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Identity of the log: needed to create one, and compared (when set) with the one that is opened.
    pub log_id: Option<LogId>,
    /// What the log is for, as its creator and whoever opens it say; a text that names a
    /// [`Kind`](crate::log::Kind), or nothing. Default: no kind.
    pub kind: &'static str,
    /// When bytes reach the disk. Default [`Sync::Group`].
    pub sync: Sync,
    /// Length at which a segment is sealed and another begun, in bytes; the block that crosses it still goes
    /// into the old one. Default 64 MiB.
    pub segment_bytes: u64,
    /// Bytes of submitted records that wait for a commit; at the bound a submitter commits before it adds more.
    /// A longer single record passes. Default 4 MiB.
    pub max_pending_bytes: usize,
    /// Bounds of records and blocks.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log_id: None,
            kind: "",
            sync: Sync::default(),
            segment_bytes: 64 << 20,
            max_pending_bytes: 4 << 20,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Sets the identity of the log.
    #[must_use]
    pub fn log_id(mut self, id: LogId) -> Self {
        self.log_id = Some(id);
        self
    }

    /// Sets what the log is for. A log of another kind is not opened.
    #[must_use]
    pub fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// Sets when bytes reach the disk.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Sets the length of a segment, in bytes.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets how many bytes of records may wait for a commit.
    #[must_use]
    pub fn max_pending_bytes(mut self, bytes: usize) -> Self {
        self.max_pending_bytes = bytes;
        self
    }

    /// Sets the bounds of records and blocks.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}
