//! Conversations as vendors accept them: every call has a result.

use std::sync::Arc;

use crate::list::List;
use crate::message::{AssistantMessage, Message, Messages, Stamp, ToolResultMessage};
use crate::tool::{ToolResult, json_text};

/// The text of a result that was never made.
const NOT_RUN: &str = "the call was not run";

/// The conversation with a result for every call that another message follows. Calls have none where structured output
/// ended a turn beside them, or where an application cut a history; vendors refuse such a conversation. `None` where
/// nothing is missing.
pub(super) fn answered(messages: &Messages) -> Option<Messages> {
    let mut whole: List<Message> = List::default();
    let mut is_changed = false;
    let mut all = messages.iter().peekable();
    while let Some(message) = all.next() {
        whole.push(message.clone());
        let Message::Assistant(answer) = message else {
            continue;
        };
        let results = match all.peek() {
            Some(Message::ToolResult(results)) => results.results.as_slice(),
            Some(_) => &[],
            None => continue,
        };
        let missing = missing(answer, results);
        if missing.is_empty() {
            continue;
        }
        is_changed = true;
        let results = if let Some(Message::ToolResult(given)) = all.peek() {
            let mut given = ToolResultMessage::clone(given);
            given.results.extend(missing);
            all.next();
            given
        } else {
            let id = format!("{}-results", answer.id);
            let mut stamp = Stamp::with_id(id, ubos_common::time::Timestamp::EPOCH);
            stamp.timestamp = answer.timestamp.clone();
            ToolResultMessage::new(stamp, missing)
        };
        whole.push(results.into());
    }
    is_changed.then_some(whole)
}

fn missing(answer: &AssistantMessage, results: &[ToolResult]) -> Vec<ToolResult> {
    let calls = answer.calls().iter();
    let without = calls.filter(|call| {
        let mut ids = results.iter().map(|result| &result.tool_call_id);
        !ids.any(|id| *id == call.tool_call_id)
    });
    let results = without.map(|call| {
        let mut result = ToolResult::new(Arc::clone(&call.tool_call_id), json_text(NOT_RUN));
        result.is_error = Some(true);
        result
    });
    results.collect()
}
