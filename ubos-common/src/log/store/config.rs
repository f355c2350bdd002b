//! How a log is opened.

use crate::ConfigError;
use crate::log::LogId;
use crate::log::format::{Limits, RECORD_HEADER_BYTES};

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

/// Settings of a [`Log`](crate::log::Log); they are checked when one is opened.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) log_id: Option<LogId>,
    pub(crate) kind: &'static str,
    pub(crate) sync: Sync,
    pub(crate) segment_bytes: u64,
    pub(crate) max_pending_bytes: usize,
    pub(crate) limits: Limits,
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
    /// Sets the identity of the log: needed to create one, and compared (when set) with the one that is opened.
    #[must_use]
    pub fn with_log_id(mut self, id: LogId) -> Self {
        self.log_id = Some(id);
        self
    }

    /// Sets what the log is for: a text that names a [`Kind`](crate::log::Kind). A log of another kind is not opened.
    /// Default: no kind.
    #[must_use]
    pub fn with_kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// Sets when bytes reach the disk. Default [`Sync::Group`].
    #[must_use]
    pub fn with_sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Sets the length at which a segment is sealed and another begun, in bytes; the block that crosses it still goes
    /// into the old one. Default 64 MiB, at least 1.
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets how many bytes of submitted records may wait for a commit; at the bound a submitter commits before it adds
    /// more. A longer single record passes. Default 4 MiB.
    #[must_use]
    pub fn with_max_pending_bytes(mut self, bytes: usize) -> Self {
        self.max_pending_bytes = bytes;
        self
    }

    /// Sets the bounds of records and blocks.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Refuses what no log can be written with.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::at_least("segment_bytes", self.segment_bytes, 1)?;
        let Limits {
            max_record_bytes,
            max_block_bytes,
        } = self.limits;
        ConfigError::at_least("max_record_bytes", max_record_bytes, 1)?;
        let is_written = u32::try_from(max_block_bytes).is_ok();
        let wanted = "a block is shorter than 4 GiB";
        ConfigError::require(is_written, "max_block_bytes", max_block_bytes, wanted)?;
        let has_room = max_block_bytes.saturating_sub(RECORD_HEADER_BYTES) >= max_record_bytes;
        let wanted =
            "a block must have room for a record of max_record_bytes and its 20 bytes more";
        ConfigError::require(has_room, "max_block_bytes", max_block_bytes, wanted)
    }
}
