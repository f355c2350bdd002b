//! Canonical JSON and digests, against RFC 8785 and against two other implementations.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail as tests do"
)]

mod doc;
mod fields;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use ubos_common::canon::{
    self, CanonError, CanonFault, Digest, DigestError, Domain, MAX_DEPTH, Mode,
};

fn text(bytes: Result<Vec<u8>, CanonError>) -> Result<String, CanonError> {
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

fn fault(bytes: Result<Vec<u8>, CanonError>) -> (CanonFault, String) {
    let error = bytes.expect_err("refused");
    (error.fault().clone(), error.pointer().to_owned())
}

fn exact<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonError> {
    let mut out = Vec::new();
    canon::write(&mut out, Mode::Exact, value).map(|()| out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn three_sources_and_two_strangers_agree(doc in doc::docs(), seed in any::<u64>()) {
        let value = doc.to_value();
        let wanted = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(&serde_jcs::to_string(&value).unwrap(), &wanted);
        prop_assert_eq!(&text(canon::value_to_vec(&value)).unwrap(), &wanted);
        prop_assert_eq!(&text(canon::to_vec(&value)).unwrap(), &wanted);
        prop_assert_eq!(&text(canon::to_vec(&doc)).unwrap(), &wanted);
        let untidy = doc.untidy(seed);
        prop_assert_eq!(&text(canon::str_to_vec(&untidy)).unwrap(), &wanted, "{}", untidy);
        prop_assert_eq!(&text(canon::str_to_vec(&wanted)).unwrap(), &wanted);
        let raw = RawValue::from_string(untidy).unwrap();
        prop_assert_eq!(text(canon::to_vec(&[raw])).unwrap(), format!("[{wanted}]"));
    }

    #[test]
    fn fields_of_any_names_are_as_strangers_write_them(fields in fields::Fields::any()) {
        let fields = fields.without_doubles();
        let stranger = serde_json_canonicalizer::to_string(&fields).unwrap();
        prop_assert_eq!(text(canon::to_vec(&fields)), Ok(stranger));
    }

    #[test]
    fn one_name_from_two_places_is_refused(
        length in 1usize..26, before in fields::names(), between in proptest::collection::vec(fields::names(), 0..9),
    ) {
        let (one, other) = (fields::at(0, length), fields::at(26, length));
        let names = [vec![before, one], between, vec![other]].concat();
        let fields = fields::Fields(names.into_iter().map(|index| (index, None)).collect());
        prop_assert_eq!(fault(canon::to_vec(&fields)).0, CanonFault::DuplicateKey);
    }

    #[test]
    fn digests_are_those_of_the_canonical_text(doc in doc::docs(), seed in any::<u64>()) {
        let domain = Domain::new("test 2026 canon");
        let value = doc.to_value();
        let Ok(bytes) = exact(&doc) else {
            prop_assert!(canon::digest(&domain, &doc).is_err());
            prop_assert!(canon::digest_value(&domain, &value).is_err());
            return Ok(());
        };
        let wanted = Digest::of(&domain, &bytes);
        prop_assert_eq!(canon::digest(&domain, &doc), Ok(wanted));
        prop_assert_eq!(canon::digest_value(&domain, &value), Ok(wanted));
        // A typed double is exact; its text may be too long to be.
        if let Ok(digest) = canon::digest_str(&domain, &doc.untidy(seed)) {
            prop_assert_eq!(digest, wanted);
        }
        prop_assert_eq!(canon::digest_slice(&domain, &bytes), Ok(wanted));
    }

    /// Whatever the input, no panic; and what is accepted is what serde_json accepts, but for
    /// the faults that only canonical form has.
    #[test]
    fn grammar_is_that_of_serde_json(input in "[\\[\\]{}:,\"\\\\ubn/truefalsn0-9eE.+ \u{1}é-]{0,12}") {
        let theirs = serde_json::from_str::<Value>(&input);
        match canon::str_to_vec(&input) {
            Ok(_) => prop_assert!(theirs.is_ok(), "{input}"),
            Err(error) if error.fault() == &CanonFault::DuplicateKey => {}
            Err(error) => prop_assert!(theirs.is_err(), "{input}: {error}"),
        }
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(input in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = canon::slice_to_vec(&input);
    }

    #[test]
    fn text_cut_short_is_refused(doc in doc::docs(), at in any::<prop::sample::Index>()) {
        let whole = text(canon::to_vec(&[doc])).unwrap();
        let mut cut = at.index(whole.len());
        while !whole.is_char_boundary(cut) {
            cut -= 1;
        }
        let error = canon::str_to_vec(&whole[..cut]).unwrap_err();
        let malformed = matches!(error.fault(), CanonFault::Malformed { .. });
        prop_assert!(malformed, "{}", error);
        prop_assert!(error.offset().is_some_and(|offset| offset <= cut));
    }
}

#[test]
fn sample_of_rfc_8785_3_2_2() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let wanted = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(text(canon::str_to_vec(input)).unwrap(), wanted);
}

#[test]
fn sample_of_rfc_8785_3_2_3() {
    let input = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let canonical = text(canon::str_to_vec(input)).unwrap();
    let names = ["\\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"];
    let places = names.map(|name| canonical.find(&format!("\"{name}\":")).unwrap());
    assert!(places.is_sorted(), "{canonical}");
}

#[test]
fn members_are_put_in_order_however_many_they_are_and_however_alike() {
    // The names are the same in their first eight bytes, so that the first object does not tell the order of the second.
    let given = r#"[{"name-of-3":3,"name-of-2":2,"name-of-1":1},{"name-of-3":3,"name-of-1":1,"name-of-2":2}]"#;
    let one = r#"{"name-of-1":1,"name-of-2":2,"name-of-3":3}"#;
    let wanted = format!("[{one},{one}]");
    assert_eq!(text(canon::str_to_vec(given)), Ok(wanted));

    let mut members: Vec<_> = (100..200).rev().map(|n| format!("\"{n}\":{n}")).collect();
    let written = text(canon::str_to_vec(&format!("{{{}}}", members.join(","))));
    members.reverse();
    assert_eq!(written, Ok(format!("{{{}}}", members.join(","))));
}

#[test]
fn one_member_name_twice_is_refused_from_every_source() {
    for input in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"\u0061":3}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{"\n":1,"a":2,"\u000a":3}"#,
        r#"{"":1,"":1}"#,
    ] {
        let (fault, pointer) = fault(canon::str_to_vec(&format!(r#"[0,{{"/~":{input}}}]"#)));
        assert_eq!(fault, CanonFault::DuplicateKey, "{input}");
        assert!(pointer.starts_with("/1/~1~0/"), "{pointer}");
    }

    #[derive(Serialize)]
    struct Open {
        b: u8,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, u8>,
    }
    let open = |name| Open {
        b: 1,
        rest: BTreeMap::from([("a", 2), (name, 3)]),
    };
    assert_eq!(
        text(canon::to_vec(&open("c"))).unwrap(),
        r#"{"a":2,"b":1,"c":3}"#
    );
    let twice = fault(canon::to_vec(&[open("b")]));
    assert_eq!(twice, (CanonFault::DuplicateKey, "/0/b".to_owned()));

    let raw = RawValue::from_string(r#"{"a":1,"a":2}"#.to_owned()).unwrap();
    let twice = fault(canon::to_vec(&BTreeMap::from([("raw", raw)])));
    assert_eq!(twice, (CanonFault::DuplicateKey, "/raw/a".to_owned()));
}

#[test]
fn a_name_that_comes_twice_is_refused_before_its_value_is_read() {
    for input in [r#"{"a":1,"a":nul}"#, r#"{"b":{"a":1,"a":[1,]}}"#] {
        let (fault, _) = fault(canon::str_to_vec(input));
        assert_eq!(fault, CanonFault::DuplicateKey, "{input}");
    }
}

#[test]
fn lone_surrogates_are_refused() {
    for input in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800x""#,
        r#""\ud800\n""#,
        r#""\ud800\ud800""#,
        r#""\udc00\ud800""#,
    ] {
        assert_eq!(
            fault(canon::str_to_vec(input)).0,
            CanonFault::LoneSurrogate,
            "{input}"
        );
    }
    assert_eq!(
        text(canon::str_to_vec(r#""\uD83D\uDE00""#)).unwrap(),
        "\"😀\""
    );
}

#[test]
fn keys_that_are_no_strings_are_refused() {
    let numbered = fault(canon::to_vec(&BTreeMap::from([(1, 2)])));
    assert_eq!(numbered.0, CanonFault::KeyNotString);
    let tuple = fault(canon::to_vec(&BTreeMap::from([((1, "a"), 2)])));
    assert_eq!(tuple.0, CanonFault::KeyNotString);
    let absent = fault(canon::to_vec(&BTreeMap::from([(None::<&str>, 2)])));
    assert_eq!(absent.0, CanonFault::KeyNotString);

    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Word {
        Yes,
        Of(u8),
    }
    let wrapped = fault(canon::to_vec(&BTreeMap::from([(Word::Of(1), 2)])));
    assert_eq!(wrapped.0, CanonFault::KeyNotString);
    assert_eq!(
        text(canon::to_vec(&BTreeMap::from([(Word::Yes, 1)]))).unwrap(),
        r#"{"Yes":1}"#
    );
    assert_eq!(
        text(canon::to_vec(&BTreeMap::from([('x', 1)]))).unwrap(),
        r#"{"x":1}"#
    );
}

#[test]
fn depth_is_bounded_from_every_source() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let deep = (1..MAX_DEPTH).fold(Value::Array(vec![]), |inner, _| Value::Array(vec![inner]));
    let deepest = nested(MAX_DEPTH);
    assert_eq!(text(canon::str_to_vec(&deepest)).unwrap(), deepest);
    assert_eq!(text(canon::value_to_vec(&deep)).unwrap(), deepest);
    assert_eq!(text(canon::to_vec(&deep)).unwrap(), deepest);

    let too_deep = CanonFault::TooDeep { limit: MAX_DEPTH };
    let deeper = Value::Object([("a".to_owned(), deep)].into_iter().collect());
    assert_eq!(fault(canon::str_to_vec(&nested(MAX_DEPTH + 1))).0, too_deep);
    assert_eq!(fault(canon::value_to_vec(&deeper)).0, too_deep);
    assert_eq!(fault(canon::to_vec(&deeper)).0, too_deep);
    // Hostile depth ends at the limit, not at the end of the stack.
    assert_eq!(fault(canon::str_to_vec(&"[".repeat(1 << 20))).0, too_deep);
}

#[test]
fn raw_value_counts_its_depth_from_where_it_stands() {
    let raw = |depth: usize| RawValue::from_string("[".repeat(depth) + &"]".repeat(depth)).unwrap();
    // serde_json stops at 127 levels, so the shell must be two deep to come to the limit.
    assert!(canon::to_vec(&[[raw(MAX_DEPTH - 2)]]).is_ok());
    let error = fault(canon::to_vec(&[[raw(MAX_DEPTH - 1)]]));
    assert_eq!(error.0, CanonFault::TooDeep { limit: MAX_DEPTH });
}

#[test]
fn malformed_text_says_where_and_what() {
    for (input, offset, wanted) in [
        ("", 0, "a value"),
        ("  ", 2, "a value"),
        ("[1,]", 3, "a value"),
        ("[1 2]", 3, "a comma or ]"),
        ("{\"a\":1,}", 7, "a member name"),
        ("{\"a\" 1}", 5, "a colon"),
        ("{\"a\":1", 6, "a comma or }"),
        ("\"a", 2, "a closing quote"),
        ("\"a\nb\"", 2, "an escape for the control character"),
        ("\"\\x\"", 1, "an escape"),
        ("\"\\u12g4\"", 1, "four hexadecimal digits"),
        ("\"\\u1", 1, "four hexadecimal digits"),
        ("-", 1, "a digit"),
        ("1.", 2, "a digit"),
        ("1e+", 3, "a digit"),
        (".5", 0, "a value"),
        ("nul", 0, "a value"),
        ("NaN", 0, "a value"),
        ("\u{feff}1", 0, "a value"),
    ] {
        let error = canon::str_to_vec(input).unwrap_err();
        assert_eq!(error.fault(), &CanonFault::Malformed { wanted }, "{input}");
        assert_eq!(error.offset(), Some(offset), "{input}");
    }
    for input in ["1 2", "01", "{}}", "truefalse", "-0x"] {
        assert_eq!(
            fault(canon::str_to_vec(input)).0,
            CanonFault::TrailingBytes,
            "{input}"
        );
    }
    let error = canon::slice_to_vec(b"\"ab\xff\"").unwrap_err();
    assert_eq!(
        (error.fault(), error.offset()),
        (&CanonFault::NotUtf8, Some(3))
    );
}

#[test]
fn errors_leave_the_output_as_it_was() {
    let mut out = b"kept".to_vec();
    for input in ["[1,2", "{\"b\":1,\"a\":2,\"a\":3}"] {
        assert!(canon::write_str(&mut out, Mode::Jcs, input).is_err());
        assert_eq!(out, b"kept");
    }
    canon::write_str(&mut out, Mode::Jcs, "{\"b\":1,\"a\":2}").unwrap();
    canon::write_slice(&mut out, Mode::Jcs, b" [ ] ").unwrap();
    assert_eq!(out, b"kept{\"a\":2,\"b\":1}[]");
}

#[test]
fn error_reads_well_and_hides_values() {
    let error = canon::digest_str(&Domain::plain(), r#"{"a":["secret",9007199254740993]}"#);
    let error = error.unwrap_err();
    let wanted =
        "canonical form of the number has another value than the number given at /a/1 (byte 15)";
    assert_eq!(error.to_string(), wanted);
    let error = fault(exact(&BTreeMap::from([("n", u64::MAX)])));
    assert_eq!(error, (CanonFault::Inexact, "/n".to_owned()));
    let error = fault(canon::to_vec(&[1.0, f64::NAN]));
    assert_eq!(error, (CanonFault::NotFinite, "/1".to_owned()));
}

#[derive(Serialize)]
enum Shape {
    Unit,
    New(f32),
    Pair(u8, char),
    Named { z: Option<i8>, a: () },
}

#[test]
fn every_shape_of_serde_is_written_as_serde_json_would() {
    #[derive(Serialize)]
    struct Empty;
    #[derive(Serialize)]
    struct Wrapped(Option<u8>);
    #[derive(Serialize)]
    struct All<'a> {
        empty: Empty,
        inside: Wrapped,
        shapes: Vec<Shape>,
        display: serde_json::Map<String, Value>,
        wide: (u128, i128),
        bytes: &'a core::ffi::CStr,
        raw: &'a RawValue,
    }
    let all = All {
        empty: Empty,
        inside: Wrapped(Some(9)),
        shapes: vec![
            Shape::Unit,
            Shape::New(0.5),
            Shape::Pair(1, '"'),
            Shape::Named { z: None, a: () },
        ],
        display: serde_json::Map::new(),
        wide: (7, -7),
        bytes: c"\x01\xff",
        raw: serde_json::from_str(r#" { "b" : 1.0, "a" : "\u0041" } "#).unwrap(),
    };
    let wanted = concat!(
        r#"{"bytes":[1,255],"display":{},"empty":null,"inside":9,"raw":{"a":"A","b":1},"shapes":["Unit",{"New":0.5},"#,
        r#"{"Pair":[1,"\""]},{"Named":{"a":null,"z":null}}],"wide":[7,-7]}"#
    );
    assert_eq!(text(canon::to_vec(&all)).unwrap(), wanted);
    let again = serde_json::to_string(&all).unwrap();
    assert_eq!(text(canon::str_to_vec(&again)).unwrap(), wanted);
    // The double of its shortest decimal.
    assert_eq!(text(canon::to_vec(&0.1f32)).unwrap(), "0.1");
}

#[test]
fn displayed_text_is_escaped_piece_by_piece() {
    struct Shown;
    impl Serialize for Shown {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&format_args!("{}\n{:>3}", "a\"", 'b'))
        }
    }
    assert_eq!(text(canon::to_vec(&Shown)).unwrap(), r#""a\"\n  b""#);
    let keyed = canon::to_vec(&std::collections::HashMap::from([(
        format!("{}", '\n'),
        Shown,
    )]));
    assert_eq!(text(keyed).unwrap(), r#"{"\n":"a\"\n  b"}"#);
}

#[test]
fn errors_inside_variants_are_located() {
    #[derive(Serialize)]
    enum Bad {
        New(f64),
        Pair(u8, f64),
        Named { a: [f64; 1] },
    }
    let nan = f64::NAN;
    for (bad, pointer) in [
        (Bad::New(nan), "/0/New"),
        (Bad::Pair(1, nan), "/0/Pair/1"),
        (Bad::Named { a: [nan] }, "/0/Named/a/0"),
    ] {
        assert_eq!(fault(canon::to_vec(&[bad])).1, pointer);
    }
}

#[test]
fn large_values_are_hashed_in_blocks_to_the_same_digest() {
    let rows: Vec<Value> = (0..8000)
        .map(|n| serde_json::json!({"b": n, "a": ["text", {"z": n, "c": null}]}))
        .collect();
    let domain = Domain::new("test 2026 large");
    let wanted = Digest::of(&domain, &canon::to_vec(&rows).unwrap());
    let value = Value::Array(rows.clone());
    assert_eq!(canon::digest(&domain, &rows), Ok(wanted));
    assert_eq!(canon::digest_value(&domain, &value), Ok(wanted));
    assert_eq!(canon::digest_str(&domain, &value.to_string()), Ok(wanted));
}

#[test]
fn digest_is_plain_blake3_or_that_of_a_domain() {
    let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    assert_eq!(Digest::of_bytes(b"").to_string(), empty);
    assert_eq!(Digest::of(&Domain::plain(), b"").to_string(), empty);
    let context = "test 2026 domain";
    let derived = Digest::of(&Domain::new(context), b"abc");
    assert_eq!(derived.as_bytes(), &blake3::derive_key(context, b"abc"));
    assert_ne!(derived, Digest::of(&Domain::new("test 2026 other"), b"abc"));
    assert_eq!(
        canon::digest_str(&Domain::plain(), " [ ] "),
        Ok(Digest::of_bytes(b"[]"))
    );
}

#[test]
fn both_digests_are_those_of_each_text() {
    let text = "x".repeat(20_000);
    for split in [0, 1, 63, 64, 65, 1023, 1024, 1025, 4096, 10_000, 20_000] {
        let (beginning, rest) = text.as_bytes().split_at(split);
        let wanted = [beginning, text.as_bytes()].map(Digest::of_bytes);
        assert_eq!(Digest::of_both(beginning, rest), wanted, "{split}");
    }
}

#[test]
fn digest_text_is_lower_case_hex_and_nothing_else() {
    let digest = Digest::of_bytes(b"x");
    let hex = digest.to_string();
    assert_eq!(hex.parse(), Ok(digest));
    assert_eq!(
        serde_json::to_string(&digest).unwrap(),
        format!("\"{hex}\"")
    );
    assert_eq!(
        serde_json::from_str::<Digest>(&format!("\"{hex}\"")).unwrap(),
        digest
    );
    assert_eq!(
        serde_json::from_value::<Digest>(Value::String(hex.clone())).unwrap(),
        digest
    );
    assert_eq!(format!("{digest:?}"), format!("Digest({hex})"));
    assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);

    let short = hex[1..].parse::<Digest>();
    assert_eq!(short, Err(DigestError::Length { seen: 63 }));
    let upper = format!("A{}", &hex[1..]).parse::<Digest>();
    assert_eq!(upper, Err(DigestError::Character { at: 0 }));
    let other = format!("{}é", &hex[2..]).parse::<Digest>();
    assert_eq!(other, Err(DigestError::Character { at: 62 }));
}

#[test]
fn escapes_late_in_a_name_do_not_change_its_place() {
    let given = r##"{"aaaaaaaa#":1,"aaaaaaaa\"":2,"aaaaaaaa\u0021":3}"##;
    let wanted = r##"{"aaaaaaaa!":3,"aaaaaaaa\"":2,"aaaaaaaa#":1}"##;
    assert_eq!(text(canon::str_to_vec(given)).unwrap(), wanted);
}

#[test]
fn keys_of_a_map_may_be_wrapped_texts() {
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(&'static str);
    let map = BTreeMap::from([(Name("b"), 1), (Name("a"), 2)]);
    assert_eq!(text(canon::to_vec(&map)).unwrap(), r#"{"a":2,"b":1}"#);
    let map = BTreeMap::from([(Some("b"), 1), (Some("a"), 2)]);
    assert_eq!(text(canon::to_vec(&map)).unwrap(), r#"{"a":2,"b":1}"#);
}
