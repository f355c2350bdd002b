//! The program `mission`, run as its users run it.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, and says why"
)]

#[path = "../../../tests/it/bounded.rs"]
mod bounded;
mod trace;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use bounded::{Bounded, bounded, output};

/// What looks like a key, and must not be shown.
const KEY: &str = "AKIAIOSFODNN7EXAMPLA";

/// What is missing for a vendor's model: a key, or the client in this build.
const MODEL_NEEDS: &str = if cfg!(feature = "model") {
    "OPENAI_API_KEY"
} else {
    "--features model"
};

/// A folder to audit and a state beside it.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        Self { dir }
    }

    /// With one file that no pass reads in a moment.
    fn slow() -> Self {
        let place = Self::new();
        place.put("large.txt", "one more line of plain text\n".repeat(1 << 20));
        place
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("folder")
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.folder().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = mission();
        command.arg(self.folder()).arg("--state").arg(self.state());
        command
    }

    /// The document of a run, and its exit code.
    fn audit(&self) -> (Value, i32) {
        document(self.command().arg("--json"))
    }
}

fn mission() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mission"));
    command
        .env_remove("OPENAI_API_KEY")
        .env_remove("OPENAI_BASE_URL")
        .env_remove("HOME")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null());
    command
}

fn document(command: &mut Command) -> (Value, i32) {
    let Output {
        status,
        stdout,
        stderr,
    } = output(command);
    let document = serde_json::from_slice(&stdout)
        .unwrap_or_else(|err| panic!("{err}, {status}: {}", String::from_utf8_lossy(&stderr)));
    (document, status.code().unwrap())
}

/// The exit code of a run that writes nothing to standard output, and what it says of that.
fn refusal(command: &mut Command) -> (Option<i32>, String) {
    let output = output(command);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// A mission that is under way, killed when a test gives it up.
struct Running {
    child: Child,
    screen: BufReader<ChildStdout>,
    _bounded: Bounded,
}

impl Running {
    /// Starts a mission, and waits until its screen shows a text.
    fn until(command: &mut Command, text: &str) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let bounded = bounded(&child);
        let mut screen = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = screen.read_line(&mut line).unwrap();
            assert!(read > 0, "ended before {text:?} was on its screen");
        }
        Self {
            child,
            screen,
            _bounded: bounded,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The tool process: the mission's only child.
    fn tool_process(&self) -> Pid {
        let pid = self.child.id();
        let mut children = String::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let list = thread.unwrap().path().join("children");
            // A thread may end meanwhile.
            children += &fs::read_to_string(list).unwrap_or_default();
        }
        let [child] = children.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("children: {children:?}");
        };
        Pid::from_raw(child.parse().unwrap()).unwrap()
    }

    /// The exit code, the rest of the screen, and the talk about errors.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut screen, mut errors) = (String::new(), String::new());
        self.screen.read_to_string(&mut screen).unwrap();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), screen, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn members(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn a_known_folder_gives_exact_figures_and_the_whole_document() {
    let place = Place::new();
    place.put("src/a.rs", "fn main() {}\n// TODO: x\n");
    place.put("src/copy.rs", "fn main() {}\n// TODO: x\n");
    place.put("src/c.py", "# FIXME without a newline");
    place.put(".hidden/h.md", "hello\n");
    place.put("data.bin", b"a\0b\n\n\n");
    place.put("latin.txt", b"caf\xe9\n");
    place.put("empty.c", "");
    place.put(".gitignore", "target\n");
    place.put("target/out.rs", "TODO\n");
    place.put(".git/HEAD", "ref\n");
    std::os::unix::fs::symlink("nowhere", place.folder().join("broken")).unwrap();
    std::os::unix::fs::symlink(".", place.folder().join("loop")).unwrap();

    let (document, code) = place.audit();
    assert_eq!(code, 0, "{document}");
    assert_eq!(
        document["folder"],
        json!({ "files": 8, "lines": 7, "bytes": 97, "languages": {
            "C": { "files": 1, "lines": 0, "bytes": 0 },
            "Markdown": { "files": 1, "lines": 1, "bytes": 6 },
            "Other": { "files": 2, "lines": 1, "bytes": 13 },
            "Python": { "files": 1, "lines": 0, "bytes": 25 },
            "Rust": { "files": 2, "lines": 4, "bytes": 48 },
            "Text": { "files": 1, "lines": 1, "bytes": 5 },
        } })
    );
    assert_eq!(
        document["largest"][0],
        json!({ "path": "src/c.py", "bytes": 25 })
    );
    assert_eq!(
        document["notes"],
        json!([
            { "path": "src/a.rs", "line": 2, "kind": "TODO" },
            { "path": "src/c.py", "line": 1, "kind": "FIXME" },
            { "path": "src/copy.rs", "line": 2, "kind": "TODO" },
        ])
    );
    assert_eq!(document["duplicates"], json!([["src/a.rs", "src/copy.rs"]]));
    assert_eq!(document["secrets"], json!([]));
    assert_eq!(
        (&document["sap"]["status"], &document["sap"]["alignment"]),
        (&json!("SUCCEEDED"), &json!("VALID"))
    );
    assert_eq!(document["sacp"], json!({ "steps": 8, "spawned": 1 }));
    assert_eq!(
        (
            &document["opensentience"]["calls"],
            &document["opensentience"]["canceled"]
        ),
        (&json!(6), &json!(1))
    );
    assert_eq!(
        document["hub"],
        json!({ "agents": 2, "sessions": 2, "agree": true })
    );
    assert_eq!(document["agent"]["strategy"], "react");
    assert_eq!(document["transcript"]["verified"], true);
    assert!(
        document["report"]
            .as_str()
            .unwrap()
            .contains("8 files, 7 lines, 97 bytes.")
    );
    let shape = [
        (
            "sap",
            "task_id correlation_id status alignment tasks cache_hits cache_misses",
        ),
        ("sacp", "steps spawned"),
        ("opensentience", "calls stream_chunks canceled"),
        ("hub", "agents sessions agree"),
        (
            "agent",
            "strategy steps tool_calls input_tokens output_tokens",
        ),
        ("transcript", "records verified head"),
    ];
    for (part, names) in shape {
        let names: std::collections::BTreeSet<&str> = names.split(' ').collect();
        let there = members(&document[part]).into_iter().collect();
        assert_eq!(names, there, "{part}");
    }

    let (all, _) = document_without_rules(&place);
    assert_eq!(
        (&all["folder"]["files"], &all["folder"]["bytes"]),
        (&json!(9), &json!(102))
    );
}

fn document_without_rules(place: &Place) -> (Value, i32) {
    document(place.command().args(["--json", "--no-ignore"]))
}

#[test]
fn an_unchanged_folder_hits_the_cache_and_a_changed_file_misses() {
    let place = Place::new();
    place.put("a.rs", "fn a() {}\n");
    let cache = |document: &Value| {
        let figure = |name: &str| document["sap"][name].as_u64().unwrap();
        (figure("cache_hits"), figure("cache_misses"))
    };
    let (first, _) = place.audit();
    assert_eq!(cache(&first), (0, 6));
    let (second, _) = place.audit();
    assert_eq!(cache(&second), (6, 0));
    assert_eq!(
        (&first["folder"], &first["report"]),
        (&second["folder"], &second["report"])
    );
    assert!(second["transcript"]["records"].as_u64() > first["transcript"]["records"].as_u64());
    place.put("a.rs", "fn b() {}\n// TODO\n");
    let (third, _) = place.audit();
    assert_eq!(
        (cache(&third), &third["folder"]["lines"]),
        ((0, 6), &json!(2))
    );
}

#[test]
fn state_inside_the_folder_is_left_out() {
    let place = Place::new();
    place.put("a.rs", "fn a() {}\n");
    let state = place.folder().join("state");
    let audit = |state: &Path| {
        document(
            mission()
                .arg(place.folder())
                .arg("--json")
                .arg("--state")
                .arg(state),
        )
    };
    for hits in [0, 6] {
        let (document, code) = audit(&state);
        assert_eq!((code, &document["folder"]["files"]), (0, &json!(1)));
        assert_eq!(document["sap"]["cache_hits"], hits);
    }
    let (code, said) = refusal(
        mission()
            .arg(place.folder())
            .arg("--state")
            .arg(place.folder()),
    );
    assert!(
        code == Some(2) && said.contains("a folder of its own"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_2() {
    let place = Place::new();
    place.put("a.rs", "");
    let file = place.folder().join("a.rs");
    let with = |folder: &Path, state: &Path, more: &[&str]| {
        let mut command = mission();
        command.arg(folder).arg("--state").arg(state).args(more);
        refusal(&mut command)
    };
    let (folder, state) = (place.folder(), place.state());
    let cases = [
        (
            with(Path::new("/no/such"), &state, &[]),
            "no such file or folder",
        ),
        (with(&file, &state, &[]), "not a folder"),
        (with(&folder, &file, &[]), "not a folder"),
        (with(&folder, &state, &["--what"]), "unknown option --what"),
        (with(&folder, &state, &["--model", "m"]), MODEL_NEEDS),
    ];
    for ((code, said), wanted) in cases {
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn secrets_are_told_by_place_and_kind_with_1_and_never_shown() {
    let place = Place::new();
    place.put("conf.ini", format!("a = 1\nkey = {KEY}\n"));
    let output = place.command().arg("--json").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        document["secrets"],
        json!([{ "path": "conf.ini", "line": 2, "kind": "api_key" }])
    );
    let shown = place.command().output().unwrap();
    assert_eq!(shown.status.code(), Some(1));
    let screen = String::from_utf8(shown.stdout).unwrap();
    assert!(screen.contains("`conf.ini` line 2: api_key"), "{screen}");
    let errors = [output.stderr, shown.stderr].concat();
    for said in [text, screen, String::from_utf8(errors).unwrap()] {
        assert!(!said.contains(KEY));
    }
    let journals = fs::read_dir(place.state().join("journals")).unwrap();
    let journals = journals.map(|journal| journal.unwrap().path());
    let stores = ["transcript", "cache", "steps", "audit", "jobs"];
    for file in stores
        .map(|store| place.state().join(store))
        .into_iter()
        .chain(journals)
    {
        let segment = file.join("0000000000000000.seg");
        let kept = fs::read(segment).unwrap();
        assert!(
            !kept.windows(KEY.len()).any(|bytes| bytes == KEY.as_bytes()),
            "{}",
            file.display()
        );
    }
}

#[test]
fn ctrl_c_gives_130_and_a_transcript_that_goes_on() {
    let place = Place::slow();
    let running = Running::until(&mut place.command(), "secrets: called");
    kill_process(running.pid(), Signal::INT).unwrap();
    let (code, screen, errors) = running.end();
    assert_eq!(
        (code, errors.as_str()),
        (Some(130), "mission: interrupted\n")
    );
    let line = screen.lines().last().unwrap();
    assert!(line.contains("chain verified"), "{screen}");
    let records: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(records > 0, "{line}");

    place.put("large.txt", "short\n");
    let (document, code) = place.audit();
    assert_eq!(
        (code, &document["transcript"]["verified"]),
        (0, &json!(true))
    );
    assert!(document["transcript"]["records"].as_u64().unwrap() > records);
}

#[test]
fn a_page_that_has_no_place_is_told_before_the_audit() {
    let place = Place::new();
    for page in ["missing/trace.html", "folder"] {
        let page = place.dir.path().join(page);
        let output = place.command().arg("--trace").arg(page).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(2), 1),
            "{said}"
        );
        assert!(output.stdout.is_empty() && !place.state().exists());
    }
}

#[test]
fn pages_show_what_was_found_and_the_steps_of_both_processes() {
    let place = Place::new();
    place.put("a.rs", "fn main() {} // TODO: all\n");
    place.put("b.rs", "fn main() {} // TODO: all\n");
    let trace = place.dir.path().join("trace.html");
    let output = place.command().arg("--trace").arg(&trace).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let screen = String::from_utf8(output.stdout).unwrap();
    let report = place.state().join("report.html");
    let next = screen.lines().last().unwrap();
    assert!(
        next.starts_with("next: ") && next.contains(&*report.to_string_lossy()),
        "{next}"
    );

    let (report, trace) = (
        fs::read_to_string(report).unwrap(),
        fs::read_to_string(trace).unwrap(),
    );
    for wanted in [
        "<h1>Audit</h1>",
        "<b>Rust</b>",
        "2 files",
        "line 1: TODO",
        "chain verified",
    ] {
        assert!(report.contains(wanted), "{wanted}: {report}");
    }
    for page in [report, trace] {
        for wanted in [
            ">audit.folder</span>",
            ">count LINES</span>",
            ">audit.lines</span>",
            ">lines, in the tool process</span>",
            ">share 2</span>",
            ">session with counter-",
            ">writes the report</span>",
            ">canceled</span>",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        // The mission is the only root: each step names a cause that is there.
        assert_eq!(
            page.matches("class=\"what\" style=\"--d:0\"").count(),
            2,
            "{page}"
        );
        assert!(!page.contains("did not end"), "{page}");
    }
}

#[test]
fn a_mission_that_fails_leaves_its_steps() {
    let place = Place::new();
    let trace = place.dir.path().join("trace.html");
    let mut command = mission();
    command
        .arg(place.dir.path().join("none"))
        .arg("--state")
        .arg(place.state())
        .arg("--trace")
        .arg(&trace);
    let (code, said) = refusal(&mut command);
    assert!(
        code == Some(2) && said.contains("no such file or folder"),
        "{said}"
    );
    let page = fs::read_to_string(&trace).unwrap();
    assert!(page.contains("failed: "), "{page}");
}

#[test]
fn what_a_killed_mission_left_ends_at_the_next_start() {
    let place = Place::slow();
    let running = Running::until(&mut place.command(), "secrets: called");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.end();
    place.put("large.txt", "short\n");
    let failed = "had no end, and failed";
    let (_, screen, _) = Running::until(&mut place.command(), failed).end();
    assert!(screen.contains("chain verified"), "{screen}");
    let (code, screen, _) = Running::until(&mut place.command(), "audits").end();
    assert_eq!((code, screen.contains(failed)), (Some(0), false));
}

#[test]
fn ctrl_c_is_heard_from_the_first_word_on() {
    let place = Place::slow();
    let running = Running::until(&mut place.command(), "audits");
    kill_process(running.pid(), Signal::INT).unwrap();
    let (code, _, errors) = running.end();
    assert_eq!(
        (code, errors.as_str()),
        (Some(130), "mission: interrupted\n")
    );
}

#[test]
fn a_tool_process_that_is_killed_is_launched_again() {
    let place = Place::new();
    // Large enough that the passes still read it when the process dies.
    place.put("large.txt", "one more line of plain text\n".repeat(1 << 18));
    let running = Running::until(&mut place.command(), "secrets: called");
    kill_process(running.tool_process(), Signal::KILL).unwrap();
    let (code, screen, errors) = running.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{screen}");
    assert_eq!(
        screen.matches("the tool process died").count(),
        1,
        "{screen}"
    );
    assert!(
        screen.contains("1 files, 262144 lines") && screen.contains("chain verified"),
        "{screen}"
    );
}

#[test]
fn a_second_mission_on_the_same_state_is_turned_away() {
    let place = Place::slow();
    let first = Running::until(&mut place.command(), "secrets: called");
    let (code, said) = refusal(place.command().arg("--json"));
    assert_eq!(code, Some(3));
    assert!(said.contains("locked by another writer"), "{said}");
    kill_process(first.pid(), Signal::TERM).unwrap();
    let (code, screen, _) = first.end();
    assert_eq!(code, Some(143));
    assert!(screen.contains("chain verified"), "{screen}");
}

/// A verifier that was written from the page of the format alone: its own tests, and the transcript of a mission.
#[cfg(feature = "external-tests")]
#[test]
fn a_verifier_in_python_agrees() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let python = |arguments: &[&std::ffi::OsStr]| {
        let program = std::env::var("UBOS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(&folder);
        // No files of its own in the tree.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.output();
        output.unwrap_or_else(|error| panic!("UBOS_PYTHON={program}: {error}"))
    };
    let own = python(&[
        "-m".as_ref(),
        "unittest".as_ref(),
        "test_log_verify".as_ref(),
    ]);
    assert!(
        own.status.success(),
        "{}",
        String::from_utf8_lossy(&own.stderr)
    );

    let place = Place::new();
    place.put("a.rs", "fn main() {}\n");
    let (document, _) = place.audit();
    let transcript = place.state().join("transcript");
    let verify = |log: &Path| python(&["log_verify.py".as_ref(), "--json".as_ref(), log.as_ref()]);
    let proven = verify(&transcript);
    let said = String::from_utf8_lossy(&proven.stderr);
    assert!(proven.status.success(), "{said}");
    let proven: Value = serde_json::from_slice(&proven.stdout).unwrap();
    assert_eq!(proven["head"], document["transcript"]["head"]);

    let segment = transcript.join("0000000000000000.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[400] ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert_eq!(verify(&transcript).status.code(), Some(1));
}
