//! The body of a request.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawObject, Write, to_string};

use super::super::body::{Place, Text, object_text, params, place, tool_metadata, untaken};
use super::super::dialect::Dialect;
use super::extras::{SentExtras, call_text};
use crate::content::{ContentBlock, MediaKind, Source};
use crate::message::{AssistantMessage, Message};
use crate::model::LlmRequest;
use crate::tool::Tool;

/// The body: the user's parameters as they stand, then what the request says.
///
/// # Errors
///
/// A parameter has a name that the request itself needs, or content cannot be said in this shape.
// impl: UPP-2
pub(super) fn body(
    model: &str,
    provider: &str,
    request: &LlmRequest,
    streams: bool,
) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(1024);
    let mut object = MemberWriter::begin(&mut out);
    object.member("model", model);
    object.member("messages", &messages(request, provider)?);
    if !request.tools.is_empty() {
        object.member("tools", &Text(&tools(request, provider)));
        if request.forbids_calls() {
            object.member("tool_choice", "none");
        }
    }
    if let Some(schema) = &request.structure {
        let format = format!(
            r#"{{"type":"json_schema","json_schema":{}}}"#,
            answer_format(schema, None)
        );
        object.member("response_format", &Text(&format));
    }
    if streams {
        object.member("stream", &true);
        object.member("stream_options", &Text(r#"{"include_usage":true}"#));
    }
    let taken = |name: &str| match name {
        "model" | "messages" | "stream" | "stream_options" => true,
        "tools" => !request.tools.is_empty(),
        "response_format" => request.structure.is_some(),
        _ => false,
    };
    for (name, value) in params(request, taken)? {
        object.member(&name, &value);
    }
    object.end();
    Ok(out)
}

/// The schema of the answer, with its name. A schema that the vendor can enforce is enforced.
pub(super) fn answer_format(schema: &RawObject, kind: Option<&str>) -> String {
    object_text(|object| {
        object.optional("type", kind);
        object.member("name", "answer");
        object.member("schema", schema);
        if STRICT.takes(schema) {
            object.member("strict", &true);
        }
    })
}

/// What `strict` takes.
pub(super) const STRICT: Dialect = Dialect {
    keywords: &[
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
    ],
    requires_all: true,
    is_recursive: true,
};

fn tools(request: &LlmRequest, provider: &str) -> String {
    let declare = |tool: &Arc<dyn Tool>| {
        let function = object_text(|object| {
            object.member("name", tool.name());
            object.member("description", tool.description());
            object.member("parameters", tool.parameters());
            let own = ["name", "description", "parameters"];
            tool_metadata(object, tool.as_ref(), provider, &own);
        });
        format!(r#"{{"type":"function","function":{function}}}"#)
    };
    let declared: Vec<String> = request.tools.iter().map(declare).collect();
    format!("[{}]", declared.join(","))
}

fn messages(request: &LlmRequest, provider: &str) -> Result<Vec<ChatMessage>, &'static str> {
    let mut entries = Vec::new();
    if let Some(system) = &request.system {
        entries.push(ChatMessage::plain("system", system));
    }
    for message in &request.messages {
        match message {
            Message::User(user) => entries.push(ChatMessage {
                role: "user",
                content: Some(parts(&user.content)?),
                refusal: None,
                answer: None,
                call_id: None,
            }),
            Message::Assistant(answer) => entries.push(assistant(answer, provider)),
            Message::ToolResult(results) => {
                entries.extend(results.results.iter().map(|result| ChatMessage {
                    call_id: Some(Arc::clone(&result.tool_call_id)),
                    ..ChatMessage::plain("tool", &result.text())
                }))
            }
        }
    }
    Ok(entries)
}

fn assistant(answer: &Arc<AssistantMessage>, provider: &str) -> ChatMessage {
    let text = answer.text();
    let extras = SentExtras::of(answer, provider);
    let is_refusal = extras.is_refusal(&text);
    let has_content = !is_refusal && (!text.is_empty() || !answer.has_tool_calls());
    ChatMessage {
        role: "assistant",
        content: has_content.then(|| to_string(&text)),
        refusal: is_refusal.then(|| text.clone()),
        answer: Some((Arc::clone(answer), extras)),
        call_id: None,
    }
}

/// A user's content: one text as a text, anything else as parts.
fn parts(content: &[ContentBlock]) -> Result<String, &'static str> {
    if let [ContentBlock::Text(text)] = content {
        return Ok(to_string(&**text));
    }
    let written: Result<Vec<String>, _> = content.iter().map(part).collect();
    Ok(format!("[{}]", written?.join(",")))
}

fn part(block: &ContentBlock) -> Result<String, &'static str> {
    let inline = |source: &Source, mime: &str| match place(source) {
        Ok(Place::Base64(data)) => Ok(format!("data:{mime};base64,{data}")),
        Ok(Place::Url(url)) => Ok(url),
        Err(error) => Err(error),
    };
    match block {
        ContentBlock::Text(text) => Ok(format!(
            r#"{{"type":"text","text":{}}}"#,
            to_string(&**text)
        )),
        ContentBlock::Image {
            source, mime_type, ..
        } => {
            let url = to_string(&inline(source, mime_type)?);
            Ok(format!(
                r#"{{"type":"image_url","image_url":{{"url":{url}}}}}"#
            ))
        }
        ContentBlock::Document {
            source: Source::Text(text),
            ..
        } => Ok(format!(
            r#"{{"type":"text","text":{}}}"#,
            to_string(&**text)
        )),
        // The vendor takes no document by URL.
        ContentBlock::Document {
            source: Source::Url(_),
            ..
        } => Err(untaken(block)),
        ContentBlock::Document {
            source,
            mime_type,
            title,
            ..
        } => {
            let name = to_string(title.as_deref().unwrap_or("document"));
            let data = to_string(&inline(source, mime_type)?);
            Ok(format!(
                r#"{{"type":"file","file":{{"filename":{name},"file_data":{data}}}}}"#
            ))
        }
        ContentBlock::Media {
            kind: MediaKind::Audio,
            data,
            mime_type,
            ..
        } => {
            let format = mime_type.rsplit('/').next().unwrap_or_default();
            let format = if format == "mpeg" { "mp3" } else { format };
            let (format, data) = (to_string(format), to_string(&data.to_base64()));
            Ok(format!(
                r#"{{"type":"input_audio","input_audio":{{"data":{data},"format":{format}}}}}"#
            ))
        }
        _ => Err(untaken(block)),
    }
}

/// One message as the vendor reads it.
struct ChatMessage {
    role: &'static str,
    /// Written already.
    content: Option<String>,
    refusal: Option<String>,
    answer: Option<(Arc<AssistantMessage>, SentExtras)>,
    call_id: Option<Arc<str>>,
}

impl ChatMessage {
    fn plain(role: &'static str, text: &str) -> Self {
        Self {
            role,
            content: Some(to_string(text)),
            refusal: None,
            answer: None,
            call_id: None,
        }
    }
}

impl Write for ChatMessage {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("role", self.role);
        object.member("content", &Text(self.content.as_deref().unwrap_or("null")));
        object.optional("refusal", self.refusal.as_ref());
        if let Some((answer, extras)) = &self.answer {
            extras.write(answer, &mut object);
            let calls = answer.calls().iter();
            let calls: Vec<String> = calls
                .map(|call| call_text(call, extras.call(&call.tool_call_id)))
                .collect();
            if !calls.is_empty() {
                object.member("tool_calls", &Text(&format!("[{}]", calls.join(","))));
            }
        }
        object.optional("tool_call_id", self.call_id.as_ref());
        object.end();
    }
}
