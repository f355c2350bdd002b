//! The program `validate`, run as its users run it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bounded;

fn validate(dir: &TempDir, arguments: &[&str]) -> (i32, Vec<Value>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_validate"))
        .args(arguments)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    told(output)
}

fn told(output: Output) -> (i32, Vec<Value>, String) {
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (
        output.status.code().unwrap(),
        lines.collect(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn task() -> Value {
    json!({
        "protocolVersion": "2.0",
        "taskId": "7fbb32b6-0d2c-4c1a-9b75-2a4b3b0b6c0a",
        "correlationId": "a7f5d5b2-13a8-4a0d-9ba2-6b1e3c6f9d11",
        "issuedAt": "2025-09-28T10:15:23Z",
        "issuer": { "agentId": "A-prime", "agentKind": "agent" },
        "target": { "capability": "consult.align" },
        "constitutionalContext": { "territory": "EUFM" },
        "payload": {},
    })
}

fn place(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

#[test]
fn each_file_is_one_line_with_every_finding() {
    let dir = place(&[
        ("task.json", task().to_string().as_bytes()),
        ("broken.json", b"{\"a\":1,\"a\":2}"),
    ]);
    let (code, lines, talk) = validate(&dir, &["sap-task", "task.json", "broken.json"]);
    assert_eq!((code, talk.as_str()), (1, ""));
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["file"], "task.json");
    assert_eq!(lines[0]["kind"], "sap-task");
    assert_eq!(lines[0]["valid"], false);
    let must = |line: &Value| {
        let findings = line["findings"].as_array().unwrap().clone();
        let must = findings.into_iter().filter(|f| f["level"] == "MUST");
        must.collect::<Vec<_>>()
    };
    let found = must(&lines[0]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["pointer"], "/constitutionalContext/pressureLevel");
    assert_eq!(found[0]["clause"], "SAP-4.1-5");
    assert_eq!(found[0]["code"], "missing");
    assert!(found[0]["message"].is_string());
    assert_eq!(must(&lines[1])[0]["clause"], "SAP-2-5");
}

#[test]
fn the_profile_decides_and_advice_makes_no_file_invalid() {
    let dir = place(&[("task.json", task().to_string().as_bytes())]);
    for arguments in [
        ["sap-task", "--profile", "lenient", "task.json"],
        ["--profile=lenient", "sap-task", "--", "task.json"],
    ] {
        let (code, lines, _) = validate(&dir, &arguments);
        assert_eq!(code, 0);
        assert_eq!(lines[0]["valid"], true);
        assert!(!lines[0]["findings"].as_array().unwrap().is_empty());
    }
    // A task is no result.
    let (code, lines, _) = validate(&dir, &["sap-result", "task.json"]);
    assert_eq!((code, &lines[0]["kind"]), (1, &json!("sap-result")));
}

#[test]
fn usage_and_unreadable_files_end_with_two_and_say_why() {
    let mut good = task();
    good["constitutionalContext"]["pressureLevel"] = json!("instant");
    let dir = place(&[("task.json", good.to_string().as_bytes())]);
    for (arguments, why) in [
        (&[][..], "a kind is wanted"),
        (&["sap-task"], "files are wanted"),
        (
            &["sap-wish", "task.json"],
            "no kind sap-wish; there are sap-task",
        ),
        (
            &["sap-task", "--profile", "1.0", "task.json"],
            "no profile 1.0",
        ),
        (&["sap-task", "--profile"], "--profile needs"),
        (
            &["sap-task", "--loud", "task.json"],
            "unknown option --loud",
        ),
    ] {
        let (code, lines, talk) = validate(&dir, arguments);
        assert_eq!((code, lines.len()), (2, 0), "{arguments:?}");
        assert!(talk.contains(why), "{talk}");
    }
    // What can be read is judged all the same.
    let (code, lines, talk) = validate(&dir, &["sap-task", "nowhere.json", "task.json"]);
    assert_eq!((code, lines.len()), (2, 1));
    assert!(talk.contains("nowhere.json"), "{talk}");
    let mut help = Command::new(env!("CARGO_BIN_EXE_validate"));
    assert!(
        help.arg("--help")
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn standard_input_and_a_file_over_the_bound_are_judged() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_validate"))
        .args(["sap-task", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // It stops reading at its bound, so the rest may find nobody there.
    let _ = input.write_all(&vec![b' '; (4 << 20) + 100_000]);
    drop(input);
    let (code, lines, _) = told(bounded::rest(child));
    assert_eq!((code, &lines[0]["file"]), (1, &json!("-")));
    assert_eq!(lines[0]["findings"][0]["code"], "too_large");
}

#[test]
fn a_message_of_sacp_is_judged_by_its_own_edition_or_the_one_asked_for() {
    let new = json!({"proto_ver": "1.0.0", "msg_id": "m1", "ts": "2025-10-01T12:00:00Z", "sender": "p", "g": "G",
        "plan": [{"id": "a", "verb": "v", "tool": "T", "params": {}}], "state": "PENDING"});
    let dir = place(&[
        (
            "old.json",
            br#"{"g":"G","plan":[["find","T",{}],["sort","T"]],"x-new":1}"#,
        ),
        ("new.json", new.to_string().as_bytes()),
        ("prose.json", b"Dear agent,"),
    ]);
    let (code, lines, talk) = validate(&dir, &["sacp", "old.json", "new.json", "prose.json"]);
    assert_eq!((code, talk.as_str()), (1, ""));
    let valid: Vec<_> = lines
        .iter()
        .map(|line| line["valid"].as_bool().unwrap())
        .collect();
    assert_eq!(valid, [false, true, false]);
    let findings = lines[0]["findings"].as_array().unwrap();
    assert_eq!(findings[0]["code"], "MALFORMED_PLAN");
    assert_eq!(findings[0]["pointer"], "/plan/1");
    assert_eq!(
        (&findings[1]["pointer"], &findings[1]["level"]),
        (&json!("/x-new"), &json!("ADVICE"))
    );
    assert_eq!(lines[2]["findings"][0]["code"], "MALFORMED_MESSAGE");
    for (profile, valid) in [("0.1", false), ("1.0", true)] {
        let (code, lines, _) = validate(&dir, &["sacp", "--profile", profile, "new.json"]);
        assert_eq!(
            (code, lines[0]["valid"].as_bool()),
            (i32::from(!valid), Some(valid))
        );
        if !valid {
            assert_eq!(lines[0]["findings"][0]["code"], "UNSUPPORTED_VERSION");
        }
    }
    let (code, _, talk) = validate(&dir, &["sacp", "--profile", "2.0", "new.json"]);
    assert_eq!(code, 2);
    assert!(talk.contains("0.1"), "{talk}");
}

// spec: SAP-4.1-10
#[test]
fn a_contract_whose_schema_is_none_is_advice() {
    let mut descriptor = task();
    descriptor["constitutionalContext"]["pressureLevel"] = json!("instant");
    let advised = |schema: Value| {
        let mut task = descriptor.clone();
        task["outputContract"] = json!({ "schema": schema, "format": "json" });
        let dir = place(&[("task.json", task.to_string().as_bytes())]);
        let (code, lines, _) = validate(&dir, &["sap-task", "task.json"]);
        assert_eq!((code, &lines[0]["valid"]), (0, &json!(true)), "{lines:?}");
        let findings = lines[0]["findings"].as_array().unwrap().clone();
        let mut about = findings.into_iter().filter(|f| f["clause"] == "SAP-4.1-10");
        about
            .next()
            .map(|f| (f["pointer"].clone(), f["level"].clone()))
    };
    let told = Some((json!("/outputContract/schema"), json!("ADVICE")));
    assert_eq!(advised(json!({ "type": "jsonish" })), told);
    assert_eq!(
        advised(json!({ "$ref": "https://example.com/s.json" })),
        told
    );
    assert_eq!(advised(json!({ "type": "object" })), None);
}

#[test]
fn states_and_trees_of_agents_are_judged() {
    let id = "00000000-0000-4000-8000-000000000001";
    let state = json!({"version": "1.1.0", "id": id, "messages": [], "step": 0, "metadata": {}});
    let node = json!({"id": id, "parentId": null, "state": state, "children": []});
    let tree = json!({"rootId": id, "currentId": id, "nodes": [node]});
    let mut adrift = tree.clone();
    adrift["nodes"][0]["parentId"] = json!(id);
    let dir = place(&[
        ("state.json", state.to_string().as_bytes()),
        ("old.json", br#"{"version":"0.9.0"}"#),
        ("tree.json", tree.to_string().as_bytes()),
        ("adrift.json", adrift.to_string().as_bytes()),
    ]);
    let (code, lines, _) = validate(&dir, &["uap-state", "state.json", "old.json"]);
    assert_eq!((code, &lines[0]["valid"]), (1, &json!(true)));
    assert_eq!(lines[1]["findings"][0]["pointer"], "/version");
    let (code, lines, _) = validate(&dir, &["uap-thread-tree", "tree.json", "adrift.json"]);
    assert_eq!((code, &lines[0]["valid"]), (1, &json!(true)));
    assert_eq!(lines[1]["findings"][0]["pointer"], "/nodes/0/parentId");
}
