//! `hub-hostile`: attacks on a hub.

#![expect(
    clippy::disallowed_methods,
    reason = "a program waits, and writes to another on a thread"
)]

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uap_hub_proto::role::hub::Job;
use uap_hub_proto::wire::Payload;
use ubos_common::secret::Secret;
use ubos_conformance::hub::{Attack, HostileRun};

use super::hub::USAGE;
use super::out::printed;

/// The longest time of an attack: an hour.
const MAX_SECONDS: u64 = 3600;

/// Attacks what the arguments say.
pub(super) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (run, given) = match parse(arguments) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            return printed(USAGE, 0);
        }
        Err(why) => return told(&why),
    };
    match run.run() {
        Ok(report) => {
            let given = given.map_or(String::new(), |given| format!("{given}\n"));
            printed(
                &format!("{report}\n{given}"),
                u8::from(!report.is_survived()),
            )
        }
        Err(err) => told(&err.to_string()),
    }
}

fn told(why: &str) -> ExitCode {
    note!("conformance: {why}");
    ExitCode::from(2)
}

/// What is to be done, and what is counted of the command that gives jobs.
type Parsed = (HostileRun, Option<Arc<Given>>);

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Parsed>, String> {
    let (mut url, mut process, mut growth) = (None, None, None);
    let (mut seconds, mut tokens, mut command) = (5, None, Vec::new());
    let mut attacks = Vec::new();
    while let Some(argument) = arguments.next() {
        let name = argument.to_string_lossy().into_owned();
        let mut value = || {
            let value = arguments.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        let number = |given: String| {
            let number: Result<u64, _> = given.parse();
            number.map_err(|_| format!("{name} needs a whole number, and {given} is none"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(None),
            "--url" => url = Some(value()?),
            "--pid" => process = Some(number(value()?)?),
            "--seconds" => seconds = number(value()?)?,
            "--max-growth" => growth = Some(number(value()?)?),
            "--token-file" => tokens = Some(read_tokens(&value()?)?),
            "--attack" => attacks.push(attack(&value()?)?),
            "--" => command.extend(arguments.by_ref()),
            _ => return Err(format!("unknown argument {name}; --help tells more")),
        }
    }
    if !(1..=MAX_SECONDS).contains(&seconds) {
        return Err(format!("--seconds needs a number from 1 to {MAX_SECONDS}"));
    }
    let mut run =
        HostileRun::new(url.ok_or("--url is wanted")?).with_time(Duration::from_secs(seconds));
    if let Some(process) = process {
        let process = u32::try_from(process).map_err(|_| "--pid needs the id of a process")?;
        run = run.with_process(process);
    }
    if let Some(growth) = growth {
        run = run.with_max_growth(growth);
    }
    if !attacks.is_empty() {
        run = run.with_attacks(&attacks);
    }
    if let Some([attackers, honest]) = tokens {
        run = run.with_tokens(attackers, honest);
    }
    let mut given = None;
    if !command.is_empty() {
        let feeder = Feeder::start(&command)?;
        given = Some(Arc::clone(&feeder.given));
        run = run.with_feed(move |job| feeder.give(&job));
    }
    Ok(Some((run, given)))
}

fn attack(name: &str) -> Result<Attack, String> {
    let found = Attack::ALL.into_iter().find(|attack| attack.name() == name);
    found.ok_or_else(|| {
        let names = Attack::ALL.map(Attack::name).join(", ");
        format!("no attack is called {name}; there are: {names}")
    })
}

/// The last word of each of the two first lines.
fn read_tokens(file: &str) -> Result<[Secret<String>; 2], String> {
    let text = std::fs::read_to_string(file).map_err(|err| format!("{file}: {err}"))?;
    let text = Secret::new(text);
    let last = |line: &str| Some(Secret::new(line.split_whitespace().last()?.to_owned()));
    let tokens: Vec<_> = text.expose().lines().filter_map(last).take(2).collect();
    let few = |_| {
        format!(
            "{file}: two lines with tokens are wanted, for the attackers and for the honest agent"
        )
    };
    <[_; 2]>::try_from(tokens).map_err(few)
}

/// Lines that may wait for the command, which reads more slowly than attacks give.
const MAX_WAITING: usize = 64;
/// How long the command may go on when there is nothing more to read.
const LEAVE: Duration = Duration::from_secs(5);

/// The jobs that were for the command.
#[derive(Default)]
struct Given {
    all: AtomicU64,
    /// Those that its standard input took.
    read: AtomicU64,
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.read.load(Ordering::Relaxed);
        let all = self.all.load(Ordering::Relaxed);
        let lost = all.saturating_sub(read);
        write!(
            f,
            "jobs for the command: {all}, of which it did not read {lost}"
        )
    }
}

/// The command that gives jobs to the hub, which it reads as JSON lines.
struct Feeder {
    given: Arc<Given>,
    lines: Option<SyncSender<String>>,
    child: Child,
}

impl Feeder {
    fn start(command: &[OsString]) -> Result<Self, String> {
        let (program, arguments) = command.split_first().ok_or("a command is wanted")?;
        let mut started = Command::new(program);
        started
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let child = started.spawn();
        let mut child = child.map_err(|err| format!("{}: {err}", program.to_string_lossy()))?;
        let (lines, waiting) = sync_channel::<String>(MAX_WAITING);
        let given = Arc::<Given>::default();
        let read = Arc::clone(&given);
        if let Some(mut stdin) = child.stdin.take() {
            // On a thread of its own: a command that stops reading must not hold up who judges the hub.
            thread::spawn(move || {
                for line in waiting {
                    if writeln!(stdin, "{line}").is_err() {
                        return;
                    }
                    read.read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let lines = Some(lines);
        Ok(Self {
            given,
            lines,
            child,
        })
    }

    /// Writes a job as the program `hub` reads it. One that nobody reads is lost and counted, and the attack finds nothing to do.
    fn give(&self, job: &Job) {
        let payload = |payload: &Payload| {
            let text = String::from_utf8_lossy(payload.data()).into_owned();
            let mime_type = payload.attachment.as_ref().map(|file| &file.mime_type);
            json!({"type": payload.r#type, "name": "f", "mime_type": mime_type, "text": text})
        };
        let payloads: Vec<Value> = job.payloads.iter().map(payload).collect();
        let limit = job
            .time_limit
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let line = json!({
            "kind": "test", "type": job.skill.name(), "payloads": payloads, "timeout_ms": limit,
        });
        self.given.all.fetch_add(1, Ordering::Relaxed);
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line.to_string());
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.lines = None;
        let end = Instant::now() + LEAVE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
