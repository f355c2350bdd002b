//! What the generators make keeps the rules, and is read back as it was made.

use arbitrary::{Arbitrary as _, Unstructured};
use opensentience_wire::Envelope;
use opensentience_wire::Limits;
use opensentience_wire::arbitrary::{message, seeds};
use opensentience_wire::message::{Message, MessageType};
use opensentience_wire::validate;
use proptest::prelude::*;
use std::collections::BTreeSet;
use ubos_common::id::IdSource;
use ubos_common::json;

proptest! {
    // spec: OSW-3-8
    #[test]
    fn generated_messages_keep_the_rules_and_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..1_000)) {
        if let Ok(text) = message(&mut Unstructured::new(&bytes)) {
            let report = validate::message(&text, &Limits::default());
            prop_assert!(report.is_valid(), "{report}");
            let (envelope, _) = Envelope::decode(&text, &json::Limits::default()).unwrap();
            let value = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
            prop_assert_eq!(value(&json::to_vec(&envelope)), value(&text));
        }
    }
}

fn random(seed: u64) -> Vec<u8> {
    let mut ids = IdSource::seeded(seed);
    (0..256).flat_map(|_| ids.bits().to_le_bytes()).collect()
}

#[test]
fn optional_members_and_large_numbers_are_made() {
    let made = (0..1_000).flat_map(|seed| message(&mut Unstructured::new(&random(seed))));
    let made = String::from_utf8(made.flatten().collect()).unwrap();
    let largest = ((1_u64 << 53) - 1).to_string();
    for wanted in ["\"actor\"", "causation_id", "\"output\"", &largest] {
        assert!(made.contains(wanted), "{wanted}");
    }
}

#[test]
fn every_type_of_message_and_every_member_is_made() {
    let mut made = BTreeSet::new();
    for seed in 0..1_000_u64 {
        if let Ok(text) = message(&mut Unstructured::new(&random(seed))) {
            let message: serde_json::Value = serde_json::from_slice(&text).unwrap();
            made.extend(message.as_object().unwrap().keys().cloned());
            let kind = message["type"].as_str().unwrap();
            // A refusal has the type of a welcome, and nothing else of it.
            let is_refusal = kind == "core.welcome" && !message["error"].is_null();
            assert!(!is_refusal || message["payload"] == serde_json::json!({}));
            made.insert(if is_refusal { "a refusal" } else { kind }.to_owned());
        }
    }
    let members = ["in_reply_to", "correlation_id", "causation_id", "x-later"];
    let known = MessageType::WORDS.iter().chain(&["a refusal"]);
    let known = known.chain(&members);
    let missing: Vec<_> = known.filter(|known| !made.contains(**known)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn there_are_seeds_to_begin_with() {
    assert!(seeds().count() > 100);
    let bytes: Vec<u8> = (0..=255).collect();
    assert!(Message::arbitrary(&mut Unstructured::new(&bytes)).is_ok());
}
