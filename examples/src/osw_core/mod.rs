//! `core -- COMMAND`: an OpenSentience core for one agent.
//!
//! ```text
//! args     the command line
//! script   the calls
//! events   what happens, as JSON lines
//! ```

mod args;
mod events;
mod script;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mission::signals::Signals;
use mission::words::with_causes;
use opensentience_wire::ErrorCode;
use opensentience_wire::Limits;
use opensentience_wire::role::core::{Config, Event};
use opensentience_wire::transport::tokio::{CoreHandle, LaunchError, Launcher};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines as Text, Stdin};
use tokio::sync::oneshot;

use args::Args;
use events::Lines;
use script::Line;

/// How long an agent may take to end after a signal: as long as its launcher waits, and a little.
const CLEAN_END: Duration = Duration::from_secs(15);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            let _ = io::Write::write_all(&mut io::stdout(), args::USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            note!("core: {why}; --help tells more");
            return ExitCode::from(2);
        }
    };
    let script = match Script::open(args.script.as_deref()) {
        Ok(script) => script,
        Err(why) => {
            note!("core: {why}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(until_signalled(args, script));
            let code = code.unwrap_or_else(|err| {
                note!("core: {err}");
                3
            });
            // Standard input may still be waited for.
            runtime.shutdown_background();
            ExitCode::from(code)
        }
        Err(err) => {
            note!("core: {err}");
            ExitCode::from(3)
        }
    }
}

/// Runs to the end or until a signal comes; gives the exit code.
#[expect(clippy::disallowed_methods, reason = "its lines may block it")]
async fn until_signalled(args: Args, script: Script) -> io::Result<u8> {
    // Listened to all the time: one that comes between two waits counts too.
    let mut signals = Signals::listen()?;
    let (leave, leaving) = oneshot::channel();
    let mut running = tokio::spawn(run(args, script, leaving));
    let code = tokio::select! {
        ran = &mut running => return ran.map_err(io::Error::other),
        code = signals.came() => code,
    };
    let _ = leave.send(());
    // The agent may take its time; who does not read the lines keeps nobody from ending the program.
    tokio::select! {
        _ = tokio::time::timeout(CLEAN_END, running) => {}
        _ = signals.came() => {}
    }
    Ok(code)
}

/// Launches, calls, says goodbye, which `leaving` brings on; gives the exit code.
async fn run(args: Args, script: Script, mut leaving: oneshot::Receiver<()>) -> u8 {
    let lines = Lines::default();
    let hears = lines.clone();
    let launcher = launcher(&args).with_observer(move |event: &Event| hears.event(event));
    let output = launcher.output();
    let launched = tokio::select! {
        launched = launcher.launch() => launched,
        _ = &mut leaving => return 0,
    };
    let handle = match launched {
        Ok(handle) => handle,
        Err(err) => {
            if matches!(err, LaunchError::Spawn { .. }) {
                note!("core: {}", with_causes(&err));
                return 2;
            }
            let command = Path::new(&args.command).display();
            note!("core: {command}: {}", with_causes(&err));
            said(&output.text());
            lines.exited(output.status());
            return 3;
        }
    };
    let tools = handle.tools();
    lines.registered(tools.iter().map(|tool| tool.tool_id.as_str()));
    let called = if tools.is_empty() {
        3
    } else {
        tokio::select! {
            called = call_all(&args, script, &handle, &lines) => called,
            _ = leaving => 0,
        }
    };
    let reason = handle.shutdown().await;
    lines.disconnected(&reason);
    lines.exited(output.status());
    said(&output.text());
    match called {
        2 => called,
        _ if lines.is_broken() => 3,
        _ => called,
    }
}

/// What the agent wrote to its standard output and error goes to ours.
fn said(text: &str) {
    if !text.is_empty() {
        note!("{}", text.strip_suffix('\n').unwrap_or(text));
    }
}

fn launcher(args: &Args) -> Launcher {
    // Longer messages need more room.
    let kept = args.max_frame_bytes.saturating_mul(8).max(80 << 20);
    let limits = Limits::default()
        .with_max_frame_bytes(args.max_frame_bytes)
        .with_max_agent_bytes(kept);
    let config = Config::default()
        .with_limits(limits)
        .with_heartbeat_interval(args.heartbeat)
        .with_handshake_timeout(args.handshake);
    let launcher = Launcher::new(args.agent_id.as_str(), &args.command).with_config(config);
    launcher.args(&args.arguments)
}

/// Makes the calls one after the other; 0 when each ended with a result of the agent's, else 1, or 2 for a line that is no
/// call.
async fn call_all(args: &Args, mut script: Script, handle: &CoreHandle, lines: &Lines) -> u8 {
    let mut code = 0;
    loop {
        let line = match script.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return code,
            Err(why) => {
                note!("core: {why}");
                return 2;
            }
        };
        let request = line.request(&args.agent_id);
        let tool = request.tool_id.clone();
        match handle.call(request).await {
            Ok(mut call) => {
                if let Some(span) = line.cancel_after {
                    let ends = async { while call.next_chunk().await.is_some() {} };
                    if tokio::time::timeout(span, ends).await.is_err() {
                        call.cancel();
                    }
                }
                if !call.result().await.by_agent {
                    code = 1;
                }
            }
            Err(refused) => {
                lines.refused(&tool, ErrorCode::from(&refused).as_str());
                code = 1;
            }
        }
    }
}

/// Where the calls come from.
enum Script {
    /// All of them, read before anything is launched.
    Read(VecDeque<Line>),
    /// Standard input, a line at a time.
    Standard(Text<BufReader<Stdin>>, usize),
}

impl Script {
    fn open(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else {
            return Ok(Self::Read(VecDeque::new()));
        };
        if path.as_os_str() == "-" {
            return Ok(Self::Standard(
                BufReader::new(tokio::io::stdin()).lines(),
                0,
            ));
        }
        let text =
            std::fs::read_to_string(path).map_err(|err| format!("{}: {err}", path.display()))?;
        let mut calls = VecDeque::new();
        for (n, line) in text.lines().enumerate() {
            let line = Line::read(line)
                .map_err(|why| format!("{}, line {}: {why}", path.display(), n + 1))?;
            calls.extend(line);
        }
        Ok(Self::Read(calls))
    }

    async fn next(&mut self) -> Result<Option<Line>, String> {
        match self {
            Self::Read(calls) => Ok(calls.pop_front()),
            Self::Standard(text, n) => loop {
                *n += 1;
                let Some(line) = text
                    .next_line()
                    .await
                    .map_err(|err| format!("standard input: {err}"))?
                else {
                    return Ok(None);
                };
                if let Some(line) =
                    Line::read(&line).map_err(|why| format!("standard input, line {n}: {why}"))?
                {
                    return Ok(Some(line));
                }
            },
        }
    }
}
