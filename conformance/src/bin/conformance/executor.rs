//! `sacp-executor`: a program that runs plans, told and heard line by line.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use ubos_conformance::sacp::{Executor, executor_kit, reference};
use ubos_conformance::{ConnectError, Expectations, Report};

use super::out::print;
use super::{Proof, command, proof_of, with_floor};

/// How long a program may take for one line.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that a program may write in one case.
const LONGEST: u64 = 16 << 20;
/// Lines that it may write about one line.
const MOST_LINES: usize = 1_000;
/// The word with which this program is an executor that keeps every rule.
const TEST_EXECUTOR: &str = "sacp-test-executor";

/// Judges an executor that is a program, launched anew for each case.
pub(super) fn judge(program: &[OsString], expectations: &Expectations) -> Result<Report, String> {
    command::is_there(program)?;
    let kit = executor_kit();
    let expectations = with_floor(expectations, kit.cases().len() / 2);
    Ok(kit.run(&expectations, |_| {
        let program = Program::launch(program).map_err(ConnectError::Unreachable)?;
        Ok(Box::new(program))
    }))
}

pub(super) fn proof() -> Proof {
    proof_of(&executor_kit())
}

/// Runs as the executor of a test, if the command line says so.
pub(super) fn test_executor() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|word| word == TEST_EXECUTOR)?;
    let mut executor = reference();
    for line in std::io::stdin().lines() {
        let Ok(line) = line else {
            return Some(ExitCode::from(3));
        };
        let mut said = executor
            .tell(&line)
            .unwrap_or_else(|| vec![UNKNOWN.to_owned()]);
        said.push(format!("{READY}\n"));
        if print(&said.join("\n")).is_err() {
            return Some(ExitCode::from(3));
        }
    }
    Some(ExitCode::SUCCESS)
}

/// What ends what is said about a line, and what is said about one that is not known.
const READY: &str = r#"{"ready":true}"#;
const UNKNOWN: &str = r#"{"unknown":true}"#;

/// A program under test.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    is_silent: bool,
}

impl Program {
    #[expect(
        clippy::disallowed_methods,
        reason = "a stranger's line is waited for, and no longer than it may take"
    )]
    fn launch(program: &[OsString]) -> Result<Self, String> {
        let (name, arguments) = program.split_first().ok_or("no command")?;
        let mut child = Command::new(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|err| format!("{}: {err}", name.to_string_lossy()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        // A program that writes faster than it is read waits.
        let (sender, lines) = sync_channel(MOST_LINES);
        std::thread::spawn(move || {
            let output = output
                .into_iter()
                .flat_map(|output| BufReader::new(output.take(LONGEST)).lines());
            for line in output.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            input,
            lines,
            is_silent: false,
        })
    }
}

impl Executor for Program {
    fn tell(&mut self, line: &str) -> Option<Vec<String>> {
        // What it does not take is not answered, which the judge sees.
        let _ = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        let (mut said, mut is_known) = (Vec::new(), true);
        while !self.is_silent && said.len() < MOST_LINES {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if is(&line, "ready") => break,
                Ok(line) if is(&line, "unknown") => is_known = false,
                Ok(line) => said.push(line),
                // It does not get another five seconds for each line that follows.
                Err(_) => self.is_silent = true,
            }
        }
        is_known.then_some(said)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a line is `{"NAME": true}`.
fn is(line: &str, name: &str) -> bool {
    let read: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    read.get(name).is_some_and(|value| *value == true)
}
