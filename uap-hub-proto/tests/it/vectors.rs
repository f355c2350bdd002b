//! The published vectors: read, judged and written back.

use std::{fs, path::Path};

use prost::Message;
use serde_json::{Value, json};
use uap_hub_proto::{
    validate::Validate,
    wire::{
        AgentRegistration, AgentRegistrationResponse, ListenRequest, ListenResponse, TestInit,
        TestResponse, TranslationInit, TranslationResponse,
    },
};

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// The findings, or null where the bytes cannot be read. What is read writes the same bytes.
fn judged<M: Message + Default + Validate>(bytes: &[u8]) -> Value {
    let Ok(message) = M::decode(bytes) else {
        return Value::Null;
    };
    assert_eq!(message.encode_to_vec(), bytes);
    let report = message.validate();
    let lines = report
        .iter()
        .map(|one| json!(format!("{} {} {}", one.level, one.pointer, one.code)));
    Value::Array(lines.collect())
}

// spec: HUB-2-1, HUB-3-1, HUB-4-2, HUB-4-7, HUB-4-9
#[test]
fn vectors_are_judged_as_they_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/messages.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut fresh = String::new();
    for line in text.lines() {
        let mut vector: Value = serde_json::from_str(line).unwrap();
        let judge = match vector["message"].as_str().unwrap() {
            "AgentRegistration" => judged::<AgentRegistration>,
            "AgentRegistrationResponse" => judged::<AgentRegistrationResponse>,
            "ListenRequest" => judged::<ListenRequest>,
            "ListenResponse" => judged::<ListenResponse>,
            "TestInit" => judged::<TestInit>,
            "TestResponse" => judged::<TestResponse>,
            "TranslationInit" => judged::<TranslationInit>,
            "TranslationResponse" => judged::<TranslationResponse>,
            other => panic!("{other}"),
        };
        let findings = judge(&bytes(vector["bytes"].as_str().unwrap()));
        if std::env::var_os("UPDATE_VECTORS").is_none() {
            assert_eq!(vector["findings"], findings, "{}", vector["name"]);
        }
        vector["findings"] = findings;
        fresh.push_str(&format!("{vector}\n"));
    }
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        fs::write(&path, fresh).unwrap();
    }
}
