//! The events of any agent.

use std::sync::Arc;

use ubos_common::json::{Limits, RawBuf, RawObject, decode};
use ubos_common::violation::Profile;
use upp::{StreamEvent, ToolCall, ToolExecution};

use uap_agent::UapEventType;

/// An event of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The bytes of its line.
    pub text: Box<[u8]>,
    /// The event, or why the line is not one.
    pub read: Result<ReadEvent, String>,
}

/// The source of an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadEvent {
    /// An event of the agent.
    Uap(AgentEvent),
    /// An event of the model or of a tool.
    Upp(StreamEvent),
}

ubos_common::wire! {
    /// An event of an agent.
    pub struct AgentEvent {
        /// The type.
        required event_type: UapEventType = "type", "UAP-11-3";
        /// The step.
        required step: u64 = "step", "UAP-11-3";
        /// The id of the agent.
        required agent_id: Arc<str> = "agentId", "UAP-11-3";
        /// The data.
        required data: RawObject = "data", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// An event before its data is read.
    struct EventEnvelope {
        /// `uap` or `upp`.
        required source: Arc<str> = "source", "UAP-11-3";
        /// With source `uap`.
        nullable uap: RawBuf = "uap", "UAP-11-3";
        /// With source `upp`.
        nullable upp: RawBuf = "upp", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// The members of an event's data that judges read.
    pub(super) struct JudgedData {
        /// Of a step.
        nullable phase: Arc<str> = "phase", "UAP-11-3";
        /// Of an action.
        nullable tool_calls: Vec<ToolCall> = "toolCalls", "UAP-11-3";
        /// Of an observation.
        nullable observations: Vec<ToolExecution> = "observations", "UAP-11-3";
        /// Of a sub-agent.
        nullable subagent_id: Arc<str> = "subagentId", "UAP-8-3";
        /// Of a sub-agent.
        nullable parent_tool_call_id: Arc<str> = "parentToolCallId", "UAP-8-3";
        /// Of a sub-agent.
        nullable inner_event: RawBuf = "innerEvent", "UAP-8-3";
        /// Of a sub-agent's end.
        nullable success: bool = "success", "UAP-8-3";
    }
}

impl RecordedEvent {
    pub(super) fn read(text: &[u8]) -> Self {
        Self {
            text: text.into(),
            read: told(text),
        }
    }
}

fn told(text: &[u8]) -> Result<ReadEvent, String> {
    let outer = decode::<EventEnvelope>(text, &limits(), Profile::Strict);
    let (outer, _) = outer.map_err(|error| error.to_string())?;
    match (&*outer.source, &outer.uap, &outer.upp) {
        ("uap", Some(uap), None) => part(uap).map(ReadEvent::Uap),
        ("upp", None, Some(upp)) => part(upp).map(ReadEvent::Upp),
        ("uap" | "upp", Some(_), Some(_)) => Err("both uap and upp".to_owned()),
        ("uap" | "upp", ..) => Err("without the member that its source names".to_owned()),
        _ => Err("a source that is neither uap nor upp".to_owned()),
    }
}

fn part<T: for<'a> ubos_common::json::Read<'a>>(raw: &RawBuf) -> Result<T, String> {
    let read = decode::<T>(raw.as_str().as_bytes(), &limits(), Profile::Strict);
    read.map(|(part, _)| part)
        .map_err(|error| error.to_string())
}

impl AgentEvent {
    /// The members that judges read; empty if the data has another form.
    pub(super) fn judged_data(&self) -> Result<JudgedData, String> {
        part(&RawBuf::from(self.data.clone()))
    }
}

/// Bytes of one line of a recording.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;

/// The limits of one line: only its size counts, so that no state or event is refused for its shape.
pub(super) fn limits() -> Limits {
    const BYTES: usize = MAX_LINE_BYTES;
    Limits::default()
        .with_max_depth(Limits::DEEPEST)
        .with_max_bytes(BYTES)
        .with_max_string_bytes(BYTES)
        .with_max_array_len(BYTES)
        .with_max_members(BYTES)
}
