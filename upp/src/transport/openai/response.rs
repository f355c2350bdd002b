//! Reads chat completions, whole or in chunks.

use std::sync::Arc;

use serde::Deserialize;
use ubos_common::json::Kind;

use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::builder::{
    FIRST_CALL, Json, REASONING, ResponseBuilder, ResponseReader, TEXT, parse,
};
use crate::transport::failure::within_stream;
use crate::turn::CycleUsage;

/// A completion, or a chunk of one.
#[derive(Deserialize)]
struct Completion {
    /// The request asks for one.
    choices: Option<Vec<Choice>>,
    /// The vendor's id of the response.
    id: Option<Box<str>>,
    /// The model that answered.
    model: Option<Box<str>>,
    /// The build of that model.
    system_fingerprint: Option<Box<str>>,
    /// Present in the last chunk.
    usage: Option<CompletionUsage>,
    /// An error inside of a stream.
    error: Option<Json>,
}

/// One choice.
#[derive(Deserialize)]
struct Choice {
    /// Present in a whole completion.
    message: Option<ChatDelta>,
    /// Present in a chunk.
    delta: Option<ChatDelta>,
    /// Why the model stopped.
    finish_reason: Option<Box<str>>,
}

/// The message, or a delta of it.
#[derive(Deserialize)]
struct ChatDelta {
    /// Text.
    content: Option<Arc<str>>,
    /// The model's reasoning, where a vendor shows it.
    #[serde(rename = "reasoning_content")]
    reasoning: Option<Arc<str>>,
    /// The model's refusal.
    refusal: Option<Arc<str>>,
    /// Tool calls, or deltas of them.
    tool_calls: Option<Vec<ToolCallDelta>>,
}

/// A tool call, or a delta of one.
#[derive(Deserialize)]
struct ToolCallDelta {
    /// The call that a delta belongs to.
    index: Option<u32>,
    /// The id of the call.
    id: Option<Arc<str>>,
    /// The function to call.
    function: Option<FunctionDelta>,
}

/// The called function.
#[derive(Deserialize)]
struct FunctionDelta {
    /// Its name.
    name: Option<Arc<str>>,
    /// JSON as a string.
    arguments: Option<Arc<str>>,
}

/// Token counts.
#[derive(Deserialize)]
struct CompletionUsage {
    /// Input tokens.
    prompt_tokens: Option<u64>,
    /// Output tokens.
    completion_tokens: Option<u64>,
    /// Details of the input tokens.
    #[serde(rename = "prompt_tokens_details")]
    details: Option<PromptTokensDetails>,
}

/// Details of the input tokens.
#[derive(Deserialize)]
struct PromptTokensDetails {
    /// Input tokens read from the cache.
    cached_tokens: Option<u64>,
}

/// Reads one response, whole or in chunks.
pub(super) struct CompletionReader(ResponseBuilder);

impl CompletionReader {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self(ResponseBuilder::new(request, provider))
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
        answer.set_metadata("id", chunk.id.as_ref());
        answer.set_metadata("model", chunk.model.as_ref());
        answer.set_metadata("system_fingerprint", chunk.system_fingerprint.as_ref());
        let Some(choice) = chunk.choices.and_then(|choices| choices.into_iter().next()) else {
            return Ok(());
        };
        answer.stop_reason = choice.finish_reason.or_else(|| answer.stop_reason.take());
        answer.begin();
        match if whole { choice.message } else { choice.delta } {
            Some(delta) => self.push_delta(delta),
            None => Ok(()),
        }
    }

    fn push_delta(&mut self, delta: ChatDelta) -> Result<(), UppError> {
        let answer = &mut self.0;
        if let Some(more) = delta.reasoning {
            answer.text(StreamEventType::ReasoningDelta, REASONING, more)?;
        }
        if let Some(more) = delta.content {
            answer.text(answer.text_kind(), TEXT, more)?;
        }
        if let Some(more) = delta.refusal {
            answer.text(StreamEventType::TextDelta, TEXT, more)?;
        }
        for (n, call) in (0..).zip(delta.tool_calls.unwrap_or_default()) {
            let index = call.index.unwrap_or(n).saturating_add(FIRST_CALL);
            let (name, arguments) = call
                .function
                .map_or((None, None), |f| (f.name, f.arguments));
            let arguments = arguments.unwrap_or_else(|| "".into());
            answer.push(StreamEvent::tool_call(index, call.id, name, arguments))?;
        }
        Ok(())
    }
}

impl ResponseReader for CompletionReader {
    /// Data that is not JSON is ignored, as this vendor's own clients do.
    fn read_event(&mut self, data: &str) -> Result<(), UppError> {
        if data.trim() == "[DONE]" {
            self.0.ended = true;
            return Ok(());
        }
        let Some(chunk) = parse::<Completion>(data.as_bytes()) else {
            return Ok(());
        };
        let is_error = |error: &Json| error.0.kind() != Kind::Null;
        if chunk.error.as_ref().is_some_and(is_error) {
            return Err(within_stream(data, &self.0.provider));
        }
        self.take(chunk, false)
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        match parse::<Completion>(body) {
            Some(completion) => self.take(completion, true),
            None => Err(self.0.error(
                ErrorCode::InvalidResponse,
                "the response body is not a chat completion",
            )),
        }
    }

    fn builder(&mut self) -> &mut ResponseBuilder {
        &mut self.0
    }

    fn check_end(&mut self) -> Result<(), UppError> {
        match self.0.stop_reason.as_deref() {
            Some("content_filter") => Err(self.0.content_filtered()),
            _ => Ok(()),
        }
    }
}
