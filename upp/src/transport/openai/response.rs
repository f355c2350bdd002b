//! What a vendor answers, in one piece or in many.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{Limits, RawBuf, Read, decode};
use ubos_common::violation::Profile;

use super::request::is_some;
use crate::accumulate::Accumulator;
use crate::error::{ErrorCode, UppError};
use crate::message::Stamp;
use crate::model::{LlmResponse, ModelEvent};
use crate::stream::{StreamEvent, StreamEventType};
use crate::turn::CycleUsage;

ubos_common::wire! {
    /// An answer, or a chunk of one.
    struct Completion {
        /// One is asked for.
        nullable choices: Vec<Choice> = "choices", "UPP-10";
        /// In the last chunk.
        nullable usage: Usage = "usage", "UPP-10";
        /// A failure in the middle of a stream.
        nullable error: RawBuf = "error", "UPP-10";
    }
}

ubos_common::wire! {
    /// One alternative.
    struct Choice {
        /// In an answer of one piece.
        nullable message: Said = "message", "UPP-10";
        /// In a chunk.
        nullable delta: Said = "delta", "UPP-10";
        /// Why the model stopped.
        nullable finish_reason: Box<str> = "finish_reason", "UPP-10";
    }
}

ubos_common::wire! {
    /// What the model said, or more of it.
    struct Said {
        /// Text.
        nullable content: Arc<str> = "content", "UPP-10";
        /// What it thought, where a vendor shows it.
        nullable reasoning: Arc<str> = "reasoning_content", "UPP-10";
        /// Calls, or more of them.
        nullable tool_calls: Vec<Call> = "tool_calls", "UPP-10";
    }
}

ubos_common::wire! {
    /// A call, or more of it.
    struct Call {
        /// In a chunk: which call.
        nullable index: u32 = "index", "UPP-10";
        /// The model's name for it.
        nullable id: Arc<str> = "id", "UPP-10";
        /// What is called.
        nullable function: Function = "function", "UPP-10";
    }
}

ubos_common::wire! {
    /// What is called.
    struct Function {
        /// Its name.
        nullable name: Arc<str> = "name", "UPP-10";
        /// JSON in a text.
        nullable arguments: Arc<str> = "arguments", "UPP-10";
    }
}

ubos_common::wire! {
    /// What it cost.
    struct Usage {
        /// Tokens in.
        nullable prompt_tokens: u64 = "prompt_tokens", "UPP-10";
        /// Tokens out.
        nullable completion_tokens: u64 = "completion_tokens", "UPP-10";
        /// Where the vendor says more.
        nullable details: Details = "prompt_tokens_details", "UPP-10";
    }
}

ubos_common::wire! {
    /// More of what it cost.
    struct Details {
        /// Tokens in that the vendor had.
        nullable cached_tokens: u64 = "cached_tokens", "UPP-10";
    }
}

/// Blocks lie below this index, calls from it on: chunks number calls by themselves.
const FIRST_CALL: u32 = 2;
const REASONING: u32 = 0;
const TEXT: u32 = 1;

/// An answer that comes in chunks.
pub(super) struct Chunks {
    stamp: Option<Stamp>,
    structured: bool,
    provider: Arc<str>,
    sum: Accumulator,
    usage: CycleUsage,
    stop_reason: Option<Box<str>>,
    begun: bool,
}

impl Chunks {
    pub(super) fn new(stamp: Stamp, structured: bool, provider: Arc<str>) -> Self {
        Self {
            stamp: Some(stamp),
            structured,
            sum: Accumulator::new(Arc::clone(&provider)),
            provider,
            usage: CycleUsage::new(0, 0, 0, 0),
            stop_reason: None,
            begun: false,
        }
    }

    /// Takes the data of one event. Data that is no JSON is passed over, as clients of this vendor do.
    pub(super) fn add(&mut self, data: &str) -> Result<Vec<ModelEvent>, UppError> {
        let Some(chunk) = read::<Completion>(data.as_bytes()) else {
            return Ok(Vec::new());
        };
        if chunk.error.as_ref().is_some_and(is_some) {
            return Err(refusal(200, data.as_bytes(), &self.provider));
        }
        self.take(chunk, false)
    }

    fn take(&mut self, chunk: Completion, whole: bool) -> Result<Vec<ModelEvent>, UppError> {
        if let Some(usage) = chunk.usage {
            let cached = usage
                .details
                .and_then(|details| details.cached_tokens)
                .unwrap_or(0);
            let (input, output) = (
                usage.prompt_tokens.unwrap_or(0),
                usage.completion_tokens.unwrap_or(0),
            );
            self.usage = CycleUsage::new(input, output, cached, 0);
        }
        let Some(choice) = chunk.choices.and_then(|choices| choices.into_iter().next()) else {
            return Ok(Vec::new());
        };
        self.stop_reason = choice.finish_reason.or_else(|| self.stop_reason.take());
        let said = if whole { choice.message } else { choice.delta };
        let mut events = Vec::new();
        if !self.begun {
            self.begun = true;
            events.push(StreamEvent::bare(StreamEventType::MessageStart, 0));
        }
        events.extend(said.into_iter().flat_map(|said| self.events(said)));
        for event in &events {
            self.sum.add(event)?;
        }
        Ok(events.into_iter().map(ModelEvent::Event).collect())
    }

    fn events(&self, said: Said) -> Vec<StreamEvent> {
        let text = if self.structured {
            StreamEventType::ObjectDelta
        } else {
            StreamEventType::TextDelta
        };
        let filled = |text: &Arc<str>| !text.is_empty();
        let mut events = Vec::new();
        events.extend(
            said.reasoning
                .filter(filled)
                .map(|more| StreamEvent::text(StreamEventType::ReasoningDelta, REASONING, more)),
        );
        events.extend(
            said.content
                .filter(filled)
                .map(|more| StreamEvent::text(text, TEXT, more)),
        );
        for (n, call) in (0..).zip(said.tool_calls.unwrap_or_default()) {
            let index = call.index.unwrap_or(n).saturating_add(FIRST_CALL);
            let (name, arguments) = call
                .function
                .map_or((None, None), |f| (f.name, f.arguments));
            events.push(StreamEvent::tool_call(
                index,
                call.id,
                name,
                arguments.unwrap_or_else(|| "".into()),
            ));
        }
        events
    }

    /// The bytes are at their end.
    pub(super) fn end(&mut self) -> Result<[ModelEvent; 2], UppError> {
        let stop = ModelEvent::Event(StreamEvent::bare(StreamEventType::MessageStop, 0));
        Ok([stop, ModelEvent::Done(Box::new(self.response()?))])
    }

    fn response(&mut self) -> Result<LlmResponse, UppError> {
        let broken = |what: &str| {
            UppError::new(ErrorCode::InvalidResponse, Arc::clone(&self.provider), what)
        };
        let (Some(stamp), Some(stop)) = (self.stamp.take(), self.stop_reason.take()) else {
            return Err(broken("the answer ends before its end"));
        };
        if &*stop == "content_filter" {
            let text = "the vendor withheld the answer";
            return Err(UppError::new(
                ErrorCode::ContentFiltered,
                Arc::clone(&self.provider),
                text,
            ));
        }
        let sum = core::mem::replace(&mut self.sum, Accumulator::new(""));
        let (message, data) = sum.finish(stamp)?;
        let mut response = LlmResponse::new(message, self.usage.clone(), stop);
        response.data = data;
        Ok(response)
    }
}

/// An answer in one piece.
pub(super) fn whole(
    body: &[u8],
    stamp: Stamp,
    structured: bool,
    provider: &Arc<str>,
) -> Result<LlmResponse, UppError> {
    let Some(completion) = read::<Completion>(body) else {
        let text = "an answer of another shape";
        return Err(UppError::new(
            ErrorCode::InvalidResponse,
            Arc::clone(provider),
            text,
        ));
    };
    let mut chunks = Chunks::new(stamp, structured, Arc::clone(provider));
    chunks.take(completion, true)?;
    chunks.response()
}

/// The error that a status and a body say.
// impl: UPP-3
pub(super) fn refusal(status: u16, body: &[u8], provider: &Arc<str>) -> UppError {
    let code = if status == 400 && is_about_length(body) {
        ErrorCode::ContextLengthExceeded
    } else {
        ErrorCode::of_status(status)
    };
    let said = read::<BTreeMap<String, RawBuf>>(body).and_then(|body| {
        let error = body
            .get("error")
            .and_then(|error| error.deserialize::<BTreeMap<String, RawBuf>>().ok());
        let message = error
            .as_ref()
            .and_then(|error| error.get("message"))
            .or_else(|| body.get("message"));
        message.and_then(|message| message.deserialize::<String>().ok())
    });
    // A vendor may repeat the key, or a piece of it.
    let message = match &said {
        Some(said) => ubos_common::secret::redact_text(said, 500).into_owned(),
        None => format!("HTTP status {status}"),
    };
    UppError::new(code, Arc::clone(provider), message).with_status(status)
}

fn is_about_length(body: &[u8]) -> bool {
    let body = String::from_utf8_lossy(body).to_ascii_lowercase();
    [
        "context_length_exceeded",
        "maximum context length",
        "context window",
    ]
    .iter()
    .any(|sign| body.contains(sign))
}

fn read<T: for<'a> Read<'a>>(bytes: &[u8]) -> Option<T> {
    let limits = Limits::default()
        .with_max_bytes(super::MAX_BODY_BYTES)
        .with_max_string_bytes(super::MAX_BODY_BYTES);
    decode(bytes, &limits, Profile::Lenient)
        .ok()
        .map(|(value, _)| value)
}
