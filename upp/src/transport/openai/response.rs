//! What a vendor answers, in one piece or in many.

use std::sync::Arc;

use ubos_common::json::{Kind, RawBuf};

use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::answer::{Answer, FIRST_CALL, REASONING, Reading, TEXT, read};
use crate::transport::refusal::within_stream;
use crate::turn::CycleUsage;

ubos_common::wire! {
    /// An answer, or a chunk of one.
    struct Completion {
        /// One is asked for.
        nullable choices: Vec<Choice> = "choices", "UPP-10";
        /// The vendor's name for the answer.
        nullable id: Box<str> = "id", "UPP-10";
        /// Which model it was in the end.
        nullable model: Box<str> = "model", "UPP-10";
        /// Which build of it.
        nullable system_fingerprint: Box<str> = "system_fingerprint", "UPP-10";
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
        /// Why the model will not say what it is asked for.
        nullable refusal: Arc<str> = "refusal", "UPP-10";
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

/// An answer that comes whole or in chunks.
pub(super) struct Chunks(Answer);

impl Chunks {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self(Answer::new(request, provider))
    }

    fn take(&mut self, chunk: Completion, whole: bool) -> Result<(), UppError> {
        let answer = &mut self.0;
        if let Some(usage) = chunk.usage {
            let cached = usage.details.and_then(|details| details.cached_tokens);
            answer.usage = CycleUsage::new(
                usage.prompt_tokens.unwrap_or(0),
                usage.completion_tokens.unwrap_or(0),
                cached.unwrap_or(0),
                0,
            );
        }
        answer.note("id", chunk.id.as_ref());
        answer.note("model", chunk.model.as_ref());
        answer.note("system_fingerprint", chunk.system_fingerprint.as_ref());
        let Some(choice) = chunk.choices.and_then(|choices| choices.into_iter().next()) else {
            return Ok(());
        };
        answer.stop_reason = choice.finish_reason.or_else(|| answer.stop_reason.take());
        answer.begin();
        match if whole { choice.message } else { choice.delta } {
            Some(said) => self.say(said),
            None => Ok(()),
        }
    }

    fn say(&mut self, said: Said) -> Result<(), UppError> {
        let answer = &mut self.0;
        if let Some(more) = said.reasoning {
            answer.text(StreamEventType::ReasoningDelta, REASONING, more)?;
        }
        if let Some(more) = said.content {
            answer.text(answer.text_kind(), TEXT, more)?;
        }
        if let Some(more) = said.refusal {
            answer.text(StreamEventType::TextDelta, TEXT, more)?;
        }
        for (n, call) in (0..).zip(said.tool_calls.unwrap_or_default()) {
            let index = call.index.unwrap_or(n).saturating_add(FIRST_CALL);
            let (name, arguments) = call
                .function
                .map_or((None, None), |f| (f.name, f.arguments));
            let arguments = arguments.unwrap_or_else(|| "".into());
            answer.say(StreamEvent::tool_call(index, call.id, name, arguments))?;
        }
        Ok(())
    }
}

impl Reading for Chunks {
    /// Data that is no JSON is passed over, as clients of this vendor do.
    fn event(&mut self, data: &str) -> Result<(), UppError> {
        if data.trim() == "[DONE]" {
            self.0.ended = true;
            return Ok(());
        }
        let Some(chunk) = read::<Completion>(data.as_bytes()) else {
            return Ok(());
        };
        let is_error = |error: &RawBuf| error.kind() != Kind::Null;
        if chunk.error.as_ref().is_some_and(is_error) {
            return Err(within_stream(data, &self.0.provider));
        }
        self.take(chunk, false)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), UppError> {
        match read::<Completion>(body) {
            Some(completion) => self.take(completion, true),
            None => Err(self
                .0
                .error(ErrorCode::InvalidResponse, "an answer of another shape")),
        }
    }

    fn answer(&mut self) -> &mut Answer {
        &mut self.0
    }

    fn close(&mut self) -> Result<(), UppError> {
        match self.0.stop_reason.as_deref() {
            Some("content_filter") => Err(self.0.withheld()),
            _ => Ok(()),
        }
    }
}
