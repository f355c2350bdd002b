//! Outputs held against the JSON Schema of their contract.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use ubos_common::canon::Digest;
use ubos_common::json::Raw;

use super::hooks::{ContractCheck, ContractFinding, NotEnforced};
use crate::task::OutputContract;

/// Holds outputs against JSON Schemas, draft 2020-12 where a schema names none. Formats are asserted, patterns
/// take linear time, and nothing is fetched.
///
/// Schemas come from issuers, so what one may cost is bounded before it is compiled:
///
/// | bound | value | at the bound |
/// |---|---|---|
/// | length of a schema | 64 KiB | not enforced |
/// | references in it | 16 | not enforced |
/// | references to a recursive part from one place | 1 | not enforced |
/// | compiled schemas that are kept | 256 | the oldest is compiled again when it is needed |
/// | pointers that a finding names | 16 | the others are left out |
///
/// What is not enforced is reported as a [`Warning`](super::Warning).
///
/// ```
/// use sap::processor::{ContractCheck as _, ContractFinding, Schemas};
/// use sap::task::OutputContract;
/// use ubos_common::json::{RawBuf, RawObject};
///
/// let mut contract = OutputContract::new();
/// contract.schema = RawObject::new(RawBuf::parse(r#"{"properties":{"n":{"type":"integer"}}}"#)?);
/// let schemas = Schemas::default();
/// let found = |output: &str| schemas.check(&contract, RawBuf::parse(output).unwrap().as_raw());
/// assert_eq!(found(r#"{"n":1}"#), ContractFinding::Kept);
/// assert_eq!(found(r#"{"n":"1"}"#), ContractFinding::Broken(vec!["/n".into()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Schemas(Mutex<Compiled>);

#[derive(Debug, Default)]
struct Compiled {
    schemas: BTreeMap<Digest, Result<Arc<Validator>, NotEnforced>>,
    order: VecDeque<Digest>,
}

impl ContractCheck for Schemas {
    // impl: SAP-4.1-10, SAP-4.2-7
    fn check(&self, contract: &OutputContract, output: Raw<'_>) -> ContractFinding {
        let Some(schema) = &contract.schema else {
            return ContractFinding::Kept;
        };
        let validator = match self.compiled(schema.as_str()) {
            Ok(validator) => validator,
            Err(why) => return ContractFinding::NotEnforced(why),
        };
        let Ok(output) = output.deserialize::<Value>() else {
            return ContractFinding::NotEnforced(NotEnforced::Number);
        };
        let errors = validator.iter_errors(&output).take(MAX_POINTERS);
        let mut pointers: Vec<String> = errors.map(|e| e.instance_path().to_string()).collect();
        pointers.dedup();
        if pointers.is_empty() {
            ContractFinding::Kept
        } else {
            ContractFinding::Broken(pointers)
        }
    }
}

impl Schemas {
    fn compiled(&self, schema: &str) -> Result<Arc<Validator>, NotEnforced> {
        if schema.len() > MAX_SCHEMA_BYTES {
            return Err(NotEnforced::TooLarge);
        }
        let key = Digest::of_bytes(schema.as_bytes());
        if let Some(held) = self.lock().schemas.get(&key) {
            return held.clone();
        }
        // Others go on while this one compiles; at worst two compile the same.
        let made = compile(schema);
        let mut compiled = self.lock();
        if compiled.schemas.insert(key, made.clone()).is_none() {
            compiled.order.push_back(key);
        }
        if compiled.order.len() > MAX_COMPILED
            && let Some(oldest) = compiled.order.pop_front()
        {
            compiled.schemas.remove(&oldest);
        }
        made
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Compiled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn compile(schema: &str) -> Result<Arc<Validator>, NotEnforced> {
    let schema: Value = serde_json::from_str(schema).map_err(|_| NotEnforced::NoSchema)?;
    let mut references = References::default();
    references.collect(&schema, &mut String::new())?;
    references.bound()?;
    jsonschema::draft202012::options()
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .map(Arc::new)
        .map_err(|_| NotEnforced::NoSchema)
}

/// Where a schema refers to itself: `(place, target)`, both pointers.
#[derive(Default)]
struct References(Vec<(String, String)>);

impl References {
    fn collect(&mut self, schema: &Value, place: &mut String) -> Result<(), NotEnforced> {
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

    fn add(&mut self, place: &str, target: &str) -> Result<(), NotEnforced> {
        let Some(target) = target.strip_prefix('#') else {
            return Err(NotEnforced::Remote);
        };
        if self.0.len() == MAX_REFERENCES {
            return Err(NotEnforced::TooLarge);
        }
        // An anchor may be anywhere, so it is taken to hold everything. So is a pointer with escapes of its own.
        let is_plain = target.starts_with('/') && !target.contains('%');
        let target = if is_plain { target } else { "" };
        self.0.push((place.to_owned(), target.to_owned()));
        Ok(())
    }

    /// Two ways from one place into a recursion double the work at every level of the output.
    fn bound(&self) -> Result<(), NotEnforced> {
        let recursive: Vec<bool> = (0..self.0.len()).map(|i| self.comes_back(i)).collect();
        for one in 0..self.0.len() {
            let ways = self.next(one).filter(|n| recursive.get(*n) == Some(&true));
            if ways.count() > 1 {
                return Err(NotEnforced::TooLarge);
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
const MAX_SCHEMA_BYTES: usize = 64 << 10;
const MAX_REFERENCES: usize = 16;
const MAX_COMPILED: usize = 256;
const MAX_POINTERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: &str) -> Option<NotEnforced> {
        compile(schema).err()
    }

    // spec: SAP-4.1-10
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
        assert_eq!(refused(&bomb), Some(NotEnforced::TooLarge));
        let twice = r##"{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}"##;
        assert_eq!(refused(twice), Some(NotEnforced::TooLarge));
        let tree = r##"{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"c":{"items":{"$ref":"#/$defs/n"}}}}}}"##;
        assert_eq!(refused(tree), None);
        let fetch = r#"{"$ref":"https://example.com/schema.json"}"#;
        assert_eq!(refused(fetch), Some(NotEnforced::Remote));
        assert_eq!(
            refused(r#"{"type":"jsonish"}"#),
            Some(NotEnforced::NoSchema)
        );
        assert_eq!(
            refused(r#"{"pattern":"(?=a)b"}"#),
            Some(NotEnforced::NoSchema)
        );
        let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(MAX_SCHEMA_BYTES));
        let schemas = Schemas::default();
        assert_eq!(schemas.compiled(&long).err(), Some(NotEnforced::TooLarge));
        for n in 0..=MAX_COMPILED {
            assert!(schemas.compiled(&format!(r#"{{"minimum":{n}}}"#)).is_ok());
        }
        assert_eq!(schemas.lock().schemas.len(), MAX_COMPILED);
    }
}
