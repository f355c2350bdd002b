//! A stranger's program that answers one message at a time.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
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
        .spawn();
    let mut child = started.map_err(|err| format!("{}: {err}", program.to_string_lossy()))?;
    let _ = child.kill();
    let _ = child.wait();
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
        .spawn();
    let Ok(mut child) = started else {
        return none();
    };
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let message = message.to_vec();
    // It may answer before it has read everything, or not read at all.
    let writer = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&message)));
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(stdout) = stdout {
            // What it wrote before the pipe broke counts.
            let _ = stdout.take(LONGEST).read_to_end(&mut text);
        }
        text
    });
    let (mut code, mut waited) = (None, Duration::ZERO);
    let step = Duration::from_millis(2);
    while waited < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => {
                code = status.code();
                break;
            }
            Ok(None) => std::thread::sleep(step),
            Err(_) => break,
        }
        waited += step;
    }
    let _ = child.kill();
    let _ = child.wait();
    // A panic in a thread that only moves bytes says as little as silence.
    drop(writer.join());
    Answer {
        code,
        text: reader.join().unwrap_or_default(),
    }
}
