//! Settings.

use core::time::Duration;

use crate::validate::Options;

/// Settings of a [`Processor`](super::Processor).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How tasks are read; strictly by default.
    pub options: Options,
    /// Tasks that run at the same time; at the bound a task is turned away with `RATE_LIMIT`. Default 1,024.
    pub max_running: usize,
    /// Ended tasks that are remembered, to answer them again without running them; above the bound the oldest
    /// is forgotten. Default 10,000.
    pub max_finished: usize,
    /// Reports of one handler that wait for their delivery; at the bound the handler waits. Default 16.
    pub max_reports: usize,
    /// How long a cancelled handler may take to end by itself. Default 100 ms.
    pub cancel_grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            options: Options::default(),
            max_running: 1_024,
            max_finished: 10_000,
            max_reports: 16,
            cancel_grace: Duration::from_millis(100),
        }
    }
}

impl Config {
    /// Sets how tasks are read.
    #[must_use]
    pub const fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets how many tasks run at the same time.
    #[must_use]
    pub const fn max_running(mut self, tasks: usize) -> Self {
        self.max_running = tasks;
        self
    }

    /// Sets how many ended tasks are remembered.
    #[must_use]
    pub const fn max_finished(mut self, tasks: usize) -> Self {
        self.max_finished = tasks;
        self
    }

    /// Sets how many reports of one handler wait for their delivery.
    #[must_use]
    pub const fn max_reports(mut self, reports: usize) -> Self {
        self.max_reports = reports;
        self
    }

    /// Sets how long a cancelled handler may take to end by itself.
    #[must_use]
    pub const fn cancel_grace(mut self, grace: Duration) -> Self {
        self.cancel_grace = grace;
        self
    }
}
