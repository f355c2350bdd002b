//! The program under test: started, held at its effects, and killed.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What each line of the program begins with that is meant for the kit.
pub const MARK: &str = "uap-resume ";

/// How long a process may be silent, where nothing else is set.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often its patience a process may take in all.
const LIFETIME: u32 = 10;

/// Bytes that a process may print.
const MAX_OUTPUT: u64 = 256 << 20;

/// The exit code of a program that does not know a verb.
pub(super) const UNKNOWN: i32 = 127;
pub(super) const PAUSED: i32 = 10;
pub(super) const LATE: i32 = 11;
pub(super) const DIFFERS: i32 = 12;
pub(super) const UNREADABLE: i32 = 13;

/// A program that records and resumes a run, as the [module](super) says.
#[derive(Clone, Debug)]
pub struct ResumeProgram {
    command: Vec<OsString>,
    mutant: Option<&'static str>,
    patience: Duration,
}

impl ResumeProgram {
    /// A program with its first arguments.
    #[must_use]
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            mutant: None,
            patience: PATIENCE,
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
            patience: PATIENCE,
        }
    }

    /// Sets the property that the built-in program breaks.
    #[must_use]
    pub const fn with_mutant(mut self, mutant: &'static str) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Sets how long a process may be silent, and live on when its output has ended: a day at most, and 60 s where it is not
    /// set. It may take ten times as long in all.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(Duration::from_secs(86_400));
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
        let child =
            spawned.map_err(|err| Broken::new(format!("the program does not start: {err}")))?;
        let verb = arguments.first().copied().unwrap_or_default();
        Process::new(verb, child, self.patience)
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

/// The marked lines of a child, or why no more are read; by a thread, so that a silent child is noticed.
fn read_lines(
    output: std::process::ChildStdout,
) -> Result<Receiver<Result<String, String>>, Broken> {
    let (send, lines) = channel();
    let read = move || {
        let mut output = BufReader::new(output.take(MAX_OUTPUT));
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&line);
            // The test harness of Rust writes names of tests before what a test prints.
            if let Some((_, told)) = text.trim_end_matches(['\n', '\r']).split_once(MARK)
                && send.send(Ok(told.to_owned())).is_err()
            {
                return;
            }
            line.clear();
        }
        if output.get_ref().limit() == 0 {
            // Nobody reads it where the kit has enough.
            let _ = send.send(Err(format!("prints more than {MAX_OUTPUT} bytes")));
        }
    };
    let thread = std::thread::Builder::new().name("program's lines".into());
    thread
        .spawn(read)
        .map_err(|err| Broken::new(err.to_string()))?;
    Ok(lines)
}

#[expect(clippy::disallowed_methods, reason = "a kit waits for a process")]
fn now() -> Instant {
    Instant::now()
}

/// A process of the program.
pub(super) struct Process {
    verb: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Result<String, String>>,
    /// The lines that were read.
    read: Vec<String>,
    patience: Duration,
    deadline: Instant,
}

/// What a process came to.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) lines: Vec<String>,
}

impl Process {
    fn new(verb: &OsStr, mut child: Child, patience: Duration) -> Result<Self, Broken> {
        let lines = child.stdout.take().map(read_lines).transpose()?;
        Ok(Self {
            verb: verb.to_string_lossy().into_owned(),
            input: child.stdin.take(),
            lines: lines.ok_or_else(|| Broken::new("the program has no output"))?,
            child,
            read: Vec::new(),
            patience,
            deadline: now() + patience.saturating_mul(LIFETIME),
        })
    }

    fn broken(&self, what: impl core::fmt::Display) -> Broken {
        Broken::new(format!("{} {what}", self.verb))
    }

    /// Reads the next line; `None` at the end of the output.
    fn line(&mut self) -> Result<Option<&str>, Broken> {
        let left = self.deadline.saturating_duration_since(now());
        let patience = self.patience;
        match self.lines.recv_timeout(left.min(patience)) {
            Ok(Ok(line)) => {
                self.read.push(line);
                Ok(self.read.last().map(String::as_str))
            }
            Ok(Err(why)) => Err(self.broken(why)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) if left < patience => Err(self.broken(format!(
                "takes more than {:?}",
                patience.saturating_mul(LIFETIME)
            ))),
            Err(RecvTimeoutError::Timeout) => {
                Err(self.broken(format!("says nothing for {patience:?}")))
            }
        }
    }

    /// Lets it go on to its next stop: an effect that it is about to perform, or has performed. `None` where it ends before.
    pub(super) fn next_stop(&mut self) -> Result<Option<String>, Broken> {
        while let Some(line) = self.line()? {
            if line.starts_with("effect ") || line.starts_with("done ") {
                return Ok(Some(line.to_owned()));
            }
        }
        Ok(None)
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

    /// Lets it go on to its end. The lines are all that it has said.
    pub(super) fn end(mut self) -> Result<Ended, Broken> {
        drop(self.input.take());
        while self.line()?.is_some() {}
        let code = self.wait()?.code();
        if code == Some(UNKNOWN) {
            let verb = self.verb.clone();
            return Err(Broken::Unknown(verb));
        }
        let lines = core::mem::take(&mut self.read);
        Ok(Ended { code, lines })
    }

    /// Waits for the exit of a process whose output has ended.
    fn wait(&mut self) -> Result<ExitStatus, Broken> {
        let until = now() + self.patience;
        loop {
            let exited = self.child.try_wait();
            if let Some(status) = exited.map_err(|err| Broken::new(err.to_string()))? {
                return Ok(status);
            }
            if now() >= until {
                let patience = self.patience;
                return Err(
                    self.broken(format!("closes its output, and lives on for {patience:?}"))
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
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
