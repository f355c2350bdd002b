//! Schemas of tools and outputs, compiled once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ubos_common::json::{Raw, RawObject};
use ubos_common::schema::Schema;

/// Schemas that are kept compiled; beyond it, one is compiled for each use.
const MOST: usize = 256;

/// By their texts. One that cannot be compiled holds nobody to anything.
#[derive(Default)]
pub(super) struct Schemas(Mutex<BTreeMap<Box<str>, Option<Schema>>>);

impl Schemas {
    /// Where a value does not fit, for the model.
    pub(super) fn fault(&self, schema: &RawObject, value: Raw<'_>) -> Option<String> {
        let findings = match self.of(schema)?.findings(value) {
            Ok(findings) => findings,
            Err(error) => return Some(error.to_string()),
        };
        let faults: Vec<String> = findings
            .iter()
            .map(|finding| {
                let place = match finding.pointer.as_str() {
                    "" => "the whole",
                    pointer => pointer,
                };
                format!("{place} breaks `{}`", finding.keyword)
            })
            .collect();
        (!faults.is_empty()).then(|| faults.join(", "))
    }

    fn of(&self, schema: &RawObject) -> Option<Schema> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = kept.get(schema.as_str()) {
            return compiled.clone();
        }
        let compiled = Schema::compile(schema.as_str()).ok();
        if kept.len() < MOST {
            kept.insert(schema.as_str().into(), compiled.clone());
        }
        compiled
    }
}
