//! `hub-hostile`: attacks on a hub.

#![expect(
    clippy::disallowed_methods,
    reason = "a program waits, and writes to another on a thread"
)]

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uap_hub_proto::role::hub::Job;
use uap_hub_proto::wire::Payload;
use ubos_common::secret::Secret;
use ubos_conformance::hub::{Attack, HostileRun};

use super::hub::USAGE;
use super::out::{printed, shown};

/// The longest time of an attack: an hour.
const MAX_SECONDS: u64 = 3600;

/// Attacks what the arguments say.
pub(super) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (run, feeder) = match parse(arguments) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            return printed(USAGE, 0);
        }
        Err(why) => return told(&why),
    };
    let code = match run.run() {
        Ok(report) => {
            let given = feeder.as_ref().map(|feeder| format!("{feeder}\n"));
            let given = given.unwrap_or_default();
            printed(
                &format!("{report}\n{given}"),
                u8::from(!report.is_survived()),
            )
        }
        Err(err) => told(&err.to_string()),
    };
    if let Some(feeder) = feeder {
        feeder.end();
    }
    code
}

fn told(why: &str) -> ExitCode {
    note!("conformance: {why}");
    ExitCode::from(2)
}

/// What is to be done, and the command that gives jobs.
type Parsed = (HostileRun, Option<Arc<Feeder>>);

fn seconds(name: &str, given: u64) -> Result<Duration, String> {
    match given {
        1..=MAX_SECONDS => Ok(Duration::from_secs(given)),
        _ => Err(format!("{name} needs a number from 1 to {MAX_SECONDS}")),
    }
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Parsed>, String> {
    let (mut url, mut process, mut growth) = (None, None, None);
    let (mut time, mut patience) = (Duration::from_secs(5), Duration::from_secs(10));
    let (mut tokens, mut command) = (None, Vec::new());
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
            "--seconds" => time = seconds(&name, number(value()?)?)?,
            "--patience" => patience = seconds(&name, number(value()?)?)?,
            "--max-growth" => growth = Some(number(value()?)?),
            "--token-file" => tokens = Some(read_tokens(&value()?)?),
            "--attack" => attacks.push(attack(&value()?)?),
            "--" => command.extend(arguments.by_ref()),
            _ => {
                return Err(format!(
                    "unknown argument {}; --help tells more",
                    shown(&name)
                ));
            }
        }
    }
    let mut run = HostileRun::new(url.ok_or("--url is wanted")?)
        .with_time(time)
        .with_patience(patience);
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
    if command.is_empty() {
        return Ok(Some((run, None)));
    }
    let feeder = Arc::new(Feeder::start(&command)?);
    let gives = Arc::clone(&feeder);
    run = run.with_feed(move |job| gives.give(&job));
    Ok(Some((run, Some(feeder))))
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
/// How long a line may wait for room among them, and how often that is looked for.
const ROOM: Duration = Duration::from_secs(1);
const ROOM_POLL: Duration = Duration::from_millis(5);
/// How long the command may go on when there is nothing more to read.
const LEAVE: Duration = Duration::from_secs(5);

/// The command that gives jobs to the hub, which it reads as JSON lines.
struct Feeder {
    lines: Mutex<Option<SyncSender<String>>>,
    child: Mutex<Child>,
    /// The jobs that were for it.
    given: AtomicU64,
    /// Those that its standard input took.
    read: Arc<AtomicU64>,
}

impl fmt::Display for Feeder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.read.load(Ordering::Relaxed);
        let given = self.given.load(Ordering::Relaxed);
        let lost = given.saturating_sub(read);
        write!(
            f,
            "jobs for the command: {given}, of which it did not read {lost}"
        )
    }
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
        let read = Arc::<AtomicU64>::default();
        if let Some(mut stdin) = child.stdin.take() {
            let read = Arc::clone(&read);
            // On a thread of its own: a command that stops reading must not hold up who judges the hub.
            thread::spawn(move || {
                for line in waiting {
                    if writeln!(stdin, "{line}").is_err() {
                        return;
                    }
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Ok(Self {
            lines: Mutex::new(Some(lines)),
            child: Mutex::new(child),
            given: AtomicU64::new(0),
            read,
        })
    }

    /// Writes a job as the program `hub` reads it. It waits for room a while: one that nobody reads then is lost, and counted.
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
        self.given.fetch_add(1, Ordering::Relaxed);
        let mut line = line.to_string();
        let end = Instant::now() + ROOM;
        while let Some(lines) = lock(&self.lines).clone() {
            match lines.try_send(line) {
                Err(TrySendError::Full(back)) if Instant::now() < end => line = back,
                _ => return,
            }
            thread::sleep(ROOM_POLL);
        }
    }

    /// Ends the command: there is nothing more to read.
    fn end(&self) {
        *lock(&self.lines) = None;
        let mut child = lock(&self.child);
        let end = Instant::now() + LEAVE;
        while Instant::now() < end {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(ROOM_POLL);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
