//! A formatter without a model: sorts, localizes, and writes lists.

use core::fmt::Write as _;

use serde_json::Value;

use ubos_common::json::RawBuf;

use super::Formatter;
use crate::any::MessageRef;
use crate::v1;

/// The words of a language.
#[derive(Debug)]
struct Labels {
    result: &'static str,
    nothing: &'static str,
    yes: &'static str,
    no: &'static str,
    /// The decimal separator.
    decimal: char,
}

const fn labels(
    result: &'static str,
    nothing: &'static str,
    yes: &'static str,
    no: &'static str,
    decimal: char,
) -> Labels {
    Labels {
        result,
        nothing,
        yes,
        no,
        decimal,
    }
}

static ENGLISH: Labels = labels("Result", "no result", "yes", "no", '.');
static GERMAN: Labels = labels("Ergebnis", "kein Ergebnis", "ja", "nein", ',');
static SPANISH: Labels = labels("Resultado", "sin resultado", "sí", "no", ',');
static FRENCH: Labels = labels("Résultat", "aucun résultat", "oui", "non", ',');

/// Writes the result for a person, in the language of `ctx.lang`: `ctx.result` of 0.1, the outputs of 1.0 (of a lone output
/// `result` its value), and the text of a 1.0 error.
///
/// A list of objects is sorted by the member that `ctx.sort` names; `-` before the name reverses the order. German, English, French and
/// Spanish are known; any other language is written as English.
///
/// ```
/// use sacp::Message;
/// use sacp::role::{Formatter, PlainFormatter};
///
/// let message = Message::decode(br#"{"g":"FIND_HOTEL","plan":[],"ctx":{"lang":"de","sort":"price",
///     "result":[{"name":"Ritz","price":250.5},{"name":"Ibis","price":90}]}}"#)?;
/// let text = PlainFormatter.format((&message).into());
/// assert_eq!(text, "FIND_HOTEL \u{2013} Ergebnis:\n- name: Ibis, price: 90\n- name: Ritz, price: 250,5\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SACP 9
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainFormatter;

fn labels_for(message: MessageRef<'_>) -> &'static Labels {
    let lang = text_of(message, "lang").unwrap_or_default();
    let first = lang.split(['-', '_']).next().unwrap_or_default();
    match first.to_lowercase().as_str() {
        "de" => &GERMAN,
        "es" => &SPANISH,
        "fr" => &FRENCH,
        _ => &ENGLISH,
    }
}

impl Formatter for PlainFormatter {
    // impl: SACP-9-1
    fn format(&self, message: MessageRef<'_>) -> String {
        let labels = labels_for(message);
        let mut text = String::new();
        let goal = message.goal();
        match result_of(message) {
            None | Some(Value::Null) => {
                let why = error_of(message).map_or_else(String::new, |why| format!(": {why}"));
                let _ = writeln!(text, "{goal} \u{2013} {}{why}.", labels.nothing);
            }
            Some(Value::Array(mut items)) if !items.is_empty() => {
                if let Some(key) = text_of(message, "sort") {
                    sort(&mut items, &key);
                }
                let _ = writeln!(text, "{goal} \u{2013} {}:", labels.result);
                for item in &items {
                    let _ = writeln!(text, "- {}", words(item, labels));
                }
            }
            Some(Value::Object(members)) if !members.is_empty() => {
                let _ = writeln!(text, "{goal} \u{2013} {}:", labels.result);
                for (name, value) in &members {
                    let _ = writeln!(text, "{name}: {}", words(value, labels));
                }
            }
            Some(value) => {
                let words = words(&value, labels);
                let _ = writeln!(text, "{goal} \u{2013} {}: {words}", labels.result);
            }
        }
        text
    }
}

/// What there is to say; `None` if there is nothing.
fn result_of(message: MessageRef<'_>) -> Option<Value> {
    match message {
        MessageRef::V01(_) => message.context()?.get("result")?.deserialize().ok(),
        MessageRef::V10(message) => {
            let outputs = &message.result.as_ref()?.outputs;
            if let (Some(result), 1) = (outputs.get("result"), outputs.len()) {
                return result.deserialize().ok();
            }
            let value = |(name, output): (&String, &RawBuf)| {
                Some((name.clone(), output.deserialize().ok()?))
            };
            let members: Option<serde_json::Map<_, _>> = outputs.iter().map(value).collect();
            members
                .filter(|members| !members.is_empty())
                .map(Value::Object)
        }
    }
}

/// Why there is nothing to say, on one line.
fn error_of(message: MessageRef<'_>) -> Option<String> {
    let MessageRef::V10(v1::Message {
        error: Some(error), ..
    }) = message
    else {
        return None;
    };
    Some(on_one_line(&error.message))
}

fn text_of(message: MessageRef<'_>, name: &str) -> Option<String> {
    message.context()?.get(name)?.deserialize().ok()
}

fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn sort(items: &mut [Value], key: &str) {
    let (name, turned) = key
        .strip_prefix('-')
        .map_or((key, false), |name| (name, true));
    items.sort_by(|a, b| {
        let order = compare(a.get(name), b.get(name));
        if turned { order.reverse() } else { order }
    });
}

/// Numbers come before texts, and texts before all else.
fn compare(a: Option<&Value>, b: Option<&Value>) -> core::cmp::Ordering {
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => core::cmp::Ordering::Less,
        (None, Some(_)) => core::cmp::Ordering::Greater,
        (None, None) => match (text(a), text(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        },
    }
}

/// A value on one line.
fn words(value: &Value, labels: &Labels) -> String {
    match value {
        Value::Null => "\u{2013}".to_owned(),
        Value::Bool(value) => if *value { labels.yes } else { labels.no }.to_owned(),
        Value::Number(number) => number.to_string().replace('.', &labels.decimal.to_string()),
        Value::String(text) => on_one_line(text),
        Value::Array(items) => items
            .iter()
            .map(|item| words(item, labels))
            .collect::<Vec<_>>()
            .join("; "),
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("{name}: {}", words(value, labels));
            members.iter().map(member).collect::<Vec<_>>().join(", ")
        }
    }
}
