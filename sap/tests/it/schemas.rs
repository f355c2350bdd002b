//! The schemas and the strict validator say the same.

use jsonschema::{PatternOptions, Validator};
use proptest::prelude::*;
use sap::cache::CacheRecord;
use sap::validate::{Options, decode_result, decode_task, findings};
use sap::{ConstitutionalContext, schemas};
use serde_json::Value;
use ubos_common::json::{self, Limits};
use ubos_common::violation::{Profile, Report};

use crate::shapes::{self, Field, Shape};

/// A kind of message: its schema, its members, and what the typed validator finds.
struct Kind {
    schema: Validator,
    fields: &'static [Field],
    judge: fn(&[u8]) -> Report,
}

fn kinds() -> [Kind; 4] {
    [
        Kind {
            schema: compiled(schemas::TASK),
            fields: shapes::TASK,
            judge: |bytes| findings(&decode_task(bytes, &Options::default())),
        },
        Kind {
            schema: compiled(schemas::RESULT),
            fields: shapes::RESULT,
            judge: |bytes| findings(&decode_result(bytes, &Options::default())),
        },
        Kind {
            schema: compiled(schemas::CONSTITUTIONAL_CONTEXT),
            fields: shapes::CONTEXT,
            judge: |bytes| findings(&typed::<ConstitutionalContext>(bytes)),
        },
        Kind {
            schema: compiled(schemas::CACHE_RECORD),
            fields: shapes::RECORD,
            judge: |bytes| findings(&typed::<CacheRecord>(bytes)),
        },
    ]
}

fn typed<'a, T: json::Read<'a>>(bytes: &'a [u8]) -> Result<(T, Report), json::DecodeError> {
    json::decode(bytes, &Limits::default(), Profile::Strict)
}

fn compiled(schema: &str) -> Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    jsonschema::draft202012::options()
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false)
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .unwrap()
}

// spec: SAP-9-1
#[test]
fn every_single_fault_is_refused_by_both() {
    let mut count = 0;
    for kind in kinds() {
        for fault in shapes::faults(kind.fields) {
            let report = (kind.judge)(fault.message.to_string().as_bytes());
            let musts: Vec<_> = report
                .iter()
                .filter(|f| f.level.as_str() == "MUST")
                .collect();
            assert!(
                !musts.is_empty(),
                "{} holds typed: {}",
                fault.pointer,
                fault.message
            );
            for must in musts {
                assert!(
                    must.pointer.starts_with(&fault.pointer),
                    "{must} for {}",
                    fault.pointer
                );
            }
            let holds = kind.schema.is_valid(&fault.message);
            assert!(
                !holds,
                "{} holds under the schema: {}",
                fault.pointer, fault.message
            );
            count += 1;
        }
    }
    assert!(count > 700, "{count}");
}

// spec: SAP-9-1
#[test]
fn every_corner_that_fits_is_taken_by_both() {
    for kind in kinds() {
        for message in shapes::variants(kind.fields) {
            // A failed result must say why, which is no matter of one member.
            let report = (kind.judge)(message.to_string().as_bytes());
            let errors: Vec<String> = kind
                .schema
                .iter_errors(&message)
                .map(|e| e.to_string())
                .collect();
            assert_eq!(
                report.is_valid(),
                errors.is_empty(),
                "{message}\n{report}\n{errors:?}"
            );
            let is_failed = message["status"] == "FAILED";
            assert!(report.is_valid() || is_failed, "{message}\n{report}");
        }
    }
}

#[test]
fn the_context_of_a_task_is_the_context() {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let task = parse(schemas::TASK);
    assert_eq!(
        task["$defs"]["constitutionalContext"],
        parse(schemas::CONSTITUTIONAL_CONTEXT)
    );
}

/// A message, and a place in it that may be spoilt.
fn message(fields: &'static [Field]) -> impl Strategy<Value = (Value, Option<(usize, Value)>)> {
    let values = [
        Shape::Text,
        Shape::Number,
        Shape::Time,
        Shape::Bool,
        Shape::Free,
        Shape::IdOrNull,
    ];
    let value = proptest::sample::select(values.to_vec()).prop_flat_map(Shape::strategy);
    (
        shapes::object(fields),
        proptest::option::of((any::<usize>(), value)),
    )
}

fn spoil(mut message: Value, fault: Option<(usize, Value)>) -> Value {
    fn places(value: &Value, above: &str, found: &mut Vec<String>) {
        let members: Vec<(String, &Value)> = match value {
            Value::Object(object) => object
                .iter()
                .map(|(n, v)| (n.replace('~', "~0").replace('/', "~1"), v))
                .collect(),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .map(|(n, v)| (n.to_string(), v))
                .collect(),
            _ => return,
        };
        for (name, value) in members {
            let pointer = format!("{above}/{name}");
            places(value, &pointer, found);
            found.push(pointer);
        }
    }
    let Some((n, value)) = fault else {
        return message;
    };
    let mut found = Vec::new();
    places(&message, "", &mut found);
    *message.pointer_mut(&found[n % found.len()]).unwrap() = value;
    message
}

proptest! {
    // spec: SAP-9-1
    #[test]
    fn schema_and_validator_agree_on_anything(
        (task, task_fault) in message(shapes::TASK),
        (result, result_fault) in message(shapes::RESULT),
        (record, record_fault) in message(shapes::RECORD),
    ) {
        thread_local!(static KINDS: [Kind; 4] = kinds());
        let messages = [(0, spoil(task, task_fault)), (1, spoil(result, result_fault)), (3, spoil(record, record_fault))];
        KINDS.with(|kinds| {
            for (kind, message) in messages {
                let report = (kinds[kind].judge)(message.to_string().as_bytes());
                let holds = kinds[kind].schema.is_valid(&message);
                prop_assert_eq!(report.is_valid(), holds, "{}\n{}", message, report);
            }
            Ok(())
        })?;
    }
}

/// The messages of which the schemas and the typed validator judge alike, and what they say.
#[cfg(feature = "external-tests")]
fn judged() -> Vec<(&'static str, bool, Value)> {
    let names = ["task", "result", "constitutional-context", "cache-record"];
    let mut judged = Vec::new();
    for (name, kind) in names.into_iter().zip(kinds()) {
        let faults = shapes::faults(kind.fields).into_iter();
        let messages = faults.map(|fault| fault.message);
        for message in messages.chain(shapes::variants(kind.fields)) {
            judged.push((name, kind.schema.is_valid(&message), message));
        }
    }
    judged
}

// spec: SAP-9-1
#[cfg(feature = "external-tests")]
#[test]
fn two_other_validators_say_the_same_of_every_message() {
    use std::process::Command;

    let lines: Vec<String> = (judged().iter())
        .map(|judged| serde_json::to_string(judged).unwrap())
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("messages");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var_os("UBOS_PYTHON").unwrap_or_else(|| "python3".into());
    let modules = std::env::var_os("UBOS_NODE_MODULES");
    let modules = modules.expect("UBOS_NODE_MODULES is a folder of npm's packages");
    let mut python = Command::new(python);
    python.arg(root.join("tests/external/schemas.py"));
    let mut node = Command::new("node");
    node.arg(root.join("tests/external/schemas.mjs"))
        .arg(modules);
    for program in [&mut python, &mut node] {
        let output = program.arg(root.join("schemas")).arg(&file).output();
        let output = output.unwrap();
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program:?}: {talk}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let wanted = serde_json::json!({"judged": lines.len(), "different": []});
        assert_eq!(said, wanted, "{program:?}");
    }
}
