//! The programs `core` and `agent`, run as their users run them.

use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bounded::{self, Bounded, bounded};
use crate::pipe;

/// Runs `core` with options and a script over a command; gives its exit code, its lines and what it said.
pub(crate) fn core(
    options: &[&str],
    script: Option<&str>,
    command: &[&str],
) -> (i32, Vec<Value>, String) {
    let mut core = Command::new(env!("CARGO_BIN_EXE_core"));
    core.args(options);
    if script.is_some() {
        core.args(["--script", "-"]);
    }
    let mut child = core
        .arg("--")
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(script.unwrap_or_default().as_bytes())
        .unwrap();
    drop(stdin);
    let output = bounded::rest(child);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (
        output.status.code().unwrap(),
        lines,
        String::from_utf8(output.stderr).unwrap(),
    )
}

pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_agent");

/// Options for agents that start an MCP server first, which takes a busy machine long.
#[cfg(feature = "external-tests")]
pub(crate) const PATIENT: [&str; 2] = ["--handshake-ms", "120000"];

/// A core that has sent a call, its open input, and the lines that follow.
fn in_a_call(command: &[&str]) -> (Child, ChildStdin, impl Iterator<Item = Value>, Bounded) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_core"))
        .args(["--script", "-", "--"])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bounded = bounded(&child);
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, r#"{{"call":"sleep","input":{{"ms":3600000}}}}"#).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert!(lines.any(|line| line["event"] == "call"));
    (child, stdin, lines, bounded)
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect()
}

pub(crate) fn results(lines: &[Value]) -> Vec<(String, Option<String>, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let results = lines.iter().filter(|line| line["event"] == "result");
    let result = |line: &Value| {
        (
            text(&line["status"]).unwrap(),
            text(&line["code"]),
            text(&line["by"]).unwrap(),
        )
    };
    results.map(result).collect()
}

#[test]
fn the_reference_agent_serves_its_five_tools() {
    let script = r#"
        {"call":"hello_world","input":{"name":"Ada"}}
        {"call":"com.example.agent/stream_counter","input":{"count":3}}
        {"call":"sleep","input":{"ms":60000},"cancel_after_ms":50}
        {"call":"sleep","input":{"ms":60000},"timeout_ms":50}
        {"call":"invalid_input","input":{"value":"seven"}}
        {"call":"invalid_input","input":{"value":7}}
        {"call":"large_output","input":{"bytes":1000}}
        {"call":"large_output","input":{"bytes":1000000000000}}"#;
    let (code, lines, said) = core(&[], Some(script), &[AGENT]);
    let mut ends = results(&lines);
    // What a busy agent ends too late, its core has ended.
    let is_late = std::mem::replace(&mut ends[3].2, "agent".to_owned()) == "core";
    assert_eq!((code, said.as_str()), (i32::from(is_late), ""));
    let names = events(&lines);
    assert_eq!(names[..3], ["connected", "authenticated", "registered"]);
    assert_eq!(names[names.len() - 2..], ["disconnected", "exited"]);
    let outputs: Vec<&Value> = lines.iter().filter_map(|line| line.get("output")).collect();
    assert_eq!(outputs.len(), 4, "as many as succeeded");
    assert_eq!(outputs[0], &json!({"message": "Hello, Ada!"}));
    assert_eq!(lines[2]["tools"].as_array().unwrap().len(), 5);
    let good = || ("succeeded".to_owned(), None, "agent".to_owned());
    let bad =
        |status: &str, code: &str| (status.to_owned(), Some(code.to_owned()), "agent".to_owned());
    let wanted = [
        good(),
        good(),
        bad("canceled", "tool.canceled"),
        bad("failed", "tool.timeout"),
        bad("failed", "tool.invalid_input"),
        good(),
        good(),
        bad("failed", "tool.output_too_large"),
    ];
    assert_eq!(ends, wanted);
    let seqs: Vec<_> = lines
        .iter()
        .filter(|line| line["event"] == "stream")
        .map(|line| line["seq"].clone())
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
    assert!(
        lines
            .iter()
            .any(|line| line["event"] == "cancel-ack" && line["accepted"] == true)
    );
    let last = lines.last().unwrap();
    // A busy agent may not have ended when the core's SIGTERM comes.
    assert!(last["code"] == 0 || last["signal"] == 15, "{last}");
    assert!(
        !lines
            .iter()
            .any(|line| line.get("output").is_none() && line.to_string().contains("Ada")),
        "of payloads the outputs alone are printed"
    );
}

#[test]
fn a_frame_limit_holds_for_both_sides() {
    let script = r#"{"call":"large_output","input":{"bytes":5000}}"#;
    let (code, lines, _) = core(&["--max-frame-bytes", "4096"], Some(script), &[AGENT]);
    assert_eq!(code, 0);
    let too_large = (
        "failed".to_owned(),
        Some("tool.output_too_large".to_owned()),
        "agent".to_owned(),
    );
    assert_eq!(results(&lines), [too_large]);
}

#[test]
fn a_call_that_is_refused_or_lost_ends_with_1() {
    let (code, lines, _) = core(&[], Some(r#"{"call":"none"}"#), &[AGENT]);
    let refused = json!({"event": "refused", "what": "call", "tool_id": "com.example.agent/none", "code": "tool.not_found"});
    assert_eq!((code, lines.contains(&refused)), (1, true));
    // An agent that dies in the middle of a call.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let says_who = r#"echo $$ > "$0"; exec "$1""#;
    let command = ["sh", "-c", says_who, file.to_str().unwrap(), AGENT];
    let (mut child, stdin, lines, _bounded) = in_a_call(&command);
    drop(stdin);
    let agent = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(agent).unwrap(), Signal::KILL).unwrap();
    let lines: Vec<_> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let lost = (
        "failed".to_owned(),
        Some("agent.disconnected".to_owned()),
        "core".to_owned(),
    );
    assert_eq!(results(&lines), [lost]);
}

#[test]
fn a_command_that_is_no_agent_ends_with_3_and_one_that_is_not_there_with_2() {
    let (code, lines, said) = core(&[], None, &["sh", "-c", "echo oops >&2; exit 7"]);
    assert_eq!((code, events(&lines)), (3, vec!["exited"]));
    assert_eq!(lines[0]["code"], 7);
    assert!(
        said.contains("oops") && said.contains("ended before it was connected"),
        "{said}"
    );
    let (code, lines, said) = core(&[], None, &["/nowhere/at/all"]);
    assert_eq!((code, lines.len()), (2, 0));
    assert!(said.contains("cannot be started"), "{said}");
}

#[test]
fn a_script_that_cannot_be_read_and_a_wrong_option_end_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("calls");
    fs::write(&script, "{\"call\":\"hello_world\"}\n{\"cal\":1}\n").unwrap();
    let (code, lines, said) = core(&["--script", script.to_str().unwrap()], None, &[AGENT]);
    assert_eq!((code, lines.len()), (2, 0), "nothing is launched");
    assert!(said.contains("line 2"), "{said}");
    for options in [
        &["--heartbeat-ms", "0"][..],
        &["--agent-id", "a/b"],
        &["--what"],
        &["--script"],
    ] {
        let (code, _, said) = core(options, None, &[AGENT]);
        assert_eq!(code, 2, "{options:?}");
        assert!(said.contains("--help tells more"), "{said}");
    }
    let (code, lines, said) = core(
        &[],
        Some("{\"call\":\"hello_world\"}\nnonsense\n"),
        &[AGENT],
    );
    assert_eq!((code, results(&lines).len()), (2, 1));
    assert!(
        said.contains("standard input, line 2") && events(&lines).contains(&"exited"),
        "{said}"
    );
}

#[test]
fn ctrl_c_says_goodbye_and_ends_with_130() {
    let (mut child, stdin, lines, _bounded) = in_a_call(&[AGENT]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let lines: Vec<_> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(events(&lines).contains(&"exited"), "{lines:?}");
    drop(stdin);
}

/// A core whose third line finds no room. It has written the others.
fn unread_core() -> (Child, PipeReader, Bounded) {
    let (reader, writer) = pipe::nearly_full(160);
    let blanks = ioctl_fionread(&reader).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_core"))
        .args(["--script", "-", "--", AGENT])
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bounded = bounded(&child);
    while ioctl_fionread(&reader).unwrap() < blanks + 100 {
        assert!(child.try_wait().unwrap().is_none());
        sleep(Duration::from_millis(5));
    }
    // Until it has come to its third line, mostly; what is awaited holds before, too.
    sleep(Duration::from_millis(200));
    (child, reader, bounded)
}

#[test]
fn a_signal_between_two_waits_counts() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (mut child, mut reader, _bounded) = unread_core();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut lines = String::new();
        reader.read_to_string(&mut lines).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        // By then it had a connection, to which it said goodbye.
        assert!(
            !lines.contains("registered") || lines.contains("goodbye"),
            "{lines}"
        );
    }
}

#[test]
fn who_does_not_read_keeps_nobody_from_ending_it() {
    let (mut child, _unread, _bounded) = unread_core();
    while child.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_agent_without_tools_ends_with_3() {
    let server = r#"while read -r line; do
        id=${line##*'"id":'}; id=${id%%[,\}]*}
        case $line in
        *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"none","version":"1"}}}\n' "$id";;
        *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}\n' "$id";;
        esac
    done"#;
    let agent = [AGENT, "--mcp", "sh", "-c", server];
    let (code, lines, _) = core(&["--handshake-ms", "120000"], None, &agent);
    assert_eq!((code, &lines[2]["tools"]), (3, &json!([])));
}

#[test]
fn an_agent_without_a_core_says_so() {
    let output = Command::new(AGENT).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("OPENSENTIENCE_SOCKET_PATH is not set"),
        "{said}"
    );
}

/// Needs `python3`.
#[cfg(feature = "external-tests")]
#[test]
fn the_tools_of_an_mcp_server_in_python_work_under_a_core() {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/python/mcp_server.py");
    let script = r#"{"call":"shout","input":{"text":"hi"}}
        {"call":"shout","input":{}}
        {"call":"count","input":{"n":3}}
        {"call":"wait","input":{},"cancel_after_ms":50}
        {"call":"shout","input":{"text":7}}"#;
    let agent = [AGENT, "--mcp", "python3", server];
    let (code, lines, said) = core(&PATIENT, Some(script), &agent);
    assert_eq!(code, 0, "{said}");
    let codes: Vec<_> = results(&lines)
        .into_iter()
        .map(|(_, code, _)| code)
        .collect();
    let code = |code: &str| Some(code.to_owned());
    let failed = [
        code("tool.failed"),
        None,
        code("tool.canceled"),
        code("tool.invalid_input"),
    ];
    assert_eq!(codes, [&[None], &failed[..]].concat());
    assert_eq!(
        events(&lines)
            .iter()
            .filter(|event| **event == "stream")
            .count(),
        3
    );
    assert!(
        said.contains("prompts of the MCP server are not carried"),
        "{said}"
    );
}

#[test]
fn a_command_that_is_no_mcp_server_is_told() {
    let (code, lines, said) = core(&[], None, &[AGENT, "--mcp", "/nowhere/server"]);
    assert_eq!((code, events(&lines)), (3, vec!["exited"]));
    assert!(said.contains("the MCP server cannot be started"), "{said}");
}
