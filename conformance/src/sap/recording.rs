//! What was exchanged, and what was kept of it.

use core::fmt;

use sap::cache::CacheRecord;
use sap::learning::Signal;
use sap::transcript::{Entry, EntryKind};
use ubos_common::json::to_vec;

use crate::Protocol;

/// One line of a recording: a message as it stood on the wire, or an entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// A task.
    Task(Vec<u8>),
    /// A result.
    Result(Vec<u8>),
    /// A Nack.
    Nack(Vec<u8>),
    /// The cache's log is known; its records may stand anywhere in the recording.
    CacheLog,
    /// A record of the cache.
    Record(Vec<u8>),
    /// The log of signals is known; its signals may stand anywhere in the recording.
    SignalLog,
    /// A signal.
    Signal(Vec<u8>),
}

/// The lines of an exchange, in the order in which they were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    lines: Vec<Line>,
}

/// The protocol of judging an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Exchange;

impl Protocol for Exchange {
    type Line = Line;
    type Peer = Recording;

    fn describe(line: &Line) -> String {
        line.to_string()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(bytes) => write!(f, "task of {} bytes", bytes.len()),
            Self::Result(bytes) => write!(f, "result of {} bytes", bytes.len()),
            Self::Nack(bytes) => write!(f, "Nack of {} bytes", bytes.len()),
            Self::CacheLog => f.write_str("log of the cache"),
            Self::Record(bytes) => write!(f, "record of {} bytes", bytes.len()),
            Self::SignalLog => f.write_str("log of signals"),
            Self::Signal(bytes) => write!(f, "signal of {} bytes", bytes.len()),
        }
    }
}

impl Recording {
    /// Without lines.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// The messages of a transcript.
    #[must_use]
    pub fn of_transcript<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut recording = Self::new();
        for entry in entries {
            let body = entry.body.as_str().as_bytes().to_vec();
            recording.lines.extend(match entry.kind {
                EntryKind::Task => Some(Line::Task(body)),
                EntryKind::Result => Some(Line::Result(body)),
                EntryKind::Nack => Some(Line::Nack(body)),
                _ => None,
            });
        }
        recording
    }

    /// Adds a task.
    #[must_use]
    pub fn task(self, bytes: &[u8]) -> Self {
        self.with(Line::Task(bytes.to_vec()))
    }

    /// Adds a result.
    #[must_use]
    pub fn result(self, bytes: &[u8]) -> Self {
        self.with(Line::Result(bytes.to_vec()))
    }

    /// Adds the cache's log, which may have no record.
    #[must_use]
    pub fn cache_log<'a>(mut self, records: impl IntoIterator<Item = &'a CacheRecord>) -> Self {
        self.lines.push(Line::CacheLog);
        let records = records
            .into_iter()
            .map(|record| Line::Record(to_vec(record)));
        self.lines.extend(records);
        self
    }

    /// Adds the log of signals, which may have none.
    #[must_use]
    pub fn signal_log<'a>(mut self, signals: impl IntoIterator<Item = &'a Signal>) -> Self {
        self.lines.push(Line::SignalLog);
        let signals = signals
            .into_iter()
            .map(|signal| Line::Signal(to_vec(signal)));
        self.lines.extend(signals);
        self
    }

    /// Adds a line.
    #[must_use]
    pub fn with(mut self, line: Line) -> Self {
        self.lines.push(line);
        self
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}
