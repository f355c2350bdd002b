//! What is shown of an agent's texts.

use opensentience_wire::Redact as _;
use opensentience_wire::message::{Channel, ChunkData, ToolStream};
use opensentience_wire::role::core::{CallRequest, Config, Event};
use opensentience_wire::{ErrorCode, ErrorObject};
use serde_json::{Value, json};
use ubos_common::secret::Bounds;

use crate::kit::*;

/// Texts that look like secrets, each in a sentence.
const CANARIES: [&str; 5] = [
    "Authorization: Bearer abcdefghijklmnop0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "api_key=sk_live_0123456789abcdef",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----",
    "AKIAIOSFODNN7EXAMPLE",
];

fn secret_part(canary: &str) -> &str {
    canary
        .rsplit([' ', '='])
        .next()
        .unwrap()
        .lines()
        .nth(usize::from(canary.contains("BEGIN")))
        .unwrap_or(canary)
}

// spec: OSW-7-2
#[test]
fn streams_outputs_and_errors_are_redacted() {
    let bounds = Bounds::default();
    for canary in CANARIES {
        let hidden = secret_part(canary);
        let mut error = ErrorObject::of(ErrorCode::ToolFailed, format!("it said {canary} twice"));
        error.details = Some(object(&json!({"seen": canary, "password": "plain"})));
        error.debug = Some(object(&json!({"all": canary})));
        let shown = ubos_common::json::to_string(&error.redacted(&bounds));
        assert!(
            !shown.contains(hidden) && !shown.contains("plain"),
            "{shown}"
        );
        assert!(
            shown.contains("it said") && shown.contains("twice"),
            "the rest stays: {shown}"
        );
        let mut data = ChunkData::new();
        data.text = Some(format!("out: {canary}"));
        let chunk = ToolStream::new("c".into(), 1, Channel::Stdout, data);
        assert!(!ubos_common::json::to_string(&chunk.redacted(&bounds)).contains(hidden));
        let mut data = ChunkData::new();
        data.json = Some(object(&json!({"part": [canary]})));
        let chunk = ToolStream::new("c".into(), 2, Channel::PartialResult, data);
        assert!(!ubos_common::json::to_string(&chunk.redacted(&bounds)).contains(hidden));
    }
}

// spec: OSW-7-2
#[test]
fn an_outcome_is_shown_without_secrets_and_without_end() {
    let mut conn = open_core(Config::default());
    let call = conn
        .call_tool(
            at(0),
            CallRequest::new(format!("{AGENT}/echo"), object(&json!({}))),
        )
        .unwrap();
    drain_core(&mut conn);
    let output: Value =
        json!({"token": "abc", "note": CANARIES[0], "long": "x".repeat(5_000), "fine": 7});
    let payload = json!({"call_id": call.to_string(), "status": "succeeded", "output": output});
    let said = tell_core(&mut conn, 1, &message("agent.tool.result", payload));
    let outcome = said.events.into_iter().find_map(|event| match event {
        Event::Ended(_, outcome) => Some(outcome),
        _ => None,
    });
    let outcome = outcome.unwrap();
    assert!(
        outcome
            .output
            .as_ref()
            .unwrap()
            .as_str()
            .contains("abcdefghijklmnop"),
        "on the wire nothing is changed"
    );
    let shown = outcome.redacted(&Bounds::default());
    let shown: Value = serde_json::from_str(shown.output.unwrap().as_str()).unwrap();
    assert_eq!(
        (&shown["token"], &shown["fine"]),
        (&json!("[REDACTED]"), &json!(7))
    );
    assert!(!shown["note"].as_str().unwrap().contains("abcdefghijklmnop"));
    assert!(shown["long"].as_str().unwrap().chars().count() < 2_100);
    assert!(conn.poll_output().is_none());
}
