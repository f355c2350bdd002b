//! The body of a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::json::{Kind, MemberWriter, RawBuf, to_string};

use super::raw::parts_of;
use crate::content::{ContentBlock, Source};
use crate::message::{AssistantMessage, Message};
use crate::model::LlmRequest;
use crate::tool::{ToolCall, ToolResult};
use crate::transport::body::{
    Place, Text, object_text, params, place, tool_metadata, untaken, with_members,
};
use crate::transport::structure::{ANSWER_TOOL, Form};

/// How structured output is asked for. Models before Gemini 3 take no schema beside tools.
pub(super) fn form(model: &str, request: &LlmRequest) -> Form {
    let is_older = ["gemini-1", "gemini-2"]
        .iter()
        .any(|older| model.contains(older));
    match Form::native(request) {
        Form::Native if is_older && !request.tools.is_empty() => Form::Tool,
        form => form,
    }
}

/// What `generationConfig` holds where structured output is asked for.
const CONFIG: &str = "generationConfig";

/// The body: what the request says, then the user's parameters as they stand.
///
/// # Errors
///
/// A parameter has a name that the request itself needs, or content cannot be said in this shape.
pub(super) fn body(
    model: &str,
    provider: &str,
    request: &LlmRequest,
) -> Result<Vec<u8>, &'static str> {
    let form = form(model, request);
    let taken = |name: &str| match name {
        "contents" => true,
        "systemInstruction" => request.system.is_some(),
        "tools" => !request.tools.is_empty(),
        "toolConfig" => form == Form::Tool,
        _ => false,
    };
    let mut params = params(request, taken)?;
    let mut out = Vec::with_capacity(1024);
    let mut object = MemberWriter::begin(&mut out);
    object.member("contents", &Text(&contents(request, provider)?));
    if let Some(system) = &request.system {
        let parts = format!(r#"{{"parts":[{}]}}"#, text(system));
        object.member("systemInstruction", &Text(&parts));
    }
    if !request.tools.is_empty() {
        object.member("tools", &Text(&tools(request, provider, form)?));
    }
    let mode = match (form, request.forbids_calls()) {
        (Form::Tool, false) => Some(r#"{"mode":"ANY"}"#.to_owned()),
        (Form::Tool, true) => Some(format!(
            r#"{{"mode":"ANY","allowedFunctionNames":["{ANSWER_TOOL}"]}}"#
        )),
        (_, true) => Some(r#"{"mode":"NONE"}"#.to_owned()),
        (_, false) => None,
    };
    if let Some(mode) = mode {
        let config = format!(r#"{{"functionCallingConfig":{mode}}}"#);
        object.member("toolConfig", &Text(&config));
    }
    if let (Form::Native, Some(schema)) = (form, &request.structure) {
        let config = config(params.remove(CONFIG), schema.as_str())?;
        object.member(CONFIG, &Text(&config));
    }
    for (name, value) in params {
        object.member(&name, &value);
    }
    object.end();
    Ok(out)
}

/// The user's generation parameters, and the structure beside them.
fn config(params: Option<RawBuf>, schema: &str) -> Result<String, &'static str> {
    let own: Option<BTreeMap<String, RawBuf>> =
        params.as_ref().and_then(|params| params.deserialize().ok());
    if own.is_some_and(|own| own.contains_key("responseSchema")) {
        return Err("a parameter has a name that the request itself sets");
    }
    let ours = [
        ("responseMimeType", r#""application/json""#),
        ("responseJsonSchema", schema),
    ];
    with_members(params, &ours)
}

fn tools(request: &LlmRequest, provider: &str, form: Form) -> Result<String, &'static str> {
    let declare = |tool: &Arc<dyn crate::tool::Tool>| {
        object_text(|object| {
            object.member("name", tool.name());
            object.member("description", tool.description());
            object.member("parametersJsonSchema", tool.parameters());
            let own = ["name", "description", "parametersJsonSchema", "parameters"];
            tool_metadata(object, tool.as_ref(), provider, &own);
        })
    };
    let mut declared: Vec<String> = request.tools.iter().map(declare).collect();
    if let (Form::Tool, Some(schema)) = (form, &request.structure) {
        if request.tools.iter().any(|tool| tool.name() == ANSWER_TOOL) {
            return Err("a tool has the name json_response, which structured output needs");
        }
        declared.push(object_text(|object| {
            object.member("name", ANSWER_TOOL);
            object.member("description", "Give the final answer.");
            object.member("parametersJsonSchema", &**schema);
        }));
    }
    Ok(format!(
        r#"[{{"functionDeclarations":[{}]}}]"#,
        declared.join(",")
    ))
}

fn contents(request: &LlmRequest, provider: &str) -> Result<String, &'static str> {
    let mut written = Vec::with_capacity(request.messages.len());
    // A result goes out with the name of its tool, which only the call says.
    let mut names: BTreeMap<Arc<str>, (Arc<str>, Option<String>)> = BTreeMap::new();
    for message in &request.messages {
        let (role, parts) = match message {
            Message::User(user) => {
                let parts: Result<Vec<String>, _> = user.content.iter().map(part).collect();
                ("user", parts?)
            }
            Message::Assistant(answer) => {
                let said = VendorMetadata::of(answer, provider);
                for (call, said) in answer.calls().iter().zip(said.for_calls(answer)) {
                    let known = (Arc::clone(&call.tool_name), said.get("id").cloned());
                    names.insert(Arc::clone(&call.tool_call_id), known);
                }
                ("model", model_parts(answer, provider, &said)?)
            }
            Message::ToolResult(results) => {
                let parts: Result<Vec<String>, _> = results
                    .results
                    .iter()
                    .map(|result| match names.get(&result.tool_call_id) {
                        Some((name, id)) => Ok(response(result, name, id.as_deref())),
                        None => Err("a tool result has no call in the history"),
                    })
                    .collect();
                ("user", parts?)
            }
        };
        if !parts.is_empty() {
            written.push(format!(
                r#"{{"role":"{role}","parts":[{}]}}"#,
                parts.join(",")
            ));
        }
    }
    Ok(format!("[{}]", written.join(",")))
}

fn text(text: &str) -> String {
    format!(r#"{{"text":{}}}"#, to_string(text))
}

fn part(block: &ContentBlock) -> Result<String, &'static str> {
    match block {
        ContentBlock::Text(said) => Ok(text(said)),
        ContentBlock::Document {
            source: Source::Text(said),
            ..
        } => Ok(text(said)),
        ContentBlock::Image {
            source, mime_type, ..
        }
        | ContentBlock::Document {
            source, mime_type, ..
        } => Ok(match place(source)? {
            Place::Base64(data) => inline(mime_type, &data),
            Place::Url(url) => format!(
                r#"{{"fileData":{{"mimeType":{},"fileUri":{}}}}}"#,
                to_string(&**mime_type),
                to_string(&url)
            ),
        }),
        ContentBlock::Media {
            data, mime_type, ..
        } => Ok(inline(mime_type, &data.to_base64())),
        ContentBlock::Reasoning(_) => Err(untaken(block)),
    }
}

fn inline(mime_type: &str, data: &str) -> String {
    format!(
        r#"{{"inlineData":{{"mimeType":{},"data":{}}}}}"#,
        to_string(mime_type),
        to_string(data)
    )
}

/// An answer of this vendor goes back as it came. Of any other, and of one that was changed, go texts, media and calls.
fn model_parts(
    answer: &AssistantMessage,
    provider: &str,
    said: &VendorMetadata,
) -> Result<Vec<String>, &'static str> {
    if let Some(parts) = parts_of(answer, provider) {
        return Ok(parts);
    }
    let mut parts = Vec::new();
    for block in &answer.content {
        match block {
            ContentBlock::Text(said) if said.is_empty() => {}
            // Thoughts go to no vendor but the one that signed them.
            ContentBlock::Reasoning(_) => {}
            other => parts.push(part(other)?),
        }
    }
    let calls = answer.calls().iter().zip(said.for_calls(answer));
    parts.extend(calls.map(|(call, said)| function_call(call, &said)));
    Ok(parts)
}

fn function_call(call: &ToolCall, said: &BTreeMap<String, String>) -> String {
    object_text(|object| {
        let inner = object_text(|inner| {
            inner.optional("id", said.get("id"));
            inner.member("name", &*call.tool_name);
            inner.member("args", &call.arguments);
        });
        object.member("functionCall", &Text(&inner));
    })
}

/// A result as the vendor wants it, an object in any case.
fn response(result: &ToolResult, name: &str, id: Option<&str>) -> String {
    let value = match result.result.kind() {
        Kind::Object if result.is_error != Some(true) => result.result.as_str().to_owned(),
        _ => object_text(|object| {
            let name = if result.is_error == Some(true) {
                "error"
            } else {
                "result"
            };
            object.member(name, &result.result);
        }),
    };
    let inner = object_text(|inner| {
        inner.optional("id", id);
        inner.member("name", name);
        inner.member("response", &Text(&value));
    });
    format!(r#"{{"functionResponse":{inner}}}"#)
}

/// What the vendor said beside a message, as [`super::response`] kept it.
#[derive(Default)]
struct VendorMetadata {
    /// One for each call: its id at the vendor.
    calls: Vec<BTreeMap<String, String>>,
}

impl VendorMetadata {
    fn of(answer: &AssistantMessage, provider: &str) -> Self {
        let said = answer.metadata.as_ref().and_then(|all| all.get(provider));
        let said: BTreeMap<String, RawBuf> = said
            .and_then(|said| said.deserialize().ok())
            .unwrap_or_default();
        Self {
            calls: said
                .get("calls")
                .and_then(|calls| calls.deserialize().ok())
                .unwrap_or_default(),
        }
    }

    /// What was said of each call; nothing of those that are not the vendor's.
    fn for_calls(&self, answer: &AssistantMessage) -> Vec<BTreeMap<String, String>> {
        let mut calls = self.calls.clone();
        calls.resize(answer.calls().len(), BTreeMap::new());
        calls
    }
}
