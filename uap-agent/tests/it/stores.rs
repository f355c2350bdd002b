//! What holds of every store, and that the suites find a store of which it does not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::executor::block_on;
use futures::future::FutureExt;
use uap_agent::StoreFuture;
use uap_agent::{
    AgentState, CheckpointConfig, CheckpointError, CheckpointHistory, CheckpointMetadata,
    CheckpointStore, FileCheckpoints, LogCheckpoints, MemoryCheckpointConfig, MemoryCheckpoints,
    StateId, agent,
};
use ubos_common::id::Uuid;
use ubos_conformance::uap::{StoreFault, check_history, check_store, check_writers};

use upp::Reply;

use crate::log_store::Steps;
use crate::seals::Toy;
use crate::support::{calling, options, script, yield_now};

/// The stores in files of a folder.
fn in_files(folder: &Path) -> [Box<dyn CheckpointStore>; 2] {
    [
        Box::new(FileCheckpoints::open(folder.join("files")).unwrap()),
        Box::new(LogCheckpoints::open(folder.join("log")).unwrap()),
    ]
}

// spec: UAP-12-7
#[test]
fn every_store_does_what_stores_do() {
    block_on(check_store(&MemoryCheckpoints::default())).unwrap();
    for seal in [None, Some(Arc::new(Toy::new(7)))] {
        let folder = tempfile::tempdir().unwrap();
        let mut files = FileCheckpoints::open(folder.path()).unwrap();
        let mut log = LogCheckpoints::open(folder.path().join("log")).unwrap();
        if let Some(seal) = seal {
            (files, log) = (files.with_seal(seal.clone()), log.with_seal(seal));
        }
        block_on(check_store(&files)).unwrap();
        block_on(check_store(&log)).unwrap();
    }
}

// spec: UAP-12-4
#[test]
fn every_history_does_what_histories_do() {
    block_on(check_history(&MemoryCheckpoints::default())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = LogCheckpoints::open(folder.path()).unwrap();
    block_on(check_history(&log)).unwrap();
    let log = log.with_seal(Arc::new(Toy::new(7)));
    block_on(check_history(&log)).unwrap();
}

// spec: UAP-12-4
#[test]
fn a_fork_is_of_whoever_saved_its_past() {
    let folder = tempfile::tempdir().unwrap();
    forks_have_the_writer_of_their_past(&MemoryCheckpoints::default());
    forks_have_the_writer_of_their_past(&LogCheckpoints::open(folder.path()).unwrap());
}

/// Who saved the past of a fork is overtaken by who saves there first.
pub(crate) fn forks_have_the_writer_of_their_past(store: &dyn CheckpointHistory) {
    let [mut one, mut other] = [5, 6].map(Steps::new);
    other.agent = "another";
    one.step(5);
    one.save(store, "a past").unwrap();
    let first = block_on(store.history("a past")).unwrap()[0].checkpoint_id;
    block_on(store.fork("a past", first, "its fork")).unwrap();
    other.step(5);
    other.save(store, "its fork").unwrap();
    one.step(5);
    let refused = one.save(store, "its fork");
    assert!(
        matches!(refused, Err(CheckpointError::Conflict { .. })),
        "{refused:?}"
    );
    for session in ["a past", "its fork"] {
        block_on(store.delete(session)).unwrap();
    }
}

// spec: UAP-12-4
#[test]
fn two_writers_are_told_apart_in_every_store() {
    let memory = MemoryCheckpoints::default();
    block_on(check_writers(&memory, &memory)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = || FileCheckpoints::open(folder.path().join("files")).unwrap();
    let (one, other) = (files(), files());
    block_on(check_writers(&one, &one)).unwrap();
    block_on(check_writers(&one, &other)).unwrap();
    let log = || LogCheckpoints::open(folder.path().join("log")).unwrap();
    let (one, other) = (log(), log());
    block_on(check_writers(&one, &one)).unwrap();
    block_on(check_writers(&one, &other)).unwrap();
}

/// One thing that a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    LosesSaves,
    KeepsTheFirst,
    LosesReasoning,
    OldMetadata,
    MixesNames,
    MixesCase,
    ForgetsAll,
    ForgetsNothing,
    UnsortedList,
    TakesAnyName,
    LateSaves,
    HalfHistory,
    BackwardHistory,
    ForksAll,
    ForksOver,
    PrunesNothing,
    PrunesAll,
    PrunesTheWrongEnd,
    AtIsLast,
    NoConflict,
    ComparesNothing,
    TakesNothingForAnything,
    ComparesFirst,
    LosesAnAnswer,
    WrongError,
}

/// Memory with a fault.
struct Faulty {
    inner: MemoryCheckpoints,
    fault: Fault,
    saves: AtomicUsize,
    late: std::sync::Mutex<Vec<(CheckpointMetadata, AgentState)>>,
    took: AtomicBool,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self {
            inner: MemoryCheckpoints::default(),
            fault,
            saves: AtomicUsize::new(0),
            late: std::sync::Mutex::default(),
            took: AtomicBool::new(false),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn name(&self, session: &str) -> String {
        match self.fault {
            Fault::MixesNames => session.replace("%2F", "/"),
            Fault::MixesCase => session.to_lowercase(),
            _ => session.to_owned(),
        }
    }

    fn keep(&self, metadata: CheckpointMetadata, state: AgentState) -> Result<(), CheckpointError> {
        self.inner.save(metadata, state).now_or_never().unwrap()
    }
}

impl CheckpointStore for Faulty {
    fn takes_session(&self, session: &str) -> Result<(), CheckpointError> {
        let refused = self.is(Fault::TakesAnyName) && session == "..";
        if refused {
            Err(CheckpointError::Session("no"))
        } else {
            Ok(())
        }
    }

    fn save<'a>(
        &'a self,
        mut metadata: CheckpointMetadata,
        mut state: AgentState,
    ) -> StoreFuture<'a, ()> {
        async move {
            let n = self.saves.fetch_add(1, Ordering::SeqCst);
            metadata.session_id = self.name(&metadata.session_id);
            let kept = self.inner.load_metadata(&metadata.session_id).await?;
            match self.fault {
                Fault::LosesSaves if n == 20 => return Ok(()),
                Fault::KeepsTheFirst if kept.is_some() => return Ok(()),
                Fault::LosesReasoning => {
                    let json = state.to_json();
                    let from = json.find(",\"reasoning\":").unwrap();
                    let to = from + json[from..].find(']').unwrap() + 1;
                    let cut = format!("{}{}", &json[..from], &json[to..]);
                    state = AgentState::from_json(cut.as_bytes(), &Default::default()).unwrap();
                }
                Fault::OldMetadata if kept.is_some() => {
                    metadata.checkpoint_id = kept.unwrap().checkpoint_id;
                }
                Fault::LateSaves => {
                    // The saves that are asked for together come through in the wrong order.
                    let mut late = self.late.lock().unwrap();
                    if metadata.session_id.starts_with("at once") {
                        late.push((metadata, state));
                        if late.len() == 8 {
                            let names: Vec<_> =
                                late.iter().map(|(m, _)| m.session_id.clone()).collect();
                            for ((mut metadata, state), name) in
                                late.drain(..).zip(names.into_iter().rev())
                            {
                                metadata.session_id = name;
                                self.keep(metadata, state)?;
                            }
                        }
                        return Ok(());
                    }
                }
                Fault::NoConflict => {
                    let session = metadata.session_id.clone();
                    self.inner.load(&session).await?;
                }
                _ => {}
            }
            self.keep(metadata, state)
        }
        .boxed()
    }

    fn save_after<'a>(
        &'a self,
        metadata: CheckpointMetadata,
        state: AgentState,
        after: Option<StateId>,
    ) -> StoreFuture<'a, ()> {
        async move {
            let session = metadata.session_id.clone();
            match self.fault {
                Fault::LosesAnAnswer if self.saves.fetch_add(1, Ordering::SeqCst) == 1 => {
                    self.inner.save_after(metadata, state, after).await?;
                    return Err(CheckpointError::Failed("the answer was lost".into()));
                }
                Fault::ComparesNothing => self.inner.load(&session).await?,
                Fault::TakesNothingForAnything if after.is_none() => {
                    self.inner.load(&session).await?
                }
                Fault::ComparesFirst => {
                    let last = self.inner.load(&session).await?;
                    // Others come in between.
                    yield_now().await;
                    if last.map(|last| last.id()) != after {
                        let found = Uuid::nil();
                        return Err(CheckpointError::Conflict { found });
                    }
                    self.inner.load(&session).await?
                }
                _ => return self.inner.save_after(metadata, state, after).await,
            };
            self.keep(metadata, state)
        }
        .boxed()
    }

    fn load<'a>(&'a self, session: &'a str) -> StoreFuture<'a, Option<AgentState>> {
        async move { self.inner.load(&self.name(session)).await }.boxed()
    }

    fn load_metadata<'a>(
        &'a self,
        session: &'a str,
    ) -> StoreFuture<'a, Option<CheckpointMetadata>> {
        async move {
            let known = self.inner.load_metadata(&self.name(session)).await?;
            Ok(known.map(|mut known| {
                known.session_id = session.to_owned();
                known
            }))
        }
        .boxed()
    }

    fn delete<'a>(&'a self, session: &'a str) -> StoreFuture<'a, ()> {
        async move {
            match self.fault {
                Fault::ForgetsNothing => return Ok(()),
                Fault::ForgetsAll => {
                    for session in self.inner.list().await? {
                        self.inner.delete(&session).await?;
                    }
                }
                _ => {}
            }
            self.inner.delete(&self.name(session)).await
        }
        .boxed()
    }

    fn list(&self) -> StoreFuture<'_, Vec<String>> {
        async move {
            let mut list = self.inner.list().await?;
            if self.is(Fault::UnsortedList) {
                list.reverse();
            }
            Ok(list)
        }
        .boxed()
    }
}

impl CheckpointHistory for Faulty {
    fn history<'a>(&'a self, session: &'a str) -> StoreFuture<'a, Vec<CheckpointMetadata>> {
        async move {
            let mut history = self.inner.history(session).await?;
            match self.fault {
                Fault::HalfHistory => drop(history.drain(..history.len() / 2)),
                Fault::BackwardHistory => history.reverse(),
                _ => {}
            }
            Ok(history)
        }
        .boxed()
    }

    fn load_at<'a>(&'a self, session: &'a str, at: Uuid) -> StoreFuture<'a, Option<AgentState>> {
        match self.fault {
            Fault::AtIsLast => self.inner.load(session),
            _ => self.inner.load_at(session, at),
        }
    }

    fn fork<'a>(&'a self, session: &'a str, at: Uuid, new: &'a str) -> StoreFuture<'a, ()> {
        async move {
            match self.fault {
                Fault::ForksAll => {
                    let last = self.inner.load_metadata(session).await?;
                    let at = last.map_or(at, |last| last.checkpoint_id);
                    self.inner.fork(session, at, new).await
                }
                Fault::ForksOver => {
                    if self.inner.load_at(session, at).await?.is_some() && session != new {
                        self.inner.delete(new).await?;
                    }
                    self.inner.fork(session, at, new).await
                }
                Fault::WrongError => {
                    let forked = self.inner.fork(session, at, new).await;
                    forked.map_err(|_| CheckpointError::Failed("something".into()))
                }
                _ => self.inner.fork(session, at, new).await,
            }
        }
        .boxed()
    }

    fn prune<'a>(&'a self, session: &'a str, keep: usize) -> StoreFuture<'a, usize> {
        async move {
            let history = self.inner.history(session).await?;
            match self.fault {
                Fault::PrunesNothing => Ok(history.len().saturating_sub(keep.max(1))),
                Fault::PrunesAll if keep == 0 => {
                    self.inner.delete(session).await?;
                    Ok(history.len())
                }
                Fault::PrunesTheWrongEnd if history.len() > keep.max(1) => {
                    let first = history[keep.max(1) - 1].checkpoint_id;
                    self.inner.fork(session, first, "aside").await?;
                    self.inner.delete(session).await?;
                    self.inner.fork("aside", first, session).await?;
                    self.inner.delete("aside").await?;
                    self.took.store(true, Ordering::SeqCst);
                    Ok(history.len() - keep.max(1))
                }
                _ => self.inner.prune(session, keep).await,
            }
        }
        .boxed()
    }
}

// spec: UAP-12-7, UAP-12-4
#[test]
fn a_store_with_a_fault_is_found() {
    use Fault::*;
    for fault in [
        LosesSaves,
        KeepsTheFirst,
        LosesReasoning,
        OldMetadata,
        MixesNames,
        MixesCase,
        ForgetsAll,
        ForgetsNothing,
        UnsortedList,
        TakesAnyName,
        LateSaves,
    ] {
        let found = block_on(check_store(&Faulty::new(fault)));
        assert!(
            matches!(found, Err(StoreFault::Wrong(_))),
            "{fault:?}: {found:?}"
        );
    }
    for fault in [
        HalfHistory,
        BackwardHistory,
        ForksAll,
        ForksOver,
        PrunesNothing,
        PrunesAll,
        PrunesTheWrongEnd,
        AtIsLast,
        WrongError,
        ForgetsNothing,
        KeepsTheFirst,
    ] {
        let found = block_on(check_history(&Faulty::new(fault)));
        assert!(
            matches!(found, Err(StoreFault::Wrong(_))),
            "{fault:?}: {found:?}"
        );
    }
    for fault in [
        NoConflict,
        ForgetsNothing,
        KeepsTheFirst,
        ComparesNothing,
        TakesNothingForAnything,
        ComparesFirst,
    ] {
        let store = Faulty::new(fault);
        let found = block_on(check_writers(&store, &store));
        assert!(
            matches!(found, Err(StoreFault::Wrong(_))),
            "{fault:?}: {found:?}"
        );
    }
    // Two stores that know nothing of each other.
    let found = block_on(check_writers(
        &MemoryCheckpoints::default(),
        &MemoryCheckpoints::default(),
    ));
    assert!(matches!(found, Err(StoreFault::Wrong(_))), "{found:?}");
}

// spec: UAP-12-2, UAP-12-4
#[test]
fn a_run_goes_on_behind_its_own_save_whose_answer_was_lost() {
    let store = Arc::new(Faulty::new(Fault::LosesAnAnswer));
    let failed = Arc::new(AtomicUsize::new(0));
    let counted = failed.clone();
    let replies = [
        calling("1", "c1", "{}"),
        calling("2", "c2", "{}"),
        Reply::text("3"),
    ];
    let options = options(&script(replies)).with_on_save_failed(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let agent = agent(options).unwrap();
    let end = block_on(agent.session(store.clone(), "s").ask("go")).unwrap();
    assert_eq!(failed.load(Ordering::SeqCst), 1);
    let kept = block_on(store.load("s")).unwrap();
    assert_eq!(kept.as_ref(), Some(&end.state));
}

#[test]
fn a_setting_of_zero_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = CheckpointConfig::default;
    let file = |config| FileCheckpoints::open_with(folder.path().join("files"), &config).err();
    let log = |config| LogCheckpoints::open_with(folder.path().join("log"), &config).err();
    let memory = |config| MemoryCheckpoints::new(config).err().map(Into::into);
    let refused: [(_, Option<CheckpointError>); 5] = [
        (
            "sessions",
            memory(MemoryCheckpointConfig::default().with_sessions(0)),
        ),
        (
            "history",
            memory(MemoryCheckpointConfig::default().with_history(0)),
        ),
        ("max_bytes", file(config().with_max_bytes(0))),
        ("max_bytes", log(config().with_max_bytes(0))),
        ("history", log(config().with_history(0))),
    ];
    assert!(!folder.path().join("files").exists());
    for (field, error) in refused {
        let error = error.map(|error| error.to_string());
        let wanted = format!("{field} is 0, but must be at least 1");
        assert_eq!(error.as_deref(), Some(&*wanted));
    }
}

// spec: UAP-12-4
#[test]
fn memory_counts_the_sessions_that_forks_make() {
    let config = MemoryCheckpointConfig::default().with_sessions(1);
    let store = MemoryCheckpoints::new(config).unwrap();
    let mut steps = Steps::new(3);
    steps.step(1);
    steps.save(&store, "s").unwrap();
    let first = block_on(store.history("s")).unwrap()[0].checkpoint_id;
    let refused = block_on(store.fork("s", first, "fork"));
    assert_eq!(refused, Err(CheckpointError::Full { limit: 1 }));
    assert_eq!(block_on(store.list()).unwrap(), ["s"]);
}

// spec: UAP-12-4
#[test]
fn memory_keeps_as_many_checkpoints_as_it_says() {
    let config = MemoryCheckpointConfig::default().with_history(2);
    let store = MemoryCheckpoints::new(config).unwrap();
    let mut steps = Steps::new(3);
    let mut saved = Vec::new();
    for _ in 0..3 {
        steps.step(1);
        steps.save(&store, "s").unwrap();
        saved.push(block_on(store.load_metadata("s")).unwrap().unwrap());
        let first = saved.len().saturating_sub(2);
        assert_eq!(block_on(store.history("s")).unwrap(), saved[first..]);
    }
}

// spec: UAP-12-4
#[test]
fn a_session_that_another_store_has_begun_anew_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let open = || in_files(folder.path());
    let mut steps = Steps::new(1);
    for ((store, other), place) in open().iter().zip(open()).zip(["files/s", "log/s"]) {
        steps.step(9);
        steps.save(&**store, "s").unwrap();
        // Somebody removes it by hand.
        std::fs::remove_dir_all(folder.path().join(place)).unwrap();
        steps.step(9);
        steps.save(&*other, "s").unwrap();
        assert_eq!(block_on(store.delete("s")), Err(CheckpointError::InUse));
        let kept = block_on(other.load("s")).unwrap();
        assert_eq!(kept.as_ref(), Some(&steps.state));
    }
}

// spec: UAP-12-3, UAP-12-4
#[test]
fn a_session_that_another_store_has_begun_anew_is_what_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let open = || in_files(folder.path());
    let mut steps = Steps::new(1);
    for ((store, other), place) in open().iter().zip(open()).zip(["files/s", "log/s"]) {
        steps.step(9);
        steps.save(&**store, "s").unwrap();
        // Somebody removes it by hand.
        std::fs::remove_dir_all(folder.path().join(place)).unwrap();
        assert_eq!(block_on(store.load_metadata("s")), Ok(None), "{place}");
        assert_eq!(block_on(store.load("s")), Ok(None), "{place}");
        steps.step(9);
        let saved = steps.metadata("s");
        block_on(other.save(saved.clone(), steps.state.clone())).unwrap();
        assert_eq!(block_on(store.load_metadata("s")), Ok(Some(saved)));
        let loaded = block_on(store.load("s")).unwrap();
        assert_eq!(loaded.as_ref(), Some(&steps.state), "{place}");
    }
}

// spec: UAP-12-4
#[test]
fn a_fork_takes_the_name_of_a_session_that_was_removed_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogCheckpoints::open(folder.path()).unwrap();
    let mut steps = Steps::new(1);
    steps.step(9);
    steps.save(&store, "from").unwrap();
    steps.save(&store, "s").unwrap();
    std::fs::remove_dir_all(folder.path().join("s")).unwrap();
    let first = block_on(store.history("from")).unwrap()[0].checkpoint_id;
    block_on(store.fork("from", first, "s")).unwrap();
    assert_eq!(block_on(store.load("s")), Ok(Some(steps.state.clone())));
    // The store goes on there.
    steps.step(9);
    steps.save(&store, "s").unwrap();
    let other = LogCheckpoints::open(folder.path()).unwrap();
    assert_eq!(block_on(other.load("s")), Ok(Some(steps.state)));
}

// spec: UAP-12-4
#[test]
fn a_deleted_session_is_one_that_its_store_has_never_seen() {
    let folder = tempfile::tempdir().unwrap();
    let open = || in_files(folder.path());
    for (store, other) in open().iter().zip(open()) {
        a_deleted_session_was_never_seen(&**store, &*other);
    }
}

// spec: UAP-12-4
#[test]
fn who_looked_and_found_nothing_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let open = || in_files(folder.path());
    for (store, other) in open().iter().zip(open()) {
        nothing_is_replaced_unseen(&**store, &*other);
    }
}

// spec: UAP-12-4
#[test]
fn a_save_that_is_refused_leaves_the_session_free() {
    let folder = tempfile::tempdir().unwrap();
    let open = || in_files(folder.path());
    let [mut first, mut late] = [1, 2].map(Steps::new);
    first.step(5);
    late.step(9);
    for store in open() {
        first.save(&*store, "s").unwrap();
    }
    for (store, other) in open().iter().zip(open()) {
        // It has seen the last state, and continues from another.
        assert!(block_on(store.load("s")).unwrap().is_some());
        let (metadata, state) = (late.metadata("s"), late.state.clone());
        let refused = block_on(store.save_after(metadata, state, None));
        assert!(
            matches!(refused, Err(CheckpointError::Conflict { .. })),
            "{refused:?}"
        );
        first.step(5);
        first.save(&*other, "s").unwrap();
    }
}

/// A store has looked for a session that was not there, and another store has saved it since.
pub(crate) fn nothing_is_replaced_unseen(store: &dyn CheckpointStore, other: &dyn CheckpointStore) {
    let [mut steps, mut theirs] = [1, 2].map(Steps::new);
    assert_eq!(block_on(store.load("not there")), Ok(None));
    theirs.step(9);
    theirs.save(other, "not there").unwrap();
    block_on(other.release("not there")).unwrap();
    for _ in 0..2 {
        steps.step(9);
        let refused = steps.save(store, "not there");
        assert!(
            matches!(refused, Err(CheckpointError::Conflict { .. })),
            "{refused:?}"
        );
    }
    let kept = block_on(store.load("not there")).unwrap();
    assert_eq!(kept.as_ref(), Some(&theirs.state));
    steps.step(9);
    steps.save(store, "not there").unwrap();
    block_on(store.delete("not there")).unwrap();
}

/// A store that has deleted a session takes the place of what another saves there.
pub(crate) fn a_deleted_session_was_never_seen(
    store: &dyn CheckpointStore,
    other: &dyn CheckpointStore,
) {
    let mut steps = Steps::new(1);
    steps.step(9);
    steps.save(store, "deleted").unwrap();
    block_on(store.delete("deleted")).unwrap();
    steps.step(9);
    steps.save(other, "deleted").unwrap();
    block_on(other.release("deleted")).unwrap();
    steps.step(9);
    steps.save(store, "deleted").unwrap();
    block_on(store.delete("deleted")).unwrap();
}

// spec: UAP-12-3, UAP-12-4
#[test]
fn a_store_takes_the_place_of_a_state_that_is_too_large_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = CheckpointConfig::default().with_max_bytes(4096);
    let mut steps = Steps::new(1);
    let small = steps.step(9).clone();
    steps.step(9000);
    steps
        .save(&FileCheckpoints::open(folder.path()).unwrap(), "s")
        .unwrap();
    steps.state = small.clone();
    let store = FileCheckpoints::open_with(folder.path(), &config).unwrap();
    steps.save(&store, "s").unwrap();
    assert_eq!(block_on(store.load("s")), Ok(Some(small)));
}

// spec: UAP-12-4
#[test]
fn what_a_crash_has_left_beside_a_log_is_removed_by_the_next_save() {
    let folder = tempfile::tempdir().unwrap();
    let mut steps = Steps::new(1);
    for _ in 0..2 {
        let store = LogCheckpoints::open(folder.path()).unwrap();
        steps.step(9);
        steps.save(&store, "s").unwrap();
        drop(store);
        let logs = std::fs::read_dir(folder.path().join("s")).unwrap().count();
        assert_eq!(logs, 1);
        std::fs::create_dir(folder.path().join("s/new")).unwrap();
    }
}

#[test]
fn a_session_whose_name_the_store_refuses_is_not_read() {
    let agent = agent(options(&script([]))).unwrap();
    let session = agent.session(Arc::new(Faulty::new(Fault::TakesAnyName)), "..");
    let refused = block_on(session.state()).unwrap_err();
    assert_eq!(refused, CheckpointError::Session("no"));
}
