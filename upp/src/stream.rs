//! What a model says while it is saying it.

use std::sync::Arc;

use ubos_common::json::RawBuf;

use crate::blob::Blob;
use crate::content::ContentBlock;
use crate::model::LlmResponse;
use crate::tool::{ToolCall, ToolExecution};

ubos_common::words! {
    /// What an event tells of.
    ///
    /// Spec: UPP-1.3 streaming
    open pub enum StreamEventType {
        /// A message begins.
        MessageStart = "message_start",
        /// The message is complete.
        MessageStop = "message_stop",
        /// A block begins; not every vendor says so.
        ContentBlockStart = "content_block_start",
        /// A block is complete; not every vendor says so.
        ContentBlockStop = "content_block_stop",
        /// More text.
        TextDelta = "text_delta",
        /// More reasoning.
        ReasoningDelta = "reasoning_delta",
        /// More structured output.
        ObjectDelta = "object_delta",
        /// More of an image.
        ImageDelta = "image_delta",
        /// More of a sound.
        AudioDelta = "audio_delta",
        /// More of a film.
        VideoDelta = "video_delta",
        /// More of a tool call.
        ToolCallDelta = "tool_call_delta",
        /// A tool begins to run.
        ToolExecutionStart = "tool_execution_start",
        /// A tool has run.
        ToolExecutionEnd = "tool_execution_end",
    }
}

ubos_common::wire! {
    /// What an event brings; which members are there follows from its type.
    pub struct EventDelta {
        /// Text, reasoning, object.
        nullable text: Arc<str> = "text", "UPP-7";
        /// Image, audio, video.
        nullable data: Blob = "data", "UPP-7";
        /// Tool execution; with a tool call, where the vendor says it.
        nullable tool_call_id: Arc<str> = "toolCallId", "UPP-7";
        /// Tool execution; with a tool call, where the vendor says it.
        nullable tool_name: Arc<str> = "toolName", "UPP-7";
        /// Tool call: a piece of the arguments' JSON.
        nullable arguments_json: Arc<str> = "argumentsJson", "UPP-7";
        /// The end of a tool execution; null is what a tool may give.
        verbatim result: RawBuf = "result", "UPP-7";
        /// The end of a tool execution.
        nullable is_error: bool = "isError", "UPP-7";
        /// Tool execution: milliseconds since 1970.
        nullable timestamp: i64 = "timestamp", "UPP-7";
    }
}

ubos_common::wire! {
    /// One event of a stream.
    ///
    /// Spec: UPP-1.3 streaming
    pub struct StreamEvent {
        /// What it tells of.
        required event_type: StreamEventType = "type", "UPP-7";
        /// Which block of the message, or which call; 0 where it is about the message.
        required index: u32 = "index", "UPP-7";
        /// What it brings.
        required delta: EventDelta = "delta", "UPP-7";
    }
}

impl StreamEvent {
    /// An event that brings nothing but itself.
    #[must_use]
    pub fn bare(event_type: StreamEventType, index: u32) -> Self {
        Self::new(event_type, index, EventDelta::new())
    }

    /// More text of one of the three kinds.
    pub fn text(event_type: StreamEventType, index: u32, text: impl Into<Arc<str>>) -> Self {
        let mut event = Self::bare(event_type, index);
        event.delta.text = Some(text.into());
        event
    }

    /// More of a tool call; id and name where the vendor says them.
    #[must_use]
    pub fn tool_call(
        index: u32,
        id: Option<Arc<str>>,
        name: Option<Arc<str>>,
        arguments_json: impl Into<Arc<str>>,
    ) -> Self {
        let mut event = Self::bare(StreamEventType::ToolCallDelta, index);
        event.delta.tool_call_id = id;
        event.delta.tool_name = name;
        event.delta.arguments_json = Some(arguments_json.into());
        event
    }

    /// A call begins to run: the index is its place among the calls, the time in milliseconds since 1970.
    #[must_use]
    pub fn tool_start(index: u32, call: &ToolCall, at_ms: i64) -> Self {
        let mut event = Self::bare(StreamEventType::ToolExecutionStart, index);
        event.delta.tool_call_id = Some(Arc::clone(&call.tool_call_id));
        event.delta.tool_name = Some(Arc::clone(&call.tool_name));
        event.delta.timestamp = Some(at_ms);
        event
    }

    /// A call has run.
    #[must_use]
    pub fn tool_end(index: u32, execution: &ToolExecution, at_ms: i64) -> Self {
        let mut event = Self::bare(StreamEventType::ToolExecutionEnd, index);
        event.delta.tool_call_id = Some(Arc::clone(&execution.tool_call_id));
        event.delta.tool_name = Some(Arc::clone(&execution.tool_name));
        event.delta.result = Some(execution.result.clone());
        event.delta.is_error = Some(execution.is_error);
        event.delta.timestamp = Some(at_ms);
        event
    }
}

/// The events that a complete answer would have come in, texts in pieces of at most `chars` characters.
#[must_use]
pub fn events_of(response: &LlmResponse, chars: usize) -> Vec<StreamEvent> {
    let mut events = vec![StreamEvent::bare(StreamEventType::MessageStart, 0)];
    let mut index = 0;
    for block in &response.message.content {
        let (kind, text) = match block {
            ContentBlock::Text(text) if response.data.is_some() => {
                (StreamEventType::ObjectDelta, text)
            }
            ContentBlock::Text(text) => (StreamEventType::TextDelta, text),
            ContentBlock::Reasoning(text) => (StreamEventType::ReasoningDelta, text),
            _ => {
                index += 1;
                continue;
            }
        };
        events.push(StreamEvent::bare(StreamEventType::ContentBlockStart, index));
        events
            .extend(pieces(text, chars).map(|piece| StreamEvent::text(kind.clone(), index, piece)));
        events.push(StreamEvent::bare(StreamEventType::ContentBlockStop, index));
        index += 1;
    }
    for call in response.message.calls() {
        let (id, name) = (Arc::clone(&call.tool_call_id), Arc::clone(&call.tool_name));
        events.push(StreamEvent::tool_call(
            index,
            Some(id),
            Some(name),
            call.arguments.as_str(),
        ));
        index += 1;
    }
    events.push(StreamEvent::bare(StreamEventType::MessageStop, 0));
    events
}

fn pieces(text: &str, chars: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let end = rest
            .char_indices()
            .nth(chars.max(1))
            .map_or(rest.len(), |(at, _)| at);
        let (piece, more) = rest.split_at(end);
        rest = more;
        (!piece.is_empty()).then_some(piece)
    })
}
