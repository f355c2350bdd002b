//! JSON Schemas of strangers: bounded before they are compiled, compiled once, never fetched for.
//!
//! A schema is read by the draft that its `$schema` names (4, 6, 7, 2019-09 or 2020-12), by 2020-12 where it names none;
//! another language is refused. References by `$id` are refused as remote: those by pointer and anchor are followed.
//! Formats are asserted, and patterns take linear time.
//!
//! | bound | value | at the bound |
//! |---|---|---|
//! | length of a schema | 64 KiB, or the caller's | refused |
//! | schemas in it, all references followed | 50,000 | refused |
//! | states of its patterns | 100,000 | refused |
//! | bytes of its patterns, read once more for each escape of a class (`\w`, `\d`, `\s`) in them | 1 MiB | refused |
//! | steps of checking a value | 250,000, and one for each byte of the value | nothing is said of the value |
//! | schemas and values inside one another | 512 | nothing is said of the value |
//! | pointers that an answer names | 16; 1 for a value of more than 64 KiB | the others are left out |

mod cost;
mod error;
mod pattern;
mod simple;

use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::json::{Raw, has_reserved_name};
pub use error::SchemaError;

use cost::Cost;
use simple::Simple;

/// Where a value does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaFinding {
    /// The place in the value.
    pub pointer: String,
    /// The keyword of the schema that it breaks.
    pub keyword: String,
}

/// A compiled schema. Cheap to clone.
///
/// ```
/// use ubos_common::json::RawBuf;
/// use ubos_common::schema::Schema;
///
/// let schema = Schema::compile(r#"{"properties":{"n":{"type":"integer"}}}"#)?;
/// let wrong = RawBuf::parse(r#"{"n":"1"}"#)?;
/// let findings = schema.findings(wrong.as_raw())?;
/// assert_eq!((findings[0].pointer.as_str(), findings[0].keyword.as_str()), ("/n", "type"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schema(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    validator: Validator,
    cost: Cost,
    simple: Option<Simple>,
    /// Of its text.
    bytes: usize,
}

impl Schema {
    /// Compiles a schema of at most 64 KiB.
    ///
    /// # Errors
    ///
    /// See [`SchemaError`].
    pub fn compile(schema: &str) -> Result<Self, SchemaError> {
        Self::compile_within(schema, MAX_BYTES)
    }

    /// Compiles a schema of at most so many bytes.
    ///
    /// # Errors
    ///
    /// See [`SchemaError`].
    pub fn compile_within(schema: &str, max_bytes: usize) -> Result<Self, SchemaError> {
        if schema.len() > max_bytes {
            return Err(SchemaError::TooLarge);
        }
        if has_reserved_name(schema) {
            return Err(SchemaError::ReservedName);
        }
        let bytes = schema.len();
        let schema: Value = serde_json::from_str(schema).map_err(|_| SchemaError::NoSchema)?;
        let cost = Cost::of(&schema)?;
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|_| SchemaError::NoSchema)?;
        let simple = Simple::of(&schema);
        Ok(Self(Arc::new(Compiled {
            validator,
            cost,
            simple,
            bytes,
        })))
    }

    /// About how many bytes of memory it takes, for who keeps many: by the length of its text, the schemas in it with all
    /// references followed, and the states of its patterns.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let text = self.0.bytes.saturating_mul(TEXT_BYTES);
        let size = usize::try_from(self.0.cost.size()).unwrap_or(usize::MAX);
        text.saturating_add(size)
    }

    /// Where a value does not fit; empty where it does. At most 16 places are named, and one for a value of more
    /// than 64 KiB.
    ///
    /// # Errors
    ///
    /// [`SchemaError::ReservedName`], [`SchemaError::Number`] and [`SchemaError::TooExpensive`]: nothing can be said of such a value.
    pub fn findings(&self, value: Raw<'_>) -> Result<Vec<SchemaFinding>, SchemaError> {
        self.findings_within(value, MAX_STEPS + value.as_str().len() as u64)
    }

    /// The same in at most so many steps, of which a release build makes 20 to 50 in a microsecond: where it could take
    /// more, that is [`SchemaError::TooExpensive`], and nothing was checked.
    ///
    /// # Errors
    ///
    /// Those of [`findings`](Self::findings).
    pub fn findings_within(
        &self,
        value: Raw<'_>,
        max_steps: u64,
    ) -> Result<Vec<SchemaFinding>, SchemaError> {
        let simple = self.0.simple.as_ref();
        if simple.is_some_and(|simple| simple.fits(value)) {
            return Ok(Vec::new());
        }
        if has_reserved_name(value.as_str()) {
            return Err(SchemaError::ReservedName);
        }
        let bytes = value.as_str().len();
        let value: Value = value.deserialize().map_err(|error| {
            // Of a sound text `serde_json` refuses two things only: a number, and the depth.
            let is_deep = error.to_string().contains("recursion limit");
            if is_deep {
                SchemaError::TooExpensive
            } else {
                SchemaError::Number
            }
        })?;
        let Compiled {
            validator, cost, ..
        } = &*self.0;
        cost.check(&value, bytes, max_steps)?;
        if validator.is_valid(&value) {
            return Ok(Vec::new());
        }
        let finding = |error: jsonschema::ValidationError<'_>| SchemaFinding {
            pointer: error.instance_path().to_string(),
            keyword: error.kind().keyword().to_owned(),
        };
        if bytes > MAX_LISTED_BYTES {
            return Ok(validator
                .validate(&value)
                .map_err(finding)
                .err()
                .into_iter()
                .collect());
        }
        let errors = validator.iter_errors(&value).take(MAX_FINDINGS);
        let mut findings: Vec<SchemaFinding> = errors.map(finding).collect();
        findings.dedup();
        Ok(findings)
    }
}

/// Bytes of a schema that [`Schema::compile`] takes.
pub const MAX_BYTES: usize = 64 << 10;
/// Steps that every check may take: 5 to 15 ms in a release build.
const MAX_STEPS: u64 = 250_000;
/// The validator gathers all its errors before the first can be taken; each is larger than what it is about.
const MAX_LISTED_BYTES: usize = 64 << 10;
const MAX_FINDINGS: usize = 16;
/// Bytes that are kept for each byte of a schema's text.
const TEXT_BYTES: usize = 8;
