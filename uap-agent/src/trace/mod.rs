//! Traces of runs: events with their times, written as lines of JSON or as one page of HTML.
//!
//! Push each event of a stream when it arrives, add the result, and write the trace. A trace holds the JSON of events,
//! so a trace that is read back equals the one that was written.
//!
//! ```
//! use std::sync::Arc;
//! use futures::StreamExt;
//! use uap_agent::{Trace, TraceLimits};
//! use uap_agent::{AgentOptions, agent};
//! use ubos_common::time::{Mono, Now, Timestamp};
//! use upp::{Reply, ScriptedModel};
//!
//! # futures::executor::block_on(async {
//! let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")]))))?;
//! let now = || Now::new(Mono::ZERO, Timestamp::EPOCH); // the clock of your program
//! let mut trace = Trace::default();
//! let mut run = agent.stream("hi", &agent.initial_state());
//! while let Some(event) = run.next().await {
//!     trace.push(now(), &event);
//! }
//! trace.end(now(), &run.result().await);
//!
//! let mut lines = Vec::new();
//! trace.write_lines(&mut lines)?;
//! assert_eq!(Trace::read_lines(&lines, TraceLimits::default())?, trace);
//! assert!(trace.to_html().starts_with("<!DOCTYPE html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod entry;
mod page;
mod row;
mod text;
mod view;
mod wire;

use std::io;

use ubos_common::ConfigError;
use ubos_common::json::{self, DecodeError, Limits, MemberWriter, RawObject, Write};
use ubos_common::time::{Mono, Now};

use crate::event::AgentStreamEvent;
use crate::result::{AgentError, GenerateResult};
use entry::{LineKind, TraceEntry};
pub use wire::LeftOut;

/// The limits of a trace. Events beyond a limit are left out and counted.
///
/// | limit | unit | default |
/// |---|---|---|
/// | `max_events` | events | 100,000 |
/// | `max_bytes` | bytes of all lines | 64 MiB |
/// | `max_event_bytes` | bytes of one line | 4 MiB |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    max_events: usize,
    max_bytes: usize,
    max_event_bytes: usize,
}

impl TraceLimits {
    /// Sets the number of events that are kept, ends of runs included.
    #[must_use]
    pub const fn with_max_events(mut self, events: usize) -> Self {
        self.max_events = events;
        self
    }

    /// Sets the bytes of all lines.
    #[must_use]
    pub const fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the bytes of one line.
    #[must_use]
    pub const fn with_max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (setting, seen) in [
            ("max_events", self.max_events),
            ("max_bytes", self.max_bytes),
            ("max_event_bytes", self.max_event_bytes),
        ] {
            ConfigError::at_least(setting, seen, 1)?;
        }
        Ok(())
    }

    /// The limits of one line. Events of nested sub-agents are deeper than other documents.
    fn line(&self) -> Limits {
        Limits::default()
            .with_max_depth(Limits::DEEPEST)
            .with_max_bytes(self.max_event_bytes)
            .with_max_string_bytes(self.max_event_bytes)
            .with_max_array_len(self.max_event_bytes)
            .with_max_members(self.max_event_bytes)
    }
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self {
            max_events: 100_000,
            max_bytes: 64 << 20,
            max_event_bytes: 4 << 20,
        }
    }
}

/// The events of one run, or of several runs in sequence, with their times.
///
/// Times are milliseconds since 1970. The wall clock gives the start of the trace and the monotonic clock the time since
/// then, so times never decrease.
#[derive(Clone, Debug)]
pub struct Trace {
    limits: TraceLimits,
    entries: Vec<TraceEntry>,
    bytes: usize,
    left_out: LeftOut,
    /// When the trace began, on both clocks.
    zero: Option<(u64, Mono)>,
    last: u64,
}

/// An error of [`Trace::read_lines`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A limit is 0.
    #[error(transparent)]
    Limit(#[from] ConfigError),
    /// The trace exceeds a limit.
    #[error("the trace has more than {limit} {unit}; raise the limit to read it")]
    TooLarge {
        /// The limit.
        limit: usize,
        /// Events or bytes.
        unit: &'static str,
    },
    /// A line is not valid JSON, or not a line of a trace.
    #[error("line {line}: {error}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The fault, with its pointer.
        #[source]
        error: DecodeError,
    },
}

impl Trace {
    /// An empty trace. [`Trace::default`] has the default limits.
    ///
    /// # Errors
    ///
    /// A limit is 0: nothing would be kept.
    pub fn new(limits: TraceLimits) -> Result<Self, ConfigError> {
        limits.check()?;
        Ok(Self::within(limits))
    }

    fn within(limits: TraceLimits) -> Self {
        Self {
            limits,
            entries: Vec::new(),
            bytes: 0,
            left_out: LeftOut::new(0, 0),
            zero: None,
            last: 0,
        }
    }

    /// Adds an event that arrived at `now`.
    pub fn push(&mut self, now: Now, event: &AgentStreamEvent) {
        self.add(now, event, LineKind::Event);
    }

    /// Adds the end of the run: its input and response, its token counts, or its error. The next event starts another run.
    pub fn end(&mut self, now: Now, result: &Result<GenerateResult, Box<AgentError>>) {
        self.add(now, &wire::end_of(result), LineKind::End);
    }

    /// The number of events that the trace keeps, ends of runs included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the trace is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The events that were left out at the limits.
    #[must_use]
    pub const fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Writes one line of JSON for each event, `{"at":…,"event":…}`, the end of a run as `{"at":…,"end":…}`, and last,
    /// where something was left out, `{"at":…,"leftOut":…}`.
    ///
    /// # Errors
    ///
    /// The writer failed.
    pub fn write_lines(&self, mut out: impl io::Write) -> io::Result<()> {
        let mut line = Vec::new();
        for entry in &self.entries {
            line.clear();
            entry.write(&mut line);
            line.push(b'\n');
            out.write_all(&line)?;
        }
        if self.left_out.events > 0 {
            line.clear();
            let mut object = MemberWriter::begin(&mut line);
            object.member("at", &self.last);
            object.member("leftOut", &self.left_out);
            object.end();
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    /// Reads what [`Trace::write_lines`] wrote. Blank lines are skipped.
    ///
    /// # Errors
    ///
    /// See [`TraceError`]. A line of an unknown kind is an error.
    pub fn read_lines(lines: &[u8], limits: TraceLimits) -> Result<Self, TraceError> {
        let refuse = |limit, unit| Err(TraceError::TooLarge { limit, unit });
        if lines.len() > limits.max_bytes.saturating_add(LAST_LINE) {
            return refuse(limits.max_bytes, "bytes");
        }
        let mut trace = Self::new(limits)?;
        for (n, line) in lines.split(|byte| *byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let read = wire::read_line(line, &limits.line());
            let read = read.map_err(|error| TraceError::Line { line: n + 1, error })?;
            trace.last = trace.last.max(read.at);
            let what = match read.what {
                wire::Line::LeftOut(left_out) => {
                    trace.left_out = left_out;
                    continue;
                }
                wire::Line::Event(event) => LineKind::Event(event),
                wire::Line::End(end) => LineKind::End(end),
            };
            if trace.entries.len() >= limits.max_events {
                return refuse(limits.max_events, "events");
            }
            trace.bytes += line.len();
            trace.entries.push(TraceEntry { at: read.at, what });
        }
        Ok(trace)
    }

    /// The trace as one self-contained page of HTML: no scripts, no external resources, every text escaped.
    ///
    /// The page shortens texts over 32 KiB, shows 100,000 events, and says what is missing; the lines keep them whole.
    #[must_use]
    pub fn to_html(&self) -> String {
        let (runs, hidden) = view::runs(&self.entries, &self.limits.line());
        page::page(&runs, hidden, &self.left_out)
    }

    fn add(&mut self, now: Now, value: &impl Write, what: fn(RawObject) -> LineKind) {
        let at = self.millis(now);
        let text = json::to_string(value);
        let size = text.len() + OVERHEAD;
        let fits = size <= self.limits.max_event_bytes
            && self.entries.len() < self.limits.max_events
            && self.bytes.saturating_add(size) <= self.limits.max_bytes;
        let object = RawObject::new(json::RawBuf::assume_sound(text));
        if let Some(object) = object.filter(|_| fits) {
            self.bytes += size;
            let what = what(object);
            self.entries.push(TraceEntry { at, what });
        } else {
            self.left_out.events += 1;
            self.left_out.bytes = self.left_out.bytes.saturating_add(size as u64);
        }
    }

    fn millis(&mut self, now: Now) -> u64 {
        let wall = || u64::try_from(now.wall.unix_millis()).unwrap_or(0);
        let (zero, mono) = *self.zero.get_or_insert_with(|| (wall(), now.mono));
        let since = now.mono.saturating_since(mono).as_millis();
        let at = zero.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
        self.last = self.last.max(at);
        self.last
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::within(TraceLimits::default())
    }
}

impl PartialEq for Trace {
    /// Compares the kept events and the count of the others; limits do not matter.
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries && self.left_out == other.left_out
    }
}

/// The most bytes of a line beside its event.
const OVERHEAD: usize = 40;

/// The most bytes of the line that counts the events left out. It is written when the trace is full.
const LAST_LINE: usize = 128;
