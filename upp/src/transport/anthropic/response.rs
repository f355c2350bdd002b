//! What the vendor answers, in one piece or in events.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{Kind, MemberWriter, RawBuf, Write};

use super::ANSWER_TOOL;
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::answer::{Answer, Reading, read};
use crate::transport::refusal::within_stream;
use crate::turn::CycleUsage;

ubos_common::wire! {
    /// An event of a stream; its type says which members it has.
    struct Event {
        /// What it tells of.
        nullable kind: Box<str> = "type", "UPP-10";
        /// The message as it begins.
        nullable message: Whole = "message", "UPP-10";
        /// Which block.
        nullable index: u32 = "index", "UPP-10";
        /// The block as it begins.
        nullable content_block: RawBuf = "content_block", "UPP-10";
        /// More of a block, or of the message.
        nullable delta: Delta = "delta", "UPP-10";
        /// The cost so far.
        nullable usage: Usage = "usage", "UPP-10";
    }
}

ubos_common::wire! {
    /// A message.
    struct Whole {
        /// The vendor's name for it.
        nullable id: Box<str> = "id", "UPP-10";
        /// Which model it was in the end.
        nullable model: Box<str> = "model", "UPP-10";
        /// Its blocks.
        nullable content: Vec<RawBuf> = "content", "UPP-10";
        /// Why the model stopped.
        nullable stop_reason: Box<str> = "stop_reason", "UPP-10";
        /// At which text it stopped, where the user named some.
        nullable stop_sequence: RawBuf = "stop_sequence", "UPP-10";
        /// The cost.
        nullable usage: Usage = "usage", "UPP-10";
    }
}

ubos_common::wire! {
    /// A block; its type says which members it has.
    struct Block {
        /// What it is.
        nullable kind: Box<str> = "type", "UPP-10";
        /// Text.
        nullable text: Arc<str> = "text", "UPP-10";
        /// Thoughts.
        nullable thinking: Arc<str> = "thinking", "UPP-10";
        /// What proves thoughts to be the vendor's own.
        nullable signature: Arc<str> = "signature", "UPP-10";
        /// Thoughts that only the vendor can read.
        nullable data: Arc<str> = "data", "UPP-10";
        /// The name of a call.
        nullable id: Arc<str> = "id", "UPP-10";
        /// What is called.
        nullable name: Arc<str> = "name", "UPP-10";
        /// What it is called with.
        nullable input: RawBuf = "input", "UPP-10";
    }
}

ubos_common::wire! {
    /// More of a block, or of the message.
    struct Delta {
        /// More of what.
        nullable kind: Box<str> = "type", "UPP-10";
        /// Text.
        nullable text: Arc<str> = "text", "UPP-10";
        /// Thoughts.
        nullable thinking: Arc<str> = "thinking", "UPP-10";
        /// What proves thoughts to be the vendor's own.
        nullable signature: Arc<str> = "signature", "UPP-10";
        /// Arguments.
        nullable partial_json: Arc<str> = "partial_json", "UPP-10";
        /// Of the message: why the model stopped.
        nullable stop_reason: Box<str> = "stop_reason", "UPP-10";
        /// Of the message: at which text.
        nullable stop_sequence: RawBuf = "stop_sequence", "UPP-10";
    }
}

ubos_common::wire! {
    /// The cost; later counts replace earlier ones.
    struct Usage {
        /// Tokens in, without those of the cache.
        nullable input_tokens: u64 = "input_tokens", "UPP-10";
        /// Tokens out.
        nullable output_tokens: u64 = "output_tokens", "UPP-10";
        /// Tokens in from the cache.
        nullable cache_read: u64 = "cache_read_input_tokens", "UPP-10";
        /// Tokens in that the cache took.
        nullable cache_write: u64 = "cache_creation_input_tokens", "UPP-10";
    }
}

/// What the vendor says of a thought, beside the thought.
pub(super) enum Thought {
    Signed(Box<str>),
    Unsigned,
    Redacted(Box<str>),
}

impl Write for Thought {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        match self {
            Self::Signed(signature) => object.member("signature", &**signature),
            Self::Unsigned => {}
            Self::Redacted(data) => object.member("redacted", &**data),
        }
        object.end();
    }
}

/// What the deltas of a block add to.
enum Open {
    Text,
    Thinking,
    /// A call, or the answer that was asked for as one; whether it has come whole.
    Call(StreamEventType),
    Other,
}

/// Blocks of one answer that are kept in mind.
const MAX_BLOCKS: usize = 4_096;

/// An answer that comes whole or in events.
pub(super) struct Message {
    answer: Answer,
    open: BTreeMap<u32, Open>,
    thoughts: BTreeMap<u32, Thought>,
    /// Blocks that this protocol has no form for, as they came.
    others: Vec<RawBuf>,
    stop_reason: Option<Box<str>>,
    /// Whether it comes in one piece.
    is_whole: bool,
}

impl Message {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            answer: Answer::new(request, provider),
            open: BTreeMap::new(),
            thoughts: BTreeMap::new(),
            others: Vec::new(),
            stop_reason: None,
            is_whole: false,
        }
    }

    fn begin(&mut self, message: Whole) -> Result<(), UppError> {
        self.answer.begin();
        self.answer.note("id", message.id.as_ref());
        self.answer.note("model", message.model.as_ref());
        self.stop_reason = message.stop_reason;
        self.stop_sequence(message.stop_sequence);
        self.usage(message.usage);
        for (index, block) in (0..).zip(message.content.unwrap_or_default()) {
            self.block(index, &block)?;
            self.block_stop(index);
        }
        Ok(())
    }

    fn stop_sequence(&mut self, said: Option<RawBuf>) {
        let said = said.filter(|said| said.kind() != Kind::Null);
        self.answer.note("stop_sequence", said.as_ref());
    }

    fn usage(&mut self, usage: Option<Usage>) {
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

    /// A block begins; one of a whole message begins with all that it has.
    fn block(&mut self, index: u32, raw: &RawBuf) -> Result<(), UppError> {
        if self.open.len() >= MAX_BLOCKS {
            let code = ErrorCode::InvalidResponse;
            return Err(self
                .answer
                .error(code, "an answer of more than 4,096 blocks"));
        }
        let block: Block = read(raw.as_str().as_bytes()).ok_or_else(|| {
            self.answer
                .error(ErrorCode::InvalidResponse, "a block of another shape")
        })?;
        let start = StreamEvent::bare(StreamEventType::ContentBlockStart, index);
        self.answer.say(start)?;
        let open = match block.kind.as_deref() {
            Some("text") => {
                let text = block.text.unwrap_or_default();
                self.answer.text(StreamEventType::TextDelta, index, text)?;
                Open::Text
            }
            Some("thinking") => {
                let text = block.thinking.unwrap_or_default();
                self.thoughts.insert(index, Thought::Unsigned);
                self.sign(index, block.signature);
                let kind = StreamEventType::ReasoningDelta;
                self.answer.text(kind, index, text)?;
                Open::Thinking
            }
            Some("redacted_thinking") => {
                let data = block.data.as_deref().unwrap_or_default().into();
                self.thoughts.insert(index, Thought::Redacted(data));
                Open::Other
            }
            Some("tool_use") => self.call(index, block)?,
            _ => {
                self.others.push(raw.clone());
                Open::Other
            }
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn call(&mut self, index: u32, block: Block) -> Result<Open, UppError> {
        // In a stream the input is empty at first, and comes in pieces then.
        let is_empty = |input: &RawBuf| !self.is_whole && input.as_str() == "{}";
        let input = block.input.as_ref().filter(|input| !is_empty(input));
        let input = input.map_or("", RawBuf::as_str).to_owned();
        if self.answer.structured && block.name.as_deref() == Some(ANSWER_TOOL) {
            let kind = StreamEventType::ObjectDelta;
            self.answer.text(kind.clone(), index, input.into())?;
            return Ok(Open::Call(kind));
        }
        let event = StreamEvent::tool_call(index, block.id, block.name, input);
        self.answer.say(event)?;
        Ok(Open::Call(StreamEventType::ToolCallDelta))
    }

    fn delta(&mut self, index: u32, delta: Delta) -> Result<(), UppError> {
        match (delta.kind.as_deref(), self.open.get(&index)) {
            (Some("text_delta"), Some(Open::Text)) => {
                let text = delta.text.unwrap_or_default();
                self.answer.text(StreamEventType::TextDelta, index, text)
            }
            (Some("thinking_delta"), Some(Open::Thinking)) => {
                let text = delta.thinking.unwrap_or_default();
                self.answer
                    .text(StreamEventType::ReasoningDelta, index, text)
            }
            (Some("signature_delta"), Some(Open::Thinking)) => {
                self.sign(index, delta.signature);
                Ok(())
            }
            (Some("input_json_delta"), Some(Open::Call(kind))) => {
                let more = delta.partial_json.unwrap_or_default();
                if *kind == StreamEventType::ObjectDelta {
                    return self.answer.text(kind.clone(), index, more);
                }
                self.answer
                    .say(StreamEvent::tool_call(index, None, None, more))
            }
            // More of what this protocol has no form for.
            _ => Ok(()),
        }
    }

    fn sign(&mut self, index: u32, signature: Option<Arc<str>>) {
        let Some(more) = signature.filter(|more| !more.is_empty()) else {
            return;
        };
        self.thoughts
            .insert(index, Thought::Signed((&*more).into()));
    }

    fn block_stop(&mut self, index: u32) {
        // The event adds nothing to the message.
        let stop = StreamEvent::bare(StreamEventType::ContentBlockStop, index);
        let _ = self.answer.say(stop);
    }
}

impl Reading for Message {
    /// Data that is no JSON, and events of other types, are passed over: the vendor may add some.
    fn event(&mut self, data: &str) -> Result<(), UppError> {
        let Some(event) = read::<Event>(data.as_bytes()) else {
            return Ok(());
        };
        self.usage(event.usage);
        let index = event.index.unwrap_or(0);
        match (event.kind.as_deref(), event.content_block, event.delta) {
            (Some("message_start"), ..) => event.message.map_or(Ok(()), |m| self.begin(m)),
            (Some("content_block_start"), Some(block), _) => self.block(index, &block),
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

    fn whole(&mut self, body: &[u8]) -> Result<(), UppError> {
        let Some(message) = read::<Whole>(body) else {
            let code = ErrorCode::InvalidResponse;
            return Err(self.answer.error(code, "an answer of another shape"));
        };
        self.is_whole = true;
        self.begin(message)?;
        self.answer.ended = true;
        Ok(())
    }

    fn answer(&mut self) -> &mut Answer {
        &mut self.answer
    }

    fn close(&mut self) -> Result<(), UppError> {
        if self.stop_reason.as_deref() == Some("refusal") {
            return Err(self.answer.withheld());
        }
        // A stream that is cut before its last word is no answer, whatever it has said.
        if self.answer.ended {
            self.answer.stop_reason = self.stop_reason.take();
        }
        if !self.thoughts.is_empty() {
            let thoughts: Vec<_> = core::mem::take(&mut self.thoughts).into_values().collect();
            self.answer.note("thinking", Some(&thoughts));
        }
        if !self.others.is_empty() {
            self.answer.note("blocks", Some(&self.others));
        }
        Ok(())
    }
}
