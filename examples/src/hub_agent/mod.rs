//! `hub-agent`: a fleet agent that echoes, sleeps, fails, and writes in capitals.
//!
//! ```text
//! args   the command line
//! work   what the agent does
//! ```

mod args;
pub mod work;

use std::process::ExitCode;
use std::time::Duration;

use mission::signals::{INTERRUPTED, Signals};
use tokio::sync::broadcast::error::RecvError;
use uap_hub_proto::role::agent::Event;
use uap_hub_proto::transport::client::{AgentBuilder, AgentHandle};

use crate::out::Out;
use crate::secured;
use args::{Args, USAGE};

/// How long the last lines may take to be read.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let told = |why: &dyn std::fmt::Display, code| {
        note!("hub-agent: {why}");
        ExitCode::from(code)
    };
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            let _ = std::io::Write::write_all(&mut std::io::stdout(), USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => return told(&format!("{why}; --help tells more"), 2),
    };
    let agent = match built(&args) {
        Ok(agent) => agent,
        Err(why) => return told(&why, 2),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => return told(&err, 3),
    };
    runtime.block_on(async {
        match agent.start(&args.hub) {
            Ok(agent) => serve(&agent, &args).await,
            Err(err) => told(&err, 2),
        }
    })
}

fn built(args: &Args) -> Result<AgentBuilder, String> {
    let mut agent = work::agent(&args.name).configure(|config| {
        config
            .with_max_sessions(args.max_sessions)
            .with_resume(args.resume)
            .with_resume_limit(args.resume_limit)
    });
    if let Some(file) = &args.token_file {
        agent = agent.with_bearer_token(secured::token(file)?);
    }
    if let Some(tls) = args.tls.read()? {
        agent = agent.with_tls(tls);
    }
    Ok(agent)
}

/// Tells what happens until a signal comes, then leaves.
async fn serve(agent: &AgentHandle, args: &Args) -> ExitCode {
    // Listened to all the time: one that comes between two events counts too.
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(err) => {
            note!("hub-agent: {err}");
            return ExitCode::from(3);
        }
    };
    let mut news = agent.events();
    // Who does not read what it says holds up nothing, a signal least of all.
    let out = Out::start(std::io::stderr(), |lines| {
        said(&format!("{lines} lines were left out"))
    });
    let code = loop {
        tokio::select! {
            event = news.recv() => match event {
                Ok(event) => out.news(line_of(&event)),
                Err(RecvError::Lagged(n)) => out.news(said(&format!("{n} events were not shown"))),
                Err(RecvError::Closed) => break 3,
            },
            code = signals.came() => break if code == INTERRUPTED { code } else { 0 },
        }
    };
    out.news(said("leaving"));
    agent.shutdown(args.drain).await;
    let _ = tokio::time::timeout(LAST_LINES, out.flushed()).await;
    ExitCode::from(code)
}

/// A line of the program.
fn said(words: &str) -> String {
    format!("hub-agent: {words}\n")
}

/// The line of an event.
fn line_of(event: &Event) -> String {
    let line = match event {
        Event::Listening { client_id } => {
            format!("listening as {}", client_id.as_str().escape_debug())
        }
        Event::Retrying { after, reason } => {
            format!("trying again in {after:?}: {}", reason.escape_debug())
        }
        Event::Refused { session, reason } => format!("{session:?} refused: {reason}"),
        Event::SessionCut { session, reason } => {
            format!("{session:?} cut: {}", reason.escape_debug())
        }
        Event::SessionResumed { session } => format!("{session:?} resumed"),
        Event::SessionOver { session, status } => match status {
            Some(status) => format!("{session:?} over: {:?}", status.code),
            None => format!("{session:?} given up"),
        },
        other => format!("{other:?}"),
    };
    said(&line)
}
