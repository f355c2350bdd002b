//! `sap-send`: one task over HTTP.
//!
//! ```text
//! args   the command line
//! draft  a task from options
//! ```

pub mod args;
pub mod draft;

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use sap::DispatchError;
use sap::transport::http::HttpClient;
use sap::transport::{Message, SendError};
use sap::validate::{Options, decode_task, findings};
use sap::{Status, Task};
use ubos_common::json::MemberWriter;
use ubos_common::secret::Secret;
use ubos_common::violation::Report;

use args::{Args, Parsed, TaskFrom, USAGE};
use mission::signals::Signals;
use mission::words::with_causes;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(args)) => *args,
        Ok(Parsed::Help) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => return told(&format!("{why}; --help tells more"), USAGE_ERROR),
    };
    match run(&args) {
        Ok(code) => code.into(),
        Err(Problem::Usage(why)) => told(&why, USAGE_ERROR),
        Err(Problem::Invalid(report)) => match line(&refused(&report)) {
            Ok(()) => NO.into(),
            Err(error) => told(&error, FAILED),
        },
        Err(Problem::Failed(why)) => told(&why, FAILED),
    }
}

/// Why nothing came of it.
#[derive(Debug)]
pub enum Problem {
    /// What was asked for cannot be, or not be read.
    Usage(String),
    /// The task is not valid, or may not be sent.
    Invalid(Report),
    /// There is no answer, or one that breaks the protocol.
    Failed(String),
}

/// Sends the task; gives the exit code.
pub fn run(args: &Args) -> Result<u8, Problem> {
    let task = match &args.task {
        TaskFrom::File(file) => read(file)?,
        TaskFrom::Options(options) => draft::task(options).map_err(Problem::Usage)?,
    };
    let mut client =
        HttpClient::new(&args.url).map_err(|error| Problem::Usage(error.to_string()))?;
    if let Some(file) = &args.token {
        let unread =
            |why: &dyn std::fmt::Display| Problem::Usage(format!("{}: {why}", file.display()));
        let token = std::fs::read_to_string(file).map_err(|error| unread(&error))?;
        let token = Secret::new(token.trim().to_owned());
        client = client.with_bearer(&token).map_err(|error| unread(&error))?;
    }
    // A thread beside this one, for signals that come while nobody reads what it prints.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Problem::Failed(error.to_string()))?;
    runtime.block_on(async {
        let signals = Signals::listen();
        let mut signals = signals.map_err(|error| Problem::Failed(error.to_string()))?;
        let mut lost = None;
        let mut tell = |message: &Message| {
            if let Err(error) = line(&message.encode()) {
                lost.get_or_insert(error);
            }
        };
        let code = tokio::select! {
            answer = client.send(&task, &mut tell) => judge(answer),
            code = signals.came() => return Ok(code),
        };
        match lost {
            Some(error) => Err(Problem::Failed(with_causes(&error))),
            None => code,
        }
    })
}

fn judge(answer: Result<Option<Message>, SendError>) -> Result<u8, Problem> {
    match answer {
        Ok(Some(Message::Result(result))) => match result.status {
            Status::Succeeded | Status::Queued | Status::Running | Status::Partial => Ok(0),
            _ => Ok(NO),
        },
        Ok(Some(Message::Nack(_))) => Ok(NO),
        Ok(_) => Ok(0),
        Err(SendError::Dispatch(
            DispatchError::Invalid(report) | DispatchError::Secret(report),
        )) => Err(Problem::Invalid(report)),
        Err(error) => Err(Problem::Failed(with_causes(&error))),
    }
}

fn read(file: &Path) -> Result<Task, Problem> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        io::stdin().take(MAX_BYTES).read_to_end(&mut bytes)
    } else {
        #[expect(clippy::disallowed_types, reason = "files are what the program reads")]
        let open = std::fs::File::open(file);
        open.and_then(|open| open.take(MAX_BYTES).read_to_end(&mut bytes))
    };
    read.map_err(|error| Problem::Usage(format!("{}: {error}", file.display())))?;
    let decoded = decode_task(&bytes, &Options::default());
    match decoded {
        Ok((task, _)) => Ok(task),
        Err(_) => Err(Problem::Invalid(findings(&decoded))),
    }
}

fn refused(report: &Report) -> Vec<u8> {
    let mut line = Vec::new();
    let mut object = MemberWriter::begin(&mut line);
    object.member("sent", &false);
    object.member("findings", report);
    object.end();
    line
}

fn line(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn told(why: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "sap-send: {why}");
    code.into()
}

const MAX_BYTES: u64 = 8 << 20;
const NO: u8 = 1;
const USAGE_ERROR: u8 = 2;
const FAILED: u8 = 3;
