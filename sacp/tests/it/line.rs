//! The line form: says what the JSON form says, whatever stands in it.

use proptest::prelude::*;
use sacp::line::{GRAMMAR, LineError, read, write};
use sacp::{AnyMessage, Message};
use serde_json::{Value, json};

fn message(value: &Value) -> AnyMessage {
    AnyMessage::decode(value.to_string().as_bytes()).unwrap().0
}

fn round_trip(value: &Value) -> String {
    let message = message(value);
    let text = write(&message);
    let again = read(&text).unwrap_or_else(|err| panic!("{err}\n{text}"));
    assert_eq!(again.encode(), message.encode(), "{text}");
    text
}

#[test]
fn the_sample_is_told_in_six_lines() {
    let text = round_trip(
        &json!({"msg_id": "abc123", "g": "FIND_HOTEL", "ctx": {"loc": "Paris", "in": "06-01", "out": "06-05",
        "bdg": 150, "am": ["wifi", "bf"]}, "plan": [{"parallel": [["s", "H_API", {"c": "Paris", "p_max": 150}], ["s", "B_API", {}]]},
        ["join", "MERGE", {}], ["p", "PRES", {"n": 5}]], "out_fmt": "human", "state": "PENDING"}),
    );
    assert_eq!(
        text,
        "FIND_HOTEL #abc123 human PENDING\nctx am [wifi bf] bdg 150 in 06-01 loc Paris out 06-05\n\
         | s H_API c Paris p_max 150\n| s B_API\njoin MERGE\np PRES n 5"
    );
}

#[test]
fn what_could_be_something_else_is_quoted() {
    for text in [
        "", " ", "a b", "150", "-0", "1e3", "true", "null", "[", "]x", "{", "}", "\"", "\\", ";",
        "a;b", "#x", ">x", "@x", "|", "a\nb", "\r", "\u{2028}", "\u{85}", "\u{0}", "\u{feff}", "é",
        "日本", "🦀", "ctx", "x\ty", "06-01", "1.0.0", "v1.0.0",
    ] {
        round_trip(
            &json!({"g": "G", "ctx": {text: text}, "plan": [["v", "T", {text: [text, {text: text}]}]]}),
        );
        if !text.is_empty() {
            let name = format!("x{text}");
            round_trip(
                &json!({"msg_id": text, "reply_to": text, "g": text, "plan": [[text, text, {}], ["ctx", "ctx", {}]], name: text}),
            );
        }
    }
}

#[test]
fn numbers_and_absent_members_stay_as_they_are() {
    let text = r#"{"g":"G","plan":[["v","T",{"n":1e3,"big":123456789012345678901234567890,"z":-0.0,"no":null}]]}"#;
    let old = Message::decode(text.as_bytes()).unwrap();
    let again = read(&write(&AnyMessage::from(old))).unwrap();
    assert_eq!(again.encode(), text.as_bytes());
    for message in [
        json!({"g": "G", "plan": []}),
        json!({"g": "G", "plan": [], "ctx": {}, "test_mode": false, "proto_ver": "0.1", "out_fmt": "raw"}),
        json!({"g": "G", "plan": [], "test_mode": true, "subtask": {"g": "S", "plan": [["v", "T", {"x": [[], {}]}]]}}),
    ] {
        round_trip(&message);
    }
}

#[test]
fn groups_keep_their_form() {
    let act = |n: usize| json!(["v", "T", {"n": n}]);
    let group = |members: Vec<Value>| json!({"parallel": members});
    for plan in [
        vec![group(vec![act(1)]), group(vec![act(2)])],
        vec![
            group(vec![group(vec![act(1)]), group(vec![act(2)])]),
            act(3),
        ],
        vec![
            group(vec![group(vec![group(vec![act(1)])])]),
            group(vec![group(vec![act(2)]), act(3)]),
        ],
        vec![
            group(vec![act(1), group(vec![act(2)]), act(3)]),
            json!(["join", "M", {}]),
            group(vec![act(4)]),
        ],
        // As deep as groups may be.
        vec![(0..8).fold(act(1), |inner, _| group(vec![inner]))],
    ] {
        round_trip(&json!({"g": "G", "plan": plan}));
    }
}

#[test]
fn steps_of_1_0_are_named_lines() {
    let text = round_trip(
        &json!({"proto_ver": "1.0.0", "msg_id": "m1", "ts": "2025-10-01T12:00:00Z", "sender": "p", "g": "G",
        "plan": [{"id": "a:", "verb": "ctx", "tool": "T", "params": {"x": ";"}},
            {"id": "b", "verb": "v", "tool": "T", "params": {}, "depends_on": ["a:"], "retry": {"max_attempts": 2}}],
        "state": "FAILED", "error": {"code": "TIMEOUT", "message": "too late"}, "ext": {"acme.x": [1]}}),
    );
    assert!(text.starts_with("G #m1 FAILED v1.0.0\n"));
    assert!(
        text.ends_with("\na:: ctx T x \";\"\nb: v T ; depends_on [a:] retry {max_attempts 2}"),
        "{text}"
    );
}

#[test]
fn a_broken_line_is_refused_with_its_place() {
    for (text, line, column) in [
        ("", 1, 1),
        ("G human raw", 1, 9),
        ("G loud", 1, 3),
        ("G\n\nv", 3, 2),
        ("G\nv T k", 2, 6),
        ("G\nv T k [1", 2, 9),
        ("G\nv T k {a 1", 2, 11),
        ("G\nv T k ]", 2, 7),
        ("G\nv T é \"open", 2, 7),
        ("G\n|", 2, 2),
        ("G\n||||||||| v T", 2, 11),
        ("G\n@x 1 2", 2, 6),
    ] {
        let Err(LineError::Form {
            line: l, column: c, ..
        }) = read(text)
        else {
            panic!("{text:?}: {:?}", read(text))
        };
        assert_eq!((l, c), (line, column), "{text:?}");
    }
    for refused in [
        "G\njoin M",
        "G\n@g X",
        "G\n@plan []",
        "G v2.0",
        "G\nctx a 1 a 2",
        "G\nv T a 1 a 2",
    ] {
        assert!(
            matches!(read(refused), Err(LineError::Refused(_))),
            "{refused}"
        );
    }
    let deep = |depth: usize| format!("G\n@x {}7{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&deep(63)).is_ok());
    for depth in [64, 10_000] {
        let refused = read(&deep(depth)).unwrap_err().to_string();
        let wanted = "line 2 column 68: fewer values inside one another wanted";
        assert_eq!(refused, wanted, "{depth}");
    }
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<String>().prop_map(Value::from),
        "[ -~]{0,6}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::hash_map(prop_oneof![any::<String>(), "[ -~]{0,4}"], inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    // spec: SACP-1-2
    #[test]
    fn every_message_comes_back(verb in "\\PC{1,8}", tool in any::<String>(), goal in any::<String>(), value in tree(), name in "\\PC{0,5}") {
        let word = |text: String| if text.is_empty() { "x".to_owned() } else { text };
        let mut whole = json!({"g": word(goal), "ctx": {name.clone(): value}, "plan": [
            {"parallel": [[verb, word(tool), {name.clone(): value}], {"parallel": [["v", "T", {"subtaskx": value}]]}]}]});
        if !["g", "ctx", "plan", "msg_id", "reply_to", "out_fmt", "state", "proto_ver", "subtask", "test_mode"].contains(&name.as_str()) {
            whole[name] = value;
        }
        round_trip(&whole);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(G|[ -~]{0,4})([ \n|@#;]|\\[|\\]|\\{|\\}|\"|ctx|v T|1|é){0,20}") {
        if let Ok(message) = read(&text) {
            prop_assert_eq!(read(&write(&message)).unwrap().encode(), message.encode());
        }
    }
}

#[test]
fn each_line_of_the_grammar_has_a_sample_that_is_read() {
    let samples = [
        (
            "value:",
            "GOAL\nctx a 1 b true c word d \"a text\" e [1 x] f {k 1}",
        ),
        ("line 1:", "GOAL #m >n summary DONE v0.1 test"),
        ("ctx key", "GOAL\nctx city Paris nights 2"),
        ("verb TOOL", "GOAL\nsearch H_API city Paris"),
        ("| before", "GOAL\n| a T\n|| b T\n|| c T"),
        ("join TOOL:", "GOAL\n| a T\n| b T\njoin SUM"),
        ("@name value:", "GOAL\n@trace 1"),
    ];
    for (line, sample) in samples {
        assert!(
            GRAMMAR.lines().any(|known| known.starts_with(line)),
            "{line}"
        );
        let message = read(sample).unwrap_or_else(|err| panic!("{err}\n{sample}"));
        assert_eq!(read(&write(&message)).unwrap().encode(), message.encode());
    }
}

#[test]
fn a_message_of_1_0_is_pending_where_its_line_names_no_state() {
    let text = |state: &str| {
        format!(
            r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G",
            "plan":[{{"id":"a","verb":"v","tool":"T","params":{{}}}}],"state":"{state}"}}"#
        )
    };
    for (state, head) in [
        ("PENDING", "G #m v1.0.0\n"),
        ("WAITING", "G #m WAITING v1.0.0\n"),
    ] {
        let (message, _) = AnyMessage::decode(text(state).as_bytes()).unwrap();
        let told = write(&message);
        assert!(told.starts_with(head), "{told}");
        assert_eq!(read(&told).unwrap(), message);
    }
    // In 0.1 a state that is not named is none.
    let old = read("G #m\nv T").unwrap();
    assert!(!String::from_utf8(old.encode()).unwrap().contains("state"));
}

#[test]
fn white_space_around_a_line_says_nothing() {
    let padded = read("\t GOAL #m \r\n\r\n  | a T k 1 \r\n ctx n 2\n").unwrap();
    assert_eq!(padded, read("GOAL #m\n| a T k 1\nctx n 2").unwrap());
}

#[test]
fn a_text_may_be_as_long_as_a_message() {
    let limit = ubos_common::json::Limits::default().max_bytes;
    let text = |bytes: usize| format!("G\nv T{}", " ".repeat(bytes - 5));
    assert!(read(&text(limit)).is_ok());
    let seen = limit + 1;
    let refused = read(&text(seen)).unwrap_err();
    assert_eq!(refused, LineError::TooLarge { seen, limit });
}
