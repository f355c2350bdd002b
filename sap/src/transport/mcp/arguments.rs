//! A task as the arguments of a tool, and back.

use rmcp::model::JsonObject;
use serde_json::Value;

use super::tools::TASK;
use crate::work::{self, For};

/// The bytes of the task, whichever form it came in: made at once where it is short, on another thread where it is not.
pub(super) async fn read(arguments: JsonObject) -> Vec<u8> {
    work::done(For::Stranger, length_of(&arguments), move || {
        task_of(arguments)
    })
    .await
}

/// The arguments of a task that is given as its text, made likewise.
pub(super) async fn of(text: String) -> JsonObject {
    work::done(For::Task, text.len(), move || arguments(text)).await
}

/// Bytes that arguments take as text, or nearly so many: escapes and numbers are not counted.
fn length_of(arguments: &JsonObject) -> usize {
    let of_member = |(name, value): (&String, &Value)| name.len() + 4 + length(value);
    arguments.iter().map(of_member).sum()
}

fn length(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| length(item) + 1).sum::<usize>() + 2,
        Value::Object(members) => length_of(members) + 2,
    }
}

/// The bytes of the task, whichever form it came in.
fn task_of(mut arguments: JsonObject) -> Vec<u8> {
    if arguments.len() == 1
        && let Some(Value::String(text)) = arguments.get_mut(TASK)
    {
        return core::mem::take(text).into_bytes();
    }
    Value::Object(arguments).to_string().into_bytes()
}

/// The task as a value where that keeps it as it is, else as its text.
fn arguments(text: String) -> JsonObject {
    match serde_json::from_str(&text) {
        Ok(Value::Object(task)) if keeps_numbers(&text) => task,
        _ => [(TASK.to_owned(), Value::String(text))]
            .into_iter()
            .collect(),
    }
}

/// Whether every number of a sound JSON text is written again as it is.
fn keeps_numbers(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = rest.get(at..).unwrap_or_default();
        let length = if rest.starts_with('"') {
            string_length(rest)
        } else {
            let length = rest
                .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
                .unwrap_or(rest.len());
            let number = rest.get(..length).unwrap_or_default();
            let again = serde_json::from_str::<Value>(number).map(|value| value.to_string());
            if again.ok().as_deref() != Some(number) {
                return false;
            }
            length
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    true
}

/// Bytes of the string that a text begins with, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_task_goes_as_a_value_where_that_keeps_it() {
        let written = |text: &str| Value::Object(block_on(of(text.to_owned())));
        let kept = r#"{"a":1,"b":"1.50"}"#;
        assert_eq!(written(kept), json!({"a": 1, "b": "1.50"}));
        let lost = r#"{"a":1.50}"#;
        assert_eq!(written(lost), json!({TASK: lost}));
    }

    // spec: SAP-5-5
    #[test]
    fn long_arguments_are_written_on_another_thread_and_short_ones_here() {
        let long = "long ".repeat(work::HEAVY / 5);
        let many: Vec<Value> = (0..work::HEAVY / 5).map(|_| json!(null)).collect();
        let nested: Vec<Value> = (0..work::HEAVY / 3).map(|_| json!({})).collect();
        for (arguments, threads) in [
            (json!({"a": "short", "b": [true, {"c": 1}]}), 0),
            (json!({"a": long}), 1),
            (json!({"a": [{"b": long}]}), 1),
            (json!({"a": many}), 1),
            (json!({"a": nested}), 1),
            (json!({long.as_str(): 1}), 1),
        ] {
            let written = || block_on(read(object(&arguments)));
            let (bytes, handed_over) = work::handed_over(written);
            assert_eq!(handed_over, threads);
            assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), arguments);
        }
    }

    #[test]
    fn numbers_that_a_value_changes_are_found() {
        for kept in [
            r#"{"a":1,"b":[-2.5,0],"c":"1.50 \" 1e3"}"#,
            "18446744073709551615",
            "{}",
        ] {
            assert!(keeps_numbers(kept), "{kept}");
        }
        for lost in [
            "[1.50]",
            "[1e3]",
            "[123456789012345678901]",
            r#"{"\"":"\\","n":-0}"#,
            "[1,2.00]",
        ] {
            assert!(!keeps_numbers(lost), "{lost}");
        }
    }
}
