//! The body of a request.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, to_string};

use crate::content::{ContentBlock, Source};
use crate::message::{AssistantMessage, Message};
use crate::model::LlmRequest;
use crate::tool::{Tool, ToolCall, ToolResult};
use crate::transport::body::{
    Place, Text, object_text, params, place, tool_metadata, untaken, with_members,
};
use crate::transport::openai::request::{STRICT, answer_format};
use crate::transport::unchanged::is_unchanged;
use crate::transport::vendor_json::{Json, Object};

/// The member of the metadata with the items of a message.
pub(super) const OUTPUT: &str = "output";

/// The parameter of the structured output, which others share.
const TEXT: &str = "text";

/// The body: what the request says, then the user's parameters as they stand.
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
    let taken = |name: &str| match name {
        "model" | "input" | "stream" => true,
        "instructions" => request.system.is_some(),
        "tools" => !request.tools.is_empty(),
        _ => false,
    };
    let mut params = params(request, taken)?;
    let mut out = Vec::with_capacity(1024);
    let mut object = MemberWriter::begin(&mut out);
    object.member("model", model);
    object.optional("instructions", request.system.as_deref());
    object.member("input", &Text(&input(request, provider)?));
    if !request.tools.is_empty() {
        object.member("tools", &Text(&tools(request, provider)));
        if request.forbids_calls() {
            object.member("tool_choice", "none");
        }
    }
    if let Some(schema) = &request.structure {
        let format = answer_format(schema, Some("json_schema"));
        let text = with_members(params.remove(TEXT), &[("format", &format)])?;
        object.member(TEXT, &Text(&text));
    }
    if streams {
        object.member("stream", &true);
    }
    for (name, value) in params {
        object.member(&name, &value);
    }
    object.end();
    Ok(out)
}

fn tools(request: &LlmRequest, provider: &str) -> String {
    let declare = |tool: &Arc<dyn Tool>| {
        object_text(|object| {
            object.member("type", "function");
            object.member("name", tool.name());
            object.member("description", tool.description());
            object.member("parameters", tool.parameters());
            // The vendor changes a schema that it is not told to leave alone.
            object.member("strict", &STRICT.takes(tool.parameters()));
            let own = ["type", "name", "description", "parameters", "strict"];
            tool_metadata(object, tool.as_ref(), provider, &own);
        })
    };
    let declared: Vec<String> = request.tools.iter().map(declare).collect();
    format!("[{}]", declared.join(","))
}

fn input(request: &LlmRequest, provider: &str) -> Result<String, &'static str> {
    let mut items = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        match message {
            Message::User(user) => {
                let parts: Result<Vec<String>, _> = user.content.iter().map(part).collect();
                items.push(format!(
                    r#"{{"type":"message","role":"user","content":[{}]}}"#,
                    parts?.join(",")
                ));
            }
            Message::Assistant(answer) => items.extend(assistant(answer, provider)),
            Message::ToolResult(results) => items.extend(results.results.iter().map(result)),
        }
    }
    Ok(format!("[{}]", items.join(",")))
}

/// An answer of this vendor goes back as it came. Of any other, and of one that was changed, go the texts and the calls.
fn assistant(answer: &AssistantMessage, provider: &str) -> Vec<String> {
    if let Some(items) = items_of(answer, provider) {
        return items;
    }
    let text = answer.text();
    let said = (!text.is_empty()).then(|| {
        object_text(|object| {
            object.member("type", "message");
            object.member("role", "assistant");
            object.member("content", &*text);
        })
    });
    said.into_iter()
        .chain(answer.calls().iter().map(call))
        .collect()
}

/// The items of a message as they came. `None` where there are none, or where the message was changed since.
fn items_of(answer: &AssistantMessage, provider: &str) -> Option<Vec<String>> {
    let kept = answer.metadata.as_ref()?.get(provider)?;
    let kept = Object::of(kept.as_str())?;
    let items: Vec<Json> = kept.read_member(OUTPUT)?;
    let raw = || items.iter().map(|item| item.text().to_owned()).collect();
    is_unchanged(answer, &kept).then(raw)
}

fn call(call: &ToolCall) -> String {
    let written = call.malformed_arguments();
    let arguments = written.unwrap_or_else(|| call.arguments.as_str().to_owned());
    object_text(|object| {
        object.member("type", "function_call");
        object.member("call_id", &*call.tool_call_id);
        object.member("name", &*call.tool_name);
        object.member("arguments", &*arguments);
    })
}

fn result(result: &ToolResult) -> String {
    object_text(|object| {
        object.member("type", "function_call_output");
        object.member("call_id", &*result.tool_call_id);
        object.member("output", &*result.text());
    })
}

fn part(block: &ContentBlock) -> Result<String, &'static str> {
    let text = |text: &str| format!(r#"{{"type":"input_text","text":{}}}"#, to_string(text));
    let inline = |mime: &str, data: &str| to_string(&format!("data:{mime};base64,{data}"));
    match block {
        ContentBlock::Text(said)
        | ContentBlock::Document {
            source: Source::Text(said),
            ..
        } => Ok(text(said)),
        ContentBlock::Image {
            source, mime_type, ..
        } => {
            let url = match place(source)? {
                Place::Url(url) => to_string(&url),
                Place::Base64(data) => inline(mime_type, &data),
            };
            Ok(format!(
                r#"{{"type":"input_image","detail":"auto","image_url":{url}}}"#
            ))
        }
        ContentBlock::Document {
            source,
            mime_type,
            title,
            ..
        } => Ok(match place(source)? {
            Place::Url(url) => {
                format!(r#"{{"type":"input_file","file_url":{}}}"#, to_string(&url))
            }
            Place::Base64(data) => format!(
                r#"{{"type":"input_file","filename":{},"file_data":{}}}"#,
                to_string(title.as_deref().unwrap_or("document")),
                inline(mime_type, &data)
            ),
        }),
        _ => Err(untaken(block)),
    }
}
