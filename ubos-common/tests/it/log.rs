//! The log on real and simulated folders.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod ahead;
mod basic;
mod beside;
mod crash;
mod damage;
mod ends;
mod kill;
mod panics;
mod repair;
mod share;
mod vectors;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use ubos_common::log::{Config, Log, LogDir, LogId, Reader, SimDisk, format::Limits};

const ID: LogId = LogId::from_bytes([7; 16]);

/// How long a test waits for what is to happen: far longer than it takes, so that a test whose event does not come fails.
const BOUND: Duration = Duration::from_secs(300);

/// Ends this process when nothing is sent for long: whoever reads its output finds that it has ended, and waits no longer.
fn watched() -> Sender<()> {
    let (alive, seen) = channel();
    let watch = move || {
        loop {
            match seen.recv_timeout(BOUND) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let text = format!("this process has done nothing for {BOUND:?}\n");
                    let _ = std::io::stderr().write_all(text.as_bytes());
                    std::process::exit(101);
                }
            }
        }
    };
    std::thread::Builder::new().spawn(watch).unwrap();
    alive
}

fn config() -> Config {
    Config::default()
        .with_log_id(ID)
        .with_segment_bytes(64 << 10)
}

fn open(disk: &SimDisk, config: &Config) -> Log {
    Log::open_in(disk.dir(), config.clone()).unwrap()
}

/// Bytes of record `n`: never zero, so that no damage can pass for a sector that was not written.
fn payload(n: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| 1 + ((n * 31 + at * 7) % 251) as u8)
        .collect()
}

fn drain(reader: &mut Reader) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        found.push((entry.position.sequence, entry.bytes.to_vec()));
    }
    found
}

fn read_all(dir: Arc<dyn LogDir>) -> Vec<(u64, Vec<u8>)> {
    drain(&mut Reader::open_in(dir, Limits::default()))
}

fn segment(index: u64) -> String {
    format!("{index:016x}.seg")
}
