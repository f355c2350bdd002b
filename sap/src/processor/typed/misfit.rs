//! Why a payload is not of a handler's type, in words that have nothing of its values.

use serde_json::Error;
use ubos_common::violation::PointerText;

/// What was wanted at which place. Of what an application's type says itself nothing is told: nobody knows what is in it.
pub(super) fn why(payload: &str, error: &Error) -> String {
    let place = pointer(payload, offset(payload, error));
    let text = error.to_string();
    let text = match text.rsplit_once(" at line ") {
        Some((text, _)) => text,
        None => &text,
    };
    let place = PointerText(short(&place));
    match what(text) {
        Some(what) => format!("{WRONG} at {place}: {what}"),
        // What a type says itself has the place of what holds it.
        None => format!("{WRONG} at {place} or below it"),
    }
}

/// The words of serde, without what they say of the value.
fn what(text: &str) -> Option<String> {
    if let Some(name) = text.strip_prefix("missing field `") {
        return Some(format!("missing member {}", short(name.strip_suffix('`')?)));
    }
    if text.starts_with("unknown field `") {
        return Some("unknown member".to_owned());
    }
    let (seen, wanted) = text.rsplit_once(", expected ")?;
    let wanted = wanted_of(wanted);
    if seen.starts_with("unknown variant `") {
        return Some(format!("wanted {wanted}"));
    }
    if let Some(seen) = seen.strip_prefix("invalid type: ") {
        let kind = KINDS.iter().find(|(word, _)| seen.starts_with(word))?.1;
        return Some(format!("wanted {wanted}, not {kind}"));
    }
    let is_known = seen.starts_with("invalid value: ") || seen.starts_with("invalid length ");
    is_known.then(|| format!("wanted {wanted}"))
}

/// The types of Rust in the words of JSON.
fn wanted_of(wanted: &str) -> &str {
    match wanted {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "an integer",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number of 0 or more",
        "f32" | "f64" => "a number",
        other => short(other),
    }
}

fn short(text: &str) -> &str {
    text.char_indices()
        .nth(MAX_CHARS)
        .and_then(|(end, _)| text.get(..end))
        .unwrap_or(text)
}

/// How many bytes were read when the error was found.
fn offset(text: &str, error: &Error) -> usize {
    let before = error.line().saturating_sub(1);
    let lines: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    lines + error.column()
}

/// The pointer to what the first bytes of a sound text end in.
fn pointer(text: &str, offset: usize) -> String {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at).filter(|_| at < offset) {
        let mut length = 1;
        match (byte, steps.last_mut()) {
            (b'{', _) => steps.push(Step::Member(None)),
            (b'[', _) => steps.push(Step::Element(0)),
            (b'}' | b']', _) => drop(steps.pop()),
            (b',', Some(Step::Member(name))) => *name = None,
            (b',', Some(Step::Element(index))) => *index += 1,
            (b'"', last) => {
                let string = string(text.get(at..).unwrap_or_default());
                length = string.len();
                if let Some(Step::Member(name @ None)) = last {
                    *name = Some(string);
                }
            }
            _ => {}
        }
        at += length;
    }
    steps.iter().map(Step::token).collect()
}

/// The string that a text begins with, quotes included.
fn string(text: &str) -> &str {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| text.get(..end + 2)).unwrap_or(text)
}

/// One step on the way to a value.
enum Step<'a> {
    /// The name as it is written; `None` before it.
    Member(Option<&'a str>),
    Element(usize),
}

impl Step<'_> {
    fn token(&self) -> String {
        match self {
            Self::Member(None) => String::new(),
            Self::Element(index) => format!("/{index}"),
            Self::Member(Some(name)) => {
                let name = serde_json::from_str::<String>(name).unwrap_or_default();
                format!("/{}", name.replace('~', "~0").replace('/', "~1"))
            }
        }
    }
}

/// How serde calls what it saw, and what that is in JSON.
const KINDS: [(&str, &str); 8] = [
    ("string", "a string"),
    ("integer", "an integer"),
    ("floating point", "a number"),
    ("boolean", "a boolean"),
    ("null", "null"),
    ("unit", "null"),
    ("sequence", "an array"),
    ("map", "an object"),
];
const WRONG: &str = "the payload is not what the capability takes";
/// Characters that are told of a place, and of what the type says it wants.
const MAX_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read, and never looked at")]
    struct Ask {
        text: String,
        #[serde(default)]
        n: i64,
        #[serde(default)]
        size: Option<u8>,
        #[serde(default)]
        list: Vec<Part>,
        #[serde(default)]
        named: BTreeMap<String, (bool, f64)>,
        #[serde(default)]
        shape: Option<Shape>,
        #[serde(default)]
        own: Option<Own>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "read, and never looked at")]
    struct Part {
        part: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Shape {
        Round,
        Flat,
    }

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "String")]
    struct Own;

    impl TryFrom<String> for Own {
        type Error = String;

        fn try_from(text: String) -> Result<Self, String> {
            Err(format!("hunter2 is {text}, expected nothing"))
        }
    }

    #[test]
    fn the_place_and_the_kind_are_told_and_no_value() {
        for (payload, wanted) in [
            ("{}", "the top: missing member text"),
            (
                r#"{"text":5}"#,
                r#""/text": wanted a string, not an integer"#,
            ),
            (
                "{\"text\":\n \"hunter2\",\n \"n\": \"hunter2, expected hunter2\"}",
                r#""/n": wanted an integer, not a string"#,
            ),
            (
                r#"{"text":"","n":1.5}"#,
                r#""/n": wanted an integer, not a number"#,
            ),
            (
                r#"{"text":"","n":null}"#,
                r#""/n": wanted an integer, not null"#,
            ),
            (
                r#"{"text":"","n":[1]}"#,
                r#""/n": wanted an integer, not an array"#,
            ),
            (
                r#"{"text":"","size":300}"#,
                r#""/size": wanted a whole number of 0 or more"#,
            ),
            (
                r#"{"text":"","list":[{"part":"hunter2"},{}]}"#,
                r#""/list/1": missing member part"#,
            ),
            (
                r#"{"text":"","named":{"a~/\"b":[true,{}]}}"#,
                r#""/named/a~0~1\"b/1": wanted a number, not an object"#,
            ),
            (
                r#"{"text":"","shape":"hunter2"}"#,
                r#""/shape": wanted `round` or `flat`"#,
            ),
            (r#"{"text":"","other":1}"#, r#""/other": unknown member"#),
            (r#"{"text":"","own":"hunter2"}"#, "the top or below it"),
        ] {
            let error = serde_json::from_str::<Ask>(payload).unwrap_err();
            let told = why(payload, &error);
            assert_eq!(told, format!("{WRONG} at {wanted}"), "{error}");
        }
    }
}
