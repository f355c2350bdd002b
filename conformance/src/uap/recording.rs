//! Recordings of runs, line by line.

use std::sync::Arc;

use crate::{Protocol, Recorder};
use ubos_common::json::{DecodeError, RawBuf, decode};
use ubos_common::violation::Profile;

use super::event::{MAX_LINE_BYTES, RecordedEvent, limits};
use uap_agent::AgentState;
use uap_agent::ThreadTree;

/// One line of a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RecordedLine {
    /// An event of a stream.
    Event(Arc<RecordedEvent>),
    /// A state that was saved, or what is wrong with it.
    State(Arc<Recorded<AgentState>>),
    /// A thread tree as it was at the time, or what is wrong with it.
    Tree(Arc<Recorded<ThreadTree>>),
    /// A line of the logging middleware.
    Log(Arc<str>),
}

/// A value of a recording, and the bytes that it was read from.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recorded<T> {
    /// The bytes of its line.
    pub text: Box<[u8]>,
    /// The value, or why the line is not one.
    pub read: Result<T, String>,
}

/// What an agent did, in order: events, saved states, thread trees, lines of a log.
///
/// Runs follow each other. Concurrent runs need separate recordings.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    lines: Vec<RecordedLine>,
}

/// Judging recordings.
#[derive(Clone, Copy, Debug)]
pub struct Runs;

impl Protocol for Runs {
    type Line = RecordedLine;
    type Peer = Recording;
}

/// Why a text is not a recording.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A line is not a JSON object.
    #[error("line {line}: {error}")]
    NoJson {
        /// Its number, from 1.
        line: usize,
        /// The fault.
        error: DecodeError,
    },
    /// A line has an unknown form.
    #[error("line {line}: neither an event nor a state, a tree or a line of a log")]
    Unknown {
        /// Its number, from 1.
        line: usize,
    },
    /// There are too many lines.
    #[error("more than {limit} lines")]
    TooLong {
        /// The maximum.
        limit: usize,
    },
}

ubos_common::wire! {
    /// The JSON of a line: an event, or one member that names its kind.
    struct LineJson {
        /// Of an event.
        optional source: RawBuf = "source", "";
        /// Of a trace.
        optional event: RawBuf = "event", "";
        /// A state.
        optional state: RawBuf = "state", "";
        /// A tree.
        optional tree: RawBuf = "tree", "";
        /// A line of a log.
        optional log: Arc<str> = "log", "";
        /// How a traced run ended: nothing to judge.
        optional end: RawBuf = "end", "";
        /// What a trace could not keep: nothing to judge.
        optional left_out: RawBuf = "leftOut", "";
    }
}

impl Recording {
    /// Lines of one recording.
    pub const MAX_LINES: usize = Recorder::<RecordedLine>::BOUND;

    /// The maximum size of a line that is judged, in bytes.
    pub const MAX_LINE_BYTES: usize = MAX_LINE_BYTES;

    /// An empty recording.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// A recording as JSON lines: events as they are or behind `event`, as in `{"at":5,"event":{…}}`, states behind
    /// `state`, trees behind `tree`, lines of a log behind `log`. Empty lines are
    /// skipped, and so are the other lines of a trace.
    ///
    /// # Errors
    ///
    /// A line has another form, or there are too many.
    pub fn read_lines(text: &str) -> Result<Self, RecordingError> {
        let mut recording = Self::new();
        for (n, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            if recording.lines.len() >= Self::MAX_LINES {
                let limit = Self::MAX_LINES;
                return Err(RecordingError::TooLong { limit });
            }
            recording = recording.line(n + 1, line)?;
        }
        Ok(recording)
    }

    fn line(self, n: usize, line: &str) -> Result<Self, RecordingError> {
        let written = decode::<LineJson>(line.as_bytes(), &limits(), Profile::Lenient);
        let (written, _) = written.map_err(|error| RecordingError::NoJson { line: n, error })?;
        let bytes = |raw: &RawBuf| raw.as_str().as_bytes().to_vec();
        if written.source.is_some() {
            Ok(self.event(line.as_bytes()))
        } else if let Some(event) = &written.event {
            Ok(self.event(&bytes(event)))
        } else if let Some(state) = &written.state {
            Ok(self.state(&bytes(state)))
        } else if let Some(tree) = &written.tree {
            Ok(self.tree(&bytes(tree)))
        } else if let Some(log) = &written.log {
            Ok(self.log(log))
        } else if written.end.is_some() || written.left_out.is_some() {
            Ok(self)
        } else {
            Err(RecordingError::Unknown { line: n })
        }
    }

    /// Adds an event.
    #[must_use]
    pub fn event(self, text: &[u8]) -> Self {
        self.with(RecordedLine::Event(Arc::new(RecordedEvent::read(text))))
    }

    /// Adds a state that was saved.
    #[must_use]
    pub fn state(self, text: &[u8]) -> Self {
        let read = AgentState::from_json(text, &limits()).map_err(|error| error.to_string());
        let text = text.into();
        self.with(RecordedLine::State(Arc::new(Recorded { text, read })))
    }

    /// Adds a thread tree.
    #[must_use]
    pub fn tree(self, text: &[u8]) -> Self {
        let read = ThreadTree::from_json(text, &limits()).map_err(|error| error.to_string());
        let text = text.into();
        self.with(RecordedLine::Tree(Arc::new(Recorded { text, read })))
    }

    /// Adds a line of a log.
    #[must_use]
    pub fn log(self, text: &str) -> Self {
        self.with(RecordedLine::Log(text.into()))
    }

    /// Adds a line.
    #[must_use]
    pub fn with(mut self, line: RecordedLine) -> Self {
        self.lines.push(line);
        self
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[RecordedLine] {
        &self.lines
    }
}

pub(super) fn replay(peer: &mut Recording, recorder: &mut Recorder<RecordedLine>) {
    for line in &peer.lines {
        recorder.record(line.clone());
    }
}
