//! Reads responses of the messages API, whole or in events.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use ubos_common::json::{Kind, RawBuf};

use super::request::ANSWER_TOOL;
use super::thinking::ThinkingBlock;
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::builder::{Json, ResponseBuilder, ResponseReader, parse};
use crate::transport::failure::within_stream;
use crate::turn::CycleUsage;

/// A stream event; its type determines which members it has.
#[derive(Deserialize)]
struct MessageStreamEvent {
    /// The type.
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
    /// The message, as it starts.
    message: Option<MessageBody>,
    /// The index of the block.
    index: Option<u32>,
    /// The block, as it starts.
    content_block: Option<Json>,
    /// A delta of a block, or of the message.
    delta: Option<DeltaBody>,
    /// Token counts so far.
    usage: Option<MessageUsage>,
}

/// A message.
#[derive(Deserialize)]
struct MessageBody {
    /// The vendor's id of the message.
    id: Option<Box<str>>,
    /// The model that answered.
    model: Option<Box<str>>,
    /// The content blocks.
    content: Option<Vec<Json>>,
    /// Why the model stopped.
    stop_reason: Option<Box<str>>,
    /// The stop sequence that was reached, where the request has any.
    stop_sequence: Option<Json>,
    /// Token counts.
    usage: Option<MessageUsage>,
}

/// A content block; its type determines which members it has.
#[derive(Deserialize)]
struct BlockBody {
    /// The type.
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
    /// Text.
    text: Option<Arc<str>>,
    /// Reasoning.
    thinking: Option<Arc<str>>,
    /// The vendor's signature over the reasoning.
    signature: Option<Arc<str>>,
    /// Encrypted reasoning.
    data: Option<Arc<str>>,
    /// The id of a tool call.
    id: Option<Arc<str>>,
    /// The tool's name.
    name: Option<Arc<str>>,
    /// The arguments.
    input: Option<Json>,
}

/// A delta of a block, or of the message.
#[derive(Deserialize)]
struct DeltaBody {
    /// The type.
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
    /// Text.
    text: Option<Arc<str>>,
    /// Reasoning.
    thinking: Option<Arc<str>>,
    /// The vendor's signature over the reasoning.
    signature: Option<Arc<str>>,
    /// A part of the arguments' JSON.
    partial_json: Option<Arc<str>>,
    /// Of the message: the stop reason.
    stop_reason: Option<Box<str>>,
    /// Of the message: the stop sequence.
    stop_sequence: Option<Json>,
}

/// Token counts; later counts replace earlier ones.
#[derive(Deserialize)]
struct MessageUsage {
    /// Input tokens, cached ones excluded.
    input_tokens: Option<u64>,
    /// Output tokens.
    output_tokens: Option<u64>,
    /// Input tokens read from the cache.
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: Option<u64>,
    /// Input tokens written to the cache.
    #[serde(rename = "cache_creation_input_tokens")]
    cache_write: Option<u64>,
}

/// The kind of an open block: what its deltas append to.
enum OpenBlock {
    Text,
    Thinking,
    /// A tool call, or the structured output that is requested as one; with the type of its events.
    Call(StreamEventType),
    Other,
}

/// Blocks of one response.
const MAX_BLOCKS: usize = 4_096;

/// Reads one response, whole or in events.
pub(super) struct MessageReader {
    answer: ResponseBuilder,
    open: BTreeMap<u32, OpenBlock>,
    thoughts: BTreeMap<u32, ThinkingBlock>,
    /// Blocks that UPP has no type for, kept as they are.
    others: Vec<RawBuf>,
    stop_reason: Option<Box<str>>,
    /// Whether the response is not streamed.
    is_whole: bool,
}

impl MessageReader {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            answer: ResponseBuilder::new(request, provider),
            open: BTreeMap::new(),
            thoughts: BTreeMap::new(),
            others: Vec::new(),
            stop_reason: None,
            is_whole: false,
        }
    }

    fn begin(&mut self, message: MessageBody) -> Result<(), UppError> {
        self.answer.begin();
        self.answer.set_metadata("id", message.id.as_ref());
        self.answer.set_metadata("model", message.model.as_ref());
        self.stop_reason = message.stop_reason;
        self.stop_sequence(message.stop_sequence);
        self.usage(message.usage);
        for (index, block) in (0..).zip(message.content.unwrap_or_default()) {
            self.block(index, &block.0)?;
            self.block_stop(index);
        }
        Ok(())
    }

    fn stop_sequence(&mut self, sequence: Option<Json>) {
        let sequence = sequence.map(|json| json.0);
        let sequence = sequence.filter(|json| json.kind() != Kind::Null);
        self.answer.set_metadata("stop_sequence", sequence.as_ref());
    }

    fn usage(&mut self, usage: Option<MessageUsage>) {
        let Some(usage) = usage else {
            return;
        };
        let known = &mut self.answer.usage;
        *known = CycleUsage::new(
            usage.input_tokens.unwrap_or(known.input_tokens),
            usage.output_tokens.unwrap_or(known.output_tokens),
            usage.cache_read.unwrap_or(known.cache_read_tokens),
            usage.cache_write.unwrap_or(known.cache_write_tokens),
        );
    }

    /// Starts a block. In a whole message the block is complete at its start.
    fn block(&mut self, index: u32, raw: &RawBuf) -> Result<(), UppError> {
        if self.open.len() >= MAX_BLOCKS {
            let code = ErrorCode::InvalidResponse;
            return Err(self
                .answer
                .error(code, "the response has more than 4,096 content blocks"));
        }
        let block: BlockBody = parse(raw.as_str().as_bytes()).ok_or_else(|| {
            self.answer
                .error(ErrorCode::InvalidResponse, "a content block cannot be read")
        })?;
        let start = StreamEvent::bare(StreamEventType::ContentBlockStart, index);
        self.answer.push(start)?;
        let open = match block.kind.as_deref() {
            Some("text") => {
                let text = block.text.unwrap_or_default();
                self.answer.text(StreamEventType::TextDelta, index, text)?;
                OpenBlock::Text
            }
            Some("thinking") => {
                let text = block.thinking.unwrap_or_default();
                self.thoughts.insert(index, ThinkingBlock::Unsigned);
                self.sign(index, block.signature);
                let kind = StreamEventType::ReasoningDelta;
                self.answer.text(kind, index, text)?;
                OpenBlock::Thinking
            }
            Some("redacted_thinking") => {
                let data = block.data.as_deref().unwrap_or_default().into();
                self.thoughts.insert(index, ThinkingBlock::Redacted(data));
                OpenBlock::Other
            }
            Some("tool_use") => self.call(index, block)?,
            _ => {
                self.others.push(raw.clone());
                OpenBlock::Other
            }
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn call(&mut self, index: u32, block: BlockBody) -> Result<OpenBlock, UppError> {
        // In a stream the input is empty at the start, and follows in deltas.
        let is_empty = |input: &RawBuf| !self.is_whole && input.as_str() == "{}";
        let input = block.input.as_ref().map(|json| &json.0);
        let input = input.filter(|input| !is_empty(input));
        let input = input.map_or("", RawBuf::as_str).to_owned();
        if self.answer.structured && block.name.as_deref() == Some(ANSWER_TOOL) {
            let kind = StreamEventType::ObjectDelta;
            self.answer.text(kind.clone(), index, input.into())?;
            return Ok(OpenBlock::Call(kind));
        }
        let event = StreamEvent::tool_call(index, block.id, block.name, input);
        self.answer.push(event)?;
        Ok(OpenBlock::Call(StreamEventType::ToolCallDelta))
    }

    fn delta(&mut self, index: u32, delta: DeltaBody) -> Result<(), UppError> {
        match (delta.kind.as_deref(), self.open.get(&index)) {
            (Some("text_delta"), Some(OpenBlock::Text)) => {
                let text = delta.text.unwrap_or_default();
                self.answer.text(StreamEventType::TextDelta, index, text)
            }
            (Some("thinking_delta"), Some(OpenBlock::Thinking)) => {
                let text = delta.thinking.unwrap_or_default();
                self.answer
                    .text(StreamEventType::ReasoningDelta, index, text)
            }
            (Some("signature_delta"), Some(OpenBlock::Thinking)) => {
                self.sign(index, delta.signature);
                Ok(())
            }
            (Some("input_json_delta"), Some(OpenBlock::Call(kind))) => {
                let more = delta.partial_json.unwrap_or_default();
                if *kind == StreamEventType::ObjectDelta {
                    return self.answer.text(kind.clone(), index, more);
                }
                self.answer
                    .push(StreamEvent::tool_call(index, None, None, more))
            }
            // A delta of a block that UPP has no type for.
            _ => Ok(()),
        }
    }

    fn sign(&mut self, index: u32, signature: Option<Arc<str>>) {
        let Some(more) = signature.filter(|more| !more.is_empty()) else {
            return;
        };
        self.thoughts
            .insert(index, ThinkingBlock::Signed((&*more).into()));
    }

    fn block_stop(&mut self, index: u32) {
        // The event adds nothing to the message, so it cannot be refused.
        let stop = StreamEvent::bare(StreamEventType::ContentBlockStop, index);
        let _ = self.answer.push(stop);
    }
}

impl ResponseReader for MessageReader {
    /// Data that is not JSON, and events of unknown types, are ignored: the vendor may add types.
    fn read_event(&mut self, data: &str) -> Result<(), UppError> {
        let Some(event) = parse::<MessageStreamEvent>(data.as_bytes()) else {
            return Ok(());
        };
        self.usage(event.usage);
        let index = event.index.unwrap_or(0);
        match (event.kind.as_deref(), event.content_block, event.delta) {
            (Some("message_start"), ..) => event.message.map_or(Ok(()), |m| self.begin(m)),
            (Some("content_block_start"), Some(block), _) => self.block(index, &block.0),
            (Some("content_block_delta"), _, Some(delta)) => self.delta(index, delta),
            (Some("content_block_stop"), ..) => {
                self.block_stop(index);
                Ok(())
            }
            (Some("message_delta"), _, Some(delta)) => {
                self.stop_reason = delta.stop_reason.or_else(|| self.stop_reason.take());
                self.stop_sequence(delta.stop_sequence);
                Ok(())
            }
            (Some("message_stop"), ..) => {
                self.answer.ended = true;
                Ok(())
            }
            (Some("error"), ..) => Err(within_stream(data, &self.answer.provider)),
            _ => Ok(()),
        }
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        let Some(message) = parse::<MessageBody>(body) else {
            let code = ErrorCode::InvalidResponse;
            return Err(self
                .answer
                .error(code, "the response body is not a message"));
        };
        self.is_whole = true;
        self.begin(message)?;
        self.answer.ended = true;
        Ok(())
    }

    fn builder(&mut self) -> &mut ResponseBuilder {
        &mut self.answer
    }

    fn check_end(&mut self) -> Result<(), UppError> {
        if self.stop_reason.as_deref() == Some("refusal") {
            return Err(self.answer.content_filtered());
        }
        // A stream that is cut before `message_stop` is no response, even if a stop reason was received.
        if self.answer.ended {
            self.answer.stop_reason = self.stop_reason.take();
        }
        if !self.thoughts.is_empty() {
            let thoughts: Vec<_> = core::mem::take(&mut self.thoughts).into_values().collect();
            self.answer.set_metadata("thinking", Some(&thoughts));
        }
        if !self.others.is_empty() {
            self.answer.set_metadata("blocks", Some(&self.others));
        }
        Ok(())
    }
}
