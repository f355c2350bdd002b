//! Two processes race for runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::journal::{Journal as _, MemoryJournal, Ownership, Recording};
use uap_agent::sql::Database;
use uap_agent::{AgentOptions, agent};
use ubos_common::json::RawObject;
use upp::{FnTool, Tool, object};

use crate::journal::{asking, strategies};
use crate::support::watched;

const DATABASE: &str = "UAP_RACE_DATABASE";
const FOLDER: &str = "UAP_RACE_FOLDER";
const NAME: &str = "UAP_RACE_NAME";
const SAID: &str = "raced ";

/// An agent whose tools note in a file that they run.
fn noting(file: &Path) -> AgentOptions {
    let [looped, ..] = strategies();
    let tool = |name: &str| {
        let file = file.to_owned();
        let run = move |arguments: RawObject, context: upp::ToolContext| {
            let opened = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(&file);
            let line = format!("{}\n", context.tool_call_id);
            opened.unwrap().write_all(line.as_bytes()).unwrap();
            std::future::ready(Ok(arguments.into()))
        };
        let schema = object(r#"{"type":"object"}"#).unwrap();
        Arc::new(FnTool::new(name, "Echoes", schema, run)) as Arc<dyn Tool>
    };
    asking(&looped).with_tools([tool("echo"), tool("other")])
}

fn run_of(round: usize) -> String {
    format!("run {round}")
}

/// The child: resumes each run that it is told of, and says what came of it.
#[test]
#[ignore = "run by the tests of databases, in processes of its own"]
fn child() {
    let (Ok(database), Some(folder)) = (std::env::var(DATABASE), std::env::var_os(FOLDER)) else {
        return;
    };
    let database = opened(&database);
    let name = std::env::var(NAME).unwrap();
    for line in std::io::stdin().lines() {
        let _watched = watched();
        let round: usize = line.unwrap().parse().unwrap();
        let file = Path::new(&folder).join(run_of(round));
        let owner = Ownership::new(&*name).with_term(Duration::from_secs(3600));
        let agent = agent(noting(&file).with_ownership(owner)).unwrap();
        let run = Arc::new(database.journal(run_of(round)));
        let ended = block_on(async {
            match agent.resume(run).await {
                Ok(run) => run
                    .result()
                    .await
                    .map(drop)
                    .map_err(|e| e.error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        });
        let text = ended.err().unwrap_or_default().replace('\n', " ");
        // A line of its own: the test harness writes the test's name before it.
        let line = format!("\n{SAID}{text}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}

/// A database by what a child is told.
fn opened(told: &str) -> Database {
    match told.split_once(' ').unwrap() {
        #[cfg(feature = "sqlite")]
        ("sqlite", file) => Database::sqlite(file).unwrap(),
        #[cfg(feature = "postgres")]
        ("postgres", address) => {
            let config = uap_agent::sql::PostgresConfig::new(address).with_connections(1);
            Database::postgres(&config).unwrap()
        }
        (other, _) => panic!("no database {other}"),
    }
}

struct Racer(Child, ChildStdin, BufReader<ChildStdout>);

impl Racer {
    fn start(database: &str, folder: &Path, name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "databases::race::child"])
            .args(["--nocapture", "--test-threads=1"])
            .env(DATABASE, database)
            .env(FOLDER, folder)
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self(child, input, BufReader::new(output))
    }

    fn go(&mut self, round: usize) {
        writeln!(self.1, "{round}").unwrap();
    }

    /// Why it did not get the run; nothing where it did.
    fn said(&mut self) -> String {
        let mut line = String::new();
        while self.2.read_line(&mut line).unwrap() > 0 {
            if let Some(said) = line.strip_prefix(SAID) {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("a process has ended");
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes race for the lease of each of so many runs. One gets it, and each tool runs once.
pub(super) fn two_processes_race(told: &str, rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    let database = opened(told);
    // The first life of every run has ended behind its third effect.
    let whole = Arc::new(MemoryJournal::default());
    let first = agent(noting(&folder.path().join("first"))).unwrap();
    block_on(
        first
            .record(whole.clone(), "go", &first.initial_state())
            .result(),
    )
    .unwrap();
    let entries = block_on(whole.read()).unwrap();
    let mut racers = ["one", "other"].map(|name| Racer::start(told, folder.path(), name));
    let (mut winners, mut lost) = (BTreeSet::new(), 0);
    for round in 0..rounds {
        let run = database.journal(run_of(round));
        block_on(run.append(0, entries[..6].to_vec())).unwrap();
        for racer in &mut racers {
            racer.go(round);
        }
        let said = [0, 1].map(|n| racers[n].said());
        // The second may come when the first has ended, and gets its result.
        assert!(said.iter().any(String::is_empty), "{said:?}");
        lost += said.iter().filter(|said| !said.is_empty()).count();
        let recording = block_on(Recording::load(&run)).unwrap();
        assert!(recording.has_ended());
        assert_eq!(recording.lease().epoch, 2, "one took it");
        winners.insert(recording.lease().owner);
        let mut ran = BTreeMap::<_, u32>::new();
        let file = folder.path().join(run_of(round));
        for call in std::fs::read_to_string(file).unwrap().lines() {
            *ran.entry(call.to_owned()).or_default() += 1;
        }
        assert!(
            !ran.is_empty() && ran.values().all(|times| *times == 1),
            "{ran:?}"
        );
    }
    assert_eq!(winners.len(), 2, "{winners:?} only");
    assert!(lost > rounds / 20, "they met {lost} times of {rounds}");
}
