//! Outputs held against the JSON Schema of their contract.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ubos_common::canon::Digest;
use ubos_common::json::Raw;
use ubos_common::schema::{Schema, SchemaError, SchemaFinding};

use super::hooks::ContractCheck;
use crate::future::{BoxFuture, ready};
use crate::role::consumer::{ContractFinding, NotEnforced};
use crate::task::OutputContract;
use crate::work::{self, For, HEAVY};

/// Holds outputs against JSON Schemas, draft 2020-12 where a schema names none. Formats are asserted, patterns
/// take linear time, and nothing is fetched.
///
/// Schemas come from issuers, so what one may cost is bounded before it is compiled, and what a check may cost
/// before it is made: see [`ubos_common::schema`].
///
/// | bound | value | at the bound |
/// |---|---|---|
/// | length of a schema | 64 KiB | not enforced |
/// | compiled schemas that are kept | 256, of about 64 MiB | the oldest are compiled again when they are needed |
/// | pointers that a finding names | 16 | the others are left out |
///
/// What is not enforced is reported as a [`Warning`](super::Warning).
///
/// ```
/// use sap::processor::{ContractCheck as _, ContractFinding, Schemas};
/// use sap::OutputContract;
/// use sap::ubos_common::json::{RawBuf, RawObject};
///
/// let mut contract = OutputContract::new();
/// contract.schema = RawObject::new(RawBuf::parse(r#"{"properties":{"n":{"type":"integer"}}}"#)?);
/// let schemas = Schemas::default();
/// let found = |output: &str| {
///     let output = RawBuf::parse(output).unwrap();
///     futures::executor::block_on(schemas.check(&contract, output.as_raw()))
/// };
/// assert_eq!(found(r#"{"n":1}"#), ContractFinding::Kept);
/// assert_eq!(found(r#"{"n":"1"}"#), ContractFinding::Broken(vec!["/n".into()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Schemas(Arc<Mutex<Compiled>>);

#[derive(Debug, Default)]
struct Compiled {
    schemas: BTreeMap<Digest, Result<Schema, NotEnforced>>,
    order: VecDeque<Digest>,
    /// What they take, about.
    bytes: usize,
}

impl Compiled {
    fn keep(&mut self, key: Digest, made: Result<Schema, NotEnforced>) {
        let bytes = bytes_of(&made);
        if self.schemas.insert(key, made).is_none() {
            self.order.push_back(key);
            self.bytes += bytes;
        }
        while self.order.len() > MAX_COMPILED || self.bytes > MAX_COMPILED_BYTES {
            let oldest = self.order.pop_front();
            let Some(oldest) = oldest.and_then(|key| self.schemas.remove(&key)) else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(bytes_of(&oldest));
        }
    }
}

fn bytes_of(made: &Result<Schema, NotEnforced>) -> usize {
    made.as_ref().map_or(0, Schema::size_bytes)
}

impl ContractCheck for Schemas {
    // impl: SAP-4.1-10, SAP-4.2-7
    fn check<'a>(
        &'a self,
        contract: &'a OutputContract,
        output: Raw<'a>,
    ) -> BoxFuture<'a, ContractFinding> {
        let Some(schema) = &contract.schema else {
            return ready(ContractFinding::Kept);
        };
        if let Some(finding) = self.quick_finding(schema.as_str(), output) {
            return ready(finding);
        }
        let schemas = Self(Arc::clone(&self.0));
        let (schema, output) = (schema.clone(), output.to_owned());
        Box::pin(work::apart(For::Task, move || {
            schemas.finding(schema.as_str(), output.as_raw())
        }))
    }
}

impl Schemas {
    /// What takes no time: by a schema that is compiled or is quick to be, in few steps.
    fn quick_finding(&self, schema: &str, output: Raw<'_>) -> Option<ContractFinding> {
        if output.as_str().len() > HEAVY {
            return None;
        }
        let key = Digest::of_bytes(schema.as_bytes());
        let held = self.lock().schemas.get(&key).cloned();
        let held = held.or_else(|| is_quick_to_compile(schema).then(|| self.compiled(schema)))?;
        let found = match held {
            Ok(validator) => validator.findings_within(output, QUICK),
            Err(why) => return Some(ContractFinding::NotEnforced(why)),
        };
        let is_quick = !matches!(found, Err(SchemaError::TooExpensive));
        is_quick.then(|| Self::found(found))
    }

    fn finding(&self, schema: &str, output: Raw<'_>) -> ContractFinding {
        match self.compiled(schema) {
            Ok(validator) => Self::found(validator.findings(output)),
            Err(why) => ContractFinding::NotEnforced(why),
        }
    }

    fn found(found: Result<Vec<SchemaFinding>, SchemaError>) -> ContractFinding {
        let findings = match found {
            Ok(findings) => findings,
            Err(why) => return ContractFinding::NotEnforced(not_enforced(why)),
        };
        let mut pointers: Vec<String> = findings
            .into_iter()
            .map(|finding| finding.pointer)
            .collect();
        pointers.dedup();
        if pointers.is_empty() {
            ContractFinding::Kept
        } else {
            ContractFinding::Broken(pointers)
        }
    }

    fn compiled(&self, schema: &str) -> Result<Schema, NotEnforced> {
        // A long one is not even kept by its digest.
        if schema.len() > ubos_common::schema::MAX_BYTES {
            return Err(NotEnforced::TooLarge);
        }
        let key = Digest::of_bytes(schema.as_bytes());
        if let Some(held) = self.lock().schemas.get(&key) {
            return held.clone();
        }
        // Others go on while this one compiles; at worst two compile the same.
        let made = compile(schema);
        self.lock().keep(key, made.clone());
        made
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Compiled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a schema is short, and none of what may make much of little is in it: patterns, references, and what is compiled
/// again for each level.
fn is_quick_to_compile(schema: &str) -> bool {
    let large = ["pattern", "ref", "Ref", "unevaluated", "\\"];
    schema.len() <= SHORT && !large.iter().any(|word| schema.contains(word))
}

// impl: SAP-4.1-10
fn compile(schema: &str) -> Result<Schema, NotEnforced> {
    Schema::compile(schema).map_err(not_enforced)
}

const fn not_enforced(why: SchemaError) -> NotEnforced {
    match why {
        SchemaError::TooLarge => NotEnforced::TooLarge,
        SchemaError::Remote => NotEnforced::Remote,
        SchemaError::Number => NotEnforced::Number,
        SchemaError::TooExpensive => NotEnforced::TooExpensive,
        SchemaError::ReservedName => NotEnforced::ReservedName,
        _ => NotEnforced::NoSchema,
    }
}

const MAX_COMPILED: usize = 256;
/// Bytes of compiled schemas that are kept, about. One alone is smaller.
const MAX_COMPILED_BYTES: usize = 64 << 20;
/// Bytes of a schema that is compiled at once.
const SHORT: usize = 1 << 10;
/// Steps of a check that is made at once: a millisecond or two.
const QUICK: u64 = 25_000;

#[cfg(test)]
mod tests {
    use ubos_common::json::{RawBuf, RawObject};

    use super::*;

    fn refused(schema: &str) -> Option<NotEnforced> {
        compile(schema).err()
    }

    // spec: SAP-4.1-10
    #[test]
    fn a_schema_that_cannot_be_used_is_not_enforced() {
        let nested = (0..20).fold(r#"{"properties":{"a":{}}}"#.to_owned(), |inside, _| {
            format!(r#"{{"anyOf":[{inside}],"unevaluatedProperties":false}}"#)
        });
        assert_eq!(refused(&nested), Some(NotEnforced::TooLarge));
        let fetch = r#"{"$ref":"https://example.com/schema.json"}"#;
        assert_eq!(refused(fetch), Some(NotEnforced::Remote));
        assert_eq!(
            refused(r#"{"type":"jsonish"}"#),
            Some(NotEnforced::NoSchema)
        );
        assert_eq!(refused(r#"{"type":"string"}"#), None);
    }

    #[test]
    fn an_output_that_is_too_expensive_to_check_is_not_enforced() {
        let values: Vec<String> = (0..5_000).map(|n| format!("[{n}]")).collect();
        let schema = format!(r#"{{"items":{{"enum":[{}]}}}}"#, values.join(","));
        let output = RawBuf::parse(&format!("[{}[]]", "[-1],".repeat(2_000))).unwrap();
        let found = Schemas::default().finding(&schema, output.as_raw());
        assert_eq!(
            found,
            ContractFinding::NotEnforced(NotEnforced::TooExpensive)
        );
    }

    // spec: SAP-4.1-10
    #[test]
    fn an_output_with_a_name_that_cannot_be_held_is_said_to_be_unchecked() {
        let output = r#"{"$serde_json::private::RawValue":"1"}"#;
        let output = RawBuf::parse(output).unwrap();
        assert_eq!(
            Schemas::default().finding("{}", output.as_raw()),
            ContractFinding::NotEnforced(NotEnforced::ReservedName)
        );
    }

    // spec: SAP-4.2-7
    #[test]
    fn a_place_that_breaks_two_rules_is_named_once() {
        let output = RawBuf::parse("{}").unwrap();
        let schema = r#"{"required":["a"],"minProperties":1}"#;
        let found = Schemas::default().finding(schema, output.as_raw());
        assert_eq!(found, ContractFinding::Broken(vec![String::new()]));
    }

    #[test]
    fn what_takes_its_time_is_done_apart_and_the_rest_at_once() {
        let schemas = Schemas::default();
        let check = |schema: &str, output: &str| {
            let mut contract = OutputContract::new();
            contract.schema = RawObject::new(RawBuf::parse(schema).unwrap());
            let output = RawBuf::parse(output).unwrap();
            let check = || futures::executor::block_on(schemas.check(&contract, output.as_raw()));
            let (found, handed_over) = work::handed_over(check);
            assert_eq!(found, ContractFinding::Kept);
            handed_over
        };
        let branches = vec![r#"{"type":"integer"}"#; 100].join(",");
        let schema = format!(r#"{{"items":{{"anyOf":[{branches}]}}}}"#);
        let ones = |elements: usize| format!("[{}1]", "1,".repeat(elements - 1));
        // To compile what is long takes its time, and so do many elements.
        let apart = [1, 1, 10, 400, 1].map(|elements| check(&schema, &ones(elements)));
        assert_eq!(apart, [1, 0, 0, 1, 0]);
        let titled = |bytes: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(bytes - 12));
        let made = [r#"{"type":"integer"}"#, r#"{"pattern":"a"}"#].map(str::to_owned);
        let made = made.into_iter().chain([SHORT, SHORT + 1].map(titled));
        let apart: Vec<usize> = made.map(|schema| check(&schema, "1")).collect();
        assert_eq!(apart, [0, 1, 0, 1]);
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let apart = [HEAVY, HEAVY + 1].map(|bytes| check("{}", &text(bytes)));
        assert_eq!(apart, [0, 1]);
    }

    #[test]
    fn long_schemas_are_refused_and_compiled_ones_bounded() {
        let long = format!(
            r#"{{"title":"{}"}}"#,
            "x".repeat(ubos_common::schema::MAX_BYTES)
        );
        let schemas = Schemas::default();
        assert_eq!(schemas.compiled(&long).err(), Some(NotEnforced::TooLarge));
        let longest = format!("{{}}{}", " ".repeat(ubos_common::schema::MAX_BYTES - 2));
        assert!(schemas.compiled(&longest).is_ok());
        for n in 0..=MAX_COMPILED {
            assert!(schemas.compiled(&format!(r#"{{"minimum":{n}}}"#)).is_ok());
        }
        assert_eq!(schemas.lock().schemas.len(), MAX_COMPILED);
    }

    #[test]
    fn compiled_schemas_are_bounded_in_bytes_too() {
        let schemas = Schemas::default();
        let schema = |n| format!(r#"{{"$comment":"{n}","pattern":"^(?:a{{1000}}){{90}}$"}}"#);
        let large = schemas.compiled(&schema(0)).unwrap().size_bytes();
        let most = MAX_COMPILED_BYTES / large;
        assert!((2..64).contains(&most), "{large} bytes");
        for n in 0..3 * most {
            assert!(schemas.compiled(&schema(n)).is_ok());
        }
        let held = schemas.lock();
        assert_eq!((held.schemas.len(), held.order.len()), (most, most));
        assert!(held.bytes <= MAX_COMPILED_BYTES);
        let newest = Digest::of_bytes(schema(3 * most - 1).as_bytes());
        assert!(held.schemas.contains_key(&newest));
        drop(held);
        // Many small ones take their place, and all is counted.
        for n in 0..MAX_COMPILED {
            assert!(schemas.compiled(&format!(r#"{{"minimum":{n}}}"#)).is_ok());
        }
        let held = schemas.lock();
        let sum: usize = held.schemas.values().map(bytes_of).sum();
        assert_eq!((held.schemas.len(), held.bytes), (MAX_COMPILED, sum));
        assert!(sum < 1 << 20);
    }
}
