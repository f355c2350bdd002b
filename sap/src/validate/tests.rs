//! What is checked of typed messages is what a strict reader takes.

use ubos_common::json::{RawBuf, Write as _};

use super::*;
use crate::result::TaskResult;

fn result(text: &str) -> TaskResult {
    let text = format!(
        r#"{{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a","correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","reportedAt":"2025-09-28T10:15:23Z","producer":{{"agentId":"A-ml-001","agentKind":"agent"}},{text}}}"#
    );
    let read = decode_result(text.as_bytes(), &Options::default());
    read.unwrap().0
}

fn is_read(result: &TaskResult) -> bool {
    decode_result(&result.encode(), &Options::default()).is_ok()
}

fn holds(result: &TaskResult) -> bool {
    is_valid_result(result, &result.encode())
}

#[test]
#[cfg_attr(miri, ignore = "too slow in an interpreter")]
fn what_holds_of_a_typed_result_is_what_a_strict_reader_takes() {
    let valid = r#""constitutionalEvidence":{"alignment":"VALID"}"#;
    let said = result(&format!(r#""status":"SUCCEEDED",{valid},"output":1"#));
    assert!(holds(&said) && is_read(&said));
    let failed =
        format!(r#""status":"FAILED",{valid},"error":{{"code":"INTERNAL","message":"m"}}"#);
    assert!(holds(&result(&failed)));
    let changes: [fn(&mut TaskResult); 5] = [
        |it| it.error = None,
        |it| it.error.as_mut().unwrap().message = Some(" ".into()),
        // Written twice.
        |it| it.extra.insert("taskId", RawBuf::parse("1").unwrap()),
        |it| {
            let deep = "[".repeat(63) + &"]".repeat(63);
            it.meta = RawBuf::parse(&format!(r#"{{"deep":{deep}}}"#))
                .ok()
                .and_then(json::RawObject::new);
            assert!(it.meta.is_some());
        },
        |it| {
            it.error.as_mut().unwrap().message =
                Some("long".repeat(Limits::default().max_bytes / 4))
        },
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut broken = result(&failed);
        change(&mut broken);
        assert!(!holds(&broken) && !is_read(&broken), "{n}");
    }
}

const TASK: &str = r#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a","correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","issuedAt":"2025-09-28T10:15:23Z","parentTaskId":null,"issuer":{"agentId":"A","agentKind":"agent","name":"n"},"target":{"agentId":"B","capability":"a.b","routingHints":{}},"constitutionalContext":{"pressureLevel":"instant","principles":["p"],"pressure":{"p":52},"objectives":["o"],"constraints":["c"],"riskTolerance":"low","territory":"T","references":["r"],"cachePolicy":{"mode":"prefer","maxAgeSec":1,"mustAlign":true}},"payload":{"n":1},"outputContract":{"format":"json","schema":{}},"telemetry":{"priority":"high","deadline":"2025-09-28T11:00:00Z","budget":{"tokens":1,"seconds":2},"trace":true},"replyTo":{"endpoint":"e","expectAck":true},"attachments":[{"uri":"u","kind":"k","digest":"d"}],"tags":["t"],"meta":{}}"#;
const RESULT: &str = r#"{"protocolVersion":"2.0","taskId":"7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a","correlationId":"a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11","reportedAt":"2025-09-28T10:15:23Z","producer":{"agentId":"A","agentKind":"agent"},"status":"FAILED","constitutionalEvidence":{"alignment":"VALID","pressureReadings":{"p":1},"policyChecks":[{"principle":"p","status":"PASS","notes":"n"}],"violations":[{"principle":"p","severity":"high","evidence":"e"}],"citations":["c"],"cache":{"hit":true,"cacheKey":"k","ageSec":1}},"output":1,"artifacts":[{}],"metrics":{},"error":{"code":"INTERNAL","message":"m","details":{}},"nextActions":[{}],"meta":{}}"#;

/// The text with each of its values in turn replaced by others of its kind.
fn changed(text: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let value = |from: usize| text.get(from..).unwrap_or_default();
    for (at, _) in text.match_indices(':') {
        let rest = value(at + 1);
        let (kind, end) = match rest.as_bytes().first() {
            Some(b'"') => ("text", 2 + value(at + 2).find('"').unwrap_or_default()),
            Some(b'0'..=b'9') => ("number", rest.find([',', '}']).unwrap_or_default()),
            _ => continue,
        };
        let others = if kind == "text" {
            &["\"odd\"", "\"\"", "\" \""][..]
        } else {
            &["-1", "101", "1e400"]
        };
        let (before, behind) = (text.get(..=at).unwrap_or_default(), value(at + 1 + end));
        texts.extend(
            others
                .iter()
                .map(|other| format!("{before}{other}{behind}")),
        );
    }
    texts
}

// A lenient reader lets words and numbers pass that a strict one refuses, wherever they stand.
#[test]
fn what_only_a_lenient_reader_takes_does_not_hold() {
    let lenient = Options::from(Profile::Lenient);
    let (mut taken, mut refused) = (0, 0);
    let mut seen = |holds: bool, is_read: bool, text: &str| {
        assert_eq!(holds, is_read, "{text}");
        *(if holds { &mut taken } else { &mut refused }) += 1;
    };
    for text in changed(TASK) {
        if let Ok((task, _)) = decode_task(text.as_bytes(), &lenient) {
            let written = task.encode();
            let strict = decode_task(&written, &Options::default()).is_ok();
            seen(
                task.is_strict() && is_sound(&written, &lenient),
                strict,
                &text,
            );
        }
    }
    for text in changed(RESULT) {
        if let Ok((result, _)) = decode_result(text.as_bytes(), &lenient) {
            seen(holds(&result), is_read(&result), &text);
        }
    }
    assert!(taken > 40 && refused >= 16, "{taken} {refused}");
}

#[cfg(feature = "arbitrary")]
#[test]
fn it_is_of_whatever_is_drawn() {
    use ::arbitrary::{Arbitrary as _, Unstructured};

    let mut ids = ubos_common::id::IdSource::seeded(1);
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..32).flat_map(|_| ids.uuid().into_bytes()).collect();
        let mut drawn = TaskResult::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        assert!(holds(&drawn) && is_read(&drawn));
        drawn.error = None;
        assert_eq!(holds(&drawn), is_read(&drawn));
        let mut task = Task::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
        let is_read = |task: &Task| decode_task(&task.encode(), &Options::default()).is_ok();
        let holds = |task: &Task| task.is_strict() && is_sound(&task.encode(), &Options::default());
        assert!(holds(&task) && is_read(&task));
        task.issuer
            .extra
            .insert("agentId", RawBuf::parse("1").unwrap());
        assert!(!holds(&task) && !is_read(&task));
    }
}
