//! Bounds on what is written and on what is believed when read.

/// Bounds of one log. A writer refuses what exceeds them; a reader names it as damage before allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) max_record_bytes: usize,
    pub(crate) max_block_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_record_bytes: 16 << 20,
            max_block_bytes: 32 << 20,
        }
    }
}

impl Limits {
    /// Sets the longest record, in bytes. Default 16 MiB, at least 1.
    #[must_use]
    pub fn with_max_record_bytes(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }

    /// Sets the longest block body (all records of one commit with their frames of 20 bytes), in bytes. Default 32 MiB,
    /// less than 4 GiB.
    #[must_use]
    pub fn with_max_block_bytes(mut self, bytes: usize) -> Self {
        self.max_block_bytes = bytes;
        self
    }
}
