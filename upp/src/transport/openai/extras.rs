//! What a message has beside its text and its calls: kept in the metadata, and sent back as it came.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, Write, to_string};

use super::chunk::{Audio, ChatDelta, Logprobs};
use crate::content::ContentBlock;
use crate::message::AssistantMessage;
use crate::tool::ToolCall;
use crate::transport::body::Text;
use crate::transport::builder::{MAX_BODY_BYTES, ResponseBuilder};
use crate::transport::unchanged::is_unchanged;
use crate::transport::vendor_json::{Joiner, Json, Object, Piece};

/// The names under which vendors send reasoning.
pub(super) const REASONING_NAMES: [&str; 2] = ["reasoning_content", "reasoning"];

/// The extras of one choice while it is received.
#[derive(Default)]
pub(super) struct Extras {
    bytes: usize,
    /// The name under which the reasoning came.
    pub(super) reasoning_name: Option<&'static str>,
    reasoning_details: Vec<RawBuf>,
    annotations: Vec<RawBuf>,
    refusal: Piece,
    audio: Option<RawAudio>,
    logprobs: Logprobs,
    /// What compatible vendors send beside a call, by the place of the call.
    calls: BTreeMap<usize, RawBuf>,
}

#[derive(Default)]
struct RawAudio {
    id: Option<RawBuf>,
    expires_at: Option<RawBuf>,
    data: String,
    transcript: Piece,
}

impl Extras {
    /// Extras with room for no more.
    #[cfg(test)]
    pub(super) fn full() -> Self {
        Self {
            bytes: MAX_BODY_BYTES,
            ..Self::default()
        }
    }

    /// Takes what a delta has beside text and calls. `None` where the response has more than 64 MiB of it.
    #[must_use]
    pub(super) fn take(&mut self, delta: &mut ChatDelta) -> Option<()> {
        let details = delta.reasoning_details.0.take().unwrap_or_default();
        let details = self.kept(details)?;
        self.reasoning_details.extend(details);
        let annotations = delta.annotations.0.take().unwrap_or_default();
        let annotations = self.kept(annotations)?;
        self.annotations.extend(annotations);
        if let Some(refusal) = &delta.refusal {
            self.count(refusal.0.len())?;
            self.refusal.0.extend(&refusal.0);
        }
        if let Some(audio) = delta.audio.0.take() {
            self.audio(audio)?;
        }
        Some(())
    }

    fn audio(&mut self, more: Audio) -> Option<()> {
        let data = more.data.unwrap_or_default();
        let transcript = more.transcript.unwrap_or_default();
        self.count(data.len() + transcript.0.len())?;
        let audio = self.audio.get_or_insert_default();
        audio.data += &data;
        audio.transcript.0.extend(transcript.0);
        let keep = |json: Option<Json>| json.and_then(|json| json.keep());
        audio.id = keep(more.id).or_else(|| audio.id.take());
        audio.expires_at = keep(more.expires_at).or_else(|| audio.expires_at.take());
        Some(())
    }

    /// Takes the probabilities of tokens.
    #[must_use]
    pub(super) fn take_logprobs(&mut self, logprobs: Logprobs) -> Option<()> {
        for (all, more) in [
            (&mut self.logprobs.content, logprobs.content),
            (&mut self.logprobs.refusal, logprobs.refusal),
        ] {
            let more = more.unwrap_or_default();
            self.bytes += more.iter().map(|json| json.text().len()).sum::<usize>();
            all.get_or_insert_default().extend(more);
        }
        (self.bytes <= MAX_BODY_BYTES).then_some(())
    }

    /// Takes what stands beside a call.
    #[must_use]
    pub(super) fn take_call(&mut self, place: usize, extra: Option<Json>) -> Option<()> {
        let Some(extra) = extra.and_then(|json| json.keep()) else {
            return Some(());
        };
        self.count(extra.as_str().len())?;
        self.calls.insert(place, extra);
        Some(())
    }

    fn kept(&mut self, all: Vec<Json>) -> Option<Vec<RawBuf>> {
        self.count(all.iter().map(|json| json.text().len()).sum())?;
        Some(all.iter().filter_map(Json::keep).collect())
    }

    fn count(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        (self.bytes <= MAX_BODY_BYTES).then_some(())
    }

    /// Puts all of it into the metadata. `ids` are those of the calls.
    pub(super) fn end(&mut self, answer: &mut ResponseBuilder, ids: &[Arc<str>]) {
        let extras = core::mem::take(self);
        answer.is_bound = !extras.reasoning_details.is_empty()
            || !extras.refusal.is_empty()
            || extras.audio.is_some()
            || !extras.calls.is_empty();
        let name = extras.reasoning_name;
        answer.set_metadata("reasoning_name", name.map(str::to_owned).as_ref());
        let some = |list: Vec<RawBuf>| (!list.is_empty()).then_some(list);
        answer.set_metadata("reasoning_details", some(extras.reasoning_details).as_ref());
        answer.set_metadata("annotations", some(extras.annotations).as_ref());
        let refusal = text_of(extras.refusal);
        answer.set_metadata("refusal", (!refusal.is_empty()).then_some(refusal).as_ref());
        answer.set_metadata("audio", extras.audio.as_ref());
        let probabilities = |list: Option<Vec<Json>>| {
            let list = list.unwrap_or_default();
            some(list.iter().filter_map(Json::keep).collect())
        };
        for (name, list) in [
            ("logprobs", probabilities(extras.logprobs.content)),
            ("refusal_logprobs", probabilities(extras.logprobs.refusal)),
        ] {
            answer.set_metadata(name, list.as_ref());
        }
        let calls = extras.calls.into_iter();
        let calls: Vec<RawCall> = calls
            .filter_map(|(place, extra)| Some(RawCall(Arc::clone(ids.get(place)?), extra)))
            .collect();
        answer.set_metadata("calls", (!calls.is_empty()).then_some(calls).as_ref());
    }
}

fn text_of(piece: Piece) -> String {
    let mut joiner = Joiner::default();
    joiner.join(piece) + joiner.finish()
}

impl Write for RawAudio {
    fn write(&self, out: &mut Vec<u8>) {
        let transcript = text_of(self.transcript.clone());
        let mut object = MemberWriter::begin(out);
        object.optional("id", self.id.as_ref());
        object.optional("expires_at", self.expires_at.as_ref());
        object.member("data", &*self.data);
        object.member("transcript", &*transcript);
        object.end();
    }
}

/// The id of a call and what was sent beside it.
struct RawCall(Arc<str>, RawBuf);

impl Write for RawCall {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("id", &*self.0);
        object.member("extra_content", &self.1);
        object.end();
    }
}

/// The extras of a message that goes back to the vendor that sent them.
pub(super) struct SentExtras {
    kept: Option<Object>,
    /// Whether the message is as it came. What the vendor signed goes back with nothing else.
    is_unchanged: bool,
}

impl SentExtras {
    pub(super) fn of(answer: &AssistantMessage, provider: &str) -> Self {
        let kept = answer.metadata.as_ref().and_then(|all| all.get(provider));
        let kept = kept.and_then(|kept| Object::of(kept.as_str()));
        let is_unchanged = kept.as_ref().is_some_and(|kept| is_unchanged(answer, kept));
        Self { kept, is_unchanged }
    }

    /// A member that goes back only with the message as it came.
    fn bound(&self, name: &str) -> Option<RawBuf> {
        let kept = self.kept.as_ref().filter(|_| self.is_unchanged)?;
        Some(kept.0.value(name)?.to_owned())
    }

    /// Whether the whole text of the message is the model's refusal.
    pub(super) fn is_refusal(&self, text: &str) -> bool {
        let refusal = self.bound("refusal");
        let refusal: Option<String> = refusal.and_then(|refusal| refusal.deserialize().ok());
        refusal.is_some_and(|refusal| refusal == text)
    }

    /// What was sent beside a call.
    pub(super) fn call(&self, id: &str) -> Option<RawBuf> {
        let calls: Vec<Json> = self.bound("calls")?.deserialize().ok()?;
        let mut calls = calls.iter().filter_map(|call| Object::of(call.text()));
        let call = calls.find(|call| call.read_member::<String>("id").as_deref() == Some(id))?;
        Some(call.0.value("extra_content")?.to_owned())
    }

    /// Writes the members beside content and calls.
    pub(super) fn write(&self, answer: &AssistantMessage, object: &mut MemberWriter<'_>) {
        let Some(kept) = &self.kept else {
            return;
        };
        let thoughts = answer.content.iter().filter_map(|block| match block {
            ContentBlock::Reasoning(text) => Some(&**text),
            _ => None,
        });
        let thoughts: String = thoughts.collect();
        let name: Option<String> = kept.read_member("reasoning_name");
        let name = REASONING_NAMES
            .into_iter()
            .find(|known| name.as_deref() == Some(known));
        if let Some(name) = name.filter(|_| !thoughts.is_empty()) {
            object.member(name, &*thoughts);
        }
        object.optional(
            "reasoning_details",
            self.bound("reasoning_details").as_ref(),
        );
        let audio = self.bound("audio");
        let audio = audio.and_then(|audio| Object::of(audio.as_str()));
        if let Some(id) = audio.as_ref().and_then(|audio| audio.0.value("id")) {
            object.member("audio", &Text(&format!(r#"{{"id":{}}}"#, id.as_str())));
        }
    }
}

/// A call as it goes back. What the model wrote goes back even where it is not JSON.
pub(super) fn call_text(call: &ToolCall, extra: Option<RawBuf>) -> String {
    let written = call.malformed_arguments();
    let arguments = written.unwrap_or_else(|| call.arguments.as_str().to_owned());
    let extra = extra.map(|extra| format!(r#","extra_content":{}"#, extra.as_str()));
    format!(
        r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}{}}}"#,
        to_string(&*call.tool_call_id),
        to_string(&*call.tool_name),
        to_string(&arguments),
        extra.unwrap_or_default()
    )
}
