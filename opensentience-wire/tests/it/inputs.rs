//! Inputs and schemas.

use opensentience_wire::Limits;
use opensentience_wire::role::core;
use serde_json::{Value, json};

use crate::kit::*;

fn agent_with(schema: &Value) -> opensentience_wire::role::agent::AgentConnection {
    let mut conn = new_agent(Limits::default());
    drain_agent(&mut conn);
    tell_agent(&mut conn, 0, &welcome());
    let mut tool = spec("echo");
    tool.input_schema = object(schema);
    conn.register(at(0), vec![tool], false).unwrap();
    drain_agent(&mut conn);
    conn
}

fn call_with(id: &str, input: Value) -> Value {
    let mut call = call(id);
    call["payload"]["input"] = input;
    call
}

// spec: OSW-4.3-3
#[test]
fn an_input_that_does_not_fit_its_schema_never_reaches_the_tool() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "at": {"format": "date-time"}}, "required": ["n"]});
    let mut conn = agent_with(&schema);
    for (input, pointers) in [
        (json!({"n": "SECRET"}), json!(["/n"])),
        (json!({}), json!([""])),
        (json!({"n": 1, "at": "noon"}), json!(["/at"])),
        (json!({"n": 1.5, "at": "noon"}), json!(["/at", "/n"])),
    ] {
        let said = tell_agent(&mut conn, 0, &call_with("c", input.clone()));
        assert!(said.calls.is_empty(), "{input}");
        let payload = &said.sent[0]["payload"];
        assert_eq!(
            (&payload["status"], &payload["error"]["code"]),
            (&json!("failed"), &json!("tool.invalid_input"))
        );
        assert_eq!(payload["error"]["details"]["pointers"], pointers);
        assert!(!said.sent[0].to_string().contains("SECRET"));
    }
    assert_eq!(
        tell_agent(&mut conn, 0, &call_with("c", json!({"n": 1})))
            .calls
            .len(),
        1
    );
}

// spec: OSW-4.2-3
#[test]
fn a_schema_that_cannot_be_used_rejects_its_tool_alone() {
    let mut conn = new_core(core::Config::default());
    tell_core(&mut conn, 0, &hello());
    let with = |name: &str, schema: Value| {
        let mut tool = tool(name);
        tool["input_schema"] = schema;
        tool
    };
    let mut odd_output = tool("odd_output");
    odd_output["output_schema"] = json!({"type": "jsonish"});
    let tools = json!([
        tool("good"),
        with("no_schema", json!({"type": "jsonish"})),
        with("remote", json!({"$ref": "https://example.com/s.json"})),
        with(
            "bomb",
            json!({"allOf": [{"properties": {"a": {}}}, {"$ref": "#"}]})
        ),
        with("large", json!({"title": "x".repeat(70_000)})),
        odd_output,
        tool("good"),
    ]);
    let said = tell_core(
        &mut conn,
        0,
        &message("agent.tools.register", json!({"tools": tools})),
    );
    let payload = &said.sent[0]["payload"];
    assert_eq!(payload["registered"], json!([format!("{AGENT}/good")]));
    let rejected = payload["rejected"].as_array().unwrap();
    let codes: Vec<_> = rejected
        .iter()
        .map(|tool| tool["error"]["code"].as_str().unwrap())
        .collect();
    let wanted = ["tool.invalid_schema"; 5]
        .into_iter()
        .chain(["tool.conflict"])
        .collect::<Vec<_>>();
    assert_eq!(codes, wanted);
}
