//! Messages as the conventions write them, for spans that show content.

use tracing::Span;
use ubos_common::json::{MemberWriter, RawBuf, Write, to_string};

use super::names as n;
use crate::content::ContentBlock;
use crate::message::Message;
use crate::model::LlmRequest;
use crate::response::LlmResponse;

pub(super) fn record_request(span: &Span, request: &LlmRequest) {
    let messages = request.messages.iter().map(|message| said(message, None));
    span.record(n::INPUT, list(messages));
    if let Some(system) = &request.system {
        let part = object(|part| {
            part.member("type", "text");
            part.member("content", &**system);
        });
        span.record(n::SYSTEM, list([part]));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            object(|object| {
                object.member("type", "function");
                object.member("name", tool.name());
                object.member("description", tool.description());
                object.member("parameters", tool.parameters());
            })
        });
        span.record(n::TOOL_DEFINITIONS, list(tools));
    }
}

pub(super) fn record_response(span: &Span, response: &LlmResponse) {
    let message = Message::Assistant(std::sync::Arc::clone(&response.message));
    let said = said(&message, Some(&response.stop_reason));
    span.record(n::OUTPUT, list([said]));
}

fn said(message: &Message, finish_reason: Option<&str>) -> RawBuf {
    let (role, parts): (_, Vec<RawBuf>) = match message {
        Message::User(user) => ("user", user.content.iter().map(part).collect()),
        Message::Assistant(answer) => {
            let calls = answer.calls().iter().map(|call| {
                object(|object| {
                    object.member("type", "tool_call");
                    object.member("id", &*call.tool_call_id);
                    object.member("name", &*call.tool_name);
                    object.member("arguments", &call.arguments);
                })
            });
            (
                "assistant",
                answer.content.iter().map(part).chain(calls).collect(),
            )
        }
        Message::ToolResult(results) => {
            let results = results.results.iter().map(|result| {
                object(|object| {
                    object.member("type", "tool_call_response");
                    object.member("id", &*result.tool_call_id);
                    object.member("response", &result.result);
                })
            });
            ("tool", results.collect())
        }
    };
    object(|object| {
        object.member("role", role);
        object.member("parts", &parts);
        object.optional("finish_reason", finish_reason);
    })
}

/// Media are named, and not repeated.
fn part(block: &ContentBlock) -> RawBuf {
    object(|object| match block {
        ContentBlock::Text(text) => {
            object.member("type", "text");
            object.member("content", &**text);
        }
        ContentBlock::Reasoning(text) => {
            object.member("type", "reasoning");
            object.member("content", &**text);
        }
        other => object.member("type", other.type_name()),
    })
}

fn object(members: impl FnOnce(&mut MemberWriter<'_>)) -> RawBuf {
    let mut out = Vec::new();
    let mut object = MemberWriter::begin(&mut out);
    members(&mut object);
    object.end();
    RawBuf::assume_sound(String::from_utf8(out).unwrap_or_default())
}

fn list<T: Write>(items: impl IntoIterator<Item = T>) -> String {
    to_string(&items.into_iter().collect::<Vec<T>>())
}
