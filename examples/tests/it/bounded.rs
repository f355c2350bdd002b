//! An end for programs that would have none, so that a test fails where it would wait for ever.

#![allow(
    clippy::disallowed_methods,
    reason = "a thread looks after each program"
)]

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any of them runs on the busiest machine.
const LONGEST: Duration = Duration::from_secs(900);

/// Kills a program that runs for too long, until it is dropped.
pub(crate) struct Bounded(#[expect(dead_code, reason = "dropping it ends the wait")] Sender<()>);

/// Looks after a program from now on. Its pipes end with it, and so does who reads them.
pub(crate) fn bounded(child: &Child) -> Bounded {
    let pid = Pid::from_child(child);
    let (ended, end) = channel();
    thread::spawn(move || {
        if end.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    Bounded(ended)
}

/// As `Child::wait_with_output`.
pub(crate) fn rest(child: Child) -> Output {
    let _bounded = bounded(&child);
    child.wait_with_output().unwrap()
}

/// As `Command::output`.
pub(crate) fn output(command: &mut Command) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    rest(piped.spawn().unwrap())
}
