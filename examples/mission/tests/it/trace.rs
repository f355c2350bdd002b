//! The program `trace`, held against what `mission` drew while it ran, and against stores that were spoiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use uap_hub_proto::role::hub::{Job, Record, Verdict};
use uap_hub_proto::store::{FileStore, JobStore as _};
use ubos_common::log::{Config, Log, LogId, Reader};

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
    for ((row, seen), (_, held)) in drawn.iter().zip(&redrawn) {
        let kind = row.id.split(' ').next().unwrap();
        // The log of steps has the very times; the transcript has whole seconds, the others their own clocks.
        let apart = match kind {
            "task" | "call" | "job" | "session" | "run" | "step" => 1000.0,
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
fn a_message_whose_cause_was_removed_is_named() {
    let place = small();
    ran(&place);
    let drawn = steps(&place);
    let id = |name: &str| drawn.iter().find(|step| step["name"] == name).unwrap()["id"].clone();
    let cases = [
        // What goes, and which steps are named with it.
        (
            "steps",
            r#""name":"find NOTES""#,
            id("find NOTES"),
            vec![id("audit.notes"), id("find NOTES")],
        ),
        (
            "steps",
            r#""name":"audits a folder""#,
            id("audits a folder"),
            vec![id("walks the folder"), id("audit.folder")],
        ),
        (
            "transcript",
            r#""capability":"audit.report""#,
            id("audit.report"),
            vec![id("writes the report"), id("audit.report")],
        ),
        (
            "audit",
            r#"call_routed","#,
            id("wait"),
            vec![id("wait, in the tool process"), id("wait")],
        ),
        (
            "audit",
            "agent.connected",
            json!("connection "),
            vec![id("lines"), id("wait")],
        ),
        (
            "jobs",
            "submittedAt",
            id("share 1"),
            vec![id("session with counter-1")],
        ),
    ];
    for (store, what, names, named) in cases {
        let copy = copied(&place);
        let removed = rewritten(&copy, store, |record| {
            !String::from_utf8_lossy(record).contains(what)
        });
        assert!(removed > 0, "{what}");
        let (said, code) = told(&mut trace(&copy));
        let names = names.as_str().unwrap();
        assert_eq!(code, 1, "{what}: {said}");
        for named in named {
            let named = named.as_str().unwrap();
            let line = said.lines().find(|line| {
                line.starts_with("no cause: ")
                    && line.contains(named)
                    && line.contains(&format!("names {names}"))
            });
            // Either share may have run on either agent.
            assert!(
                line.is_some() || store == "jobs" && said.contains(named),
                "{named}: {said}"
            );
        }
        let (lines, _) = told(trace(&copy).arg("--json"));
        assert!(lines.contains("{\"missing\":"), "{lines}");
    }
}

#[test]
fn stores_of_another_run_do_not_fit() {
    let (place, other) = (small(), small());
    ran(&place);
    ran(&other);
    for store in ["transcript", "audit", "jobs"] {
        let copy = copied(&place);
        let folder = copy.join(store);
        fs::remove_dir_all(&folder).unwrap();
        copy_folder(&other.state().join(store), &folder);
        let (said, code) = told(&mut trace(&copy));
        assert_eq!(code, 1, "{store}: {said}");
        assert!(
            said.contains("no cause: ") && said.contains("which no store holds"),
            "{store}: {said}"
        );
    }
    let copy = copied(&place);
    copy_folder(&other.state().join("journals"), &copy.join("journals"));
    let (said, code) = told(&mut trace(&copy));
    let strange = said
        .lines()
        .find(|line| line.starts_with("no cause: uap-agent run "));
    assert!(
        code == 1 && strange.is_some_and(|line| line.contains("names task ")),
        "{said}"
    );
}

#[test]
fn a_store_that_is_missing_or_damaged_is_told_by_name() {
    let place = small();
    ran(&place);
    let mut stores = vec![
        "steps".to_owned(),
        "transcript".into(),
        "audit".into(),
        "jobs".into(),
    ];
    let journal = fs::read_dir(place.state().join("journals"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    stores.push(format!(
        "journals/{}",
        journal.file_name().to_str().unwrap()
    ));
    for store in &stores {
        let copy = copied(&place);
        fs::remove_dir_all(copy.join(store)).unwrap();
        let (said, code) = told(&mut trace(&copy));
        assert!(
            code == 1 && said.contains(&format!("not read: {store}: missing")),
            "{store}: {said}"
        );

        let copy = copied(&place);
        let segment = copy.join(store).join("0000000000000000.seg");
        let mut bytes = fs::read(&segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&segment, bytes).unwrap();
        let (said, code) = told(&mut trace(&copy));
        assert!(
            code == 2 && said.contains(&format!("not read: {store}: damaged after ")),
            "{store}: {said}"
        );

        let copy = copied(&place);
        let other = if store == "audit" { "jobs" } else { "audit" };
        fs::remove_dir_all(copy.join(store)).unwrap();
        copy_folder(&copy.join(other), &copy.join(store));
        let (said, code) = told(&mut trace(&copy));
        assert!(
            code == 2 && said.contains(&format!("not read: {store}: a log of kind ")),
            "{store}: {said}"
        );
    }
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

#[test]
fn what_stores_say_drives_no_terminal_and_fills_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let id = |n: usize| format!("step {n}");
    let begin = |id: &str, parent: Option<&str>, name: &str| {
        json!({ "run": "r", "id": id, "begin": {
            "at": "2026-01-01T00:00:00Z", "parent": parent, "who": "sacp", "name": name,
        } })
        .to_string()
    };
    let mut records = vec![begin("mission r", None, "audits"), "{\"run\":1}".to_owned()];
    records.push(begin(
        "bad",
        Some("mission r"),
        "\u{1b}[31mred\nline: done [x]",
    ));
    records.push(begin("long", Some("mission r"), &"x".repeat(100_000)));
    records.push(begin(
        &"y".repeat(300),
        Some("mission r"),
        "an id that is none",
    ));
    records.push(begin("round", Some("about"), "one"));
    records.push(begin("about", Some("round"), "another"));
    records.extend((0..20_000).map(|n| begin(&id(n), Some("mission r"), "many")));
    let log = log(&dir.path().join("steps"), "mission-steps");
    for records in records.chunks(1_000) {
        let records: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
        log.append_batch(&records).unwrap();
    }
    drop(log);
    let (said, code) = told(&mut trace(dir.path()));
    assert_eq!(code, 2);
    assert!(
        !said.contains('\u{1b}') && said.contains("\\u{1b}[31mred\\nline"),
        "{said}"
    );
    assert!(said.len() < 2 << 20 && said.lines().all(|line| line.len() < 500));
    for wanted in [
        "not looked at: ",
        "steps: 2 of 20007 records cannot be read",
        "no cause: sacp round (one) names about, which it causes",
        "audit: missing",
    ] {
        let shown: Vec<&str> = said.lines().filter(|line| !line.contains("many")).collect();
        assert!(said.contains(wanted), "{wanted}: {shown:?}");
    }
}

#[test]
fn a_job_that_an_earlier_mission_left_is_cancelled() {
    let place = small();
    let open = || {
        let id = LogId::from_bytes(*b"mission-hub-jobs");
        FileStore::open(
            place.state().join("jobs"),
            Config::default().with_log_id(id),
        )
        .unwrap()
    };
    let id = "a1b2c3d4-0000-4000-8000-000000000001".parse().unwrap();
    let left = Job::test("recount", Vec::new());
    open().write(&[(id, Record::Accepted(left))]).unwrap();
    let drawn = rows(&ran(&place));
    assert_eq!(
        drawn
            .iter()
            .filter(|(row, _)| row.id.starts_with("job "))
            .count(),
        2
    );
    assert_eq!(
        open().outcome(id).unwrap().unwrap().verdict,
        Verdict::Cancelled
    );
    // Whoever submitted it named no task.
    let (said, code) = told(&mut trace(&place.state()));
    let named = format!("no cause: hub job {id} (recount) names a task, but no id");
    assert!(code == 1 && said.contains(&named), "{said}");
}

/// The steps of a run, as JSON.
fn steps(place: &Place) -> Vec<Value> {
    let (said, _) = told(trace(&place.state()).arg("--json"));
    let lines = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line.get("step").cloned()).collect()
}

fn segment(place: &Place, store: &str) -> PathBuf {
    place.state().join(store).join("0000000000000000.seg")
}

/// A copy of a state folder, in place of the last one.
fn copied(place: &Place) -> PathBuf {
    let copy = place.dir.path().join("copy");
    let _ = fs::remove_dir_all(&copy);
    copy_folder(&place.state(), &copy);
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn log(folder: &Path, kind: &'static str) -> Log {
    let config = Config::default().with_log_id(LogId::from_bytes([7; 16]));
    Log::open(folder, config.with_kind(kind)).unwrap()
}

/// Writes a store anew, without the last record that is not kept: its chain holds. Gives how many were not.
fn rewritten(state: &Path, store: &str, keep: impl Fn(&[u8]) -> bool) -> usize {
    let kinds = [
        ("steps", "mission-steps"),
        ("transcript", "sap-transcript"),
        ("audit", "osw-audit"),
        ("jobs", "hub-jobs"),
    ];
    let kind = kinds.iter().find(|(name, _)| *name == store).unwrap().1;
    let folder = state.join(store);
    let (mut reader, mut records) = (Reader::open(&folder), Vec::new());
    while let Some(entry) = reader.next().unwrap() {
        records.push(entry.bytes.to_vec());
    }
    let unwanted: Vec<usize> = (0..records.len()).filter(|n| !keep(&records[*n])).collect();
    if let Some(last) = unwanted.last() {
        records.remove(*last);
    }
    fs::remove_dir_all(&folder).unwrap();
    let log = log(&folder, kind);
    for record in records {
        log.append(&record).unwrap();
    }
    unwanted.len()
}
