//! Reads `generateContent` responses, whole or in parts of the same shape.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use ubos_common::json::{MemberWriter, Write};

use crate::blob::Blob;
use crate::content::{ContentBlock, MediaKind, Source};
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::builder::{
    FIRST_CALL, Json, REASONING, ResponseBuilder, ResponseReader, TEXT, parse,
};
use crate::transport::failure::within_stream;
use crate::turn::CycleUsage;

/// A response, or a part of one.
#[derive(Deserialize)]
struct GenerateContentResponse {
    /// The request asks for one.
    candidates: Option<Vec<Candidate>>,
    /// The vendor's verdict on the prompt.
    #[serde(rename = "promptFeedback")]
    prompt_feedback: Option<PromptFeedback>,
    /// Token counts so far.
    #[serde(rename = "usageMetadata")]
    usage: Option<UsageMetadata>,
    /// The model that answered.
    #[serde(rename = "modelVersion")]
    model_version: Option<Box<str>>,
    /// The vendor's id of the response.
    #[serde(rename = "responseId")]
    response_id: Option<Box<str>>,
    /// An error inside of a stream.
    error: Option<Json>,
}

/// The vendor's verdict on the prompt.
#[derive(Deserialize)]
struct PromptFeedback {
    /// Why the prompt was refused.
    #[serde(rename = "blockReason")]
    block_reason: Option<Box<str>>,
}

/// One candidate.
#[derive(Deserialize)]
struct Candidate {
    /// The content.
    content: Option<CandidateContent>,
    /// Why the model stopped.
    #[serde(rename = "finishReason")]
    finish_reason: Option<Box<str>>,
    /// Safety ratings, kept as they are.
    #[serde(rename = "safetyRatings")]
    safety_ratings: Option<Json>,
    /// Citations, kept as they are.
    #[serde(rename = "citationMetadata")]
    citations: Option<Json>,
    /// Grounding, kept as it is.
    #[serde(rename = "groundingMetadata")]
    grounding: Option<Json>,
}

/// The content of a candidate.
#[derive(Deserialize)]
struct CandidateContent {
    /// The parts, in order.
    parts: Option<Vec<ContentPart>>,
}

/// A part: a text, a function call or inline data.
#[derive(Deserialize)]
struct ContentPart {
    /// Text, or reasoning.
    text: Option<Arc<str>>,
    /// Whether the text is reasoning.
    thought: Option<bool>,
    /// The vendor's signature over the part.
    #[serde(rename = "thoughtSignature")]
    signature: Option<Box<str>>,
    /// A function call.
    #[serde(rename = "functionCall")]
    call: Option<FunctionCall>,
    /// Inline data.
    #[serde(rename = "inlineData")]
    inline: Option<InlineData>,
}

/// A function call.
#[derive(Deserialize)]
struct FunctionCall {
    /// The vendor's id of the call, where it has one.
    id: Option<Arc<str>>,
    /// The function's name.
    name: Option<Arc<str>>,
    /// The arguments.
    args: Option<Json>,
}

/// Inline data.
#[derive(Deserialize)]
struct InlineData {
    /// MIME type.
    #[serde(rename = "mimeType")]
    mime_type: Option<Box<str>>,
    /// The data, as base64.
    data: Option<InlineBytes>,
}

/// The bytes of inline data.
struct InlineBytes(Blob);

impl<'de> Deserialize<'de> for InlineBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let blob = Blob::from_base64(&text);
        blob.map(Self)
            .ok_or_else(|| de::Error::custom("expected base64"))
    }
}

/// Token counts; later counts replace earlier ones.
#[derive(Deserialize)]
struct UsageMetadata {
    /// Input tokens, cached ones included.
    #[serde(rename = "promptTokenCount")]
    prompt: Option<u64>,
    /// Output tokens.
    #[serde(rename = "candidatesTokenCount")]
    candidates: Option<u64>,
    /// Reasoning tokens.
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<u64>,
    /// Input tokens read from the cache.
    #[serde(rename = "cachedContentTokenCount")]
    cached: Option<u64>,
}

/// The vendor's data about one call, kept in the message's metadata.
struct CallMetadata {
    id: Option<Arc<str>>,
    signature: Option<Box<str>>,
}

impl Write for CallMetadata {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.optional("id", self.id.as_ref());
        object.optional("thoughtSignature", self.signature.as_ref());
        object.end();
    }
}

/// Reads one response, whole or in parts.
pub(super) struct ContentReader {
    answer: ResponseBuilder,
    calls: Vec<CallMetadata>,
}

impl ContentReader {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            answer: ResponseBuilder::new(request, provider),
            calls: Vec::new(),
        }
    }

    fn take(&mut self, response: GenerateContentResponse) -> Result<(), UppError> {
        let answer = &mut self.answer;
        if response
            .prompt_feedback
            .is_some_and(|said| said.block_reason.is_some())
        {
            return Err(answer.content_filtered());
        }
        if let Some(usage) = response.usage {
            let output = usage.candidates.unwrap_or(0);
            let output = output.saturating_add(usage.thoughts.unwrap_or(0));
            let (input, cached) = (usage.prompt.unwrap_or(0), usage.cached.unwrap_or(0));
            answer.usage = CycleUsage::new(input, output, cached, 0);
        }
        answer.set_metadata("responseId", response.response_id.as_ref());
        answer.set_metadata("modelVersion", response.model_version.as_ref());
        let candidate = response.candidates.and_then(|all| all.into_iter().next());
        let Some(candidate) = candidate else {
            return Ok(());
        };
        answer.begin();
        answer.stop_reason = candidate
            .finish_reason
            .or_else(|| answer.stop_reason.take());
        answer.set_metadata(
            "safetyRatings",
            candidate.safety_ratings.as_ref().map(|json| &json.0),
        );
        answer.set_metadata(
            "citationMetadata",
            candidate.citations.as_ref().map(|json| &json.0),
        );
        answer.set_metadata(
            "groundingMetadata",
            candidate.grounding.as_ref().map(|json| &json.0),
        );
        let parts = candidate.content.and_then(|content| content.parts);
        for part in parts.unwrap_or_default() {
            self.part(part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: ContentPart) -> Result<(), UppError> {
        if let Some(call) = part.call {
            return self.call(call, part.signature);
        }
        let answer = &mut self.answer;
        if let Some(inline) = part.inline {
            let data = inline
                .data
                .map_or_else(|| Vec::new().into(), |bytes| bytes.0);
            bytes(answer, data, inline.mime_type.unwrap_or_default());
        }
        answer.set_metadata("thoughtSignature", part.signature.as_ref());
        let text = part.text.unwrap_or_default();
        if part.thought == Some(true) {
            answer.text(StreamEventType::ReasoningDelta, REASONING, text)
        } else {
            answer.text(answer.text_kind(), TEXT, text)
        }
    }

    fn call(&mut self, call: FunctionCall, signature: Option<Box<str>>) -> Result<(), UppError> {
        let place = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let id = call.id.clone().filter(|id| !id.is_empty());
        let named = id
            .clone()
            .unwrap_or_else(|| format!("{}-call-{place}", self.answer.stamp.id).into());
        let arguments = call
            .args
            .map_or_else(|| "{}".into(), |args| args.0.as_str().to_owned());
        let index = FIRST_CALL.saturating_add(place);
        let event = StreamEvent::tool_call(index, Some(named), call.name, arguments);
        self.answer.push(event)?;
        self.calls.push(CallMetadata { id, signature });
        Ok(())
    }
}

/// Adds inline data as a block of its kind, and as an event.
fn bytes(answer: &mut ResponseBuilder, data: Blob, mime_type: Box<str>) {
    let (event_type, block) = match mime_type.split('/').next() {
        Some("audio") => (
            StreamEventType::AudioDelta,
            ContentBlock::media(MediaKind::Audio, data.clone(), mime_type),
        ),
        Some("video") => (
            StreamEventType::VideoDelta,
            ContentBlock::media(MediaKind::Video, data.clone(), mime_type),
        ),
        _ => (
            StreamEventType::ImageDelta,
            ContentBlock::image(Source::Bytes(data.clone()), mime_type),
        ),
    };
    let mut event = StreamEvent::bare(event_type, TEXT);
    event.delta.data = Some(data);
    answer.block(block, event);
}

impl ResponseReader for ContentReader {
    /// Data that is not JSON is ignored, as with other vendors.
    fn read_event(&mut self, data: &str) -> Result<(), UppError> {
        match parse::<GenerateContentResponse>(data.as_bytes()) {
            Some(response) if response.error.is_some() => {
                Err(within_stream(data, &self.answer.provider))
            }
            Some(response) => self.take(response),
            None => Ok(()),
        }
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        match parse::<GenerateContentResponse>(body) {
            Some(response) => self.take(response),
            None => {
                let code = ErrorCode::InvalidResponse;
                Err(self
                    .answer
                    .error(code, "the response body is not a generateContent response"))
            }
        }
    }

    fn builder(&mut self) -> &mut ResponseBuilder {
        &mut self.answer
    }

    fn check_end(&mut self) -> Result<(), UppError> {
        match self.answer.stop_reason.as_deref() {
            Some(
                "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
                | "IMAGE_SAFETY" | "LANGUAGE",
            ) => return Err(self.answer.content_filtered()),
            Some("MALFORMED_FUNCTION_CALL") => {
                let code = ErrorCode::InvalidResponse;
                return Err(self
                    .answer
                    .error(code, "the model wrote a malformed function call"));
            }
            _ => {}
        }
        if self
            .calls
            .iter()
            .any(|call| call.id.is_some() || call.signature.is_some())
        {
            self.answer.set_metadata("calls", Some(&self.calls));
        }
        Ok(())
    }
}
