//! The core's machine: tools, calls, health.

use core::time::Duration;

use opensentience_wire::CommandError;
use opensentience_wire::ErrorCode;
use opensentience_wire::Limits;
use opensentience_wire::message::Health;
use opensentience_wire::message::{Actor, ActorType};
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event};
use opensentience_wire::role::{CallId, CloseReason, Input};
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

// spec: OSW-4.2-1
// spec: OSW-4.2-2
// spec: OSW-4.2-3
#[test]
fn a_wrong_tool_is_rejected_alone() {
    let mut conn = open_core(Config::default());
    let with = |name: &str, member: &str, value: Value| {
        let mut tool = tool(name);
        tool[member] = value;
        tool
    };
    let large = json!({"x": "y".repeat(65_536)});
    let tools = json!([
        tool("fine"),
        with("a", "tool_id", json!("com.example.b/a")),
        with("b", "tool_id", json!(7)),
        with("c", "input_schema", json!([])),
        with("d", "input_schema", large),
        tool("echo"),
        with("e", "name", json!("f")),
        7,
        with("g/h", "name", json!("g/h")),
        with("i", "output_schema", json!(1)),
        with("j", "later", json!({})),
    ]);
    let said = tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": tools})),
    );
    let reply = &said.sent[0];
    assert_eq!(reply["in_reply_to"], "m-1");
    assert_eq!(
        reply["payload"]["registered"],
        json!([format!("{AGENT}/fine"), format!("{AGENT}/j")])
    );
    let codes: Vec<_> = reply["payload"]["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap())
        .collect();
    let (id, schema) = ("tool.invalid_id", "tool.invalid_schema");
    assert_eq!(
        codes,
        [
            id,
            id,
            schema,
            schema,
            "tool.conflict",
            id,
            schema,
            id,
            schema
        ]
    );
}

// spec: OSW-4.2-3
#[test]
fn tools_ids_and_schemas_are_limited() {
    let mut conn = open_core(Config::default());
    let register = |tools: Vec<Value>| message("agent.tools.register", json!({"tools": tools}));
    let long = |bytes: usize| tool(&"n".repeat(bytes - AGENT.len() - 1));
    let sized = |bytes: usize| {
        let mut tool = tool(&format!("s{bytes}"));
        let empty = json!({"title": ""}).to_string().len();
        tool["input_schema"] = json!({"title": "x".repeat(bytes - empty)});
        tool
    };
    let tools = vec![long(512), long(513), sized(65_536), sized(65_537)];
    let said = tell_core(&mut conn, 0, &register(tools));
    let rejected = said.sent[0]["payload"]["rejected"].as_array().unwrap();
    let codes: Vec<_> = rejected
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["tool.invalid_id", "tool.invalid_schema"]);
    // Four are there already.
    let many = |count: usize| {
        (0..count)
            .map(|n| tool(&format!("t{n}")))
            .collect::<Vec<_>>()
    };
    tell_core(&mut conn, 0, &register(many(1_024)));
    assert_eq!(conn.tools().count(), 1_024);
    let said = tell_core(&mut conn, 0, &register(many(1_025)));
    assert_eq!(said.sent[0]["type"], "core.error");
    assert_eq!(conn.tools().count(), 1_024);
}

// spec: OSW-4.2-2
#[test]
fn the_tools_of_a_session_have_a_bound_of_bytes_together() {
    let mut conn = open_core(Config::default());
    // Members that nobody knows are kept, so they count.
    let described = |name: &str, bytes: usize| {
        let mut tool = tool(name);
        tool["description"] = json!("x".repeat(bytes / 2));
        tool["later"] = json!("x".repeat(bytes / 2));
        message("agent.tools.register", json!({"tools": [tool]}))
    };
    for n in 0..4 {
        tell_core(&mut conn, 0, &described(&format!("t{n}"), 1_000_000));
    }
    let said = tell_core(&mut conn, 0, &described("more", 1_000_000));
    let rejected = &said.sent[0]["payload"]["rejected"][0]["error"];
    assert_eq!(
        (&rejected["code"], conn.tools().count()),
        (&json!("tool.conflict"), 6)
    );
    // What goes gives its bytes back.
    let ids = json!({"tool_ids": [format!("{AGENT}/t0")]});
    tell_core(&mut conn, 0, &message("agent.tools.unregister", ids));
    tell_core(&mut conn, 0, &described("more", 1_000_000));
    assert_eq!(conn.tools().count(), 6);
    let mut all = described("all", 4_000_000);
    all["payload"]["replace"] = json!(true);
    tell_core(&mut conn, 0, &all);
    assert_eq!(conn.tools().count(), 1);
}

#[test]
fn compiling_schemas_has_a_rate_and_the_same_tools_again_compile_nothing() {
    let with_schema = |n: usize| {
        let mut tool = tool("schemed");
        tool["input_schema"] = json!({"title": format!("{n:>60000}")});
        message(
            "agent.tools.register",
            json!({"tools": [tool], "replace": true}),
        )
    };
    let is_change = |event: &Event| matches!(event, Event::ToolsChanged);
    let mut conn = open_core(Config::default());
    for n in 0..100 {
        let said = tell_core(&mut conn, 0, &with_schema(0));
        assert_eq!(said.events.iter().any(is_change), n == 0, "time {n}");
        assert_eq!(
            said.sent[0]["payload"]["registered"],
            json!([format!("{AGENT}/schemed")])
        );
    }
    let mut conn = open_core(Config::default());
    let until_throttled = (0..100).take_while(|n| {
        let said = tell_core(&mut conn, 0, &with_schema(*n));
        assert!(said.events.iter().any(is_change));
        conn.accepts_input()
    });
    assert_eq!(
        until_throttled.count(),
        15,
        "60 KB and eight times that for the schema, of 8 MiB"
    );
}

#[test]
fn an_agent_that_says_too_much_is_not_read_for_a_while() {
    let mut conn = open_core(Config::default());
    let pong = || message("agent.pong", json!({}));
    let mut said = 0;
    let mut audits = Vec::new();
    while conn.accepts_input() {
        audits.extend(tell_core(&mut conn, 0, &pong()).audits());
        said += 1;
    }
    assert_eq!(audits, ["agent.throttled "]);
    assert_eq!(
        said,
        8 * 1024 - 1,
        "each counts for 1 KiB of 8 MiB, as its tools did and their schemas"
    );
    let until = conn.poll_timeout().unwrap().saturating_since(at(0).mono);
    assert_eq!(
        until,
        Duration::from_nanos(3_906_250),
        "its silence is not waited for"
    );
    conn.handle_timeout(at(4));
    assert!(conn.accepts_input());
    let heartbeats = conn.poll_timeout().unwrap().saturating_since(at(4).mono);
    assert_eq!(heartbeats, Duration::from_secs(15));
    tell_core(&mut conn, 5, &pong());
    assert!(!conn.accepts_input(), "it has had its share of that time");
}

#[test]
fn answers_to_calls_have_no_rate() {
    let mut conn = open_core(Config::default());
    let request = CallRequest::new(format!("{AGENT}/echo"), object(&json!({})));
    let id = conn.call_tool(at(0), request).unwrap();
    drain_core(&mut conn);
    for seq in 1..=10_000 {
        let data = json!({"text": "x"});
        let chunk =
            json!({"call_id": id.to_string(), "seq": seq, "channel": "stdout", "data": data});
        tell_core(&mut conn, 0, &message("agent.tool.stream", chunk));
    }
    assert!(conn.accepts_input());
}

// spec: OSW-4.2-4
// spec: OSW-4.2-5
// spec: OSW-4.2-6
#[test]
fn tools_are_added_replaced_and_withdrawn_while_calls_go_on() {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    let mut rich = tool("rich");
    rich["tags"] = json!(["x"]);
    rich["side_effects"] = json!(true);
    tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": [rich]})),
    );
    assert_eq!(conn.tools().count(), 3);
    let kept = conn.tools().find(|tool| tool.name == "rich").unwrap();
    assert_eq!(
        (kept.side_effects, kept.tags.as_deref()),
        (Some(true), Some(&["x".to_owned()][..]))
    );
    tell_core(
        &mut conn,
        0,
        &message(
            "agent.tools.register",
            json!({"tools": [7], "replace": true}),
        ),
    );
    assert_eq!(conn.tools().count(), 0);
    assert_eq!(
        conn.call_tool(at(0), request("echo")),
        Err(CommandError::ToolNotFound)
    );
    tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": [tool("z")]})),
    );
    let ids = json!({"tool_ids": [format!("{AGENT}/z"), "none"]});
    let said = tell_core(&mut conn, 0, &message("agent.tools.unregister", ids));
    assert_eq!(
        said.sent[0]["payload"],
        json!({"tool_ids": [format!("{AGENT}/z")]})
    );
    assert_eq!(
        tell_core(&mut conn, 0, &result(&id, "succeeded")).ended(),
        ["succeeded"]
    );
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
    asked.actor = Some(Actor::new(ActorType::Human, "h".into()));
    let id = conn.call_tool(at(0), asked).unwrap();
    let first = drain_core(&mut conn).sent.remove(0);
    assert_eq!(
        first["payload"],
        json!({"call_id": id.to_string(), "tool_id": format!("{AGENT}/echo"), "input": {"n": 1}, "timeout_ms": 3000, "idempotency_key": "k"})
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
    let large = CallRequest::new(
        format!("{AGENT}/echo"),
        object(&json!({"x": "y".repeat(20)})),
    );
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
        (large, "tool.invalid_input"),
    ] {
        assert_eq!(
            ErrorCode::from(&conn.call_tool(at(0), asked).unwrap_err()).as_str(),
            want
        );
    }
    let said = drain_core(&mut conn);
    assert_eq!((said.sent.len(), conn.pending_calls()), (0, 0));
    assert_eq!(said.audits(), ["security.denied tool.permission_denied"; 2]);
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

// spec: OSW-2-6
#[test]
fn calls_past_the_limit_wait_and_past_the_queue_are_refused() {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_queued_calls(1);
    let mut conn = open_core(Config::default().with_limits(limits));
    let first = started(&mut conn, 0);
    let second = conn.call_tool(at(0), request("echo")).unwrap();
    assert_eq!(drain_core(&mut conn).sent.len(), 0);
    assert_eq!(
        conn.call_tool(at(0), request("echo")),
        Err(CommandError::Busy)
    );
    let said = tell_core(&mut conn, 0, &result(&first, "succeeded"));
    assert_eq!(said.types(), ["core.tool.call"]);
    assert_eq!(said.sent[0]["payload"]["call_id"], second.to_string());
    let third = conn
        .call_tool(
            at(0),
            request("echo").with_timeout(Duration::from_millis(1)),
        )
        .unwrap();
    conn.cancel(at(0), &third, None).unwrap();
    let said = drain_core(&mut conn);
    assert_eq!(
        (said.sent.len(), said.ended()),
        (0, vec!["canceled tool.canceled".to_owned()])
    );
    // Its place in the queue is another's.
    conn.call_tool(at(0), request("echo")).unwrap();
    assert_eq!(
        conn.call_tool(at(0), request("echo")),
        Err(CommandError::Busy)
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

// spec: OSW-4.5-1
// spec: OSW-4.5-2
#[test]
fn silence_stops_new_calls_and_a_beat_brings_them_back() {
    let mut conn = open_core(Config::default());
    let running = started(&mut conn, 0);
    let session = |id: &str, status: &str| {
        message(
            "agent.heartbeat",
            json!({"session_id": id, "uptime_ms": 1, "inflight_calls": 0, "status": status}),
        )
    };
    let said = tell_core(&mut conn, 1_000, &session("another", "ok"));
    assert_eq!(
        said.audits(),
        ["protocol.message_rejected protocol.session_mismatch"]
    );
    conn.handle_timeout(at(15_000));
    assert_eq!(
        drain_core(&mut conn).audits(),
        ["agent.heartbeat_missed ", "agent.marked_unhealthy "]
    );
    assert_eq!(
        conn.call_tool(at(15_000), request("echo")),
        Err(CommandError::Unhealthy)
    );
    let mut fresh = new_core(Config::default());
    let own = tell_core(&mut fresh, 0, &hello()).sent[0]["payload"]["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(*conn.health(), Health::Unhealthy);
    tell_core(&mut conn, 16_000, &session(&own, "degraded"));
    assert_eq!(*conn.health(), Health::Degraded);
    assert!(conn.call_tool(at(16_000), request("echo")).is_ok());
    tell_core(&mut conn, 16_001, &session(&own, "unhealthy"));
    assert_eq!(
        conn.call_tool(at(16_002), request("echo")),
        Err(CommandError::Unhealthy)
    );
    assert_eq!(
        tell_core(&mut conn, 16_003, &result(&running, "succeeded")).ended(),
        ["succeeded"]
    );
}

#[test]
fn silence_counts_only_while_somebody_reads() {
    let mut conn = open_core(Config::default());
    conn.set_reading(at(0), false);
    conn.handle_timeout(at(60_000));
    assert_eq!(*conn.health(), Health::Ok);
    conn.set_reading(at(60_000), true);
    conn.handle_timeout(at(74_999));
    assert_eq!(*conn.health(), Health::Ok);
    conn.handle_timeout(at(75_000));
    assert_eq!(*conn.health(), Health::Unhealthy);
}

// spec: OSW-4.5-5
#[test]
fn every_call_ends_once_when_the_connection_does() {
    let limits = Limits::default().with_max_inflight_requests(2);
    let mut conn = open_core(Config::default().with_limits(limits));
    for _ in 0..5 {
        conn.call_tool(at(0), request("echo")).unwrap();
    }
    conn.handle_input(at(1), Input::Eof).unwrap();
    let said = drain_core(&mut conn);
    assert_eq!(said.ended(), ["failed agent.disconnected"; 5]);
    assert_eq!(said.audits().last().unwrap(), "agent.disconnected ");
    assert_eq!(
        (said.closed, conn.poll_timeout()),
        (Some(CloseReason::Disconnected), None)
    );
    assert!(conn.handle_input(at(2), Input::Eof).is_err());
    assert_eq!(
        conn.call_tool(at(2), request("echo")),
        Err(CommandError::Closing)
    );
}

// spec: OSW-4.1-7
#[test]
fn a_goodbye_lets_running_calls_end() {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    conn.goodbye(at(0), "update", Some(Duration::from_secs(2)))
        .unwrap();
    assert_eq!(
        drain_core(&mut conn).sent[0]["payload"],
        json!({"reason": "update", "retry_after_ms": 2000})
    );
    assert_eq!(
        conn.call_tool(at(0), request("echo")),
        Err(CommandError::Closing)
    );
    let said = tell_core(&mut conn, 1, &result(&id, "succeeded"));
    assert_eq!(
        (said.ended(), said.closed),
        (vec!["succeeded".to_owned()], Some(CloseReason::Goodbye))
    );
    let mut conn = open_core(Config::default());
    started(&mut conn, 0);
    conn.goodbye(at(0), "now", None).unwrap();
    conn.handle_timeout(at(5_000));
    assert_eq!(drain_core(&mut conn).ended(), ["failed agent.disconnected"]);
}

// spec: OSW-3-7
#[test]
fn unknown_types_are_answered_ignored_or_end_the_connection() {
    let mut conn = open_core(Config::default());
    started(&mut conn, 0);
    let mut odd = message("agent.later", json!({}));
    assert!(tell_core(&mut conn, 0, &odd).sent.is_empty());
    odd["request_id"] = json!("r-9");
    let said = tell_core(&mut conn, 0, &odd);
    assert_eq!(
        (said.types(), &said.sent[0]["in_reply_to"]),
        (vec!["core.error"], &json!("m-1"))
    );
    assert_eq!(
        (&said.sent[0]["error"]["code"], &said.sent[0]["payload"]),
        (&json!("protocol.unknown_type"), &json!({}))
    );
    for (member, value) in [
        ("in_reply_to", json!("x")),
        ("error", json!({"code": "a", "message": "b"})),
    ] {
        let mut odd = odd.clone();
        odd[member] = value;
        assert!(tell_core(&mut conn, 0, &odd).sent.is_empty());
    }
    let mut conn = open_core(Config::default().with_closing_on_unknown_types(true));
    let said = tell_core(&mut conn, 0, &message("agent.later", json!({})));
    assert_eq!(said.types(), ["core.goodbye"]);
    assert!(conn.is_closed());
}

// spec: OSW-4-1
// spec: OSW-3-1
#[test]
fn messages_out_of_place_have_no_effect_after_the_welcome() {
    let mut conn = open_core(Config::default());
    let mut other = message("agent.pong", json!({}));
    other["v"] = json!(2);
    let mut bare = message("agent.pong", json!({}));
    bare["ts"] = json!(null);
    let said = tell_core(&mut conn, 0, &hello());
    let second = said.events.iter().any(|event| {
        matches!(event, Event::Audit(audit) if audit.detail.as_deref() == Some("a second hello"))
    });
    assert!(second, "{:?}", said.events);
    for odd in [
        hello(),
        message("core.tool.call", json!({})),
        message("core.later", json!({})),
        other,
        bare,
        message("agent.pong", json!([])),
    ] {
        let said = tell_core(&mut conn, 0, &odd);
        assert_eq!(
            said.audits(),
            ["protocol.message_rejected protocol.invalid_message"],
            "{odd}"
        );
        assert!(said.sent.is_empty() && conn.is_open());
    }
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

// spec: OSW-8-1
#[test]
fn bytes_that_are_no_message_end_the_connection() {
    for body in [
        &b"\xff"[..],
        b"\xef\xbb\xbf{}",
        b"[]",
        b"{",
        b"{} {}",
        br#"{"a":1,"a":2}"#,
    ] {
        let mut conn = open_core(Config::default());
        conn.handle_input(at(0), Input::Bytes(&raw_frame(body)))
            .unwrap_err();
        let said = drain_core(&mut conn);
        assert_eq!(said.sent[0]["error"]["code"], "protocol.invalid_frame");
        let Event::Audit(audit) = &said.events[0] else {
            panic!("{:?}", said.events)
        };
        assert_eq!(
            (audit.name.as_str(), audit.bytes),
            ("protocol.frame_rejected", Some(body.len()))
        );
        assert!(conn.is_closed());
    }
}
