//! What a validator, and who would run a message, answer; and reading the answers of others.

use sacp::validate::{admit, findings, verdict};
use sacp::{AnyMessage, Code, Edition, Reply};
use ubos_common::json::{DecodeError, to_string};

const V10: &str = r#"{"proto_ver":"1.0.2","msg_id":"m1","ts":"2025-10-01T12:00:00Z","sender":"p","g":"G","plan":[{"id":"a","verb":"v","tool":"T","params":{}}],"state":"PENDING"}"#;

fn codes(text: &str, edition: Option<Edition>) -> Vec<String> {
    let report = findings(text.as_bytes(), edition);
    report
        .iter()
        .map(|f| format!("{} {}", f.pointer, f.code))
        .collect()
}

// spec: SACP-2-8
#[test]
fn the_version_chooses_the_edition() {
    for (text, edition) in [
        (r#"{"g":"G","plan":[]}"#, Edition::V01),
        (r#"{"g":"G","plan":[],"proto_ver":"0.1"}"#, Edition::V01),
        (V10, Edition::V10),
        (&V10.replace("proto_ver", r"proto\u005fver"), Edition::V10),
    ] {
        let (message, _) = AnyMessage::decode(text.as_bytes()).unwrap();
        assert_eq!(message.edition(), edition, "{text}");
        assert_eq!(
            findings(text.as_bytes(), Some(edition)).iter().count(),
            usize::from(text.contains("[]"))
        );
    }
    for version in ["\"0.2\"", "\"1.1.0\"", "\"2.0.0\"", "\"1.0\"", "\"\""] {
        let text = format!(r#"{{"g":"G","plan":[["a","T",{{}}]],"proto_ver":{version}}}"#);
        assert_eq!(codes(&text, None), ["/proto_ver UNSUPPORTED_VERSION"]);
    }
    let number = r#"{"g":"G","plan":[["a","T",{}]],"proto_ver":1}"#;
    assert_eq!(codes(number, None), ["/proto_ver MALFORMED_MESSAGE"]);
    let old = r#"{"g":"G","plan":[["a"]],"proto_ver":"0.1"}"#;
    assert_eq!(
        codes(old, Some(Edition::V10)),
        ["/proto_ver UNSUPPORTED_VERSION"]
    );
    assert_eq!(
        codes(V10, Some(Edition::V01)),
        ["/proto_ver UNSUPPORTED_VERSION"]
    );
    let refused = findings(V10.as_bytes(), Some(Edition::V01));
    let at = refused.iter().next().unwrap().position.unwrap();
    assert_eq!((at.line, at.column), (1, 14));
    assert!(codes(V10, None).is_empty());
}

// spec: SACP-8-1
#[test]
fn a_validator_answers_valid_or_the_first_finding() {
    assert_eq!(
        to_string(&verdict(V10.as_bytes())),
        r#"{"status":"VALID","reply_to":"m1"}"#
    );
    assert_eq!(
        to_string(&verdict(br#"{"g":"G","plan":[["a","T",{}]]}"#)),
        r#"{"status":"VALID"}"#
    );
    let text = br#"{"g":7,"plan":[["a","T"],["b"]],"state":"OVER","msg_id":"m2"}"#;
    let Reply::Err(error) = verdict(text) else {
        panic!()
    };
    assert_eq!(
        (
            error.code,
            error.pointer.as_deref(),
            error.reply_to.as_deref()
        ),
        (Code::MalformedMessage, Some("/g"), Some("m2"))
    );
    assert_eq!(
        codes(core::str::from_utf8(text).unwrap(), None),
        [
            "/g MALFORMED_MESSAGE",
            "/plan/0 MALFORMED_PLAN",
            "/plan/1 MALFORMED_PLAN",
            "/state INVALID_STATE"
        ]
    );
    let position = findings(text, None)
        .iter()
        .next()
        .unwrap()
        .position
        .unwrap();
    assert_eq!((position.line, position.column), (1, 6));
    // A text that is no JSON has a finding, too.
    assert_eq!(codes(r#"{"g":]"#, None), ["/g MALFORMED_MESSAGE"]);
}

// spec: SACP-2-1, SACP-8-1
#[test]
fn an_answer_names_the_member_that_is_absent() {
    let answer = to_string(&verdict(br#"{"msg_id":"m","plan":[]}"#));
    let wanted = r#"{"status":"ERR","code":"MISSING_FIELD","details":"g is absent","pointer":"/g","reply_to":"m"}"#;
    assert_eq!(answer, wanted);
}

// spec: SACP-2-8, SACP-8-1
#[test]
fn a_version_that_is_not_supported_is_said_before_what_its_own_rules_may_allow() {
    for text in [
        r#"{"plan":[{"id":"a","verb":"v"}],"g":"G","proto_ver":"2.0.0","state":"READY"}"#,
        r#"{"proto_ver":"2.0.0","plan":[{"id":"a"}]}"#,
    ] {
        let Reply::Err(error) = verdict(text.as_bytes()) else {
            panic!("taken: {text}")
        };
        assert_eq!(error.code, Code::UnsupportedVersion);
        assert_eq!(error.pointer.as_deref(), Some("/proto_ver"));
    }
}

// spec: SACP-2-7
#[test]
fn an_empty_plan_is_valid_and_asked_back() {
    let text = br#"{"msg_id":"m3","g":"G","plan":[]}"#;
    assert!(matches!(verdict(text), Reply::Valid { .. }));
    assert_eq!(
        codes(core::str::from_utf8(text).unwrap(), None),
        ["/plan empty_plan"]
    );
    let refused = admit(text).unwrap_err();
    assert_eq!(
        to_string(&refused),
        r#"{"status":"REQ_CLARIFY","missing":["plan"],"details":"the plan has no acts","reply_to":"m3"}"#
    );
    let absent = admit(br#"{"g":"G"}"#).unwrap_err();
    assert!(matches!(absent, Reply::Err(error) if error.code == Code::MissingField));
    let group = admit(br#"{"g":"G","plan":[{"parallel":[]}]}"#).unwrap_err();
    assert!(matches!(group, Reply::Err(error) if error.code == Code::MalformedPlan));
    assert!(admit(V10.as_bytes()).is_ok());
}

// spec: SACP-8-1, SACP-6-1
#[test]
fn answers_are_read_and_write_back_equal() {
    for text in [
        r#"{"status":"ERR","code":"MALFORMED_PLAN","details":"Missing parameters for action step 2"}"#,
        r#"{"status":"ERR","code":"STEP_FAILED","details":{"act":2,"why":["late"]},"pointer":"/plan/1","msg_id":"a","reply_to":"b"}"#,
        r#"{"status":"ERR","code":"DISK_FULL","details":"no room"}"#,
        r#"{"status":"VALID","reply_to":"m1"}"#,
        r#"{"status":"VALID"}"#,
        r#"{"status":"REQ_CLARIFY","missing":["plan","city"],"details":"where to?","reply_to":"m1"}"#,
        r#"{"g":"G","plan":[["a","T",{}]],"state":"DONE","status":"an extension"}"#,
    ] {
        let reply = Reply::decode(text.as_bytes()).unwrap();
        assert_eq!(to_string(&reply), text);
        assert_eq!(reply.encode(), text.as_bytes());
    }
    let Reply::Err(error) =
        Reply::decode(br#"{"status":"ERR","code":"X","details":{"a":1}}"#).unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (error.code, error.details.as_str()),
        (Code::InternalError, r#"{"a":1}"#)
    );
    for (bad, wanted) in [
        (r#"{"status":"OOPS"}"#, "/status"),
        (r#"{"status":"ERR","details":"x"}"#, "/code"),
        (
            r#"{"status":"ERR","code":"STEP_FAILED","details":7}"#,
            "/details",
        ),
        (r#"{"status":"REQ_CLARIFY","missing":"plan"}"#, "/missing"),
        ("{}", "/g"),
        ("Sorry, I cannot.", "no JSON"),
    ] {
        let pointer = match Reply::decode(bad.as_bytes()).unwrap_err() {
            DecodeError::Invalid(report) => report.iter().next().unwrap().pointer.clone(),
            _ => "no JSON".to_owned(),
        };
        assert_eq!(pointer, wanted, "{bad}");
    }
}
