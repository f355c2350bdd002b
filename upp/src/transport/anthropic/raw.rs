//! Content blocks as the vendor wrote them, to be sent back as they came.

use ubos_common::json::{RawBuf, Write, to_string};

use crate::content::ContentBlock;
use crate::message::AssistantMessage;
use crate::transport::vendor_json::{Joiner, Json, Object, Piece};

/// The member of the metadata with the blocks of a message.
pub(super) const CONTENT: &str = "content";

/// One block while it is received.
pub(super) struct RawBlock {
    object: Object,
    kind: Box<str>,
    text: Piece,
    thinking: Piece,
    signature: String,
    input: Piece,
    citations: Vec<RawBuf>,
}

impl RawBlock {
    /// A block as it starts. `None` where it cannot be kept.
    pub(super) fn new(kind: &str, start: &Json) -> Option<Self> {
        Some(Self {
            object: Object::of(start.text())?,
            kind: kind.into(),
            text: Piece::default(),
            thinking: Piece::default(),
            signature: String::new(),
            input: Piece::default(),
            citations: Vec::new(),
        })
    }

    pub(super) fn push_text(&mut self, more: &Piece) {
        self.text.0.extend(&more.0);
    }

    pub(super) fn push_thinking(&mut self, more: &Piece) {
        self.thinking.0.extend(&more.0);
    }

    pub(super) fn push_signature(&mut self, more: &str) {
        self.signature += more;
    }

    pub(super) fn push_input(&mut self, more: &Piece) {
        self.input.0.extend(&more.0);
    }

    pub(super) fn push_citation(&mut self, citation: Option<RawBuf>) {
        self.citations.extend(citation);
    }

    /// The whole block, with what followed its start.
    pub(super) fn finish(mut self) -> Self {
        let (text, thinking) = (
            core::mem::take(&mut self.text),
            core::mem::take(&mut self.thinking),
        );
        self.append("text", text);
        self.append("thinking", thinking);
        let signature = core::mem::take(&mut self.signature);
        self.append("signature", signature.as_str().into());
        let input = text_of(core::mem::take(&mut self.input));
        if let Some(input) = crate::kept::value_of(&input) {
            self.object.0.insert("input", input);
        }
        if !self.citations.is_empty() {
            let citations = to_string(&self.citations);
            self.object
                .0
                .insert("citations", RawBuf::assume_sound(citations));
        }
        self
    }

    fn append(&mut self, name: &'static str, more: Piece) {
        if more.is_empty() {
            return;
        }
        let before: String = self.object.read_member(name).unwrap_or_default();
        let text = to_string(&(before + &text_of(more)));
        self.object.0.insert(name, RawBuf::assume_sound(text));
    }

    /// Whether the block is a text without citations, or a call: what a message says itself.
    fn is_plain(&self) -> bool {
        let known: &[&str] = match &*self.kind {
            "text" => &["type", "text"],
            "tool_use" => &["type", "id", "name", "input"],
            _ => return false,
        };
        let mut members = self.object.0.iter();
        members.all(|(name, value)| known.contains(&name) || value.as_str() == "null")
    }
}

impl Write for RawBlock {
    fn write(&self, out: &mut Vec<u8>) {
        self.object.write(out);
    }
}

fn text_of(piece: Piece) -> String {
    let mut joiner = Joiner::default();
    joiner.join(piece) + joiner.finish()
}

/// Whether a message says all that these blocks say: texts, and then calls.
pub(super) fn are_plain(blocks: &[RawBlock]) -> bool {
    let texts_first = blocks.is_sorted_by_key(|block| &*block.kind == "tool_use");
    texts_first && blocks.iter().all(RawBlock::is_plain)
}

/// The blocks of a message as they came. `None` where there are none, or where the message was changed since.
pub(super) fn blocks_of(answer: &AssistantMessage, provider: &str) -> Option<Vec<String>> {
    let kept = answer.metadata.as_ref()?.get(provider)?;
    let kept = Object::of(kept.as_str())?;
    let blocks: Vec<Json> = kept.read_member(CONTENT)?;
    let (mut content, mut calls) = (Vec::new(), answer.calls().iter());
    for block in &blocks {
        let object = Object::of(block.text())?;
        let text = |name: &str| object.read_member::<String>(name).unwrap_or_default();
        match &*text("type") {
            "text" => content.push(ContentBlock::text(text("text"))),
            "thinking" => content.push(ContentBlock::Reasoning(text("thinking").into())),
            "tool_use" => {
                let call = calls.next()?;
                let is_same = *call.tool_call_id == *text("id") && *call.tool_name == *text("name");
                let input = object.0.value("input");
                if !is_same || input.is_none_or(|input| input.as_str() != call.arguments.as_str()) {
                    return None;
                }
            }
            _ => {}
        }
    }
    // Empty texts and thoughts are in no message.
    content.retain(|block| !matches!(block, ContentBlock::Text(text) | ContentBlock::Reasoning(text) if text.is_empty()));
    let is_unchanged = content == answer.content && calls.next().is_none();
    is_unchanged.then(|| blocks.iter().map(|block| block.text().to_owned()).collect())
}
