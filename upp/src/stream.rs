//! Stream events.

use std::sync::Arc;

use ubos_common::json::RawBuf;

use crate::blob::Blob;
use crate::content::ContentBlock;
use crate::response::LlmResponse;
use crate::tool::{ToolCall, ToolExecution};

ubos_common::words! {
    /// The type of a stream event.
    ///
    /// Spec: UPP-1.3 streaming
    open pub enum StreamEventType {
        /// A message starts.
        MessageStart = "message_start",
        /// The message is complete.
        MessageStop = "message_stop",
        /// A block starts. Not every vendor reports it.
        ContentBlockStart = "content_block_start",
        /// A block is complete. Not every vendor reports it.
        ContentBlockStop = "content_block_stop",
        /// A part of the text.
        TextDelta = "text_delta",
        /// A part of the reasoning.
        ReasoningDelta = "reasoning_delta",
        /// A part of the structured output.
        ObjectDelta = "object_delta",
        /// A part of an image.
        ImageDelta = "image_delta",
        /// A part of an audio clip.
        AudioDelta = "audio_delta",
        /// A part of a video.
        VideoDelta = "video_delta",
        /// A part of a tool call.
        ToolCallDelta = "tool_call_delta",
        /// A tool starts.
        ToolExecutionStart = "tool_execution_start",
        /// A tool has run.
        ToolExecutionEnd = "tool_execution_end",
    }
}

ubos_common::wire! {
    /// The data of an event. Its type determines which members are present.
    pub struct EventDelta {
        /// Text, reasoning, object.
        nullable text: Arc<str> = "text", "UPP-7";
        /// Image, audio, video.
        nullable data: Blob = "data", "UPP-7";
        /// Of a tool execution, and of a tool call where the vendor reports it.
        nullable tool_call_id: Arc<str> = "toolCallId", "UPP-7";
        /// Of a tool execution, and of a tool call where the vendor reports it.
        nullable tool_name: Arc<str> = "toolName", "UPP-7";
        /// Of a tool call: a part of the arguments' JSON.
        nullable arguments_json: Arc<str> = "argumentsJson", "UPP-7";
        /// Of the end of a tool execution. A tool may return null.
        verbatim result: RawBuf = "result", "UPP-7";
        /// Of the end of a tool execution.
        nullable is_error: bool = "isError", "UPP-7";
        /// Of a tool execution: milliseconds since 1970.
        nullable timestamp: i64 = "timestamp", "UPP-7";
    }
}

ubos_common::wire! {
    /// One event of a stream.
    ///
    /// Spec: UPP-1.3 streaming
    pub struct StreamEvent {
        /// The type.
        required event_type: StreamEventType = "type", "UPP-7";
        /// The index of the block or of the call; 0 for the message itself.
        required index: u32 = "index", "UPP-7";
        /// The data.
        required delta: EventDelta = "delta", "UPP-7";
    }
}

impl StreamEvent {
    /// An event without data.
    #[must_use]
    pub fn bare(event_type: StreamEventType, index: u32) -> Self {
        Self::new(event_type, index, EventDelta::new())
    }

    /// A part of text, reasoning or structured output.
    pub fn text(event_type: StreamEventType, index: u32, text: impl Into<Arc<str>>) -> Self {
        let mut event = Self::bare(event_type, index);
        event.delta.text = Some(text.into());
        event
    }

    /// A part of a tool call, with its id and name where the vendor reports them.
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

    /// A tool call starts. The index is its place among the calls, and the time is in milliseconds since 1970.
    #[must_use]
    pub fn tool_start(index: u32, call: &ToolCall, at_ms: i64) -> Self {
        let mut event = Self::bare(StreamEventType::ToolExecutionStart, index);
        event.delta.tool_call_id = Some(Arc::clone(&call.tool_call_id));
        event.delta.tool_name = Some(Arc::clone(&call.tool_name));
        event.delta.timestamp = Some(at_ms);
        event
    }

    /// A tool call has ended.
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

/// The stream events of a whole response, with texts in parts of at most `chars` characters.
// impl: UPP-7
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
