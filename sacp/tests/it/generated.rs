//! What the generators draw is valid, whatever they are given.

use arbitrary::{Arbitrary, Unstructured};
use proptest::prelude::*;
use sacp::{AnyMessage, line};

/// What the generators never draw, no test sees.
#[test]
fn every_member_is_drawn() {
    let mut seen = String::new();
    for n in 0..2_000_u64 {
        let word = |part: u64| {
            ubos_common::id::IdSource::seeded(n * 64 + part)
                .uuid()
                .into_bytes()
        };
        let bytes: Vec<u8> = (0..16).flat_map(word).collect();
        let message = AnyMessage::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        seen += &String::from_utf8(message.encode()).unwrap();
    }
    for member in [
        "msg_id",
        "reply_to",
        "ctx",
        "out_fmt",
        "state",
        "test_mode",
        "subtask",
        "parallel",
        "proto_ver",
        "sender",
        "depends_on",
        "retry",
        "backoff_ms",
        "metrics",
        "recipient",
        "on_error",
        "fallback_step",
        "output_key",
        "timeout_ms",
        "trace",
        "ext",
    ] {
        assert!(seen.contains(&format!("\"{member}\":")), "{member}");
    }
    assert!(seen.contains("]},[\"join\","), "a join behind a group");
}

proptest! {
    #[test]
    fn drawn_messages_are_valid_and_come_back(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let message = AnyMessage::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        let (again, _) = AnyMessage::decode(&message.encode()).unwrap();
        prop_assert_eq!(&again, &message);
        let told = line::write(&message);
        prop_assert_eq!(line::read(&told).unwrap().encode(), message.encode(), "{}", told);
    }
}
