//! The message that a stream of events adds up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{RawBuf, RawObject};

use crate::content::ContentBlock;
use crate::error::{ErrorCode, UppError};
use crate::kept::value_of;
use crate::message::{AssistantMessage, Stamp};
use crate::stream::{StreamEvent, StreamEventType};
use crate::tool::ToolCall;

/// The maximum size of a streamed response, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// The maximum number of blocks and calls of a streamed response.
const MAX_PARTS: usize = 4_096;

/// Adds events up to a message.
///
/// ```
/// use ubos_common::time::Timestamp;
/// use upp::{Accumulator, Stamp, StreamEvent, StreamEventType};
///
/// let mut sum = Accumulator::new("example");
/// for piece in ["hel", "lo"] {
///     sum.add(&StreamEvent::text(StreamEventType::TextDelta, 0, piece))?;
/// }
/// let (message, data) = sum.finish(Stamp::with_id("m-1", Timestamp::EPOCH))?;
/// assert_eq!((message.text().as_str(), data), ("hello", None));
/// # Ok::<(), upp::UppError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Accumulator {
    provider: Arc<str>,
    bytes: usize,
    parts: BTreeMap<u32, Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Reasoning(String),
    Object(String),
    Call {
        id: Option<Arc<str>>,
        name: Option<Arc<str>>,
        arguments: String,
    },
}

impl Accumulator {
    /// An empty accumulator. Errors name the provider.
    pub fn new(provider: impl Into<Arc<str>>) -> Self {
        Self {
            provider: provider.into(),
            bytes: 0,
            parts: BTreeMap::new(),
        }
    }

    /// Adds one event. Events without a part of the message are ignored.
    ///
    /// # Errors
    ///
    /// The message exceeds 64 MiB or 4,096 parts, or one part has two kinds.
    // impl: UPP-7
    pub fn add(&mut self, event: &StreamEvent) -> Result<(), UppError> {
        let delta = &event.delta;
        let (empty, more): (fn(String) -> Part, _) = match event.event_type {
            StreamEventType::TextDelta => (Part::Text, &delta.text),
            StreamEventType::ReasoningDelta => (Part::Reasoning, &delta.text),
            StreamEventType::ObjectDelta => (Part::Object, &delta.text),
            StreamEventType::ToolCallDelta => (Part::call, &delta.arguments_json),
            _ => return Ok(()),
        };
        let more = more.as_deref().unwrap_or_default();
        self.bytes = self.bytes.saturating_add(more.len());
        let is_new = !self.parts.contains_key(&event.index);
        if self.bytes > MAX_BYTES || is_new && self.parts.len() >= MAX_PARTS {
            return Err(self.refuse("the response has more than 64 MiB or 4,096 parts"));
        }
        let fresh = empty(String::new());
        let kind = core::mem::discriminant(&fresh);
        let part = self.parts.entry(event.index).or_insert(fresh);
        if core::mem::discriminant(part) != kind {
            return Err(self.refuse("one part of the response has two kinds"));
        }
        match part {
            Part::Text(text) | Part::Reasoning(text) | Part::Object(text) => text.push_str(more),
            Part::Call {
                id,
                name,
                arguments,
            } => {
                arguments.push_str(more);
                *id = id.take().or_else(|| delta.tool_call_id.clone());
                *name = name.take().or_else(|| delta.tool_name.clone());
            }
        }
        Ok(())
    }

    /// The message, and the structured output where there is any.
    ///
    /// # Errors
    ///
    /// A tool call lacks its id or name, or the structured output is not JSON. Arguments that are not an object are no
    /// error: see [`ToolCall::malformed_arguments`].
    pub fn finish(self, stamp: Stamp) -> Result<(AssistantMessage, Option<RawBuf>), UppError> {
        self.finish_message(stamp, true)
    }

    /// As [`Accumulator::finish`], of a message that the model may go on with.
    pub(crate) fn finish_message(
        self,
        stamp: Stamp,
        is_whole: bool,
    ) -> Result<(AssistantMessage, Option<RawBuf>), UppError> {
        let refuse = |what: &str| {
            UppError::new(ErrorCode::InvalidResponse, Arc::clone(&self.provider), what)
        };
        let (mut content, mut calls) = (Vec::new(), Vec::new());
        let (mut data, mut has_output) = (None, false);
        for part in self.parts.into_values() {
            match part {
                Part::Text(text) => content.push(ContentBlock::text(text)),
                Part::Reasoning(text) => content.push(ContentBlock::Reasoning(text.into())),
                Part::Object(text) => {
                    // A model may say something before its output: the last part is the output.
                    has_output = true;
                    data = value_of(&text);
                    content.push(ContentBlock::text(text));
                }
                Part::Call {
                    id,
                    name,
                    arguments,
                } => {
                    let (Some(id), Some(name)) = (id, name) else {
                        return Err(refuse("a tool call has no id or no name"));
                    };
                    calls.push(call_of(id, name, &arguments));
                }
            }
        }
        if has_output && data.is_none() && calls.is_empty() && is_whole {
            return Err(refuse("the structured output is not JSON"));
        }
        let calls = (!calls.is_empty()).then_some(calls);
        Ok((AssistantMessage::new(stamp, content, calls), data))
    }

    fn refuse(&self, what: &str) -> UppError {
        UppError::new(ErrorCode::InvalidResponse, Arc::clone(&self.provider), what)
    }
}

impl Part {
    const fn call(arguments: String) -> Self {
        Self::Call {
            id: None,
            name: None,
            arguments,
        }
    }
}

/// A call with arguments as models write them. An empty text is the empty object; a text that is not an object is kept
/// beside the call, so that the call is answered by an error and the model can correct it.
fn call_of(id: Arc<str>, name: Arc<str>, text: &str) -> ToolCall {
    if text.trim().is_empty() {
        return ToolCall::new(id, name, RawObject::empty());
    }
    match value_of(text).and_then(RawObject::new) {
        Some(arguments) => ToolCall::new(id, name, arguments),
        None => ToolCall::malformed(id, name, text),
    }
}
