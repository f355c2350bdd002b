//! The configuration of stores that keep states outside memory.

use ubos_common::ConfigError;

ubos_common::config! {
    /// How much a store of checkpoints takes. It is checked where the store is opened.
    CheckpointConfig {
        /// Sets the maximum size of a state as JSON, for saving and reading: 256 MiB by default.
        with_max_bytes: max_bytes: usize = 256 << 20,
        /// Sets how many checkpoints of a session are kept: 100,000 by default. At twice as many the older ones are
        /// pruned. [`FileCheckpoints`](crate::FileCheckpoints) keeps the last one, whatever this says.
        with_history: history: usize = 100_000,
    }
}

impl CheckpointConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::at_least("max_bytes", self.max_bytes, 1)?;
        ConfigError::at_least("history", self.history, 1)
    }
}
