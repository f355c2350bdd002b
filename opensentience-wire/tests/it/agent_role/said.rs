//! What an agent says first, last, and not at all.

use opensentience_wire::message::SemVer;
use opensentience_wire::role::agent::{AgentConnection, Config, Event};
use opensentience_wire::role::{CloseReason, Input};
use opensentience_wire::{CommandError, ErrorCode, Limits};
use serde_json::json;
use ubos_common::id::IdSource;

use crate::kit::*;

// spec: OSW-4.1-2
#[test]
fn a_hello_names_the_manifest_and_the_library() {
    let version = "1.0.0".parse::<SemVer>().unwrap();
    let config = Config::new(AGENT, version, token()).with_manifest_hash("0".repeat(64));
    let mut conn = AgentConnection::new(at(0), config, IdSource::seeded(2)).unwrap();
    let hello = drain_agent(&mut conn).sent.remove(0);
    assert_eq!(hello["payload"]["manifest_hash"], "0".repeat(64));
    assert_eq!(hello["payload"]["sdk"]["name"], "opensentience-wire");
}

#[test]
fn an_agent_is_open_from_the_welcome_to_the_goodbye() {
    let mut conn = new_agent(Limits::default());
    assert!(!conn.is_open());
    tell_agent(&mut conn, 0, &welcome());
    assert!(conn.is_open());
    tell_agent(&mut conn, 0, &call("c"));
    conn.shutdown(at(1));
    assert!(!conn.is_open());
}

// spec: OSW-3-7
#[test]
fn an_answer_of_an_unknown_type_is_not_answered() {
    let mut conn = open_agent(Limits::default());
    for (member, value) in [
        ("in_reply_to", json!("m-0")),
        ("error", json!({"code": "x.y", "message": "no"})),
    ] {
        let mut odd = message("core.later", json!({}));
        odd["request_id"] = json!("r-9");
        odd[member] = value;
        let said = tell_agent(&mut conn, 0, &odd);
        assert!(said.sent.is_empty(), "{member}: {:?}", said.sent);
    }
}

// spec: OSW-4-1
#[test]
fn a_message_out_of_place_is_told_by_its_rule() {
    let mut conn = open_agent(Limits::default());
    for (odd, told) in [
        (welcome(), "a second welcome"),
        (
            message("core.error", json!({})),
            "the core reports an error",
        ),
        (
            message("agent.pong", json!({})),
            "a message that only an agent sends",
        ),
    ] {
        let events = tell_agent(&mut conn, 0, &odd).events;
        let [Event::Rejected { code, rule }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((code, *rule), (&ErrorCode::InvalidMessage, told));
    }
}

// spec: OSW-4.3-8
#[test]
fn a_result_says_when_its_tool_ran_and_how_long() {
    let mut conn = open_agent(Limits::default());
    let id = tell_agent(&mut conn, 1_000, &call("c"))
        .calls
        .remove(0)
        .call_id;
    conn.finish(at(3_500), &id, Ok(object(&json!({})))).unwrap();
    let result = drain_agent(&mut conn).sent.remove(0);
    let payload = &result["payload"];
    assert_eq!(payload["started_at"], at(1_000).wall.to_string());
    assert_eq!(payload["finished_at"], at(3_500).wall.to_string());
    assert_eq!(payload["metrics"], json!({"duration_ms": 2_500}));
}

// spec: OSW-4.2-5
#[test]
fn a_tool_that_was_withdrawn_is_not_run() {
    let mut conn = open_agent(Limits::default());
    conn.unregister(at(0), vec![format!("{AGENT}/echo")])
        .unwrap();
    drain_agent(&mut conn);
    let said = tell_agent(&mut conn, 0, &call("c"));
    assert!(said.calls.is_empty());
    let code = &said.sent[0]["payload"]["error"]["code"];
    assert_eq!(code, "tool.not_found");
}

// spec: OSW-2-7
#[test]
fn an_output_over_the_limit_is_a_failure() {
    let output = object(&json!({"n": 1}));
    let bytes = output.as_str().len();
    for (limit, status) in [(bytes, "succeeded"), (bytes - 1, "failed")] {
        let mut conn = open_agent(Limits::default().with_max_tool_output_bytes(limit));
        let id = tell_agent(&mut conn, 0, &call("c")).calls.remove(0).call_id;
        conn.finish(at(1), &id, Ok(output.clone())).unwrap();
        let result = drain_agent(&mut conn).sent.remove(0);
        assert_eq!(result["payload"]["status"], status);
    }
}

#[test]
fn what_comes_behind_the_end_has_no_effect() {
    let mut conn = open_agent(Limits::default());
    let mut bytes = frame(&message("core.goodbye", json!({"reason": "update"})));
    bytes.extend(frame(&message("core.ping", json!({}))));
    conn.handle_input(at(0), Input::Bytes(&bytes)).unwrap();
    let said = drain_agent(&mut conn);
    assert_eq!(said.closed, Some(CloseReason::Goodbye));
    assert!(said.sent.is_empty(), "{:?}", said.sent);
}

// spec: OSW-2-6
#[test]
fn all_that_the_calls_hold_which_run_is_bounded_together() {
    let mut conn = open_agent(Limits::default().with_max_inflight_bytes(7_000));
    let long = |id: &str| {
        let mut long = call(id);
        long["payload"]["context"] = json!({"ui": {"hint": "x".repeat(3_000)}});
        long
    };
    let mut begin = |message| {
        let said = tell_agent(&mut conn, 0, &message);
        (said.calls.len() == 1).then_some(()).ok_or(said.sent)
    };
    begin(long("a")).unwrap();
    begin(long("b")).unwrap();
    let refused = begin(long("c")).unwrap_err();
    assert_eq!(refused[0]["payload"]["error"]["code"], "tool.busy");
    begin(call("d")).unwrap();
    // One that has ended before its tool came back still holds it.
    let cancel = json!({"call_id": "a", "deadline_ms": 0});
    tell_agent(&mut conn, 0, &message("core.tool.cancel", cancel));
    conn.handle_timeout(at(1));
    drain_agent(&mut conn);
    assert!(tell_agent(&mut conn, 1, &long("e")).calls.is_empty());
    let ended = conn.finish(at(1), &"a".into(), Ok(object(&json!({}))));
    assert_eq!(ended, Err(CommandError::NoSuchCall));
    assert_eq!(tell_agent(&mut conn, 1, &long("f")).calls.len(), 1);
}

// spec: OSW-2-6
#[test]
fn calls_may_hold_all_that_they_may() {
    let takes = |bound| {
        let mut conn = open_agent(Limits::default().with_max_inflight_bytes(bound));
        tell_agent(&mut conn, 0, &call("a")).calls.len() == 1
    };
    let least = (1..10_000).find(|bound| takes(*bound)).unwrap();
    let twice = |bound| {
        let mut conn = open_agent(Limits::default().with_max_inflight_bytes(bound));
        let calls = ["a", "b"].map(|id| tell_agent(&mut conn, 0, &call(id)).calls.len());
        calls == [1, 1]
    };
    assert!(twice(2 * least));
    assert!(!twice(2 * least - 1));
}

// spec: OSW-2-6
#[test]
fn long_ids_and_keys_of_calls_count_as_often_as_they_are_kept() {
    let long = |name: &str| format!("{name}{}", "x".repeat(1_000));
    // The message's own id is kept for the answer.
    let of_message = |name: &str| {
        let mut message = call(name);
        message["id"] = json!(long(name));
        message
    };
    let of_call = |name: &str| call(&long(name));
    let of_key = |name: &str| {
        let mut message = call(name);
        message["payload"]["idempotency_key"] = json!(long(name));
        message
    };
    let of_actor = |name: &str| {
        let mut message = call(name);
        message["actor"] = json!({"type": "human", "id": "ada", "later": long(name)});
        message
    };
    let of_input = |name: &str| {
        let mut message = of_key(name);
        message["payload"]["input"] = json!({"q": long(name)});
        message
    };
    let check = |message: &dyn Fn(&str) -> serde_json::Value, times: usize| {
        let least = 1_000 * times;
        for (bound, taken) in [(least, 0), (least + 999, 1)] {
            let mut conn = open_agent(Limits::default().with_max_inflight_bytes(bound));
            let calls = ["a", "b"].map(|name| tell_agent(&mut conn, 0, &message(name)).calls);
            assert_eq!(calls.concat().len(), taken, "{times}");
        }
    };
    check(&of_message, 1);
    check(&of_call, 7);
    check(&of_key, 3);
    check(&of_input, 5);
    check(&of_actor, 1);
}

// As cores write it, so that it is read in one pass where one is open.
// spec: OSW-4.1-2
#[test]
fn a_call_before_the_welcome_is_none() {
    let body = format!(
        r#"{{"v":1,"type":"core.tool.call","id":"m","ts":"2026-01-16T12:00:00Z","payload":{{"call_id":"c","tool_id":"{AGENT}/echo","input":{{}}}}}}"#
    );
    let mut early = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    early.extend(body.bytes());
    let mut conn = new_agent(Limits::default());
    drain_agent(&mut conn);
    conn.handle_input(at(0), Input::Bytes(&early)).unwrap_err();
    let said = drain_agent(&mut conn);
    assert!(
        said.calls.is_empty() && said.closed.is_some(),
        "{:?}",
        said.sent
    );
    let mut conn = open_agent(Limits::default());
    conn.handle_input(at(0), Input::Bytes(&early)).unwrap();
    assert_eq!(drain_agent(&mut conn).calls.len(), 1);
}
