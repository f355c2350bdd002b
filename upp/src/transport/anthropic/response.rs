//! Reads responses of the messages API, whole or in events.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::{
    BlockBody, BlockDelta, BlockStart, BlockStop, DeltaBody, EventKind, MessageBody, MessageDelta,
    MessageStart, MessageUsage,
};
use super::raw::{CONTENT, RawBlock, are_plain};
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::builder::{MAX_BODY_BYTES, ResponseBuilder, ResponseReader};
use crate::transport::sse::SseEvent;
use crate::transport::structure::Form;
use crate::transport::vendor_json::{Count, Json, Piece, Spare, parse};
use crate::turn::CycleUsage;

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
    /// The blocks as they came.
    raw: BTreeMap<u32, RawBlock>,
    /// Bytes of the deltas of all blocks.
    raw_bytes: usize,
    usage: Counts,
    stop_reason: Option<Box<str>>,
    /// Whether the response is not streamed.
    is_whole: bool,
}

/// Token counts as the vendor splits them.
#[derive(Default)]
struct Counts {
    fresh: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    thinking: Option<u64>,
}

impl Counts {
    fn update(&mut self, usage: Spare<MessageUsage>) {
        let Some(usage) = usage.0 else {
            return;
        };
        let set = |count: &mut u64, seen: Spare<Count>| {
            if let Some(Count(seen)) = seen.0 {
                *count = seen;
            }
        };
        set(&mut self.fresh, usage.input_tokens);
        set(&mut self.output, usage.output_tokens);
        set(&mut self.cache_read, usage.cache_read);
        set(&mut self.cache_write, usage.cache_write);
        let details = usage.output_tokens_details.0;
        let thinking = details.and_then(|details| details.thinking_tokens.0);
        self.thinking = thinking.map(u64::from).or(self.thinking);
    }

    /// The vendor counts cached tokens beside the input; UPP counts them as a part of it.
    fn cycle(&self) -> CycleUsage {
        let cached = self.cache_read.saturating_add(self.cache_write);
        let input = self.fresh.saturating_add(cached);
        CycleUsage::new(input, self.output, self.cache_read, self.cache_write)
            .with_reasoning(self.thinking)
    }
}

impl MessageReader {
    pub(super) fn new(form: Form, request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            answer: ResponseBuilder::new(form, request, provider),
            open: BTreeMap::new(),
            raw: BTreeMap::new(),
            raw_bytes: 0,
            usage: Counts::default(),
            stop_reason: None,
            is_whole: false,
        }
    }

    fn begin(&mut self, message: MessageBody) -> Result<(), UppError> {
        self.answer.begin();
        for (name, value) in [("id", message.id), ("model", message.model)] {
            let value = value.and_then(|json| json.keep());
            self.answer.set_metadata(name, value.as_ref());
        }
        self.stop(message.stop_reason, message.stop_sequence);
        self.usage.update(message.usage);
        for (index, block) in (0..).zip(message.content.unwrap_or_default()) {
            self.block(index, &block)?;
            self.block_stop(index)?;
        }
        Ok(())
    }

    fn stop(&mut self, reason: Option<Box<str>>, sequence: Option<Json>) {
        self.stop_reason = reason.or_else(|| self.stop_reason.take());
        let sequence = sequence.and_then(|json| json.keep());
        self.answer.set_metadata("stop_sequence", sequence.as_ref());
    }

    fn invalid(&self, text: &str) -> UppError {
        self.answer.error(ErrorCode::InvalidResponse, text)
    }

    /// Starts a block. In a whole message the block is complete at its start.
    fn block(&mut self, index: u32, start: &Json) -> Result<(), UppError> {
        if self.open.len() >= MAX_BLOCKS {
            return Err(self.invalid("the response has more than 4,096 content blocks"));
        }
        if self.open.contains_key(&index) {
            return Err(self.invalid("two content blocks have the same index"));
        }
        let block: BlockBody = parse(start.text().as_bytes())
            .map_err(|place| self.answer.unreadable("a content block", &place))?;
        let event = StreamEvent::bare(StreamEventType::ContentBlockStart, index);
        self.answer.push(event)?;
        if let Some(raw) = RawBlock::new(&block.kind, start) {
            self.raw.insert(index, raw);
        }
        let open = match &*block.kind {
            "text" => {
                let text = block
                    .text
                    .ok_or_else(|| self.invalid("a text block has no text"))?;
                self.answer.text(self.answer.text_kind(), index, text)?;
                OpenBlock::Text
            }
            "thinking" => {
                let text = block.thinking.unwrap_or_default();
                let kind = StreamEventType::ReasoningDelta;
                self.answer.text(kind, index, text)?;
                OpenBlock::Thinking
            }
            "tool_use" => self.call(index, block)?,
            _ => OpenBlock::Other,
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn call(&mut self, index: u32, block: BlockBody) -> Result<OpenBlock, UppError> {
        let (Some(id), Some(name)) = (block.id, block.name) else {
            return Err(self.invalid("a tool call has no id or no name"));
        };
        // In a stream the input is empty at the start, and follows in deltas.
        let input = block.input.as_ref().map_or("", Json::text);
        let input = if !self.is_whole && input == "{}" {
            ""
        } else {
            input
        };
        if self.answer.hides(&name) {
            let kind = StreamEventType::ObjectDelta;
            self.answer.text(kind.clone(), index, input.into())?;
            return Ok(OpenBlock::Call(kind));
        }
        self.answer
            .call(index, Some(id), Some(name), input.into())?;
        Ok(OpenBlock::Call(StreamEventType::ToolCallDelta))
    }

    fn delta(&mut self, index: u32, delta: DeltaBody) -> Result<(), UppError> {
        let wrong = |this: &Self| Err(this.invalid("a delta does not fit its content block"));
        let Some(open) = self.open.get(&index) else {
            return wrong(self);
        };
        let more = match &*delta.kind {
            "text_delta" => delta.text,
            "thinking_delta" => delta.thinking,
            "input_json_delta" => delta.partial_json,
            "signature_delta" => delta.signature.as_deref().map(Piece::from),
            "citations_delta" => {
                let citation = delta.citation.and_then(|json| json.keep());
                self.count(citation.as_ref().map_or(0, |json| json.as_str().len()))?;
                if let Some(raw) = self.raw.get_mut(&index) {
                    raw.push_citation(citation);
                }
                return Ok(());
            }
            // The vendor may add types.
            _ => return Ok(()),
        };
        let Some(more) = more else {
            return wrong(self);
        };
        let event = match (&*delta.kind, open) {
            ("text_delta", OpenBlock::Text) => Some(self.answer.text_kind()),
            ("thinking_delta", OpenBlock::Thinking) => Some(StreamEventType::ReasoningDelta),
            ("input_json_delta", OpenBlock::Call(kind)) => Some(kind.clone()),
            ("signature_delta", OpenBlock::Thinking) | (_, OpenBlock::Other) => None,
            _ => return wrong(self),
        };
        self.count(more.0.len())?;
        if let Some(raw) = self.raw.get_mut(&index) {
            match &*delta.kind {
                "text_delta" => raw.push_text(&more),
                "thinking_delta" => raw.push_thinking(&more),
                "input_json_delta" => raw.push_input(&more),
                _ => raw.push_signature(delta.signature.as_deref().unwrap_or_default()),
            }
        }
        match event {
            Some(StreamEventType::ToolCallDelta) => self.answer.call(index, None, None, more),
            Some(kind) => self.answer.text(kind, index, more),
            None => Ok(()),
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), UppError> {
        self.raw_bytes = self.raw_bytes.saturating_add(bytes);
        if self.raw_bytes > MAX_BODY_BYTES {
            return Err(self.invalid("the response has more than 64 MiB"));
        }
        Ok(())
    }

    fn block_stop(&mut self, index: u32) -> Result<(), UppError> {
        let stop = StreamEvent::bare(StreamEventType::ContentBlockStop, index);
        self.answer.push(stop)
    }

    /// Keeps the blocks, where the message itself does not say all of them.
    fn keep_blocks(&mut self) {
        let is_kept_whole = self.raw.len() == self.open.len();
        let raw = core::mem::take(&mut self.raw).into_values();
        let raw: Vec<RawBlock> = raw.map(RawBlock::finish).collect();
        // The hidden call has no result, and the vendor refuses a call without one.
        if is_kept_whole && !self.answer.has_hidden_call && !are_plain(&raw) {
            self.answer.set_metadata(CONTENT, Some(&raw));
        }
    }

    fn event(&mut self, kind: &str, data: &str) -> Result<(), UppError> {
        let unreadable = |answer: &ResponseBuilder, place| {
            Err(answer.unreadable(&format!("the event {kind}"), &place))
        };
        macro_rules! read {
            ($type:ty) => {
                match parse::<$type>(data.as_bytes()) {
                    Ok(event) => event,
                    Err(place) => return unreadable(&self.answer, place),
                }
            };
        }
        match kind {
            "message_start" => self.begin(read!(MessageStart).message),
            "content_block_start" => {
                let event = read!(BlockStart);
                self.block(event.index, &event.content_block)
            }
            "content_block_delta" => {
                let event = read!(BlockDelta);
                self.delta(event.index, event.delta)
            }
            "content_block_stop" => self.block_stop(read!(BlockStop).index),
            "message_delta" => {
                let event = read!(MessageDelta);
                self.stop(event.delta.stop_reason, event.delta.stop_sequence);
                self.usage.update(event.usage);
                Ok(())
            }
            "message_stop" => {
                self.answer.ended = true;
                Ok(())
            }
            "error" => Err(self.answer.reported(data)),
            // The vendor may add types.
            _ => Ok(()),
        }
    }
}

/// The events that a response consists of.
const KNOWN: [&str; 7] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

impl ResponseReader for MessageReader {
    /// Events of unknown types are ignored, even where they are not JSON.
    fn read_event(&mut self, event: &SseEvent) -> Result<(), UppError> {
        let data = &event.data;
        match parse::<EventKind>(data.as_bytes()) {
            Ok(EventKind {
                kind: Spare(Some(kind)),
                ..
            }) => self.event(&kind, data),
            Ok(EventKind { error: Some(_), .. }) => Err(self.answer.reported(data)),
            Ok(_) => Ok(()),
            Err(_) if event.name.as_deref() == Some("error") => Err(self.answer.reported(data)),
            Err(_) if event.is_named_other_than(&KNOWN) => Ok(()),
            Err(place) => Err(self.answer.unreadable("an event", &place)),
        }
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        let unreadable = |answer: &ResponseBuilder, place| {
            answer.unreadable("the response body is not a message: it", &place)
        };
        let kind = parse::<EventKind>(body);
        let kind = kind.map_err(|place| unreadable(&self.answer, place))?;
        if kind.kind.0.as_deref() == Some("error") || kind.error.is_some() {
            return Err(self.answer.reported(&String::from_utf8_lossy(body)));
        }
        let message = parse::<MessageBody>(body);
        let message = message.map_err(|place| unreadable(&self.answer, place))?;
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
        self.answer.usage = self.usage.cycle();
        // A stream that is cut before `message_stop` is no response, even if a stop reason was received.
        if self.answer.ended {
            self.answer.stop_reason = self.stop_reason.take();
        }
        self.keep_blocks();
        Ok(())
    }
}
