//! The vectors of this crate, and the kit that is made of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sacp::validate::verdict;
use sacp::{AnyMessage, Reply};
use serde_json::Value;
use ubos_conformance::sacp::{Answer, SacpVector, vector_kit};
use ubos_conformance::{Expectations, TestVector as _};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors"))
}

fn index() -> Vec<Value> {
    serde_json::from_slice(&fs::read(folder().join("index.json")).unwrap()).unwrap()
}

// spec: SACP-8-4, SACP-6-1
#[test]
fn every_vector_gets_its_verdict() {
    for entry in index() {
        let text = |name: &str| entry[name].as_str();
        let file = text("file").unwrap();
        let bytes = fs::read(folder().join(file)).unwrap();
        match verdict(&bytes) {
            Reply::Valid { .. } => {
                assert_eq!(text("status"), Some("VALID"), "{file}");
                let (message, _) = AnyMessage::decode(&bytes).unwrap();
                assert_eq!(
                    Some(message.edition().to_string()),
                    text("edition").map(str::to_owned),
                    "{file}"
                );
                let (ours, theirs): (Value, Value) = (
                    serde_json::from_slice(&message.encode()).unwrap(),
                    serde_json::from_slice(&bytes).unwrap(),
                );
                assert_eq!(ours, theirs, "{file}");
            }
            Reply::Err(error) => {
                assert_eq!(text("code"), Some(error.code.as_str()), "{file}: {error}");
                if let Some(pointer) = text("pointer") {
                    assert_eq!(error.pointer.as_deref(), Some(pointer), "{file}");
                }
            }
            other => panic!("{file}: {other:?}"),
        }
    }
}

#[test]
fn every_file_is_in_the_index() {
    let listed: BTreeSet<String> = index()
        .iter()
        .map(|entry| entry["file"].as_str().unwrap().to_owned())
        .collect();
    let mut there = BTreeSet::new();
    for sort in ["valid", "invalid"] {
        for entry in fs::read_dir(folder().join(sort)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            there.insert(format!("{sort}/{name}"));
        }
    }
    assert_eq!(listed, there);
}

#[test]
fn the_kit_covers_every_vector_and_is_proved() {
    let kit = vector_kit();
    kit.prove().unwrap();
    let clauses: BTreeSet<String> = index()
        .iter()
        .map(|entry| entry["clause"].as_str().unwrap().to_owned())
        .collect();
    let cased: BTreeSet<String> = kit
        .cases()
        .iter()
        .map(|case| case.clause().to_owned())
        .collect();
    assert_eq!(clauses, cased);
    let mut shown = 0;
    let expectations = Expectations::new().with_floor(kit.cases().len());
    let report = kit.run(&expectations, |_| {
        Ok(Box::new(|vector: &SacpVector| Some(vector.expected())))
    });
    assert!(report.is_conformant(), "{report}");
    for case in kit.cases() {
        shown += index()
            .iter()
            .filter(|entry| entry["clause"] == case.clause())
            .count();
    }
    assert_eq!(shown, index().len());
}

#[test]
fn a_validator_that_accepts_everything_fails() {
    let kit = vector_kit();
    let report = kit.run(&Expectations::new(), |_| {
        Ok(Box::new(|_: &SacpVector| Some(Answer::Valid)))
    });
    assert!(!report.is_conformant());
    assert!(report.to_string().contains("VALID where"), "{report}");
}
