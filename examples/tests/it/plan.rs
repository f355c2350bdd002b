//! The program `sacp-plan`, run as its users run it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::bounded;

const LIBRARY: &str = r#"{"verbs":[{"name":"search","description":"d","inputs":[{"name":"city","type":"string"}],"outputs":"array"}],
    "tools":[{"id":"H_API","description":"d","supported_verbs":["search"]}],
    "agents":[{"agent_name":"A","supported_verbs":["search"],"supported_tools":["H_API"],"inputs":[],"outputs":[],"description":"d"}]}"#;
const BAD: &str = "{\"g\":\"FIND\",\n \"plan\":[\n  [\"serch\",\"H_API\",{\"city\":7}]\n ]}\n";

fn place(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn run(dir: &TempDir, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sacp-plan"))
        .args(arguments)
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments ends without reading: the pipe may be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = bounded::rest(child);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_finding_stands_under_its_line_with_what_would_mend_it() {
    let dir = place(&[("plan.json", BAD), ("lib.json", LIBRARY)]);
    let (code, out, talk) = run(&dir, &["--library", "lib.json", "plan.json"], "");
    assert_eq!((code, talk.as_str()), (1, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("MUST /plan/0: act 1: serch with H_API"),
        "{out}"
    );
    assert_eq!(lines[1], "  --> plan.json:3:3");
    assert_eq!(lines[2], r#"3 |   ["serch","H_API",{"city":7}]"#);
    assert_eq!(lines[3], format!("  |   {}", "^".repeat(28)));
    assert_eq!(lines[4], r#"  1. use the verb "search" at /plan/0"#);
    assert!(out.contains("\nflowchart TD\n"));
    // Without a library only the form is looked at, and a good plan is only drawn.
    let (code, out, _) = run(&dir, &["--dot", "plan.json"], "");
    assert_eq!((code, out.lines().next()), (0, Some("digraph plan {")));
}

#[test]
fn what_is_no_message_is_shown_where_it_breaks_and_not_drawn() {
    let dir = place(&[]);
    let long = format!(
        "{{\"g\":\"G\",\"plan\":[{}[\"a\"]]}}",
        "[\"a\",\"T\",{}],".repeat(200)
    );
    let (code, out, _) = run(&dir, &["-"], &long);
    assert_eq!(code, 1);
    assert!(out.lines().all(|line| line.chars().count() < 140), "{out}");
    assert!(
        out.contains("| ") && out.contains("^^^^^") && !out.contains("flowchart"),
        "{out}"
    );
    for text in [
        "Dear agent,",
        "",
        "{\"g\":\"\u{1b}[31m\"}",
        "{\"g\":7,\"\u{7}x\":1}",
    ] {
        let (code, out, _) = run(&dir, &["-"], text);
        assert_eq!(code, 1, "{text}");
        assert!(
            !out.contains('\u{1b}') && !out.contains('\u{7}') && !out.is_empty(),
            "{out:?}"
        );
    }
}

#[test]
fn programs_get_a_line_a_finding() {
    let dir = place(&[("plan.json", BAD), ("lib.json", LIBRARY)]);
    let (code, out, _) = run(&dir, &["--json", "--library=lib.json", "plan.json"], "");
    assert_eq!(code, 1);
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["code"], &first["line"], &first["column"]),
        (&"UNKNOWN_VERB".into(), &3.into(), &3.into())
    );
    assert_eq!(first["repairs"][0]["repair"], "set_verb");
    assert!(!out.contains("flowchart"));
}

#[test]
fn what_cannot_be_read_is_two() {
    let dir = place(&[("plan.json", BAD), ("bad.json", "{\"verbs\":7}")]);
    for arguments in [
        &[][..],
        &["--loud", "plan.json"],
        &["nowhere.json"],
        &["plan.json", "plan.json"],
        &["--library", "nowhere.json", "plan.json"],
        &["--library", "bad.json", "plan.json"],
        &["--library", "plan.json", "plan.json"],
        &["--library"],
    ] {
        let (code, out, talk) = run(&dir, arguments, "");
        assert_eq!(
            (code, out.as_str(), talk.lines().count() > 0),
            (2, "", true),
            "{arguments:?} {talk}"
        );
    }
    let (code, out, _) = run(&dir, &["--help"], "");
    assert_eq!((code, out.contains("usage: sacp-plan")), (0, true));
    // The library that it shows is one.
    let (from, to) = (
        out.find("{\"verbs\"").unwrap(),
        out.find("\n  --dot").unwrap(),
    );
    let dir = place(&[
        ("library.json", &out[from..to]),
        (
            "plan.json",
            r#"{"g":"G","plan":[["search","H_API",{"city":"P"}]]}"#,
        ),
    ]);
    let given = ["--library", "library.json", "--no-drawing", "plan.json"];
    assert_eq!(run(&dir, &given, ""), (0, String::new(), String::new()));
}

const OLD: &str = r#"{"msg_id":"m","g":"G","plan":[{"parallel":[["get","ONE",{"n":1}],["get","TWO",{}]]},["join","MERGE",{}],["sum","ALL",{}]]}"#;
const NEW: &str = r#"{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"o","g":"G","state":"PENDING",
    "plan":[{"id":"a","verb":"get","tool":"ONE","params":{"n":1},"output_key":"one"},
            {"id":"b","verb":"sum","tool":"ALL","params":{},"depends_on":["a"],"output_key":"all"}]}"#;

// What a command reads is what it gives.
const TOOLS: [&str; 6] = [
    "--tool",
    "ONE=cat",
    "--tool",
    "TWO=cat >&2; echo 2",
    "--tool=ALL=cat",
    "--run",
];

#[test]
fn a_plan_of_0_1_is_run_with_commands_as_its_tools() {
    let dir = place(&[]);
    let (code, out, talk) = run(&dir, &[&TOOLS[..], &["-"]].concat(), OLD);
    assert_eq!(code, 0, "{out}{talk}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&answer["reply_to"], &answer["state"]),
        (&"m".into(), &"DONE".into())
    );
    assert_eq!(
        answer["ctx"]["result"],
        serde_json::json!({"inputs": [[{"n": 1}, 2]]})
    );
    assert!(
        talk.contains("step 1: ONE") && talk.contains("step 4: ALL"),
        "{talk}"
    );
}

#[test]
fn a_plan_of_1_0_is_run_with_commands_as_its_tools() {
    let dir = place(&[]);
    let (code, out, talk) = run(&dir, &[&TOOLS[..], &["-"]].concat(), NEW);
    assert_eq!(code, 0, "{out}{talk}");
    assert_eq!(out.lines().count(), 1);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&answer["state"], &answer["sender"]),
        (&"DONE".into(), &"o".into())
    );
    let outputs = serde_json::json!({"one": {"n": 1}, "all": {"inputs": [{"n": 1}]}});
    assert_eq!(answer["result"]["outputs"], outputs);
}

#[test]
fn a_plan_with_a_must_finding_starts_no_command() {
    let plan = r#"{"g":"G","ctx":{"forbidden_tools":["RM"],"budget":1},"plan":[["del","RM",{"budget":99}]]}"#;
    let dir = place(&[("plan.json", plan)]);
    let arguments = ["--run", "--tool", "RM=touch it-ran; echo 1", "plan.json"];
    let (code, out, _) = run(&dir, &arguments, "");
    assert_eq!(code, 1);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&answer["status"], &answer["code"]),
        (&"ERR".into(), &"MALFORMED_PLAN".into())
    );
    assert!(!dir.path().join("it-ran").exists());
    let (code, out, _) = run(&dir, &[&["--overrule"], &arguments[..]].concat(), "");
    assert_eq!(code, 0);
    assert!(
        out.contains(r#""overruled":[{"pointer":"/plan/0/2/budget""#),
        "{out}"
    );
    assert!(dir.path().join("it-ran").exists());
}

#[test]
fn a_command_that_fails_fails_its_step() {
    let dir = place(&[]);
    for (command, why) in [
        ("exit 3", "exit status: 3"),
        ("echo not json", "its output"),
    ] {
        let tool = format!("ONE={command}");
        let (code, out, talk) = run(
            &dir,
            &["--run", "--tool", &tool, "--tool", "ALL=cat", "-"],
            NEW,
        );
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (code, &answer["error"]["step_id"]),
            (1, &"a".into()),
            "{talk}"
        );
        assert!(talk.contains(why), "{talk}");
    }
    let (code, out, _) = run(&dir, &["--run", "-"], NEW);
    assert_eq!(code, 1);
    assert!(out.contains("UNKNOWN_VERB"), "{out}");
    let (code, _, talk) = run(&dir, &["--run", "--tool", "ONE", "-"], NEW);
    assert!(code == 2 && talk.contains("NAME=COMMAND"), "{talk}");
}

#[test]
fn a_command_need_not_read_its_parameters_nor_read_them_before_it_writes() {
    let dir = place(&[]);
    // More than a pipe holds, in both directions.
    let long = "n".repeat(1 << 20);
    let plan = NEW.replacen(r#"{"n":1}"#, &format!(r#"{{"n":"{long}"}}"#), 1);
    for (command, wanted) in [
        ("cat", serde_json::json!({ "n": long })),
        ("echo 1", serde_json::json!(1)),
        ("exec <&-; echo 1", serde_json::json!(1)),
    ] {
        let tool = format!("ONE={command}");
        let arguments = ["--run", "--tool", &tool, "--tool", "ALL=echo 2", "-"];
        let (code, out, talk) = run(&dir, &arguments, &plan);
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(code, 0, "{talk}");
        assert!(
            answer["result"]["outputs"]["one"] == wanted,
            "{command}: {talk}"
        );
    }
}

#[test]
fn a_command_that_goes_on_after_its_output_has_the_time_of_its_step() {
    let dir = place(&[]);
    let plan = NEW.replacen(r#""id":"a""#, r#""id":"a","timeout_ms":300"#, 1);
    // Its own child has the standard error of this program.
    let tool = "ONE=echo 1; exec >&-; sleep 3600; true";
    let arguments = ["--run", "--tool", tool, "--tool", "ALL=echo 2", "-"];
    let (code, out, talk) = run(&dir, &arguments, &plan);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1, "{talk}");
    assert_eq!(answer["error"]["code"], "TIMEOUT", "{out}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_with_all_that_its_commands_have_started() {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};

    let dir = place(&[("plan.json", NEW)]);
    let tool = "ONE=sleep 3600 & echo $! > part; mv part pid; wait";
    let mut child = Command::new(env!("CARGO_BIN_EXE_sacp-plan"))
        .args(["--run", "--tool", tool, "--tool", "ALL=echo 2", "plan.json"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _bounded = bounded::bounded(&child);
    let pid = loop {
        if let Ok(pid) = fs::read_to_string(dir.path().join("pid")) {
            break Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        }
        assert!(child.try_wait().unwrap().is_none());
    };
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut looks = 0;
    while test_kill_process(pid).is_ok() && !is_zombie(pid.as_raw_nonzero().get()) {
        assert!(looks < 6_000, "what it has started runs on");
        std::thread::sleep(std::time::Duration::from_millis(10));
        looks += 1;
    }
}

/// Whether a process is dead, and nobody has asked how it ended.
#[cfg(unix)]
fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_none_or(|(_, state)| state.starts_with('Z'))
}
