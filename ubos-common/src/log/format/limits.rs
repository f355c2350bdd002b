//! Bounds on what is written and on what is believed when read.

/// Bounds of one log. A writer refuses what exceeds them; a reader names it as damage before allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest record, in bytes. Default 16 MiB.
    pub max_record_bytes: usize,
    /// Longest block body (all records of one commit with their frames), in bytes. Default 32 MiB, at most 4 GiB.
    pub max_block_bytes: usize,
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
    /// Sets the longest record, in bytes.
    #[must_use]
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }

    /// Sets the longest block body, in bytes; it is clamped to what the format can say (4 GiB less one).
    #[must_use]
    pub fn max_block_bytes(mut self, bytes: usize) -> Self {
        self.max_block_bytes = bytes.min(u32::MAX as usize);
        self
    }
}
