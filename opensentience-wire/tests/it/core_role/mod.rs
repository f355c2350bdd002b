//! The core's machine: tools, calls, health.

mod apart;
mod ends;
mod floods;
mod queue;
mod tools;

use core::time::Duration;

use opensentience_wire::CommandError;
use opensentience_wire::ErrorCode;
use opensentience_wire::Limits;
use opensentience_wire::message::{Actor, ActorType, CallContext};
use opensentience_wire::role::CallId;
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event};
use serde_json::{Value, json};

use crate::kit::RequestExt as _;
use crate::kit::*;

fn request(name: &str) -> CallRequest {
    CallRequest::new(format!("{AGENT}/{name}"), object(&json!({"n": 1})))
}

fn started(conn: &mut CoreConnection, millis: u64) -> CallId {
    let id = conn.call_tool(at(millis), request("echo")).unwrap();
    drain_core(conn);
    id
}

fn result(id: &CallId, status: &str) -> Value {
    message(
        "agent.tool.result",
        json!({"call_id": id.to_string(), "status": status}),
    )
}

fn chunk(id: &CallId, seq: u64, channel: &str, data: Value) -> Value {
    message(
        "agent.tool.stream",
        json!({"call_id": id.to_string(), "seq": seq, "channel": channel, "data": data}),
    )
}

// spec: OSW-3-3
// spec: OSW-3-5
// spec: OSW-3-9
#[test]
fn a_call_carries_its_ids() {
    let mut conn = open_core(Config::default());
    let mut asked = request("echo")
        .with_correlation_id("c")
        .with_causation_id("d")
        .with_timeout(Duration::from_secs(3));
    asked.idempotency_key = Some("k".into());
    asked = asked.with_caller(ActorType::Human, "h");
    asked.actor = Some(Actor::new(ActorType::Human, "h".into()));
    let mut context = CallContext::new();
    context.project_root = Some("/p".into());
    asked.context = Some(context);
    let id = conn.call_tool(at(0), asked).unwrap();
    let first = drain_core(&mut conn).sent.remove(0);
    let text: &str = id.as_ref();
    assert_eq!(first["payload"]["call_id"], text);
    assert_eq!(
        first["payload"],
        json!({"call_id": id.to_string(), "tool_id": format!("{AGENT}/echo"), "input": {"n": 1}, "timeout_ms": 3000, "idempotency_key": "k",
            "caller": {"type": "human", "id": "h"}, "context": {"project_root": "/p"}})
    );
    assert_eq!(
        (&first["correlation_id"], &first["causation_id"]),
        (&json!("c"), &json!("d"))
    );
    assert_eq!(first["actor"], json!({"type": "human", "id": "h"}));
    assert!(first["request_id"].is_string());
    conn.call_tool(at(0), request("echo")).unwrap();
    let second = drain_core(&mut conn).sent.remove(0);
    assert_ne!(first["id"], second["id"]);
    assert!(second["request_id"].is_string() && second.get("correlation_id").is_none());
}

// spec: OSW-4.3-2
// spec: OSW-4.3-4
#[test]
fn what_is_refused_is_never_sent() {
    let mut conn =
        open_core(Config::default().with_limits(Limits::default().with_max_tool_input_bytes(20)));
    let long = |letters| {
        let input = object(&json!({"x": "y".repeat(letters)}));
        CallRequest::new(format!("{AGENT}/echo"), input)
    };
    for (asked, want) in [
        (request("none"), "tool.not_found"),
        (request("write"), "tool.directive_required"),
        (
            request("echo").with_caller(ActorType::Agent, "com.example.b"),
            "tool.permission_denied",
        ),
        (
            request("echo").with_caller(ActorType::from("robot"), "r"),
            "tool.permission_denied",
        ),
        (long(13), "tool.invalid_input"),
    ] {
        assert_eq!(
            ErrorCode::from(&conn.call_tool(at(0), asked).unwrap_err()).as_str(),
            want
        );
    }
    let said = drain_core(&mut conn);
    assert_eq!((said.sent.len(), conn.pending_calls()), (0, 0));
    assert_eq!(
        said.audits(),
        [
            "tool.call_refused tool.not_found",
            "security.denied tool.directive_required",
            "security.denied tool.permission_denied",
            "security.denied tool.permission_denied",
            "tool.call_refused tool.invalid_input",
        ]
    );
    assert!(conn.call_tool(at(0), long(12)).is_ok(), "20 bytes");
    assert!(
        conn.call_tool(at(0), request("write").with_causation_id("directive-1"))
            .is_ok()
    );
    assert!(
        conn.call_tool(at(0), request("echo").with_caller(ActorType::Human, "h"))
            .is_ok()
    );
    let mut disguised = request("echo").with_caller(ActorType::Agent, "b");
    disguised.actor = Some(Actor::new(ActorType::Human, "h".into()));
    let refused = conn.call_tool(at(0), disguised);
    assert_eq!(refused, Err(CommandError::PermissionDenied));
    let mut conn = open_core(Config::default().with_agent_grant("tool:invoke:*/echo"));
    assert!(
        conn.call_tool(at(0), request("echo").with_caller(ActorType::Agent, "b"))
            .is_ok()
    );
}

// spec: OSW-4.3-5
// spec: OSW-4.3-6
#[test]
fn chunks_that_break_the_order_are_dropped_and_the_call_goes_on() {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    let text = || json!({"text": "t"});
    let mut last = chunk(&id, 6, "status", text());
    last["payload"]["done"] = json!(true);
    for (message, delivered, audited) in [
        (chunk(&id, 2, "stdout", text()), false, true),
        (chunk(&id, 1, "stdout", text()), true, false),
        (chunk(&id, 1, "stdout", text()), false, true),
        (chunk(&id, 2, "partial_result", text()), false, true),
        (chunk(&id, 2, "stdout", json!({"json": {}})), false, true),
        (chunk(&id, 2, "elsewhere", text()), false, true),
        (
            chunk(&id, 2, "partial_result", json!({"json": {}})),
            true,
            false,
        ),
        (chunk(&id, 5, "log", text()), true, true),
        (last, true, false),
        (chunk(&id, 7, "log", text()), false, true),
    ] {
        let said = tell_core(&mut conn, 0, &message);
        let got = said
            .events
            .iter()
            .any(|event| matches!(event, Event::Stream(..)));
        assert_eq!(
            (got, !said.audits().is_empty()),
            (delivered, audited),
            "{message}"
        );
    }
    assert_eq!(
        tell_core(&mut conn, 0, &result(&id, "succeeded")).ended(),
        ["succeeded"]
    );
}

// spec: OSW-4.3-7
// spec: OSW-4.3-12
#[test]
fn a_second_result_and_strangers_have_no_effect() {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    assert_eq!(
        tell_core(&mut conn, 0, &result(&id, "succeeded")).ended(),
        ["succeeded"]
    );
    let ack = json!({"call_id": id.to_string(), "accepted": true});
    for late in [
        result(&id, "failed"),
        chunk(&id, 1, "log", json!({"text": ""})),
        message("agent.tool.cancel_ack", ack),
    ] {
        let said = tell_core(&mut conn, 0, &late);
        assert_eq!(
            said.audits(),
            ["protocol.message_rejected protocol.invalid_message"]
        );
        assert_eq!(said.events.len(), 1);
    }
    let id = started(&mut conn, 0);
    let said = tell_core(&mut conn, 0, &result(&id, "done"));
    assert_eq!(said.ended(), ["failed protocol.invalid_message"]);
}

// spec: OSW-4.3-8
// spec: OSW-3-11
#[test]
fn status_decides_and_errors_are_found_where_they_stand() {
    let error = |code: &str| json!({"code": code, "message": "m"});
    let cases = [
        (
            json!({"status": "failed"}),
            json!(null),
            "failed tool.failed",
        ),
        (
            json!({"status": "canceled"}),
            json!(null),
            "canceled tool.canceled",
        ),
        (
            json!({"status": "failed", "error": error("a.b")}),
            error("c.d"),
            "failed a.b",
        ),
        (
            json!({"status": "failed", "output": {}}),
            error("c.d"),
            "failed c.d",
        ),
        (
            json!({"status": "succeeded", "error": error("a.b")}),
            json!(null),
            "succeeded",
        ),
    ];
    for (mut payload, top, want) in cases {
        let mut conn = open_core(Config::default());
        payload["call_id"] = json!(started(&mut conn, 0).to_string());
        let mut result = message("agent.tool.result", payload);
        result["error"] = top;
        assert_eq!(tell_core(&mut conn, 0, &result).ended(), [want]);
    }
}

// spec: OSW-2-7
#[test]
fn an_output_over_the_limit_becomes_an_error() {
    let limits = Limits::default().with_max_tool_output_bytes(12);
    for (text, want) in [("12", "succeeded"), ("123", "failed tool.output_too_large")] {
        let mut conn = open_core(Config::default().with_limits(limits.clone()));
        let mut result = result(&started(&mut conn, 0), "succeeded");
        result["payload"]["output"] = json!({"abc": text});
        assert_eq!(tell_core(&mut conn, 0, &result).ended(), [want]);
    }
}

// spec: OSW-4.3-9
#[test]
fn a_late_call_ends_by_itself_and_is_cancelled() {
    let mut conn = open_core(Config::default());
    // A call that ends in time leaves no timer behind.
    let idle = conn.poll_timeout();
    let quick = conn
        .call_tool(
            at(0),
            request("echo").with_timeout(Duration::from_millis(1)),
        )
        .unwrap();
    assert_eq!(conn.poll_timeout(), Some(at(1_001).mono));
    tell_core(&mut conn, 0, &result(&quick, "succeeded"));
    assert_eq!(conn.poll_timeout(), idle);
    let id = conn
        .call_tool(at(0), request("echo").with_timeout(Duration::from_secs(2)))
        .unwrap();
    drain_core(&mut conn);
    conn.handle_timeout(at(2_999));
    assert!(drain_core(&mut conn).ended().is_empty());
    conn.handle_timeout(at(3_000));
    let said = drain_core(&mut conn);
    assert_eq!(
        (said.ended(), said.types()),
        (
            vec!["failed tool.timeout".to_owned()],
            vec!["core.tool.cancel"]
        )
    );
    assert!(
        tell_core(&mut conn, 3_001, &result(&id, "succeeded"))
            .ended()
            .is_empty()
    );
}

// spec: OSW-4.4-1
// spec: OSW-4.4-2
#[test]
fn a_cancel_that_nobody_answers_ends_the_call() {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    conn.cancel(at(0), &id, Some("enough")).unwrap();
    conn.cancel(at(1), &id, None).unwrap();
    let said = drain_core(&mut conn);
    assert_eq!(said.types(), ["core.tool.cancel"]);
    assert_eq!(
        said.sent[0]["payload"],
        json!({"call_id": id.to_string(), "reason": "enough", "deadline_ms": 5000})
    );
    let ack = message(
        "agent.tool.cancel_ack",
        json!({"call_id": id.to_string(), "accepted": true}),
    );
    assert!(matches!(
        &tell_core(&mut conn, 2, &ack).events[..],
        [Event::CancelAck { accepted: true, .. }]
    ));
    conn.handle_timeout(at(4_999));
    assert!(drain_core(&mut conn).ended().is_empty());
    conn.handle_timeout(at(5_000));
    assert_eq!(drain_core(&mut conn).ended(), ["canceled tool.canceled"]);
    assert_eq!(
        conn.cancel(at(5_001), &id, None),
        Err(CommandError::NoSuchCall)
    );
}

// spec: OSW-2-1
// spec: OSW-8-1
#[test]
fn a_call_is_recorded_when_it_is_sent_and_when_it_ends() {
    let mut conn =
        open_core(Config::default().with_limits(Limits::default().with_max_inflight_requests(1)));
    let records = |events: &[Event]| -> Vec<Value> {
        let audits = events.iter().filter_map(|event| match event {
            Event::Audit(audit) => Some(ubos_common::json::to_string(&**audit)),
            _ => None,
        });
        audits
            .map(|text| serde_json::from_str(&text).unwrap())
            .collect()
    };
    let mut asked = request("echo").with_caller(ActorType::Human, "ada");
    asked.request_id = Some("r-1".into());
    asked.correlation_id = Some("run-1".into());
    asked.causation_id = Some("cause-1".into());
    let first = conn.call_tool(at(0), asked.clone()).unwrap();
    let second = conn.call_tool(at(0), asked).unwrap();
    let said = drain_core(&mut conn);
    // The prefix of the frame has four bytes.
    let bytes = 4 + said.sent[0].to_string().len();
    let about = |id: &CallId, mut more: Value| {
        let all = more.as_object_mut().unwrap();
        let ids = json!({"agent_id": AGENT, "call_id": id.to_string(), "tool_id": format!("{AGENT}/echo"),
            "request_id": "r-1", "correlation_id": "run-1", "causation_id": "cause-1",
            "caller": {"type": "human", "id": "ada"}});
        all.extend(ids.as_object().unwrap().clone());
        more
    };
    let mut routed = records(&said.events);
    for record in &mut routed {
        assert!(record["session_id"].is_string() && record["at"].is_string());
        record
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "session_id" && name != "at");
    }
    let sent = json!({"event_type": "tool.call_routed", "severity": "info", "bytes": bytes});
    // The one that waits for a place is not sent yet.
    assert_eq!(routed, [about(&first, sent)]);
    let failed = json!({"call_id": first.to_string(), "status": "failed",
        "error": {"code": "tool.failed", "message": "the secret of ada"}});
    let said = tell_core(&mut conn, 1_500, &message("agent.tool.result", failed));
    let ended = records(&said.events);
    let names: Vec<&Value> = ended.iter().map(|record| &record["event_type"]).collect();
    assert_eq!(names, ["tool.call_completed", "tool.call_routed"]);
    let (end, next) = (&ended[0], &ended[1]);
    assert_eq!(
        (
            &end["status"],
            &end["error_code"],
            &end["duration_ms"],
            &end["call_id"]
        ),
        (
            &json!("failed"),
            &json!("tool.failed"),
            &json!(1_500),
            &json!(first.to_string())
        )
    );
    assert_eq!(next["call_id"], second.to_string());
    assert!(!end.to_string().contains("secret"), "{end}");
}
