//! Calls with one key have one effect, at the agent.

use opensentience_wire::Limits;
use opensentience_wire::role::{CallId, CloseReason, Input, agent};
use opensentience_wire::{CommandError, ErrorCode, ErrorObject};
use serde_json::{Value, json};

use crate::kit::*;

fn keyed(id: &str, n: u64) -> Value {
    let mut call = call(id);
    call["payload"]["idempotency_key"] = json!("k");
    call["payload"]["input"] = json!({"n": n});
    call["request_id"] = json!(format!("r-{id}"));
    call
}

fn id(text: &str) -> CallId {
    CallId::from(text)
}

/// Each result that was sent: call, request, status, code.
fn results(said: &AgentSaid) -> Vec<String> {
    let results = said
        .sent
        .iter()
        .filter(|message| message["type"] == "agent.tool.result");
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    results
        .map(|message| {
            let payload = &message["payload"];
            let code = text(&payload["error"]["code"]);
            [
                text(&payload["call_id"]),
                text(&message["request_id"]),
                text(&payload["status"]),
                code,
            ]
            .join(" ")
        })
        .collect()
}

// spec: OSW-4.3-10
#[test]
fn a_second_call_of_a_key_shares_the_first_result() {
    let mut conn = open_agent(Limits::default());
    assert_eq!(tell_agent(&mut conn, 0, &keyed("a", 1)).calls.len(), 1);
    let joined = tell_agent(&mut conn, 0, &keyed("b", 1));
    assert!(joined.calls.is_empty() && joined.sent.is_empty());
    assert_eq!(
        results(&tell_agent(&mut conn, 0, &keyed("x", 2))),
        ["x r-x failed tool.conflict"]
    );
    assert_eq!(conn.running_calls(), 2);
    assert_eq!(
        conn.finish(at(1), &id("b"), Ok(object(&json!({})))),
        Err(CommandError::NoSuchCall),
        "it has no tool"
    );
    conn.finish(at(1), &id("a"), Ok(object(&json!({"done": 1}))))
        .unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(results(&said), ["b r-b succeeded -", "a r-a succeeded -"]);
    let later = tell_agent(&mut conn, 9, &keyed("c", 1));
    assert!(later.calls.is_empty());
    assert_eq!(results(&later), ["c r-c succeeded -"]);
    assert_eq!(later.sent[0]["payload"]["output"], json!({"done": 1}));
    assert_eq!(
        results(&tell_agent(&mut conn, 9, &keyed("y", 2))),
        ["y r-y failed tool.conflict"]
    );
    assert_eq!(conn.running_calls(), 0);
}

// spec: OSW-4.3-10
#[test]
fn only_lasting_failures_are_remembered() {
    for (code, again) in [
        (ErrorCode::ToolFailed, 0),
        (ErrorCode::ToolBusy, 1),
        (ErrorCode::ToolCanceled, 1),
    ] {
        let mut conn = open_agent(Limits::default());
        tell_agent(&mut conn, 0, &keyed("a", 1));
        conn.finish(at(1), &id("a"), Err(ErrorObject::of(code.clone(), "no")))
            .unwrap();
        drain_agent(&mut conn);
        assert_eq!(
            tell_agent(&mut conn, 2, &keyed("b", 1)).calls.len(),
            again,
            "{code}"
        );
    }
}

fn cancel(id: &str) -> Value {
    message("core.tool.cancel", json!({"call_id": id}))
}

// spec: OSW-4.3-10
// spec: OSW-4.4-3
#[test]
fn a_tool_is_stopped_when_nobody_waits_for_it_any_more() {
    let mut conn = open_agent(Limits::default());
    tell_agent(&mut conn, 0, &keyed("a", 1));
    tell_agent(&mut conn, 0, &keyed("x", 1));
    // The first still wants its end, though nobody else does.
    let said = tell_agent(&mut conn, 0, &cancel("x"));
    assert_eq!((results(&said).len(), said.cancels), (1, 0));
    tell_agent(&mut conn, 0, &keyed("b", 1));
    tell_agent(&mut conn, 0, &keyed("c", 1));
    // The first is canceled: it ends, and its tool runs on for the others.
    let said = tell_agent(&mut conn, 1, &cancel("a"));
    assert_eq!(
        (results(&said), said.cancels),
        (vec!["a r-a canceled tool.canceled".to_owned()], 0)
    );
    let said = tell_agent(&mut conn, 1, &cancel("b"));
    assert_eq!(
        (results(&said), said.cancels),
        (vec!["b r-b canceled tool.canceled".to_owned()], 0)
    );
    let said = tell_agent(&mut conn, 1, &cancel("c"));
    assert_eq!(
        (results(&said), said.cancels),
        (vec!["c r-c canceled tool.canceled".to_owned()], 1)
    );
    assert_eq!(
        conn.finish(at(2), &id("a"), Ok(object(&json!({})))),
        Err(CommandError::NoSuchCall)
    );
    assert_eq!(drain_agent(&mut conn).sent.len(), 0);
    // What it came back with all the same is what the key did.
    assert_eq!(
        results(&tell_agent(&mut conn, 3, &keyed("d", 1))),
        ["d r-d succeeded -"]
    );
}

// spec: OSW-4.1-7
#[test]
fn a_connection_that_drains_ends_with_the_cancel_of_the_last_call_that_waits_for_a_tool() {
    let mut conn = open_agent(Limits::default());
    tell_agent(&mut conn, 0, &keyed("a", 1));
    tell_agent(&mut conn, 0, &keyed("b", 1));
    conn.shutdown(at(0));
    // The tool runs on for the other.
    assert_eq!(tell_agent(&mut conn, 1, &cancel("a")).closed, None);
    let said = tell_agent(&mut conn, 2, &cancel("b"));
    assert_eq!(
        (results(&said), said.cancels),
        (vec!["b r-b canceled tool.canceled".to_owned()], 1)
    );
    assert_eq!(said.closed, Some(CloseReason::Shutdown));
}

// spec: OSW-4.4-3
#[test]
fn a_tool_whose_call_has_a_key_of_its_own_is_stopped_once() {
    let mut conn = open_agent(Limits::default());
    tell_agent(&mut conn, 0, &keyed("a", 1));
    for cancels in [1, 0] {
        let said = tell_agent(&mut conn, 1, &cancel("a"));
        assert_eq!((results(&said), said.cancels), (Vec::new(), cancels));
    }
    let canceled = ErrorObject::of(ErrorCode::ToolCanceled, "canceled");
    conn.finish(at(2), &id("a"), Err(canceled)).unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(results(&said), ["a r-a canceled tool.canceled"]);
}

#[test]
fn a_call_that_has_ended_leaves_no_deadline_behind() {
    let mut conn = open_agent(Limits::default());
    let idle = conn.poll_timeout();
    for id in ["a", "b", "c"] {
        let mut timed = keyed(id, 1);
        timed["payload"]["timeout_ms"] = json!(10);
        tell_agent(&mut conn, 0, &timed);
    }
    assert_eq!(conn.poll_timeout(), Some(at(10).mono));
    tell_agent(&mut conn, 1, &cancel("b"));
    conn.finish(at(2), &id("a"), Ok(object(&json!({}))))
        .unwrap();
    assert_eq!(results(&drain_agent(&mut conn)).len(), 2);
    assert_eq!(conn.poll_timeout(), idle);
}

// spec: OSW-4.3-10
#[test]
fn followers_get_the_end_of_a_tool_whose_first_call_timed_out() {
    let mut conn = open_agent(Limits::default());
    let mut first = keyed("a", 1);
    first["payload"]["timeout_ms"] = json!(10);
    tell_agent(&mut conn, 0, &first);
    tell_agent(&mut conn, 0, &keyed("b", 1));
    conn.handle_timeout(at(10));
    let said = drain_agent(&mut conn);
    assert_eq!((results(&said).len(), said.cancels), (1, 0));
    assert!(
        conn.finish(at(11), &id("a"), Ok(object(&json!({}))))
            .is_err()
    );
    assert_eq!(results(&drain_agent(&mut conn)), ["b r-b succeeded -"]);
    assert_eq!(conn.running_calls(), 0);
}

// spec: OSW-4.4-1
#[test]
fn a_tool_that_went_on_for_others_is_stopped_with_the_last_of_them_and_no_other_tool() {
    let mut conn = open_agent(Limits::default());
    let of_key = |id: &str, key: &str, timeout: u64| {
        let mut call = keyed(id, 1);
        call["payload"]["idempotency_key"] = json!(key);
        call["payload"]["timeout_ms"] = json!(timeout);
        call
    };
    // Others run, too: one of another key, one whose first call has ended.
    tell_agent(&mut conn, 0, &of_key("a", "other", 60_000));
    tell_agent(&mut conn, 0, &of_key("b", "third", 10));
    tell_agent(&mut conn, 0, &of_key("c", "third", 60_000));
    tell_agent(&mut conn, 0, &of_key("d", "k", 10));
    tell_agent(&mut conn, 0, &of_key("e", "k", 60_000));
    conn.handle_timeout(at(10));
    assert_eq!(drain_agent(&mut conn).cancels, 0);
    let cancel = message("core.tool.cancel", json!({"call_id": "e"}));
    conn.handle_input(at(11), Input::Bytes(&frame(&cancel)))
        .unwrap();
    let mut stopped = Vec::new();
    while let Some(output) = conn.poll_output() {
        if let agent::Output::Cancel(id) = output {
            stopped.push(id.to_string());
        }
    }
    assert_eq!(stopped, ["d"]);
}

// spec: OSW-4.3-10
#[test]
fn the_memory_is_bounded() {
    let mut conn = open_agent(
        Limits::default()
            .with_max_remembered_calls(2)
            .with_max_remembered_bytes(1_000_000),
    );
    let with_key = |id: &str, key: &str| {
        let mut call = keyed(id, 1);
        call["payload"]["idempotency_key"] = json!(key);
        call
    };
    for key in ["k1", "k2", "k3"] {
        tell_agent(&mut conn, 0, &with_key(key, key));
        conn.finish(at(1), &id(key), Ok(object(&json!({}))))
            .unwrap();
    }
    drain_agent(&mut conn);
    assert_eq!(
        tell_agent(&mut conn, 2, &with_key("x", "k3")).calls.len(),
        0
    );
    assert_eq!(
        tell_agent(&mut conn, 2, &with_key("y", "k1")).calls.len(),
        1,
        "the oldest is forgotten"
    );
    let mut conn = open_agent(
        Limits::default()
            .with_max_remembered_calls(9)
            .with_max_remembered_bytes(20),
    );
    tell_agent(&mut conn, 0, &keyed("a", 1));
    conn.finish(
        at(1),
        &id("a"),
        Ok(object(&json!({"long": "x".repeat(30)}))),
    )
    .unwrap();
    drain_agent(&mut conn);
    assert_eq!(
        tell_agent(&mut conn, 2, &keyed("b", 1)).calls.len(),
        1,
        "too large to remember"
    );
}

// spec: OSW-2-7
#[test]
fn what_one_message_asks_for_again_and_again_is_bounded() {
    let limits = Limits::default().with_max_inflight_bytes(12_000);
    let large = || Ok(object(&json!({"text": "x".repeat(3_500)})));
    let frames = |names: &str| -> Vec<u8> {
        let frames = names
            .chars()
            .map(|name| frame(&keyed(&name.to_string(), 1)));
        frames.flatten().collect()
    };
    let wanted = |names: &str, good: usize| -> Vec<String> {
        let end = |(n, name): (usize, char)| match n < good {
            true => format!("{name} r-{name} succeeded -"),
            false => format!("{name} r-{name} failed tool.busy"),
        };
        names.chars().enumerate().map(end).collect()
    };
    let mut conn = open_agent(limits);
    conn.handle_input(at(0), Input::Bytes(&frames("abcdef")))
        .unwrap();
    drain_agent(&mut conn);
    conn.finish(at(1), &id("a"), large()).unwrap();
    let mut followers = results(&drain_agent(&mut conn));
    assert_eq!(followers.pop().unwrap(), "a r-a succeeded -");
    assert_eq!(followers, wanted("bcdef", 3));
    // And those that come later, in one piece.
    for _ in 0..2 {
        conn.handle_input(at(2), Input::Bytes(&frames("ghijkl")))
            .unwrap();
        assert_eq!(results(&drain_agent(&mut conn)), wanted("ghijkl", 3));
    }
    let bytes = large().unwrap().as_str().len();
    for (bytes, end) in [(bytes, "succeeded -"), (bytes - 1, "failed tool.busy")] {
        let mut conn = open_agent(Limits::default().with_max_inflight_bytes(bytes));
        tell_agent(&mut conn, 0, &keyed("a", 1));
        conn.finish(at(1), &id("a"), large()).unwrap();
        drain_agent(&mut conn);
        let later = tell_agent(&mut conn, 2, &keyed("b", 1));
        assert_eq!(results(&later), [format!("b r-b {end}")]);
    }
}
