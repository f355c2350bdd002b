//! `agent-chat`: a talk with an agent that uses tools, streams, branches and is kept.
//!
//! ```text
//! args      the command line            model     which model talks      scripted   ours
//! chat      lines, questions, commands  tools     what the agent may do  calc       sums
//! session   the tree and its file       screen    what is shown          trace      what happens, in a file
//! approval  calls that wait for a person
//! ```

mod approval;
mod args;
mod calc;
mod chat;
mod lines;
mod model;
mod screen;
mod scripted;
mod session;
mod tools;
mod trace;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use tokio::io::BufReader;
use tokio::signal::unix::{SignalKind, signal};
use uap_agent::{
    AgentOptions, CheckpointStore, ExecutionStrategy, FileCheckpoints, LoopOptions, PlanOptions,
    ReactOptions, agent, plan, react, tool_loop,
};
use ubos_common::id::IdSource;
use ubos_common::os::Clock;
use ubos_common::time::Now;

use approval::{Approvals, AskFirst};
use args::{Args, Decides, Parsed, USAGE, Way};
use chat::{Chat, Stop};
use lines::Lines;
use session::{Begun, Session};
use trace::TraceFile;

const SYSTEM: &str = "You are a helpful assistant in a terminal. Answer briefly, in plain text. Use your tools for \
sums, for counting words and for reading files; a path is relative to the folder that the user has opened.";

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let told = |why: &str, code: u8| {
        note!("agent-chat: {}", screen::clean_line(why));
        ExitCode::from(code)
    };
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(args)) => *args,
        Ok(Parsed::Help) => {
            // Nobody may be reading any more.
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => return told(&format!("{why}; --help tells more"), 2),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => return told(&err.to_string(), 3),
    };
    let ended = runtime.block_on(run(&args));
    // Standard input may still be waited for.
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(Stop::Input(why)) => told(&why, 2),
        Err(Stop::Fault(why)) => told(&why, 3),
    }
}

async fn run(args: &Args) -> Result<u8, Stop> {
    let is_terminal = io::stdin().is_terminal();
    // Listened to all the time: one that comes between two events counts too.
    let interrupted = signal(SignalKind::interrupt())?;
    let clock = Clock::start();
    let approvals = args
        .checkpoints
        .as_deref()
        .map(|folder| Approvals::of(folder, &args.session));
    if let (Some(decides), Some(approvals)) = (args.decides.clone(), &approvals) {
        return decide(approvals, clock.now(), decides).await;
    }
    let store = store(args)?;
    let checkpoint = match &store {
        Some(store) => {
            let loaded = store.load(&args.session).await;
            loaded.map_err(|err| Stop::Input(err.to_string()))?
        }
        None => None,
    };
    let folder = args
        .checkpoints
        .as_deref()
        .map(|folder| folder.join(&args.session));
    let ids = IdSource::from_os().map_err(|err| Stop::Fault(err.to_string()))?;
    let opened = Session::open(folder.as_deref(), ids, checkpoint);
    let (session, begun) = opened.map_err(Stop::Input)?;
    let trace = args.trace.as_deref().map(TraceFile::create).transpose();
    let trace = trace.map_err(|err| Stop::Input(format!("--trace: {err}")))?;
    let agent = agent(options(args, store.clone())?).map_err(|err| Stop::Input(err.to_string()))?;
    greet(args, &session, begun, is_terminal);
    let mut chat = Chat {
        agent,
        session,
        store,
        approvals,
        asks_first: !args.ask_first.is_empty(),
        trace,
        interrupted,
        is_terminal,
        clock,
        has_failed: false,
    };
    let lines = Lines::new(BufReader::new(tokio::io::stdin()));
    chat.talk(lines).await
}

/// What a second terminal does.
async fn decide(approvals: &Approvals, now: Now, decides: Decides) -> Result<u8, Stop> {
    let by = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    match approvals.decide(now, decides, &by).await {
        Ok(lines) => {
            let mut out = io::stdout().lock();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            Ok(0)
        }
        Err(why) => {
            note!("agent-chat: {}", screen::clean_line(&why));
            Ok(1)
        }
    }
}

fn store(args: &Args) -> Result<Option<Arc<dyn CheckpointStore>>, Stop> {
    let Some(folder) = &args.checkpoints else {
        return Ok(None);
    };
    let place = folder.display().to_string();
    let opened = FileCheckpoints::open(folder);
    let store = opened.map_err(|err| Stop::Input(format!("{place}: {err}")))?;
    let store = store.with_on_corrupt(|file| note!("agent-chat: {file}"));
    Ok(Some(Arc::new(store)))
}

fn options(args: &Args, store: Option<Arc<dyn CheckpointStore>>) -> Result<AgentOptions, Stop> {
    let model = model::model(&args.model, |name| std::env::var(name).ok()).map_err(Stop::Input)?;
    let tools = tools::tools(args.dir.as_deref()).map_err(Stop::Input)?;
    let strategy: Result<Arc<dyn ExecutionStrategy>, _> = match args.way {
        Way::Loop => tool_loop(LoopOptions::default()),
        Way::React => react(ReactOptions::default()),
        Way::Plan => plan(PlanOptions::default()),
    };
    let strategy = strategy.map_err(|err| Stop::Fault(err.to_string()))?;
    let options = AgentOptions::new(model)
        .with_tools(tools)
        .with_system(SYSTEM)
        .with_execution(strategy)
        .with_approvals(Arc::new(AskFirst(args.ask_first.clone())))
        .with_on_save_failed(|err| note!("agent-chat: a state was not kept: {err}"));
    Ok(match store {
        Some(store) => options
            .with_checkpoints(store)
            .with_session_id(args.session.as_str()),
        None => options,
    })
}

fn greet(args: &Args, session: &Session, begun: Begun, is_terminal: bool) {
    let (title, count) = (
        screen::title(session.current()),
        session.state().messages().len(),
    );
    match begun {
        Begun::Resumed => note!("  {} goes on at {title}, {count} messages", args.session),
        Begun::Rescued => note!(
            "  {} goes on at {title}, {count} messages: its last answer was cut off",
            args.session
        ),
        Begun::New if is_terminal => note!("  /help lists the commands, Ctrl-D ends"),
        Begun::New => {}
    }
}
