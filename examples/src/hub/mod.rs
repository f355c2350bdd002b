//! `hub`: a UAP hub on a port.
//!
//! ```text
//! args     the command line
//! jobs     JSON lines in
//! lines    JSON lines out, and what happens when nobody reads them
//! archive  ends that leave the store
//! desk     what is to be done with each job, and when everything is
//! shared   the same with a queue that several hubs share
//! ```

mod archive;
mod args;
mod desk;
mod jobs;
mod lines;
mod shared;

use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use mission::signals::Signals;
use mission::words::with_causes;
use serde_json::json;
use tokio::sync::{broadcast, mpsc, watch};
use uap_hub_proto::role::hub::{self, Event};
use uap_hub_proto::store::{FileStore, FileStoreError, JobStore};
use uap_hub_proto::transport::server::{Denied, HubHandle, ServerConfig, serve};
use ubos_common::id::IdSource;
use ubos_common::log::{self, LogId, OpenError};

use crate::secured;
use archive::Archiving;
use args::Args;
use lines::Lines;

const UNUSABLE: u8 = 2;
const FAILED: u8 = 3;

/// How long the ends of jobs may take to be stored and told after the time for draining: longer than the hub waits for its store, so
/// that it says what it lacks.
const SETTLING: Duration = Duration::from_secs(15);
/// How long the last lines may take to be read after a signal.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            let _ = std::io::Write::write_all(&mut std::io::stdout(), args::USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            note!("hub: {why}; --help tells more");
            return ExitCode::from(UNUSABLE);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(run(args)).unwrap_or_else(|(code, why)| {
                note!("hub: {why}");
                code
            });
            // Standard input may still be waited for.
            runtime.shutdown_background();
            ExitCode::from(code)
        }
        Err(err) => {
            note!("hub: {err}");
            ExitCode::from(FAILED)
        }
    }
}

/// Bytes of the registrations of a peer of so many agents: one alone may be as large as any.
fn registered_bytes(agents: usize) -> usize {
    /// What the library gives to a peer of 1000 agents.
    const LEAST: usize = 32 << 20;
    agents.saturating_mul(32 << 10).max(LEAST)
}

/// An exit code and the words for it.
type Problem = (u8, String);

async fn run(args: Args) -> Result<u8, Problem> {
    let lines = Lines::default();
    let interrupted = interrupted().boxed().shared();
    let code = hub(&args, &lines, interrupted.clone()).await?;
    // Who reads slowly gets all; who does not read at all keeps nobody from ending the program.
    let late = interrupted.then(|_| tokio::time::sleep(LAST_LINES));
    let unread = || (FAILED, "the last lines were not read".to_owned());
    tokio::select! {
        () = lines.flushed() => {}
        () = late => return Err(unread()),
    }
    match lines.is_broken() {
        true => Err(unread()),
        false => Ok(code),
    }
}

/// All but the last lines.
async fn hub(
    args: &Args,
    lines: &Lines,
    interrupted: impl Future<Output = u8> + Clone,
) -> Result<u8, Problem> {
    // A name that was mistyped is said before anything runs.
    for file in args.files.iter().filter(|file| file.as_os_str() != "-") {
        let found = file.metadata();
        found.map_err(|err| (UNUSABLE, format!("{}: {err}", file.display())))?;
    }
    let store = args.store.as_deref().map(open).transpose();
    let store = store.map_err(|why| (UNUSABLE, why))?.map(Arc::new);
    let archiving = store.as_ref().zip(args.archive.as_ref());
    let archiving =
        archiving.map(|(store, folder)| Archiving::new(Arc::clone(store), folder, args.keep_ends));
    if let Some(archiving) = &archiving {
        let moved = archiving.archive().map_err(|why| (UNUSABLE, why))?;
        lines.say("archived", json!({"jobs": moved}));
    }
    if let (Some(store), true) = (&store, args.results) {
        return results(store, lines).await;
    }
    let config = hub::Config::default()
        .with_max_attempts(args.attempts)
        .with_max_jobs(args.max_jobs)
        .with_resume_grace(args.grace)
        .with_max_agents_per_peer(args.max_per_peer)
        .with_max_registered_bytes_per_peer(registered_bytes(args.max_per_peer))
        .with_wait_limit(Duration::from_secs(24 * 60 * 60));
    let mut config =
        secured(args, ServerConfig::default().with_hub(config)).map_err(|why| (UNUSABLE, why))?;
    config = match (&store, &archiving) {
        (_, Some(archiving)) => config.with_store(archiving.clone()),
        (Some(store), None) => config.with_store(store.clone()),
        (None, None) => config,
    };
    let hub = serve(args.listen, config).await;
    let hub = hub.map_err(|err| (UNUSABLE, format!("{}: {err}", args.listen)))?;
    let news = hub.events();
    // Listened to before the address is known, so that nobody's signal is missed.
    if let Some(code) = interrupted.clone().now_or_never() {
        return Ok(code);
    }
    lines.say(
        "listening",
        json!({"address": hub.local_addr().to_string(), "url": hub.url()}),
    );
    let (leave, leaving) = watch::channel(false);
    let mut working = pin!(work(args, &hub, store.clone(), lines, leaving));
    let worked = tokio::select! {
        worked = &mut working => worked,
        () = agents(news, &hub, lines) => Ok(FAILED),
        () = archive(archiving, lines) => Ok(FAILED),
        code = interrupted => {
            leave.send_replace(true);
            // Jobs that end in time have their end stored and told. Those of a queue that do not go back to it.
            let both = async { tokio::join!(hub.shutdown(args.drain), working).1 };
            let late = || Err((FAILED, "the jobs were not settled in time".to_owned()));
            let settled = tokio::time::timeout(args.drain.saturating_add(SETTLING), both).await;
            settled.unwrap_or_else(|_| late()).map(|_| code)
        }
    };
    let left = hub.shutdown(args.drain).await;
    let code = worked?;
    left.map_err(|err| (FAILED, err.to_string()))?;
    Ok(code)
}

/// Archives what is not needed any more, for ever.
async fn archive(archiving: Option<Arc<Archiving>>, lines: &Lines) {
    match archiving {
        Some(archiving) => archiving.run(lines).await,
        None => std::future::pending().await,
    }
}

/// Lets in whom the arguments let in.
fn secured(args: &Args, mut config: ServerConfig) -> Result<ServerConfig, String> {
    config = config.with_max_connections_per_address(args.max_per_peer);
    if let Some(bytes) = args.max_control_bytes {
        config = config.with_max_control_message_bytes(bytes);
    }
    if let Some(tls) = args.tls.read()? {
        config = config.with_tls(tls);
    }
    let Some(file) = &args.token_file else {
        return Ok(config);
    };
    let tokens = Arc::new(secured::Tokens::read(file)?);
    Ok(config.with_authorize(move |caller| {
        let tokens = Arc::clone(&tokens);
        async move {
            let Some(token) = caller.bearer_token() else {
                return Err(Denied::Unauthenticated("the hub wants a token".to_owned()));
            };
            let holder = tokens.holder(token);
            let refused = || Denied::Forbidden("this is not a token of the hub".to_owned());
            let holder = holder.ok_or_else(refused)?;
            Ok(caller.certificate().unwrap_or_else(|| holder.into()))
        }
    }))
}

async fn work(
    args: &Args,
    hub: &HubHandle,
    store: Option<Arc<FileStore>>,
    lines: &Lines,
    leaving: watch::Receiver<bool>,
) -> Result<u8, Problem> {
    // A line may have 96 MiB: one is read while the last is looked at.
    let (sender, inputs) = mpsc::channel(1);
    let files = args.files.clone();
    tokio::task::spawn_blocking(move || jobs::read_all(&files, &sender));
    match &args.nats {
        Some(url) => shared::work(args, url, hub, inputs, lines, leaving).await,
        None => {
            let store = store.map(|store| store as Arc<dyn JobStore>);
            Ok(desk::work(args, hub, store, inputs, lines, leaving).await)
        }
    }
}

/// Says what agents do, for ever.
async fn agents(mut news: broadcast::Receiver<Event>, hub: &HubHandle, lines: &Lines) {
    loop {
        match news.recv().await {
            Ok(Event::AgentRegistered { agent, name }) => {
                // It may be gone by now.
                let info = hub.inspect(|view| view.agent(&agent));
                lines.registered(&agent, &name, info.as_ref());
            }
            Ok(event) => lines.agent(&event),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                lines.missed(missed);
            }
            // The hub is leaving, and says so to whoever waits for that.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Ready when somebody wants the program to end: listens from its first poll on.
async fn interrupted() -> u8 {
    match Signals::listen() {
        Ok(mut signals) => signals.came().await,
        Err(err) => {
            note!("hub: signals: {err}");
            FAILED
        }
    }
}

/// Prints how all jobs of a store ended.
async fn results(store: &FileStore, lines: &Lines) -> Result<u8, Problem> {
    let mut all_good = true;
    for end in store.outcomes() {
        lines.room().await;
        if lines.is_broken() {
            break;
        }
        match end.map_err(|err| (FAILED, err.to_string()))? {
            (job, Some(outcome)) => {
                all_good &= outcome.verdict == hub::Verdict::Completed;
                lines.end(job, None, &outcome);
            }
            (job, None) => lines.say("unfinished", json!({"job": job.to_string()})),
        }
    }
    Ok(u8::from(!all_good))
}

fn open(folder: &Path) -> Result<FileStore, String> {
    let words = |err: &dyn std::error::Error| format!("{}: {}", folder.display(), with_causes(err));
    // A log that is there keeps its id.
    let opened = match FileStore::open(folder, log::Config::default()) {
        Err(FileStoreError::Open(OpenError::NoId)) => {
            let mut ids = IdSource::from_os().map_err(|err| words(&err))?;
            let id = LogId::from_bytes(*ids.uuid().as_bytes());
            FileStore::open(folder, log::Config::default().with_log_id(id))
        }
        opened => opened,
    };
    opened.map_err(|err| words(&err))
}
