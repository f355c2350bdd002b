//! What is read and written back, and what is refused.

use std::borrow::Cow;

use proptest::prelude::*;
use sap::validate::{Options, decode_result, decode_task, findings, ids_of};
use sap::{Ack, ErrorCode, Nack, Psi, TaskResult, TaskView, Whole};
use serde_json::{Value, json};
use ubos_common::json::{self, Limits, RawBuf};
use ubos_common::violation::{Level, Profile};

use crate::samples::{example_task, read_result, read_task, result, task, with};

use super::{result_findings, task_findings};

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
