//! The core's machine: the handshake.

use opensentience_wire::role::core::{Config, CoreConnection, Event};
use opensentience_wire::role::{CloseReason, Input};
use opensentience_wire::{Grant, SessionToken};
use serde_json::{Value, json};
use ubos_common::id::IdSource;

use crate::kit::*;

fn refusal(conn: &mut CoreConnection, millis: u64, value: &Value) -> (String, Vec<String>) {
    let said = tell_core(conn, millis, value);
    assert_eq!(said.types(), ["core.welcome"]);
    assert_eq!(said.sent[0]["payload"], json!({}));
    let code = said.sent[0]["error"]["code"].as_str().unwrap().to_owned();
    assert!(matches!(said.closed, Some(CloseReason::Protocol(_))) && conn.is_closed());
    (code, said.audits())
}

// spec: OSW-4.1-5
#[test]
fn a_hello_is_welcomed_with_the_terms() {
    let mut conn = new_core(Config::default().with_server("2.0", "core-7"));
    let said = tell_core(&mut conn, 0, &hello());
    let is_connected = |event: &Event| matches!(event, Event::Connected { agent_version, .. } if &**agent_version == "1.0.0");
    assert!(said.events.iter().any(is_connected));
    let welcome = &said.sent[0];
    assert_eq!(
        (&welcome["type"], &welcome["in_reply_to"]),
        (&json!("core.welcome"), &json!("m-1"))
    );
    let payload = &welcome["payload"];
    assert_eq!(payload["accepted_version"], 1);
    assert_eq!(payload["heartbeat_interval_ms"], 5000);
    assert_eq!(payload["max_frame_bytes"], 4_194_304);
    assert_eq!(
        payload["server"],
        json!({"core_version": "2.0", "instance_id": "core-7"})
    );
    assert!(conn.is_open() && conn.into_grant().is_none());
}

// spec: OSW-4.1-1
#[test]
fn a_result_is_no_hello() {
    let body = br#"{"v":1,"type":"agent.tool.result","id":"m-1","ts":"2026-01-16T12:00:00Z","payload":{"call_id":"c","status":"succeeded"}}"#;
    let mut conn = new_core(Config::default());
    let taken = conn.handle_input(at(0), Input::Bytes(&raw_frame(body)));
    assert!(taken.is_err() && conn.is_closed());
    assert_eq!(
        drain_core(&mut conn).sent[0]["error"]["code"],
        "protocol.handshake_required"
    );
}

// spec: OSW-4.1-3
#[test]
fn refused_tokens_look_the_same_outside() {
    let with = |pointer: &str, value: Value| {
        let mut hello = hello();
        *hello.pointer_mut(pointer).unwrap() = value;
        hello
    };
    let mut missing = hello();
    missing["payload"]
        .as_object_mut()
        .unwrap()
        .remove("session_token");
    let used = CoreConnection::new(at(0), Config::default(), IdSource::seeded(1), None).unwrap();
    let other = SessionToken::from_random([8; 32]);
    let cases = [
        (
            new_core(Config::default()),
            with("/payload/session_token", json!(other.expose())),
            0,
        ),
        (
            new_core(Config::default()),
            with("/payload/agent_id", json!("com.example.b")),
            0,
        ),
        (new_core(Config::default()), missing, 0),
        (new_core(Config::default()), hello(), 300_000),
        (used, hello(), 0),
    ];
    for (mut conn, hello, millis) in cases {
        let (code, audits) = refusal(&mut conn, millis, &hello);
        assert_eq!(code, "protocol.unauthorized");
        assert_eq!(audits, ["agent.handshake_failed protocol.unauthorized"]);
    }
    let mut conn = new_core(Config::default());
    assert_eq!(
        tell_core(&mut conn, 9_999, &hello()).types(),
        ["core.welcome"]
    );
    tell_core(&mut conn, 400_000, &message("agent.pong", json!({})));
    assert!(conn.is_open(), "an open session outlives its token");
}

// spec: OSW-4.1-3
#[test]
fn a_stranger_does_not_use_the_grant_up() {
    let mut conn = new_core(Config::default());
    refusal(&mut conn, 0, &message("agent.heartbeat", json!({})));
    let grant = conn.into_grant();
    assert!(grant.is_some());
    let mut conn =
        CoreConnection::new(at(0), Config::default(), IdSource::seeded(3), grant).unwrap();
    tell_core(&mut conn, 0, &hello());
    assert!(conn.is_open());
}

// spec: OSW-4.1-1
// spec: OSW-4.1-4
#[test]
fn nothing_but_a_hello_is_taken_first() {
    for kind in [
        "agent.tools.register",
        "agent.tool.result",
        "agent.heartbeat",
        "x.y",
        "core.tool.call",
    ] {
        let mut conn = new_core(Config::default());
        let (code, _) = refusal(
            &mut conn,
            0,
            &message(kind, json!({"tools": [tool("echo")]})),
        );
        assert_eq!(
            (code.as_str(), conn.tools().count()),
            ("protocol.handshake_required", 0)
        );
    }
}

// spec: OSW-4.1-6
#[test]
fn no_version_in_common_is_refused() {
    for versions in [json!([]), json!([2, 3])] {
        let mut hello = hello();
        hello["payload"]["protocol"]["supported_versions"] = versions;
        assert_eq!(
            refusal(&mut new_core(Config::default()), 0, &hello).0,
            "protocol.unsupported_version"
        );
    }
    let mut hello = hello();
    hello["payload"]["protocol"]["supported_versions"] = json!([3, 1, 2]);
    assert_eq!(
        tell_core(&mut new_core(Config::default()), 0, &hello).sent[0]["payload"]["accepted_version"],
        1
    );
}

// spec: OSW-4.1-8
#[test]
fn no_hello_in_time_closes() {
    let mut conn = new_core(Config::default());
    conn.handle_timeout(at(9_999));
    assert!(!conn.is_closed());
    conn.handle_timeout(at(10_000));
    let said = drain_core(&mut conn);
    assert_eq!(said.sent[0]["error"]["code"], "protocol.handshake_timeout");
    assert!(conn.is_closed());
}

// spec: OSW-4.1-9
#[test]
fn another_manifest_is_refused() {
    for (hash, taken) in [
        (json!(null), true),
        (json!("sha256:AB12"), true),
        (json!("ab12"), true),
        (json!("ab13"), false),
    ] {
        let grant = Grant::new(at(0).mono, token(), AGENT).with_manifest_hash("sha256:ab12");
        let mut conn =
            CoreConnection::new(at(0), Config::default(), IdSource::seeded(1), Some(grant))
                .unwrap();
        let mut hello = hello();
        hello["payload"]["manifest_hash"] = hash;
        let said = tell_core(&mut conn, 0, &hello);
        assert_eq!(conn.is_open(), taken);
        assert_eq!(
            said.audits()
                .iter()
                .any(|a| a.starts_with("agent.manifest_drift_detected")),
            !taken
        );
    }
}
