//! A stranger's program that answers one message at a time.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a program came to for one message.
pub(super) struct Answer {
    /// Its exit code; `None` where a signal ended it, or it was stopped for taking too long.
    pub(super) code: Option<i32>,
    /// What it wrote to its standard output, up to a bound.
    pub(super) text: Vec<u8>,
}

/// How long a program may take for one message.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the rest of what a dead program wrote may take.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Bytes of an answer that are read.
const LONGEST: u64 = 1 << 20;

/// Whether the program can be started at all.
pub(super) fn is_there(command: &[OsString]) -> Result<(), String> {
    let program = command.first().ok_or("no command")?;
    let started = Command::new(program)
        .args(command.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = started.map_err(|err| format!("{}: {err}", program.to_string_lossy()))?;
    kill(&mut child);
    Ok(())
}

/// Runs a program for one message. `{}` among its arguments becomes `word`.
#[expect(
    clippy::disallowed_methods,
    reason = "a stranger's answer is waited for, and no longer than it may take"
)]
pub(super) fn ask(command: &[OsString], word: &str, message: &[u8]) -> Answer {
    let none = || Answer {
        code: None,
        text: Vec::new(),
    };
    let mut filled = command.iter().map(|part| match part.to_str() {
        Some(text) => OsString::from(text.replace("{}", word)),
        None => part.clone(),
    });
    let Some(program) = filled.next() else {
        return none();
    };
    let started = Command::new(program)
        .args(filled)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let Ok(mut child) = started else {
        return none();
    };
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let message = message.to_vec();
    // It may answer before it has read everything, or not read at all.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&message)));
    let (tell, read) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(stdout) = stdout {
            // What it wrote before the pipe broke counts.
            let _ = stdout.take(LONGEST).read_to_end(&mut text);
        }
        let _ = tell.send(text);
    });
    let status = within_patience(&mut child);
    kill(&mut child);
    // Who has left the group may hold the pipe for ever.
    let text = read.recv_timeout(LAST_WORDS).unwrap_or_default();
    let code = status.and_then(|status| status.code());
    Answer { code, text }
}

/// How a program of a group of its own ended; it is killed where it does not in time.
pub(super) fn ended_in_time(mut child: Child) -> io::Result<ExitStatus> {
    // What one that ended in time has left to work beside it goes on.
    within_patience(&mut child).ok_or_else(|| {
        kill(&mut child);
        io::Error::other(format!("not at its end after {PATIENCE:?}"))
    })
}

fn within_patience(child: &mut Child) -> Option<ExitStatus> {
    let (mut waited, step) = (Duration::ZERO, Duration::from_millis(2));
    while waited < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => std::thread::sleep(step),
            Err(_) => break,
        }
        waited += step;
    }
    None
}

/// Kills a program with all that it has started, which would keep its pipes open.
fn kill(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}
