//! Reads chat completions, whole or in chunks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chunk::{ChatDelta, Choice, Completion, CompletionUsage, ToolCallDelta};
use super::extras::{Extras, REASONING_NAMES};
use crate::error::{ErrorCode, UppError};
use crate::model::LlmRequest;
use crate::stream::StreamEventType;
use crate::transport::builder::{
    Alternative, FIRST_CALL, REASONING, ResponseBuilder, ResponseReader, TEXT,
};
use crate::transport::sse::SseEvent;
use crate::transport::structure::Form;
use crate::transport::vendor_json::{Count, Piece, Spare, parse};
use crate::turn::CycleUsage;

/// Reads one response, whole or in chunks.
pub(super) struct CompletionReader {
    first: ChoiceReader,
    /// The alternatives beside the first, by index.
    others: BTreeMap<u64, ChoiceReader>,
}

impl CompletionReader {
    pub(super) fn new(request: &LlmRequest, provider: Arc<str>) -> Self {
        Self {
            first: ChoiceReader::new(ResponseBuilder::new(
                Form::native(request),
                request,
                provider,
            )),
            others: BTreeMap::new(),
        }
    }

    fn take(&mut self, chunk: Completion, whole: bool) -> Result<(), UppError> {
        let answer = &mut self.first.answer;
        if let Spare(Some(usage)) = chunk.usage {
            answer.usage = usage_of(&usage);
        }
        for (name, value) in [
            ("id", chunk.id),
            ("model", chunk.model),
            ("system_fingerprint", chunk.system_fingerprint),
        ] {
            answer.set_metadata(name, value.and_then(|json| json.keep()).as_ref());
        }
        for (place, choice) in (0..).zip(chunk.choices.unwrap_or_default()) {
            let index = match choice.index {
                Spare(Some(Count(index))) => index,
                // Only a whole response numbers its choices by their places.
                Spare(None) if whole => place,
                Spare(None) => 0,
            };
            self.choice(index)?.take(choice, whole)?;
        }
        Ok(())
    }

    fn choice(&mut self, index: u64) -> Result<&mut ChoiceReader, UppError> {
        if index == 0 {
            self.first.answer.begin();
            return Ok(&mut self.first);
        }
        let answer = &self.first.answer;
        if !self.others.contains_key(&index) {
            answer.check_alternatives(self.others.len())?;
        }
        let fresh = || ChoiceReader::new(answer.alternative());
        Ok(self.others.entry(index).or_insert_with(fresh))
    }
}

fn usage_of(usage: &CompletionUsage) -> CycleUsage {
    let count = |of: &Spare<Count>| of.0.map_or(0, |count| count.0);
    let input = usage.details.0.as_ref();
    let output = usage.output_details.0.as_ref();
    let hits = count(&usage.prompt_cache_hit_tokens);
    CycleUsage::new(
        count(&usage.prompt_tokens),
        count(&usage.completion_tokens),
        input.map_or(hits, |details| count(&details.cached_tokens)),
        input.map_or(0, |details| count(&details.cache_write_tokens)),
    )
    .with_reasoning(output.and_then(|details| details.reasoning_tokens.0))
}

impl ResponseReader for CompletionReader {
    /// An event with a name of its own that is not JSON is of a type that is not known, and ignored.
    fn read_event(&mut self, event: &SseEvent) -> Result<(), UppError> {
        if event.data.trim() == "[DONE]" {
            self.first.answer.ended = true;
            return Ok(());
        }
        let chunk = match parse::<Completion>(event.data.as_bytes()) {
            Ok(chunk) => chunk,
            Err(_) if event.name.as_deref() == Some("error") => {
                return Err(self.first.answer.reported(&event.data));
            }
            Err(_) if event.is_named_other_than(&["message"]) => return Ok(()),
            Err(place) => {
                return Err(self
                    .first
                    .answer
                    .unreadable("a chunk of the response", &place));
            }
        };
        if chunk.error.is_some() {
            return Err(self.first.answer.reported(&event.data));
        }
        self.take(chunk, false)
    }

    fn read_body(&mut self, body: &[u8]) -> Result<(), UppError> {
        let completion = parse::<Completion>(body).map_err(|place| {
            let what = "the response body is not a chat completion: it";
            self.first.answer.unreadable(what, &place)
        })?;
        if completion.error.is_some() {
            let body = String::from_utf8_lossy(body);
            return Err(self.first.answer.reported(&body));
        }
        self.take(completion, true)
    }

    fn builder(&mut self) -> &mut ResponseBuilder {
        &mut self.first.answer
    }

    fn check_end(&mut self) -> Result<(), UppError> {
        self.first.end()?;
        let others = core::mem::take(&mut self.others);
        let mut alternatives = Vec::with_capacity(others.len());
        for (index, mut choice) in others {
            choice.end()?;
            alternatives.push(Alternative::of(index, choice.answer)?);
        }
        if !alternatives.is_empty() {
            self.first
                .answer
                .set_metadata("choices", Some(&alternatives));
        }
        match self.first.answer.stop_reason.as_deref() {
            Some("content_filter") => Err(self.first.answer.content_filtered()),
            Some(word @ ("error" | "network_error" | "insufficient_system_resource")) => {
                let text = format!("the vendor failed within the response: {word}");
                Err(self.first.answer.error(ErrorCode::ProviderError, &text))
            }
            _ => Ok(()),
        }
    }
}

/// Reads one choice.
struct ChoiceReader {
    answer: ResponseBuilder,
    calls: Vec<OpenCall>,
    extras: Extras,
}

/// A call as its deltas name it.
struct OpenCall {
    index: Option<u64>,
    id: Option<Arc<str>>,
}

impl ChoiceReader {
    fn new(answer: ResponseBuilder) -> Self {
        Self {
            answer,
            calls: Vec::new(),
            extras: Extras::default(),
        }
    }

    fn take(&mut self, choice: Choice, whole: bool) -> Result<(), UppError> {
        if let Some(error) = choice.error {
            let body = format!(r#"{{"error":{}}}"#, error.text());
            return Err(self.answer.reported(&body));
        }
        let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
        self.answer.stop_reason = reason.or_else(|| self.answer.stop_reason.take());
        if let Spare(Some(logprobs)) = choice.logprobs {
            let taken = self.extras.take_logprobs(logprobs);
            taken.ok_or_else(|| self.too_large())?;
        }
        match if whole { choice.message } else { choice.delta } {
            Some(delta) => self.delta(delta, whole),
            None => Ok(()),
        }
    }

    fn too_large(&self) -> UppError {
        let text = "the response has more than 64 MiB";
        self.answer.error(ErrorCode::InvalidResponse, text)
    }

    fn delta(&mut self, mut delta: ChatDelta, whole: bool) -> Result<(), UppError> {
        let taken = self.extras.take(&mut delta);
        taken.ok_or_else(|| self.too_large())?;
        let answer = &mut self.answer;
        let content = delta.content.unwrap_or_default();
        // Some vendors send the reasoning under both names.
        let names = REASONING_NAMES.into_iter();
        let mut named = names.zip([delta.reasoning_content, delta.reasoning]);
        let named = named.find_map(|(name, text)| Some((name, text.filter(|t| !t.is_empty())?)));
        let reasoning = named.map_or_else(Piece::default, |(name, text)| {
            self.extras.reasoning_name = Some(name);
            text
        });
        for more in [reasoning, content.reasoning] {
            answer.text(StreamEventType::ReasoningDelta, REASONING, more)?;
        }
        answer.text(answer.text_kind(), TEXT, content.text)?;
        if let Some(more) = delta.refusal.filter(|more| !more.is_empty()) {
            answer.text(StreamEventType::TextDelta, TEXT, more)?;
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call, whole)?;
        }
        Ok(())
    }

    fn call(&mut self, delta: ToolCallDelta, whole: bool) -> Result<(), UppError> {
        let id = delta.id.filter(|id| !id.is_empty());
        let (name, arguments) = delta
            .function
            .map_or_else(|| (None, Piece::default()), |f| (f.name, f.arguments.0));
        let name = name.filter(|name| !name.is_empty());
        let index = delta.index.0.map(|count| count.0);
        let known = if whole {
            None
        } else {
            self.place_of(index, id.as_ref(), name.is_some())
        };
        let place = known.unwrap_or_else(|| {
            self.calls.push(OpenCall { index, id: None });
            self.calls.len() - 1
        });
        let taken = self.extras.take_call(place, delta.extra_content);
        taken.ok_or_else(|| self.too_large())?;
        if let (Some(call), Some(id)) = (self.calls.get_mut(place), &id) {
            call.id = Some(Arc::clone(id));
        }
        self.answer.call(event_index(place), id, name, arguments)
    }

    /// The call that a delta goes on with. A new id begins a new call whatever the index says, because some servers send
    /// index 0 for every call, or none; without id and index, a name does.
    fn place_of(&self, index: Option<u64>, id: Option<&Arc<str>>, has_name: bool) -> Option<usize> {
        let last = |fits: &dyn Fn(&OpenCall) -> bool| self.calls.iter().rposition(fits);
        match (id, index) {
            (Some(id), index) => last(&|call| {
                let is_named = call.id.as_ref() == Some(id);
                is_named && (index.is_none() || call.index == index)
                    || call.id.is_none() && index.is_some() && call.index == index
            }),
            (None, Some(_)) => last(&|call| call.index == index),
            (None, None) if has_name => None,
            (None, None) => last(&|_| true),
        }
    }

    /// Calls without an id get the id of the message and their place.
    fn end(&mut self) -> Result<(), UppError> {
        let mut ids = Vec::with_capacity(self.calls.len());
        for (place, call) in self.calls.iter().enumerate() {
            if let Some(id) = &call.id {
                ids.push(Arc::clone(id));
                continue;
            }
            let id: Arc<str> = format!("{}-call-{place}", self.answer.stamp.id).into();
            ids.push(Arc::clone(&id));
            let index = event_index(place);
            self.answer.call(index, Some(id), None, Piece::default())?;
        }
        self.extras.end(&mut self.answer, &ids);
        Ok(())
    }
}

fn event_index(place: usize) -> u32 {
    u32::try_from(place)
        .unwrap_or(u32::MAX)
        .saturating_add(FIRST_CALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::List;
    use crate::message::Stamp;

    // spec: UPP-10
    #[test]
    fn nothing_is_kept_beside_64_mib() {
        let stamp = Stamp::with_id("m", ubos_common::time::Timestamp::EPOCH);
        let request = LlmRequest::new(List::default(), stamp);
        for choice in [
            r#"{"delta":{"reasoning_details":[1]}}"#,
            r#"{"delta":{"annotations":[1]}}"#,
            r#"{"delta":{"refusal":"x"}}"#,
            r#"{"delta":{"audio":{"data":"x"}}}"#,
            r#"{"delta":{},"logprobs":{"content":[1]}}"#,
            r#"{"logprobs":{"content":[1]}}"#,
            r#"{"delta":{},"logprobs":{"refusal":[1]}}"#,
            r#"{"delta":{"tool_calls":[{"id":"c","function":{"name":"f"},"extra_content":1}]}}"#,
        ] {
            let event = SseEvent {
                name: None,
                data: format!(r#"{{"choices":[{choice}]}}"#),
            };
            let mut reader = CompletionReader::new(&request, "openai".into());
            reader.read_event(&event).unwrap();
            reader.first.extras = Extras::full();
            let error = reader.read_event(&event).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidResponse, "{choice}");
            assert!(error.message.contains("64 MiB"), "{error}");
        }
        // What is empty needs no room.
        for choice in [r#"{"delta":{}}"#, r#"{"delta":{},"logprobs":{}}"#] {
            let event = SseEvent {
                name: None,
                data: format!(r#"{{"choices":[{choice}]}}"#),
            };
            let mut reader = CompletionReader::new(&request, "openai".into());
            reader.first.extras = Extras::full();
            reader.read_event(&event).unwrap();
        }
    }
}
