//! Checkpoints in files that only grow: what they cost, what crashes leave, and who may write.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use uap_agent::{
    AgentOptions, AgentState, CheckpointConfig, CheckpointError, CheckpointHistory,
    CheckpointMetadata, CheckpointStore, FileCheckpoints, LogCheckpoints, MemoryCheckpoints,
    PlanStep, PlanStepStatus, agent,
};
use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;
use upp::{Message, Reply, ScriptedModel, Stamp, json_text};

pub(crate) struct Steps {
    pub(crate) ids: IdSource,
    pub(crate) state: AgentState,
    pub(crate) agent: &'static str,
}

impl Steps {
    pub(crate) fn new(seed: u64) -> Self {
        let mut ids = IdSource::seeded(seed);
        let state = AgentState::initial(&mut ids);
        Self {
            ids,
            state,
            agent: "agent",
        }
    }

    /// One step with one message of so many bytes.
    pub(crate) fn step(&mut self, bytes: usize) -> &AgentState {
        let (ids, step) = (&mut self.ids, self.state.step() + 1);
        let message = Message::user(Stamp::new(ids, Timestamp::EPOCH), "x".repeat(bytes));
        self.state = self.state.with_message(ids, message).with_step(ids, step);
        &self.state
    }

    pub(crate) fn metadata(&mut self, session: &str) -> CheckpointMetadata {
        let (id, step) = (self.ids.uuid(), self.state.step());
        CheckpointMetadata::new(
            session.into(),
            id,
            Timestamp::EPOCH,
            step,
            self.agent.into(),
        )
    }

    pub(crate) fn save(
        &mut self,
        store: &dyn CheckpointStore,
        session: &str,
    ) -> Result<(), CheckpointError> {
        let metadata = self.metadata(session);
        block_on(store.save(metadata, self.state.clone()))
    }
}

pub(crate) fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

fn written(n: usize, mut step: impl FnMut(&mut Steps, usize)) -> (u64, AgentState) {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(3);
    for n in 0..n {
        step(&mut steps, n);
        steps.save(&store, "s").unwrap();
    }
    drop(store);
    let again = LogCheckpoints::open(folder.path()).unwrap();
    assert_eq!(
        block_on(again.load("s")).unwrap(),
        Some(steps.state.clone())
    );
    assert_eq!(block_on(again.history("s")).unwrap().len(), n);
    drop(again);
    (bytes_below(folder.path()), steps.state)
}

// spec: UAP-12-4
#[test]
fn n_steps_cost_what_they_added() {
    let mut before = 0;
    for n in [250, 500, 1000] {
        let (bytes, state) = written(n, |steps, _| drop(steps.step(10).clone()));
        assert!(bytes < 3 * state.to_json().len() as u64, "{bytes}");
        assert!(before == 0 || bytes < before * 9 / 4, "{before} {bytes}");
        before = bytes;
    }
    // Steps that add nothing, to a state that is large.
    let (bytes, state) = written(400, |steps, n| match n {
        0 => {
            let noted = json_text(&"x".repeat(100_000));
            let state = steps.step(1_000_000).clone();
            steps.state = state.with_metadata(&mut steps.ids, "noted", noted);
        }
        _ => {
            let (ids, n) = (&mut steps.ids, n as u64);
            let state = steps.state.with_step(ids, n);
            steps.state = state.with_metadata(ids, "n", json_text(&n.to_string()));
        }
    });
    assert!(bytes < state.to_json().len() as u64 + 400 * 400, "{bytes}");
    // One step of a long plan changes at a time.
    let plan = |done: usize| -> Vec<PlanStep> {
        let status = |n| {
            if n < done {
                PlanStepStatus::Completed
            } else {
                PlanStepStatus::Pending
            }
        };
        (0..300)
            .map(|n| PlanStep::new(format!("s{n}").into(), "do".into(), vec![], status(n)))
            .collect()
    };
    let (bytes, state) = written(300, |steps, n| {
        steps.step(10);
        steps.state = steps.state.with_plan(&mut steps.ids, plan(n));
    });
    assert!(bytes < 6 * state.to_json().len() as u64, "{bytes}");
}

// spec: UAP-12-4
#[test]
fn loading_is_not_the_whole_past() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(3);
    // Each step replaces what was said before: the past is large, the state small.
    for _ in 0..300 {
        steps.state = steps.state.with_context(&mut steps.ids, Vec::new());
        steps.step(20_000);
        steps.save(&store, "s").unwrap();
    }
    drop(store);
    let log = fs::read_dir(folder.path().join("s"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let segments = fs::read_dir(log.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = segments.filter(|path| path.extension().is_some()).collect();
    segments.sort_unstable();
    assert!(segments.len() >= 5, "{}", segments.len());
    // Damage in what a load needs not read is found by who looks back.
    let mut bytes = fs::read(&segments[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segments[1], bytes).unwrap();
    let again = LogCheckpoints::open(folder.path()).unwrap();
    assert_eq!(
        block_on(again.load("s")).unwrap(),
        Some(steps.state.clone())
    );
    let history = block_on(again.history("s"));
    assert!(
        matches!(history, Err(CheckpointError::Damaged(_))),
        "{history:?}"
    );
    steps.step(1);
    steps.save(&again, "s").unwrap();
    // Who has saved it need not read it.
    for segment in &segments {
        fs::write(segment, "").unwrap();
    }
    assert_eq!(block_on(again.load("s")).unwrap(), Some(steps.state));
}

// spec: UAP-12-4
#[test]
fn a_torn_save_is_cut_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(3);
    for _ in 0..3 {
        steps.step(40);
        steps.save(&store, "s").unwrap();
    }
    let before = steps.state.clone();
    steps.step(5_000);
    steps.save(&store, "s").unwrap();
    drop(store);
    let log = folder.path().join("s/g0000000000000000");
    let segment = log.join("0000000000000000.seg");
    let whole = fs::read(&segment).unwrap();
    // A save that did not get to its end.
    fs::write(&segment, &whole[..whole.len() - 600]).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let store = store.with_on_cut(move |cut| heard.lock().unwrap().push(cut.clone()));
    assert_eq!(block_on(store.load("s")).unwrap(), Some(before.clone()));
    assert_eq!(told.lock().unwrap().len(), 0, "reading cuts nothing");
    steps.state = before;
    steps.step(7);
    steps.save(&store, "s").unwrap();
    {
        let told = told.lock().unwrap();
        assert_eq!((told.len(), told[0].session.as_str()), (1, "s"));
        assert!(told[0].bytes > 4_000, "{}", told[0].bytes);
    }
    assert_eq!(
        block_on(store.load("s")).unwrap(),
        Some(steps.state.clone())
    );
    assert_eq!(block_on(store.history("s")).unwrap().len(), 4);
    drop(store);
    // What was there in full and was changed is no torn save.
    let mut bytes = fs::read(&segment).unwrap();
    bytes[300] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let loaded = block_on(store.load("s"));
    assert!(
        matches!(loaded, Err(CheckpointError::Damaged(_))),
        "{loaded:?}"
    );
    let saved = steps.save(&store, "s");
    assert!(
        matches!(saved, Err(CheckpointError::Damaged(_))),
        "{saved:?}"
    );
    assert_eq!(fs::read(&segment).unwrap(), bytes);
}

/// A store comes back after another has saved.
fn comes_back_late<S: CheckpointStore>(open: impl Fn() -> S, release: impl Fn(&S)) {
    let (one, other) = (open(), open());
    let mut steps = Steps::new(1);
    steps.step(3);
    steps.save(&one, "s").unwrap();
    let mut theirs = Steps::new(2);
    theirs.state = block_on(other.load("s")).unwrap().unwrap();
    theirs.step(4);
    assert_eq!(theirs.save(&other, "s"), Err(CheckpointError::InUse));
    assert_eq!(block_on(other.delete("s")), Err(CheckpointError::InUse));
    release(&one);
    theirs.save(&other, "s").unwrap();
    steps.step(5);
    assert_eq!(steps.save(&one, "s"), Err(CheckpointError::InUse));
    release(&other);
    let is_conflict = |saved| matches!(saved, Err(CheckpointError::Conflict { .. }));
    assert!(is_conflict(steps.save(&one, "s")));
    // Looking at metadata is no reason to forget it.
    block_on(one.load_metadata("s")).unwrap().unwrap();
    assert!(is_conflict(steps.save(&one, "s")));
    // The refused one holds nothing up, and goes on from what it has seen by now.
    theirs.step(4);
    theirs.save(&other, "s").unwrap();
    release(&other);
    assert_eq!(block_on(one.load("s")).unwrap(), Some(theirs.state.clone()));
    steps.state = theirs.state;
    steps.step(7);
    steps.save(&one, "s").unwrap();
    release(&one);
    theirs.state = block_on(other.load("s")).unwrap().unwrap();
    theirs.step(6);
    theirs.save(&other, "s").unwrap();
    release(&other);
    drop(one);
    let one = open();
    steps.state = block_on(one.load("s")).unwrap().unwrap();
    steps.step(7);
    steps.save(&one, "s").unwrap();
    drop((one, other));
    // Who has never looked takes the place of what is there.
    let fresh = open();
    let mut steps = Steps::new(9);
    steps.step(1);
    steps.save(&fresh, "s").unwrap();
    assert_eq!(block_on(fresh.load("s")).unwrap(), Some(steps.state));
}

// spec: UAP-12-4
#[test]
fn a_store_that_comes_back_late_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    comes_back_late(
        || LogCheckpoints::open(folder.path().join("log")).unwrap(),
        |store| block_on(store.release("s")).unwrap(),
    );
    comes_back_late(
        || FileCheckpoints::open(folder.path().join("files")).unwrap(),
        |store| block_on(store.release("s")).unwrap(),
    );
    let store = LogCheckpoints::open(folder.path().join("log")).unwrap();
    assert_eq!(block_on(store.history("s")).unwrap().len(), 7);
}

// spec: UAP-12-4
#[test]
fn a_session_that_was_let_go_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut many: Vec<_> = (0..80).map(Steps::new).collect();
    for _ in 0..3 {
        for (n, steps) in many.iter_mut().enumerate() {
            steps.step(5);
            steps.save(&store, &format!("s{n}")).unwrap();
        }
    }
    // More sessions than are held: the first ones are free by now, the last ones are not.
    let other = LogCheckpoints::open(folder.path()).unwrap();
    many[0].step(1);
    many[0].save(&other, "s0").unwrap();
    many[79].step(1);
    assert_eq!(many[79].save(&other, "s79"), Err(CheckpointError::InUse));
    // One that begins anew takes its own place, not that of the oldest.
    fs::remove_dir_all(folder.path().join("s79")).unwrap();
    many[79].save(&store, "s79").unwrap();
    assert_eq!(many[16].save(&other, "s16"), Err(CheckpointError::InUse));
    drop(other);
    many[0].step(1);
    let refused = many[0].save(&store, "s0");
    assert!(
        matches!(refused, Err(CheckpointError::Conflict { .. })),
        "{refused:?}"
    );
    // Once it has looked, it goes on from there.
    assert!(block_on(store.load("s0")).unwrap().is_some());
    many[0].save(&store, "s0").unwrap();
    for (n, steps) in many.iter().enumerate().skip(1).take(70) {
        let loaded = block_on(store.load(&format!("s{n}"))).unwrap();
        assert_eq!(loaded.as_ref(), Some(&steps.state));
    }
}

/// A store begins where another has ended, and the run of that one goes on in it.
pub(crate) fn a_run_of_another_store_is_overtaken<S: CheckpointStore>(open: impl Fn() -> S) {
    let (mut one, mut other) = (Steps::new(1), Steps::new(2));
    one.step(3);
    one.save(&open(), "overtaken").unwrap();
    let store = open();
    // It has not looked, so it takes the place of what is there.
    other.step(4);
    other.save(&store, "overtaken").unwrap();
    one.step(5);
    let refused = one.save(&store, "overtaken");
    assert!(
        matches!(refused, Err(CheckpointError::Conflict { .. })),
        "{refused:?}"
    );
    assert_eq!(
        block_on(store.load("overtaken")),
        Ok(Some(other.state.clone()))
    );
    // Who looks may go on.
    one.save(&store, "overtaken").unwrap();
    // A deleted session has no past, neither for its last writer nor for one that was overtaken.
    for writer in [&mut one, &mut other] {
        block_on(store.delete("overtaken")).unwrap();
        writer.save(&store, "overtaken").unwrap();
    }
    one.step(5);
    let refused = one.save(&store, "overtaken");
    assert_eq!(
        refused,
        Ok(()),
        "it has not saved since the session was deleted"
    );
    block_on(store.delete("overtaken")).unwrap();
}

// spec: UAP-12-4
#[test]
fn a_run_of_another_log_store_is_overtaken() {
    let folder = tempfile::tempdir().unwrap();
    a_run_of_another_store_is_overtaken(|| LogCheckpoints::open(folder.path()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    a_run_of_another_store_is_overtaken(|| FileCheckpoints::open(folder.path()).unwrap());
}

// spec: UAP-12-4
#[test]
fn a_session_that_was_pruned_stays_held() {
    let folder = tempfile::tempdir().unwrap();
    let [store, other] = [(); 2].map(|()| LogCheckpoints::open(folder.path()).unwrap());
    let mut steps = Steps::new(1);
    for _ in 0..3 {
        steps.step(5);
        steps.save(&store, "s").unwrap();
    }
    assert_eq!(block_on(store.prune("s", 1)), Ok(2));
    assert_eq!(steps.save(&other, "s"), Err(CheckpointError::InUse));
    steps.step(5);
    steps.save(&store, "s").unwrap();
    assert_eq!(block_on(store.history("s")).unwrap().len(), 2);
}

// spec: UAP-12-4
#[test]
fn a_long_session_is_pruned_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let config = CheckpointConfig::default().with_history(10);
    let store = LogCheckpoints::open_with(folder.path(), &config).unwrap();
    let mut steps = Steps::new(1);
    for n in 1..=55 {
        steps.step(2_000);
        steps.save(&store, "s").unwrap();
        let history = block_on(store.history("s")).unwrap();
        // All up to twice as many as are kept, and never fewer than are kept.
        let kept = if n < 20 { n } else { 10 + (n - 20) % 10 };
        assert_eq!(history.len(), kept, "{n}");
        assert_eq!(history.last().unwrap().step, n as u64);
    }
    let first = block_on(store.history("s")).unwrap()[0].clone();
    let state = block_on(store.load_at("s", first.checkpoint_id))
        .unwrap()
        .unwrap();
    assert_eq!(state.messages().len() as u64, first.step);
    drop(store);
    let logs = fs::read_dir(folder.path().join("s")).unwrap().count();
    assert_eq!(logs, 1);
}

// spec: UAP-12-3, UAP-12-4
#[test]
fn what_is_too_large_is_not_written_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (files, log) = (folder.path().join("files"), folder.path().join("log"));
    let open = |bytes| -> [Box<dyn CheckpointStore>; 2] {
        let config = CheckpointConfig::default().with_max_bytes(bytes);
        [
            Box::new(FileCheckpoints::open_with(&files, &config).unwrap()),
            Box::new(LogCheckpoints::open_with(&log, &config).unwrap()),
        ]
    };
    let mut steps = Steps::new(1);
    steps.step(50_000);
    for store in open(40_000) {
        let refused = steps.save(&*store, "s");
        assert!(
            matches!(
                refused,
                Err(CheckpointError::TooLarge { limit: 40_000, .. })
            ),
            "{refused:?}"
        );
        assert_eq!(block_on(store.load("s")), Ok(None));
        // Differences add up.
        let mut steps = Steps::new(1);
        let refused = (0..50).find_map(|_| {
            steps.step(1_000);
            steps.save(&*store, "t").err()
        });
        assert!(
            matches!(refused, Some(CheckpointError::TooLarge { .. })),
            "{refused:?}"
        );
        assert!(block_on(store.load("t")).unwrap().unwrap().messages().len() > 20);
    }
    for store in open(1 << 20) {
        steps.save(&*store, "s").unwrap();
    }
    for store in open(4) {
        let refused = block_on(store.load("s"));
        assert!(refused.is_err(), "{refused:?}");
    }
    // Nothing was put aside.
    for store in open(1 << 20) {
        assert_eq!(
            block_on(store.load("s")).unwrap(),
            Some(steps.state.clone())
        );
    }
}

// spec: UAP-12-3
#[test]
fn a_state_of_exactly_the_limit_is_kept() {
    let mut steps = Steps::new(1);
    steps.step(100);
    let bytes = steps.state.to_json().len();
    for (limit, fits) in [(bytes, true), (bytes - 1, false)] {
        let folder = tempfile::tempdir().unwrap();
        let open = |limit| {
            let config = CheckpointConfig::default().with_max_bytes(limit);
            FileCheckpoints::open_with(folder.path(), &config).unwrap()
        };
        assert_eq!(steps.save(&open(limit), "s").is_ok(), fits);
        steps.save(&open(1 << 20), "s").unwrap();
        let loaded = block_on(open(limit).load("s"));
        match fits {
            true => assert_eq!(loaded, Ok(Some(steps.state.clone()))),
            false => assert_eq!(loaded, Err(CheckpointError::TooLarge { bytes, limit })),
        }
    }
}

// spec: UAP-12-1, UAP-12-3
#[test]
fn whatever_was_saved_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn CheckpointStore>; 2] = [
        Box::new(FileCheckpoints::open(folder.path().join("files")).unwrap()),
        Box::new(LogCheckpoints::open(folder.path().join("log")).unwrap()),
    ];
    let mut steps = Steps::new(1);
    // An image's worth of text, and more messages than a message from a stranger may have elements.
    steps.step(6 << 20);
    for _ in 0..100_100 {
        steps.step(0);
    }
    let ids = &mut steps.ids;
    let deep = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let deep = ubos_common::json::RawBuf::parse(&deep).unwrap();
    steps.state = steps.state.with_metadata(ids, "deep", deep);
    for store in &stores {
        steps.save(&**store, "s").unwrap();
        assert_eq!(
            block_on(store.load("s")).unwrap().as_ref(),
            Some(&steps.state)
        );
    }
    steps.step(5);
    steps.save(&*stores[1], "s").unwrap();
    drop(stores);
    let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
    assert_eq!(block_on(log.load("s")).unwrap(), Some(steps.state));
}

// spec: UAP-12-2, UAP-12-4
#[test]
fn two_agents_that_run_in_one_session_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn CheckpointStore> = Arc::new(LogCheckpoints::open(folder.path()).unwrap());
    let failed = Arc::new(Mutex::new(Vec::new()));
    let make = || {
        let heard = Arc::clone(&failed);
        let model = Arc::new(ScriptedModel::new(
            (0..4).map(|n| Reply::text(format!("r{n}"))),
        ));
        let options = AgentOptions::new(model).with_checkpoints(Arc::clone(&store));
        let options = options.with_session_id("s");
        agent(options.with_on_save_failed(move |error| heard.lock().unwrap().push(error.clone())))
            .unwrap()
    };
    let (one, other) = (make(), make());
    let begun = block_on(one.ask("a", &one.initial_state())).unwrap().state;
    // Another agent may go on with it, and the first one after that: the conversation is handed over.
    let handed = block_on(other.ask("b", &begun)).unwrap().state;
    let back = block_on(one.ask("c", &handed)).unwrap().state;
    assert_eq!(failed.lock().unwrap().len(), 0);
    // The other one goes on from what it knew.
    block_on(other.ask("d", &handed)).unwrap();
    assert!(matches!(
        failed.lock().unwrap()[..],
        [CheckpointError::Conflict { .. }]
    ));
    assert_eq!(block_on(store.load("s")).unwrap(), Some(back.clone()));
    // Now it has been told.
    block_on(other.ask("e", &handed)).unwrap();
    assert_eq!(failed.lock().unwrap().len(), 1);
}

// spec: UAP-12-3, UAP-12-4
#[test]
fn a_session_that_was_removed_by_hand_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn CheckpointStore>; 2] = [
        Box::new(FileCheckpoints::open(folder.path().join("files")).unwrap()),
        Box::new(LogCheckpoints::open(folder.path().join("log")).unwrap()),
    ];
    let mut steps = Steps::new(1);
    for n in 0..3 {
        for (store, place) in stores.iter().zip(["files/s", "log/s"]) {
            steps.step(9);
            steps.save(&**store, "s").unwrap();
            if n == 1 {
                fs::remove_dir_all(folder.path().join(place)).unwrap();
                steps.step(9);
                steps.save(&**store, "s").unwrap();
            }
        }
    }
    drop(stores);
    let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
    assert_eq!(block_on(log.history("s")).unwrap().len(), 2);
    assert_eq!(
        block_on(log.load("s")).unwrap().as_ref(),
        Some(&steps.state)
    );
    // What was removed is not told, even where nothing can take its place.
    steps.step(9);
    steps.save(&log, "s").unwrap();
    fs::remove_dir_all(folder.path().join("log/s")).unwrap();
    fs::write(folder.path().join("log/s"), "").unwrap();
    steps.step(9);
    steps.save(&log, "s").unwrap_err();
    assert!(!matches!(block_on(log.load("s")), Ok(Some(_))));
    let files = FileCheckpoints::open(folder.path().join("files")).unwrap();
    assert!(block_on(files.load("s")).unwrap().is_some());
}

// spec: UAP-12-4, UAP-12-5
#[test]
fn a_save_that_is_asked_for_again_is_one_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let log = || LogCheckpoints::open(folder.path()).unwrap();
    let memory = MemoryCheckpoints::default();
    let mut steps = Steps::new(3);
    steps.step(10);
    steps.save(&log(), "s").unwrap();
    steps.save(&memory, "s").unwrap();
    steps.step(10);
    let last = steps.metadata("s");
    // The process was killed before it could say that the save is done: the next one saves again.
    for _ in 0..2 {
        block_on(log().save(last.clone(), steps.state.clone())).unwrap();
        block_on(memory.save(last.clone(), steps.state.clone())).unwrap();
    }
    for history in [log().history("s"), memory.history("s")] {
        let history = block_on(history).unwrap();
        assert_eq!((history.len(), history.last()), (2, Some(&last)));
    }
    // The same state under another id is another checkpoint.
    steps.save(&log(), "s").unwrap();
    steps.save(&memory, "s").unwrap();
    for history in [log().history("s"), memory.history("s")] {
        assert_eq!(block_on(history).unwrap().len(), 3);
    }
}

// spec: UAP-12-4
#[test]
fn a_log_with_the_last_number_there_is_takes_no_store_down() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(3);
    for _ in 0..3 {
        steps.step(10);
        steps.save(&store, "s").unwrap();
    }
    drop(store);
    let log = |number: u64| folder.path().join("s").join(format!("g{number:016x}"));
    fs::rename(log(0), log(u64::MAX)).unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let pruned = block_on(store.prune("s", 1));
    assert!(matches!(pruned, Err(CheckpointError::Damaged(_))));
    assert_eq!(block_on(store.load("s")), Ok(Some(steps.state)));
}

// spec: UAP-12-4
#[test]
fn sessions_that_differ_in_case_alone_have_folders_that_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let sessions = ["ALICE", "Alice", "alice"];
    for (seed, session) in (1..).zip(sessions) {
        let mut steps = Steps::new(seed);
        steps.step(1);
        steps.save(&store, session).unwrap();
    }
    assert_eq!(block_on(store.list()).unwrap(), sessions);
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_ascii_lowercase());
    assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 3);
}

// spec: UAP-12-1, UAP-12-4
#[test]
fn a_state_that_would_not_be_read_back_is_not_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let log = || LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(3);
    steps.step(10);
    let sound = steps.state.clone();
    let again = sound.messages().get(0).unwrap().clone();
    steps.state = sound.with_message(&mut steps.ids, again);
    let is_refused = |error| matches!(error, CheckpointError::Unreadable(_));
    assert!(is_refused(steps.save(&log(), "s").unwrap_err()));
    assert_eq!(block_on(log().load("s")), Ok(None));
    // As a difference it can be read, so it is kept, and not made whole later.
    let doubled = std::mem::replace(&mut steps.state, sound);
    steps.save(&log(), "s").unwrap();
    steps.state = doubled.clone();
    steps.save(&log(), "s").unwrap();
    assert!(is_refused(block_on(log().prune("s", 1)).unwrap_err()));
    assert_eq!(block_on(log().load("s")), Ok(Some(doubled)));
}

// spec: UAP-12-4
#[test]
fn metadata_that_are_not_ours_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut steps = Steps::new(3);
    steps.step(5);
    let ours = steps.metadata("s");
    let text = ubos_common::json::to_string(&ours);
    let more = text.replacen('{', r#"{"x-team":{"a":[1]},"#, 1);
    let limits = ubos_common::json::Limits::default();
    let lenient = ubos_common::violation::Profile::Lenient;
    let (more, _) =
        ubos_common::json::decode::<CheckpointMetadata>(more.as_bytes(), &limits, lenient).unwrap();
    assert_ne!(more, ours);
    let store = LogCheckpoints::open(folder.path()).unwrap();
    block_on(store.save(more.clone(), steps.state.clone())).unwrap();
    drop(store);
    let store = LogCheckpoints::open(folder.path()).unwrap();
    assert_eq!(block_on(store.load_metadata("s")).unwrap(), Some(more));
}

// spec: UAP-12-2, UAP-12-4
#[test]
fn each_checkpoint_names_the_agent_that_saved_it() {
    let folder = tempfile::tempdir().unwrap();
    let agents = ["one", "one", "other", "other", "one"];
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(9);
    for agent in agents {
        steps.agent = agent;
        steps.step(5);
        steps.save(&store, "s").unwrap();
    }
    drop(store);
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let past = block_on(store.history("s")).unwrap();
    let saved: Vec<&str> = past.iter().map(|save| &*save.agent_id).collect();
    assert_eq!(saved, agents);
}

// spec: UAP-12-4
#[test]
fn the_folder_of_a_store_is_there_once_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("some").join("where");
    let store = LogCheckpoints::open(&place).unwrap();
    assert!(place.is_dir());
    drop(store);
    // A file in its place is no store.
    let place = folder.path().join("file");
    fs::write(&place, "").unwrap();
    let refused = LogCheckpoints::open(&place).unwrap_err();
    assert!(matches!(refused, CheckpointError::Failed(_)), "{refused}");
}
