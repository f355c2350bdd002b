//! Messages of the specification.

use opensentience_wire::message::Message;
use opensentience_wire::{DecodeError, Envelope};
use serde_json::Value;
use ubos_common::json::{self, Limits};

// spec: OSW-8-2
// spec: OSW-3-2
// spec: OSW-3-8
#[test]
fn the_examples_read_without_a_finding_and_write_back() {
    for (text, keys) in [
        (
            include_str!("../../vectors/valid/spec-8-agent-hello.json"),
            1,
        ),
        (
            include_str!("../../vectors/valid/spec-8-core-tool-call.json"),
            2,
        ),
        (
            include_str!("../../vectors/valid/spec-8-agent-tool-result.json"),
            3,
        ),
    ] {
        let mut value: Value = serde_json::from_str(text).unwrap();
        value["later"] = Value::from(keys);
        value["payload"]["later"] = Value::from(keys);
        let text = value.to_string();
        let (envelope, report) = Envelope::decode(text.as_bytes(), &Limits::default()).unwrap();
        assert!(report.is_empty());
        let (message, report) = envelope.message(&Limits::default()).unwrap();
        assert!(report.is_empty() && !matches!(message, Message::Plain(..)));
        let again: Value = serde_json::from_str(&json::to_string(&envelope)).unwrap();
        assert_eq!(again, value);
        let payload: Value = serde_json::from_str(&json::to_string(&message)).unwrap();
        assert_eq!(payload, value["payload"]);
    }
}

// spec: OSW-3-1
#[test]
fn each_breach_of_the_envelope_has_its_pointer() {
    let pointers = |refused: DecodeError| -> Vec<String> {
        let DecodeError::Invalid(report) = refused else {
            panic!("{refused}")
        };
        report.iter().map(|f| f.pointer.clone()).collect()
    };
    let text = br#"{"v":1.0,"type":"","id":null,"ts":"2026-01-16","in_reply_to":null,"request_id":7,"payload":[]}"#;
    let refused = Envelope::decode(text, &Limits::default()).unwrap_err();
    assert_eq!(
        pointers(refused),
        ["/v", "/type", "/id", "/ts", "/request_id", "/payload"]
    );
    // A sound message may be more than the reader of its payload takes.
    let text = include_bytes!("../../vectors/valid/spec-8-agent-hello.json");
    let (envelope, _) = Envelope::decode(text, &Limits::default()).unwrap();
    let refused = envelope.message(&Limits::default().with_max_depth(1));
    assert_eq!(pointers(refused.unwrap_err()), ["/payload"]);
}
