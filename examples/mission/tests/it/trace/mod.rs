//! The program `trace`, held against what `mission` drew while it ran, and against stores that were spoiled.

mod spoiled;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{Place, Running, refusal};

fn trace(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace"));
    command.arg(state).stdin(Stdio::null());
    command
}

/// What `trace` says, and its exit code.
fn told(command: &mut Command) -> (String, i32) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&stderr), "");
    (String::from_utf8(stdout).unwrap(), status.code().unwrap())
}

/// A run of `mission` on a small folder, and what it drew.
fn ran(place: &Place) -> String {
    let page = place.dir.path().join("drawn.html");
    let mut command = place.command();
    let output = command.arg("--trace").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    fs::read_to_string(page).unwrap()
}

fn small() -> Place {
    let place = Place::new();
    place.put("a.rs", "fn main() {} // TODO: all\n");
    place.put("b.md", "text\n");
    place
}

/// A row of a page: what does not depend on how exactly a store knows the time.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    id: String,
    depth: usize,
    who: String,
    name: String,
    outcome: String,
    is_tools: bool,
}

/// The rows of a page, each with its time in milliseconds.
fn rows(page: &str) -> Vec<(Row, f64)> {
    let between = |text: &str, from: &str, to: &str| {
        let (_, rest) = text
            .split_once(from)
            .unwrap_or_else(|| panic!("{from}: {text}"));
        rest.split_once(to).unwrap().0.to_owned()
    };
    let rows = page
        .split("<div class=\"row")
        .filter(|row| row.contains("title=\""));
    rows.map(|row| {
        let took = between(row, "class=\"n\">", " ms").replace(',', "");
        let read = Row {
            id: between(row, "title=\"", "\""),
            depth: between(row, "--d:", "\"").parse().unwrap(),
            who: between(row, "class=\"who\">", "<"),
            name: between(row, "\">", "</span><span class=\"end\">")
                .rsplit('>')
                .next()
                .unwrap()
                .to_owned(),
            outcome: between(row, "class=\"end\">", "<"),
            is_tools: row.starts_with(" tools"),
        };
        (read, took.parse().unwrap())
    })
    .collect()
}

/// The page that `trace` draws of a run.
fn redrawn(place: &Place, more: &[&str]) -> String {
    let page = place.dir.path().join("redrawn.html");
    let (said, code) = told(trace(&place.state()).arg("--html").arg(&page).args(more));
    assert_eq!(code, 0, "{said}");
    fs::read_to_string(page).unwrap()
}

/// Whether two pages show one tree, with times as exact as the stores hold them.
fn assert_same(drawn: &str, redrawn: &str) {
    let (drawn, redrawn) = (rows(drawn), rows(redrawn));
    let steps = |rows: &[(Row, f64)]| rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>();
    assert_eq!(steps(&drawn), steps(&redrawn));
    // Where the machine is slow, what lies between two clocks is long, and so is the whole.
    let whole = drawn[0].1;
    for ((row, seen), (_, held)) in drawn.iter().zip(&redrawn) {
        let kind = row.id.split(' ').next().unwrap();
        // The log of steps has the very times; the transcript has whole seconds, the others their own clocks.
        let apart = match kind {
            "task" | "call" | "job" | "session" | "run" | "step" => 1000.0 + whole,
            _ => 0.0,
        };
        assert!((seen - held).abs() <= apart, "{row:?}: {seen} and {held}");
    }
}

#[test]
fn the_tree_of_the_stores_is_the_one_that_was_drawn() {
    let place = small();
    let first = ran(&place);
    assert_eq!(rows(&first).len(), 42);
    assert_same(&first, &redrawn(&place, &[]));
    // Passes come from the cache now, and the last run is the one that is shown.
    let second = ran(&place);
    assert!(
        rows(&second)
            .iter()
            .any(|(row, _)| row.outcome == "from the cache")
    );
    assert_same(&second, &redrawn(&place, &[]));
    let run = rows(&first)[0].0.id.replace("mission ", "");
    assert_same(&first, &redrawn(&place, &["--run", &run[..13]]));
    let (all, code) = told(trace(&place.state()).arg("--all"));
    assert_eq!(
        (code, all.matches(": done [mission ").count()),
        (0, 2),
        "{all}"
    );
}

#[test]
fn a_line_of_json_a_step_says_the_same() {
    let place = small();
    let drawn = rows(&ran(&place));
    let (said, code) = told(trace(&place.state()).arg("--json"));
    assert_eq!(code, 0);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let steps: Vec<&Value> = lines.iter().filter_map(|line| line.get("step")).collect();
    assert_eq!(steps.len(), drawn.len());
    for (place, (row, _)) in drawn.iter().enumerate() {
        let step = steps[place];
        assert_eq!(
            (&step["id"], &step["depth"]),
            (&json!(row.id), &json!(row.depth))
        );
        let above = drawn[..place]
            .iter()
            .rev()
            .find(|(above, _)| above.depth < row.depth);
        assert_eq!(step["parent"], json!(above.map(|(above, _)| &above.id)));
        let (started, ended) = (step["started"].as_str(), step["ended"].as_str());
        assert!(started <= ended && step["took_ms"].is_u64(), "{step}");
    }
    let stores: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["store"]["place"].as_str())
        .collect();
    assert_eq!(&stores[..4], ["steps", "transcript", "audit", "jobs"]);
    assert!(
        stores[4].starts_with("journals/") && !said.contains("\"missing\""),
        "{said}"
    );
}

#[test]
fn a_run_that_was_killed_has_steps_without_an_end() {
    let place = Place::slow();
    let running = Running::until(&mut place.command(), "secrets: called");
    // Stores are read while they are written, too.
    let is_called = || {
        let output = trace(&place.state()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(" secrets: did not end [")
    };
    assert!((0..1_000).any(|_| is_called()));
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.end();
    let (said, code) = told(&mut trace(&place.state()));
    assert_eq!(code, 1, "{said}");
    for step in [
        "audits a folder",
        "audit.folder",
        "audit.secrets",
        " secrets",
    ] {
        assert!(
            said.contains(&format!("{step}: did not end [")),
            "{step}: {said}"
        );
    }
    assert!(
        said.contains("walks the folder: done [") && said.contains("no end: "),
        "{said}"
    );
    assert!(!said.contains("no cause"), "{said}");

    // The next mission ends what the store of tasks had open; the mission itself stays without an end.
    place.put("large.txt", "short\n");
    ran(&place);
    assert_eq!(told(&mut trace(&place.state())).1, 0);
    let (all, code) = told(trace(&place.state()).arg("--all"));
    assert!(
        code == 1 && all.contains("audit.folder: failed: FAILED ["),
        "{all}"
    );
}

#[test]
fn a_tail_that_is_torn_is_told_and_the_rest_is_drawn() {
    let place = small();
    ran(&place);
    let segment = segment(&place, "steps");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() - 20]).unwrap();
    let (said, code) = told(&mut trace(&place.state()));
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("steps: ") && said.contains("an unfinished write of "),
        "{said}"
    );
    // The last record was the end of the mission.
    assert!(
        said.contains("audits a folder: did not end [") && said.contains("no end: 1 steps"),
        "{said}"
    );
}

#[test]
fn what_is_no_state_folder_is_refused_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "x").unwrap();
    for store in ["steps", "transcript"] {
        fs::create_dir_all(at("garbage").join(store)).unwrap();
        let segment = at("garbage").join(store).join("0000000000000000.seg");
        fs::write(segment, [0xa5; 5000]).unwrap();
    }
    for (folder, wanted) in [
        ("none", "no such file or folder"),
        ("file", "not a folder"),
        (
            "empty",
            "no run of a mission is in its stores (steps: missing; transcript: missing",
        ),
        ("garbage", "steps: damaged"),
    ] {
        let (code, said) = refusal(&mut trace(&at(folder)));
        assert!(code == Some(2) && said.contains(wanted), "{folder}: {said}");
    }
    let place = small();
    ran(&place);
    for (arguments, wanted) in [
        (&["--what"][..], "unknown option"),
        (&["--run", "x"], "0 runs have an id that begins with x"),
        (&["another"], "more than one folder"),
    ] {
        let (code, said) = refusal(trace(&place.state()).args(arguments));
        assert!(code == Some(2) && said.contains(wanted), "{said}");
    }
    let (said, code) = told(trace(&place.state()).arg("--help"));
    assert!(code == 0 && said.contains("usage: trace FOLDER"), "{said}");
}

fn segment(place: &Place, store: &str) -> PathBuf {
    place.state().join(store).join("0000000000000000.seg")
}
