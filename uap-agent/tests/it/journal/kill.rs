//! A process is killed while its agent runs; another one goes on.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{
    FileJournal, Journal, JournalError, JournalFuture, MemoryJournal, Recording,
};
use uap_agent::{AgentOptions, GenerateResult, agent};
use ubos_common::json::RawObject;
use ubos_common::log::{Config, Log, LogId, SimDisk};
use ubos_conformance::uap::check_journal;
use upp::{FnTool, Tool, object};

use super::{everything, strategies};
use crate::support::watched;

const FOLDER: &str = "UAP_JOURNAL_KILL_FOLDER";
const STRATEGY: &str = "UAP_JOURNAL_KILL_STRATEGY";
const PLACE: &str = "UAP_JOURNAL_KILL_PLACE";
const REACHED: &str = "reached ";

/// The agent of all these runs; its tools note in a file of the folder that they run.
fn noting(strategy: usize, folder: &Path, places: Option<Arc<Places>>) -> AgentOptions {
    let tool = |name: &str| {
        let (path, places) = (folder.join("ran"), places.clone());
        let run = move |arguments: RawObject, context: upp::ToolContext| {
            let (path, places) = (path.clone(), places.clone());
            async move {
                let line = format!("{}\n", context.tool_call_id);
                let ran = std::fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(path);
                ran.unwrap().write_all(line.as_bytes()).unwrap();
                places.inspect(|places| places.reach());
                Ok(arguments.into())
            }
        };
        let schema = object(r#"{"type":"object"}"#).unwrap();
        Arc::new(FnTool::new(name, "Echoes", schema, run)) as Arc<dyn Tool>
    };
    everything(&strategies()[strategy]).with_tools([tool("echo"), tool("other")])
}

/// The places that a child comes to, and the one where it waits to be killed.
struct Places {
    stop: usize,
    reached: AtomicUsize,
}

impl Places {
    fn reach(&self) {
        if self.reached.fetch_add(1, Ordering::Relaxed) + 1 == self.stop {
            let line = format!("{REACHED}{}\n", self.stop);
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

/// A journal that comes to a place before and behind each write.
struct Stopping(FileJournal, Arc<Places>);

impl Journal for Stopping {
    fn append(&self, first: u64, entries: Vec<RawObject>) -> JournalFuture<'_, ()> {
        self.1.reach();
        Box::pin(async move {
            let written = self.0.append(first, entries).await;
            self.1.reach();
            written
        })
    }
    fn read(&self) -> JournalFuture<'_, Vec<RawObject>> {
        self.0.read()
    }
    fn default_term(&self) -> Option<Duration> {
        self.0.default_term()
    }
}

/// The child: an agent at work until it is killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let _watched = watched();
    let folder = Path::new(&folder);
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let places = Arc::new(Places {
        stop: number(PLACE),
        reached: AtomicUsize::new(0),
    });
    let agent = agent(noting(number(STRATEGY), folder, Some(Arc::clone(&places)))).unwrap();
    let journal = FileJournal::open(folder.join("journal")).unwrap();
    let state = agent.initial_state();
    let journal = Arc::new(Stopping(journal, places));
    block_on(agent.record(journal, "go", &state).result()).unwrap();
}

/// Runs the child up to a place and kills it there; whether it has come so far.
fn killed(strategy: usize, folder: &Path, place: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "journal::kill::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER, folder)
        .env(STRATEGY, strategy.to_string())
        .env(PLACE, place.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let has_reached = said.into_iter().any(|line| line.contains(REACHED));
    if has_reached {
        // What the system calls a kill cannot be caught.
        child.kill().unwrap();
        child.wait().unwrap();
    } else {
        assert!(child.wait().unwrap().success(), "it comes to its end");
    }
    has_reached
}

/// How often each call has run.
fn ran(folder: &Path) -> BTreeMap<String, u32> {
    let mut ran = BTreeMap::new();
    for line in std::fs::read_to_string(folder.join("ran"))
        .unwrap_or_default()
        .lines()
    {
        *ran.entry(line.to_owned()).or_default() += 1;
    }
    ran
}

/// The calls whose answers are recorded.
fn recorded(entries: &[RawObject]) -> Vec<String> {
    let call = |entry: &RawObject| {
        let json: serde_json::Value = entry.deserialize().unwrap();
        let call = json["answer"]["tool"]["toolCallId"].as_str();
        call.map(str::to_owned)
    };
    entries.iter().filter_map(call).collect()
}

fn uncut(strategy: usize) -> GenerateResult {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(noting(strategy, folder.path(), None)).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let state = agent.initial_state();
    block_on(agent.record(journal, "go", &state).result()).unwrap()
}

// spec: UAP-12-5
#[test]
fn a_killed_process_is_gone_on_with_by_another() {
    for (strategy, _) in strategies().iter().enumerate() {
        let wanted = uncut(strategy);
        let (mut kills, mut partly) = (0, 0);
        for place in (2..).step_by(11) {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            if !killed(strategy, folder, place) {
                break;
            }
            kills += 1;
            let journal = Arc::new(FileJournal::open(folder.join("journal")).unwrap());
            let entries = block_on(journal.read()).unwrap();
            let (done, before) = (recorded(&entries), ran(folder));
            let has_ended = Recording::from_entries(&entries).unwrap().has_ended();
            partly += u32::from(!done.is_empty() && !has_ended);
            let agent = agent(noting(strategy, folder, None)).unwrap();
            let resumed = block_on(async { agent.resume(journal).await.unwrap().result().await });
            assert_eq!(resumed.unwrap(), wanted, "place {place}");
            let after = ran(folder);
            for call in done {
                assert_eq!(
                    before.get(&call),
                    after.get(&call),
                    "place {place}: {call} ran again"
                );
            }
        }
        assert!(
            kills > 6 && partly > 3,
            "{kills} kills, {partly} in the middle of a run"
        );
    }
}

// spec: UAP-12-5
#[test]
fn a_power_cut_at_any_write_is_gone_on_from() {
    let wanted = uncut(0);
    let folder = tempfile::tempdir().unwrap();
    let id = LogId::from_bytes([7; 16]);
    let config = || {
        Config::default()
            .with_log_id(id)
            .with_segment_bytes(1 << 14)
    };
    let (mut cuts, mut resumed) = (0, 0);
    for seed in 0.. {
        let disk = SimDisk::new();
        let agent = agent(noting(0, folder.path(), None)).unwrap();
        let journal = || {
            let log = Log::open_in(disk.dir(), config()).ok()?;
            Some(Arc::new(FileJournal::over(log).unwrap()))
        };
        disk.cut_power_after(3 + seed * 5);
        let ended = journal().map(|journal| {
            let state = agent.initial_state();
            block_on(agent.record(journal, "go", &state).result()).is_ok()
        });
        if ended == Some(true) {
            break;
        }
        cuts += 1;
        disk.restart(seed);
        let Some(journal) = journal() else { continue };
        if block_on(journal.read()).unwrap().is_empty() {
            continue;
        }
        let agent = self::agent(noting(0, folder.path(), None)).unwrap();
        let result = block_on(async { agent.resume(journal).await.unwrap().result().await });
        assert_eq!(result.unwrap(), wanted, "cut {seed}");
        resumed += 1;
    }
    assert!(cuts > 5 && resumed > 5, "{cuts} cuts, {resumed} resumed");
}

// spec: UAP-12-5
#[test]
fn a_folder_is_one_run_and_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let checked = FileJournal::open(folder.path().join("checked")).unwrap();
    block_on(check_journal(&checked)).unwrap();
    let journal = Arc::new(FileJournal::open(&path).unwrap());
    let second = FileJournal::open(&path).unwrap_err();
    assert_eq!(second, JournalError::InUse);
    let second = FileJournal::open_existing(&path).unwrap_err();
    assert_eq!(second, JournalError::InUse);
    assert_eq!(FileJournal::peek(&path), Ok(Vec::new()));
    let agent = agent(noting(0, folder.path(), None)).unwrap();
    let state = agent.initial_state();
    assert_eq!(
        block_on(agent.resume(journal.clone())).unwrap_err(),
        JournalError::Empty
    );
    let result = block_on(agent.record(journal.clone(), "go", &state).result()).unwrap();
    let conflict = block_on(journal.append(3, Vec::new())).unwrap_err();
    assert!(matches!(conflict, JournalError::Conflict { wanted: 3, .. }));
    // Who only looks needs no lock.
    let entries = block_on(journal.read()).unwrap();
    assert!(entries.len() > 3, "{entries:?}");
    assert_eq!(FileJournal::peek(&path), Ok(entries));
    drop(journal);
    let journal = Arc::new(FileJournal::open(&path).unwrap());
    let again = block_on(async { agent.resume(journal).await.unwrap().result().await });
    assert_eq!(again.unwrap(), result);
}

// spec: UAP-12-5
#[test]
fn who_only_looks_creates_nothing_and_tells_damage_from_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    assert!(FileJournal::open_existing(&path).unwrap().is_none());
    assert_eq!(FileJournal::peek(&path), Err(JournalError::Empty));
    assert!(!path.exists());
    // A folder that another is removing.
    std::fs::create_dir(&path).unwrap();
    assert!(FileJournal::open_existing(&path).unwrap().is_none());
    assert_eq!(FileJournal::peek(&path), Err(JournalError::Empty));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    drop(FileJournal::open(&path).unwrap());
    drop(FileJournal::open_existing(&path).unwrap().unwrap());
    let segment = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap();
    let mut bytes = std::fs::read(segment.path()).unwrap();
    bytes[3] ^= 1;
    std::fs::write(segment.path(), bytes).unwrap();
    for damaged in [
        FileJournal::open(&path).err(),
        FileJournal::open_existing(&path).err(),
    ] {
        assert!(
            matches!(damaged, Some(JournalError::Failed(_))),
            "{damaged:?}"
        );
    }
}
