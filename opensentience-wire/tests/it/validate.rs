//! Messages and recorded streams, judged.

use opensentience_wire::Limits;
use opensentience_wire::validate;
use serde_json::{Value, json};
use ubos_common::violation::Report;

use crate::kit::{call, frame, hello, message, raw_frame, tool, welcome};

fn found(report: &Report) -> Vec<String> {
    report
        .iter()
        .map(|f| format!("{} {} {} {}", f.level.as_str(), f.pointer, f.code, f.clause))
        .collect()
}

fn judged(value: &Value) -> Vec<String> {
    found(&validate::message(
        value.to_string().as_bytes(),
        &Limits::default(),
    ))
}

// spec: OSW-3-1, OSW-3-3, OSW-4.2-1, OSW-4.3-5, OSW-4.3-8
#[test]
fn a_message_is_judged_with_every_finding() {
    for good in [
        hello(),
        welcome(),
        call("c"),
        message("core.later", json!({"any": 1})),
    ] {
        assert_eq!(judged(&good), [""; 0], "{good}");
    }
    let mut bad = message("core.tool.call", json!({"call_id": 7, "input": []}));
    bad["v"] = json!(2);
    let wanted = [
        "MUST /v version OSW-3-1",
        "MUST /request_id missing OSW-3-3",
        "MUST /payload/call_id wrong_type OSW-4.3-1",
        "MUST /payload/tool_id missing OSW-4.3-1",
        "MUST /payload/input wrong_type OSW-4.3-1",
    ];
    let mut seen = judged(&bad);
    seen.sort();
    let mut wanted = wanted.map(str::to_owned).to_vec();
    wanted.sort();
    assert_eq!(seen, wanted);
    let chunk = message(
        "agent.tool.stream",
        json!({"call_id": "c", "seq": 0, "channel": "stdout", "data": {"json": {}}}),
    );
    assert_eq!(
        judged(&chunk),
        [
            "MUST /payload/data data OSW-4.3-5",
            "MUST /payload/seq seq OSW-4.3-5"
        ]
    );
    let outcome = |payload: Value| judged(&message("agent.tool.result", payload));
    assert_eq!(
        outcome(json!({"call_id": "c", "status": "failed"})),
        ["SHOULD /payload/error missing OSW-4.3-8"]
    );
    let error = json!({"code": "tool.failed", "message": "m"});
    for (status, member) in [("succeeded", "error"), ("failed", "output")] {
        assert_eq!(
            outcome(json!({"call_id": "c", "status": status, "output": {}, "error": error})),
            [format!("SHOULD /payload/{member} status OSW-4.3-8")]
        );
    }
    let mut without = hello();
    without["payload"]["protocol"]["supported_versions"] = json!([]);
    assert_eq!(
        judged(&without),
        ["SHOULD /payload/protocol/supported_versions empty OSW-4.1-6"]
    );
    let mut other = tool("echo");
    other["name"] = json!("other");
    let register = message(
        "agent.tools.register",
        json!({"tools": [tool("echo"), other]}),
    );
    assert_eq!(
        judged(&register),
        ["MUST /payload/tools/1/tool_id tool_id OSW-4.2-1"]
    );
}

// spec: OSW-2-1, OSW-2-3
#[test]
fn what_is_no_message_is_told_so() {
    let of = |bytes: &[u8]| {
        found(&validate::message(
            bytes,
            &Limits::default().with_max_frame_bytes(100),
        ))
    };
    for bytes in [&b"[]"[..], b"{", b"\xff", b"", b"{} {}"] {
        let seen = of(bytes);
        assert!(
            seen.iter().all(|finding| finding.starts_with("MUST ")) && !seen.is_empty(),
            "{seen:?}"
        );
    }
    assert_eq!(of(&[b' '; 101]), ["MUST  too_large OSW-2-3"]);
    let text = hello().to_string();
    let fits = Limits::default().with_max_frame_bytes(text.len());
    assert_eq!(found(&validate::message(text.as_bytes(), &fits)), [""; 0]);
}

fn piece(id: &str, seq: u64, done: bool) -> Value {
    let mut piece = message(
        "agent.tool.stream",
        json!({"call_id": "c", "seq": seq, "channel": "stdout", "data": {"text": "t"}, "done": done}),
    );
    piece["id"] = json!(id);
    piece
}

fn result(id: &str) -> Value {
    let mut result = message(
        "agent.tool.result",
        json!({"call_id": "c", "status": "succeeded", "output": {}}),
    );
    result["id"] = json!(id);
    result
}

// spec: OSW-2-2, OSW-2-4, OSW-2-5, OSW-3-9, OSW-4.3-6, OSW-4.3-7
#[test]
fn a_recorded_stream_is_judged_frame_by_frame() {
    let of = |bytes: &[u8]| found(&validate::stream(bytes, &Limits::default()));
    let good: Vec<u8> = [piece("1", 1, false), piece("2", 2, true), result("3")]
        .iter()
        .flat_map(frame)
        .collect();
    assert_eq!(of(&good), [""; 0]);
    assert_eq!(of(b""), [""; 0]);
    let bad: Vec<u8> = [
        piece("1", 2, false),
        piece("2", 2, true),
        piece("2", 3, false),
        result("4"),
        result("5"),
        piece("6", 4, false),
    ]
    .iter()
    .flat_map(frame)
    .collect();
    let wanted = [
        "MUST /0/payload/seq seq OSW-4.3-5",
        "MUST /1/payload/seq seq OSW-4.3-5",
        "MUST /2/id used_twice OSW-3-9",
        "MUST /2/payload after_done OSW-4.3-6",
        "MUST /4/payload/call_id second_result OSW-4.3-7",
        "MUST /5/payload after_done OSW-4.3-6",
        "MUST /5/payload/call_id after_result OSW-4.3-12",
    ];
    assert_eq!(of(&bad), wanted);
    let with = |tail: &[u8]| of(&[&good[..], tail].concat());
    assert_eq!(with(&[0, 0, 0, 0]), ["MUST /3 empty_frame OSW-2-4"]);
    assert_eq!(with(&[0xff, 0, 0, 0]), ["MUST /3 too_large OSW-2-3"]);
    assert_eq!(with(&[0, 0, 0, 9, b'{']), ["MUST /3 truncated OSW-2-5"]);
    assert_eq!(with(&[0]), ["MUST /3 truncated OSW-2-5"]);
    assert!(with(&raw_frame(b"[]"))[0].starts_with("MUST /3 no_message OSW-2-1"));
}
