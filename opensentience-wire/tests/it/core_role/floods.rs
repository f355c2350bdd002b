//! What an agent says of calls that nobody waits for, and beside the outputs of those that somebody does.

use opensentience_wire::CommandError;
use opensentience_wire::Limits;
use opensentience_wire::role::core::{Config, Event};
use serde_json::{Value, json};

use crate::kit::*;

use super::{request, result, started};

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
    assert_eq!(ended(metrics(200_000)), ["succeeded"]);
    let too_large = ["failed tool.output_too_large"];
    assert_eq!(ended(metrics(300_000)), too_large);
    let error =
        json!({"code": "tool.failed", "message": "m", "details": {"d": "x".repeat(300_000)}});
    let failed = json!({"status": "failed", "error": error});
    assert_eq!(ended(failed), too_large);
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
    let mut refusals = Vec::new();
    for asked in [request("none"), request("write"), long, request("echo")] {
        let refused = conn.call_tool(at(0), asked).unwrap_err();
        let said = drain_core(&mut conn);
        let audited = said
            .events
            .iter()
            .filter(|event| matches!(event, Event::Audit(_)));
        assert_eq!(audited.count(), 1, "{refused}");
        refusals.push(said.audits().remove(0));
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
    conn.goodbye(at(0), "enough", None).unwrap();
    drain_core(&mut conn);
    let refused = conn.call_tool(at(0), request("echo"));
    assert_eq!(refused, Err(CommandError::Closing));
    assert_eq!(drain_core(&mut conn).audits().len(), 1);
}
