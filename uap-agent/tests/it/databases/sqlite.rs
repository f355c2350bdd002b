//! SQLite.

use std::path::Path;

use futures::executor::block_on;
use uap_agent::journal::{Journal as _, JournalError};
use uap_agent::sql::{Database, OpenError};
use uap_agent::{CheckpointConfig, CheckpointError, CheckpointHistory as _, CheckpointStore as _};
use ubos_common::time::Timestamp;
use upp::json_text;

use super::race::two_processes_race;
use crate::log_store::Steps;

fn with(test: impl FnOnce(super::Open<'_>)) {
    let folder = tempfile::tempdir().unwrap();
    test(&|| Database::sqlite(folder.path().join("agents.db")).unwrap());
}

// spec: UAP-12-5
#[test]
fn sqlite_keeps_what_journals_must() {
    with(super::it_keeps_what_journals_must);
}

// spec: UAP-12-5
#[test]
fn runs_whose_owner_is_gone_are_found_in_sqlite() {
    with(super::runs_whose_owner_is_gone_are_found);
}

// spec: UAP-12-7, UAP-12-4
#[test]
fn checkpoints_in_sqlite_do_what_stores_do() {
    with(super::checkpoints_do_what_stores_do);
}

// spec: UAP-12-4
#[test]
fn checkpoints_in_sqlite_are_those_of_memory() {
    with(super::checkpoints_are_those_of_memory);
}

#[test]
fn bounds_hold_in_sqlite() {
    with(super::bounds_hold);
}

#[test]
fn a_thousand_sessions_go_side_by_side_in_sqlite() {
    with(super::a_thousand_sessions_go_side_by_side);
}

// spec: UAP-12-5
#[test]
fn two_processes_race_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    two_processes_race(&format!("sqlite {}", file.display()), 200);
}

fn change(file: &Path, text: &str) {
    let changed = rusqlite::Connection::open(file).unwrap();
    assert_eq!(changed.execute(text, []).unwrap(), 1, "{text}");
}

// spec: UAP-12-4, UAP-12-5
#[test]
fn a_changed_row_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let open = || Database::sqlite(&file).unwrap();
    let entries = super::entries();
    for text in [
        "UPDATE uap_entry SET entry = replace(entry, 'go', 'no') WHERE n = 0",
        "UPDATE uap_entry SET digest = zeroblob(32) WHERE n = 2",
        "UPDATE uap_entry SET entry = CAST(x'7b22ff227d' AS TEXT) WHERE n = 2",
        "DELETE FROM uap_entry WHERE n = 1",
        "DELETE FROM uap_entry WHERE n = (SELECT max(n) FROM uap_entry)",
    ] {
        let database = open();
        block_on(database.delete_journal("run")).unwrap();
        block_on(database.journal("run").append(0, entries.clone())).unwrap();
        change(&file, text);
        let refused = block_on(database.journal("run").read()).unwrap_err();
        assert!(
            matches!(refused, JournalError::Damaged { .. }),
            "{text}: {refused}"
        );
    }
    for text in [
        "UPDATE uap_checkpoint SET state = CAST(replace(CAST(state AS TEXT), 'xxx', 'xxy') AS BLOB) WHERE n = 0",
        "UPDATE uap_checkpoint SET about = CAST(replace(CAST(about AS TEXT), '\"agent\"', '\"agenT\"') AS BLOB) WHERE n = 2",
        "UPDATE uap_checkpoint SET back = 1 WHERE n = 2",
        "UPDATE uap_checkpoint SET back = 7 WHERE n = 2",
        "DELETE FROM uap_checkpoint WHERE n = 1",
        "DELETE FROM uap_checkpoint WHERE n = 2",
        "UPDATE uap_session SET last = 'x'",
        "UPDATE uap_session SET first = next",
    ] {
        let store = open().checkpoints();
        block_on(store.delete("s")).unwrap();
        let mut steps = Steps::new(4);
        for _ in 0..3 {
            steps.step(20);
            steps.save(&store, "s").unwrap();
        }
        assert!(block_on(open().checkpoints().load("s")).is_ok());
        change(&file, text);
        let refused = block_on(open().checkpoints().load("s")).unwrap_err();
        assert!(
            matches!(refused, CheckpointError::Damaged(_)),
            "{text}: {refused}"
        );
    }
    // A whole state in the place of a later one.
    let store = open().checkpoints();
    block_on(store.delete("s")).unwrap();
    let mut steps = Steps::new(4);
    for _ in 0..3 {
        steps.step(20);
        steps.save(&store, "s").unwrap();
    }
    for text in [
        "UPDATE uap_checkpoint SET (back, about, state, digest) = (SELECT back, about, state, digest FROM uap_checkpoint
            WHERE n = 0) WHERE n = 2",
        "UPDATE uap_session SET last = (SELECT checkpoint FROM uap_checkpoint WHERE n = 0)",
    ] {
        change(&file, text);
    }
    let refused = block_on(open().checkpoints().load("s")).unwrap_err();
    assert!(matches!(refused, CheckpointError::Damaged(_)), "{refused}");
    let store = open().checkpoints();
    block_on(store.delete("s")).unwrap();
    assert!(block_on(store.history("s")).unwrap().is_empty());
}

// spec: UAP-12-4
#[test]
fn a_save_does_not_read_what_its_store_has_saved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let open = || Database::sqlite(&file).unwrap().checkpoints();
    let (store, mut steps) = (open(), Steps::new(4));
    steps.step(20);
    steps.save(&store, "s").unwrap();
    change(&file, "UPDATE uap_checkpoint SET digest = zeroblob(32)");
    steps.step(20);
    steps.save(&store, "s").unwrap();
    steps.step(20);
    assert!(steps.save(&open(), "s").is_err());
}

// spec: UAP-12-4
#[test]
fn a_state_is_written_whole_again_before_its_differences_cost_much_more() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let (store, mut steps) = (
        Database::sqlite(&file).unwrap().checkpoints(),
        Steps::new(4),
    );
    for n in 0..20 {
        let value = json_text(&n.to_string().repeat(10_000));
        steps.step(1);
        steps.state = steps.state.with_metadata(&mut steps.ids, "replaced", value);
        steps.save(&store, "s").unwrap();
    }
    let rows = rusqlite::Connection::open(&file).unwrap();
    let count = |back| {
        let text = format!("SELECT count(*) FROM uap_checkpoint WHERE back {back}");
        rows.query_row(&text, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    // Each difference is about as long as the state: some are borne, and not all.
    let (whole, differences) = (count("= 0"), count("> 0"));
    assert!(
        whole > 1 && differences > whole,
        "{whole} whole, {differences} differences"
    );
}

// spec: UAP-12-5
#[test]
fn an_entry_in_another_place_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let entries = super::entries();
    for from in ["run = 'run' AND n = 1", "run = 'other' AND n = 2"] {
        let database = Database::sqlite(&file).unwrap();
        for run in ["run", "other"] {
            block_on(database.delete_journal(run)).unwrap();
            block_on(database.journal(run).append(0, entries.clone())).unwrap();
        }
        let text = format!(
            "UPDATE uap_entry SET (entry, digest) = (SELECT entry, digest FROM uap_entry WHERE {from})
            WHERE run = 'run' AND n = 2"
        );
        change(&file, &text);
        let refused = block_on(database.journal("run").read()).unwrap_err();
        assert_eq!(refused, JournalError::Damaged { entry: 2 }, "{from}");
        assert_eq!(
            block_on(database.journal("other").read()),
            Ok(entries.clone())
        );
    }
}

/// What another program has put into the tables is measured before it is read.
#[test]
fn a_row_over_the_limit_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let open = || Database::sqlite(&file).unwrap();
    let config = CheckpointConfig::default().with_max_bytes(4096);
    let store = || open().checkpoints_with(&config).unwrap();
    for column in ["about", "state"] {
        let kept = store();
        block_on(kept.delete("s")).unwrap();
        let mut steps = Steps::new(4);
        steps.step(20);
        steps.save(&kept, "s").unwrap();
        change(
            &file,
            &format!("UPDATE uap_checkpoint SET {column} = zeroblob(8388608)"),
        );
        for refused in [
            block_on(store().load("s")).unwrap_err(),
            block_on(store().history("s")).unwrap_err(),
        ] {
            let wanted = CheckpointError::TooLarge {
                bytes: 8 << 20,
                limit: 4096,
            };
            assert_eq!(refused, wanted, "{column}");
        }
    }
    let database = open();
    let run = database.journal("run");
    block_on(run.append(0, super::entries())).unwrap();
    change(
        &file,
        "UPDATE uap_entry SET entry = CAST(zeroblob(268435457) AS TEXT) WHERE n = 1",
    );
    let refused = block_on(run.read()).unwrap_err();
    let wanted = JournalError::Full {
        limit: 256 << 20,
        unit: "bytes",
    };
    assert_eq!(refused, wanted);
}

#[test]
fn a_name_that_is_none_of_ours_is_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let database = Database::sqlite(&file).unwrap();
    let run = database.journal("run");
    block_on(run.append(0, super::entries()[..1].to_vec())).unwrap();
    let mut steps = Steps::new(4);
    steps.step(20);
    steps.save(&database.checkpoints(), "s").unwrap();
    for text in [
        "INSERT INTO uap_session SELECT CAST(zeroblob(1025) AS TEXT), first, next, last FROM uap_session",
        "INSERT INTO uap_run SELECT CAST(zeroblob(1025) AS TEXT), next, bytes, ended, epoch, owner, term_ms, at_ms FROM uap_run",
    ] {
        change(&file, text);
    }
    assert_eq!(block_on(database.checkpoints().list()).unwrap(), ["s"]);
    let now = Timestamp::from_unix_millis(i64::MAX / 2_000_000).unwrap();
    assert_eq!(block_on(database.abandoned(now)).unwrap(), ["run"]);
}

#[test]
fn names_are_listed_up_to_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let database = Database::sqlite(&file).unwrap();
    let many = rusqlite::Connection::open(&file).unwrap();
    let more =
        "INSERT INTO uap_session WITH RECURSIVE c(n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM c)
        SELECT printf('%064d', n), 0, 1, '' FROM c LIMIT ?2";
    // Each takes as many bytes again besides.
    assert_eq!(many.execute(more, (1, 524_288)).unwrap(), 524_288);
    let store = database.checkpoints();
    assert_eq!(block_on(store.list()).unwrap().len(), 524_288);
    assert_eq!(many.execute(more, (524_289, 1)).unwrap(), 1);
    let refused = block_on(store.list()).unwrap_err();
    assert!(
        refused.to_string().contains("more than 64 MiB"),
        "{refused}"
    );
}

#[test]
fn what_is_no_database_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no");
    std::fs::write(&file, "this is no database, however long it is read").unwrap();
    assert!(matches!(Database::sqlite(&file), Err(OpenError::Failed(_))));
    let file = folder.path().join("later");
    drop(Database::sqlite(&file).unwrap());
    change(&file, "UPDATE uap_schema SET version = 2");
    let refused = Database::sqlite(&file).unwrap_err();
    let wanted = OpenError::Version { seen: 2, wanted: 1 };
    assert_eq!(refused, wanted);
}
