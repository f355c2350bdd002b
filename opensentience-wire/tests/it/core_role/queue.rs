//! Calls that wait for a place.

use core::time::Duration;

use opensentience_wire::message::{ActorType, CallContext};
use opensentience_wire::role::core::{Config, CoreConnection};
use opensentience_wire::role::{CallId, Input};
use opensentience_wire::{CommandError, Limits, Share};
use serde_json::json;
use ubos_common::time::Now;

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

// spec: OSW-4.3-12
#[test]
fn a_result_or_output_for_a_call_that_was_not_sent_yet_is_none() {
    let limits = Limits::default().with_max_inflight_requests(1);
    let mut conn = open_core(Config::default().with_limits(limits));
    let first = started(&mut conn, 0);
    let waits = conn.call_tool(at(0), request("echo")).unwrap();
    let said = tell_core(&mut conn, 0, &result(&waits, "succeeded"));
    assert_eq!((said.ended(), said.sent.len()), (vec![], 0));
    let said = tell_core(&mut conn, 0, &result(&first, "succeeded"));
    assert_eq!(said.sent[0]["payload"]["call_id"], waits.to_string());
    let said = tell_core(&mut conn, 0, &result(&waits, "succeeded"));
    assert_eq!(said.ended().len(), 1);
}

/// One place, and room for two long calls that wait.
fn narrow() -> CoreConnection {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_frame_bytes(1 << 20)
        .with_max_agent_bytes(16 * 700_000);
    let conn = open_core(Config::default().with_limits(limits));
    assert_eq!(conn.ledger().max_bytes_of(Share::Calls), 2_100_000);
    conn
}

// spec: OSW-2-6
#[test]
fn calls_that_wait_are_bounded_in_bytes() {
    let mut conn = narrow();
    let input = |bytes: usize| {
        let mut call = request("echo");
        call.input = object(&json!({"text": "x".repeat(bytes)}));
        call.with_timeout(Duration::from_secs(60))
    };
    let long = || input(1_000_000);
    let mut running = started(&mut conn, 0);
    let at_the_end = |conn: &mut CoreConnection, id: &CallId| {
        drain_core(conn);
        tell_core(conn, 0, &result(id, "succeeded"))
    };
    // Each way out of the queue gives its bytes back: sent, canceled, out of time.
    for way in 0..3 {
        drain_core(&mut conn);
        let hasty = long().with_timeout(Duration::from_millis(1));
        let waiting = conn.call_tool(at(0), hasty).unwrap();
        let second = conn.call_tool(at(0), long()).unwrap();
        let refused = conn.call_tool(at(0), long());
        assert_eq!(refused, Err(CommandError::Busy), "{way}");
        let said = drain_core(&mut conn);
        assert_eq!(said.audits(), ["tool.call_refused tool.busy"]);
        let short = conn.call_tool(at(0), input(10_000)).unwrap();
        for id in [short, second] {
            conn.cancel(at(0), &id, None).unwrap();
        }
        match way {
            0 => {
                at_the_end(&mut conn, &running);
                running = waiting;
            }
            1 => conn.cancel(at(0), &waiting, None).unwrap(),
            _ => conn.handle_timeout(at(5_000)),
        }
    }
    for _ in 0..2 {
        conn.call_tool(at(5_000), long()).unwrap();
    }
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

// Its time stamp is that of its sending, and may be longer than when it was asked for.
#[test]
fn a_call_that_is_taken_to_wait_fits_into_a_frame_whenever_it_is_sent() {
    let limits = Limits::default()
        .with_max_inflight_requests(1)
        .with_max_frame_bytes(4_096);
    let mut conn = open_core(Config::default().with_limits(limits));
    let running = started(&mut conn, 0);
    let mut longest = (0..4_096).rev().filter_map(|bytes| {
        let mut call = request("echo");
        call.input = object(&json!({"text": "x".repeat(bytes)}));
        conn.call_tool(at(0), call).ok()
    });
    let waiting = longest.next().unwrap();
    drain_core(&mut conn);
    let wall = at(0).wall.saturating_add(Duration::from_nanos(1));
    let result = frame(&result(&running, "succeeded"));
    let now = Now::new(at(0).mono, wall);
    conn.handle_input(now, Input::Bytes(&result)).unwrap();
    let said = drain_core(&mut conn);
    assert_eq!(said.ended(), ["succeeded"]);
    assert_eq!(said.sent[0]["payload"]["call_id"], waiting.to_string());
    assert_eq!(said.sent[0].to_string().len(), 4_096, "no room is left");
}

// spec: OSW-2-6
#[test]
fn all_that_a_call_keeps_is_bounded_in_bytes() {
    let text = "x".repeat(900_000);
    let mut hinted = request("echo");
    let mut context = CallContext::new();
    context.ui = Some(object(&json!({"hint": text})));
    hinted.context = Some(context);
    let mut keyed = request("echo");
    keyed.idempotency_key = Some(text.clone());
    let asked = request("echo").with_caller(ActorType::Human, &text);
    for (asked, most) in [
        (hinted, 2),
        (keyed, 2),
        // Callers are kept as long as the call, and sent as well.
        (asked, 1),
        (request("echo").with_correlation_id(&text), 2),
    ] {
        let mut conn = narrow();
        let mut running = vec![started(&mut conn, 0)];
        loop {
            match conn.call_tool(at(0), asked.clone()) {
                Ok(id) => running.push(id),
                Err(refused) => break assert_eq!(refused, CommandError::Busy),
            }
        }
        assert_eq!(running.len(), 1 + most);
        conn.call_tool(at(0), request("echo")).unwrap();
        for id in running {
            tell_core(&mut conn, 0, &result(&id, "succeeded"));
        }
        conn.call_tool(at(0), asked).unwrap();
    }
}

// What was sent is not kept, but who asked for it is.
// spec: OSW-4.3-2
#[test]
fn calls_that_run_are_bounded_in_bytes() {
    let limits = Limits::default()
        .with_max_frame_bytes(1 << 20)
        .with_max_agent_bytes(16 * 700_000);
    let mut conn = open_core(Config::default().with_limits(limits));
    let text = "x".repeat(900_000);
    let mut long = request("echo");
    long.input = object(&json!({"text": text}));
    for _ in 0..9 {
        conn.call_tool(at(0), long.clone()).unwrap();
        drain_core(&mut conn);
    }
    let asked = || request("echo").with_causation_id(&text);
    let first = conn.call_tool(at(0), asked()).unwrap();
    conn.call_tool(at(0), asked()).unwrap();
    drain_core(&mut conn);
    let refused = conn.call_tool(at(0), asked());
    assert_eq!(refused, Err(CommandError::Busy));
    let held = conn.ledger().held_bytes_of(Share::Calls);
    assert!((1_800_000..1_820_000).contains(&held), "{held}");
    tell_core(&mut conn, 0, &result(&first, "succeeded"));
    conn.call_tool(at(0), asked()).unwrap();
}

// spec: OSW-8-1
#[test]
fn no_more_calls_are_taken_in_a_span_of_time_than_may_be() {
    let minute = Duration::from_secs(60);
    let config = || Config::default().with_call_rate(2, minute);
    let mut conn = open_core(config());
    // What is refused takes nothing of it.
    conn.call_tool(at(0), request("unknown")).unwrap_err();
    for _ in 0..2 {
        conn.call_tool(at(0), request("echo")).unwrap();
    }
    drain_core(&mut conn);
    let retry_after = Duration::from_secs(20);
    let refused = conn.call_tool(at(10_000), request("echo"));
    assert_eq!(refused, Err(CommandError::RateExceeded { retry_after }));
    let said = drain_core(&mut conn);
    assert_eq!(said.audits(), ["tool.call_refused limits.rate_exceeded"]);
    conn.call_tool(at(30_000), request("echo")).unwrap();
    conn.call_tool(at(30_000), request("echo")).unwrap_err();
    for (calls, span) in [(0, minute), (1, Duration::ZERO)] {
        let config = Config::default().with_call_rate(calls, span);
        let ids = ubos_common::id::IdSource::seeded(1);
        let error = CoreConnection::new(at(0), config, ids, None).unwrap_err();
        assert!(error.to_string().contains("call_rate"), "{error}");
    }
}
