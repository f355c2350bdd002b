//! The programs `sap-agent` and `sap-send`, run as their users run them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sap::store::FileTranscript;
use sap::transcript::{Entry, EntryKind, Transcript as _};
use serde_json::{Value, json};
use ubos_common::json::RawObject;
use ubos_common::log;
use ubos_common::time::Timestamp;

use crate::bounded::{self, Bounded, bounded};

pub(crate) struct Agent {
    child: Child,
    pub(crate) url: String,
    _bounded: Bounded,
}

impl Agent {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sap-agent"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let bounded = bounded(&child);
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let url = said["listening"].as_str().unwrap().to_owned();
        Self {
            child,
            url,
            _bounded: bounded,
        }
    }

    fn send(&self, arguments: &[&str]) -> (i32, Vec<Value>) {
        let (code, lines, _) = send(&[&[self.url.as_str()], arguments].concat(), "");
        (code, lines)
    }

    pub(crate) fn end(mut self, signal: Signal) -> (i32, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        let mut talk = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut talk)
            .unwrap();
        (code, talk)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(arguments: &[&str], input: &str) -> (i32, Vec<Value>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sap-send"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = bounded::rest(child);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let talk = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), lines.collect(), talk)
}

fn statuses(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["status"].as_str().unwrap())
        .collect()
}

#[test]
fn a_task_is_sent_and_its_progress_is_told() {
    let agent = Agent::start(&[]);
    let (code, lines) = agent.send(&[
        "--capability",
        "text.upper",
        "--payload",
        r#"{"text":"ab"}"#,
    ]);
    assert_eq!(
        (code, statuses(&lines)),
        (0, vec!["ACK", "RUNNING", "SUCCEEDED"])
    );
    assert_eq!(lines[2]["output"], json!({"text": "AB"}));
    let (code, lines) = agent.send(&["--capability=text.count", "--payload={\"to\":3}"]);
    let wanted = vec!["ACK", "RUNNING", "PARTIAL", "PARTIAL", "SUCCEEDED"];
    assert_eq!((code, statuses(&lines)), (0, wanted));
    let (code, lines) = agent.send(&["--capability", "text.upper"]);
    assert_eq!(
        (code, lines.last().unwrap()["error"]["code"].as_str()),
        (1, Some("UNPROCESSABLE"))
    );
    let (code, lines) = agent.send(&["--capability", "text.none"]);
    assert_eq!((code, statuses(&lines)), (1, vec!["NACK"]));
    // A path where nobody takes tasks.
    let wrong = format!("{}/none", agent.url);
    let (code, lines, talk) = send(&[&wrong, "--capability", "text.upper"], "");
    assert_eq!((code, lines.len(), talk.lines().count()), (3, 0, 1));
    assert_eq!(agent.end(Signal::INT), (130, String::new()));
}

#[test]
fn an_issuer_with_a_token_is_known_by_it_and_by_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, token: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, token).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (desk, other) = (file("desk", "tok-1\n"), file("other", "tok-2"));
    let agent = Agent::start(&["--token", &format!("A-desk={desk}")]);
    let asked = |issuer: &str, token: Option<&str>| {
        let task = ["--capability", "text.echo", "--issuer", issuer];
        let token = token.map(|token| ["--token", token]);
        let (_, lines) =
            agent.send(&[&task[..], token.as_ref().map_or(&[], |it| &it[..])].concat());
        let last = lines.last().unwrap();
        let word = last["code"].as_str().or_else(|| last["status"].as_str());
        word.unwrap().to_owned()
    };
    assert_eq!(asked("A-desk", Some(&desk)), "SUCCEEDED");
    assert_eq!(asked("A-other", Some(&desk)), "FORBIDDEN");
    assert_eq!(asked("A-desk", Some(&other)), "UNAUTHORIZED");
    assert_eq!(asked("A-desk", None), "UNAUTHORIZED");
    assert_eq!(agent.end(Signal::INT).0, 130);
}

// spec: SAP-10-3
#[test]
fn a_signal_ends_the_tools_although_their_input_stays_open() {
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello});
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sap-agent"))
            .arg("--mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let _bounded = bounded(&child);
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{hello}").unwrap();
        // It answers, so it listens for signals and reads on.
        let mut answer = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut answer).unwrap();
        assert!(answer.contains("serverInfo"), "{answer}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        drop(input);
    }
}

#[test]
fn a_file_is_sent_with_its_cache_and_stores_survive() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let task = json!({
        "protocolVersion": "2.0",
        "taskId": "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
        "correlationId": "a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11",
        "issuedAt": "2025-09-28T10:15:23Z",
        "issuer": { "agentId": "A-prime", "agentKind": "agent" },
        "target": { "capability": "text.echo" },
        "constitutionalContext": { "pressureLevel": "instant", "cachePolicy": { "mode": "prefer" } },
        "payload": { "n": 1 },
    });
    let options = ["--store", store.to_str().unwrap(), "--allow", "A-prime"];
    let mut equal = task.clone();
    equal["taskId"] = json!("7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0b");
    let mut first = None;
    for tasks in [&[(&task, false)][..], &[(&task, false), (&equal, true)]] {
        let agent = Agent::start(&options);
        for (task, hit) in tasks {
            let (code, lines, _) = send(&[&agent.url, "-"], &task.to_string());
            let last = lines.last().unwrap();
            assert_eq!((code, &last["output"]), (0, &json!({"n": 1})));
            assert_eq!(last["constitutionalEvidence"]["cache"]["hit"], json!(hit));
            // The same task has its stored result.
            let stored = first.get_or_insert_with(|| last.clone());
            assert_eq!(*stored == *last, !hit);
        }
        let (code, lines) = agent.send(&["--capability", "text.echo"]);
        assert_eq!((code, lines[0]["code"].as_str()), (1, Some("UNAUTHORIZED")));
        assert_eq!(agent.end(Signal::TERM).0, 143);
    }
}

#[test]
fn what_cannot_be_told_or_opened_is_said_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    // What a killed agent may have left.
    std::fs::create_dir_all(store.join("transcript")).unwrap();
    let options = ["--store", store.to_str().unwrap()];
    let agent = Agent::start(&options);
    // Nobody reads what is told.
    let full = Command::new("sh")
        .args(["-c", "exec \"$0\" \"$@\" > /dev/full"])
        .args([env!("CARGO_BIN_EXE_sap-send"), &agent.url])
        .args(["--capability", "text.echo"])
        .output()
        .unwrap();
    assert_eq!(
        (full.status.code(), full.stderr.is_empty()),
        (Some(3), false)
    );
    let task = json!({
        "protocolVersion": "2.0",
        "taskId": "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
        "correlationId": "a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11",
        "issuedAt": "2025-09-28T10:15:23Z",
        "issuer": { "agentId": "A-prime", "agentKind": "agent" },
        "target": { "capability": "text.echo" },
        "constitutionalContext": { "pressureLevel": "instant" },
        "payload": {},
        "replyTo": { "endpoint": "bus:nobody" },
    });
    let (code, lines, _) = send(&[&agent.url, "-"], &task.to_string());
    assert_eq!((code, statuses(&lines)), (0, vec!["ACK"]));
    let (_, talk) = agent.end(Signal::TERM);
    assert!(talk.contains("no way to this endpoint"), "{talk}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sap-agent"))
        .args(["--store", file.to_str().unwrap()])
        .output()
        .unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert!(talk.contains("failed: "), "{talk}");
}

#[test]
fn more_interrupted_tasks_than_may_be_are_said_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    // Where the transcript is, and what it looks like, is the program's to say.
    assert_eq!(Agent::start(&["--store", store]).end(Signal::TERM).0, 143);
    let path = folder.path().join("transcript");
    let transcript = FileTranscript::open(&path, log::Config::default()).unwrap();
    for number in [1, 2] {
        let task = json!({
            "protocolVersion": "2.0",
            "taskId": format!("00000000-0000-0000-0000-{number:012}"),
            "correlationId": "a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11",
            "issuedAt": "2025-09-28T10:15:23Z",
            "issuer": { "agentId": "A-prime", "agentKind": "agent" },
            "target": { "capability": "text.echo" },
            "constitutionalContext": { "pressureLevel": "instant" },
            "payload": {},
        });
        let task = RawObject::parse(&task.to_string()).unwrap();
        let entry = Entry::new(EntryKind::Task, Timestamp::EPOCH.into(), task);
        futures::executor::block_on(transcript.record(&entry)).unwrap();
    }
    drop(transcript);
    sap::store::wait_for_dropped();
    let few = ["--store", store, "--max-interrupted", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_sap-agent"))
        .args(few)
        .output()
        .unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert!(
        talk.contains("max_interrupted") && talk.lines().count() == 1,
        "{talk}"
    );
    let agent = Agent::start(&["--store", store, "--max-interrupted=2"]);
    assert_eq!(agent.end(Signal::TERM).0, 143);
}

#[test]
fn mistakes_end_with_a_line_of_help() {
    let url = "http://127.0.0.1:9/sap/tasks";
    for (arguments, said) in [
        (&[][..], "no URL"),
        (&[url], "no file and no --capability"),
        (&[url, "--capability"], "--capability needs"),
        (&[url, "--what"], "unknown option --what"),
        (&[url, "a", "b"], "more than one file"),
        (&[url, "a", "--level=instant"], "a file and options"),
        (&[url, "/none/such"], "/none/such: "),
        (&[url, "--capability", "echo"], "--capability: "),
        (
            &[url, "--capability", "a.b", "--payload", "[]"],
            "--payload is no JSON object",
        ),
        (&["ftp://a/b", "--capability", "a.b"], "http"),
    ] {
        let (code, lines, talk) = send(arguments, "");
        assert_eq!((code, lines.len()), (2, 0), "{talk}");
        assert!(talk.contains(said) && talk.lines().count() == 1, "{talk}");
    }
    // Nobody is there.
    let (code, _, talk) = send(&[url, "--capability", "a.b"], "");
    assert_eq!((code, talk.lines().count()), (3, 1), "{talk}");
    // What is not valid, or holds a secret, is told and not sent.
    let (code, lines, _) = send(&[url, "-"], "{\"payload\":7}");
    assert_eq!((code, &lines[0]["sent"]), (1, &json!(false)));
    let secret = r#"{"k":"Bearer abcdefghijklmnop123456"}"#;
    let (code, lines, talk) = send(&[url, "--capability", "a.b", "--payload", secret], "");
    assert_eq!((code, lines.len()), (1, 1), "{talk}");
    assert!(!lines[0].to_string().contains("abcdefghijklmnop"));
    for (arguments, said) in [
        (&["--listen", "256.0.0.1:0"][..], "256.0.0.1:0"),
        (&["--listen"], "--listen needs"),
        (&["file"], "unknown argument file"),
        (&["--agent", " "], "blank"),
        (&["--max-interrupted", "0"], "needs a number above 0"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_sap-agent"))
            .args(arguments)
            .output()
            .unwrap();
        let talk = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{talk}"
        );
        assert!(talk.contains(said) && talk.lines().count() == 1, "{talk}");
    }
}
