//! The published vectors hold for this crate, in every release.

use sap::cache::{Keys, WholePayload};
use sap::validate::{Options, decode_result, decode_task, findings};
use serde_json::Value;
use ubos_common::canon::Digest;
use ubos_common::violation::Profile;
use ubos_common::violation::{Level, Report};

fn lines(file: &str) -> impl Iterator<Item = Value> {
    file.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// What the message of a line is found to be, and how it is written.
fn read(line: &Value, options: &Options) -> (Report, Option<Vec<u8>>) {
    let text = line["text"].as_str().unwrap().as_bytes();
    if line["kind"] == "task" {
        let outcome = decode_task(text, options);
        (
            findings(&outcome),
            outcome.ok().map(|(task, _)| task.encode()),
        )
    } else {
        let outcome = decode_result(text, options);
        (
            findings(&outcome),
            outcome.ok().map(|(result, _)| result.encode()),
        )
    }
}

// spec: SAP-2-4, SAP-2-6
#[test]
fn every_vector_has_its_verdict_and_its_pointers() {
    let valid = lines(include_str!("../../vectors/valid.jsonl"));
    let invalid = lines(include_str!("../../vectors/invalid.jsonl"));
    let mut names = std::collections::BTreeSet::new();
    for line in valid.chain(invalid) {
        let name = line["name"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{name} stands twice");
        let (report, _) = read(&line, &Options::default());
        let musts = report.iter().filter(|f| f.level == Level::Must);
        let mut pointers: Vec<&str> = musts.map(|f| f.pointer.as_str()).collect();
        let wanted = line["strict"].as_array().unwrap().iter();
        let mut wanted: Vec<&str> = wanted.map(|p| p.as_str().unwrap()).collect();
        pointers.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(pointers, wanted, "{name}");
        let (lenient, written) = read(&line, &Options::from(Profile::Lenient));
        assert_eq!(
            written.is_some(),
            line["lenient"] == true,
            "{name}: {lenient}"
        );
    }
}

// spec: SAP-2-4
#[test]
fn frozen_messages_are_written_as_ever() {
    let file = include_str!("../../vectors/frozen.jsonl");
    for line in lines(file) {
        let (report, written) = read(&line, &Options::default());
        assert!(report.is_valid(), "{report}");
        let written = String::from_utf8(written.unwrap()).unwrap();
        assert_eq!(
            written,
            line["written"].as_str().unwrap(),
            "{}",
            line["name"]
        );
        // What was written is read back, and written the same again.
        let again = serde_json::json!({"kind": line["kind"], "text": written});
        assert_eq!(
            read(&again, &Options::default()).1.unwrap(),
            written.as_bytes()
        );
    }
    // Lines may be added in a file of their own: these are never changed.
    let frozen = "bb5084f8a51b61f7debf681d4c2efec7580607086b940c1ed417ab7bad5c8b86";
    assert_eq!(Digest::of_bytes(file.as_bytes()).to_string(), frozen);
}

// spec: SAP-6-1, SAP-6-2, SAP-6-13
#[test]
fn published_keys_are_the_keys() {
    let mut keys = std::collections::BTreeMap::new();
    for line in lines(include_str!("../../vectors/cache-keys.jsonl")) {
        let text = line["task"].as_str().unwrap().as_bytes();
        let (task, _) = decode_task(text, &Options::default()).unwrap();
        let own = Keys::of(&task, &WholePayload).unwrap();
        assert_eq!(own.key.to_string(), line["cacheKey"].as_str().unwrap());
        assert_eq!(
            own.fingerprint.to_string(),
            line["fingerprint"].as_str().unwrap()
        );
        keys.insert(line["name"].as_str().unwrap().to_owned(), own.key);
    }
    for same in ["other-spelling", "principles-order", "other-ids"] {
        assert_eq!(keys[same], keys["whole"], "{same}");
    }
    let different: std::collections::BTreeSet<_> = keys.values().collect();
    assert_eq!(different.len(), keys.len() - 3);
}
