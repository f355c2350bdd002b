//! Reads `generateContent` responses, whole or in parts of the same shape.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, Write};

use super::chunk::{Candidate, ContentPart, FunctionCall, GenerateContentResponse, UsageMetadata};
use super::raw::{PARTS, RawPart, are_plain};
use crate::blob::Blob;
use crate::content::{ContentBlock, MediaKind, Source};
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::{StreamEvent, StreamEventType};
use crate::transport::builder::{
    Alternative, FIRST_CALL, MAX_BODY_BYTES, REASONING, ResponseBuilder, ResponseReader, TEXT,
};
use crate::transport::sse::SseEvent;
use crate::transport::structure::Form;
use crate::transport::vendor_json::{Count, Json, Spare, parse};
use crate::turn::CycleUsage;

/// The vendor's data about one call, kept in the message's metadata.
struct CallMetadata {
    id: Option<Arc<str>>,
}

impl Write for CallMetadata {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.optional("id", self.id.as_ref());
        object.end();
    }
}

/// Reads one response, whole or in parts.
pub(super) struct ContentReader {
    first: CandidateReader,
    /// The alternatives beside the first, by index.
    others: BTreeMap<u64, CandidateReader>,
}

impl ContentReader {
    pub(super) fn new(form: Form, request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            first: CandidateReader::new(ResponseBuilder::new(form, request, provider)),
            others: BTreeMap::new(),
        }
    }

    fn take(&mut self, response: GenerateContentResponse) -> Result<(), UppError> {
        let answer = &mut self.first.answer;
        if response
            .prompt_feedback
            .is_some_and(|said| said.block_reason.is_some())
        {
            return Err(answer.content_filtered());
        }
        if let Spare(Some(usage)) = response.usage_metadata {
            answer.usage = usage_of(&usage);
        }
        for (name, value) in [
            ("responseId", response.response_id),
            ("modelVersion", response.model_version),
        ] {
            answer.set_metadata(name, value.and_then(|json| json.keep()).as_ref());
        }
        for candidate in response.candidates.unwrap_or_default() {
            let index = candidate.index.0.map_or(0, |index| index.0);
            self.candidate(index)?.take(candidate)?;
        }
        Ok(())
    }

    fn candidate(&mut self, index: u64) -> Result<&mut CandidateReader, UppError> {
        if index == 0 {
            self.first.answer.begin();
            return Ok(&mut self.first);
        }
        let answer = &self.first.answer;
        if !self.others.contains_key(&index) {
            answer.check_alternatives(self.others.len())?;
        }
        let fresh = || CandidateReader::new(answer.alternative());
        Ok(self.others.entry(index).or_insert_with(fresh))
    }
}

fn usage_of(usage: &UsageMetadata) -> CycleUsage {
    let count = |of: &Spare<Count>| of.0.map_or(0, |count| count.0);
    let sum = |one, other| count(one).saturating_add(count(other));
    CycleUsage::new(
        sum(
            &usage.prompt_token_count,
            &usage.tool_use_prompt_token_count,
        ),
        sum(&usage.candidates_token_count, &usage.thoughts_token_count),
        count(&usage.cached_content_token_count),
        0,
    )
    .with_reasoning(usage.thoughts_token_count.0)
}

/// Reads one candidate.
struct CandidateReader {
    answer: ResponseBuilder,
    calls: Vec<CallMetadata>,
    /// The parts as they came.
    raw: Vec<RawPart>,
    raw_bytes: usize,
    /// Whether every part could be kept.
    is_kept_whole: bool,
}

impl CandidateReader {
    const fn new(answer: ResponseBuilder) -> Self {
        Self {
            answer,
            calls: Vec::new(),
            raw: Vec::new(),
            raw_bytes: 0,
            is_kept_whole: true,
        }
    }

    fn take(&mut self, candidate: Candidate) -> Result<(), UppError> {
        let answer = &mut self.answer;
        answer.stop_reason = candidate
            .finish_reason
            .or_else(|| answer.stop_reason.take());
        for (name, value) in [
            ("safetyRatings", candidate.safety_ratings),
            ("citationMetadata", candidate.citation_metadata),
            ("groundingMetadata", candidate.grounding_metadata),
        ] {
            answer.set_metadata(name, value.and_then(|json| json.keep()).as_ref());
        }
        let parts = candidate.content.and_then(|content| content.parts);
        for part in parts.unwrap_or_default() {
            self.part(&part)?;
        }
        Ok(())
    }

    fn part(&mut self, json: &Json) -> Result<(), UppError> {
        self.raw_bytes = self.raw_bytes.saturating_add(json.text().len());
        if self.raw_bytes > MAX_BODY_BYTES {
            let text = "the response has more than 64 MiB";
            return Err(self.answer.error(ErrorCode::InvalidResponse, text));
        }
        let part: ContentPart = parse(json.text().as_bytes())
            .map_err(|place| self.answer.unreadable("a part of the content", &place))?;
        match RawPart::new(json) {
            Some(raw) => RawPart::append(&mut self.raw, raw),
            None => self.is_kept_whole = false,
        }
        if let Some(call) = part.function_call {
            return self.call(call);
        }
        let answer = &mut self.answer;
        if let Some(inline) = part.inline_data {
            bytes(answer, inline.data.0, inline.mime_type);
        }
        let text = part.text.unwrap_or_default();
        if part.thought == Some(true) {
            answer.text(StreamEventType::ReasoningDelta, REASONING, text)
        } else {
            answer.text(answer.text_kind(), TEXT, text)
        }
    }

    fn call(&mut self, call: FunctionCall) -> Result<(), UppError> {
        if self.answer.hides(&call.name) {
            let output = call.args.as_ref().map_or("{}", Json::text);
            let index = FIRST_CALL.saturating_add(u32::MAX / 2);
            return self
                .answer
                .text(StreamEventType::ObjectDelta, index, output.into());
        }
        let place = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let id = call.id.filter(|id| !id.is_empty());
        let named = id
            .clone()
            .unwrap_or_else(|| format!("{}-call-{place}", self.answer.stamp.id).into());
        let arguments = call.args.as_ref().map_or("{}", Json::text);
        let index = FIRST_CALL.saturating_add(place);
        self.answer
            .call(index, Some(named), Some(call.name), arguments.into())?;
        self.calls.push(CallMetadata { id });
        Ok(())
    }

    /// Keeps what the message itself does not say.
    fn end(&mut self) {
        if self.calls.iter().any(|call| call.id.is_some()) {
            self.answer.set_metadata("calls", Some(&self.calls));
        }
        let raw = core::mem::take(&mut self.raw);
        // The hidden call has no result, and the vendor refuses a call without one.
        if self.is_kept_whole && !self.answer.has_hidden_call && !are_plain(&raw) {
            self.answer.set_metadata(PARTS, Some(&raw));
        }
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
    /// An event with a name of its own that is not JSON is of a type that is not known, and ignored.
    fn read_event(&mut self, event: &SseEvent) -> Result<(), UppError> {
        match parse::<GenerateContentResponse>(event.data.as_bytes()) {
            Ok(response) if response.error.is_some() => {
                Err(self.first.answer.reported(&event.data))
            }
            Ok(response) => self.take(response),
            Err(_) if event.name.as_deref() == Some("error") => {
                Err(self.first.answer.reported(&event.data))
            }
            Err(_) if event.is_named_other_than(&["message"]) => Ok(()),
            Err(place) => {
                let what = "a part of the response";
                Err(self.first.answer.unreadable(what, &place))
            }
        }
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        match parse::<GenerateContentResponse>(body) {
            Ok(response) if response.error.is_some() => {
                Err(self.first.answer.reported(&String::from_utf8_lossy(body)))
            }
            Ok(response) => self.take(response),
            Err(place) => {
                let what = "the response body is not a generateContent response: it";
                Err(self.first.answer.unreadable(what, &place))
            }
        }
    }

    fn builder(&mut self) -> &mut ResponseBuilder {
        &mut self.first.answer
    }

    fn check_end(&mut self) -> Result<(), UppError> {
        let answer = &self.first.answer;
        match answer.stop_reason.as_deref() {
            Some(
                "SAFETY"
                | "RECITATION"
                | "BLOCKLIST"
                | "PROHIBITED_CONTENT"
                | "SPII"
                | "LANGUAGE"
                | "IMAGE_SAFETY"
                | "IMAGE_PROHIBITED_CONTENT"
                | "IMAGE_RECITATION",
            ) => return Err(answer.content_filtered()),
            Some(
                word @ ("MALFORMED_FUNCTION_CALL"
                | "UNEXPECTED_TOOL_CALL"
                | "TOO_MANY_TOOL_CALLS"
                | "MISSING_THOUGHT_SIGNATURE"
                | "MALFORMED_RESPONSE"
                | "NO_IMAGE"
                | "IMAGE_OTHER"),
            ) => {
                let text = format!("the model failed within the response: {word}");
                return Err(answer.error(ErrorCode::InvalidResponse, &text));
            }
            _ => {}
        }
        self.first.end();
        let others = core::mem::take(&mut self.others);
        let mut alternatives = Vec::with_capacity(others.len());
        for (index, mut candidate) in others {
            candidate.end();
            alternatives.push(Alternative::of(index, candidate.answer)?);
        }
        if !alternatives.is_empty() {
            self.first
                .answer
                .set_metadata("candidates", Some(&alternatives));
        }
        Ok(())
    }
}
