//! The program `agent-chat`, run as its users run it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::bounded::{self, bounded};

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-chat"));
    command
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error.
fn run(dir: &Path, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = command(dir, arguments).spawn().unwrap();
    // A program that refuses its arguments reads nothing.
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
fn every_strategy_answers_with_tools() {
    let outer = tempfile::tempdir().unwrap();
    // Beside its folder there is nothing.
    let dir = outer.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("a.txt"), "from the file\n").unwrap();
    let input =
        "hello there\ncalc 2+3 and count words of one two and read a.txt\ncalc 1/0\nread ../x\n";
    let wanted = "You said: hello there\n2+3 = 5\n2 words, 7 characters\na.txt says:\nfrom the file\n\
        calc failed: a division by 0\nread_file failed: ../x: No such file or directory (os error 2)\n";
    for way in ["loop", "react", "plan"] {
        let (code, out, talk) = run(&dir, &["--dir", ".", "--strategy", way], input);
        assert_eq!((code, out.as_str()), (0, wanted), "{way}");
        assert!(talk.contains("  calc {\"expression\":\"2+3\"}\n"), "{talk}");
        // Nobody types: there is no prompt.
        assert!(!talk.contains('>'), "{talk}");
    }
    let (code, out, _) = run(&dir, &[], "read a.txt");
    assert_eq!((code, out.contains("--dir")), (0, true));
}

#[test]
fn a_conversation_branches_and_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let keeping = ["--checkpoints", "kept", "--session", "s"];
    let (code, out, talk) = run(
        dir.path(),
        &keeping,
        "one\n/branch other\ntwo\n/tree\n/checkout other\nthree\n/history\n",
    );
    assert_eq!(code, 0);
    assert!(
        out.contains(", 4 messages\n") && out.contains("other ("),
        "{out}"
    );
    assert!(
        out.ends_with(
            "user: one\nassistant: You said: one\nuser: three\nassistant: You said: three\n"
        ),
        "{out}"
    );
    assert!(talk.contains("on other"), "{talk}");
    let (code, out, talk) = run(
        dir.path(),
        &keeping,
        "/history\n/checkout root\n/history\n/state\n",
    );
    assert_eq!((code, out.matches("user: one").count()), (0, 2));
    assert!(
        out.contains("user: two") && out.contains("user: three"),
        "{out}"
    );
    assert!(talk.starts_with("  s goes on at other"), "{talk}");
    let state: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (
            &state["version"],
            state["messages"].as_array().unwrap().len()
        ),
        (&"1.1.0".into(), 4)
    );
    // What is on the disk is what other programs of UAP read.
    let folder = dir.path().join("kept/s");
    for (kind, file) in [
        ("uap-state", "checkpoint.json"),
        ("uap-thread-tree", "thread-tree.json"),
    ] {
        let judged = Command::new(env!("CARGO_BIN_EXE_validate"))
            .arg(kind)
            .arg(folder.join(file))
            .output()
            .unwrap();
        assert!(
            judged.status.success(),
            "{}",
            String::from_utf8_lossy(&judged.stdout)
        );
    }
    std::fs::write(folder.join("thread-tree.json"), "[]").unwrap();
    let (code, out, talk) = run(dir.path(), &keeping, "one\n");
    assert_eq!(
        (code, out.as_str(), talk.lines().count()),
        (2, "", 1),
        "{talk}"
    );
    assert_eq!(
        std::fs::read(folder.join("thread-tree.json")).unwrap(),
        b"[]"
    );
}

#[test]
fn a_trace_has_every_event() {
    let dir = tempfile::tempdir().unwrap();
    let (code, ..) = run(dir.path(), &["--trace=t.jsonl"], "calc 2+3\n");
    assert_eq!(code, 0);
    let text = std::fs::read_to_string(dir.path().join("t.jsonl")).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let types: Vec<&str> = events
        .iter()
        .filter_map(|line| line["event"]["uap"]["type"].as_str())
        .collect();
    assert_eq!(
        types,
        [
            "step_start",
            "action",
            "observation",
            "step_end",
            "step_start",
            "step_end"
        ]
    );
    assert!(events.iter().all(|line| line["at"].is_u64()));
    let (code, ..) = run(dir.path(), &["--trace=t.html"], "calc 2+3\n");
    assert_eq!(code, 0);
    let page = std::fs::read_to_string(dir.path().join("t.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("2+3"));
}

#[test]
fn what_is_no_command_is_told_and_what_is_no_argument_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, talk) = run(
        dir.path(),
        &[],
        "/what\n/checkout\n/checkout x\n/tree now\n/quit\nnever\n",
    );
    assert_eq!(
        (code, out.as_str(), talk.lines().count()),
        (1, "", 4),
        "{talk}"
    );
    let (code, out, _) = run(dir.path(), &[], "/help");
    assert_eq!((code, out.lines().count()), (0, 9));
    for arguments in [
        &["--what"][..],
        &["--model", "openai:m"],
        &["--model", "nobody:m"],
        &["--strategy", "tree"],
        &["--dir", "nowhere"],
        &["--session", "x"],
        &["--trace", "nowhere/t"],
        &["--checkpoints", "/dev/null/x"],
    ] {
        let (code, out, talk) = run(dir.path(), arguments, "one\n");
        assert_eq!(
            (code, out.as_str(), talk.lines().count()),
            (2, "", 1),
            "{arguments:?} {talk}"
        );
        assert!(talk.starts_with("agent-chat: "), "{talk}");
    }
    let (code, out, _) = run(dir.path(), &["--help"], "");
    assert_eq!((code, out.contains("usage: agent-chat")), (0, true));
}

#[test]
fn text_from_elsewhere_drives_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "\u{1b}[2Jred\u{7}").unwrap();
    let input = "read a.txt\nsay \u{1b}[31m\n/history\n/branch \u{1b}x\n/tree\n/\u{1b}\n";
    let (_, out, talk) = run(dir.path(), &["--dir=."], input);
    for shown in [out, talk] {
        assert!(
            !shown.contains('\u{1b}') && !shown.contains('\u{7}'),
            "{shown:?}"
        );
    }
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn an_interrupt_ends_the_answer_and_then_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), &["--strategy", "react"])
        .spawn()
        .unwrap();
    let _bounded = bounded(&child);
    let mut input = child.stdin.take().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    input.write_all(b"wait 50\n").unwrap();
    let mut line = String::new();
    talk.read_line(&mut line).unwrap();
    assert_eq!(line, "  thinking: This takes patience.\n");
    interrupt(&child);
    line.clear();
    talk.read_line(&mut line).unwrap();
    assert_eq!(line, "  stopped; the question is not kept\n");
    input.write_all(b"/history\nhello\n/help\n").unwrap();
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "You said: hello\n");
    for _ in 0..9 {
        out.read_line(&mut line).unwrap();
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn what_a_killed_answer_had_come_to_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let keeping = ["--checkpoints", "kept", "--strategy", "plan"];
    let mut child = command(dir.path(), &keeping).spawn().unwrap();
    let _bounded = bounded(&child);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"calc 1+1 and wait 50\n").unwrap();
    let talk = BufReader::new(child.stderr.take().unwrap());
    let step = talk
        .lines()
        .map(Result::unwrap)
        .find(|line| line == "  step 2: wait 50");
    assert!(step.is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, out, talk) = run(dir.path(), &keeping, "/history\n");
    assert_eq!(
        (code, out.contains("assistant: 1+1 = 2\n")),
        (0, true),
        "{out}"
    );
    assert!(talk.contains("its last answer was cut off"), "{talk}");
}

/// Reads lines until one has a text.
fn until(lines: &mut impl Iterator<Item = String>, text: &str) -> String {
    lines
        .find(|line| line.contains(text))
        .unwrap_or_else(|| panic!("no line with {text}"))
}

#[test]
fn a_call_waits_for_an_approval_from_a_second_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let kept = ["--checkpoints", "kept", "--session", "s"];
    let mut talk = command(dir.path(), &[&kept[..], &["--ask-first", "calc"]].concat())
        .spawn()
        .unwrap();
    let _bounded = bounded(&talk);
    let mut input = talk.stdin.take().unwrap();
    let mut said = BufReader::new(talk.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut answers = BufReader::new(talk.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let second = |what: &[&str]| run(dir.path(), &[&kept[..], what].concat(), "");
    input.write_all(b"calc 2+3\ncalc 4+5\n").unwrap();
    let line = until(&mut said, "waits for approval: ");
    assert!(line.contains(r#"calc {"expression":"2+3"}"#), "{line}");
    let id = line.split_whitespace().nth(3).unwrap().to_owned();
    let (code, out, _) = second(&["--pending"]);
    assert_eq!(
        (code, out.starts_with(&format!("{id} calc"))),
        (0, true),
        "{out}"
    );
    // An id that another call has by now decides nothing.
    let (number, _) = id.split_once(':').unwrap();
    for (call, said) in [
        ("999:01234567", "nothing waits under 999"),
        (&format!("{number}:01234567"), "is another call"),
    ] {
        let (code, _, why) = second(&["--approve", call]);
        assert!(code == 1 && why.contains(said), "{why}");
    }
    assert_eq!(second(&["--approve", number]).0, 2);
    let (code, out, why) = second(&["--approve", &id]);
    assert!(code == 0 && out.starts_with("decided: "), "{out}{why}");
    until(&mut answers, "2+3 = 5");

    // Killed while it waits: a new process goes on with the same question.
    let line = until(&mut said, "waits for approval: ");
    assert!(line.contains("4+5"), "{line}");
    talk.kill().unwrap();
    talk.wait().unwrap();
    let id = line.split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(second(&["--reject", &id]).0, 0);
    let (code, out, talk) = run(
        dir.path(),
        &[&kept[..], &["--ask-first", "calc"]].concat(),
        "/history\n",
    );
    assert!(talk.contains("an answer was begun, and goes on"), "{talk}");
    assert!(
        code == 0 && out.contains("calc failed: rejected: by"),
        "{out}"
    );
    assert_eq!(second(&["--pending"]).1, "");
}

#[test]
fn an_answer_that_waits_is_neither_lost_nor_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let kept = ["--checkpoints", "kept", "--session", "s"];
    let asking = [&kept[..], &["--ask-first", "calc"]].concat();
    let second = |what: &[&str]| run(dir.path(), &[&kept[..], what].concat(), "");
    let mut talk = command(dir.path(), &asking).spawn().unwrap();
    let _bounded = bounded(&talk);
    let mut input = talk.stdin.take().unwrap();
    let mut said = BufReader::new(talk.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    input.write_all(b"calc 2+3\n").unwrap();
    until(&mut said, "waits for approval: ");
    until(&mut said, "Ctrl-C leaves it waiting");
    interrupt(&talk);
    until(&mut said, "it stays waiting");
    // The next question does not take its place.
    input.write_all(b"hello\n").unwrap();
    until(&mut said, "an answer waits: /wait goes on with it");
    let pending = second(&["--pending"]).1;
    assert!(pending.contains("2+3"), "{pending}");
    drop(input);
    assert_eq!(talk.wait().unwrap().code(), Some(1));

    // A journal that another has open, or that is damaged, is not removed either.
    let journal = dir.path().join("kept/s/run");
    let segment = std::fs::read_dir(&journal)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let whole = std::fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    let middle = whole.iter().position(|byte| *byte == b'{').unwrap();
    damaged[middle] = b'[';
    std::fs::write(&segment, &damaged).unwrap();
    for arguments in [&kept[..], &asking] {
        let (code, out, why) = run(dir.path(), arguments, "hello\n");
        assert_eq!((code, out.as_str()), (2, ""), "{why}");
        assert_eq!(std::fs::read(&segment).unwrap(), damaged);
    }
    std::fs::write(&segment, &whole).unwrap();

    // Without the option it goes on, too, before anything else is asked.
    let call = pending.split_whitespace().next().unwrap();
    let answer = format!("{call}=about five");
    assert_eq!(second(&["--answer", &answer]).0, 0);
    let (code, out, talk) = run(dir.path(), &kept, "hello\n/history\n");
    assert!(talk.contains("an answer was begun, and goes on"), "{talk}");
    assert_eq!(code, 0, "{talk}");
    let (first, rest) = out.split_once("You said: hello").unwrap();
    assert!(first.contains("about five"), "{out}");
    assert!(rest.contains("user: calc 2+3\n"), "{out}");
    assert!(!journal.exists());

    // It is given up only where somebody says so.
    let (_, _, said) = run(dir.path(), &kept, "/drop\n/wait\n");
    assert_eq!(said.matches("no answer waits").count(), 2, "{said}");
}
