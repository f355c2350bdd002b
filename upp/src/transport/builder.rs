//! Builds an [`LlmResponse`] and its stream events from what a vendor sends.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, RawObject, Write, to_string};
use ubos_common::violation::PointerText;

use super::failure::http_error;
use super::sse::SseEvent;
#[cfg(any(feature = "anthropic", feature = "google"))]
use super::structure::ANSWER_TOOL;
use super::structure::Form;
use super::vendor_json::{Joiner, Piece, Unreadable};
use crate::accumulate::Accumulator;
use crate::content::ContentBlock;
use crate::error::{ErrorCode, UppError};
#[cfg(any(feature = "openai", feature = "google"))]
use crate::message::Message;
use crate::message::Stamp;
use crate::model::LlmRequest;
use crate::response::LlmResponse;
use crate::stream::{StreamEvent, StreamEventType};
use crate::turn::CycleUsage;

/// The maximum size of a response body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;

/// Block indexes for vendors that do not number blocks; tool calls follow.
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) const REASONING: u32 = 0;
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) const TEXT: u32 = 1;
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) const FIRST_CALL: u32 = 2;

/// Alternatives of one response.
#[cfg(any(feature = "openai", feature = "google"))]
const MAX_ALTERNATIVES: usize = 128;

/// The response received so far, and the events that were not taken yet.
pub(super) struct ResponseBuilder {
    pub(super) provider: Arc<str>,
    pub(super) stamp: Stamp,
    /// How structured output was asked for.
    pub(super) form: Form,
    /// Whether the structured output came as a call, which is hidden.
    pub(super) has_hidden_call: bool,
    pub(super) usage: CycleUsage,
    pub(super) stop_reason: Option<Box<str>>,
    /// Vendor data, stored in the message's metadata under the provider's name.
    pub(super) metadata: Vec<(&'static str, RawBuf)>,
    /// Blocks that are received in one piece.
    blocks: Vec<ContentBlock>,
    events: Vec<StreamEvent>,
    sum: Accumulator,
    /// Texts that may go on in the next event, by index.
    joiners: BTreeMap<u32, (StreamEventType, Joiner)>,
    begun: bool,
    /// Whether the metadata goes back only with the message as it is.
    #[cfg(feature = "openai")]
    pub(super) is_bound: bool,
    /// Whether the vendor has sent its end marker.
    pub(super) ended: bool,
}

/// Reads the response of one vendor into a [`ResponseBuilder`].
pub(super) trait ResponseReader: Send {
    /// Reads one server-sent event.
    fn read_event(&mut self, event: &SseEvent) -> Result<(), UppError>;

    /// Reads the body of a response that was not streamed.
    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError>;

    /// The response so far.
    fn builder(&mut self) -> &mut ResponseBuilder;

    /// Checks the response after its last part was read, before it is finished.
    fn check_end(&mut self) -> Result<(), UppError> {
        Ok(())
    }
}

impl ResponseBuilder {
    pub(super) fn new(form: Form, request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            stamp: request.stamp.clone(),
            form,
            has_hidden_call: false,
            usage: CycleUsage::new(0, 0, 0, 0),
            stop_reason: None,
            metadata: Vec::new(),
            blocks: Vec::new(),
            events: Vec::new(),
            sum: Accumulator::new(Arc::clone(&provider)),
            joiners: BTreeMap::new(),
            begun: false,
            #[cfg(feature = "openai")]
            is_bound: false,
            ended: false,
            provider,
        }
    }

    /// An empty response to the same request, for an alternative.
    #[cfg(any(feature = "openai", feature = "google"))]
    pub(super) fn alternative(&self) -> Self {
        let sum = Accumulator::new(Arc::clone(&self.provider));
        Self {
            provider: Arc::clone(&self.provider),
            stamp: self.stamp.clone(),
            // Only the answer gives structured output.
            form: Form::Text,
            has_hidden_call: false,
            usage: CycleUsage::new(0, 0, 0, 0),
            stop_reason: None,
            metadata: Vec::new(),
            blocks: Vec::new(),
            events: Vec::new(),
            sum,
            joiners: BTreeMap::new(),
            begun: true,
            #[cfg(feature = "openai")]
            is_bound: false,
            ended: true,
        }
    }

    /// Checks that there is room for one more alternative.
    #[cfg(any(feature = "openai", feature = "google"))]
    pub(super) fn check_alternatives(&self, others: usize) -> Result<(), UppError> {
        if others + 1 < MAX_ALTERNATIVES {
            return Ok(());
        }
        let text = "the response has more than 128 alternatives";
        Err(self.error(ErrorCode::InvalidResponse, text))
    }

    /// Emits the start of the message, once.
    pub(super) fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.events
                .push(StreamEvent::bare(StreamEventType::MessageStart, 0));
        }
    }

    pub(super) fn push(&mut self, event: StreamEvent) -> Result<(), UppError> {
        self.sum.add(&event)?;
        self.events.push(event);
        Ok(())
    }

    /// Appends text of a kind. An empty text gives no event.
    pub(super) fn text(
        &mut self,
        kind: StreamEventType,
        index: u32,
        piece: Piece,
    ) -> Result<(), UppError> {
        let text = self.join(&kind, index, piece);
        if text.is_empty() {
            return Ok(());
        }
        self.push(StreamEvent::text(kind, index, text))
    }

    /// Appends to a tool call.
    pub(super) fn call(
        &mut self,
        index: u32,
        id: Option<Arc<str>>,
        name: Option<Arc<str>>,
        arguments: Piece,
    ) -> Result<(), UppError> {
        let arguments = self.join(&StreamEventType::ToolCallDelta, index, arguments);
        self.push(StreamEvent::tool_call(index, id, name, arguments))
    }

    fn join(&mut self, kind: &StreamEventType, index: u32, piece: Piece) -> String {
        let fresh = || (kind.clone(), Joiner::default());
        let (_, joiner) = self.joiners.entry(index).or_insert_with(fresh);
        joiner.join(piece)
    }

    /// Ends the texts: half a surrogate pair that was held back gets no other half.
    fn end_texts(&mut self) -> Result<(), UppError> {
        for (index, (kind, mut joiner)) in core::mem::take(&mut self.joiners) {
            let rest = joiner.finish();
            if rest.is_empty() {
                continue;
            }
            self.push(match kind {
                StreamEventType::ToolCallDelta => StreamEvent::tool_call(index, None, None, rest),
                _ => StreamEvent::text(kind, index, rest),
            })?;
        }
        Ok(())
    }

    /// The event type of plain text: an object delta where structured output was requested.
    pub(super) const fn text_kind(&self) -> StreamEventType {
        match self.form {
            Form::Native => StreamEventType::ObjectDelta,
            _ => StreamEventType::TextDelta,
        }
    }

    /// Whether a call is the structured output. Its input is then the text of the response.
    #[cfg(any(feature = "anthropic", feature = "google"))]
    pub(super) fn hides(&mut self, call: &str) -> bool {
        let is_hidden = self.form == Form::Tool && call == ANSWER_TOOL;
        self.has_hidden_call |= is_hidden;
        is_hidden
    }

    /// Appends a block that was received in one piece; such blocks follow the streamed ones.
    #[cfg(feature = "google")]
    pub(super) fn block(&mut self, block: ContentBlock, event: StreamEvent) {
        self.blocks.push(block);
        self.events.push(event);
    }

    /// Sets a member of the vendor's metadata.
    pub(super) fn set_metadata<T: Write>(&mut self, name: &'static str, value: Option<&T>) {
        if let Some(value) = value {
            let text = to_string(value);
            self.metadata.retain(|(n, _)| *n != name);
            self.metadata.push((name, RawBuf::assume_sound(text)));
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<StreamEvent> {
        core::mem::take(&mut self.events)
    }

    pub(super) fn error(&self, code: ErrorCode, text: &str) -> UppError {
        UppError::new(code, Arc::clone(&self.provider), text)
    }

    /// The error for a part of a response that cannot be read.
    pub(super) fn unreadable(&self, what: &str, place: &Unreadable) -> UppError {
        let text = format!("{what} cannot be read at {}", PointerText(&place.pointer));
        self.error(ErrorCode::InvalidResponse, &text)
    }

    /// The error that a vendor reports where the status was 200.
    pub(super) fn reported(&self, data: &str) -> UppError {
        let mut error = http_error(200, data.as_bytes(), &self.provider);
        error.status_code = None;
        error
    }

    pub(super) fn content_filtered(&self) -> UppError {
        self.error(
            ErrorCode::ContentFiltered,
            "the vendor's content filter withheld the response",
        )
    }

    /// The complete response.
    pub(super) fn finish(&mut self) -> Result<LlmResponse, UppError> {
        let Some(stop) = self.stop_reason.take() else {
            return Err(self.error(
                ErrorCode::InvalidResponse,
                "the response ended without a stop reason",
            ));
        };
        self.end_texts()?;
        self.set_metadata("stop_reason", Some(&stop));
        let is_paused = &*stop == "pause_turn";
        let sum = core::mem::replace(&mut self.sum, Accumulator::new(""));
        let (mut message, data) = sum.finish_message(self.stamp.clone(), !is_paused)?;
        message.content.append(&mut self.blocks);
        #[cfg(feature = "openai")]
        if self.is_bound {
            let digest = super::unchanged::digest(&message);
            self.set_metadata(super::unchanged::DIGEST, Some(&digest));
        }
        if let Some(metadata) = self.metadata_object() {
            message
                .metadata
                .get_or_insert_default()
                .set(self.provider.to_string(), metadata);
        }
        // A model that calls tools has not answered yet, whatever it says beside the calls.
        let is_answer = !is_paused && message.calls().is_empty() || self.has_hidden_call;
        #[cfg(any(feature = "anthropic", feature = "google"))]
        if is_answer && self.form == Form::Tool && data.is_none() {
            let text = "the response has no structured output";
            return Err(self.error(ErrorCode::InvalidResponse, text));
        }
        let mut response = LlmResponse::new(message, self.usage.clone(), stop);
        response.data = data.filter(|_| is_answer);
        Ok(response)
    }

    fn metadata_object(&mut self) -> Option<RawObject> {
        if self.metadata.is_empty() {
            return None;
        }
        let mut out = Vec::new();
        let mut object = MemberWriter::begin(&mut out);
        for (name, value) in self.metadata.drain(..) {
            object.member(name, &value);
        }
        object.end();
        RawObject::new(RawBuf::assume_sound(String::from_utf8(out).ok()?))
    }
}

/// An alternative to the answer, as the metadata keeps it.
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) struct Alternative {
    index: u64,
    stop_reason: Option<Box<str>>,
    message: RawBuf,
}

#[cfg(any(feature = "openai", feature = "google"))]
impl Alternative {
    pub(super) fn of(index: u64, mut answer: ResponseBuilder) -> Result<Self, UppError> {
        let stop_reason = answer.stop_reason.clone();
        answer.stop_reason.get_or_insert_default();
        let message = Message::Assistant(answer.finish()?.message);
        Ok(Self {
            index,
            stop_reason,
            message: RawBuf::assume_sound(to_string(&message)),
        })
    }
}

#[cfg(any(feature = "openai", feature = "google"))]
impl Write for Alternative {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("index", &self.index);
        object.optional("stop_reason", self.stop_reason.as_ref());
        object.member("message", &self.message);
        object.end();
    }
}
