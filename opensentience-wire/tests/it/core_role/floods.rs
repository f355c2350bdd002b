//! What an agent says of calls that nobody waits for, and beside the outputs of those that somebody does.

use core::time::Duration;

use opensentience_wire::CommandError;
use opensentience_wire::message::{ActorType, Caller};
use opensentience_wire::role::core::{CallRequest, Config, CoreConnection, Event};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{Ledger, Limits};
use serde_json::{Value, json};

use crate::kit::RequestExt as _;
use crate::kit::*;

use super::{chunk, request, result, started};

/// How many of a message are read before the agent is not read for a while; none where that never is.
fn read(message: &Value) -> Option<usize> {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    let mut message = message.clone();
    if message["payload"]["call_id"] == "RUNNING" {
        message["payload"]["call_id"] = json!(id.to_string());
    }
    (1..20_000).find(|_| {
        tell_core(&mut conn, 0, &message);
        !conn.accepts_input()
    })
}

// spec: OSW-4.3-12
#[test]
fn what_is_said_of_unknown_calls_has_a_rate() {
    let text = "x".repeat(10_000);
    let none = |kind: &str, rest: Value| {
        let mut payload = rest;
        payload["call_id"] = json!("none");
        message(kind, payload)
    };
    let data = json!({"text": text});
    let older = |mut message: Value| {
        message["v"] = json!(2);
        message
    };
    let floods = [
        none(
            "agent.tool.result",
            json!({"status": "succeeded", "output": {"t": text}}),
        ),
        none(
            "agent.tool.stream",
            json!({"seq": 1, "channel": "stdout", "data": data}),
        ),
        none(
            "agent.tool.cancel_ack",
            json!({"accepted": true, "reason": text}),
        ),
        none("agent.tool.result", json!({"status": [text]})),
        {
            let mut timeless = message("agent.pong", json!({"t": text}));
            timeless["ts"] = json!(null);
            timeless
        },
        // Of another version, whatever they are about.
        older(none(
            "agent.tool.result",
            json!({"status": "failed", "t": text}),
        )),
        older(none("agent.tool.stream", json!({"seq": 1, "t": text}))),
        older(none("agent.tool.cancel_ack", json!({"t": text}))),
        // About no call, and counted once.
        message("agent.heartbeat", json!({"session_id": [text]})),
        // Each is behind the end that the first one has said.
        message(
            "agent.tool.stream",
            json!({"call_id": "RUNNING", "seq": 9, "channel": "stdout", "data": data}),
        ),
    ];
    for flood in &floods {
        let count = read(flood).expect("a bound");
        assert!(
            (500..1_000).contains(&count),
            "{count} of {}",
            flood["type"]
        );
    }
}

/// How many messages an agent sends about one call before it is not read for a while.
fn read_of_one(say: impl Fn(&CallId, u64) -> Value) -> usize {
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    let mut numbers = 0..20_000_u64;
    let read = numbers.find(|number| {
        tell_core(&mut conn, 0, &say(&id, *number));
        !conn.accepts_input()
    });
    usize::try_from(read.expect("a bound")).unwrap()
}

// spec: OSW-4.3-5
// spec: OSW-4.3-12
#[test]
fn gaps_in_a_stream_have_a_rate_whatever_the_output_is_worth() {
    let gaps = |id: &CallId, number| chunk(id, 1 + 2 * number, "stdout", json!({"text": "a"}));
    let read = read_of_one(gaps);
    assert!((8_000..8_193).contains(&read), "{read}");
}

// spec: OSW-4.3-12
#[test]
fn a_cancel_that_was_not_asked_for_is_not_acknowledged() {
    let ack = |id: &CallId, _| {
        let ack = json!({"call_id": id.to_string(), "accepted": true});
        message("agent.tool.cancel_ack", ack)
    };
    let read = read_of_one(ack);
    assert!((8_000..8_193).contains(&read), "{read}");
    // One that was is acknowledged once.
    let mut conn = open_core(Config::default());
    let id = started(&mut conn, 0);
    conn.cancel(at(0), &id, None).unwrap();
    drain_core(&mut conn);
    let first = tell_core(&mut conn, 0, &ack(&id, 0));
    let acknowledged = Event::CancelAck {
        call_id: id.clone(),
        accepted: true,
    };
    assert_eq!(first.events, [acknowledged]);
    let second = tell_core(&mut conn, 0, &ack(&id, 0));
    let rejected = "protocol.message_rejected protocol.invalid_message";
    assert_eq!(
        (second.events.len(), second.audits()),
        (1, vec![rejected.into()])
    );
}

// spec: OSW-8-1
#[test]
fn an_agent_writes_no_text_of_its_own_into_the_audit() {
    let recorded = |code: &str| {
        let mut conn = open_core(Config::default());
        let id = started(&mut conn, 0);
        let mut said = result(&id, "failed");
        said["payload"]["error"] = json!({"code": code, "message": "no"});
        let said = tell_core(&mut conn, 0, &said);
        assert_eq!(
            said.ended(),
            [format!("failed {code}")],
            "the caller has it"
        );
        said.audits().remove(0)
    };
    let word = "a".repeat(64);
    for code in ["tool.failed", "weather.no_data_2", word.as_str()] {
        assert_eq!(recorded(code), format!("tool.call_completed {code}"));
    }
    for code in [&"a".repeat(65), "Hello auditor", "a\nb", "a\u{202e}", ""] {
        assert_eq!(recorded(code), "tool.call_completed other");
    }
}

// spec: OSW-4.3-12
#[test]
fn a_registration_counts_once_where_no_schema_is_compiled_for_it() {
    let nothing = json!({"tools": []});
    let known = json!({"tools": [tool("echo")]});
    for payload in [nothing, known] {
        let count = read(&message("agent.tools.register", payload));
        // Each counts 1 KiB, and 8 MiB may come at once: what came before took a few of them.
        assert!((8_000..8_193).contains(&count.unwrap()), "{count:?}");
    }
}

// spec: OSW-4.3-12
#[test]
fn a_result_of_an_unknown_call_counts_however_it_is_written() {
    let mut conn = open_core(Config::default());
    let head = r#"{"v":1,"type":"agent.tool.result","id":"m-1","ts":"2026-01-16T12:00:00Z","#;
    let text = "x".repeat(10_000);
    let payload = json!({"call_id": "none", "status": "succeeded", "output": {"t": text}});
    let flood = raw_frame(format!("{head}\"payload\":{payload}}}").as_bytes());
    let read = (1..20_000).find(|_| {
        conn.handle_input(at(0), Input::Bytes(&flood)).unwrap();
        drain_core(&mut conn);
        !conn.accepts_input()
    });
    assert!((500..1_000).contains(&read.unwrap()), "{read:?}");
}

// spec: OSW-4.3-8
#[test]
fn a_result_that_contradicts_its_status_is_recorded_and_counts() {
    let mut conn = open_core(Config::default());
    let mut said = result(&started(&mut conn, 0), "succeeded");
    said["payload"]["error"] = json!({"code": "tool.failed", "message": "no"});
    let said = tell_core(&mut conn, 0, &said);
    let rejected = "protocol.message_rejected protocol.invalid_message";
    assert_eq!(said.audits()[0], rejected);
    assert_eq!(said.ended(), ["succeeded"]);
}

// spec: OSW-4.1-7
#[test]
fn an_agent_that_is_told_to_go_has_the_same_rate() {
    let mut conn = open_core(Config::default());
    started(&mut conn, 0);
    conn.goodbye(at(0), "enough", None).unwrap();
    let register = message(
        "agent.tools.register",
        json!({"tools": [], "replace": true}),
    );
    let read = (1..20_000).find(|_| {
        tell_core(&mut conn, 0, &register);
        !conn.accepts_input()
    });
    assert!(read.is_some());
}

// spec: OSW-2-7
#[test]
fn metrics_and_errors_are_bounded_as_outputs_are() {
    let ended = |members: Value| {
        let mut conn = open_core(Config::default());
        let id = started(&mut conn, 0);
        let mut said = result(&id, members["status"].as_str().unwrap());
        let payload = said["payload"].as_object_mut().unwrap();
        payload.extend(members.as_object().unwrap().clone());
        tell_core(&mut conn, 0, &said).ended()
    };
    let metrics =
        |bytes: usize| json!({"status": "succeeded", "metrics": {"m": "x".repeat(bytes)}});
    let most = (256 << 10) - json!({"m": ""}).to_string().len();
    assert_eq!(ended(metrics(most)), ["succeeded"]);
    // An output has a bound of its own.
    let output = json!({"status": "succeeded", "output": {"t": "x".repeat(200_000)}});
    assert_eq!(ended(output), ["succeeded"]);
    let too_large = ["failed tool.output_too_large"];
    assert_eq!(ended(metrics(most + 1)), too_large);
    let error =
        json!({"code": "tool.failed", "message": "m", "details": {"d": "x".repeat(300_000)}});
    let failed = json!({"status": "failed", "error": error});
    assert_eq!(ended(failed), too_large);
}

// spec: OSW-8-1
#[test]
fn a_call_that_is_too_long_or_holds_the_token_is_not_sent() {
    let limits = Limits::default().with_max_frame_bytes(4_096);
    let mut conn = open_core(Config::default().with_limits(limits));
    let too_long = "tool.call_refused tool.invalid_input";
    let secret = "security.denied tool.internal";
    for (text, record) in [
        ("x".repeat(4_096), too_long),
        (token().expose().to_owned(), secret),
    ] {
        let mut asked = request("echo").with_correlation_id("run-1");
        asked.input = object(&json!({"text": text}));
        let refused = conn.call_tool(at(0), asked).unwrap_err();
        assert!(matches!(refused, CommandError::Encode(_)), "{refused}");
        let said = drain_core(&mut conn);
        assert!(said.sent.is_empty());
        assert_eq!(said.audits(), [record]);
        assert_eq!(conn.pending_calls(), 0);
    }
}

// spec: OSW-7-1
#[test]
fn no_record_of_a_refusal_holds_the_token() {
    type Change = fn(&mut CallRequest, String);
    let changes: [Change; 5] = [
        |request, token| request.request_id = Some(token),
        |request, token| request.correlation_id = Some(format!("run-{token}")),
        |request, token| request.causation_id = Some(token),
        |request, token| request.caller = Some(Caller::new(ActorType::Human, token)),
        |request, token| request.tool_id = token,
    ];
    for change in changes {
        // One that is refused before it is written, and one that is refused because of it.
        for tool in ["echo", "none"] {
            let mut conn = open_core(Config::default());
            let mut asked = request(tool);
            change(&mut asked, token().expose().to_owned());
            conn.call_tool(at(0), asked).unwrap_err();
            let said = drain_core(&mut conn);
            assert_eq!(said.audits().len(), 1);
            for event in &said.events {
                let Event::Audit(record) = event else {
                    continue;
                };
                let fields = format!("{record:?}");
                assert!(!fields.contains(token().expose()), "{fields}");
            }
        }
    }
}

// spec: OSW-8-1
#[test]
fn every_call_that_a_connection_refuses_is_audited() {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_queued_calls(0)
        .with_max_tool_input_bytes(50);
    let mut conn = open_core(Config::default().with_limits(limits));
    let long = {
        let mut request = request("echo");
        request.input = object(&json!({"n": "x".repeat(100)}));
        request
    };
    started(&mut conn, 0);
    let (mut refusals, mut rules) = (Vec::new(), Vec::new());
    for asked in [request("none"), request("write"), long, request("echo")] {
        let asked = asked.with_caller(ActorType::Human, "ada");
        let mut asked = asked.with_correlation_id("run-1");
        asked.request_id = Some("r-1".into());
        if asked.tool_id != request("write").tool_id {
            asked.causation_id = Some("cause-1".into());
        }
        let refused = conn.call_tool(at(0), asked.clone()).unwrap_err();
        let said = drain_core(&mut conn);
        let [Event::Audit(record)] = &said.events[..] else {
            panic!("{refused}: {:?}", said.events)
        };
        assert_eq!(record.caller, asked.caller);
        assert_eq!(
            (&record.request_id, &record.correlation_id),
            (&asked.request_id, &asked.correlation_id)
        );
        assert_eq!(record.causation_id, asked.causation_id);
        refusals.push(said.audits().remove(0));
        rules.push(record.detail.clone().unwrap());
    }
    assert_eq!(
        refusals,
        [
            "tool.call_refused tool.not_found",
            "security.denied tool.directive_required",
            "tool.call_refused tool.invalid_input",
            "tool.call_refused tool.busy",
        ]
    );
    assert_eq!(
        rules,
        [
            "no such tool",
            "a directive",
            "the input is too large",
            "no room for a call"
        ]
    );
    conn.goodbye(at(0), "enough", None).unwrap();
    drain_core(&mut conn);
    let refused = conn.call_tool(at(0), request("echo"));
    assert_eq!(refused, Err(CommandError::Closing));
    assert_eq!(drain_core(&mut conn).audits().len(), 1);
    conn.handle_input(at(0), Input::Eof).unwrap();
    drain_core(&mut conn);
    let refused = conn.call_tool(at(0), request("echo"));
    assert_eq!(refused, Err(CommandError::Closing));
    let closed = "tool.call_refused agent.disconnected";
    assert_eq!(drain_core(&mut conn).audits(), [closed]);
    // One that is too long as a whole, and one too soon after another.
    let mut conn = open_core(Config::default().with_call_rate(1, Duration::from_secs(60)));
    let mut long = request("echo");
    long.causation_id = Some("x".repeat(5 << 20));
    let asked = [long, request("echo"), request("echo")];
    let taken = asked.map(|asked| conn.call_tool(at(0), asked).is_ok());
    assert_eq!(taken, [false, true, false]);
    let events = drain_core(&mut conn).events.into_iter();
    let rules = events.filter_map(|event| match event {
        Event::Audit(record) if record.code.is_some() => record.detail,
        _ => None,
    });
    let wanted = ["the call is too long", "too many calls in a span of time"];
    assert_eq!(rules.collect::<Vec<_>>(), wanted);
}

// Who comes again has no new rate, and who has two connections no second.
// spec: OSW-4.3-12
#[test]
fn all_connections_of_an_agent_have_one_rate() {
    let ledger = Ledger::new(80 << 20);
    let opened = |millis| {
        let mut conn = new_core(Config::default())
            .with_ledger(ledger.clone())
            .unwrap();
        tell_core(&mut conn, millis, &hello());
        assert!(conn.is_open());
        conn
    };
    let pong = message("agent.pong", json!({}));
    let most = |conn: &mut CoreConnection, millis| {
        let told = (1..20_000).find(|_| {
            tell_core(conn, millis, &pong);
            !conn.accepts_input()
        });
        told.unwrap()
    };
    let is_due = |conn: &CoreConnection, millis| {
        let next = conn.poll_timeout();
        next.is_some_and(|next| next <= at(millis).mono)
    };
    let mut first = opened(0);
    assert!(most(&mut first, 0) > 8_000);
    drop(first);
    let mut second = opened(0);
    assert_eq!(most(&mut second, 0), 1);
    // 256 of them make a second.
    let mut third = opened(10_000);
    let later = most(&mut third, 10_000);
    assert!((2_500..2_600).contains(&later), "{later}");
    // One that is gone sends nothing more: its silence alone is waited for.
    assert!(is_due(&third, 11_000));
    third.lift_rate(at(10_000));
    assert!(third.accepts_input() && !is_due(&third, 11_000));
    drop(third);
    assert_eq!(ledger.held_bytes(), 0);
}
