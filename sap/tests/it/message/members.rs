//! What each member of a task and of a result may be.

use sap::validate::{Options, decode_result, decode_task, findings};
use sap::{AgentKind, Alignment, CacheMode, Priority, ProducerKind, RiskTolerance, Status};
use serde_json::{Value, json};
use ubos_common::violation::{Level, Profile};

use crate::samples::{read_result, read_task, result, task, with};

use super::{each_is_refused, result_findings, task_findings};

// spec: SAP-4.1-1, SAP-4.2-1
#[test]
fn every_required_member_is_missed_at_its_pointer_in_one_pass() {
    let required = [
        "protocolVersion",
        "taskId",
        "correlationId",
        "issuedAt",
        "issuer",
        "target",
        "constitutionalContext",
        "payload",
    ];
    let lines = task_findings(&json!({}), &Options::default());
    for name in required {
        let hits = lines
            .iter()
            .filter(|l| l.starts_with(&format!("MUST /{name} ")));
        assert_eq!(hits.count(), 1, "{name}");
    }
    let musts = |lines: Vec<String>| lines.iter().filter(|l| l.starts_with("MUST")).count();
    assert_eq!(musts(lines), required.len());
    assert_eq!(musts(result_findings(&json!({}), &Options::default())), 7);
    let hollow = json!({"producer": {}, "constitutionalEvidence": {}});
    let lines = result_findings(
        &with(result(), "/producer", Some(json!({}))),
        &Options::default(),
    );
    assert_eq!(lines.len(), 2);
    assert_eq!(
        musts(result_findings(&hollow, &Options::default())),
        5 + 2 + 1
    );
    let blank = with(result(), "/producer/agentId", Some(json!(" ")));
    assert_eq!(
        result_findings(&blank, &Options::default()),
        ["MUST /producer/agentId SAP-4.2-1"]
    );
    let user = with(result(), "/producer/agentKind", Some(json!("user")));
    assert!(read_result(&user, &Options::default()).is_err());
    assert!(read_result(&user, &Options::from(Profile::Lenient)).is_ok());
}

// spec: SAP-2-1
#[test]
fn the_version_is_the_string_two_point_zero() {
    for (seen, shown) in [
        (json!("2.1"), "the string \"2.0\" wanted, \"2.1\" seen"),
        (
            json!(2.0),
            "and no value of another type wanted, \"2.0\" seen",
        ),
        (json!("2"), "the string \"2.0\" wanted, \"2\" seen"),
        (Value::Null, "wanted, \"null\" seen"),
    ] {
        for base in [task(), result()] {
            let changed = with(base, "/protocolVersion", Some(seen.clone())).to_string();
            for options in [Options::default(), Options::from(Profile::Lenient)] {
                let task = findings(&decode_task(changed.as_bytes(), &options));
                let result = findings(&decode_result(changed.as_bytes(), &options));
                for report in [task, result] {
                    let finding = report
                        .iter()
                        .find(|f| f.pointer == "/protocolVersion")
                        .unwrap();
                    assert!(finding.level == Level::Must && finding.message.contains(shown));
                }
            }
        }
    }
}

// spec: SAP-3-1, SAP-3-2, SAP-3-3
#[test]
fn ids_and_times_have_one_spelling() {
    let id = "A1B2C3D4-0000-4000-8000-00000000000F";
    for pointer in ["/taskId", "/parentTaskId", "/correlationId"] {
        let upper = with(task(), pointer, Some(json!(id)));
        let (task, _) = read_task(&upper, &Options::default()).unwrap();
        let written: Value = serde_json::from_slice(&task.encode()).unwrap();
        assert_eq!(written.pointer(pointer), Some(&json!(id.to_lowercase())));
        for bad in [
            "{a1b2c3d4-0000-4000-8000-00000000000f}",
            "urn:uuid:a1b2c3d4-0000-4000-8000-00000000000f",
            "a1b2c3d4000040008000000000000000",
            "a1b2c3d4-0000-4000-8000-0000000000",
        ] {
            let changed = with(crate::samples::task(), pointer, Some(json!(bad)));
            assert!(
                read_task(&changed, &Options::default()).is_err(),
                "{pointer} {bad}"
            );
        }
    }
    for pointer in ["/issuedAt", "/telemetry/deadline"] {
        for bad in [
            "2025-09-28T10:15:23.0Z",
            "2025-09-28T10:15:23+00:00",
            "2025-09-28 10:15:23Z",
            "2025-09-28t10:15:23Z",
            "2025-02-30T10:15:23Z",
            "2025-09-28T10:15:60Z",
        ] {
            let changed = with(task(), pointer, Some(json!(bad)));
            assert!(
                read_task(&changed, &Options::default()).is_err(),
                "{pointer} {bad}"
            );
        }
    }
    let (read, _) = read_task(&task(), &Options::default()).unwrap();
    let written: Value = serde_json::from_slice(&read.encode()).unwrap();
    assert_eq!(written["issuedAt"], task()["issuedAt"]);
}

// spec: SAP-4.1-2, SAP-4.1-3, SAP-4.1-4, SAP-4.1-5, SAP-4.1-6, SAP-4.1-8, SAP-4.1-9, SAP-4.1-10, SAP-4.1-11, SAP-4.1-13, SAP-4-1, SAP-4-3
#[test]
fn each_member_of_a_task_has_its_type() {
    each_is_refused(
        &task(),
        task_findings,
        &[
            ("/issuer/agentId", json!(" ")),
            ("/issuer/agentKind", json!("Agent")),
            ("/issuer/name", json!(1)),
            ("/issuer/name", Value::Null),
            ("/target/capability", json!("echo")),
            ("/target/capability", json!("a..b")),
            ("/target/capability", json!("a.b c")),
            ("/target/agentId", json!(1)),
            ("/target/routingHints", json!([])),
            ("/constitutionalContext/pressureLevel", json!("Instant")),
            ("/constitutionalContext/pressureLevel", json!(1)),
            ("/constitutionalContext/pressureLevel", Value::Null),
            ("/constitutionalContext/principles/1", json!(1)),
            ("/constitutionalContext/objectives", json!("one")),
            ("/constitutionalContext/constraints", json!({})),
            ("/constitutionalContext/references", Value::Null),
            ("/constitutionalContext/pressure", json!([])),
            (
                "/constitutionalContext/pressure/strategic_pause",
                json!(100.5),
            ),
            (
                "/constitutionalContext/pressure/strategic_pause",
                json!("9"),
            ),
            ("/constitutionalContext/riskTolerance", json!("LOW")),
            ("/constitutionalContext/territory", json!(1)),
            ("/constitutionalContext/cachePolicy/mode", json!("always")),
            ("/constitutionalContext/cachePolicy/maxAgeSec", json!(60.5)),
            ("/constitutionalContext/cachePolicy/maxAgeSec", json!(-1)),
            ("/constitutionalContext/cachePolicy/mustAlign", json!("yes")),
            ("/payload", json!([])),
            ("/payload", Value::Null),
            ("/outputContract/schema", json!(true)),
            ("/outputContract/format", json!(1)),
            ("/telemetry/priority", json!("High")),
            ("/telemetry/deadline", json!(1)),
            ("/telemetry/budget", json!(1)),
            ("/telemetry/budget/tokens", json!(-1)),
            ("/telemetry/budget/seconds", json!("1")),
            ("/telemetry/trace", json!(1)),
            ("/replyTo/endpoint", json!(1)),
            ("/replyTo/expectAck", json!("no")),
            ("/attachments", json!({})),
            ("/attachments", json!([1])),
            ("/attachments", json!([{"uri": 1}])),
            ("/tags", json!([1])),
            ("/meta", json!([])),
        ],
    );
    let fractions = with(
        task(),
        "/constitutionalContext/pressure/strategic_pause",
        Some(json!(0.5)),
    );
    let sixty = with(
        fractions,
        "/constitutionalContext/cachePolicy/maxAgeSec",
        Some(json!(60.0)),
    );
    let open = with(sixty, "/outputContract/format", Some(json!("anything")));
    let own = with(open, "/telemetry/budget/euros", Some(json!("two")));
    assert!(read_task(&own, &Options::default()).is_ok());
}

/// Words beside a listed one: in another case, with a blank or a letter more, a letter short.
fn neighbours(word: &str) -> Vec<String> {
    let other_case = if word == word.to_lowercase() {
        word.to_uppercase()
    } else {
        word.to_lowercase()
    };
    let (first, rest) = word.split_at(1);
    vec![
        other_case,
        format!("{}{}", first.to_uppercase(), rest.to_lowercase()),
        format!(" {word}"),
        format!("{word} "),
        format!("{word}s"),
        word[..word.len() - 1].to_owned(),
        String::new(),
    ]
}

// spec: SAP-4-3, SAP-4.2-2
#[test]
fn every_word_of_a_closed_list_is_taken_and_no_neighbour() {
    let of_tasks: [(&str, &[&str]); 5] = [
        ("/issuer/agentKind", AgentKind::WORDS),
        (
            "/constitutionalContext/pressureLevel",
            &["instant", "consulted", "deliberated"],
        ),
        ("/constitutionalContext/riskTolerance", RiskTolerance::WORDS),
        ("/constitutionalContext/cachePolicy/mode", CacheMode::WORDS),
        ("/telemetry/priority", Priority::WORDS),
    ];
    for (pointer, word) in each_word(&of_tasks) {
        let said = with(task(), pointer, Some(json!(word)));
        let (read, report) = read_task(&said, &Options::default()).unwrap();
        assert!(report.is_empty(), "{pointer} = {word}: {report}");
        let written: Value = serde_json::from_slice(&read.encode()).unwrap();
        assert_eq!(written.pointer(pointer), Some(&json!(word)));
        let beside = neighbours(word)
            .into_iter()
            .map(|bad| (pointer, json!(bad)));
        each_is_refused(&task(), task_findings, &beside.collect::<Vec<_>>());
    }
    let of_results: [(&str, &[&str]); 3] = [
        ("/producer/agentKind", ProducerKind::WORDS),
        ("/status", Status::WORDS),
        ("/constitutionalEvidence/alignment", Alignment::WORDS),
    ];
    let why = json!({"code": "INTERNAL", "message": "no"});
    // An error is at home in a failed result, and allowed in any.
    let explained = with(result(), "/error", Some(why));
    for (pointer, word) in each_word(&of_results) {
        let said = with(explained.clone(), pointer, Some(json!(word)));
        let (read, _) = read_result(&said, &Options::default()).unwrap();
        let written: Value = serde_json::from_slice(&read.encode()).unwrap();
        assert_eq!(written.pointer(pointer), Some(&json!(word)));
        let beside = neighbours(word)
            .into_iter()
            .map(|bad| (pointer, json!(bad)));
        each_is_refused(&result(), result_findings, &beside.collect::<Vec<_>>());
    }
}

fn each_word<'a>(
    lists: &'a [(&'a str, &'a [&'a str])],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let pairs = |&(pointer, words): &(&'a str, &'a [&'a str])| {
        words.iter().map(move |&word| (pointer, word))
    };
    lists.iter().flat_map(pairs)
}

// spec: SAP-4.2-2, SAP-4.2-3, SAP-4.2-4, SAP-4.2-6
#[test]
fn each_member_of_a_result_has_its_type() {
    each_is_refused(
        &result(),
        result_findings,
        &[
            ("/status", json!("succeeded")),
            ("/constitutionalEvidence/alignment", json!("valid")),
            ("/constitutionalEvidence/pressureReadings/x", json!("1")),
            ("/constitutionalEvidence/policyChecks", json!({})),
            ("/constitutionalEvidence/policyChecks/0/principle", json!(1)),
            ("/constitutionalEvidence/policyChecks/0/status", json!(1)),
            (
                "/constitutionalEvidence/violations",
                json!([{"severity": 1}]),
            ),
            ("/constitutionalEvidence/citations/0", json!(1)),
            ("/constitutionalEvidence/cache/hit", json!(1)),
            ("/constitutionalEvidence/cache/cacheKey", json!(1)),
            ("/constitutionalEvidence/cache/ageSec", json!(-1)),
            ("/artifacts", json!([1])),
            ("/metrics", json!([])),
            ("/error", json!("bad")),
            ("/error", json!({"code": 1})),
            ("/error", json!({"message": 1})),
            ("/error", json!({"details": []})),
            ("/nextActions", json!([1])),
            ("/meta", json!(1)),
        ],
    );
    let infinite = result().to_string().replace(":842", ":1e400");
    assert!(decode_result(infinite.as_bytes(), &Options::default()).is_ok());
    let infinite = result().to_string().replace(":28", ":1e400");
    assert!(decode_result(infinite.as_bytes(), &Options::default()).is_err());
    let below = with(
        result(),
        "/constitutionalEvidence/pressureReadings/x",
        Some(json!(-7)),
    );
    assert!(read_result(&below, &Options::default()).is_ok());
    // Present in every result, whatever its status.
    for status in Status::WORDS {
        let changed = with(result(), "/status", Some(json!(status)));
        let bare = with(changed, "/constitutionalEvidence/alignment", None);
        let lines = result_findings(&bare, &Options::default());
        assert!(
            lines.contains(&"MUST /constitutionalEvidence/alignment SAP-4.2-3".to_owned()),
            "{status}"
        );
    }
}
