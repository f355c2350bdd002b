//! The settings of a producer.

use core::time::Duration;

/// Settings of [`SentTasks`](super::SentTasks).
///
/// | setting | default | at the bound |
/// |---|---|---|
/// | `max_open` | 10,000 | a new task is refused |
/// | `max_ended` | 10,000 | the oldest ended task is forgotten, and copies of its results with it |
/// | `receipt_patience` | 10 s | [`Output::Overdue`](super::Output::Overdue) |
/// | `result_patience` | 300 s | [`Output::Overdue`](super::Output::Overdue) |
/// | `default_time` of a task without a deadline, after it was sent | 1 hour | as the deadline of one that has one |
/// | `deadline_patience`, after the deadline of a task, or after it was sent where that is later | 300 s | [`Output::Overdue`](super::Output::Overdue) |
/// | `resends` of a task for which nothing came in time | 0 | [`Output::Overdue`](super::Output::Overdue) |
///
/// A patience, or a time, of [`Duration::MAX`] has no end.
///
/// Results are checked strictly against those before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) max_open: usize,
    pub(super) max_ended: usize,
    pub(super) receipt_patience: Duration,
    pub(super) result_patience: Duration,
    pub(super) default_time: Duration,
    pub(super) deadline_patience: Duration,
    pub(super) resends: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_open: 10_000,
            max_ended: 10_000,
            receipt_patience: Duration::from_secs(10),
            result_patience: Duration::from_secs(300),
            default_time: Duration::from_secs(3_600),
            deadline_patience: Duration::from_secs(300),
            resends: 0,
        }
    }
}

impl Config {
    /// Sets how many tasks are open at the same time; at least 1.
    #[must_use]
    pub const fn with_max_open(mut self, tasks: usize) -> Self {
        self.max_open = tasks;
        self
    }

    /// Sets how many ended tasks are remembered.
    #[must_use]
    pub const fn with_max_ended(mut self, tasks: usize) -> Self {
        self.max_ended = tasks;
        self
    }

    /// Sets how long a receipt, and how long the next result may take.
    #[must_use]
    pub const fn with_patience(mut self, receipt: Duration, result: Duration) -> Self {
        self.receipt_patience = receipt;
        self.result_patience = result;
        self
    }

    /// Sets the time of a task that names no deadline, after it was sent. The one who does it may have a time of its own.
    #[must_use]
    pub const fn with_default_time(mut self, time: Duration) -> Self {
        self.default_time = time;
        self
    }

    /// Sets how long after its deadline a task may end.
    #[must_use]
    pub const fn with_deadline_patience(mut self, patience: Duration) -> Self {
        self.deadline_patience = patience;
        self
    }

    /// Sets how often a task is sent again for which nothing came in time. A consumer knows the copies. A Nack `RATE_LIMIT` about
    /// a task that was sent more than once counts as nothing, for an earlier copy may be at work.
    #[must_use]
    pub const fn with_resends(mut self, resends: u32) -> Self {
        self.resends = resends;
        self
    }
}
