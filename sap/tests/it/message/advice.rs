//! What is said of members together: of results, secrets, attachments, schemas.

use sap::ErrorCode;
use sap::validate::{Options, findings};
use serde_json::{Value, json};
use ubos_common::json::Limits;
use ubos_common::violation::{Level, Profile};

use crate::samples::{found, read_result, read_task, result, task, with};

use super::{result_findings, task_findings};

// spec: SAP-4-2, SAP-4.1-7
#[test]
fn absent_should_members_are_told_and_do_not_refuse() {
    let context = json!({"pressureLevel": "instant"});
    let bare = with(task(), "/constitutionalContext", Some(context));
    let bare = with(with(bare, "/outputContract", None), "/target/agentId", None);
    let (_, report) = read_task(&bare, &Options::default()).unwrap();
    let names: Vec<&str> = report
        .iter()
        .map(|f| f.pointer.rsplit('/').next().unwrap())
        .collect();
    for name in [
        "principles",
        "pressure",
        "objectives",
        "constraints",
        "riskTolerance",
        "territory",
        "cachePolicy",
        "outputContract",
    ] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name}");
    }
    assert_eq!(names.len(), 8);
    assert!(
        report
            .iter()
            .all(|f| f.level == Level::Should && f.clause == "SAP-4-2")
    );
    let bare = with(result(), "/output", None);
    assert_eq!(
        result_findings(&bare, &Options::default()),
        ["SHOULD /output SAP-4-2"]
    );
    let running = with(bare, "/status", Some(json!("RUNNING")));
    assert!(result_findings(&running, &Options::default()).is_empty());
    let foreign = with(
        task(),
        "/constitutionalContext/pressure/a~1b",
        Some(json!(1)),
    );
    assert_eq!(
        task_findings(&foreign, &Options::default()),
        ["ADVICE /constitutionalContext/pressure/a~01b SAP-4.1-7"]
    );
}

// spec: SAP-5-4, SAP-5-6, SAP-5-7, SAP-4.2-9
#[test]
fn what_members_of_a_result_say_of_one_another() {
    let judged = |changes: &[(&str, Option<Value>)], options: &Options| {
        let changed = changes
            .iter()
            .fold(result(), |r, (p, v)| with(r, p, v.clone()));
        result_findings(&changed, options)
    };
    let strict = Options::default();
    let failed = ("/status", Some(json!("FAILED")));
    let message = "MUST /error/message SAP-5-6";
    let code = "SHOULD /error/code SAP-5-6";
    assert_eq!(
        judged(std::slice::from_ref(&failed), &strict),
        [message, code]
    );
    assert_eq!(
        judged(
            std::slice::from_ref(&failed),
            &Options::from(Profile::Lenient)
        ),
        ["ADVICE /error/message SAP-5-6", code]
    );
    let blank = ("/error", Some(json!({"code": "TIMEOUT", "message": " "})));
    assert_eq!(judged(&[failed.clone(), blank.clone()], &strict), [message]);
    let own = ("/error", Some(json!({"code": "E_OWN", "message": "m"})));
    assert_eq!(judged(&[failed.clone(), own.clone()], &strict), [code]);
    let (kept, _) = read_result(
        &with(
            with(result(), "/status", failed.1.clone()),
            "/error",
            own.1.clone(),
        ),
        &strict,
    )
    .unwrap();
    assert_eq!(kept.error_code(), Some(&ErrorCode::Other("E_OWN".into())));
    // The same rules hold where the shape is refused too.
    let partial = ("/status", Some(json!("PARTIAL")));
    let nothing = ("/nextActions", Some(json!([])));
    for (changes, wanted) in [
        ([failed.clone(), ("/error", None)], message),
        ([failed, blank], message),
        ([partial, nothing], "SHOULD /nextActions SAP-5-4"),
    ] {
        let both = judged(&[&changes[..], &[("/taskId", None)]].concat(), &strict);
        for wanted in [wanted, "MUST /taskId SAP-4.2-1"] {
            assert!(both.iter().any(|it| it == wanted), "{both:?}");
        }
    }
    assert_eq!(
        judged(&[("/status", Some(json!("ESCALATED")))], &strict),
        ["ADVICE /nextActions SAP-5-7"]
    );
    for (actions, found) in [(json!([]), 1), (json!([{"action": "ask"}]), 0)] {
        let escalated = [
            ("/status", Some(json!("ESCALATED"))),
            ("/nextActions", Some(actions)),
        ];
        assert_eq!(judged(&escalated, &strict).len(), found);
    }
    assert_eq!(
        judged(&[("/status", Some(json!("PARTIAL")))], &strict),
        ["SHOULD /nextActions SAP-5-4"]
    );
    assert_eq!(judged(&[own], &strict), ["ADVICE /error SAP-4.2-9"]);
    let not_valid = ("/constitutionalEvidence/alignment", Some(json!("ESCALATE")));
    assert_eq!(
        judged(&[not_valid], &strict),
        ["ADVICE /constitutionalEvidence/alignment SAP-4.2-9"]
    );
}

// spec: SAP-11-1, SAP-11-4
#[test]
fn reading_advises_on_secrets_and_insecure_attachments() {
    let key = "AKIAABCDEFGHIJKLMNO7";
    let payload = json!({"note": {"k": [key]}, "password": "x", "maxTokens": 5});
    let told = with(task(), "/payload", Some(payload));
    let report = findings(&read_task(&told, &Options::default()));
    let lines = [
        "ADVICE /payload/note/k/0 SAP-11-1",
        "ADVICE /payload/password SAP-11-1",
    ];
    let mut seen = found(&report);
    seen.sort();
    assert_eq!(seen, lines);
    assert!(!report.to_string().contains(key));
    let uris = json!([
        {"uri": "https://example.org/a@b:c"},
        {"uri": "HTTP://example.org"},
        {"uri": "https://u:p@example.org"},
        {"uri": format!("data:text/plain,{key}")},
    ]);
    let attached = with(task(), "/attachments", Some(uris));
    assert_eq!(
        task_findings(&attached, &Options::default()),
        [
            "SHOULD /attachments/1/uri SAP-11-4",
            "SHOULD /attachments/2/uri SAP-11-4",
            "ADVICE /attachments/3/uri SAP-11-1",
        ]
    );
}

// spec: SAP-4.1-10
#[cfg(feature = "schema")]
#[test]
fn a_contract_whose_schema_is_none_is_advised_on() {
    for (schema, pointers) in [
        (json!({"type": "jsonish"}), vec!["/outputContract/schema"]),
        (json!({"type": "string"}), vec![]),
    ] {
        let task = with(task(), "/outputContract/schema", Some(schema));
        let (task, _) = read_task(&task, &Options::default()).unwrap();
        let advice = sap::validate::contract_advice(&task);
        let told: Vec<_> = advice.iter().map(|said| &said.pointer).collect();
        assert_eq!(told, pointers);
    }
}

#[test]
fn findings_between_members_are_bounded_too() {
    let uris: Vec<Value> = (0..50).map(|_| json!({"uri": "http://x"})).collect();
    let pressure: serde_json::Map<String, Value> =
        (0..50).map(|n| (format!("p{n}"), json!(1))).collect();
    let many = with(task(), "/attachments", Some(json!(uris)));
    let many = with(
        many,
        "/constitutionalContext/pressure",
        Some(json!(pressure)),
    );
    assert_eq!(task_findings(&many, &Options::default()).len(), 100);
    let few = Options::default().with_limits(Limits::default().with_max_findings(10));
    assert_eq!(task_findings(&many, &few).len(), 10);
}
