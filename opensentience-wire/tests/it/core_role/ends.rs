//! Silence, floods, and what ends a connection.

use core::time::Duration;

use opensentience_wire::message::Health;
use opensentience_wire::role::core::{CallRequest, Config, Event};
use opensentience_wire::role::{CloseReason, Input};
use opensentience_wire::{CommandError, Limits};
use serde_json::{Value, json};

use crate::kit::*;

use super::{request, result, started};

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
fn an_agent_that_is_not_read_for_long_is_not_silent() {
    let mut conn = open_core(Config::default());
    let large = |n: usize| {
        let mut tool = tool(&format!("t{n}"));
        tool["input_schema"] = json!({"title": "x".repeat(60_000)});
        tool
    };
    let tools: Vec<_> = (0..60).map(large).collect();
    let register = message("agent.tools.register", json!({"tools": tools}));
    tell_core(&mut conn, 0, &register);
    conn.handle_timeout(at(15_000));
    assert!(!conn.accepts_input());
    assert_eq!(*conn.health(), Health::Ok);
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

fn beat(session: &str, status: &str) -> Value {
    let payload =
        json!({"session_id": session, "uptime_ms": 1, "inflight_calls": 0, "status": status});
    message("agent.heartbeat", payload)
}

/// The session that a core of the kit opens: ids are drawn from one seed.
fn own_session() -> String {
    let mut conn = new_core(Config::default());
    let welcome = tell_core(&mut conn, 0, &hello()).sent.remove(0);
    welcome["payload"]["session_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

// spec: OSW-4.5-2
#[test]
fn each_beat_gives_an_agent_as_long_again() {
    let mut conn = open_core(Config::default());
    let own = own_session();
    for millis in [10_000, 20_000] {
        tell_core(&mut conn, millis, &beat(&own, "ok"));
        assert_eq!(conn.poll_timeout(), Some(at(millis + 15_000).mono));
    }
    conn.handle_timeout(at(35_000));
    assert_eq!(*conn.health(), Health::Unhealthy);
}

// spec: OSW-4.5-1
// spec: OSW-4.5-2
#[test]
fn silence_stops_new_calls_and_a_beat_brings_them_back() {
    let mut conn = open_core(Config::default());
    let running = started(&mut conn, 0);
    let said = tell_core(&mut conn, 1_000, &beat("another", "ok"));
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
    let refused = drain_core(&mut conn).events;
    assert!(matches!(&refused[..], [Event::Audit(record)]
        if record.detail.as_deref() == Some("the agent is unhealthy")));
    let own = own_session();
    assert_eq!(*conn.health(), Health::Unhealthy);
    let said = tell_core(&mut conn, 16_000, &beat(&own, "degraded"));
    assert_eq!(said.audits(), ["agent.recovered "]);
    assert_eq!(*conn.health(), Health::Degraded);
    let said = tell_core(&mut conn, 16_000, &beat(&own, "ok"));
    assert!(said.audits().is_empty(), "it had recovered");
    assert!(conn.call_tool(at(16_000), request("echo")).is_ok());
    tell_core(&mut conn, 16_001, &beat(&own, "unhealthy"));
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
    for (odd, rule) in [
        (hello(), "a second hello"),
        (
            message("agent.error", json!({})),
            "the agent reports an error",
        ),
    ] {
        let said = tell_core(&mut conn, 0, &odd);
        let [Event::Audit(record)] = &said.events[..] else {
            panic!("{:?}", said.events)
        };
        assert_eq!(record.detail.as_deref(), Some(rule));
    }
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
