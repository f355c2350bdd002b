//! An answer on its way from a vendor's shape to ours.

use std::sync::Arc;

use ubos_common::json::{Limits, RawBuf, RawObject, Read, decode};
use ubos_common::violation::Profile;

use super::http::MAX_BODY_BYTES;
use crate::accumulate::Accumulator;
use crate::content::ContentBlock;
use crate::error::{ErrorCode, UppError};
use crate::message::Stamp;
use crate::model::{LlmRequest, LlmResponse};
use crate::stream::{StreamEvent, StreamEventType};
use crate::turn::CycleUsage;

/// The blocks of vendors that do not number them; calls lie above.
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) const REASONING: u32 = 0;
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) const TEXT: u32 = 1;
#[cfg(any(feature = "openai", feature = "google"))]
pub(super) const FIRST_CALL: u32 = 2;

/// What has come of an answer, and the events that say it.
pub(super) struct Answer {
    pub(super) provider: Arc<str>,
    pub(super) stamp: Stamp,
    /// Whether structured output was asked for.
    pub(super) structured: bool,
    pub(super) usage: CycleUsage,
    pub(super) stop_reason: Option<Box<str>>,
    /// What the vendor says beside it; joined to the message under the vendor's name.
    pub(super) metadata: Vec<(&'static str, RawBuf)>,
    /// Blocks that come whole.
    blocks: Vec<ContentBlock>,
    events: Vec<StreamEvent>,
    sum: Accumulator,
    begun: bool,
    /// The vendor has said that nothing more comes.
    pub(super) ended: bool,
}

/// Reads what one vendor answers.
pub(super) trait Reading: Send {
    /// Takes the data of one event of a stream.
    fn event(&mut self, data: &str) -> Result<(), UppError>;

    /// Takes an answer of one piece.
    fn whole(&mut self, body: &[u8]) -> Result<(), UppError>;

    /// What has come so far.
    fn answer(&mut self) -> &mut Answer;

    /// The last words, after the last of the answer.
    fn close(&mut self) -> Result<(), UppError> {
        Ok(())
    }
}

impl Answer {
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

    /// Something has come: the message has begun.
    pub(super) fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.events
                .push(StreamEvent::bare(StreamEventType::MessageStart, 0));
        }
    }

    pub(super) fn say(&mut self, event: StreamEvent) -> Result<(), UppError> {
        self.sum.add(&event)?;
        self.events.push(event);
        Ok(())
    }

    /// More text of a kind; none at all says nothing.
    pub(super) fn text(
        &mut self,
        kind: StreamEventType,
        index: u32,
        text: Arc<str>,
    ) -> Result<(), UppError> {
        if text.is_empty() {
            return Ok(());
        }
        self.say(StreamEvent::text(kind, index, text))
    }

    #[cfg(any(feature = "openai", feature = "google"))]
    /// What the answer's text is: structured output where that was asked for.
    pub(super) const fn text_kind(&self) -> StreamEventType {
        if self.structured {
            StreamEventType::ObjectDelta
        } else {
            StreamEventType::TextDelta
        }
    }

    /// A block that comes whole; it stands behind the others.
    #[cfg(feature = "google")]
    pub(super) fn block(&mut self, block: ContentBlock, event: StreamEvent) {
        self.blocks.push(block);
        self.events.push(event);
    }

    /// Notes what the vendor says beside the answer.
    pub(super) fn note<T: ubos_common::json::Write>(
        &mut self,
        name: &'static str,
        value: Option<&T>,
    ) {
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

    pub(super) fn withheld(&self) -> UppError {
        self.error(ErrorCode::ContentFiltered, "the vendor withheld the answer")
    }

    /// The answer, complete.
    pub(super) fn finish(&mut self) -> Result<LlmResponse, UppError> {
        let Some(stop) = self.stop_reason.take() else {
            return Err(self.error(ErrorCode::InvalidResponse, "the answer ends before its end"));
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
        let mut object = ubos_common::json::MemberWriter::begin(&mut out);
        for (name, value) in self.metadata.drain(..) {
            object.member(name, &value);
        }
        object.end();
        // What is written here is an object.
        RawObject::new(RawBuf::assume_sound(String::from_utf8(out).ok()?))
    }
}

/// Reads a vendor's JSON, which may hold more than we know.
pub(super) fn read<T: for<'a> Read<'a>>(bytes: &[u8]) -> Option<T> {
    let limits = Limits::default()
        .with_max_bytes(MAX_BODY_BYTES)
        .with_max_string_bytes(MAX_BODY_BYTES);
    let read = decode(bytes, &limits, Profile::Lenient);
    read.ok().map(|(value, _)| value)
}
