//! A process is killed while its agent runs; another one goes on.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{FileJournal, Journal, JournalError, MemoryJournal, Recording};
use uap_agent::{AgentOptions, GenerateResult, agent};
use ubos_common::json::RawObject;
use upp::{FnTool, Tool, object};

use super::{everything, strategies};

const FOLDER: &str = "UAP_JOURNAL_KILL_FOLDER";
const STRATEGY: &str = "UAP_JOURNAL_KILL_STRATEGY";
const REACHED: &str = "reached ";

/// The agent of all these runs; its tools note in a file of the folder that they run, and take a while.
fn noting(strategy: usize, folder: &Path, pause: Duration) -> AgentOptions {
    let tool = |name: &str| {
        let path = folder.join("ran");
        let run = move |arguments: RawObject, context: upp::ToolContext| {
            let path = path.clone();
            async move {
                let line = format!("{}\n", context.tool_call_id);
                let mut ran = std::fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(path)
                    .unwrap();
                ran.write_all(line.as_bytes()).unwrap();
                if !pause.is_zero() {
                    say();
                    std::thread::sleep(pause);
                }
                Ok(arguments.into())
            }
        };
        Arc::new(FnTool::new(
            name,
            "Echoes",
            object(r#"{"type":"object"}"#).unwrap(),
            run,
        )) as Arc<dyn Tool>
    };
    everything(&strategies()[strategy]).with_tools([tool("echo"), tool("other")])
}

/// One write a line: a kill cannot mix two.
fn say() {
    let line = format!("{REACHED}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// The child: an agent at work until it is killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let strategy = std::env::var(STRATEGY).unwrap().parse().unwrap();
    let agent = agent(noting(strategy, folder, Duration::from_millis(3))).unwrap();
    let journal = Arc::new(FileJournal::open(folder.join("journal")).unwrap());
    say();
    let state = agent.initial_state();
    block_on(agent.record(journal).generate("go", &state)).unwrap();
}

/// Runs the child, and kills it a moment after it has said so many lines; whether it was still at work.
fn killed(strategy: usize, folder: &Path, lines: usize, after: Duration) -> bool {
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
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It is read from for as long as the child lives: a pipe that breaks would end it otherwise.
    let mut said = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let reached = said
        .by_ref()
        .filter(|line| line.contains(REACHED))
        .take(lines)
        .count();
    if reached == lines {
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    !status.success()
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
    let agent = agent(noting(strategy, folder.path(), Duration::ZERO)).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let state = agent.initial_state();
    block_on(agent.record(journal).generate("go", &state)).unwrap()
}

// spec: UAP-12-5
#[test]
fn a_killed_process_is_gone_on_with_by_another() {
    const ROUNDS: usize = 7;
    for (strategy, _) in strategies().iter().enumerate() {
        let wanted = uncut(strategy);
        let (mut kills, mut partly) = (0, 0);
        for round in 0..ROUNDS {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let after = Duration::from_micros(round as u64 * 977 % 4_000);
            kills += u32::from(killed(strategy, folder, 1 + round, after));
            let journal = Arc::new(FileJournal::open(folder.join("journal")).unwrap());
            let entries = block_on(journal.read()).unwrap();
            if entries.is_empty() {
                continue;
            }
            let (done, before) = (recorded(&entries), ran(folder));
            partly += u32::from(
                !done.is_empty() && !Recording::from_entries(&entries).unwrap().has_ended(),
            );
            let agent = agent(noting(strategy, folder, Duration::ZERO)).unwrap();
            let resumed = block_on(async { agent.resume(journal).await.unwrap().result().await });
            assert_eq!(resumed.unwrap(), wanted, "round {round}");
            let after = ran(folder);
            for call in done {
                assert_eq!(
                    before.get(&call),
                    after.get(&call),
                    "round {round}: {call} ran again"
                );
            }
        }
        assert!(
            kills > 4 && partly > 2,
            "{kills} kills, {partly} in the middle of a run"
        );
    }
}

// spec: UAP-12-5
#[test]
fn a_folder_is_one_run_and_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Arc::new(FileJournal::open(&path).unwrap());
    assert!(FileJournal::open(&path).is_err());
    let agent = agent(noting(0, folder.path(), Duration::ZERO)).unwrap();
    let state = agent.initial_state();
    assert_eq!(
        block_on(agent.resume(journal.clone())).unwrap_err(),
        JournalError::Empty
    );
    let result = block_on(agent.record(journal.clone()).generate("go", &state)).unwrap();
    let conflict = block_on(journal.append(3, Vec::new())).unwrap_err();
    assert!(matches!(conflict, JournalError::Conflict { wanted: 3, .. }));
    drop(journal);
    let journal = Arc::new(FileJournal::open(&path).unwrap());
    let again = block_on(async { agent.resume(journal).await.unwrap().result().await });
    assert_eq!(again.unwrap(), result);
}
