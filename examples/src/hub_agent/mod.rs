//! `hub-agent`: a fleet agent that echoes, sleeps, fails, and writes in capitals.
//!
//! ```text
//! args   the command line
//! work   what the agent does
//! ```

mod args;
pub mod work;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;
use uap_hub_proto::role::agent::Event;
use uap_hub_proto::transport::client::{AgentBuilder, AgentHandle};

use crate::secured;
use args::{Args, USAGE};

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
    let signals = signal(SignalKind::interrupt()).and_then(|interrupted| {
        signal(SignalKind::terminate()).map(|terminated| (interrupted, terminated))
    });
    let (mut interrupted, mut terminated) = match signals {
        Ok(signals) => signals,
        Err(err) => {
            note!("hub-agent: {err}");
            return ExitCode::from(3);
        }
    };
    let mut news = agent.events();
    let code = loop {
        tokio::select! {
            event = news.recv() => match event {
                Ok(event) => tell(&event),
                Err(RecvError::Lagged(n)) => note!("hub-agent: {n} events were not shown"),
                Err(RecvError::Closed) => break 3,
            },
            _ = interrupted.recv() => break 130,
            _ = terminated.recv() => break 0,
        }
    };
    note!("hub-agent: leaving");
    agent.shutdown(args.drain).await;
    ExitCode::from(code)
}

fn tell(event: &Event) {
    let line = match event {
        Event::Listening { client_id } => format!("listening as {client_id}"),
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
    note!("hub-agent: {line}");
}
