//! Processes that write checkpoints are killed; what they were told is kept must be there.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::executor::block_on;
use uap_agent::{
    CheckpointError, CheckpointHistory, CheckpointStore, FileCheckpoints, LogCheckpoints,
};

use crate::log_store::Steps;
use crate::support::watched;

const FOLDER: &str = "UAP_STORE_KILL_FOLDER";
const ACK: &str = "acknowledged ";

/// The child: goes on from what is there, prunes now and then, until it is killed.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let log = LogCheckpoints::open(folder.join("log")).unwrap();
    let files = FileCheckpoints::open(folder.join("files")).unwrap();
    let mut steps = Steps::new(u64::from(std::process::id()));
    if let Some(state) = block_on(log.load("s")).unwrap() {
        steps.state = state;
    }
    let alive = watched();
    loop {
        alive.send(()).unwrap();
        let step = steps.state.step() + 1;
        if step.is_multiple_of(40) {
            // Whole states come again and again.
            steps.state = steps.state.with_context(&mut steps.ids, Vec::new());
        }
        steps.step(if step.is_multiple_of(3) { 40_000 } else { 50 });
        steps.save(&log, "s").unwrap();
        steps.save(&files, "s").unwrap();
        // One write a line: a kill cannot mix two.
        let line = format!("{ACK}{step}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        if step.is_multiple_of(7) {
            block_on(log.prune("s", 20)).unwrap();
        }
    }
}

fn spawn(folder: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "killed::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The step of a line that acknowledges one.
fn acknowledged(line: &str) -> Option<u64> {
    line.find(ACK)
        .and_then(|at| line[at + ACK.len()..].parse().ok())
}

// spec: UAP-12-4, UAP-12-3
#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    const KILLS: u64 = 30;
    let folder = tempfile::tempdir().unwrap();
    let (mut last, mut busy) = (0, 0);
    for round in 0..KILLS {
        let mut child = spawn(folder.path());
        let (begun, first) = std::sync::mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::Builder::new()
            .spawn(move || {
                let steps = lines
                    .map_while(Result::ok)
                    .filter_map(|line| acknowledged(&line));
                steps.inspect(|_| begun.send(()).unwrap_or_default()).max()
            })
            .unwrap();
        // Half of them are killed while they work, half perhaps while they open what is there.
        if round % 2 == 0 {
            first.recv().expect("a child that lives gets to work");
        }
        std::thread::sleep(Duration::from_micros(round * 7_919 % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let told = reader.join().unwrap();
        busy += u64::from(told.is_some());
        last = last.max(told.unwrap_or(0));
        let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
        let Some(state) = block_on(log.load("s")).unwrap() else {
            assert_eq!(last, 0);
            continue;
        };
        assert!(
            state.step() >= last,
            "round {round}: {} after {last}",
            state.step()
        );
        let history = block_on(log.history("s")).unwrap();
        let steps: Vec<_> = history.iter().map(|known| known.step).collect();
        assert!(
            steps.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{steps:?}"
        );
        assert_eq!(steps.last(), Some(&state.step()));
        for known in [history.first(), history.last()].into_iter().flatten() {
            let state = block_on(log.load_at("s", known.checkpoint_id)).unwrap();
            assert_eq!(state.unwrap().step(), known.step);
        }
        let files = FileCheckpoints::open(folder.path().join("files")).unwrap();
        let state = block_on(files.load("s")).unwrap();
        assert!(state.map_or(0, |state| state.step()) >= last);
    }
    assert!(busy >= KILLS / 2, "only {busy} children got to work");
}

// spec: UAP-12-4
#[test]
fn another_process_holds_the_session_until_it_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = spawn(folder.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| acknowledged(&line))
        .unwrap();
    // It goes on writing while this one reads.
    let drain = std::thread::Builder::new()
        .spawn(move || lines.count())
        .unwrap();
    let log = LogCheckpoints::open(folder.path().join("log")).unwrap();
    let files = FileCheckpoints::open(folder.path().join("files")).unwrap();
    let mut steps = Steps::new(1);
    let mut before = 0;
    for n in 0..20 {
        let state = block_on(log.load("s")).unwrap().unwrap();
        assert!(state.step() >= before);
        before = state.step();
        assert!(block_on(files.load("s")).unwrap().is_some());
        assert_eq!(steps.save(&log, "s"), Err(CheckpointError::InUse));
        assert_eq!(steps.save(&files, "s"), Err(CheckpointError::InUse));
        assert_eq!(block_on(log.prune("s", 1)), Err(CheckpointError::InUse));
        assert_eq!(block_on(log.delete("s")), Err(CheckpointError::InUse));
        let history = block_on(log.history("s")).unwrap();
        let last = history.last().unwrap().checkpoint_id;
        block_on(log.fork("s", last, &format!("fork {n}")))
            .or_else(|error| match error {
                // It was pruned meanwhile.
                CheckpointError::Unknown { .. } => Ok(()),
                error => Err(error),
            })
            .unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drain.join().unwrap();
    for store in [&log as &dyn CheckpointStore, &files] {
        steps.state = block_on(store.load("s")).unwrap().unwrap();
        steps.step(3);
        steps.save(store, "s").unwrap();
    }
}
