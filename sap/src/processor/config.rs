//! Settings.

use core::time::Duration;

use crate::ConfigError;
use crate::validate::Options;

/// Settings of a [`Processor`](super::Processor).
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | how tasks are read | strictly | Nack |
/// | tasks that run at the same time | 1,024 | Nack `RATE_LIMIT` |
/// | tasks of one issuer among them | as many as of all | Nack `RATE_LIMIT` |
/// | time of a task that names no deadline, from its arrival | 1 hour | FAILED `TIMEOUT` |
/// | bytes of tasks that run at the same time | 256 MiB | Nack `RATE_LIMIT`; one alone may be as long as it is |
/// | bytes of results that are kept in memory, those of running tasks among them | 64 MiB | they are read from the transcript; one whose recording was cut off by a drop is Nack `NOT_FOUND` until a [`resume`](super::Processor::resume) |
/// | tasks without an end that are taken up from a transcript | 100,000 | the [`resume`](super::Processor::resume) is refused, with [`TooManyOpen`](crate::transcript::TranscriptError::TooManyOpen) |
///
/// These limits are fixed:
///
/// | limit | value | at the limit |
/// |---|---|---|
/// | ended tasks that are remembered, to answer them again without running them | 10,000 | the oldest of the issuer who has most is forgotten |
/// | tasks that wait for [`Authorize`](super::Authorize) | 256 | Nack `RATE_LIMIT` |
/// | how long it may take to say who may | 30 s | Nack `RATE_LIMIT` |
/// | reports of one handler that wait for their delivery | 16 | the handler waits |
/// | how long a cancelled handler may take to end by itself | 100 ms | it is dropped |
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub(super) options: Options,
    pub(super) max_running: usize,
    pub(super) max_running_of_issuer: usize,
    pub(super) max_running_bytes: usize,
    pub(super) default_time: Duration,
    pub(super) max_remembered_bytes: usize,
    pub(super) max_interrupted: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            options: Options::default(),
            max_running: 1_024,
            max_running_of_issuer: usize::MAX,
            max_running_bytes: 256 << 20,
            default_time: Duration::from_secs(3_600),
            max_remembered_bytes: 64 << 20,
            max_interrupted: 100_000,
        }
    }
}

impl Config {
    /// Sets how tasks are read.
    #[must_use]
    pub const fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets how many tasks run at the same time; at least 1.
    #[must_use]
    pub const fn with_max_running(mut self, tasks: usize) -> Self {
        self.max_running = tasks;
        self
    }

    /// Sets how many tasks of one issuer run at the same time; at least 1. Where several issuers send tasks, one of them can
    /// otherwise take all places for as long as his tasks run.
    #[must_use]
    pub const fn with_max_running_of_issuer(mut self, tasks: usize) -> Self {
        self.max_running_of_issuer = tasks;
        self
    }

    /// Sets how many bytes the tasks have that run at the same time. One that is longer runs alone.
    #[must_use]
    pub const fn with_max_running_bytes(mut self, bytes: usize) -> Self {
        self.max_running_bytes = bytes;
        self
    }

    /// Sets the time of a task that names no deadline, from its arrival; more than none.
    #[must_use]
    pub const fn with_default_time(mut self, time: Duration) -> Self {
        self.default_time = time;
        self
    }

    /// Sets how many bytes of results are kept in memory. Above them a result is read from the transcript when somebody asks
    /// for it: as it is there, without what was redacted.
    #[must_use]
    pub const fn with_max_remembered_bytes(mut self, bytes: usize) -> Self {
        self.max_remembered_bytes = bytes;
        self
    }

    /// Sets how many tasks without an end a [`resume`](super::Processor::resume) takes up; each takes some 500 bytes of memory.
    #[must_use]
    pub const fn with_max_interrupted(mut self, tasks: usize) -> Self {
        self.max_interrupted = tasks;
        self
    }

    pub(super) const fn room(&self) -> Room {
        Room {
            tasks: self.max_running,
            of_issuer: self.max_running_of_issuer,
            bytes: self.max_running_bytes,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::require(
            self.max_running > 0,
            "max_running",
            self.max_running,
            "a processor needs room for at least 1 task",
        )?;
        ConfigError::require(
            self.max_running_of_issuer > 0,
            "max_running_of_issuer",
            self.max_running_of_issuer,
            "an issuer needs room for at least 1 task",
        )?;
        ConfigError::require(
            self.default_time > Duration::ZERO,
            "default_time",
            self.default_time,
            "a task takes some time",
        )
    }
}

/// How many tasks may run at the same time, how many of them of one issuer, and of how many bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) tasks: usize,
    pub(super) of_issuer: usize,
    pub(super) bytes: usize,
}

/// Ended tasks that are remembered.
pub(super) const MAX_FINISHED: usize = 10_000;
/// Reports of one handler that wait for their delivery.
pub(super) const MAX_REPORTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        let refused = |config: Config| config.check().unwrap_err().to_string();
        let none = refused(Config::default().with_max_running(0));
        assert!(none.starts_with("max_running is 0, but"), "{none}");
        let none = refused(Config::default().with_max_running_of_issuer(0));
        assert!(
            none.starts_with("max_running_of_issuer is 0, but"),
            "{none}"
        );
        let none = refused(Config::default().with_default_time(Duration::ZERO));
        assert!(none.starts_with("default_time is 0ns, but"), "{none}");
        assert_eq!(Config::default().check(), Ok(()));
    }
}
