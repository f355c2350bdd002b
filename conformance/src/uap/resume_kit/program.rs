//! The program under test: started, held at its effects, and killed.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// What each line of the program begins with that is meant for the kit.
pub const MARK: &str = "uap-resume ";

/// How long the program may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines that one process may print.
const MAX_LINES: usize = 100_000;

/// The exit code of a program that does not know a verb.
pub(super) const UNKNOWN: i32 = 127;
pub(super) const PAUSED: i32 = 10;
pub(super) const REFUSED: i32 = 11;
pub(super) const DIFFERS: i32 = 12;

/// A program that records and resumes a run, as the [module](super) says.
#[derive(Clone, Debug)]
pub struct ResumeProgram {
    command: Vec<OsString>,
    mutant: Option<&'static str>,
}

impl ResumeProgram {
    /// A program with its first arguments.
    #[must_use]
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            mutant: None,
        }
    }

    /// The program of `uap-agent` that proves this kit: `conformance uap-resume-agent`, in this process's own executable or
    /// in the one that the variable `UAP_RESUME_AGENT` names. A mutant breaks the property with this name.
    #[must_use]
    pub fn built_in(mutant: Option<&'static str>) -> Self {
        let program = std::env::var_os("UAP_RESUME_AGENT")
            .or_else(|| std::env::current_exe().ok().map(Into::into));
        Self {
            command: vec![program.unwrap_or_default(), "uap-resume-agent".into()],
            mutant,
        }
    }

    /// Sets the property that the built-in program breaks.
    #[must_use]
    pub const fn with_mutant(mut self, mutant: &'static str) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Starts a process. Held, it waits at its effects until it is told to go on.
    pub(super) fn spawn(&self, arguments: &[&OsStr], is_held: bool) -> Result<Process, Broken> {
        let (program, first) = self
            .command
            .split_first()
            .ok_or_else(|| Broken::new("no program"))?;
        let mut command = Command::new(program);
        command.args(first).args(arguments);
        if let Some(mutant) = self.mutant {
            command.env("UAP_RESUME_MUTANT", mutant);
        }
        let input = if is_held {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        let spawned = command.stdin(input).stdout(Stdio::piped()).spawn();
        let mut child =
            spawned.map_err(|err| Broken::new(format!("the program does not start: {err}")))?;
        let lines = child.stdout.take().map(read_lines).transpose()?;
        Ok(Process {
            verb: arguments
                .first()
                .map(|verb| verb.to_string_lossy().into_owned())
                .unwrap_or_default(),
            input: child.stdin.take(),
            lines: lines.ok_or_else(|| Broken::new("the program has no output"))?,
            child,
        })
    }

    /// Runs a verb to its end, without holding it anywhere.
    pub(super) fn run(&self, arguments: &[&OsStr]) -> Result<Ended, Broken> {
        self.spawn(arguments, false)?.end()
    }

    /// Runs a verb about a folder.
    pub(super) fn ask(&self, verb: &str, folder: &Path) -> Result<Ended, Broken> {
        self.run(&[verb.as_ref(), folder.as_ref()])
    }
}

/// The lines of a child, read by a thread so that a silent child is noticed.
fn read_lines(output: std::process::ChildStdout) -> Result<Receiver<String>, Broken> {
    let (send, lines) = channel();
    let read = move || {
        for line in BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .take(MAX_LINES)
        {
            // The test harness of Rust writes names of tests before what a test prints.
            if let Some((_, told)) = line.split_once(MARK)
                && send.send(told.to_owned()).is_err()
            {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("program's lines".into());
    thread
        .spawn(read)
        .map_err(|err| Broken::new(err.to_string()))?;
    Ok(lines)
}

/// A process of the program.
pub(super) struct Process {
    verb: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// What a process came to.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) lines: Vec<String>,
}

impl Process {
    /// The next line; `None` at the end.
    pub(super) fn line(&self) -> Result<Option<String>, Broken> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                let (verb, seconds) = (&self.verb, PATIENCE.as_secs());
                Err(Broken::new(format!(
                    "{verb} says nothing for {seconds} seconds"
                )))
            }
        }
    }

    /// Lets it go on from the effect at which it waits.
    pub(super) fn go_on(&mut self) {
        if let Some(input) = &mut self.input {
            // A process that has ended is noticed by its lines.
            let _ = input.write_all(b"go\n").and_then(|()| input.flush());
        }
    }

    /// Kills it, as `SIGKILL` does, where it waits.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(super) fn end(mut self) -> Result<Ended, Broken> {
        drop(self.input.take());
        let mut lines = Vec::new();
        while let Some(line) = self.line()? {
            lines.push(line);
        }
        let status = self
            .child
            .wait()
            .map_err(|err| Broken::new(err.to_string()))?;
        let code = status.code();
        if code == Some(UNKNOWN) {
            let verb = self.verb.clone();
            return Err(Broken::Unknown(verb));
        }
        Ok(Ended { code, lines })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// What the lines of one kind say.
    pub(super) fn told(&self, kind: &str) -> Vec<String> {
        let told = |line: &String| {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            (first == kind).then(|| rest.to_owned())
        };
        self.lines.iter().filter_map(told).collect()
    }

    /// The process has done what it was to do.
    pub(super) fn done(self, what: &str) -> Result<Self, Broken> {
        match self.code {
            Some(0) => Ok(self),
            code => Err(Broken::new(format!(
                "{what} ends with {code:?}: {:?}",
                self.lines
            ))),
        }
    }
}

/// Why a property was not seen to hold.
#[derive(Debug)]
pub(super) enum Broken {
    /// It does not hold, or the program does not do what it was asked.
    Seen(String),
    /// The program does not know a verb.
    Unknown(String),
}

impl Broken {
    pub(super) fn new(seen: impl Into<String>) -> Self {
        Self::Seen(seen.into())
    }
}

/// Holds a process at each of its effects, up to one of them.
pub(super) struct Held {
    /// The effects at which it was held, each with `effect` or `done`.
    pub(super) seen: Vec<String>,
    /// Whether it waits at the last of them; else it has ended.
    pub(super) waits: bool,
    pub(super) process: Process,
}

impl Held {
    /// Lets a process go on until it comes to its nth stop, from 1.
    pub(super) fn at(mut process: Process, stop: usize) -> Result<Self, Broken> {
        let mut seen = Vec::new();
        while let Some(line) = process.line()? {
            if !line.starts_with("effect ") && !line.starts_with("done ") {
                continue;
            }
            seen.push(line);
            if seen.len() == stop {
                return Ok(Self {
                    seen,
                    waits: true,
                    process,
                });
            }
            process.go_on();
        }
        Ok(Self {
            seen,
            waits: false,
            process,
        })
    }
}
