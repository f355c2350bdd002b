//! Builds an [`LlmResponse`] and its stream events from what a vendor sends.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use ubos_common::json::{Limits, MemberWriter, Raw, RawBuf, RawObject, Write, decode};
use ubos_common::violation::Profile;

use crate::accumulate::Accumulator;
use crate::content::ContentBlock;
use crate::error::{ErrorCode, UppError};
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

/// The response received so far, and the events that were not taken yet.
pub(super) struct ResponseBuilder {
    pub(super) provider: Arc<str>,
    pub(super) stamp: Stamp,
    /// Whether structured output was asked for.
    pub(super) structured: bool,
    pub(super) usage: CycleUsage,
    pub(super) stop_reason: Option<Box<str>>,
    /// Vendor data, stored in the message's metadata under the provider's name.
    pub(super) metadata: Vec<(&'static str, RawBuf)>,
    /// Blocks that are received in one piece.
    blocks: Vec<ContentBlock>,
    events: Vec<StreamEvent>,
    sum: Accumulator,
    begun: bool,
    /// Whether the vendor has sent its end marker.
    pub(super) ended: bool,
}

/// Reads the response of one vendor into a [`ResponseBuilder`].
pub(super) trait ResponseReader: Send {
    /// Reads the data of one server-sent event.
    fn read_event(&mut self, data: &str) -> Result<(), UppError>;

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
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            stamp: request.stamp.clone(),
            structured: request.structure.is_some(),
            usage: CycleUsage::new(0, 0, 0, 0),
            stop_reason: None,
            metadata: Vec::new(),
            blocks: Vec::new(),
            events: Vec::new(),
            sum: Accumulator::new(Arc::clone(&provider)),
            begun: false,
            ended: false,
            provider,
        }
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
        text: Arc<str>,
    ) -> Result<(), UppError> {
        if text.is_empty() {
            return Ok(());
        }
        self.push(StreamEvent::text(kind, index, text))
    }

    /// The event type of plain text: an object delta where structured output was requested.
    #[cfg(any(feature = "openai", feature = "google"))]
    pub(super) const fn text_kind(&self) -> StreamEventType {
        if self.structured {
            StreamEventType::ObjectDelta
        } else {
            StreamEventType::TextDelta
        }
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
            let text = ubos_common::json::to_string(value);
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
        let sum = core::mem::replace(&mut self.sum, Accumulator::new(""));
        let (mut message, data) = sum.finish(self.stamp.clone())?;
        message.content.append(&mut self.blocks);
        if let Some(metadata) = self.metadata_object() {
            message
                .metadata
                .get_or_insert_default()
                .set(self.provider.to_string(), metadata);
        }
        let mut response = LlmResponse::new(message, self.usage.clone(), stop);
        response.data = data;
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

/// Parses a vendor's JSON. Size, depth and duplicate members are checked before anything is built; unknown members
/// are ignored. `None` where the text is not JSON, exceeds a limit, or does not have the expected shape.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let limits = Limits::default()
        .with_max_bytes(MAX_BODY_BYTES)
        .with_max_string_bytes(MAX_BODY_BYTES);
    let (raw, _) = decode::<Raw<'_>>(bytes, &limits, Profile::Lenient).ok()?;
    raw.deserialize().ok()
}

/// A JSON value kept as text, inside of a document that [`parse`] has checked.
pub(super) struct Json(pub(super) RawBuf);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        // The limits hold for the whole document, so the value need not be checked again.
        Ok(Self(RawBuf::assume_sound(raw.get().to_owned())))
    }
}
