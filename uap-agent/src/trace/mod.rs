//! A run to look at: its events with their times, as lines of JSON and as one page of HTML.
//!
//! Push each event of a stream as it comes, tell the end, and write. The trace works on the events' JSON, so that what
//! is written and what is read back are the same; [`Trace::to_html`] draws either.
//!
//! ```
//! use std::sync::Arc;
//! use futures::StreamExt;
//! use uap_agent::trace::{Trace, TraceLimits};
//! use uap_agent::{AgentOptions, agent};
//! use ubos_common::time::{Mono, Now, Timestamp};
//! use upp::{Reply, ScriptedModel};
//!
//! # futures::executor::block_on(async {
//! let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")]))))?;
//! let now = || Now::new(Mono::ZERO, Timestamp::EPOCH); // the clock of your program
//! let mut trace = Trace::new(TraceLimits::default());
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

mod page;
mod text;
mod view;
mod wire;

use std::io;

use ubos_common::json::{self, DecodeError, Limits, MemberWriter, RawObject, Write};
use ubos_common::time::{Mono, Now};

use crate::event::AgentStreamEvent;
use crate::result::{AgentError, GenerateResult};

/// How much a trace keeps. LineKind comes after a bound is left out, and counted.
///
/// | limit | unit | default |
/// |---|---|---|
/// | `max_events` | events | 100,000 |
/// | `max_bytes` | bytes of all lines | 64 MiB |
/// | `max_event_bytes` | bytes of one line | 4 MiB |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceLimits {
    /// Events kept, ends of runs included.
    pub max_events: usize,
    /// Bytes of all lines together.
    pub max_bytes: usize,
    /// Bytes of one line.
    pub max_event_bytes: usize,
}

impl TraceLimits {
    /// Sets the events kept.
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

    /// LineKind a line is read with: an event of a sub-agent's sub-agent is deeper than other documents.
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

/// The events of one run, or of several one after the other, with the times at which they came.
///
/// Times are milliseconds since 1970: the calendar clock says when the trace began, the monotonic one how far later
/// each event came. They never go back.
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

/// LineKind is kept of one event.
#[derive(Clone, Debug, PartialEq)]
struct TraceEntry {
    /// Milliseconds since 1970.
    at: u64,
    what: LineKind,
}

#[derive(Clone, Debug, PartialEq)]
enum LineKind {
    /// An [`AgentStreamEvent`], as JSON.
    Event(RawObject),
    /// The end of a run; see [`wire::End`].
    End(RawObject),
}

ubos_common::wire! {
    /// LineKind a trace could not keep.
    pub struct LeftOut {
        /// How many events.
        required events: u64 = "events", "UAP-11-3";
        /// How many bytes their lines would have had.
        required bytes: u64 = "bytes", "UAP-11-3";
    }
}

/// Why lines are no trace.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// More than the limits allow.
    #[error("more than {limit} {unit} of trace")]
    TooLarge {
        /// LineKind is allowed.
        limit: usize,
        /// Events or bytes.
        unit: &'static str,
    },
    /// A line is no sound JSON, or none of a trace.
    #[error("line {line}: {error}")]
    Line {
        /// From 1.
        line: usize,
        /// LineKind is wrong with it, with its pointer.
        #[source]
        error: DecodeError,
    },
}

impl Trace {
    /// A trace of nothing yet.
    #[must_use]
    pub fn new(limits: TraceLimits) -> Self {
        Self {
            limits,
            entries: Vec::new(),
            bytes: 0,
            left_out: LeftOut::new(0, 0),
            zero: None,
            last: 0,
        }
    }

    /// Adds an event that came now.
    pub fn push(&mut self, now: Now, event: &AgentStreamEvent) {
        self.add(now, event, LineKind::Event);
    }

    /// Says how the run ended: what was asked and answered, what it cost, what went wrong. An event after it begins
    /// the next run.
    pub fn end(&mut self, now: Now, result: &Result<GenerateResult, Box<AgentError>>) {
        self.add(now, &wire::end_of(result), LineKind::End);
    }

    /// How many events are kept, ends of runs included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// LineKind was left out at the bounds.
    #[must_use]
    pub const fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Writes one line of JSON for each event, `{"at":…,"event":…}`, the end of a run as `{"at":…,"end":…}`, and last,
    /// where something was left out, `{"at":…,"leftOut":…}`.
    ///
    /// # Errors
    ///
    /// The writer's.
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

    /// Reads what [`Trace::write_lines`] wrote. Blank lines are passed over.
    ///
    /// # Errors
    ///
    /// See [`TraceError`]. Every finding has its line and pointer; a line of an unknown kind is refused.
    pub fn read_lines(lines: &[u8], limits: TraceLimits) -> Result<Self, TraceError> {
        let refuse = |limit, unit| Err(TraceError::TooLarge { limit, unit });
        if lines.len() > limits.max_bytes.saturating_add(LAST_LINE) {
            return refuse(limits.max_bytes, "bytes");
        }
        let mut trace = Self::new(limits);
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

    /// The trace as one page of HTML that stands alone: no scripts, nothing from elsewhere, every text escaped.
    ///
    /// Texts over 32 KiB are cut on the page, and it says so; the lines have them whole.
    #[must_use]
    pub fn to_html(&self) -> String {
        page::page(
            &view::runs(&self.entries, &self.limits.line()),
            &self.left_out,
        )
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

impl PartialEq for Trace {
    /// Whether both tell the same; how they came to it does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries && self.left_out == other.left_out
    }
}

impl Write for TraceEntry {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("at", &self.at);
        match &self.what {
            LineKind::Event(event) => object.member("event", event),
            LineKind::End(end) => object.member("end", end),
        }
        object.end();
    }
}

/// Bytes of a line beside its event, at most.
const OVERHEAD: usize = 40;

/// Bytes of the line that tells what was left out, at most: it comes when the trace is full.
const LAST_LINE: usize = 128;
