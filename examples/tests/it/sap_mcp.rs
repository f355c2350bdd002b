//! The MCP tools of `sap-agent` with the official Python SDK as their client.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
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
    let code = agent.end(Signal::TERM).0;
    assert_eq!(code, 143);
}

/// Whether a request for this host, from a page of this origin, is refused.
#[expect(clippy::disallowed_types, reason = "no client says such things")]
fn is_refused(url: &str, host: &str, origin: &str) -> bool {
    let (address, path) = url
        .strip_prefix("http://")
        .and_then(|url| url.split_once('/'))
        .unwrap();
    let (_, port) = address.rsplit_once(':').unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let media = "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n{media}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    let status = std::str::from_utf8(&status).unwrap();
    // To one path it is a call, to the other no task.
    let served = ["HTTP/1.1 200", "HTTP/1.1 400"].contains(&status);
    assert!(served || status == "HTTP/1.1 403", "{status}");
    !served
}

// spec: SAP-10-2, SAP-10-3
#[test]
fn the_tools_are_for_those_who_may_send_tasks() {
    for (listen, is_every) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let agent = Agent::start(&["--listen", listen]);
        let (_, port) = agent.url.rsplit_once(':').unwrap();
        let (port, _) = port.split_once('/').unwrap();
        let host = |name: &str| format!("{name}:{port}");
        for (name, page, refused) in [
            ("127.0.0.1", "127.0.0.1", false),
            ("localhost", "localhost", false),
            ("192.0.2.7", "192.0.2.7", !is_every),
            ("127.0.0.1", "evil.example", true),
            ("evil.example", "evil.example", true),
        ] {
            let origin = format!("http://{}", host(page));
            for url in [&agent.url, &agent.url.replace("/sap/tasks", "/mcp")] {
                let seen = is_refused(url, &host(name), &origin);
                assert_eq!(seen, refused, "{listen}: {url} for {name} from {page}");
            }
        }
        agent.end(Signal::TERM);
    }
}
