//! The MCP tools of `sap-agent` with the official Python SDK as their client.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::sap_programs::Agent;

/// What the client saw.
fn client(arguments: &[&str]) -> Vec<Value> {
    let python = std::env::var("UBOS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/mcp_client.py");
    let output = Command::new(&python).arg(script).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("UBOS_PYTHON={python}: {error}"));
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "is the package mcp there? {talk}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn check(seen: &[Value]) {
    let (tools, said) = seen.split_at(6);
    let named = |name: &str| tools.iter().find(|tool| tool["tool"] == name).unwrap();
    let upper = named("text.upper");
    assert_eq!(upper["payload"]["required"], json!(["text"]));
    assert!(
        upper["about"]
            .as_str()
            .unwrap()
            .starts_with("A text in upper case.")
    );
    assert_eq!(named("text.count")["payload"]["required"], json!(["to"]));
    assert_eq!(named("sap_cancel")["payload"], Value::Null);
    let wanted = [
        json!({"upper": {"text": "AB"}, "error": false}),
        json!({"again": {"text": "AB"}, "error": false}),
        json!({"status": "FAILED", "code": "UNPROCESSABLE", "error": true}),
        json!({"counted": 3, "progress": [1, 2]}),
        json!({"cancelled": "CANCELLED", "followed": "CANCELLED"}),
        json!({"unknown": "NOT_FOUND", "error": true}),
    ];
    assert_eq!(said, wanted);
}

// spec: SAP-10-3
#[test]
fn the_python_sdk_calls_the_tools_on_standard_streams() {
    check(&client(&[
        "stdio",
        env!("CARGO_BIN_EXE_sap-agent"),
        "--mcp",
    ]));
}

// spec: SAP-10-3
#[test]
fn the_python_sdk_calls_the_tools_over_streamable_http() {
    let agent = Agent::start(&[]);
    let url = agent.url.replace("/sap/tasks", "/mcp");
    check(&client(&["http", &url]));
    let code = agent.end(rustix::process::Signal::TERM).0;
    assert_eq!(code, 143);
}
