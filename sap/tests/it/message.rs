//! Reading and writing tasks, results and receipts.

use std::borrow::Cow;

use proptest::prelude::*;
use sap::validate::{Options, decode_result, decode_task, findings, ids_of};
use sap::{Ack, ErrorCode, Nack, PressureLevel, Status, TaskResult, TaskView};
use sap::{AgentKind, Alignment, CacheMode, Priority, ProducerKind, Psi, RiskTolerance, Whole};
use serde_json::{Value, json};
use ubos_common::json::{self, Limits, RawBuf};
use ubos_common::violation::{Level, Profile};

use crate::samples::{example_task, found, read_result, read_task, result, task, with};

fn task_findings(value: &Value, options: &Options) -> Vec<String> {
    found(&findings(&read_task(value, options)))
}

fn result_findings(value: &Value, options: &Options) -> Vec<String> {
    found(&findings(&read_result(value, options)))
}

/// Each change is refused by the strict profile at its own pointer, with one MUST finding.
fn each_is_refused(
    base: &Value,
    judge: fn(&Value, &Options) -> Vec<String>,
    changes: &[(&str, Value)],
) {
    for (pointer, value) in changes {
        let changed = with(base.clone(), pointer, Some(value.clone()));
        let musts: Vec<String> = judge(&changed, &Options::default())
            .into_iter()
            .filter(|line| line.starts_with("MUST"))
            .collect();
        assert_eq!(musts.len(), 1, "{pointer} = {value}: {musts:?}");
        assert!(
            musts[0].starts_with(&format!("MUST {pointer}")),
            "{musts:?}"
        );
    }
}

// spec: SAP-4.1-14
#[test]
fn the_example_task_lacks_its_pressure_level_alone() {
    let level = "/constitutionalContext/pressureLevel SAP-4.1-5";
    assert_eq!(
        task_findings(&example_task(), &Options::default()),
        [format!("MUST {level}")]
    );
    let (task, report) = read_task(&example_task(), &Options::from(Profile::Lenient)).unwrap();
    assert_eq!(found(&report), [format!("ADVICE {level}")]);
    assert_eq!(
        task.constitutional_context.pressure_level,
        PressureLevel::Consulted
    );
}

// spec: SAP-4.2-8
#[test]
fn the_example_result_has_no_finding() {
    for options in [Options::default(), Options::from(Profile::Lenient)] {
        assert!(result_findings(&result(), &options).is_empty());
    }
}

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

// spec: SAP-2-5
#[test]
fn a_message_that_is_no_object_breaks_a_clause() {
    for value in [json!([]), json!("2.0"), Value::Null] {
        for options in [Options::default(), Options::from(Profile::Lenient)] {
            assert_eq!(task_findings(&value, &options), ["MUST  SAP-2-5"]);
            assert_eq!(result_findings(&value, &options), ["MUST  SAP-2-5"]);
        }
    }
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

// spec: SAP-2-6
#[test]
fn lenient_reads_and_reports() {
    let changes = [
        ("/taskId", json!("{7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a}")),
        ("/issuedAt", json!("2025-09-28T12:15:23.5+02:00")),
        (
            "/constitutionalContext/pressure/strategic_pause",
            json!(150),
        ),
        ("/constitutionalContext/riskTolerance", json!("none")),
        ("/issuer/agentKind", json!("robot")),
        ("/tags", Value::Null),
    ];
    let mut all = task();
    for (pointer, value) in &changes {
        all = with(all, pointer, Some(value.clone()));
    }
    let (read, report) = read_task(&all, &Options::from(Profile::Lenient)).unwrap();
    assert_eq!(report.len(), changes.len(), "{report}");
    assert!(report.iter().all(|f| f.level == Level::Advice));
    let written: Value = serde_json::from_slice(&read.encode()).unwrap();
    assert_eq!(written["taskId"], task()["taskId"]);
    assert_eq!(written["issuedAt"], task()["issuedAt"]);
    assert_eq!(written["issuer"]["agentKind"], "robot");
    assert_eq!(written.get("tags"), None);
    let strict = task_findings(&all, &Options::default());
    assert_eq!(
        strict.iter().filter(|l| l.starts_with("MUST")).count(),
        changes.len()
    );
    let level = with(
        task(),
        "/constitutionalContext/pressureLevel",
        Some(json!("later")),
    );
    assert!(read_task(&level, &Options::from(Profile::Lenient)).is_err());
}

// spec: SAP-2-2, SAP-2-3, SAP-2-4, SAP-4.2-5, SAP-4.2-6
#[test]
fn what_was_read_is_written_back() {
    let unknown = r#"{"a":1.0,"b":1e3,"c":12345678901234567890}"#;
    let text = task().to_string();
    let extended = text
        .replacen('{', &format!("{{\"x-top\":{unknown},"), 1)
        .replace("\"issuer\":{", &format!("\"issuer\":{{\"x-in\":{unknown},"))
        .replace(
            "\"pressureLevel\"",
            &format!("\"x-ctx\":{unknown},\"pressureLevel\""),
        )
        .replace(":28", ":28.00")
        .replace(":86400", ":8.64e4")
        .replace(":8000", ":8e3");
    let (read, _) = decode_task(extended.as_bytes(), &Options::default()).unwrap();
    let written = String::from_utf8(read.encode()).unwrap();
    assert_eq!(written.matches(unknown).count(), 3, "{written}");
    for number in [":28.00", ":8.64e4", ":8e3"] {
        assert!(written.contains(number), "{written}");
    }
    let again = decode_task(written.as_bytes(), &Options::default())
        .unwrap()
        .0;
    assert_eq!(again, read);
    // Nothing but the spec's own members where nothing unknown was read; null for a parent is written as absent.
    let (plain, _) = decode_task(text.as_bytes(), &Options::default()).unwrap();
    let written: Value = serde_json::from_slice(&plain.encode()).unwrap();
    assert_eq!(written, with(task(), "/parentTaskId", None));
    let (read, _) = read_result(&result(), &Options::default()).unwrap();
    let written: Value = serde_json::from_slice(&read.encode()).unwrap();
    assert_eq!(written, result());
    for output in ["null", "1.50", "[1e3]"] {
        let text = result().to_string().replace(
            "\"output\":{\"sections\":[\"Purpose\",\"Objects\",\"Learning\"]}",
            &format!("\"output\":{output}"),
        );
        let (read, _) = decode_result(text.as_bytes(), &Options::default()).unwrap();
        assert_eq!(read.output.as_ref().map(RawBuf::as_str), Some(output));
        assert!(
            String::from_utf8(read.encode())
                .unwrap()
                .contains(&format!("\"output\":{output}"))
        );
    }
    let absent = with(result(), "/output", None);
    assert_eq!(
        read_result(&absent, &Options::default()).unwrap().0.output,
        None
    );
}

// spec: SAP-2-5
#[test]
fn what_is_no_sound_json_is_refused_with_its_place() {
    let twice = task()
        .to_string()
        .replacen('{', r#"{"meta":{"a":1,"a":2},"#, 1);
    for (text, code) in [
        ("[]".to_owned(), "wrong_type"),
        ("{} 1".to_owned(), "trailing_bytes"),
        ("{\"a\"".to_owned(), "unexpected_end"),
        (twice, "duplicate_member"),
    ] {
        let report = findings(&decode_task(text.as_bytes(), &Options::default()));
        assert_eq!(report.iter().next().unwrap().code, code);
    }
    assert!(decode_task(b"\xff", &Options::default()).is_err());
    let small = Options::default().with_limits(Limits::default().with_max_bytes(10));
    assert!(decode_result(result().to_string().as_bytes(), &small).is_err());
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

// spec: SAP-4.1-12, SAP-5-9
#[test]
fn an_ack_is_wanted_unless_it_is_not() {
    let wants = |value: &Value| {
        read_task(value, &Options::default())
            .unwrap()
            .0
            .expects_ack()
    };
    assert!(wants(&with(task(), "/replyTo", None)));
    assert!(wants(&with(task(), "/replyTo/expectAck", None)));
    assert!(!wants(&with(
        task(),
        "/replyTo/expectAck",
        Some(json!(false))
    )));
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

// spec: SAP-4.3-1, SAP-4.3-2
#[test]
fn receipts_carry_the_ids() {
    let (task, _) = read_task(&task(), &Options::default()).unwrap();
    let ack: Value = serde_json::from_slice(&json::to_vec(&Ack::from(&task))).unwrap();
    assert_eq!(
        ack,
        json!({"status": "ACK", "messageId": task.task_id.to_string(), "correlationId": task.correlation_id.to_string()})
    );
    let nack = Nack::of(&task, ErrorCode::NotFound, "no such agent".parse().unwrap());
    let text = json::to_vec(&nack);
    let (again, _) = json::decode::<Nack>(&text, &Limits::default(), Default::default()).unwrap();
    assert_eq!(again, nack);
    let producer = read_result(&result(), &Options::default())
        .unwrap()
        .0
        .producer;
    let failed = nack.into_result(task.issued_at.into(), producer).unwrap();
    assert!(sap::report(&failed).is_ok());
    assert_eq!(
        (failed.task_id, failed.error_code()),
        (task.task_id, Some(&ErrorCode::NotFound))
    );
    assert!(" ".parse::<sap::Reason>().is_err());
    let broken = with(example_task(), "/taskId", Some(json!(7)));
    let (task_id, correlation_id) = ids_of(broken.to_string().as_bytes(), &Limits::default());
    assert_eq!((task_id, correlation_id), (None, Some(task.correlation_id)));
}

// spec: SAP-4.1-15
#[test]
fn only_valid_parts_can_be_made() {
    assert!(Psi::try_from(100.0).is_ok());
    assert!(Psi::try_from(100.1).is_err() && Psi::try_from(f64::NAN).is_err());
    assert!(Whole::try_from((1 << 53) - 1).is_ok() && Whole::try_from(1 << 53).is_err());
    assert!("".parse::<sap::AgentId>().is_err());
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

proptest! {
    // spec: SAP-2-5
    #[test]
    fn arbitrary_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for options in [Options::default(), Options::from(Profile::Lenient)] {
            drop(decode_task(&bytes, &options));
            drop(decode_result(&bytes, &options));
            let _ = ids_of(&bytes, &Limits::default());
        }
    }

    // spec: SAP-2-3
    #[test]
    fn a_changed_message_is_refused_or_read_back_equal(
        place in 0_usize..26,
        value in prop_oneof![Just(json!(null)), any::<i32>().prop_map(|n| json!(n)), ".{0,8}".prop_map(|s| json!(s)), Just(json!({})), Just(json!([]))],
    ) {
        let names: Vec<String> = task().as_object().unwrap().keys().chain(result().as_object().unwrap().keys()).cloned().collect();
        let name = format!("/{}", names[place % names.len()]);
        if let Ok((read, _)) = read_task(&with(task(), &name, Some(value.clone())), &Options::from(Profile::Lenient)) {
            let (again, _) = decode_task(&read.encode(), &Options::from(Profile::Lenient)).unwrap();
            prop_assert_eq!(&again, &read);
        }
        if let Ok((read, _)) = read_result(&with(result(), &name, Some(value)), &Options::from(Profile::Lenient)) {
            let (again, _): (TaskResult, _) = decode_result(&read.encode(), &Options::from(Profile::Lenient)).unwrap();
            prop_assert_eq!(&again, &read);
        }
    }
}

// spec: SAP-2-5, SAP-2-3
#[test]
fn a_view_borrows_and_refuses_what_a_task_refuses() {
    let text = task().to_string();
    let (view, _) = TaskView::decode(text.as_bytes(), &Limits::default()).unwrap();
    let (whole, _) = decode_task(text.as_bytes(), &Options::default()).unwrap();
    assert_eq!(
        (view.task_id, view.issued_at),
        (whole.task_id, whole.issued_at)
    );
    assert!(matches!(
        view.target.capability,
        Cow::Borrowed("consult.align")
    ));
    assert!(
        text.as_bytes()
            .as_ptr_range()
            .contains(&view.payload.as_str().as_ptr())
    );
    let again = decode_task(&json::to_vec(&view), &Options::default()).unwrap();
    assert_eq!(again.0, whole);
    for doubled in [
        "\"pressure\":{",
        "\"payload\":{",
        "\"schema\":{",
        "\"meta\":{",
    ] {
        let twice = text.replace(doubled, &format!("{doubled}\"a\":1,\"a\":1,"));
        assert_ne!(twice, text);
        assert!(
            TaskView::decode(twice.as_bytes(), &Limits::default()).is_err(),
            "{doubled}"
        );
    }
    let small = Limits::default().with_max_depth(2);
    assert!(TaskView::decode(text.as_bytes(), &small).is_err());
}
