//! Calls that wait for a place.

use core::time::Duration;

use opensentience_wire::message::{ActorType, CallContext};
use opensentience_wire::role::CallId;
use opensentience_wire::role::core::{Config, CoreConnection};
use opensentience_wire::{CommandError, Limits};
use serde_json::json;

use crate::kit::RequestExt as _;
use crate::kit::*;

use super::{request, result, started};

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
    assert!(drain_core(&mut conn).sent.is_empty());
    assert_eq!(
        conn.call_tool(at(0), request("echo")),
        Err(CommandError::Busy)
    );
}

// spec: OSW-2-6
#[test]
fn inputs_that_wait_are_bounded_in_bytes() {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_queued_bytes(100);
    let mut conn = open_core(Config::default().with_limits(limits));
    let input = |bytes: usize| {
        let mut call = request("echo");
        let text = bytes - call.tool_id.len() - 11;
        call.input = object(&json!({"text": "x".repeat(text)}));
        call
    };
    // What is sent at once does not wait.
    let mut running = conn.call_tool(at(0), input(500)).unwrap();
    let at_the_end = |conn: &mut CoreConnection, id: &CallId| {
        drain_core(conn);
        tell_core(conn, 0, &result(id, "succeeded"))
    };
    // Each way out of the queue gives its bytes back: sent, canceled, out of time.
    for way in 0..3 {
        let waiting = conn
            .call_tool(at(0), input(60).with_timeout(Duration::from_millis(1)))
            .unwrap();
        assert_eq!(
            conn.call_tool(at(0), input(41)),
            Err(CommandError::Busy),
            "{way}"
        );
        let other = conn.call_tool(at(0), input(40)).unwrap();
        conn.cancel(at(0), &other, None).unwrap();
        match way {
            0 => {
                at_the_end(&mut conn, &running);
                running = waiting;
            }
            1 => conn.cancel(at(0), &waiting, None).unwrap(),
            _ => conn.handle_timeout(at(5_000)),
        }
    }
    conn.call_tool(at(5_000), input(100)).unwrap();
}

// spec: OSW-2-6
#[test]
fn a_call_that_waits_too_long_gives_up_its_place_in_the_queue_and_no_other() {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_queued_calls(2);
    let mut conn = open_core(Config::default().with_limits(limits));
    let running = started(&mut conn, 0);
    let hasty = request("echo").with_timeout(Duration::from_millis(1));
    conn.call_tool(at(0), hasty).unwrap();
    let patient = started(&mut conn, 0);
    conn.handle_timeout(at(5_000));
    assert_eq!(drain_core(&mut conn).ended(), ["failed tool.timeout"]);
    conn.call_tool(at(5_000), request("echo")).unwrap();
    assert!(drain_core(&mut conn).sent.is_empty(), "one is running");
    let refused = conn.call_tool(at(5_000), request("echo"));
    assert_eq!(refused, Err(CommandError::Busy));
    let said = tell_core(&mut conn, 5_000, &result(&running, "succeeded"));
    assert_eq!(said.sent[0]["payload"]["call_id"], patient.to_string());
}

// spec: OSW-2-6
#[test]
fn a_call_that_leaves_the_end_of_the_queue_lets_none_before_it_go() {
    for way in ["canceled", "late"] {
        let limits = Limits::default().with_max_inflight_requests(1);
        let mut conn = open_core(Config::default().with_limits(limits));
        let running = started(&mut conn, 0);
        let patient = started(&mut conn, 0);
        let hasty = request("echo").with_timeout(Duration::from_millis(1));
        let hasty = conn.call_tool(at(0), hasty).unwrap();
        match way {
            "canceled" => conn.cancel(at(0), &hasty, None).unwrap(),
            _ => conn.handle_timeout(at(5_000)),
        }
        let said = drain_core(&mut conn);
        assert_eq!((said.sent.len(), said.ended().len()), (0, 1), "{way}");
        let said = tell_core(&mut conn, 5_000, &result(&running, "succeeded"));
        assert_eq!(said.sent[0]["payload"]["call_id"], patient.to_string());
    }
}

// spec: OSW-4.1-7
#[test]
fn calls_that_wait_end_at_the_goodbye_and_those_that_run_go_on() {
    let limits = Limits::default().with_max_inflight_requests(1);
    let mut conn = open_core(Config::default().with_limits(limits));
    let running = started(&mut conn, 0);
    started(&mut conn, 0);
    conn.goodbye(at(0), "update", None).unwrap();
    assert_eq!(drain_core(&mut conn).ended(), ["failed agent.disconnected"]);
    let said = tell_core(&mut conn, 1, &result(&running, "succeeded"));
    assert_eq!(said.ended(), ["succeeded"]);
    assert!(conn.is_closed());
}

// spec: OSW-2-6
#[test]
fn one_place_is_given_to_one_call() {
    let limits = Limits::default().with_max_inflight_requests(1);
    let mut conn = open_core(Config::default().with_limits(limits));
    let mut running = started(&mut conn, 0);
    let waiting: Vec<_> = (0..3).map(|_| started(&mut conn, 0)).collect();
    for next in waiting {
        let said = tell_core(&mut conn, 0, &result(&running, "succeeded"));
        let sent = said.sent.iter().map(|call| &call["payload"]["call_id"]);
        assert_eq!(sent.collect::<Vec<_>>(), [&next.to_string()]);
        running = next;
    }
}

// spec: OSW-2-6
#[test]
fn all_that_a_call_keeps_while_it_waits_is_bounded_in_bytes() {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_queued_bytes(10_000);
    let text = "x".repeat(9_000);
    let mut hinted = request("echo");
    let mut context = CallContext::new();
    context.ui = Some(object(&json!({"hint": text})));
    hinted.context = Some(context);
    let mut keyed = request("echo");
    keyed.idempotency_key = Some(text.clone());
    let asked = request("echo").with_caller(ActorType::Human, &text);
    for asked in [
        hinted,
        keyed,
        asked,
        request("echo").with_correlation_id(&text),
    ] {
        let mut conn = open_core(Config::default().with_limits(limits.clone()));
        let first = started(&mut conn, 0);
        conn.call_tool(at(0), asked.clone()).unwrap();
        let more = conn.call_tool(at(0), asked.clone());
        assert_eq!(more, Err(CommandError::Busy), "{asked:?}");
        conn.call_tool(at(0), request("echo")).unwrap();
        tell_core(&mut conn, 0, &result(&first, "succeeded"));
        conn.call_tool(at(0), asked).unwrap();
    }
}
