//! Which tools an agent may have.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ubos_common::json::{Kind, Limits, Raw, RawBuf, RawObject, read_raw};
use ubos_common::violation::Profile;
use upp::{ErrorCode, Tool, ToolSet, UppError};

/// Why tools are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ToolFault {
    #[error("two tools are named {name}, and a call could be of either")]
    Twice { name: String },
    #[error(
        "a tool is named {name}, but vendors take names of 1 to {MAX_NAME} of A-Z, a-z, 0-9, _ and -, of which the first is \
         a letter or _"
    )]
    Name { name: String },
    #[error("the schema of the tool {name} is none: {why}")]
    Schema { name: String, why: &'static str },
}

/// Holds tools against what each vendor takes: a name for each, and a schema of its arguments.
///
/// A tool that panics when it is asked is no fault here: the run says so.
pub(crate) fn check(tools: &ToolSet) -> Result<(), UppError> {
    let mut names = BTreeSet::new();
    for tool in tools.tools.iter() {
        let asked = catch_unwind(AssertUnwindSafe(|| ask(tool.as_ref())));
        let Ok((name, fault)) = asked else { continue };
        let shown = quoted(&name);
        let fault = match fault {
            Some(fault) => Some(fault),
            None if names.insert(name) => None,
            None => Some(ToolFault::Twice { name: shown }),
        };
        if let Some(fault) = fault {
            let code = ErrorCode::InvalidRequest;
            return Err(UppError::new(code, "uap", fault.to_string()).with_cause(fault));
        }
    }
    Ok(())
}

/// The name of a tool, and what is wrong with it alone.
fn ask(tool: &dyn Tool) -> (String, Option<ToolFault>) {
    let name = tool.name().to_owned();
    let shown = quoted(&name);
    let fault = if is_taken(&name) {
        let why = no_schema(tool.parameters());
        why.map(|why| ToolFault::Schema { name: shown, why })
    } else {
        Some(ToolFault::Name { name: shown })
    };
    (name, fault)
}

/// Whether every vendor takes a name: OpenAI, Anthropic and Google differ in what they take besides.
fn is_taken(name: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.len() <= MAX_NAME && name.bytes().all(is_word)
}

/// Why an object is no JSON Schema of arguments, by its own members; nothing is compiled. An empty one allows everything.
fn no_schema(schema: &RawObject) -> Option<&'static str> {
    let Some(all) = members(schema.as_raw()) else {
        return Some("it cannot be read within the bounds of a document");
    };
    let allows_objects = |kinds: &RawBuf| match kinds.kind() {
        Kind::String => kinds
            .deserialize::<String>()
            .is_ok_and(|kind| kind == "object"),
        Kind::Array => {
            let kinds = kinds.deserialize::<Vec<String>>().unwrap_or_default();
            kinds.iter().any(|kind| kind == "object")
        }
        _ => false,
    };
    let is_schema = |value: &RawBuf| matches!(value.kind(), Kind::Object | Kind::Bool);
    let of_schemas = |properties: &RawBuf| {
        members(properties.as_raw()).is_some_and(|named| named.values().all(is_schema))
    };
    let holds = |name: &str, rule: &dyn Fn(&RawBuf) -> bool| all.get(name).is_none_or(rule);
    if !holds("type", &allows_objects) {
        Some("its type is not \"object\", and arguments are one")
    } else if !holds("properties", &of_schemas) {
        Some("its properties are not schemas")
    } else if !holds("required", &|names| {
        names.deserialize::<Vec<String>>().is_ok()
    }) {
        Some("what it requires is not a list of names")
    } else {
        None
    }
}

fn members(object: Raw<'_>) -> Option<BTreeMap<String, RawBuf>> {
    let read = read_raw::<BTreeMap<String, RawBuf>>;
    let read = read(object, &Limits::default(), Profile::Strict);
    read.ok().map(|(members, _)| members)
}

/// A name in a message: its beginning, in quotes, what cannot be printed as escapes.
fn quoted(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{:?}…", name.get(..end).unwrap_or_default()),
        None => format!("{name:?}"),
    }
}

/// Characters of the longest name that every vendor takes.
const MAX_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use upp::{FnTool, object};

    use super::*;

    fn refused(tools: &[(&str, &str)]) -> Option<String> {
        let tools = tools.iter().map(|(name, schema)| {
            let run = |_: RawObject, _| async { Ok(upp::json_text("")) };
            Arc::new(FnTool::new(*name, "d", object(schema).unwrap(), run)) as Arc<dyn Tool>
        });
        let tools = ToolSet::new(tools.collect::<Vec<_>>(), None);
        let error = check(&tools).err()?;
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        Some(error.message.to_string())
    }

    #[test]
    fn names_are_told_apart_and_taken_by_every_vendor() {
        let longest = "a".repeat(MAX_NAME);
        for name in ["a", "_", "get-Weather_2", &longest] {
            assert_eq!(refused(&[(name, "{}"), ("other", "{}")]), None);
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in ["", "a b", "a.b", "1st", "-a", "straße", "a\n", &long] {
            let why = refused(&[("other", "{}"), (name, "{}")]).unwrap();
            assert!(why.contains("vendors take"), "{why}");
        }
        let why = refused(&[("\u{202e}\"", "{}")]).unwrap();
        assert!(why.starts_with(r#"a tool is named "\u{202e}\"","#), "{why}");
        let why = refused(&[(&"x".repeat(5_000), "{}")]).unwrap();
        assert!(why.len() < 300);
        assert_eq!(
            refused(&[("a", "{}"), ("b", "{}"), ("a", "{}")]).unwrap(),
            "two tools are named \"a\", and a call could be of either"
        );
        assert_eq!(refused(&[("a", "{}"), ("A", "{}")]), None);
    }

    #[test]
    fn a_schema_is_one_of_arguments() {
        for schema in [
            "{}",
            r#"{"type":"object"}"#,
            r#"{"type":["object","null"],"properties":{"a":{},"b":true},"required":["a"]}"#,
        ] {
            assert_eq!(refused(&[("a", schema)]), None, "{schema}");
        }
        for (schema, why) in [
            (r#"{"type":"string"}"#, "its type"),
            (r#"{"type":5}"#, "its type"),
            (r#"{"type":["string"]}"#, "its type"),
            (r#"{"properties":["a"]}"#, "its properties"),
            (r#"{"properties":{"a":"string"}}"#, "its properties"),
            (r#"{"required":"a"}"#, "what it requires"),
            (r#"{"required":[1]}"#, "what it requires"),
        ] {
            let seen = refused(&[("a", schema)]).unwrap();
            let wanted = format!("the schema of the tool \"a\" is none: {why}");
            assert!(seen.starts_with(&wanted), "{seen}");
        }
    }
}
