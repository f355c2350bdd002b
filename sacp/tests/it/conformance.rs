//! The vectors and the kit that is made of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sacp::conformance::{Reference, VECTORS, Validator, cases};
use sacp::validate::verdict;
use sacp::{AnyMessage, Reply};
use serde_json::Value;
use ubos_common::conformance::{prove, run};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors"))
}

fn index() -> Vec<Value> {
    serde_json::from_slice(&fs::read(folder().join("index.json")).unwrap()).unwrap()
}

// spec: SACP-8-4, SACP-6-1
#[test]
fn every_vector_gets_its_verdict() {
    let index = index();
    assert_eq!(index.len(), VECTORS.len());
    for (entry, vector) in index.iter().zip(VECTORS) {
        let text = |name: &str| entry[name].as_str();
        assert_eq!(
            (text("file"), text("clause")),
            (Some(vector.file), Some(vector.clause))
        );
        assert_eq!(text("code"), vector.code.map(|code| code.as_str()));
        let bytes = fs::read(folder().join(vector.file)).unwrap();
        assert_eq!(bytes, vector.message);
        match verdict(&bytes) {
            Reply::Valid { .. } => {
                assert_eq!(text("status"), Some("VALID"), "{}", vector.file);
                let (message, _) = AnyMessage::decode(&bytes).unwrap();
                assert_eq!(
                    Some(message.edition().as_str()),
                    text("edition"),
                    "{}",
                    vector.file
                );
                let (ours, theirs): (Value, Value) = (
                    serde_json::from_slice(&message.encode()).unwrap(),
                    serde_json::from_slice(&bytes).unwrap(),
                );
                assert_eq!(ours, theirs, "{}", vector.file);
            }
            Reply::Err(error) => {
                assert_eq!(
                    text("code"),
                    Some(error.code.as_str()),
                    "{}: {error}",
                    vector.file
                );
                if let Some(pointer) = text("pointer") {
                    assert_eq!(error.pointer.as_deref(), Some(pointer), "{}", vector.file);
                }
            }
            other => panic!("{}: {other:?}", vector.file),
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
fn the_kit_is_proved_and_finds_a_stranger_out() {
    prove(&cases()).unwrap();
    let clauses: BTreeSet<_> = VECTORS.iter().map(|vector| vector.clause).collect();
    let cased: BTreeSet<_> = cases().iter().map(|case| case.clause).collect();
    assert_eq!(clauses, cased);
    assert!(run(&cases(), cases().len(), |_| Ok(Box::new(Reference))).is_conformant());
    struct Yes;
    impl Validator for Yes {
        fn answer(&mut self, _: &[u8]) -> Vec<u8> {
            br#"{"status":"VALID"}"#.to_vec()
        }
    }
    let report = run(&cases(), 1, |_| Ok(Box::new(Yes)));
    assert!(!report.is_conformant() && report.to_string().contains("VALID where"));
}
