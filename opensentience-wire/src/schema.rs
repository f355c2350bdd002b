//! The schemas of tools, and inputs checked against them.

use ubos_common::json::RawObject;
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
    schema: Result<ubos_common::schema::Schema, ubos_common::schema::SchemaError>,
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
            schema: ubos_common::schema::Schema::compile_within(
                tool.input_schema.as_str(),
                max_bytes,
            ),
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
fn refusal(
    schema: &Result<ubos_common::schema::Schema, ubos_common::schema::SchemaError>,
    input: &RawObject,
) -> Option<ErrorObject> {
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
    let schemas = [Some(&tool.input_schema), tool.output_schema.as_ref()];
    for schema in schemas.into_iter().flatten() {
        if schema.as_str().len() > max_bytes {
            return Err("the schema is too large".to_owned());
        }
        #[cfg(feature = "schema")]
        ubos_common::schema::Schema::compile_within(schema.as_str(), max_bytes)
            .map_err(|why| why.to_string())?;
    }
    Ok(())
}
