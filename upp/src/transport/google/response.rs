//! What the vendor answers, in one piece or in many of the same shape.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, Write};

use crate::blob::Blob;
use crate::content::{ContentBlock, MediaKind, Source};
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::answer::{Answer, FIRST_CALL, REASONING, Reading, TEXT, read};
use crate::transport::refusal::within_stream;
use crate::turn::CycleUsage;

ubos_common::wire! {
    /// An answer, or a piece of one.
    struct Response {
        /// One is asked for.
        nullable candidates: Vec<Candidate> = "candidates", "UPP-10";
        /// What the vendor says of the question.
        nullable prompt_feedback: Feedback = "promptFeedback", "UPP-10";
        /// The cost so far.
        nullable usage: Usage = "usageMetadata", "UPP-10";
        /// Which model it was in the end.
        nullable model_version: Box<str> = "modelVersion", "UPP-10";
        /// The vendor's name for the answer.
        nullable response_id: Box<str> = "responseId", "UPP-10";
        /// A failure in the middle of a stream.
        nullable error: RawBuf = "error", "UPP-10";
    }
}

ubos_common::wire! {
    /// What the vendor says of the question.
    struct Feedback {
        /// Why it is not answered.
        nullable block_reason: Box<str> = "blockReason", "UPP-10";
    }
}

ubos_common::wire! {
    /// One alternative.
    struct Candidate {
        /// What the model says.
        nullable content: Parts = "content", "UPP-10";
        /// Why it stopped.
        nullable finish_reason: Box<str> = "finishReason", "UPP-10";
        /// How likely it does harm.
        nullable safety_ratings: RawBuf = "safetyRatings", "UPP-10";
        /// Whom it quotes.
        nullable citations: RawBuf = "citationMetadata", "UPP-10";
        /// What it was looked up in.
        nullable grounding: RawBuf = "groundingMetadata", "UPP-10";
    }
}

ubos_common::wire! {
    /// What the model says.
    struct Parts {
        /// In order.
        nullable parts: Vec<Part> = "parts", "UPP-10";
    }
}

ubos_common::wire! {
    /// A part: one of text, call, bytes.
    struct Part {
        /// Text, or thoughts.
        nullable text: Arc<str> = "text", "UPP-10";
        /// Whether the text is thoughts.
        nullable thought: bool = "thought", "UPP-10";
        /// What proves it to be the vendor's own.
        nullable signature: Box<str> = "thoughtSignature", "UPP-10";
        /// A call.
        nullable call: Call = "functionCall", "UPP-10";
        /// Bytes.
        nullable inline: Inline = "inlineData", "UPP-10";
    }
}

ubos_common::wire! {
    /// A call.
    struct Call {
        /// The vendor's name for it, where it has one.
        nullable id: Arc<str> = "id", "UPP-10";
        /// What is called.
        nullable name: Arc<str> = "name", "UPP-10";
        /// What it is called with.
        nullable args: RawBuf = "args", "UPP-10";
    }
}

ubos_common::wire! {
    /// Bytes.
    struct Inline {
        /// MIME type.
        nullable mime_type: Box<str> = "mimeType", "UPP-10";
        /// The bytes.
        nullable data: Blob = "data", "UPP-10";
    }
}

ubos_common::wire! {
    /// The cost; later counts replace earlier ones.
    struct Usage {
        /// Tokens in, those of the cache among them.
        nullable prompt: u64 = "promptTokenCount", "UPP-10";
        /// Tokens out.
        nullable candidates: u64 = "candidatesTokenCount", "UPP-10";
        /// Tokens thought.
        nullable thoughts: u64 = "thoughtsTokenCount", "UPP-10";
        /// Tokens in from the cache.
        nullable cached: u64 = "cachedContentTokenCount", "UPP-10";
    }
}

/// What the vendor says of one call beside the call.
struct Said {
    id: Option<Arc<str>>,
    signature: Option<Box<str>>,
}

impl Write for Said {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.optional("id", self.id.as_ref());
        object.optional("thoughtSignature", self.signature.as_ref());
        object.end();
    }
}

/// An answer that comes whole or in pieces.
pub(super) struct Content {
    answer: Answer,
    calls: Vec<Said>,
}

impl Content {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            answer: Answer::new(request, provider),
            calls: Vec::new(),
        }
    }

    fn take(&mut self, response: Response) -> Result<(), UppError> {
        let answer = &mut self.answer;
        if response
            .prompt_feedback
            .is_some_and(|said| said.block_reason.is_some())
        {
            return Err(answer.withheld());
        }
        if let Some(usage) = response.usage {
            let output = usage.candidates.unwrap_or(0);
            let output = output.saturating_add(usage.thoughts.unwrap_or(0));
            let (input, cached) = (usage.prompt.unwrap_or(0), usage.cached.unwrap_or(0));
            answer.usage = CycleUsage::new(input, output, cached, 0);
        }
        answer.note("responseId", response.response_id.as_ref());
        answer.note("modelVersion", response.model_version.as_ref());
        let candidate = response.candidates.and_then(|all| all.into_iter().next());
        let Some(candidate) = candidate else {
            return Ok(());
        };
        answer.begin();
        answer.stop_reason = candidate
            .finish_reason
            .or_else(|| answer.stop_reason.take());
        answer.note("safetyRatings", candidate.safety_ratings.as_ref());
        answer.note("citationMetadata", candidate.citations.as_ref());
        answer.note("groundingMetadata", candidate.grounding.as_ref());
        let parts = candidate.content.and_then(|content| content.parts);
        for part in parts.unwrap_or_default() {
            self.part(part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: Part) -> Result<(), UppError> {
        if let Some(call) = part.call {
            return self.call(call, part.signature);
        }
        let answer = &mut self.answer;
        if let Some(inline) = part.inline {
            let data = inline.data.unwrap_or_else(|| Vec::new().into());
            bytes(answer, data, inline.mime_type.unwrap_or_default());
        }
        answer.note("thoughtSignature", part.signature.as_ref());
        let text = part.text.unwrap_or_default();
        if part.thought == Some(true) {
            answer.text(StreamEventType::ReasoningDelta, REASONING, text)
        } else {
            answer.text(answer.text_kind(), TEXT, text)
        }
    }

    fn call(&mut self, call: Call, signature: Option<Box<str>>) -> Result<(), UppError> {
        let place = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let id = call.id.clone().filter(|id| !id.is_empty());
        let named = id
            .clone()
            .unwrap_or_else(|| format!("{}-call-{place}", self.answer.stamp.id).into());
        let arguments = call
            .args
            .map_or_else(|| "{}".into(), |args| args.as_str().to_owned());
        let index = FIRST_CALL.saturating_add(place);
        let event = StreamEvent::tool_call(index, Some(named), call.name, arguments);
        self.answer.say(event)?;
        self.calls.push(Said { id, signature });
        Ok(())
    }
}

/// Bytes become a block of their kind, and an event.
fn bytes(answer: &mut Answer, data: Blob, mime_type: Box<str>) {
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

impl Reading for Content {
    /// Data that is no JSON is passed over, as with other vendors.
    fn event(&mut self, data: &str) -> Result<(), UppError> {
        match read::<Response>(data.as_bytes()) {
            Some(response) if response.error.is_some() => {
                Err(within_stream(data, &self.answer.provider))
            }
            Some(response) => self.take(response),
            None => Ok(()),
        }
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), UppError> {
        match read::<Response>(body) {
            Some(response) => self.take(response),
            None => {
                let code = ErrorCode::InvalidResponse;
                Err(self.answer.error(code, "an answer of another shape"))
            }
        }
    }

    fn answer(&mut self) -> &mut Answer {
        &mut self.answer
    }

    fn close(&mut self) -> Result<(), UppError> {
        match self.answer.stop_reason.as_deref() {
            Some(
                "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
                | "IMAGE_SAFETY" | "LANGUAGE",
            ) => return Err(self.answer.withheld()),
            Some("MALFORMED_FUNCTION_CALL") => {
                let code = ErrorCode::InvalidResponse;
                return Err(self
                    .answer
                    .error(code, "a call that the vendor cannot read"));
            }
            _ => {}
        }
        if self
            .calls
            .iter()
            .any(|call| call.id.is_some() || call.signature.is_some())
        {
            self.answer.note("calls", Some(&self.calls));
        }
        Ok(())
    }
}
