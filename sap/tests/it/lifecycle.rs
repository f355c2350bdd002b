//! Results against their task; what may be sent.

use sap::validate::Options;
use sap::{
    Accepted, DispatchError, Lifecycle, LifecycleError, SecretPolicy, Status, TaskResult, dispatch,
    report,
};
use serde_json::{Value, json};
use ubos_common::json::RawBuf;
use ubos_common::violation::Profile;

use crate::samples::{found, read_result, read_task, result, task, with};

fn of_status(status: &str) -> TaskResult {
    let changed = with(result(), "/status", Some(json!(status)));
    let changed = with(
        changed,
        "/error",
        Some(json!({"code": "INTERNAL", "message": "m"})),
    );
    read_result(&changed, &Options::from(Profile::Lenient))
        .unwrap()
        .0
}

fn lifecycle(profile: Profile) -> Lifecycle {
    Lifecycle::new(&read_task(&task(), &Options::default()).unwrap().0, profile)
}

// spec: SAP-5-3, SAP-5-4
#[test]
fn results_follow_one_another_as_the_table_says() {
    let mut held = lifecycle(Profile::Strict);
    for status in ["QUEUED", "PARTIAL", "RUNNING", "PARTIAL"] {
        held.accept(&of_status(status)).unwrap();
    }
    // A late copy of an old one is a copy, not a step back.
    assert_eq!(held.accept(&of_status("QUEUED")), Ok(Accepted::Repeat));
    assert_eq!(held.accept(&of_status("FAILED")), Ok(Accepted::Moved));
    assert_eq!(held.accept(&of_status("FAILED")), Ok(Accepted::Repeat));
    let refused = held.accept(&of_status("SUCCEEDED")).unwrap_err();
    assert_eq!(refused.to_string(), "SUCCEEDED may not follow FAILED");
    assert!(held.status().is_some_and(Status::is_terminal));
    let mut lenient = lifecycle(Profile::Lenient);
    lenient.accept(&of_status("FAILED")).unwrap();
    assert_eq!(
        lenient.accept(&of_status("RUNNING")),
        Ok(Accepted::OutOfOrder)
    );
    assert_eq!(lenient.status(), Some(&Status::Failed));
}

#[test]
fn of_the_results_of_a_task_the_last_1024_are_known_again() {
    let mut held = lifecycle(Profile::Strict);
    let mut accept = |number: usize| {
        let mut part = of_status("PARTIAL");
        part.output = Some(RawBuf::parse(&number.to_string()).unwrap());
        held.accept(&part).unwrap()
    };
    for number in 0..=1_024 {
        assert_eq!(accept(number), Accepted::Moved);
    }
    assert_eq!([1, 0].map(accept), [Accepted::Repeat, Accepted::Moved]);
}

// spec: SAP-5-5
#[test]
fn a_result_of_another_task_moves_nothing() {
    let mut held = lifecycle(Profile::Lenient);
    let other = "00000000-0000-0000-0000-000000000000";
    let task = with(result(), "/taskId", Some(json!(other)));
    let correlation = with(result(), "/correlationId", Some(json!(other)));
    let read = |value| read_result(value, &Options::default()).unwrap().0;
    assert!(matches!(
        held.accept(&read(&task)),
        Err(LifecycleError::Task { .. })
    ));
    assert!(matches!(
        held.accept(&read(&correlation)),
        Err(LifecycleError::Correlation { .. })
    ));
    assert_eq!(held.status(), None);
}

// spec: SAP-5-1
#[test]
fn what_does_not_hold_is_not_sent() {
    let (mut task, _) = read_task(&task(), &Options::default()).unwrap();
    assert_eq!(
        dispatch(&task, SecretPolicy::Refuse).unwrap().0,
        task.encode()
    );
    task.issuer.agent_kind = "robot".into();
    assert!(
        matches!(dispatch(&task, SecretPolicy::Refuse), Err(DispatchError::Invalid(r)) if r.len() == 1)
    );
    let mut failed = of_status("FAILED");
    assert!(report(&failed).is_ok());
    failed.error = None;
    assert!(matches!(report(&failed), Err(DispatchError::Invalid(_))));
}

// spec: SAP-11-1
#[test]
fn secrets_are_refused_by_pointer_and_never_shown() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9";
    let base64 = |characters| -> String { "aB3d".chars().cycle().take(characters).collect() };
    let of_azure = [
        format!("AccountName=desk;AccountKey={}==;A=b", base64(86)),
        format!("SharedAccessKey={}=", base64(43)),
        format!("a1.8Q~{}", base64(34)),
        format!("https://desk.example/c?sv=2022-11-02&sig={}%3D", base64(43)),
    ];
    let others = [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
        "Bearer abcdefghijklmnop123456",
        jwt,
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "token = ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ];
    for secret in of_azure.iter().map(String::as_str).chain(others) {
        let payload = json!({"a/b": ["x", {"deep": secret}]});
        let (task, _) = read_task(
            &with(task(), "/payload", Some(payload)),
            &Options::default(),
        )
        .unwrap();
        let refused = dispatch(&task, SecretPolicy::Refuse).unwrap_err();
        assert!(
            !format!("{refused} {refused:?}").contains(&secret[..12]),
            "{refused}"
        );
        let DispatchError::Secret(report) = refused else {
            panic!("{refused}")
        };
        assert_eq!(found(&report), ["MUST /payload/a~1b/1/deep SAP-11-1"]);
        assert!(dispatch(&task, SecretPolicy::Advise).is_ok());
    }
    // Some are keys only beside their names.
    for (name, key) in [
        ("accountKey", base64(86) + "=="),
        ("secretAccessKey", base64(40)),
        // As long as may be, with what stands behind the key.
        ("accountKey", format!("{:128}", base64(86) + "==")),
    ] {
        let (task, _) = read_task(
            &with(task(), "/payload", Some(json!({ name: key }))),
            &Options::default(),
        )
        .unwrap();
        let refused = dispatch(&task, SecretPolicy::Refuse).unwrap_err();
        assert!(
            !format!("{refused} {refused:?}").contains(&key),
            "{refused}"
        );
        let DispatchError::Secret(report) = refused else {
            panic!("{refused}")
        };
        assert_eq!(found(&report), [format!("MUST /payload/{name} SAP-11-1")]);
        assert!(dispatch(&task, SecretPolicy::Advise).is_ok());
    }
    let named = json!({"password": "x", "token": "y", "maxTokens": 3});
    let (task, _) = read_task(&with(task(), "/payload", Some(named)), &Options::default()).unwrap();
    assert_eq!(dispatch(&task, SecretPolicy::Refuse).unwrap().1.len(), 2);
}

// spec: SAP-11-1
#[test]
fn a_secret_hides_behind_no_number_of_names_that_are_advice() {
    let mut many = vec![json!({"password": "x"}); 1_500];
    many.push(json!("ghp_abcdefghijklmnopqrstuvwxyz0123456789"));
    let payload = Some(json!({ "a": many }));
    let (task, _) = read_task(&with(task(), "/payload", payload), &Options::default()).unwrap();
    let refused = dispatch(&task, SecretPolicy::Refuse);
    assert!(matches!(refused, Err(DispatchError::Secret(found)) if !found.is_valid()));
}

// spec: SAP-11-1
#[test]
fn a_secret_is_found_anywhere_in_a_task_and_its_names() {
    const KEY: &str = "ghp_6U6Ojx9J3trfBB9HaDEtV8EgtHXepBhgLpPG";
    let refusal = |changed: Value| {
        let (task, _) = read_task(&changed, &Options::default()).unwrap();
        let refused = dispatch(&task, SecretPolicy::Refuse).unwrap_err();
        assert!(
            !format!("{refused} {refused:?}").contains(&KEY[4..]),
            "{refused}"
        );
        let DispatchError::Secret(report) = refused else {
            panic!("{refused}")
        };
        assert!(dispatch(&task, SecretPolicy::Advise).is_ok());
        found(&report)
    };
    let text = |text: &str| json!(text.replace("KEY", KEY));
    for (pointer, value, at) in [
        (
            "/replyTo/endpoint",
            text("https://desk:KEY@example.org"),
            "/replyTo/endpoint",
        ),
        ("/issuer/note", text("KEY"), "/issuer/note"),
        ("/telemetry/tags", json!(["a", KEY]), "/telemetry/tags/1"),
        (
            "/telemetry/meta",
            json!({"a": {"b": KEY}}),
            "/telemetry/meta/a/b",
        ),
        (
            "/constitutionalContext/constraints",
            json!([format!("use {KEY} for it")]),
            "/constitutionalContext/constraints/0",
        ),
        (
            "/attachments",
            json!([{"uri": format!("https://a/?k={KEY}")}]),
            "/attachments/0/uri",
        ),
        ("/unknown", json!({"x": [KEY]}), "/unknown/x/0"),
        // A name is told of its object, whose pointer does not show it.
        ("/payload/named", json!({KEY: {"a": 1}}), "/payload/named"),
        ("/telemetry/meta", json!({KEY: KEY}), "/telemetry/meta"),
        (&format!("/{KEY}"), json!(1), ""),
    ] {
        let seen = refusal(with(task(), pointer, Some(value)));
        assert_eq!(seen, [format!("MUST {at} SAP-11-1")]);
    }
    let hidden = KEY.replacen("ghp_6U6", "gh\u{200b}p_6U6", 1);
    let seen = refusal(with(task(), "/telemetry/tags", Some(json!([hidden]))));
    assert_eq!(seen, ["MUST /telemetry/tags/0 SAP-11-1"]);
}

/// Texts that look a little like secrets, wherever they stand.
// spec: SAP-11-1
#[test]
fn what_is_no_secret_is_not_taken_for_one() {
    for text in [
        "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
        "9a2c24b466860f7fc5485399b360d87c184a651baf88d136a49bf353246ce809",
        "https://example.org/a@b?key=value",
        "npm_config_registry",
        "hf_transfer_enabled",
        "glpat-short1",
        "the bearer of good news",
        "a basic understanding of the problem",
        "-----BEGIN CERTIFICATE-----",
        "consult.align and text.upper",
        "AKIA is how the names of keys begin",
        "xoxb is a prefix of tokens",
    ] {
        let changed = with(task(), "/telemetry/tags", Some(json!([text])));
        let changed = with(changed, "/payload/text", Some(json!(text)));
        let changed = with(changed, "/payload/names", Some(json!({text: 1})));
        let (task, _) = read_task(&changed, &Options::default()).unwrap();
        assert!(dispatch(&task, SecretPolicy::Refuse).is_ok(), "{text}");
    }
}
