//! The body of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, to_string};

use super::raw::blocks_of;
use crate::content::{ContentBlock, Source};
use crate::message::{AssistantMessage, Message};
use crate::model::LlmRequest;
use crate::tool::ToolResult;
use crate::transport::body::{
    Place, Text, object_text, params, place, tool_metadata, untaken, with_members,
};
use crate::transport::dialect::Dialect;
use crate::transport::structure::{ANSWER_TOOL, Form};

/// How structured output is asked for. Models before Claude 4.1 have no native form, and neither have others that speak like
/// this vendor.
pub(super) fn form(model: &str, request: &LlmRequest) -> Form {
    const BEFORE: [&str; 8] = [
        "claude-2",
        "claude-3",
        "claude-instant",
        "claude-sonnet-4-0",
        "claude-sonnet-4-2025",
        "claude-sonnet-4@",
        "claude-opus-4-0",
        "claude-opus-4-2025",
    ];
    let is_later =
        || model.contains("claude-") && !BEFORE.iter().any(|before| model.contains(before));
    match &request.structure {
        Some(schema) if !is_later() || !ENFORCED.takes(schema) => Form::Tool,
        _ => Form::native(request),
    }
}

/// What the native form takes.
const ENFORCED: Dialect = Dialect {
    keywords: &["allOf", "default"],
    requires_all: false,
    is_recursive: false,
};

/// The parameter of the native form, which others share.
const CONFIG: &str = "output_config";

/// The body: what the request says, then the user's parameters as they stand.
///
/// # Errors
///
/// A parameter has a name that the request itself needs, or content cannot be said in this shape.
pub(super) fn body(
    model: &str,
    provider: &str,
    request: &LlmRequest,
    streams: bool,
) -> Result<Vec<u8>, &'static str> {
    let form = form(model, request);
    let structured = form == Form::Tool;
    let taken = |name: &str| match name {
        "model" | "messages" | "stream" => true,
        "system" => request.system.is_some(),
        "tools" => structured || !request.tools.is_empty(),
        "tool_choice" => structured,
        _ => false,
    };
    let mut params = params(request, taken)?;
    if !params.contains_key("max_tokens") {
        return Err("the parameter max_tokens is not set, but this vendor needs it");
    }
    let is_free = request.tools.is_empty() && !structured && !params.contains_key("tools");
    let called = if is_free {
        called(request)
    } else {
        BTreeSet::new()
    };
    let mut out = Vec::with_capacity(1024);
    let mut object = MemberWriter::begin(&mut out);
    object.member("model", model);
    object.member("messages", &Text(&messages(request, provider)?));
    object.optional("system", request.system.as_deref());
    if structured || !request.tools.is_empty() {
        object.member("tools", &Text(&tools(request, provider, structured)?));
    }
    if let Some(choice) = choice(request, structured, &params) {
        object.member("tool_choice", &Text(&choice));
    }
    if let (Form::Native, Some(schema)) = (form, &request.structure) {
        let format = format!(r#"{{"type":"json_schema","schema":{}}}"#, schema.as_str());
        let config = with_members(params.remove(CONFIG), &[("format", &format)])?;
        object.member(CONFIG, &Text(&config));
    }
    if !called.is_empty() {
        object.member("tools", &Text(&undeclared(&called)));
        if !params.contains_key("tool_choice") {
            object.member("tool_choice", &Text(r#"{"type":"none"}"#));
        }
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

/// Which tools may be called, where the vendor's own choice is not what is wanted.
fn choice(
    request: &LlmRequest,
    structured: bool,
    params: &BTreeMap<String, RawBuf>,
) -> Option<String> {
    if structured {
        return Some(forced(request, params.get("thinking")));
    }
    let forbids = request.forbids_calls();
    forbids.then(|| r#"{"type":"none"}"#.to_owned())
}

/// The choice of the answer tool. With tools of the user's the model may call them first; where the model thinks, the vendor
/// refuses to force a call.
fn forced(request: &LlmRequest, thinking: Option<&RawBuf>) -> String {
    let thinking: Option<BTreeMap<String, RawBuf>> =
        thinking.and_then(|thinking| thinking.deserialize().ok());
    let kind = thinking.as_ref().and_then(|thinking| thinking.get("type"));
    if kind.is_some_and(|kind| kind.as_str() != r#""disabled""#) {
        r#"{"type":"auto"}"#.into()
    } else if !request.offers_tools() {
        format!(r#"{{"type":"tool","name":"{ANSWER_TOOL}"}}"#)
    } else {
        r#"{"type":"any"}"#.into()
    }
}

/// The tools that the conversation has called.
fn called(request: &LlmRequest) -> BTreeSet<Arc<str>> {
    let answers = request.messages.iter().filter_map(Message::as_assistant);
    let calls = answers.flat_map(|answer| answer.calls());
    calls.map(|call| Arc::clone(&call.tool_name)).collect()
}

/// Declarations of tools that may not be called: the vendor refuses a conversation with calls and without tools.
fn undeclared(called: &BTreeSet<Arc<str>>) -> String {
    let declare = |name: &Arc<str>| {
        let name = to_string(&**name);
        format!(r#"{{"name":{name},"input_schema":{{"type":"object"}}}}"#)
    };
    let declared: Vec<String> = called.iter().map(declare).collect();
    format!("[{}]", declared.join(","))
}

fn tools(
    request: &LlmRequest,
    provider: &str,
    has_answer_tool: bool,
) -> Result<String, &'static str> {
    let mut tools: Vec<String> = Vec::with_capacity(request.tools.len() + 1);
    for tool in request.tools.iter() {
        tools.push(object_text(|object| {
            object.member("name", tool.name());
            object.member("description", tool.description());
            object.member("input_schema", tool.parameters());
            let own = ["name", "description", "input_schema"];
            tool_metadata(object, tool.as_ref(), provider, &own);
        }));
    }
    if let (Some(schema), true) = (&request.structure, has_answer_tool) {
        if request.tools.iter().any(|tool| tool.name() == ANSWER_TOOL) {
            return Err("a tool has the name json_response, which structured output needs");
        }
        tools.push(object_text(|object| {
            object.member("name", ANSWER_TOOL);
            object.member("description", "Give the final answer.");
            object.member("input_schema", &**schema);
        }));
    }
    Ok(format!("[{}]", tools.join(",")))
}

fn messages(request: &LlmRequest, provider: &str) -> Result<String, &'static str> {
    let mut written = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        let (role, blocks) = match message {
            Message::User(user) => ("user", user_blocks(&user.content)?),
            Message::Assistant(answer) => ("assistant", assistant_blocks(answer, provider)),
            Message::ToolResult(results) => {
                ("user", results.results.iter().map(tool_result).collect())
            }
        };
        // The vendor refuses messages without content.
        if !blocks.is_empty() {
            written.push(object_text(|object| {
                object.member("role", role);
                object.member("content", &Text(&format!("[{}]", blocks.join(","))));
            }));
        }
    }
    Ok(format!("[{}]", written.join(",")))
}

fn text(text: &str) -> Option<String> {
    // The vendor refuses empty text blocks.
    (!text.is_empty()).then(|| format!(r#"{{"type":"text","text":{}}}"#, to_string(text)))
}

fn user_blocks(content: &[ContentBlock]) -> Result<Vec<String>, &'static str> {
    let mut blocks = Vec::with_capacity(content.len());
    for block in content {
        blocks.extend(match block {
            ContentBlock::Text(said) => text(said),
            ContentBlock::Image {
                source, mime_type, ..
            } => Some(media("image", source, mime_type, None)?),
            ContentBlock::Document {
                source,
                mime_type,
                title,
                ..
            } => Some(media("document", source, mime_type, title.as_deref())?),
            _ => return Err(untaken(block)),
        });
    }
    Ok(blocks)
}

fn media(
    kind: &'static str,
    source: &Source,
    mime_type: &str,
    title: Option<&str>,
) -> Result<String, &'static str> {
    let source = match source {
        Source::Text(text) if kind == "document" => format!(
            r#"{{"type":"text","media_type":"text/plain","data":{}}}"#,
            to_string(&**text)
        ),
        other => match place(other)? {
            Place::Url(url) => format!(r#"{{"type":"url","url":{}}}"#, to_string(&url)),
            Place::Base64(data) => format!(
                r#"{{"type":"base64","media_type":{},"data":{}}}"#,
                to_string(mime_type),
                to_string(&data)
            ),
        },
    };
    Ok(object_text(|object| {
        object.member("type", kind);
        object.member("source", &Text(&source));
        object.optional("title", title);
    }))
}

/// An answer of this vendor goes back as it came. Of any other, and of one that was changed, go the texts and the calls:
/// thoughts go to no vendor but the one that signed them.
fn assistant_blocks(answer: &AssistantMessage, provider: &str) -> Vec<String> {
    if let Some(blocks) = blocks_of(answer, provider) {
        return blocks;
    }
    let mut blocks = Vec::new();
    let texts = answer.content.iter().filter_map(ContentBlock::as_text);
    blocks.extend(texts.filter_map(text));
    blocks.extend(answer.calls().iter().map(|call| {
        object_text(|object| {
            object.member("type", "tool_use");
            object.member("id", &*call.tool_call_id);
            object.member("name", &*call.tool_name);
            object.member("input", &call.arguments);
        })
    }));
    blocks
}

fn tool_result(result: &ToolResult) -> String {
    object_text(|object| {
        object.member("type", "tool_result");
        object.member("tool_use_id", &*result.tool_call_id);
        object.member("content", &*result.text());
        if result.is_error == Some(true) {
            object.member("is_error", &true);
        }
    })
}
