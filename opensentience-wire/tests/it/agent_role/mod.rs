//! The agent's machine: states and events.

mod said;

use opensentience_wire::Limits;
use opensentience_wire::message::Channel;
use opensentience_wire::role::agent::{AgentConnection, Chunk};
use opensentience_wire::role::{CallId, CloseReason, Input};
use opensentience_wire::{CommandError, ErrorCode, ErrorObject};
use serde_json::{Value, json};

use crate::kit::*;

fn failed(said: &AgentSaid) -> Value {
    assert_eq!(said.sent[0]["type"], "agent.tool.result");
    said.sent[0]["payload"]["error"]["code"].clone()
}

// spec: OSW-4.1-2
#[test]
fn the_hello_is_the_first_thing_said() {
    let mut conn = new_agent(Limits::default());
    let hello = drain_agent(&mut conn).sent.remove(0);
    assert_eq!(hello["payload"]["session_token"], token().expose());
    assert_eq!(
        hello["payload"]["protocol"]["supported_versions"],
        json!([1])
    );
    assert_eq!(
        conn.register(at(0), vec![spec("echo")], false),
        Err(CommandError::NotOpen)
    );
    conn.handle_timeout(at(10_000));
    assert_eq!(
        drain_agent(&mut conn).closed,
        Some(CloseReason::Protocol(ErrorCode::HandshakeTimeout))
    );
}

// spec: OSW-4.1-10
#[test]
fn a_refusal_or_a_strange_version_ends_the_connection() {
    let mut refused = message("core.welcome", json!({}));
    refused["error"] = json!({"code": "protocol.unauthorized", "message": "no"});
    let mut strange = welcome();
    strange["payload"]["accepted_version"] = json!(2);
    for (first, code) in [
        (refused, ErrorCode::Unauthorized),
        (strange, ErrorCode::UnsupportedVersion),
        (call("c"), ErrorCode::InvalidMessage),
    ] {
        let mut conn = new_agent(Limits::default());
        drain_agent(&mut conn);
        let said = tell_agent(&mut conn, 0, &first);
        assert_eq!(
            (said.sent.len(), said.closed),
            (0, Some(CloseReason::Protocol(code)))
        );
    }
}

// spec: OSW-4.5-1
#[test]
fn heartbeats_keep_the_cadence_told() {
    let mut conn = new_agent(Limits::default());
    drain_agent(&mut conn);
    let first = tell_agent(&mut conn, 500, &welcome()).sent.remove(0);
    assert_eq!(
        first["payload"],
        json!({"session_id": "s-1", "uptime_ms": 500, "inflight_calls": 0, "status": "ok"})
    );
    assert_eq!(conn.poll_timeout(), Some(at(1_500).mono));
    conn.handle_timeout(at(1_500));
    assert_eq!(drain_agent(&mut conn).sent[0]["type"], "agent.heartbeat");
    assert_eq!(conn.poll_timeout(), Some(at(2_500).mono));
}

// spec: OSW-3-4
// spec: OSW-3-10
// spec: OSW-4.3-7
#[test]
fn answers_echo_the_ids_and_a_call_has_one_result() {
    let mut conn = open_agent(Limits::default());
    let said = tell_agent(&mut conn, 0, &call("c"));
    let id = said.calls[0].call_id.clone();
    conn.stream(at(1), &id, Chunk::text(Channel::Stdout, "one"))
        .unwrap();
    let mut last = Chunk::partial(object(&json!({"n": 2})));
    last.done = true;
    conn.stream(at(1), &id, last).unwrap();
    assert_eq!(
        conn.stream(at(1), &id, Chunk::text(Channel::Log, "no")),
        Err(CommandError::StreamDone)
    );
    conn.finish(at(1_007), &id, Ok(object(&json!({"done": true}))))
        .unwrap();
    assert_eq!(
        conn.finish(at(2), &id, Ok(object(&json!({})))),
        Err(CommandError::NoSuchCall)
    );
    let sent = drain_agent(&mut conn).sent;
    for message in &sent {
        assert_eq!(
            (&message["request_id"], &message["correlation_id"]),
            (&json!("r-1"), &json!("c-1"))
        );
        assert!(message.get("causation_id").is_none());
    }
    assert_eq!(
        (
            &sent[0]["payload"]["seq"],
            &sent[1]["payload"]["seq"],
            &sent[1]["payload"]["done"]
        ),
        (&json!(1), &json!(2), &json!(true))
    );
    let result = &sent[2];
    assert_eq!(result["in_reply_to"], "m-1");
    assert_eq!(result["payload"]["metrics"], json!({"duration_ms": 1007}));
    assert!(result["payload"]["started_at"].as_str() < result["payload"]["finished_at"].as_str());
    assert_eq!(sent.len(), 3);
}

// spec: OSW-2-6
// spec: OSW-4.3-1
// spec: OSW-4.3-4
#[test]
fn calls_that_cannot_run_get_their_result_at_once() {
    let mut conn = open_agent(
        Limits::default()
            .with_max_inflight_requests(1)
            .with_max_tool_input_bytes(10),
    );
    let with = |pointer: &str, value: Value| {
        let mut call = call("c");
        *call.pointer_mut(pointer).unwrap() = value;
        call
    };
    for (odd, want) in [
        (
            with("/payload/tool_id", json!("com.example.a/none")),
            "tool.not_found",
        ),
        (with("/payload/input", json!([1])), "tool.invalid_input"),
        (
            with("/payload/input", json!({"a": "1234567"})),
            "tool.invalid_input",
        ),
        (
            with("/payload/tool_id", json!(7)),
            "protocol.invalid_message",
        ),
    ] {
        let said = tell_agent(&mut conn, 0, &odd);
        assert_eq!((failed(&said), said.calls.len()), (json!(want), 0));
        assert_eq!(said.sent[0]["request_id"], "r-1");
    }
    let as_long_as_may_be = with("/payload/input", json!({"a": "23"}));
    assert_eq!(tell_agent(&mut conn, 0, &as_long_as_may_be).calls.len(), 1);
    let again = tell_agent(&mut conn, 0, &call("c"));
    assert_eq!(
        (&again.sent[0]["type"], again.calls.len()),
        (&json!("agent.error"), 0)
    );
    assert_eq!(failed(&tell_agent(&mut conn, 0, &call("d"))), "tool.busy");
}

// spec: OSW-4.2-3
#[test]
fn a_tool_that_the_core_refused_is_not_called() {
    for (code, wanted) in [("tool.invalid_schema", 0), ("tool.conflict", 1)] {
        let mut conn = open_agent(Limits::default());
        let rejected =
            json!([{"tool_id": format!("{AGENT}/echo"), "error": {"code": code, "message": "no"}}]);
        let reply = json!({"registered": [], "rejected": rejected});
        tell_agent(&mut conn, 0, &message("core.tools.registered", reply));
        let said = tell_agent(&mut conn, 0, &call("c"));
        assert_eq!(said.calls.len(), wanted, "{code}");
        if wanted == 0 {
            assert_eq!(failed(&said), "tool.not_found");
        }
    }
}

// spec: OSW-4.2-4
#[test]
fn a_registration_that_replaces_takes_back_what_it_does_not_name() {
    for (replace, wanted) in [(false, 1), (true, 0)] {
        let mut conn = open_agent(Limits::default());
        conn.register(at(0), vec![spec("other")], replace).unwrap();
        let payload = &drain_agent(&mut conn).sent[0]["payload"];
        assert_eq!(payload.get("replace"), replace.then_some(&json!(true)));
        drain_agent(&mut conn);
        let said = tell_agent(&mut conn, 0, &call("c"));
        assert_eq!(said.calls.len(), wanted, "{replace}");
    }
}

// spec: OSW-2-7
#[test]
fn an_output_of_the_limit_is_sent_and_a_result_that_fits_no_frame_is_told() {
    let output = object(&json!({"x": "y"}));
    let limits = Limits::default().with_max_tool_output_bytes(output.as_str().len());
    let mut conn = open_agent(limits);
    let id = tell_agent(&mut conn, 0, &call("c")).calls[0]
        .call_id
        .clone();
    conn.finish(at(0), &id, Ok(output.clone())).unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(said.sent[0]["payload"]["status"], "succeeded");
    // Not even its error fits: it has to echo ids that are as long as a frame may be.
    let mut long = call("d");
    let room = 4_096 - long.to_string().len();
    long["request_id"] = json!("r".repeat(room));
    let id = tell_agent(&mut conn, 0, &long).calls[0].call_id.clone();
    conn.finish(at(0), &id, Ok(output)).unwrap();
    let said = drain_agent(&mut conn);
    assert!(said.sent.is_empty());
    let told = |event: &opensentience_wire::role::agent::Event| {
        matches!(
            event,
            opensentience_wire::role::agent::Event::Rejected {
                code: ErrorCode::FrameTooLarge,
                ..
            }
        )
    };
    assert!(said.events.iter().any(told), "{:?}", said.events);
}

// spec: OSW-4.3-9
#[test]
fn a_late_tool_is_stopped_and_keeps_its_place_until_it_returns() {
    let mut conn = open_agent(Limits::default().with_max_inflight_requests(1));
    let mut slow = call("c");
    slow["payload"]["timeout_ms"] = json!(300);
    let id = tell_agent(&mut conn, 0, &slow).calls[0].call_id.clone();
    conn.handle_timeout(at(299));
    assert!(drain_agent(&mut conn).sent.is_empty());
    conn.handle_timeout(at(300));
    let said = drain_agent(&mut conn);
    assert_eq!((failed(&said), said.cancels), (json!("tool.timeout"), 1));
    assert_eq!(said.sent[0]["payload"]["error"]["retryable"], true);
    assert_eq!(failed(&tell_agent(&mut conn, 301, &call("d"))), "tool.busy");
    assert_eq!(
        conn.finish(at(400), &id, Ok(object(&json!({})))),
        Err(CommandError::NoSuchCall)
    );
    assert_eq!(tell_agent(&mut conn, 401, &call("d")).calls.len(), 1);
}

// spec: OSW-4.4-1
// spec: OSW-4.4-2
// spec: OSW-4.4-3
#[test]
fn a_cancel_reaches_the_tool_and_gives_one_result() {
    let mut conn = open_agent(Limits::default());
    let cancel = |id: &str| {
        message(
            "core.tool.cancel",
            json!({"call_id": id, "deadline_ms": 200}),
        )
    };
    let said = tell_agent(&mut conn, 0, &cancel("none"));
    assert_eq!(
        said.sent[0]["payload"],
        json!({"call_id": "none", "accepted": false})
    );
    let canceled = || Err(ErrorObject::of(ErrorCode::ToolCanceled, "stopped"));
    let id = tell_agent(&mut conn, 0, &call("c")).calls[0]
        .call_id
        .clone();
    let said = tell_agent(&mut conn, 0, &cancel("c"));
    assert_eq!(
        (&said.sent[0]["payload"]["accepted"], said.cancels),
        (&json!(true), 1)
    );
    assert_eq!(said.sent[0]["request_id"], "r-1");
    conn.finish(at(100), &id, canceled()).unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(said.sent[0]["payload"]["status"], "canceled");
    assert_eq!(
        tell_agent(&mut conn, 100, &cancel("c")).sent[0]["payload"]["accepted"],
        false
    );
    let id = tell_agent(&mut conn, 100, &call("d")).calls[0]
        .call_id
        .clone();
    tell_agent(&mut conn, 100, &cancel("d"));
    conn.handle_timeout(at(300));
    assert_eq!(
        drain_agent(&mut conn).sent[0]["payload"]["status"],
        "canceled"
    );
    assert!(conn.finish(at(301), &id, canceled()).is_err());
}

// spec: OSW-2-3
// spec: OSW-2-7
// spec: OSW-7-3
#[test]
fn outputs_over_a_limit_become_errors() {
    let mut conn = open_agent(Limits::default().with_max_tool_output_bytes(6_000));
    for bytes in [5_000, 7_000] {
        let id = tell_agent(&mut conn, 0, &call("c")).calls[0]
            .call_id
            .clone();
        let chunk = Chunk::text(Channel::Stdout, "x".repeat(bytes));
        assert!(matches!(
            conn.stream(at(0), &id, chunk),
            Err(CommandError::Encode(_))
        ));
        conn.stream(at(0), &id, Chunk::text(Channel::Stdout, "x"))
            .unwrap();
        assert_eq!(drain_agent(&mut conn).sent[0]["payload"]["seq"], 1);
        conn.finish(at(0), &id, Ok(object(&json!({"x": "y".repeat(bytes)}))))
            .unwrap();
        assert_eq!(failed(&drain_agent(&mut conn)), "tool.output_too_large");
    }
}

// spec: OSW-7-1
#[test]
fn the_token_leaves_in_the_hello_alone() {
    let fresh = format!("{:?}", new_agent(Limits::default()));
    let bytes = format!("{:?}", token().expose().as_bytes());
    assert!(!fresh.contains(token().expose()) && !fresh.contains(bytes.trim_matches(['[', ']'])));
    let mut conn = open_agent(Limits::default());
    let id = tell_agent(&mut conn, 0, &call("c")).calls[0]
        .call_id
        .clone();
    let text = format!("see {}!", token().expose());
    assert!(
        conn.stream(at(0), &id, Chunk::text(Channel::Log, text.as_str()))
            .is_err()
    );
    conn.finish(at(0), &id, Ok(object(&json!({"x": text}))))
        .unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(failed(&said), "tool.internal");
    assert!(!format!("{conn:?}{:?}", said.sent).contains(token().expose()));
}

// spec: OSW-3-6
#[test]
fn debug_is_not_written() {
    let mut conn = open_agent(Limits::default());
    let id = tell_agent(&mut conn, 0, &call("c")).calls[0]
        .call_id
        .clone();
    let mut error = ErrorObject::of(ErrorCode::ToolFailed, "no");
    error.debug = Some(object(&json!({"stack": "secret"})));
    conn.finish(at(0), &id, Err(error)).unwrap();
    let error = drain_agent(&mut conn).sent[0]["payload"]["error"].clone();
    assert_eq!(error, json!({"code": "tool.failed", "message": "no"}));
}

// spec: OSW-4.5-4
// spec: OSW-3-7
// spec: OSW-4-1
#[test]
fn pings_are_answered_and_strange_messages_are_not_obeyed() {
    let mut conn = open_agent(Limits::default());
    let pong = tell_agent(&mut conn, 0, &message("core.ping", json!({})))
        .sent
        .remove(0);
    assert_eq!(
        (&pong["type"], &pong["in_reply_to"]),
        (&json!("agent.pong"), &json!("m-1"))
    );
    let mut odd = message("core.later", json!({}));
    assert!(tell_agent(&mut conn, 0, &odd).sent.is_empty());
    odd["request_id"] = json!("r-9");
    assert_eq!(
        tell_agent(&mut conn, 0, &odd).sent[0]["error"]["code"],
        "protocol.unknown_type"
    );
    for odd in [
        welcome(),
        message("agent.pong", json!({})),
        message("agent.later", json!({})),
    ] {
        let said = tell_agent(&mut conn, 0, &odd);
        assert_eq!(
            (said.sent.len(), said.events.len(), said.closed),
            (0, 1, None)
        );
    }
}

// spec: OSW-4.1-7
#[test]
fn after_a_goodbye_running_calls_end_or_are_stopped() {
    let goodbye = message(
        "core.goodbye",
        json!({"reason": "update", "retry_after_ms": 9}),
    );
    let mut conn = open_agent(Limits::default());
    let id = tell_agent(&mut conn, 0, &call("c")).calls[0]
        .call_id
        .clone();
    assert!(tell_agent(&mut conn, 0, &goodbye).closed.is_none());
    assert_eq!(
        failed(&tell_agent(&mut conn, 0, &call("d"))),
        "agent.disconnected"
    );
    conn.finish(at(1), &id, Ok(object(&json!({})))).unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(
        (&said.sent[0]["payload"]["status"], said.closed),
        (&json!("succeeded"), Some(CloseReason::Goodbye))
    );
    let mut conn = open_agent(Limits::default());
    tell_agent(&mut conn, 0, &call("c"));
    tell_agent(&mut conn, 0, &goodbye);
    conn.handle_timeout(at(5_000));
    let said = drain_agent(&mut conn);
    let last = said.sent.last().unwrap();
    assert_eq!(
        (said.cancels, &last["payload"]["status"]),
        (1, &json!("canceled"))
    );
    assert_eq!(said.closed, Some(CloseReason::Goodbye));
}

// spec: OSW-4.1-7
#[test]
fn a_connection_that_drains_ends_with_its_last_call_whose_tool_is_late() {
    let mut conn = open_agent(Limits::default());
    let mut slow = call("c");
    slow["payload"]["timeout_ms"] = json!(300);
    tell_agent(&mut conn, 0, &slow);
    conn.shutdown(at(0));
    conn.handle_timeout(at(299));
    assert_eq!(drain_agent(&mut conn).closed, None);
    conn.handle_timeout(at(300));
    let said = drain_agent(&mut conn);
    assert_eq!((failed(&said), said.cancels), (json!("tool.timeout"), 1));
    assert_eq!(said.closed, Some(CloseReason::Shutdown));
}

#[test]
fn tools_are_stopped_when_the_core_vanishes() {
    let mut conn = open_agent(Limits::default());
    tell_agent(&mut conn, 0, &call("c"));
    conn.handle_input(at(0), Input::Eof).unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(
        (said.cancels, said.closed),
        (1, Some(CloseReason::Disconnected))
    );
    assert_eq!(
        conn.finish(at(1), &CallId::from("c"), Ok(object(&json!({})))),
        Err(CommandError::NoSuchCall)
    );
}

// spec: OSW-4.5-1
#[test]
fn beats_are_left_out_while_nothing_can_be_sent() {
    let mut conn = open_agent(Limits::default());
    let beats = |conn: &mut AgentConnection, millis| {
        conn.handle_timeout(at(millis));
        drain_agent(conn).sent.len()
    };
    conn.set_writing(false);
    assert_eq!(beats(&mut conn, 1_000), 0);
    assert_eq!(conn.poll_timeout(), Some(at(2_000).mono));
    conn.set_writing(true);
    assert_eq!(beats(&mut conn, 2_000), 1);
}

// spec: OSW-4.1-5
#[test]
fn a_core_may_send_no_more_than_the_agent_takes() {
    let limits = Limits::default().with_max_frame_bytes(6_000);
    let mut conn = new_agent(limits);
    drain_agent(&mut conn);
    let mut welcome = welcome();
    welcome["payload"]["max_frame_bytes"] = json!(u32::MAX);
    tell_agent(&mut conn, 0, &welcome);
    let long = |bytes: usize| message("core.later", json!({"text": "x".repeat(bytes)}));
    assert_eq!(tell_agent(&mut conn, 0, &long(5_000)).closed, None);
    let too_large = CloseReason::Protocol(ErrorCode::FrameTooLarge);
    assert_eq!(
        tell_agent(&mut conn, 0, &long(6_000)).closed,
        Some(too_large)
    );
}
