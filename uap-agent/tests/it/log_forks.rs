//! Forks of sessions in files that only grow, and logs that stand in another session's place.

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use uap_agent::{CheckpointError, CheckpointHistory, CheckpointStore, LogCheckpoints};

use crate::log_store::Steps;

// spec: UAP-12-4
#[test]
fn a_fork_never_takes_the_name_of_a_session_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (
        LogCheckpoints::open(folder.path()).unwrap(),
        LogCheckpoints::open(folder.path()).unwrap(),
    );
    let mut steps = Steps::new(3);
    steps.step(5);
    steps.save(&store, "from").unwrap();
    steps.save(&store, "held here").unwrap();
    steps.save(&other, "held elsewhere").unwrap();
    let first = block_on(store.history("from")).unwrap()[0].checkpoint_id;
    for taken in ["from", "held here", "held elsewhere"] {
        let refused = block_on(store.fork("from", first, taken));
        assert_eq!(refused, Err(CheckpointError::Exists), "{taken}");
    }
    // Of a checkpoint that is not there nothing is made.
    let unknown = steps.ids.uuid();
    let refused = block_on(store.fork("from", unknown, "never"));
    assert!(matches!(refused, Err(CheckpointError::Unknown { .. })));
    assert!(!folder.path().join("never").exists());
    // Who forks has seen what it made, and is told where another went on with it.
    forks_are_seen(&store, &other, |session| {
        block_on(other.release(session)).unwrap()
    });
}

/// A store forks a session, and another one saves there first.
pub(crate) fn forks_are_seen<S: CheckpointHistory>(store: &S, other: &S, release: impl Fn(&str)) {
    let (mut mine, mut theirs) = (Steps::new(5), Steps::new(6));
    mine.step(5);
    mine.save(store, "forked").unwrap();
    let first = block_on(store.history("forked")).unwrap()[0].checkpoint_id;
    block_on(store.fork("forked", first, "the fork")).unwrap();
    theirs.step(5);
    theirs.save(other, "the fork").unwrap();
    release("the fork");
    mine.step(5);
    let refused = mine.save(store, "the fork");
    assert!(
        matches!(refused, Err(CheckpointError::Conflict { .. })),
        "{refused:?}"
    );
    for session in ["forked", "the fork"] {
        block_on(store.delete(session)).unwrap();
    }
}

// spec: UAP-12-4
#[test]
fn what_a_fork_that_was_killed_has_written_is_not_in_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(3);
    for _ in 0..3 {
        steps.step(5);
        steps.save(&store, "s").unwrap();
    }
    drop(store);
    let (begun, whole) = (folder.path().join("fork/new"), folder.path().join("s"));
    fs::create_dir_all(&begun).unwrap();
    for file in fs::read_dir(whole.join(format!("g{:016x}", 0))).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), begun.join(file.file_name())).unwrap();
    }
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let past = block_on(store.history("s")).unwrap();
    block_on(store.fork("s", past[1].checkpoint_id, "fork")).unwrap();
    assert_eq!(block_on(store.history("fork")).unwrap().len(), 2);
}

// spec: UAP-12-4
#[test]
fn a_log_of_another_session_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut steps = Steps::new(3);
    {
        let store = LogCheckpoints::open(folder.path()).unwrap();
        for session in ["ann", "bob"] {
            for _ in 0..3 {
                steps.step(9);
                steps.save(&store, session).unwrap();
            }
        }
        // A fork is a session of its own, and so is one whose past was pruned.
        let second = block_on(store.history("bob")).unwrap()[1].checkpoint_id;
        block_on(store.fork("bob", second, "fork")).unwrap();
        block_on(store.prune("bob", 1)).unwrap();
    }
    for theirs in ["ann", "bob", "fork"] {
        let other = folder.path().join("other");
        copy(&folder.path().join(theirs), &other);
        let store = LogCheckpoints::open(folder.path()).unwrap();
        assert!(block_on(store.load(theirs)).unwrap().is_some());
        assert!(!block_on(store.history(theirs)).unwrap().is_empty());
        let foreign = Some(CheckpointError::Foreign);
        assert_eq!(block_on(store.load("other")).err(), foreign);
        assert_eq!(block_on(store.load_metadata("other")).err(), foreign);
        assert_eq!(block_on(store.history("other")).err(), foreign);
        assert_eq!(steps.save(&store, "other").err(), foreign);
        let first = block_on(store.history(theirs)).unwrap()[0].checkpoint_id;
        assert_eq!(block_on(store.load_at("other", first)).err(), foreign);
        assert_eq!(block_on(store.fork("other", first, "new")).err(), foreign);
        block_on(store.delete("other")).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
