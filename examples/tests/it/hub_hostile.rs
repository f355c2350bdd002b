//! `conformance hub-hostile` attacks the program `hub`, and gives it jobs through a command of the user's.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program of its own beside the test, and what it says is read"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use ubos_conformance::hub::Attack;

use crate::conformance::program;

/// A hub that reads its jobs from a pipe with a name, which others can write to.
struct Hub {
    child: Child,
    url: String,
}

impl Hub {
    fn start(dir: &Path) -> Self {
        let pipe = dir.join("jobs");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // Open for both, so that it does not wait for a writer here, and does not end with the first.
        let jobs = File::options().read(true).write(true).open(&pipe).unwrap();
        fs::write(dir.join("tokens"), "attacker one\nhonest two\n").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_hub"))
            .args(["--listen", "127.0.0.1:0", "--token-file"])
            .arg(dir.join("tokens"))
            .stdin(jobs)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        // What it tells of the attacks is read, or it would wait.
        std::thread::spawn(move || lines.for_each(drop));
        let url = first["url"].as_str().unwrap().to_owned();
        Self { child, url }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn attack(hub: &Hub, dir: &Path, arguments: &[&str]) -> Output {
    attack_for("1", hub, dir, arguments)
}

fn attack_for(seconds: &str, hub: &Hub, dir: &Path, arguments: &[&str]) -> Output {
    // A tool that stands still is killed, and fails.
    Command::new("timeout")
        .arg("7200")
        .arg(program())
        .args(["hub-hostile", "--url", &hub.url, "--seconds", seconds])
        .args(["--pid", &hub.child.id().to_string(), "--token-file"])
        .arg(dir.join("tokens"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

#[test]
fn a_command_gives_the_hub_the_jobs_that_attacks_need() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path());
    // However busy the machine is.
    let patience = ["--patience", "300"];
    let command = ["--", "sh", "-c", "tee given > jobs"];
    let attacked = attack(&hub, dir.path(), &[&patience[..], &command].concat());
    let table = String::from_utf8(attacked.stdout).unwrap();
    assert_eq!(attacked.status.code(), Some(0), "{table}");
    let given = fs::read_to_string(dir.path().join("given")).unwrap();
    let (mut bare, mut of_shapes) = (0, 0);
    for line in given.lines() {
        let job: Value = serde_json::from_str(line).unwrap();
        assert_eq!(job["kind"], "test");
        assert!(job["timeout_ms"].is_u64(), "{line}");
        match job["payloads"].as_array().unwrap().is_empty() {
            true => bare += 1,
            false => of_shapes += 1,
        }
    }
    assert!(bare > 0 && of_shapes > 0, "{bare} {of_shapes}");
    // Each attack has its line, and did something.
    let attempts = |attack: Attack| {
        let rest = table
            .lines()
            .find_map(|line| line.strip_prefix(attack.name()));
        let words = rest.unwrap_or_else(|| panic!("{}", attack.name()));
        words
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    for attack in Attack::ALL {
        assert!(attempts(attack) > 0, "{}", attack.name());
    }
}

#[test]
fn a_command_that_reads_nothing_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path());
    let attacked = attack(
        &hub,
        dir.path(),
        &["--attack", "ended sessions", "--", "sleep", "600"],
    );
    let table = String::from_utf8(attacked.stdout).unwrap();
    // What was not tried was not survived.
    assert_eq!(attacked.status.code(), Some(1), "{table}");
    assert!(table.contains("not tried"), "{table}");
    assert_eq!(table.lines().count(), 5, "{table}");
}

/// The jobs that were for the command, and those that it did not read.
fn given(table: &str) -> [u64; 2] {
    let last = table.lines().last().unwrap();
    let numbers = last.split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<_> = numbers.filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{last}"))
}

#[test]
fn jobs_that_the_command_does_not_read_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path());
    // More than a pipe takes and may wait, which takes a busy machine longer.
    let [all, lost] = ["1", "10", "100"]
        .into_iter()
        .map(|seconds| {
            let never_read = ["--attack", "many shapes", "--", "sleep", "600"];
            let attacked = attack_for(seconds, &hub, dir.path(), &never_read);
            assert!(attacked.stderr.is_empty(), "no task of it panics");
            given(&String::from_utf8(attacked.stdout).unwrap())
        })
        .find(|[_, lost]| *lost > 0)
        .expect("jobs are lost where none is read");
    assert!(lost < all, "{lost} of {all}");
}

#[test]
fn a_command_that_cannot_be_started_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path());
    let attacked = attack(
        &hub,
        dir.path(),
        &["--", "/nowhere/there-is-no-such-program"],
    );
    let said = String::from_utf8(attacked.stderr).unwrap();
    assert_eq!(attacked.status.code(), Some(2), "{said}");
    assert!(said.starts_with("conformance: /nowhere/"), "{said}");
}
