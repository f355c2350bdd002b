//! Parts as the vendor wrote them, to be sent back as they came.

use ubos_common::json::{RawBuf, Write, to_string};

use crate::blob::Blob;
use crate::content::{ContentBlock, Source};
use crate::message::AssistantMessage;
use crate::transport::vendor_json::{Json, Object};

/// The member of the metadata with the parts of a message.
pub(super) const PARTS: &str = "parts";

/// One part.
pub(super) struct RawPart(Object);

impl Write for RawPart {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl RawPart {
    /// `None` where the part cannot be kept.
    pub(super) fn new(part: &Json) -> Option<Self> {
        Object::of(part.text()).map(Self)
    }

    /// Adds a part. A text goes on the text before it where both have nothing else, as the chunks of one text have.
    pub(super) fn append(parts: &mut Vec<Self>, part: Self) {
        let text = |part: &Self| part.0.read_member::<String>("text");
        if let Some(last) = parts.last_mut().filter(|last| last.goes_on_with(&part))
            && let (Some(before), Some(more)) = (text(last), text(&part))
        {
            let whole = RawBuf::assume_sound(to_string(&(before + &more)));
            last.0.0.insert("text", whole);
            return;
        }
        parts.push(part);
    }

    fn goes_on_with(&self, part: &Self) -> bool {
        let is_thought = |part: &Self| part.0.read_member::<bool>("thought") == Some(true);
        let is_text = |part: &Self| {
            part.0
                .0
                .iter()
                .all(|(name, _)| matches!(name, "text" | "thought"))
        };
        is_text(self) && is_text(part) && is_thought(self) == is_thought(part)
    }

    /// Whether a message says itself what the part says.
    fn is_plain(&self) -> bool {
        let has = |names: &[&str]| self.0.0.iter().all(|(name, _)| names.contains(&name));
        has(&["text"]) || has(&["inlineData"]) || has(&["functionCall"])
    }

    /// Texts come first in a message, then data, then calls.
    fn rank(&self) -> u8 {
        match () {
            () if self.0.0.value("functionCall").is_some() => 2,
            () if self.0.0.value("inlineData").is_some() => 1,
            () => 0,
        }
    }
}

/// Whether a message says all that these parts say.
pub(super) fn are_plain(parts: &[RawPart]) -> bool {
    parts.is_sorted_by_key(RawPart::rank) && parts.iter().all(RawPart::is_plain)
}

/// The parts of a message as they came. `None` where there are none, or where the message was changed since.
pub(super) fn parts_of(answer: &AssistantMessage, provider: &str) -> Option<Vec<String>> {
    let kept = answer.metadata.as_ref()?.get(provider)?;
    let parts: Vec<Json> = Object::of(kept.as_str())?.read_member(PARTS)?;
    let (mut text, mut reasoning) = (String::new(), String::new());
    let (mut inline, mut calls) = (Vec::new(), answer.calls().iter());
    for part in &parts {
        let part = Object::of(part.text())?;
        if let Some(call) = part.0.value("functionCall") {
            let (call, seen) = (Object::of(call.as_str())?, calls.next()?);
            let args = call.0.value("args").map_or("{}", |args| args.as_str());
            let name: String = call.read_member("name")?;
            if *seen.tool_name != *name || seen.arguments.as_str() != args {
                return None;
            }
        }
        if let Some(data) = part.0.value("inlineData") {
            let data: String = Object::of(data.as_str())?.read_member("data")?;
            inline.push(Blob::from_base64(&data)?);
        }
        let more: String = part.read_member("text").unwrap_or_default();
        if part.read_member("thought") == Some(true) {
            reasoning += &more;
        } else {
            text += &more;
        }
    }
    let (mut texts, mut thoughts, mut others) = (String::new(), String::new(), Vec::new());
    for block in &answer.content {
        match block {
            ContentBlock::Text(text) => texts += text,
            ContentBlock::Reasoning(thought) => thoughts += thought,
            ContentBlock::Media { data, .. }
            | ContentBlock::Image {
                source: Source::Bytes(data),
                ..
            } => others.push(data.clone()),
            _ => return None,
        }
    }
    let is_unchanged = (texts, thoughts, others) == (text, reasoning, inline);
    let raw = || parts.iter().map(|part| part.text().to_owned()).collect();
    (is_unchanged && calls.next().is_none()).then(raw)
}
