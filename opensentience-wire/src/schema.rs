//! The schemas of tools, and inputs checked against them.

use ubos_common::json::RawObject;
#[cfg(feature = "schema")]
use ubos_common::schema::{Schema, SchemaError};
#[cfg(feature = "schema")]
use ubos_common::violation::PointerText;

#[cfg(feature = "schema")]
use crate::error::ErrorCode;
use crate::error::ErrorObject;
use crate::message::ToolSpec;

/// A tool's input schema, compiled once.
#[derive(Clone, Debug)]
pub struct InputSchema {
    #[cfg(feature = "schema")]
    schema: Result<Schema, SchemaError>,
}

impl InputSchema {
    #[cfg_attr(
        not(feature = "schema"),
        expect(clippy::missing_const_for_fn, reason = "compiles nothing here")
    )]
    /// Compiles the input schema of a tool. A schema that cannot be used, or is longer than `max_bytes`, refuses
    /// every input. Without the feature `schema` nothing is checked.
    #[must_use]
    pub fn compile(tool: &ToolSpec, max_bytes: usize) -> Self {
        #[cfg(not(feature = "schema"))]
        let _ = (tool, max_bytes);
        Self {
            #[cfg(feature = "schema")]
            schema: Schema::compile_within(tool.input_schema.as_str(), max_bytes),
        }
    }

    /// Why an input does not fit the schema, without the text of the input; `None` where it fits.
    #[must_use]
    // impl: OSW-4.3-3
    pub fn refusal(&self, input: &RawObject) -> Option<ErrorObject> {
        #[cfg(feature = "schema")]
        {
            refusal(&self.schema, input)
        }
        #[cfg(not(feature = "schema"))]
        {
            let _ = input;
            None
        }
    }
}

#[cfg(feature = "schema")]
fn refusal(schema: &Result<Schema, SchemaError>, input: &RawObject) -> Option<ErrorObject> {
    use ubos_common::json::MemberWriter;

    let schema = match schema {
        Ok(schema) => schema,
        Err(why) => {
            return Some(ErrorObject::of(
                ErrorCode::ToolInvalidSchema,
                why.to_string(),
            ));
        }
    };
    let findings = match schema.findings(input.as_raw()) {
        Ok(findings) => findings,
        Err(why) => {
            return Some(ErrorObject::of(
                ErrorCode::ToolInvalidInput,
                why.to_string(),
            ));
        }
    };
    let first = findings.first()?;
    let place = PointerText(&first.pointer);
    let message = format!("the input breaks {:?} at {place}", first.keyword);
    let mut error = ErrorObject::of(ErrorCode::ToolInvalidInput, message);
    let mut details = Vec::new();
    let mut object = MemberWriter::begin(&mut details);
    let pointers: Vec<&str> = findings
        .iter()
        .map(|finding| finding.pointer.as_str())
        .collect();
    object.member("pointers", &pointers);
    object.end();
    let details = String::from_utf8(details).ok();
    error.details = details
        .and_then(|text| ubos_common::json::RawBuf::parse(&text).ok())
        .and_then(RawObject::new);
    Some(error)
}

/// Checks that the schemas of a tool can be used. Without the feature `schema` only their length is checked.
///
/// # Errors
///
/// A schema is longer than `max_bytes`, or does not compile; the text says why.
// impl: OSW-4.2-3
pub fn check_schemas(tool: &ToolSpec, max_bytes: usize) -> Result<(), String> {
    check_priced(tool, max_bytes).0
}

/// The same, and what it cost, in bytes of a message that is only read.
pub(crate) fn check_priced(tool: &ToolSpec, max_bytes: usize) -> (Result<(), String>, usize) {
    let schemas = [Some(&tool.input_schema), tool.output_schema.as_ref()];
    let mut sum = 0;
    for schema in schemas.into_iter().flatten() {
        let text = schema.as_str();
        if text.len() > max_bytes {
            return (Err("the schema is too large".to_owned()), sum);
        }
        sum += TEXT * text.len();
        #[cfg(feature = "schema")]
        {
            let (compiled, cost) = compile(text, max_bytes);
            sum += cost;
            if let Err(why) = compiled {
                return (Err(why.to_string()), sum);
            }
        }
    }
    (Ok(()), sum)
}

/// Compiles a schema, and says what that cost beside its text.
#[cfg(feature = "schema")]
fn compile(text: &str, max_bytes: usize) -> (Result<(), SchemaError>, usize) {
    let compiled = Schema::compile_within(text, max_bytes);
    let cost = match &compiled {
        // What is kept of it are the schemas in it, with all references followed, and the states of its patterns.
        Ok(schema) => schema.size_bytes() / COMPILED + READ * pattern_bytes(text),
        // It may have been compiled as far as the last of its keywords.
        Err(SchemaError::NoSchema) => UNUSABLE,
        Err(_) => REFUSED,
    };
    (compiled.map(drop), cost)
}

/// At most the bytes of patterns that are read when they are compiled: one is read again for each class in it (`\w`, `\d`,
/// `\s`), with what is written in its place. Every text of the schema counts as a pattern.
#[cfg(feature = "schema")]
fn pattern_bytes(schema: &str) -> usize {
    let (mut sum, mut length, mut classes) = (0_usize, 0_usize, 0_usize);
    let mut bytes = schema.bytes().peekable();
    while let Some(byte) = bytes.next() {
        length += 1;
        if byte == b'"' {
            sum = sum.saturating_add(length.saturating_mul(classes));
            (length, classes) = (0, 0);
        }
        if byte != b'\\' {
            continue;
        }
        match bytes.next() {
            Some(b'\\') => {}
            // It may stand for a backslash, too.
            Some(b'u') => drop(bytes.by_ref().take(4).last()),
            _ => continue,
        }
        let class = match bytes.peek() {
            Some(b'w' | b'W' | b'd' | b'D') => WORD,
            // The letter may be written in another way.
            Some(b's' | b'S' | b'\\') => SPACE,
            _ => continue,
        };
        length += class;
        classes += 1;
    }
    sum
}

// A release build takes about 20 ms for what costs 1 MiB by its patterns, 8 ms by their states or its members, and 70 ms at most
// for what turns out to be no schema: at the rate of an agent's bytes, some hundredths of a processor.

/// What each byte of a schema costs that is compiled.
const TEXT: usize = 8;
/// Bytes that are kept of a compiled schema and cost as much as one that is read.
#[cfg(feature = "schema")]
const COMPILED: usize = 8;
/// What each byte of a pattern costs that is read.
#[cfg(feature = "schema")]
const READ: usize = 3;
/// Half of the bytes that are written in the place of `\w` or `\d`: the others are written later.
#[cfg(feature = "schema")]
const WORD: usize = 7;
/// Half of those in the place of `\s`.
#[cfg(feature = "schema")]
const SPACE: usize = 75;
/// What a schema costs that is none, or whose patterns are none.
#[cfg(feature = "schema")]
const UNUSABLE: usize = 512 << 10;
/// What a schema costs that is refused for its size or its references.
#[cfg(feature = "schema")]
const REFUSED: usize = 128 << 10;

#[cfg(test)]
#[cfg(feature = "schema")]
mod tests {
    use ubos_common::json::RawBuf;

    use super::*;

    fn cost(schema: &str) -> usize {
        let schema = RawObject::new(RawBuf::parse(schema).unwrap()).unwrap();
        let tool = ToolSpec::local("t", "d", schema);
        check_priced(&tool, 64 << 10).1
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn schemas_cost_what_compiling_them_takes_and_not_their_length() {
        let plain = r#"{"type":"object","properties":{"n":{"type":"integer","description":"how many there are"}}}"#;
        assert!(cost(plain) < 2_000, "{}", cost(plain));
        // Each level leads twice to the one below.
        let levels: Vec<_> = (1..13)
            .map(|n| {
                let below = format!(r##"{{"$ref":"#/$defs/a{}"}}"##, n - 1);
                format!(r#""a{n}":{{"allOf":[{below},{below}]}}"#)
            })
            .collect();
        let doubled = format!(
            r##"{{"$defs":{{"a0":{{"type":"string"}},{}}},"$ref":"#/$defs/a12"}}"##,
            levels.join(",")
        );
        let many = r#"{"pattern":"(x{300}){300}"}"#;
        let classes = |class: &str, count| format!(r#"{{"pattern":"{}"}}"#, class.repeat(count));
        let none = r#"{"properties":{"a":{"type":"strong"}}}"#;
        let endless = r##"{"$ref":"#"}"##;
        for (schema, least) in [
            (doubled.as_str(), 400_000),
            (many, 1_000_000),
            (classes(r"\\w", 150).as_str(), 500_000),
            (classes(r"\\S", 40).as_str(), 300_000),
            (classes(r"\u005cd", 150).as_str(), 500_000),
            (classes(r"\\\u0073", 40).as_str(), 300_000),
            (none, 500_000),
            (endless, 100_000),
        ] {
            assert!(schema.len() < 2_000);
            let cost = cost(schema);
            assert!(cost >= least, "{cost} of {schema}");
        }
    }
}
