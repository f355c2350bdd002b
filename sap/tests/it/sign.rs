//! Signatures: what they hold, and what breaks them.

use sap::sign::{KeyError, Keys, Signature, SignatureError, SigningKey};
use sap::store::MemoryTranscript;
use sap::transcript::{Head, Transcript as _};
use serde_json::json;
use ubos_common::secret::Secret;

use crate::samples::{read_task, task, with};

fn key(id: &str, seed: u8) -> SigningKey {
    SigningKey::from_seed(id, &Secret::new([seed; 32])).unwrap()
}

fn typed(task: &serde_json::Value) -> sap::Task {
    read_task(task, &sap::validate::Options::default())
        .unwrap()
        .0
}

// spec: SAP-2-4, SAP-11-2
#[test]
fn a_signature_is_of_one_message_and_one_agent() {
    let desk = key("desk", 1);
    let keys = Keys::default()
        .trust("desk", desk.public_key(), "A-prime".parse().unwrap())
        .trust(
            "other",
            key("other", 2).public_key(),
            "A-other".parse().unwrap(),
        );
    let signed = typed(&task());
    let signature = desk.sign_task(&signed).unwrap();
    assert_eq!(keys.check_task(&signed, &signature), Ok(()));
    // Nothing is added to the message, and the order of its members does not count.
    let mut members: Vec<_> = task().as_object().unwrap().clone().into_iter().collect();
    members.reverse();
    let lines: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{name:?}: {value}"))
        .collect();
    let text = format!("{{ {} }}", lines.join(" ,\n"));
    let reordered = sap::validate::decode_task(text.as_bytes(), &Default::default());
    assert_eq!(keys.check_task(&reordered.unwrap().0, &signature), Ok(()));
    for (pointer, value) in [
        ("/taskId", json!("00000000-0000-0000-0000-000000000001")),
        ("/target/capability", json!("consult.burn")),
        ("/unknown", json!(1)),
    ] {
        let changed = typed(&with(task(), pointer, Some(value)));
        assert_eq!(
            keys.check_task(&changed, &signature),
            Err(SignatureError::Mismatch),
            "{pointer}"
        );
    }
    let other = key("other", 2).sign_task(&signed).unwrap();
    assert_eq!(
        keys.check_task(&signed, &other),
        Err(SignatureError::OtherAgent)
    );
    let unknown = key("none", 1).sign_task(&signed).unwrap();
    assert_eq!(
        keys.check_task(&signed, &unknown),
        Err(SignatureError::UnknownKey)
    );
    let false_key = key("desk", 3).sign_task(&signed).unwrap();
    assert_eq!(
        keys.check_task(&signed, &false_key),
        Err(SignatureError::Mismatch)
    );
    let inexact = typed(&with(
        task(),
        "/payload/n",
        Some(json!(9_007_199_254_740_993_u64)),
    ));
    assert!(desk.sign_task(&inexact).is_err());
    assert_eq!(
        keys.check_task(&inexact, &signature),
        Err(SignatureError::NotCanonical)
    );
}

// spec: SAP-10-1
#[test]
fn the_head_of_a_transcript_is_signed() {
    let key = key("ledger", 4);
    let keys = Keys::default().trust("ledger", key.public_key(), "A-ml-001".parse().unwrap());
    let head = MemoryTranscript::default().verify(None).unwrap().head;
    let signature = key.sign_head(&head);
    assert_eq!(
        keys.check_head(&head, &signature).unwrap().as_str(),
        "A-ml-001"
    );
    let other = Head::from("another".to_owned());
    assert_eq!(
        keys.check_head(&other, &signature),
        Err(SignatureError::Mismatch)
    );
    // A task whose text is that of a head has another signature.
    assert!(keys.check_task(&typed(&task()), &signature).is_err());
}

#[test]
fn a_signature_is_a_name_and_digits() {
    let signature = key("desk-1", 1).sign_head(&Head::from("x".to_owned()));
    let text = signature.to_string();
    assert_eq!(text.len(), "desk-1:".len() + 128);
    assert_eq!(text.parse::<Signature>(), Ok(signature));
    let digits = "0".repeat(128);
    for false_text in [
        String::new(),
        digits.clone(),
        format!(":{digits}"),
        format!("a b:{digits}"),
        format!("a:{}", &digits[1..]),
        format!("a:{digits}0"),
        format!("a:{}+0", &digits[2..]),
        format!("{}:{digits}", "a".repeat(129)),
    ] {
        let read = false_text.parse::<Signature>();
        assert_eq!(read, Err(SignatureError::Syntax), "{false_text}");
    }
    let seed = Secret::new([0; 32]);
    for id in ["", "a:b", "a b", "ü"] {
        let refused = SigningKey::from_seed(id, &seed).unwrap_err();
        assert_eq!(refused, KeyError::Id, "{id}");
    }
    assert!(!format!("{:?}", key("desk", 7)).contains('7'));
}

/// RFC 8032, 7.1, test 1: the key of a seed.
#[test]
fn keys_are_those_of_the_standard() {
    let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    let key = SigningKey::from_seed("rfc", &Secret::new(seed)).unwrap();
    assert_eq!(key.public_key(), public);
}

fn hex(text: &str) -> [u8; 32] {
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}
