//! The options that every file of the log shares.

use ubos_common::log::format::Limits;

use crate::checkpoint::seal::sealing::Sealing;

/// How sessions are written and read.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) sealing: Sealing,
    pub(super) max_bytes: usize,
    pub(super) history: usize,
}

impl Options {
    /// The limits of the log: a record is one sealed state with some metadata, and a block is one record.
    pub(super) fn log_limits(&self) -> Limits {
        const MORE: usize = 1 << 20;
        let bytes = self.max_bytes.saturating_add(MORE);
        Limits::default()
            .with_max_record_bytes(bytes)
            .with_max_block_bytes(bytes.saturating_add(MORE))
    }
}
