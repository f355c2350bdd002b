//! What the generators draw is valid, whatever they are given.

use arbitrary::{Arbitrary, Unstructured};
use proptest::prelude::*;
use sacp::{AnyMessage, Message, line};
use serde_json::Value;

/// What the generators never draw, no test sees.
#[test]
fn every_member_is_drawn() {
    let mut seen = String::new();
    let (mut tasks, mut groups, mut values) = (0, 0, 0);
    for n in 0..2_000_u64 {
        let word = |part: u64| {
            ubos_common::id::IdSource::seeded(n * 64 + part)
                .uuid()
                .into_bytes()
        };
        let bytes: Vec<u8> = (0..16).flat_map(word).collect();
        let message = AnyMessage::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        let text = String::from_utf8(message.encode()).unwrap();
        let tree: Value = serde_json::from_str(&text).unwrap();
        tasks = tasks.max(nested(&tree, "subtask"));
        groups = groups.max(nested(&tree["plan"], "parallel"));
        values = values.max(depth(&tree["ctx"]));
        seen += &text;
    }
    // As deep as they are drawn, and no deeper: three groups in each of three tasks.
    assert_eq!((tasks, groups, values), (2, 9, 4));
    for said in [
        "null",
        "true",
        "false",
        "1e3",
        "-0.5",
        "[",
        "{",
        "\"1.0.",
        "\"human\"",
        "\"exponential\"",
        "\"spare\"",
        "10,",
    ] {
        assert!(seen.contains(&format!(":{said}")), "{said}");
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

#[test]
fn bytes_that_always_go_deeper_make_a_message() {
    for bytes in [&[][..], &[8; 4096]] {
        Message::arbitrary(&mut Unstructured::new(bytes)).unwrap();
    }
}

/// How many members of this name stand in one another.
fn nested(tree: &Value, name: &str) -> usize {
    let below =
        |(member, value): (&String, &Value)| usize::from(member == name) + nested(value, name);
    match tree {
        Value::Object(members) => members.iter().map(below).max().unwrap_or(0),
        Value::Array(items) => items
            .iter()
            .map(|item| nested(item, name))
            .max()
            .unwrap_or(0),
        _ => 0,
    }
}

fn depth(tree: &Value) -> usize {
    match tree {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
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
