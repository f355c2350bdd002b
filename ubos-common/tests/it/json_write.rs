//! What is written, and what is kept to be written again.

use serde_json::Value;
use std::collections::BTreeMap;

use ubos_common::json::*;
use ubos_common::violation::Profile;

#[test]
fn unknown_members_take_the_bytes_of_their_names_and_values() {
    let with = |name: &'static str, value: &str| {
        let mut members = Members::new();
        members.insert(name, RawBuf::parse(value).unwrap());
        members.bytes()
    };
    assert_eq!(Members::new().bytes(), 0);
    assert_eq!(with("name", "12345"), with("n", "1") + 7);
}

#[test]
fn an_object_is_made_of_what_serializes_to_one() {
    let of = |value: Value| RawObject::from_serialize(&value).unwrap();
    let object = of(serde_json::json!({"a": [1]})).unwrap();
    assert_eq!(to_string(&object), r#"{"a":[1]}"#);
    assert_eq!(of(serde_json::json!([1])), None);
}

#[test]
fn every_escape_is_read_and_the_short_ones_are_written() {
    let text = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}é😂";
    let written = to_string(text);
    let wanted = r#""\"\\/\b\f\n\r\t\u0001\u001f"#.to_owned() + "\u{7f}é😂\"";
    assert_eq!(written, wanted);
    let read = |json: &str| decode::<String>(json.as_bytes(), &Limits::default(), Profile::Strict);
    assert_eq!(read(&written).unwrap().0, text);
    // Far behind the beginning, where many bytes are looked at together.
    let (plain, quotes) = ("a".repeat(32), "\"".repeat(32));
    let wanted = format!("\"{plain}{}\"", "\\\"".repeat(32));
    assert_eq!(to_string(&(plain + &quotes)), wanted);
    let spelled = r#""\"\\\/\b\f\n\r\t\u0001\u001F\u007f\u00e9\ud83d\uDE02""#;
    assert_eq!(read(spelled).unwrap().0, text);
}

#[test]
fn scalars_are_written_as_json() {
    use ubos_common::time::{Rfc3339, Timestamp, WholeSecond};

    let id = ubos_common::id::parse_hyphenated("A1B2C3D4-0000-4000-8000-000000000001").unwrap();
    let at = Timestamp::from_unix(0).unwrap();
    let second: WholeSecond = "1970-01-01T00:00:01Z".parse().unwrap();
    let kept: Rfc3339 = "1970-01-01t02:00:00+02:00".parse().unwrap();
    let written = [
        to_string(&id),
        to_string(&at),
        to_string(&second),
        to_string(&kept),
        to_string(&-5_i64),
        to_string(&u64::MAX),
        to_string(&0.5_f64),
        to_string(&f64::NAN),
        to_string(&vec![true, false]),
        to_string(&Some(1_u8)),
        to_string(&None::<u8>),
    ];
    let wanted = [
        "\"a1b2c3d4-0000-4000-8000-000000000001\"",
        "\"1970-01-01T00:00:00.000Z\"",
        "\"1970-01-01T00:00:01Z\"",
        "\"1970-01-01t02:00:00+02:00\"",
        "-5",
        "18446744073709551615",
        "0.5",
        "null",
        "[true,false]",
        "1",
        "null",
    ];
    assert_eq!(written, wanted);
}

#[test]
fn what_holds_values_is_written_as_they_are() {
    use std::{borrow::Cow, sync::Arc};

    let text = "a".to_owned();
    let one = to_string(&text);
    for held in [
        to_string(&&text),
        to_string(&Box::new(text.clone())),
        to_string(&Arc::new(text.clone())),
        to_string(&Cow::from(&text)),
        to_string(&Value::from(text.clone())),
    ] {
        assert_eq!(held, one);
    }
    let map = BTreeMap::from([("b".to_owned(), vec![1_u8]), (text, vec![])]);
    assert_eq!(to_string(&map), r#"{"a":[],"b":[1]}"#);
}

#[test]
fn a_member_that_is_absent_is_not_written() {
    let mut out = Vec::new();
    let mut object = MemberWriter::begin(&mut out);
    object.optional("a", Some(&1_u8));
    object.optional("b", None::<&u8>);
    object.known_optional("\"c\":", Some(&2_u8));
    object.known_optional("\"d\":", None::<&u8>);
    object.end();
    assert_eq!(out, br#"{"a":1,"c":2}"#);
}

#[test]
fn a_member_that_is_inserted_again_is_replaced() {
    let mut members = Members::new();
    for (name, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
        members.insert(name, RawBuf::parse(value).unwrap());
    }
    let value = |name| members.value(name).map(|raw| raw.as_str());
    assert_eq!(members.len(), 2);
    assert_eq!(
        (value("a"), value("b"), value("c")),
        (Some("3"), Some("2"), None)
    );
}
