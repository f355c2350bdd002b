//! Stores that were spoiled, mixed up or made by somebody else.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uap_hub_proto::role::hub::{Job, Record, Verdict};
use uap_hub_proto::store::{FileStore, JobStore as _};
use ubos_common::log::{Config, Log, LogId, Reader};

use super::super::Place;
use super::{ran, rows, small, told, trace};

#[test]
fn a_message_whose_cause_was_removed_is_named() {
    let place = small();
    ran(&place);
    let drawn = steps(&place);
    let step = |name: &str| drawn.iter().find(|step| step["name"] == name).unwrap();
    let id = |name: &str| step(name)["id"].as_str().unwrap();
    let below = |name: &str| {
        drawn
            .iter()
            .find(|step| step["parent"] == id(name))
            .unwrap()
    };
    let whole = |step: &Value| {
        let text = |member: &str| step[member].as_str().unwrap().to_owned();
        format!("{} {} ({})", text("protocol"), text("id"), text("name"))
    };
    let end = |who: &str, name: &str| format!("{who} of {}", id(name));
    let cases = [
        // What goes, how it is named, and by which messages.
        (
            ("steps", r#""name":"find NOTES""#),
            id("find NOTES"),
            vec![whole(step("audit.notes")), end("mission end", "find NOTES")],
        ),
        (
            ("steps", r#""name":"audits a folder""#),
            id("audits a folder"),
            vec![
                whole(step("walks the folder")),
                whole(step("audit.folder")),
                end("mission end", "audits a folder"),
            ],
        ),
        (
            ("transcript", r#""capability":"audit.report""#),
            id("audit.report"),
            vec![
                whole(step("writes the report")),
                end("sap result", "audit.report"),
            ],
        ),
        (
            ("audit", "call_routed"),
            id("wait"),
            vec![whole(below("wait")), end("opensentience end", "wait")],
        ),
        (
            ("audit", "agent.connected"),
            "connection ",
            vec![whole(step("lines")), whole(step("wait"))],
        ),
        (
            ("jobs", "submittedAt"),
            id("share 2"),
            vec![whole(below("share 2")), end("hub end", "share 2")],
        ),
    ];
    for ((store, what), names, messages) in cases {
        let copy = copied(&place);
        let removed = rewritten(&copy, store, |record| {
            !String::from_utf8_lossy(record).contains(what)
        });
        assert!(removed > 0, "{what}");
        let (said, code) = told(&mut trace(&copy));
        assert_eq!(code, 1, "{what}: {said}");
        for message in messages {
            let wanted = format!("no cause: {message} names {names}");
            let is_told = said.lines().any(|line| line.starts_with(&wanted));
            assert!(is_told, "{wanted}: {said}");
        }
        let page = place.dir.path().join("page.html");
        let (lines, _) = told(trace(&copy).arg("--json").arg("--html").arg(&page));
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains("<p class=\"bad\">no cause: "), "{page}");
        assert!(lines.contains("{\"missing\":"), "{lines}");
    }
}

#[test]
fn stores_of_another_run_do_not_fit() {
    let (place, other) = (small(), small());
    ran(&place);
    // Its messages name a mission that was never begun here.
    let strange = format!("names {}, which no store holds", rows(&ran(&other))[0].0.id);
    for store in ["transcript", "audit", "jobs"] {
        let copy = copied(&place);
        let folder = copy.join(store);
        fs::remove_dir_all(&folder).unwrap();
        copy_folder(&other.state().join(store), &folder);
        let (said, code) = told(&mut trace(&copy));
        assert_eq!(code, 1, "{store}: {said}");
        assert!(said.contains(&strange), "{store}: {said}");
    }
    let copy = copied(&place);
    copy_folder(&other.state().join("journals"), &copy.join("journals"));
    let (said, code) = told(&mut trace(&copy));
    let run = said
        .lines()
        .filter(|line| line.starts_with("no cause: uap-agent run "))
        .collect::<Vec<_>>();
    assert_eq!((code, run.len()), (1, 2), "{said}");
    assert!(run[0].contains(" names task ") && run[1].ends_with(&strange));
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

/// The steps of a run, as JSON.
fn steps(place: &Place) -> Vec<Value> {
    let (said, _) = told(trace(&place.state()).arg("--json"));
    let lines = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line.get("step").cloned()).collect()
}

#[test]
fn more_journals_than_are_looked_into_are_told() {
    let place = small();
    ran(&place);
    for n in 0..1_024 {
        fs::create_dir(place.state().join(format!("journals/other-{n}"))).unwrap();
    }
    let (said, code) = told(&mut trace(&place.state()));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("journals: more than 1024 folders"), "{said}");
}
