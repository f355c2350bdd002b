//! JSON Schemas of strangers: bounded before they are compiled, compiled once, never fetched for.
//!
//! Draft 2020-12 where a schema names none; formats are asserted; patterns take linear time.
//!
//! | bound | value | at the bound |
//! |---|---|---|
//! | length of a schema | 64 KiB, or the caller's | refused |
//! | references in it | 16 | refused |
//! | ways from one place into a recursion | 1 | refused |
//! | pointers that an answer names | 16 | the others are left out |

use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::json::Raw;

/// Why a schema cannot be used, or not on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Longer than the bound, or its references can cost more than the text tells.
    #[error("a schema that costs too much")]
    TooLarge,
    /// It refers to another document; nothing is fetched.
    #[error("a schema that refers to another document")]
    Remote,
    /// It is no JSON Schema.
    #[error("no JSON Schema")]
    NoSchema,
    /// The value has a number that cannot be held as one, such as `1e400`.
    #[error("a number that cannot be held")]
    Number,
}

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
pub struct Schema(Arc<Validator>);

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
        let schema: Value = serde_json::from_str(schema).map_err(|_| SchemaError::NoSchema)?;
        let mut references = References::default();
        references.collect(&schema, &mut String::new())?;
        references.bound()?;
        jsonschema::draft202012::options()
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map(|validator| Self(Arc::new(validator)))
            .map_err(|_| SchemaError::NoSchema)
    }

    /// Where a value does not fit; empty where it does. At most 16 are named.
    ///
    /// # Errors
    ///
    /// [`SchemaError::Number`]: nothing can be said of such a value.
    pub fn findings(&self, value: Raw<'_>) -> Result<Vec<SchemaFinding>, SchemaError> {
        let value: Value = value.deserialize().map_err(|_| SchemaError::Number)?;
        if self.0.is_valid(&value) {
            return Ok(Vec::new());
        }
        let finding = |error: jsonschema::ValidationError<'_>| SchemaFinding {
            pointer: error.instance_path().to_string(),
            keyword: error.kind().keyword().to_owned(),
        };
        let mut findings: Vec<SchemaFinding> = self
            .0
            .iter_errors(&value)
            .take(MAX_FINDINGS)
            .map(finding)
            .collect();
        findings.dedup();
        Ok(findings)
    }
}

/// Where a schema refers to itself: `(place, target)`, both pointers.
#[derive(Default)]
struct References(Vec<(String, String)>);

impl References {
    fn collect(&mut self, schema: &Value, place: &mut String) -> Result<(), SchemaError> {
        let length = place.len();
        match schema {
            Value::Object(members) => {
                for (name, value) in members {
                    if let (true, Value::String(target)) = (REFERS.contains(&&**name), value) {
                        self.add(place, target)?;
                    }
                    place.push('/');
                    place.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    self.collect(value, place)?;
                    place.truncate(length);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    place.push_str(&format!("/{index}"));
                    self.collect(value, place)?;
                    place.truncate(length);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, place: &str, target: &str) -> Result<(), SchemaError> {
        let Some(target) = target.strip_prefix('#') else {
            return Err(SchemaError::Remote);
        };
        if self.0.len() == MAX_REFERENCES {
            return Err(SchemaError::TooLarge);
        }
        // An anchor may be anywhere, so it is taken to hold everything. So is a pointer with escapes of its own.
        let is_plain = target.starts_with('/') && !target.contains('%');
        let target = if is_plain { target } else { "" };
        self.0.push((place.to_owned(), target.to_owned()));
        Ok(())
    }

    /// Two ways from one place into a recursion double the work at every level of the value.
    fn bound(&self) -> Result<(), SchemaError> {
        let recursive: Vec<bool> = (0..self.0.len()).map(|i| self.comes_back(i)).collect();
        for one in 0..self.0.len() {
            let ways = self.next(one).filter(|n| recursive.get(*n) == Some(&true));
            if ways.count() > 1 {
                return Err(SchemaError::TooLarge);
            }
        }
        Ok(())
    }

    /// The references inside of what this one refers to.
    fn next(&self, one: usize) -> impl Iterator<Item = usize> + '_ {
        let target = self.0.get(one).map_or("", |(_, target)| target.as_str());
        let inside = move |place: &str| {
            let rest = place.strip_prefix(target);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let places = self.0.iter().enumerate();
        places.filter_map(move |(index, (place, _))| inside(place).then_some(index))
    }

    fn comes_back(&self, start: usize) -> bool {
        let mut seen = vec![false; self.0.len()];
        let mut open: Vec<usize> = self.next(start).collect();
        while let Some(one) = open.pop() {
            if one == start {
                return true;
            }
            if let Some(seen) = seen.get_mut(one)
                && !core::mem::replace(seen, true)
            {
                open.extend(self.next(one));
            }
        }
        false
    }
}

const REFERS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Bytes of a schema that [`Schema::compile`] takes.
pub const MAX_BYTES: usize = 64 << 10;
const MAX_REFERENCES: usize = 16;
const MAX_FINDINGS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: &str) -> Option<SchemaError> {
        Schema::compile(schema).err()
    }

    #[test]
    fn what_a_schema_may_cost_is_bounded_before_it_is_compiled() {
        // Each level asks for the next one twice.
        let mut bomb =
            r##"{"allOf":[{"$ref":"#/$defs/d0"},{"$ref":"#/$defs/d0"}],"$defs":{"##.to_owned();
        for level in 0..20 {
            let next = level + 1;
            bomb += &format!(
                r##""d{level}":{{"allOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}},"##
            );
        }
        bomb += r#""d20":{}}}"#;
        assert_eq!(refused(&bomb), Some(SchemaError::TooLarge));
        let twice = r##"{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}"##;
        assert_eq!(refused(twice), Some(SchemaError::TooLarge));
        let tree = r##"{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"c":{"items":{"$ref":"#/$defs/n"}}}}}}"##;
        assert_eq!(refused(tree), None);
        assert_eq!(
            refused(r#"{"$ref":"https://example.com/schema.json"}"#),
            Some(SchemaError::Remote)
        );
        assert_eq!(
            refused(r#"{"type":"jsonish"}"#),
            Some(SchemaError::NoSchema)
        );
        assert_eq!(
            refused(r#"{"pattern":"(?=a)b"}"#),
            Some(SchemaError::NoSchema)
        );
        let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(MAX_BYTES));
        assert_eq!(refused(&long), Some(SchemaError::TooLarge));
        assert!(Schema::compile_within(&long, long.len()).is_ok());
    }

    #[test]
    fn findings_are_bounded_and_name_place_and_keyword() {
        let schema = Schema::compile(r#"{"items":{"type":"integer"},"maxItems":99}"#).unwrap();
        let of = |text: &str| schema.findings(crate::json::RawBuf::parse(text).unwrap().as_raw());
        assert_eq!(of("[1,2]").unwrap(), []);
        assert_eq!(of("[1,\"x\"]").unwrap()[0].pointer, "/1");
        assert_eq!(
            of(&format!("[{}0.5]", "0.5,".repeat(50))).unwrap().len(),
            MAX_FINDINGS
        );
        assert_eq!(of("[1e400]"), Err(SchemaError::Number));
    }
}
