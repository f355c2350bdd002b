//! Properties of the reader against `serde_json`, and the rules it adds.

use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

use ubos_common::json::*;
use ubos_common::violation::{Level, Profile};

ubos_common::wire! {
    /// One of each.
    struct Sample {
        /// Required.
        required name: String = "name", "T-1";
        /// Optional.
        optional count: u64 = "count", "T-2";
        /// Null is absent.
        nullable parent: String = "parent", "T-3";
        /// Recommended.
        advised tags: Vec<String> = "tags", "T-4", "T-5";
        /// Hidden in findings.
        optional @secret token: u64 = "token", "T-6";
        /// Nested.
        optional inner: Box<Inner> = "inner", "T-7";
    }
}

ubos_common::wire! {
    /// Nested.
    struct Inner {
        /// Required.
        required level: Level3 = "level", "T-8";
        /// Any object.
        required body: RawObject = "body", "T-9";
    }
}

ubos_common::wire! {
    /// Borrows what it can.
    struct Borrowed<'a> {
        /// Borrowed unless escaped.
        required kind: std::borrow::Cow<'a, str> = "kind", "T-10";
        /// Borrowed.
        required payload: Raw<'a> = "payload", "T-11";
    }
}

ubos_common::words! {
    /// Three words.
    closed enum Level3 {
        /// Low.
        Low = "low",
        /// High.
        High = "high",
    }
}

fn strict<'a, T: Read<'a>>(
    text: &'a str,
) -> Result<(T, ubos_common::violation::Report), DecodeError> {
    decode(text.as_bytes(), &Limits::default(), Profile::Strict)
}

fn raw(text: &str, limits: &Limits) -> Result<(), FaultKind> {
    let result = decode::<RawBuf>(text.as_bytes(), limits, Profile::Strict);
    result.map(drop).map_err(|err| match err {
        DecodeError::Json(err) => err.kind,
        other => panic!("{other}"),
    })
}

fn findings(text: &str) -> Vec<String> {
    match strict::<Sample>(text) {
        Ok((_, report)) => report
            .iter()
            .map(|f| format!("{} {} {} {}", f.level, f.pointer, f.code, f.clause))
            .collect(),
        Err(DecodeError::Invalid(report)) => report
            .iter()
            .map(|f| format!("{} {} {} {}", f.level, f.pointer, f.code, f.clause))
            .collect(),
        Err(DecodeError::Json(err)) => vec![format!("JSON {} {}", err.pointer, err.kind.code())],
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn every_breach_is_found_in_one_pass() {
    let text = r#"{
        "count": "7", "parent": null, "tags": ["a", 1, null],
        "token": "hunter2", "inner": {"level": "mid", "body": []}
    }"#;
    assert_eq!(
        findings(text),
        [
            "MUST /name missing T-1",
            "MUST /count wrong_type T-2",
            "MUST /tags/1 wrong_type T-4",
            "MUST /tags/2 wrong_type T-4",
            "MUST /token wrong_type T-6",
            "MUST /inner/level bad_value T-8",
            "MUST /inner/body wrong_type T-9",
        ]
    );
    assert_eq!(
        findings(r#"{"name":"n","count":null}"#),
        ["SHOULD /tags missing T-5", "MUST /count null T-2"]
    );
    assert_eq!(findings("[1]"), ["MUST  wrong_type "]);
    assert_eq!(
        findings(r#"{"name":"n","tags":[],"name":"m"}"#),
        ["JSON /name duplicate_member"]
    );
}

#[test]
fn a_verbatim_member_tells_null_from_absence() {
    ubos_common::wire! {
        struct Answer {
            verbatim output: RawBuf = "output", "T-1";
        }
    }
    let (with, _) = strict::<Answer>(r#"{"output":null}"#).unwrap();
    let (without, _) = strict::<Answer>("{}").unwrap();
    assert_eq!(with.output.as_ref().map(RawBuf::as_str), Some("null"));
    assert_eq!(without.output, None);
    assert_eq!(to_string(&with), r#"{"output":null}"#);
}

#[test]
fn positions_are_those_of_the_value() {
    let Err(DecodeError::Invalid(report)) = strict::<Sample>("{\n  \"name\": \"é\",  \"tags\": 7}")
    else {
        panic!("refused");
    };
    let position = report.iter().next().unwrap().position.unwrap();
    assert_eq!((position.line, position.column), (2, 25));
}

#[test]
fn a_null_is_found_where_it_stands() {
    let text = "{\"name\":\"n\",\"tags\":[],\"count\":null\n\n\n}";
    let Err(DecodeError::Invalid(report)) = strict::<Sample>(text) else {
        panic!("refused");
    };
    let position = report.iter().next().unwrap().position.unwrap();
    assert_eq!((position.line, position.column), (1, 31));
}

#[test]
fn a_second_step_has_the_same_limits() {
    let raw = RawBuf::parse("[1,2,3]").unwrap();
    let read = |bytes| {
        let limits = Limits::default().with_max_bytes(bytes);
        read_raw::<Vec<u64>>(raw.as_raw(), &limits, Profile::Strict)
    };
    assert_eq!(read(7).unwrap().0, [1, 2, 3]);
    let Err(DecodeError::Json(err)) = read(6) else {
        panic!("refused");
    };
    assert_eq!(err.kind, FaultKind::TooLarge { seen: 7, limit: 6 });
}

#[test]
fn a_reader_in_a_log_shows_no_text() {
    let limits = Limits::default().with_max_findings(1);
    let mut reader = Reader::new(b"\"hunter2\"", &limits, Profile::Strict).unwrap();
    reader.reject(0, "code", "listed");
    reader.reject(0, "code", "over the bound");
    let shown = format!("{reader:?}");
    assert!(shown.contains("findings: 2") && !shown.contains("hunter2"));
}

#[test]
fn long_names_do_not_multiply_by_their_findings() {
    let text = format!(
        "{{\"{}\":[{}]}}",
        "n".repeat(200_000),
        ["\"\""; 900].join(",")
    );
    let Err(DecodeError::Invalid(report)) = strict::<BTreeMap<String, Vec<u64>>>(&text) else {
        panic!("refused");
    };
    let shown: usize = report.iter().map(|f| f.pointer.len()).sum();
    assert!(shown < 2 * 1_048_576, "{shown} bytes of pointers");
    assert_eq!(report.len() + report.unlisted(), 900);
}

/// Pointers are shown as long as those before are within their bound.
#[test]
fn pointers_of_findings_are_shown_up_to_their_bound() {
    for (over, shown) in [(0, 3), (1, 2)] {
        // A pointer is a name behind a slash: both together are 1 MiB, and `over`.
        let (half, other) = ("m".repeat(524_287), "n".repeat(524_287 + over));
        let text = format!(r#"{{"{half}":"","{other}":"","o":""}}"#);
        let Err(DecodeError::Invalid(report)) = strict::<BTreeMap<String, u64>>(&text) else {
            panic!("refused");
        };
        assert_eq!((report.len(), report.unlisted()), (shown, 3 - shown));
    }
}

#[test]
fn a_finding_behind_the_bound_of_pointers_refuses() {
    let text = format!(r#"{{"{}":1,"n":2}}"#, "m".repeat(1 << 20));
    let mut reader = Reader::new(text.as_bytes(), &Limits::default(), Profile::Strict).unwrap();
    reader.tolerate(text.find('1').unwrap(), "code", "advice");
    reader.reject(text.find('2').unwrap(), "code", "refused");
    let report = reader.into_report();
    assert_eq!((report.len(), report.unlisted()), (1, 1));
    assert!(!report.is_valid());
}

#[test]
fn an_element_may_be_null_where_it_may_be_absent() {
    let (read, _) = strict::<Vec<Option<u64>>>("[1,null]").unwrap();
    assert_eq!(read, [Some(1), None]);
}

#[test]
fn a_map_is_read_with_all_its_members_or_refused() {
    let read = strict::<BTreeMap<String, Vec<u64>>>(r#"{"b":[],"a":[1,2]}"#).unwrap();
    let wanted = BTreeMap::from([("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])]);
    assert_eq!(read.0, wanted);
    strict::<BTreeMap<String, Vec<u64>>>(r#"{"b":[],"a":[1,true]}"#).unwrap_err();
}

#[test]
fn what_is_of_another_type_is_told_by_its_type() {
    fn refusal<T: for<'a> Read<'a>>(text: &str) -> Option<String> {
        match decode::<T>(text.as_bytes(), &Limits::default(), Profile::Strict) {
            Ok(_) => None,
            Err(DecodeError::Invalid(report)) => Some(report.iter().next()?.message.to_string()),
            Err(other) => Some(other.to_string()),
        }
    }
    let values = [
        ("a boolean", "true"),
        ("a boolean", "false"),
        ("a number", "-1"),
        ("a number", "7"),
        ("a string", "\"t\""),
        ("null", "null"),
        ("an array", "[1]"),
        ("an object", "{}"),
    ];
    type Reading = fn(&str) -> Option<String>;
    let types: [(&str, Reading); 4] = [
        ("a boolean", refusal::<bool>),
        ("a number", refusal::<f64>),
        ("a string", refusal::<String>),
        ("an array", refusal::<Vec<u64>>),
    ];
    for (wanted, read) in types {
        for (kind, text) in values {
            let refused = read(text);
            if kind == wanted {
                assert_eq!(refused, None, "{text} as {wanted}");
            } else {
                let refused = refused.expect(text);
                assert!(refused.contains(wanted), "{text} as {wanted}: {refused}");
                assert!(refused.contains(kind), "{text} as {wanted}: {refused}");
            }
        }
    }
}

#[test]
fn read_alone_a_document_gives_the_same_value_and_the_same_refusal() {
    let limits = Limits::default();
    for (text, is_sound) in [
        (r#"{"name":"a"}"#, true),
        (r#"{"name":"a","tags":7}"#, false),
        (r#"{"count":1}"#, false),
        (r#"{"name":"a"} 1"#, false),
    ] {
        let told = decode::<Sample>(text.as_bytes(), &limits, Profile::Strict);
        let alone = decode_alone::<Sample>(text.as_bytes(), &limits, Profile::Strict);
        assert_eq!(alone, told.map(|(sample, _)| sample), "{text}");
        assert_eq!(alone.is_ok(), is_sound, "{text}");
    }
}

#[test]
fn advice_past_the_bound_does_not_refuse() {
    ubos_common::wire! {
        struct Tagged {
            advised tag: String = "tag", "T-1", "T-2";
        }
    }
    let text = format!("[{}]", ["{}"; 5].join(","));
    let limits = Limits::default().with_max_findings(2);
    let (read, report) = decode::<Vec<Tagged>>(text.as_bytes(), &limits, Profile::Strict).unwrap();
    assert_eq!((read.len(), report.len(), report.unlisted()), (5, 2, 3));
    let text = text.replace(']', ",{\"tag\":1}]");
    assert!(decode::<Vec<Tagged>>(text.as_bytes(), &limits, Profile::Strict).is_err());
}

#[test]
fn the_deepest_document_fits_a_small_stack() {
    let deep = format!("{}{}", "{\"next\":".repeat(255), "{}") + &"}".repeat(255);
    ubos_common::wire! {
        struct Chain {
            optional next: Box<Chain> = "next", "T-1";
            optional a: String = "a", "T-1";
            optional b: String = "b", "T-1";
            optional c: RawBuf = "c", "T-1";
            optional d: String = "d", "T-1";
            optional e: Vec<u64> = "e", "T-1";
            optional f: Vec<u64> = "f", "T-1";
            optional g: String = "g", "T-1";
        }
    }
    let limits = Limits::default().with_max_depth(Limits::DEEPEST);
    let read = move || decode::<Chain>(deep.as_bytes(), &limits, Profile::Strict).is_ok();
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(read)
        .unwrap();
    assert!(thread.join().unwrap());
}

#[test]
fn serde_json_reads_to_the_depth_that_the_limits_name() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let limits = Limits::default().with_max_depth(Limits::DEEPEST);
    let read = |levels| {
        decode::<RawBuf>(nested(levels).as_bytes(), &limits, Profile::Strict)
            .unwrap()
            .0
    };
    let parsed = |levels| read(levels).deserialize::<Value>();
    assert!(parsed(Limits::SERDE_JSON_DEPTH).is_ok());
    let error = parsed(Limits::SERDE_JSON_DEPTH + 1).unwrap_err();
    assert!(error.to_string().contains("recursion limit"), "{error}");
}

#[test]
fn a_secret_is_not_shown_and_other_values_are() {
    let shown = strict::<Sample>(r#"{"name":"n","count":-5}"#)
        .unwrap_err()
        .to_string();
    assert!(shown.contains("-5"), "{shown}");
    let hidden = strict::<Sample>(r#"{"name":"n","token":-4711}"#)
        .unwrap_err()
        .to_string();
    assert!(!hidden.contains("4711"), "{hidden}");
    let (read, _) = strict::<Sample>(r#"{"name":"n","token":4711}"#).unwrap();
    let logged = format!("{read:?}");
    assert!(
        logged.contains("\"n\"") && !logged.contains("4711"),
        "{logged}"
    );
}

#[test]
fn a_secret_reaches_inward_and_not_behind() {
    ubos_common::wire! {
        struct Holder {
            optional @secret hidden: Vec<u64> = "hidden", "T-1";
            optional @secret nested: Box<Sample> = "nested", "T-2";
            optional shown: i64 = "shown", "T-3";
        }
    }
    let text = r#"{"hidden":[-11],"nested":{"count":-22},"shown":3.3}"#;
    let refused = strict::<Holder>(text).unwrap_err().to_string();
    assert!(
        !refused.contains("-11") && !refused.contains("-22"),
        "{refused}"
    );
    assert!(refused.contains("3.3"), "{refused}");
}

#[test]
fn a_fault_inside_an_open_array_costs_no_depth() {
    struct Odd;
    impl Read<'_> for Odd {
        fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
            let mut at = 0;
            reader.array(|reader, _| {
                at = reader.offset();
                Err(reader.bad_value(at, "nothing"))
            })?;
            Ok(Self)
        }
    }
    let limits = Limits::default().with_max_depth(2);
    let Err(DecodeError::Invalid(report)) =
        decode::<Vec<Odd>>(b"[[1],[2],[3]]", &limits, Profile::Strict)
    else {
        panic!("refused with findings");
    };
    assert_eq!(report.len(), 3);
}

#[test]
fn an_object_is_its_text() {
    assert_eq!(
        RawObject::parse(" {\"a\":1} ").unwrap().as_str(),
        "{\"a\":1}"
    );
}

#[test]
fn the_lenient_profile_takes_other_forms_with_advice() {
    let id = "a1b2c3d4-0000-4000-8000-00000000000f";
    let other = format!("\"{{{id}}}\"");
    assert!(strict::<uuid::Uuid>(&other).is_err());
    let (read, report) =
        decode::<uuid::Uuid>(other.as_bytes(), &Limits::default(), Profile::Lenient).unwrap();
    assert_eq!((read.to_string().as_str(), report.len()), (id, 1));
    for (text, moment) in [
        ("2025-10-01T14:00:00.25+02:00", "2025-10-01T12:00:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
    ] {
        let quoted = to_string(text);
        assert!(strict::<ubos_common::time::WholeSecond>(&quoted).is_err());
        let read = decode(quoted.as_bytes(), &Limits::default(), Profile::Lenient);
        let (at, report): (ubos_common::time::WholeSecond, _) = read.unwrap();
        assert_eq!((at.to_string().as_str(), report.len()), (moment, 1));
    }
    for bad in ["\"tomorrow\"", "\"2025-10-01 12:00:00Z\""] {
        let read = decode::<ubos_common::time::WholeSecond>(
            bad.as_bytes(),
            &Limits::default(),
            Profile::Lenient,
        );
        assert!(read.is_err(), "{bad}");
    }
}

#[test]
fn unknown_members_come_back_as_they_were() {
    let text = r#"{"name":"n","tags":[],"z":1e3,"a":{"n":12345678901234567890123,"x":[1.0]},"esc\u0061pe":" "}"#;
    let (sample, report) = strict::<Sample>(text).unwrap();
    assert!(report.is_empty());
    assert_eq!(to_string(&sample), text.replace("\\u0061", "a"));
    let borrowed = r#"{"kind":"k","payload":[ 1 ],"other":{}}"#;
    let (message, _) = strict::<Borrowed<'_>>(borrowed).unwrap();
    assert!(matches!(message.kind, std::borrow::Cow::Borrowed("k")));
    assert_eq!(to_string(&message), borrowed);
}

#[test]
fn the_lenient_profile_names_what_it_lets_pass() {
    let text = br#"{"name":"n","count":null,"tags":[],"inner":{"level":"mid","body":{}}}"#;
    let (sample, report) = decode::<Sample>(text, &Limits::default(), Profile::Lenient).unwrap();
    assert_eq!(sample.inner.unwrap().level.as_str(), "mid");
    let codes: Vec<_> = report
        .iter()
        .map(|f| (f.level, f.pointer.as_str()))
        .collect();
    assert_eq!(
        codes,
        [(Level::Advice, "/count"), (Level::Advice, "/inner/level")]
    );
}

#[test]
fn duplicates_are_refused_at_every_depth() {
    for (text, pointer) in [
        (r#"{"a":1,"a":1}"#, "/a"),
        (r#"[{"b":{"a":1,"\u0061":2}}]"#, "/0/b/a"),
        (r#"{"name":"n","x":1,"x":2}"#, "/x"),
        (r#"{"name":"n","x":{"y":[{"z":1,"z":2}]}}"#, "/x/y/0/z"),
        (r#"{"x\"y":{"z":1,"z":2}}"#, "/x\"y/z"),
        (r#"{"name":"n","z":1,"z":2,"a":1,"a":2}"#, "/z"),
        (r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"a":6}"#, "/a"),
    ] {
        let (DecodeError::Json(err), DecodeError::Json(typed)) = (
            strict::<RawBuf>(text).unwrap_err(),
            strict::<Sample>(text)
                .err()
                .unwrap_or_else(|| strict::<RawBuf>(text).unwrap_err()),
        ) else {
            panic!("{text}");
        };
        assert_eq!(
            (err.kind, err.pointer.as_str()),
            (FaultKind::DuplicateMember, pointer)
        );
        assert_eq!(
            (typed.kind, typed.pointer.as_str()),
            (FaultKind::DuplicateMember, pointer)
        );
    }
    let many: Vec<String> = (0..100).map(|n| format!("\"k{n}\":0")).collect();
    let text = format!("{{{}}}", many.join(","));
    assert_eq!(raw(&text, &Limits::default()), Ok(()));
    let text = format!("{{{},\"k50\":1}}", many.join(","));
    assert_eq!(
        raw(&text, &Limits::default()),
        Err(FaultKind::DuplicateMember)
    );
    // The first in the text is named, among few and many.
    for count in [20, 21] {
        let text = format!(
            "{{{},\"z\":0,\"z\":1,\"a\":0,\"a\":1}}",
            many[..count].join(",")
        );
        assert!(matches!(strict::<RawBuf>(&text), Err(DecodeError::Json(e)) if e.pointer == "/z"));
    }
    let text = format!("{{\"name\":\"n\",{},\"k50\":1}}", many.join(","));
    assert!(
        matches!(strict::<Sample>(&text), Err(DecodeError::Json(e)) if e.kind == FaultKind::DuplicateMember && e.pointer == "/k50")
    );
}

#[test]
fn each_limit_holds_at_its_edge() {
    let limits = Limits::default()
        .with_max_bytes(100)
        .with_max_depth(3)
        .with_max_members(2)
        .with_max_array_len(3)
        .with_max_string_bytes(5);
    for good in [
        "[[[]]]",
        "[[[],[],[]]]",
        r#"{"a":1,"b":2}"#,
        "[1,2,3]",
        r#""12345""#,
        r#""\n345""#,
        "12345",
    ] {
        assert_eq!(raw(good, &limits), Ok(()), "{good}");
    }
    assert_eq!(
        raw("[[[[]]]]", &limits),
        Err(FaultKind::TooDeep { limit: 3 })
    );
    assert_eq!(
        raw(r#"{"a":1,"b":2,"c":3}"#, &limits),
        Err(FaultKind::TooManyMembers { limit: 2 })
    );
    assert_eq!(
        raw("[1,2,3,4]", &limits),
        Err(FaultKind::ArrayTooLong { limit: 3 })
    );
    for long in [r#""123456""#, "123456", r#""\u0061""#, r#"{"123456":1}"#] {
        assert_eq!(
            raw(long, &limits),
            Err(FaultKind::StringTooLong { limit: 5 }),
            "{long}"
        );
    }
    assert_eq!(
        raw(&format!("{:101}", 1), &limits),
        Err(FaultKind::TooLarge {
            seen: 101,
            limit: 100
        })
    );
    assert_eq!(
        raw(&"[".repeat(5000), &Limits::default().with_max_depth(9999)),
        Err(FaultKind::TooDeep { limit: 256 })
    );
    let mut limits = Limits::default();
    limits.max_depth = 9999;
    assert_eq!(
        raw(&"[".repeat(5000), &limits),
        Err(FaultKind::TooDeep { limit: 256 })
    );
}

#[test]
fn findings_are_bounded_and_an_unlisted_one_still_refuses() {
    let text = format!("{{\"name\":\"n\",\"tags\":[{}]}}", vec!["1"; 500].join(","));
    let limits = Limits::default().with_max_findings(3);
    let Err(DecodeError::Invalid(report)) =
        decode::<Sample>(text.as_bytes(), &limits, Profile::Strict)
    else {
        panic!("refused");
    };
    assert_eq!((report.len(), report.unlisted()), (3, 497));
    let none = Limits::default().with_max_findings(0);
    assert!(decode::<Sample>(text.as_bytes(), &none, Profile::Strict).is_err());
}

#[test]
fn broken_texts_say_what_and_where() {
    for (text, kind) in [
        ("", FaultKind::UnexpectedEnd),
        ("[1", FaultKind::UnexpectedEnd),
        ("\"a", FaultKind::UnexpectedEnd),
        ("tru", FaultKind::UnexpectedEnd),
        ("1 2", FaultKind::TrailingBytes),
        ("\"\u{1}\"", FaultKind::ControlCharacter),
        (r#""\x""#, FaultKind::InvalidEscape),
        (r#""\ud800""#, FaultKind::LoneSurrogate),
        (r#""\udc00""#, FaultKind::LoneSurrogate),
        (r#""\udc00\ud800""#, FaultKind::LoneSurrogate),
        (r#""\ud800\u0041""#, FaultKind::LoneSurrogate),
    ] {
        assert_eq!(raw(text, &Limits::default()), Err(kind), "{text:?}");
    }
    for text in [
        "01",
        "-",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "nul",
        "+1",
        ".5",
        "1.",
        "[1 2]",
        "{\"a\" 1}",
        "'a'",
        "\u{feff}1",
        "\u{1}1",
        "[\u{b}]",
    ] {
        assert!(raw(text, &Limits::default()).is_err(), "{text:?}");
    }
    let two = RawBuf::parse("1 2").unwrap_err();
    assert_eq!(two.kind, FaultKind::TrailingBytes);
    assert!(two.to_string().contains("at the top"), "{two}");
    let bytes = b"{\"a\":\"\xff\"}";
    assert!(matches!(
        decode::<RawBuf>(bytes, &Limits::default(), Profile::Strict),
        Err(DecodeError::Json(JsonError {
            kind: FaultKind::InvalidUtf8,
            offset: 6,
            ..
        }))
    ));
}

/// Documents of every shape.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..20)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn reads_what_serde_json_writes(value in document()) {
        let (compact, pretty) = (value.to_string(), serde_json::to_string_pretty(&value).unwrap());
        prop_assert_eq!(&strict::<Value>(&compact).unwrap().0, &value);
        let read = strict::<RawBuf>(&pretty).unwrap().0;
        prop_assert_eq!(read.as_str(), pretty.as_str());
        prop_assert_eq!(to_string(&value), compact);
    }

    #[test]
    fn strings_go_both_ways(text: String) {
        let written = to_string(&text);
        prop_assert_eq!(&serde_json::from_str::<String>(&written).unwrap(), &text);
        prop_assert_eq!(&strict::<String>(&written).unwrap().0, &text);
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        prop_assert_eq!(strict::<String>(&format!("\"{escaped}\"")).unwrap().0, text);
    }

    #[test]
    fn takes_nothing_that_serde_json_refuses(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let ours = decode::<RawBuf>(&bytes, &Limits::default(), Profile::Strict).is_ok();
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
        prop_assert!(!ours || theirs);
    }

    #[test]
    fn near_json_gives_the_same_verdict(text in r#"[\[\]{}":,0-9eE.\-a-c\\utrlnfs ]{0,24}"#) {
        let theirs = serde_json::from_str::<Value>(&text).is_ok();
        match strict::<RawBuf>(&text) {
            Ok(_) => prop_assert!(theirs || text.contains(['e', 'E']), "{}", text),
            Err(DecodeError::Json(err)) if err.kind == FaultKind::DuplicateMember => {}
            Err(_) => prop_assert!(!theirs, "{}", text),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_with_a_place(bytes: Vec<u8>) {
        if let Err(err) = decode::<Sample>(&bytes, &Limits::default(), Profile::Lenient) {
            prop_assert!(!err.to_string().is_empty());
        }
    }
}

#[test]
fn an_object_is_looked_into_and_kept() {
    let text = br#" {"a":[1],"flag":true,"z":{}} , "#;
    let mut reader = Reader::new(text, &Limits::default(), Profile::Strict).unwrap();
    let mut flag = None;
    let raw = reader
        .object_raw(|reader, name| {
            if name == "flag" {
                flag = Some(reader.bool()?);
                return Ok(());
            }
            reader.skip()
        })
        .unwrap();
    assert_eq!(
        (raw.as_str(), flag),
        (r#"{"a":[1],"flag":true,"z":{}}"#, Some(true))
    );
    assert!(!reader.has_refused());
    reader.tolerate(0, "code", "advice");
    assert!(!reader.has_refused());
    reader.reject(0, "code", "refused");
    assert!(reader.has_refused());
    let double = br#"{"a":1,"a":2}"#;
    let mut reader = Reader::new(double, &Limits::default(), Profile::Strict).unwrap();
    let fault = reader.object_raw(|reader, _| reader.skip()).unwrap_err();
    assert!(!fault.is_recoverable());
}

#[test]
fn what_holds_a_value_is_as_strict_as_the_value() {
    let limits = Limits::default();
    let word = |text: &str| {
        decode::<Level3>(text.as_bytes(), &limits, Profile::Lenient)
            .unwrap()
            .0
    };
    for (text, is_strict) in [("\"low\"", true), ("\"unknown\"", false)] {
        let word = word(text);
        assert_eq!(word.is_strict(), is_strict);
        assert_eq!(<&Level3 as Write>::is_strict(&&word), is_strict);
        assert_eq!(Box::new(word.clone()).is_strict(), is_strict);
        assert_eq!(std::sync::Arc::new(word.clone()).is_strict(), is_strict);
        assert_eq!(vec![word.clone()].is_strict(), is_strict);
        assert_eq!(Some(word.clone()).is_strict(), is_strict);
        let map = BTreeMap::from([("a".to_owned(), word)]);
        assert_eq!(map.is_strict(), is_strict);
    }
    assert!("text".is_strict() && 0.5_f64.is_strict());
    assert!(!f64::NAN.is_strict(), "it is written as null");
}

#[test]
fn a_text_that_ended_is_not_a_value_other_than_null() {
    let null = |text: &str| {
        Reader::new(text.as_bytes(), &Limits::default(), Profile::Strict)
            .unwrap()
            .null()
            .ok()
    };
    assert_eq!(
        (null(" null"), null(" 1"), null(" ")),
        (Some(true), Some(false), None)
    );
}
