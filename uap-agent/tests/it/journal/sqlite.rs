//! Journals in SQLite.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{FutureExt, join};
use uap_agent::agent;
use uap_agent::journal::{
    Journal, JournalError, Ownership, Recording, SqliteJournals, UnknownOutcome,
};
use ubos_common::driver::Sleep;
use ubos_conformance::uap::check_journal;

use super::lease::{Hand, Seen, pay, paying};
use super::{asking, strategies};

// spec: UAP-12-5
#[test]
fn a_database_keeps_what_journals_must() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let journals = SqliteJournals::open(&file).unwrap();
    block_on(check_journal(&journals.run("checked"))).unwrap();
    // Runs do not see each other, and another process sees what is written.
    let [looped, ..] = strategies();
    let recorded = agent(asking(&looped)).unwrap();
    let state = recorded.initial_state();
    let run = Arc::new(journals.run("a"));
    let result = block_on(recorded.record(run.clone(), "go", &state).result()).unwrap();
    assert!(block_on(journals.run("b").read()).unwrap().is_empty());
    let other = SqliteJournals::open(&file).unwrap();
    let again = block_on(async {
        recorded
            .resume(Arc::new(other.run("a")))
            .await
            .unwrap()
            .result()
            .await
    });
    assert_eq!(again.unwrap(), result);
    block_on(other.delete("a")).unwrap();
    assert_eq!(
        block_on(recorded.resume(run)).unwrap_err(),
        JournalError::Empty
    );
    std::fs::write(
        folder.path().join("no"),
        "this is no database, however long it is read",
    )
    .unwrap();
    assert!(SqliteJournals::open(folder.path().join("no")).is_err());
}

// spec: UAP-12-5
#[test]
fn runs_whose_owner_is_gone_are_found_and_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let journals = SqliteJournals::open(folder.path().join("runs.db")).unwrap();
    let (clock, seen) = (Hand::default(), Seen::default());
    let term = Duration::from_secs(30);
    let owner = |name: &str| {
        Ownership::new(name)
            .with_term(term)
            .with_unknown(UnknownOutcome::AskAgain)
    };
    for name in ["one", "two"] {
        let (_open, gate) = oneshot::channel();
        let first =
            agent(paying(&clock, pay(&seen, Some(gate))).with_ownership(owner("first"))).unwrap();
        let mut run = first.record(Arc::new(journals.run(name)), "go", &first.initial_state());
        // The thread of the database answers a moment later.
        block_on(async {
            while run.next().await.is_some_and(|event| {
                !ubos_common::json::to_string(&event).contains("tool_execution_start")
            }) {}
        });
        while seen.lock().unwrap().len() < if name == "one" { 1 } else { 2 } {
            let _ = run.next().now_or_never();
            std::thread::yield_now();
        }
    }
    let sweep = || block_on(journals.abandoned(clock.now().wall)).unwrap();
    assert!(sweep().is_empty());
    clock.advance(term);
    assert_eq!(sweep(), ["one", "two"]);
    let second = agent(paying(&clock, pay(&seen, None)).with_ownership(owner("second"))).unwrap();
    let run = Arc::new(journals.run("one"));
    let resumed = block_on(async { second.resume(run.clone()).await.unwrap().result().await });
    assert_eq!(resumed.unwrap().turn.response.text(), "paid, paid");
    assert_eq!(sweep(), ["two"]);
    let lease = block_on(Recording::load(run.as_ref())).unwrap().lease();
    assert_eq!((lease.epoch, &*lease.owner), (2, "second"));
}

// spec: UAP-12-5
#[test]
fn of_two_who_race_for_a_run_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let journals = [
        SqliteJournals::open(&file).unwrap(),
        SqliteJournals::open(&file).unwrap(),
    ];
    let [looped, ..] = strategies();
    let recorded = agent(asking(&looped)).unwrap();
    let whole = Arc::new(uap_agent::journal::MemoryJournal::default());
    let state = recorded.initial_state();
    block_on(recorded.record(whole.clone(), "go", &state).result()).unwrap();
    let entries = block_on(whole.read()).unwrap();
    let mut winners = BTreeSet::new();
    for round in 0..50 {
        let name = format!("run {round}");
        block_on(
            journals[0]
                .run(name.as_str())
                .append(0, entries[..6].to_vec()),
        )
        .unwrap();
        let take = |n: usize| {
            let owner = Ownership::new(n.to_string()).with_term(Duration::from_secs(3600));
            let agent = agent(asking(&looped).with_ownership(owner)).unwrap();
            let run = Arc::new(journals[n].run(name.as_str()));
            async move {
                match agent.resume(run).await {
                    Ok(run) => run
                        .result()
                        .await
                        .map(drop)
                        .map_err(|error| error.error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
        };
        let (one, other) = block_on(join(take(0), take(1)));
        let won: Vec<_> = [&one, &other]
            .iter()
            .filter(|end| end.is_ok())
            .copied()
            .collect();
        // The second may come when the first has ended, and gets its result.
        assert!(!won.is_empty(), "{one:?} {other:?}");
        let recording = block_on(Recording::load(&journals[0].run(name.as_str()))).unwrap();
        assert!(recording.has_ended());
        assert_eq!(recording.lease().epoch, 2, "one took it");
        winners.insert(recording.lease().owner);
    }
    assert!(!winners.is_empty());
}
