//! Reads responses, whole or in events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use ubos_common::json::RawBuf;

use super::event::{
    DeltaEvent, EventKind, ItemBody, ItemEvent, ItemPart, ResponseBody, ResponseEvent,
    ResponseUsage,
};
use super::request::OUTPUT;
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::StreamEventType;
use crate::transport::builder::{MAX_BODY_BYTES, ResponseBuilder, ResponseReader};
use crate::transport::sse::SseEvent;
use crate::transport::structure::Form;
use crate::transport::vendor_json::{Count, Json, Piece, Spare, parse};
use crate::turn::CycleUsage;

/// Items of one response.
const MAX_ITEMS: usize = 4_096;

/// A part of an item that becomes a block of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Summary(u32, u32),
    Reasoning(u32, u32),
    Text(u32, u32),
    Call(u32),
}

/// Reads one response, whole or in events.
pub(super) struct ItemReader {
    answer: ResponseBuilder,
    /// The block of each part, in the order in which parts were first heard of.
    blocks: BTreeMap<Place, u32>,
    /// Calls whose arguments were heard.
    heard: BTreeSet<u32>,
    /// The items as they came.
    items: BTreeMap<u32, RawBuf>,
    bytes: usize,
}

impl ItemReader {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            answer: ResponseBuilder::new(Form::native(request), request, provider),
            blocks: BTreeMap::new(),
            heard: BTreeSet::new(),
            items: BTreeMap::new(),
            bytes: 0,
        }
    }

    fn invalid(&self, text: &str) -> UppError {
        self.answer.error(ErrorCode::InvalidResponse, text)
    }

    fn read<T: DeserializeOwned>(&self, what: &str, text: &str) -> Result<T, UppError> {
        parse(text.as_bytes()).map_err(|place| self.answer.unreadable(what, &place))
    }

    /// The block of a part, and whether it is new.
    fn block(&mut self, place: Place) -> (u32, bool) {
        let next = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let index = *self.blocks.entry(place).or_insert(next);
        (index, index == next)
    }

    fn text(&mut self, place: Place, kind: StreamEventType, text: Piece) -> Result<(), UppError> {
        let (index, _) = self.block(place);
        self.answer.text(kind, index, text)
    }

    fn delta(&mut self, kind: &str, data: &str) -> Result<(), UppError> {
        let event: DeltaEvent = self.read(&format!("the event {kind}"), data)?;
        let (item, part) = (event.output_index, event.content_index);
        let (place, kind) = match kind {
            "response.output_text.delta" => (Place::Text(item, part), self.answer.text_kind()),
            "response.refusal.delta" => (Place::Text(item, part), StreamEventType::TextDelta),
            "response.reasoning_text.delta" => (
                Place::Reasoning(item, part),
                StreamEventType::ReasoningDelta,
            ),
            "response.function_call_arguments.delta" => {
                let Some(&index) = self.blocks.get(&Place::Call(item)) else {
                    return Err(self.invalid("arguments came before their call"));
                };
                self.heard.insert(item);
                return self.answer.call(index, None, None, event.delta);
            }
            _ => (Place::Summary(item, part), StreamEventType::ReasoningDelta),
        };
        self.text(place, kind, event.delta)
    }

    /// Takes an item that begins: of a call the deltas have no name.
    fn begin_item(&mut self, event: &ItemEvent) -> Result<(), UppError> {
        self.answer.begin();
        let body: ItemBody = self.read("an item of the output", event.item.text())?;
        if &*body.kind == "function_call" {
            self.begin_call(event.output_index, &body)?;
        }
        Ok(())
    }

    fn begin_call(&mut self, item: u32, body: &ItemBody) -> Result<u32, UppError> {
        let (Some(id), Some(name)) = (&body.call_id, &body.name) else {
            return Err(self.invalid("a tool call has no id or no name"));
        };
        let (index, is_new) = self.block(Place::Call(item));
        if is_new {
            let (id, name) = (Arc::clone(id), Arc::clone(name));
            self.answer
                .call(index, Some(id), Some(name), Piece::default())?;
        }
        Ok(index)
    }

    /// Takes a whole item: keeps it as it came, and reads what no delta said.
    fn item(&mut self, item: u32, json: &Json) -> Result<(), UppError> {
        self.bytes = self.bytes.saturating_add(json.text().len());
        if self.bytes > MAX_BODY_BYTES || self.items.len() >= MAX_ITEMS {
            return Err(self.invalid("the response has more than 64 MiB or 4,096 items"));
        }
        let body: ItemBody = self.read("an item of the output", json.text())?;
        let Some(kept) = json.keep() else {
            return Err(self.invalid("an item of the output is nested too deeply"));
        };
        if self.items.insert(item, kept).is_some() {
            return Err(self.invalid("two items of the output have the same index"));
        }
        match &*body.kind {
            "message" => {
                let kind = self.answer.text_kind();
                self.parts(body.content, |part| Place::Text(item, part), &kind)
            }
            "reasoning" => {
                let kind = StreamEventType::ReasoningDelta;
                self.parts(body.summary, |part| Place::Summary(item, part), &kind)?;
                self.parts(body.content, |part| Place::Reasoning(item, part), &kind)
            }
            "function_call" => {
                let index = self.begin_call(item, &body)?;
                if self.heard.insert(item) {
                    self.answer.call(index, None, None, body.arguments.0)?;
                }
                Ok(())
            }
            // The vendor's own tools, and types that it adds: they go back as they came.
            _ => Ok(()),
        }
    }

    fn parts(
        &mut self,
        parts: Option<Vec<ItemPart>>,
        place: impl Fn(u32) -> Place,
        kind: &StreamEventType,
    ) -> Result<(), UppError> {
        for (part, body) in (0..).zip(parts.unwrap_or_default()) {
            let place = place(part);
            if self.blocks.contains_key(&place) {
                continue;
            }
            match (body.text, body.refusal) {
                (Some(text), _) => self.text(place, kind.clone(), text)?,
                (None, Some(refusal)) => self.text(place, StreamEventType::TextDelta, refusal)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Takes what stands beside the items.
    fn head(&mut self, body: &ResponseBody) {
        self.answer.begin();
        for (name, value) in [("id", &body.id), ("model", &body.model)] {
            let value = value.as_ref().and_then(Json::keep);
            self.answer.set_metadata(name, value.as_ref());
        }
        if let Spare(Some(usage)) = &body.usage {
            self.answer.usage = usage_of(usage);
        }
    }

    /// Takes the response at its end.
    fn response(&mut self, json: &str) -> Result<(), UppError> {
        let body: ResponseBody = self.read("the response", json)?;
        let is_error = |error: &Json| error.text() != "null";
        if body.error.as_ref().is_some_and(is_error) {
            return Err(self.answer.reported(json));
        }
        self.head(&body);
        let reason = match body.status.as_deref() {
            Some("completed") => "completed",
            Some("incomplete") => {
                let details = body.incomplete_details.0.as_ref();
                let reason = details.and_then(|details| details.reason.as_deref());
                reason.unwrap_or("incomplete")
            }
            other => {
                let status = other.unwrap_or("none");
                let text = format!("the vendor failed within the response: its status is {status}");
                return Err(self.answer.error(ErrorCode::ProviderError, &text));
            }
        };
        if reason == "content_filter" {
            return Err(self.answer.content_filtered());
        }
        self.answer.stop_reason = Some(reason.into());
        // A stream has said its items already.
        for (item, json) in (0..).zip(body.output.iter().flatten()) {
            if !self.items.contains_key(&item) {
                self.item(item, json)?;
            }
        }
        self.answer.ended = true;
        Ok(())
    }

    fn event(&mut self, kind: &str, data: &str) -> Result<(), UppError> {
        match kind {
            "response.created" | "response.in_progress" | "response.queued" => {
                let event: ResponseEvent = self.read(&format!("the event {kind}"), data)?;
                let body: ResponseBody = self.read("the response", event.response.text())?;
                self.head(&body);
                Ok(())
            }
            "response.output_item.added" => {
                let event: ItemEvent = self.read(&format!("the event {kind}"), data)?;
                self.begin_item(&event)
            }
            "response.output_item.done" => {
                let event: ItemEvent = self.read(&format!("the event {kind}"), data)?;
                self.item(event.output_index, &event.item)
            }
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.reasoning_text.delta"
            | "response.reasoning_summary_text.delta"
            | "response.function_call_arguments.delta" => self.delta(kind, data),
            "response.completed" | "response.incomplete" | "response.failed" => {
                let event: ResponseEvent = self.read(&format!("the event {kind}"), data)?;
                self.response(event.response.text())
            }
            "error" => Err(self.answer.reported(data)),
            // The vendor may add types, and says in others again what these have said.
            _ => Ok(()),
        }
    }
}

fn usage_of(usage: &ResponseUsage) -> CycleUsage {
    let count = |of: &Spare<Count>| of.0.map_or(0, |count| count.0);
    let input = usage.input_tokens_details.0.as_ref();
    let output = usage.output_tokens_details.0.as_ref();
    CycleUsage::new(
        count(&usage.input_tokens),
        count(&usage.output_tokens),
        input.map_or(0, |details| count(&details.cached_tokens)),
        input.map_or(0, |details| count(&details.cache_write_tokens)),
    )
    .with_reasoning(output.and_then(|details| details.reasoning_tokens.0))
}

impl ResponseReader for ItemReader {
    /// Events of unknown types are ignored, even where they are not JSON.
    fn read_event(&mut self, event: &SseEvent) -> Result<(), UppError> {
        let data = &event.data;
        if data.trim() == "[DONE]" {
            self.answer.ended = true;
            return Ok(());
        }
        let is_of_response = |name: &str| name == "error" || name.starts_with("response.");
        match parse::<EventKind>(data.as_bytes()) {
            Ok(EventKind {
                kind: Spare(Some(kind)),
                ..
            }) => self.event(&kind, data),
            Ok(EventKind { error: Some(_), .. }) => Err(self.answer.reported(data)),
            Ok(_) => Ok(()),
            Err(_) if event.name.as_deref() == Some("error") => Err(self.answer.reported(data)),
            Err(_)
                if event
                    .name
                    .as_deref()
                    .is_some_and(|name| !is_of_response(name)) =>
            {
                Ok(())
            }
            Err(place) => Err(self.answer.unreadable("an event", &place)),
        }
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        let body = core::str::from_utf8(body)
            .map_err(|_| self.invalid("the response body is not UTF-8"))?;
        self.response(body)
    }

    fn builder(&mut self) -> &mut ResponseBuilder {
        &mut self.answer
    }

    fn check_end(&mut self) -> Result<(), UppError> {
        let has_calls = self
            .blocks
            .keys()
            .any(|place| matches!(place, Place::Call(_)));
        // The vendor has no word of its own for it.
        if has_calls && self.answer.stop_reason.as_deref() == Some("completed") {
            self.answer.stop_reason = Some("tool_calls".into());
        }
        let items: Vec<RawBuf> = core::mem::take(&mut self.items).into_values().collect();
        if !items.is_empty() {
            self.answer.is_bound = true;
            self.answer.set_metadata(OUTPUT, Some(&items));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::List;
    use crate::message::Stamp;

    #[test]
    fn items_may_have_64_mib_together() {
        let stamp = Stamp::with_id("m", ubos_common::time::Timestamp::EPOCH);
        let request = LlmRequest::new(List::default(), stamp);
        let text = r#"{"type":"new"}"#;
        let event = SseEvent {
            name: None,
            data: format!(
                r#"{{"type":"response.output_item.done","output_index":0,"item":{text}}}"#
            ),
        };
        for (room, is_ok) in [(text.len(), true), (text.len() - 1, false)] {
            let mut reader = ItemReader::new(&request, "openai".into());
            reader.bytes = MAX_BODY_BYTES - room;
            assert_eq!(reader.read_event(&event).is_ok(), is_ok);
        }
    }
}
