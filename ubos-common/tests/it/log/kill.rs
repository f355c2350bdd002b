//! A process is killed while it appends; what it acknowledged through a pipe must be there.

use super::{config, payload, watched};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use ubos_common::log::{FsDir, Log, Reader, Verify};

const FOLDER: &str = "UBOS_LOG_KILL_FOLDER";
const ACK: &str = "acknowledged ";

fn length(n: u64) -> usize {
    (n * 769 % 3000) as usize
}

/// The child: appends from four threads until it is killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let log = Log::open(PathBuf::from(folder), config()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let position = log.append(b"from a thread").unwrap();
                    // One write a line: a kill cannot mix two.
                    let line = format!("{ACK}{}\n", position.sequence);
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        let alive = watched();
        loop {
            alive.send(()).unwrap();
            let batch: Vec<Vec<u8>> = (0..3).map(|n| payload(n, length(n))).collect();
            let slices: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            let batch = log.append_batch(&slices).unwrap();
            let line = format!("{ACK}{}\n", batch.positions[2].sequence);
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        }
    });
}

// spec: SAP-11-3
#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    const KILLS: u64 = 100;
    let folder = tempfile::tempdir().unwrap();
    let dir = FsDir::new(folder.path());
    let (mut acknowledged, mut from) = (0, 0);
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "log::kill::child",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (works, at_work) = mpsc::channel();
        #[expect(clippy::disallowed_methods, reason = "a reader beside the test")]
        let reader = std::thread::spawn(move || {
            let mut last = None;
            while let Some(Ok(line)) = lines.next() {
                let ack = line.find(ACK).map(|at| &line[at + ACK.len()..]);
                let ack = ack.and_then(|text| text.parse::<u64>().ok());
                if ack.is_some() && last.is_none() {
                    let _ = works.send(());
                }
                last = last.max(ack);
            }
            last
        });
        // Every other child dies wherever it has come to, in its recovery too; the rest die at work, however slow the machine is.
        if round % 2 == 0 {
            at_work.recv().expect("a child that lives gets to work");
        }
        std::thread::sleep(Duration::from_micros(round * 7919 % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = reader.join().unwrap();
        acknowledged = acknowledged.max(last.map_or(0, |last| last + 1));
        let proven = Verify::default().from(from).run(&dir).unwrap();
        assert!(proven.head.next_sequence >= acknowledged, "round {round}");
        from = proven.head.next_sequence.saturating_sub(1);
    }
    let proven = Verify::default().run(&dir).unwrap();
    let mut reader = Reader::open(folder.path());
    let mut next = 0;
    while let Some(entry) = reader.next().unwrap() {
        assert_eq!(entry.position.sequence, next);
        next += 1;
    }
    assert_eq!(next, proven.head.next_sequence);
}
