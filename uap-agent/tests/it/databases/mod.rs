//! Checkpoints and journals in databases: every test runs over each of them.

#[cfg(all(unix, feature = "external-tests"))]
mod postgres;
mod race;
#[cfg(all(unix, feature = "external-tests"))]
pub(crate) mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{FutureExt as _, join_all};
use uap_agent::journal::{
    Decision, Journal, JournalError, MemoryJournal, Ownership, Paused, Recording, UnknownOutcome,
    Verdict,
};
use uap_agent::sql::Database;
use uap_agent::{
    AgentOptions, AgentState, CheckpointConfig, CheckpointError, CheckpointHistory,
    CheckpointStore, MemoryCheckpoints, agent,
};
use ubos_common::driver::Sleep as _;
use ubos_common::id::IdSource;
use ubos_common::json::{RawBuf, RawObject};
use ubos_common::time::Now;
use ubos_conformance::uap::{check_history, check_journal, check_store, check_writers};
use upp::{Message, Reply, ScriptedModel};

use crate::journal::lease::{Hand, Seen, pay, paying};
use crate::journal::people::{HOUR, careful};
use crate::journal::{asking, strategies};
use crate::log_forks::forks_are_seen;
use crate::log_store::{Steps, a_run_of_another_store_is_overtaken};
use crate::seals::Toy;
use crate::sessions::of_two_runs_one_is_refused;
use crate::stores::{
    a_deleted_session_was_never_seen, forks_have_the_writer_of_their_past,
    nothing_is_replaced_unseen,
};
use crate::support::wait_until;

/// A database that can be opened again, as another process does.
type Open<'a> = &'a dyn Fn() -> Database;

/// The entries of a run that was recorded.
fn entries() -> Vec<RawObject> {
    let [looped, ..] = strategies();
    let recorded = agent(asking(&looped)).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let state = recorded.initial_state();
    block_on(recorded.record(journal.clone(), "go", &state).result()).unwrap();
    block_on(journal.read()).unwrap()
}

fn it_keeps_what_journals_must(open: Open<'_>) {
    let database = open();
    block_on(check_journal(&database.journal("checked"))).unwrap();
    // Runs do not see each other, and another process sees what is written.
    let [looped, ..] = strategies();
    let recorded = agent(asking(&looped)).unwrap();
    let state = recorded.initial_state();
    let run = Arc::new(database.journal("a"));
    let result = block_on(recorded.record(run.clone(), "go", &state).result()).unwrap();
    assert!(block_on(database.journal("b").read()).unwrap().is_empty());
    let other = open();
    let again = block_on(async {
        let resumed = recorded.resume(Arc::new(other.journal("a"))).await;
        resumed.unwrap().result().await
    });
    assert_eq!(again.unwrap(), result);
    block_on(other.delete_journal("a")).unwrap();
    let gone = block_on(recorded.resume(run)).unwrap_err();
    assert_eq!(gone, JournalError::Empty);
    for name in ["zero\0byte".to_owned(), "x".repeat(1025)] {
        let refused = block_on(database.journal(name).read()).unwrap_err();
        assert!(matches!(refused, JournalError::Failed(_)), "{refused}");
    }
    for name in ["zero\0byte".to_owned(), "x".repeat(1025)] {
        let refused = block_on(database.journal(name).append(0, Vec::new())).unwrap_err();
        assert!(matches!(refused, JournalError::Failed(_)), "{refused}");
    }
    block_on(database.journal("ü".repeat(512)).append(0, Vec::new())).unwrap();
    // What would not be read back is not written.
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(300), "]".repeat(300));
    let deep = RawObject::new(RawBuf::assume_sound(deep)).unwrap();
    let run = database.journal("deep");
    let refused = block_on(run.append(0, vec![deep])).unwrap_err();
    assert!(
        matches!(refused, JournalError::Entry { entry: 0, .. }),
        "{refused}"
    );
    assert!(block_on(run.read()).unwrap().is_empty());
}

fn runs_whose_owner_is_gone_are_found(open: Open<'_>) {
    a_decision_does_not_prolong_a_lease(open);
    let database = open();
    let (clock, seen) = (Hand::default(), Seen::default());
    let term = Duration::from_secs(30);
    let owner = |name: &str| {
        let owner = Ownership::new(name).with_term(term);
        owner.with_unknown(UnknownOutcome::AskAgain)
    };
    for (n, name) in ["one", "two"].into_iter().enumerate() {
        let (_open, gate) = oneshot::channel();
        let options = paying(&clock, pay(&seen, Some(gate)));
        let first = agent(options.with_ownership(owner("first"))).unwrap();
        let journal = Arc::new(database.journal(name));
        let mut run = first.record(journal, "go", &first.initial_state());
        // The thread of the database answers a moment later.
        wait_until("the tool is called", || {
            let _ = run.next().now_or_never();
            seen.lock().unwrap().len() > n
        });
    }
    let sweep = || block_on(database.abandoned(clock.now().wall)).unwrap();
    assert!(sweep().is_empty());
    clock.advance(term);
    assert_eq!(sweep(), ["one", "two"]);
    let second = agent(paying(&clock, pay(&seen, None)).with_ownership(owner("second"))).unwrap();
    let run = Arc::new(database.journal("one"));
    let resumed = block_on(async { second.resume(run.clone()).await.unwrap().result().await });
    assert_eq!(resumed.unwrap().turn.response.text(), "paid, paid");
    assert_eq!(sweep(), ["two"]);
    let lease = block_on(Recording::load(run.as_ref())).unwrap().lease();
    assert_eq!((lease.epoch, &*lease.owner), (2, "second"));
    // A run that has ended is nobody's to take over.
    clock.advance(2 * term);
    assert_eq!(sweep(), ["two"]);
}

/// A person's clock may be fast: only what the owner writes prolongs the lease.
fn a_decision_does_not_prolong_a_lease(open: Open<'_>) {
    let (database, clock, seen) = (open(), Hand::default(), Seen::default());
    let owner = Ownership::new("first").with_term(Duration::from_secs(30));
    let first = agent(careful(&clock, &seen).with_ownership(owner)).unwrap();
    let kept = Arc::new(MemoryJournal::default());
    let run = first.record(kept.clone(), "go", &first.initial_state());
    let error = block_on(run.result()).unwrap_err();
    let question = Paused::of(&error.error).unwrap().questions[0].clone();
    let mut entries = block_on(kept.read()).unwrap();
    let sweep = || block_on(database.abandoned(clock.now().wall)).unwrap();
    // It has released the lease: anybody may take it over.
    let paused = database.journal("paused");
    block_on(paused.append(0, entries.clone())).unwrap();
    assert_eq!(sweep(), ["paused"]);
    block_on(database.delete_journal("paused")).unwrap();
    // Its process is gone before it has.
    entries.pop();
    let journal = database.journal("run");
    block_on(journal.append(0, entries)).unwrap();
    let fast = clock.now();
    let fast = Now::new(fast.mono, fast.wall.saturating_add(HOUR / 2));
    let decision = Decision::new(&question, "ann", Verdict::Approve);
    let lease = || block_on(Recording::load(&journal)).unwrap().lease();
    let before = lease();
    block_on(Recording::decide(&journal, fast, &decision)).unwrap();
    assert_eq!(lease(), before);
    assert!(sweep().is_empty());
    clock.advance(Duration::from_secs(30));
    assert_eq!(sweep(), ["run"]);
    block_on(database.delete_journal("run")).unwrap();
}

fn checkpoints_do_what_stores_do(open: Open<'_>) {
    let database = open();
    block_on(check_store(&database.checkpoints())).unwrap();
    block_on(check_history(&database.checkpoints())).unwrap();
    let (one, other) = (database.checkpoints(), open().checkpoints());
    block_on(check_writers(&one, &one)).unwrap();
    block_on(check_writers(&one, &database.checkpoints())).unwrap();
    block_on(check_writers(&one, &other)).unwrap();
    a_run_of_another_store_is_overtaken(|| open().checkpoints());
    forks_are_seen(&one, &other, |_| {});
    forks_have_the_writer_of_their_past(&one);
    a_fork_knows_nothing_of_a_session_before(&one, &other);
    a_deleted_session_was_never_seen(&one, &other);
    nothing_is_replaced_unseen(&one, &other);
    of_two_runs_one_is_refused(&|| Arc::new(open().checkpoints()));
    for session in block_on(one.list()).unwrap() {
        block_on(one.delete(&session)).unwrap();
    }
    // Another process removes a session and begins it anew, up to the same number.
    let (mut kept, mut anew) = (Steps::new(1), Steps::new(2));
    for (steps, store) in [(&mut kept, &one), (&mut anew, &other)] {
        block_on(other.delete("anew")).unwrap();
        steps.step(5);
        steps.save(store, "anew").unwrap();
    }
    assert_eq!(block_on(one.load("anew")).unwrap(), Some(anew.state));
    block_on(one.delete("anew")).unwrap();
    let sealed = || database.checkpoints().with_seal(Arc::new(Toy::new(7)));
    block_on(check_store(&sealed())).unwrap();
    block_on(check_history(&sealed())).unwrap();
    block_on(check_writers(&sealed(), &sealed())).unwrap();
}

/// Whatever is done to a session, the database keeps what memory keeps, and another process reads the same.
fn checkpoints_are_those_of_memory(open: Open<'_>) {
    let database = open();
    let (kept, memory) = (database.checkpoints(), MemoryCheckpoints::default());
    let (mut steps, mut dice) = (Steps::new(1), IdSource::seeded(3));
    let mut saved = Vec::new();
    for n in 0..120_u64 {
        if n % 11 == 10 {
            // Shorter than before.
            let kept: Vec<_> = steps.state.messages().iter().take(3).cloned().collect();
            steps.state = steps.state.with_context(&mut steps.ids, kept);
        }
        let state = steps
            .step(usize::try_from(dice.bits() % 9000).unwrap())
            .clone();
        let metadata = steps.metadata("s");
        saved.push(metadata.checkpoint_id);
        for store in [&kept as &dyn CheckpointHistory, &memory] {
            block_on(store.save(metadata.clone(), state.clone())).unwrap();
        }
        if n % 17 == 16 {
            let keep = usize::try_from(dice.bits() % 12).unwrap();
            let gone = block_on(memory.prune("s", keep)).unwrap();
            // Sometimes another process does it, and this one does not know.
            let pruned = match n % 2 {
                0 => block_on(kept.prune("s", keep)),
                _ => block_on(open().checkpoints().prune("s", keep)),
            };
            assert_eq!(pruned.unwrap(), gone, "{n}");
        }
        if n % 23 == 22 {
            let (at, fork) = (saved[saved.len() - 2], format!("fork {n}"));
            for store in [&kept as &dyn CheckpointHistory, &memory] {
                block_on(store.fork("s", at, &fork)).unwrap();
            }
        }
    }
    let other = open().checkpoints();
    let sessions = block_on(memory.list()).unwrap();
    assert_eq!(block_on(other.list()).unwrap(), sessions);
    for session in &sessions {
        let history = block_on(memory.history(session)).unwrap();
        assert_eq!(block_on(other.history(session)).unwrap(), history);
        for known in history {
            let wanted = block_on(memory.load_at(session, known.checkpoint_id)).unwrap();
            for store in [&kept, &other] {
                let found = block_on(store.load_at(session, known.checkpoint_id)).unwrap();
                assert_eq!(found, wanted);
            }
        }
        assert_eq!(
            block_on(other.load(session)).unwrap(),
            block_on(memory.load(session)).unwrap()
        );
    }
}

fn bounds_hold(open: Open<'_>) {
    let database = open();
    let config = CheckpointConfig::default;
    for (field, config) in [
        ("history", config().with_history(0)),
        ("max_bytes", config().with_max_bytes(0)),
    ] {
        let refused = database.checkpoints_with(&config).unwrap_err();
        let wanted = format!("{field} is 0, but must be at least 1");
        assert_eq!(refused.to_string(), wanted);
    }
    let config = config().with_history(10).with_max_bytes(4096);
    let store = database.checkpoints_with(&config).unwrap();
    let (mut steps, mut last, mut pruned) = (Steps::new(2), None, 0);
    for n in 1..45 {
        let state = steps.step(10).clone();
        let metadata = steps.metadata("short");
        match block_on(store.save(metadata, state.clone())) {
            Ok(()) => last = Some(state),
            Err(CheckpointError::TooLarge { limit: 4096, .. }) => break,
            Err(error) => panic!("{error}"),
        }
        let kept = block_on(store.history("short")).unwrap().len();
        // All up to twice as many as are kept, and never fewer than are kept.
        assert_eq!(kept, if n < 20 { n } else { 10 + (n - 20) % 10 }, "{n}");
        pruned += usize::from(n >= 20);
    }
    assert!(pruned > 0);
    assert_eq!(block_on(store.load("short")).unwrap(), last);
    for name in [String::new(), "zero\0byte".into(), "x".repeat(1025)] {
        assert!(matches!(
            store.takes_session(&name),
            Err(CheckpointError::Session(_))
        ));
        let refused = block_on(store.load(&name)).unwrap_err();
        assert!(matches!(refused, CheckpointError::Session(_)), "{refused}");
    }
    let longest = "ü".repeat(512);
    let state = AgentState::initial(&mut IdSource::seeded(9));
    let metadata = steps.metadata(&longest);
    block_on(store.save(metadata, state.clone())).unwrap();
    assert_eq!(block_on(store.load(&longest)).unwrap(), Some(state));
}

/// A store makes a session by a fork that it knew before another store has deleted it.
fn a_fork_knows_nothing_of_a_session_before(
    store: &dyn CheckpointHistory,
    other: &dyn CheckpointHistory,
) {
    let [mut from, mut before] = [7, 8].map(Steps::new);
    from.step(5);
    from.save(store, "from").unwrap();
    let first = block_on(store.history("from")).unwrap()[0].checkpoint_id;
    // A session of this agent, in which another agent comes after it.
    let mut overtaken = Steps::new(7);
    overtaken.step(5);
    overtaken.save(store, "made anew").unwrap();
    before.agent = "another";
    before.step(5);
    before.save(store, "made anew").unwrap();
    block_on(other.delete("made anew")).unwrap();
    block_on(store.fork("from", first, "made anew")).unwrap();
    // There nobody has come after it.
    let mut back = Steps::new(7);
    back.step(6);
    assert_eq!(back.save(store, "made anew"), Ok(()));
    for session in ["from", "made anew"] {
        block_on(store.delete(session)).unwrap();
    }
}

/// Many sessions at once, each with two turns of its own.
fn a_thousand_sessions_go_side_by_side(open: Open<'_>) {
    const SESSIONS: usize = 1000;
    let database = open();
    let store = Arc::new(database.checkpoints());
    let model = ScriptedModel::with(|request| {
        let said = request
            .messages
            .iter()
            .map(Message::text)
            .collect::<Vec<_>>();
        Some(Reply::text(said.join("|")))
    });
    let agent = agent(AgentOptions::new(Arc::new(model))).unwrap();
    let talk = |n: usize| {
        let (agent, store) = (&agent, store.clone());
        async move {
            let session = agent.session(store, format!("session {n:04}"));
            session.ask(format!("first {n}")).await.unwrap();
            session.ask(format!("second {n}")).await.unwrap();
        }
    };
    block_on(join_all((0..SESSIONS).map(talk)));
    let other = open().checkpoints();
    let names: Vec<_> = (0..SESSIONS).map(|n| format!("session {n:04}")).collect();
    assert_eq!(block_on(other.list()).unwrap(), names);
    for (n, name) in names.iter().enumerate() {
        let state = block_on(other.load(name)).unwrap().unwrap();
        let said: Vec<_> = state.messages().iter().map(Message::text).collect();
        let (first, second) = (format!("first {n}"), format!("second {n}"));
        let again = [&*first, &first, &second].join("|");
        assert_eq!(said, [&*first, &first, &second, &again]);
    }
}
