//! `sap-agent`: capabilities over HTTP, and as MCP tools.
//!
//! ```text
//! args   the command line
//! mcp    the MCP server
//! work   what the agent does
//! ```

pub mod args;
pub mod mcp;
pub mod work;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sap::alignment::Rules;
use sap::cache::{CacheStore, Caching, WholePayload};
use sap::processor::{
    AllowAll, Authorize, Config, Identity, Interrupted, Processor, Schemas, Speakers, Table,
};
use sap::store::{
    FileCache, FileCacheError, FileTranscript, MemoryCache, MemoryTranscript, Redacting,
};
use sap::transcript::Transcript;
use sap::transport::mcp::{Server, router};
use sap::transport::{Service, TokioClock, http};
use sap::{AgentId, Capability};
use sap::{Producer, ProducerKind};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use ubos_common::id::IdSource;
use ubos_common::json::MemberWriter;
use ubos_common::log::{self, LogId, OpenError};
use ubos_common::secret::Secret;

use args::{Args, Parsed, USAGE};
use mission::signals::Signals;
use mission::words::with_causes;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let told = |why: &dyn std::fmt::Display| {
        let _ = writeln!(io::stderr(), "sap-agent: {why}");
    };
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(args)) => args,
        Ok(Parsed::Help) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            told(&format!("{why}; --help tells more"));
            return USAGE_ERROR.into();
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            told(&error);
            return FAILED.into();
        }
    };
    let served = runtime.block_on(serve(&args));
    // Whatever still ran is dropped with it, and the ends of that are in no file before the stores have done their work.
    // Not by a drop: that waits for the thread that reads standard input, which stays for as long as somebody holds it open.
    runtime.shutdown_timeout(SHUTDOWN);
    sap::store::wait_for_dropped();
    match served {
        Ok(code) => code.into(),
        Err(Problem::Usage(why)) => {
            told(&why);
            USAGE_ERROR.into()
        }
        Err(Problem::Failed(why)) => {
            told(&why);
            FAILED.into()
        }
    }
}

/// Why the agent does not serve.
#[derive(Debug)]
pub enum Problem {
    /// What was asked for cannot be.
    Usage(String),
    /// Something failed.
    Failed(String),
}

/// Where tasks are posted.
const PATH: &str = "/sap/tasks";

/// Serves until a signal comes; gives the exit code that tells which.
pub async fn serve(args: &Args) -> Result<u8, Problem> {
    let mut processor = processor(args)?;
    let clock = Arc::new(TokioClock::default());
    processor
        .resume(&clock, Interrupted::Fail)
        .await
        .map_err(|error| Problem::Failed(with_causes(&error)))?;
    let processor = Arc::new(processor);
    let capabilities: Vec<String> = processor.capabilities().map(ToString::to_string).collect();
    let failed = |error: io::Error| Problem::Failed(error.to_string());
    // Before the address is known, so that nobody's signal is missed.
    let mut signals = Signals::listen().map_err(failed)?;
    let service = service_of(processor, clock);
    if args.mcp {
        let served = mcp::on_standard_streams(service);
        return tokio::select! {
            served = served => served.map_err(Problem::Failed).map(|()| 0),
            code = signals.came() => Ok(code),
        };
    }
    let listener = TcpListener::bind(&args.listen).await;
    let unusable = |error| Problem::Usage(format!("{}: {error}", args.listen));
    let listener = listener.map_err(unusable)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    let mut config = http::Config::default().with_path(PATH);
    if !args.hosts.is_empty() {
        config = config.with_hosts(args.hosts.iter().chain([&address]));
    }
    let url = format!("http://{address}{PATH}");
    listening(&url, &args.agent, &capabilities).map_err(failed)?;
    let tools = router(Server::from(service.clone()));
    let (told, code) = oneshot::channel();
    let shutdown = async move {
        let _ = told.send(signals.came().await);
    };
    http::serve_with(listener, service, config, tools, shutdown)
        .await
        .map_err(failed)?;
    code.await
        .map_err(|_| Problem::Failed("nobody asked it to end".to_owned()))
}

fn service_of(processor: Arc<Processor>, clock: Arc<TokioClock>) -> Service {
    Service::new(processor, clock).on_warning(|warning| {
        drop(writeln!(
            io::stderr(),
            "sap-agent: {}",
            with_causes(warning)
        ));
    })
}

fn listening(url: &str, agent: &str, capabilities: &[String]) -> io::Result<()> {
    let mut line = Vec::new();
    let mut object = MemberWriter::begin(&mut line);
    object.member("listening", url);
    object.member("agent", agent);
    object.member("capabilities", capabilities);
    object.end();
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn processor(args: &Args) -> Result<Processor, Problem> {
    let usage = |error: &dyn std::fmt::Display| Problem::Usage(error.to_string());
    let agent: AgentId = args.agent.parse().map_err(|error| usage(&error))?;
    let (transcript, cache) = match &args.store {
        None => in_memory(),
        Some(folder) => in_files(folder)?,
    };
    let mut capabilities: Vec<Capability> = Vec::new();
    for name in NAMES {
        capabilities.push(name.parse().map_err(|error| usage(&error))?);
    }
    let mut config = Config::default();
    if let Some(tasks) = args.max_interrupted {
        config = config.with_max_interrupted(tasks);
    }
    let mut processor = Processor::new(
        Producer::new(agent, ProducerKind::Agent),
        Arc::new(AllowAll),
        transcript,
        config,
    )
    .map_err(|error| usage(&error))?
    .policy(Arc::new(Rules::default()))
    .contract(Arc::new(Schemas::default()))
    .cache(cache);
    if let Some(authorize) = authorize(args, &capabilities)? {
        processor = processor.authorize(authorize);
    }
    for capability in capabilities {
        processor = processor.cached(capability.clone(), Caching::shared(WholePayload));
        let shape = work::shape(capability.as_str());
        processor = match capability.as_str() {
            "text.upper" => processor.handle(capability.clone(), work::upper),
            "text.echo" => processor.handle(capability.clone(), work::echo),
            _ => processor.handle(capability.clone(), work::count),
        };
        processor = processor.shaped(&capability, shape);
    }
    Ok(processor)
}

/// Who may ask, where not everybody may.
fn authorize(
    args: &Args,
    capabilities: &[Capability],
) -> Result<Option<Arc<dyn Authorize>>, Problem> {
    let issuer = |id: &str| -> Result<AgentId, Problem> {
        let id = id.parse();
        id.map_err(|error: sap::NameError| Problem::Usage(error.to_string()))
    };
    let mut table = Table::default();
    for id in &args.allow {
        for capability in capabilities {
            table = table.allow(issuer(id)?, capability.clone());
        }
    }
    let claimed: Arc<dyn Authorize> = match args.allow.is_empty() {
        true => Arc::new(AllowAll),
        false => Arc::new(table),
    };
    if args.tokens.is_empty() {
        return Ok((!args.allow.is_empty()).then_some(claimed));
    }
    let mut speakers = Speakers::new(claimed);
    for (id, file) in &args.tokens {
        let shown = file.display();
        let read = std::fs::read_to_string(file);
        let token = read.map_err(|error| Problem::Usage(format!("{shown}: {error}")))?;
        let token = Secret::new(token.trim().to_owned());
        if token.expose().is_empty() {
            return Err(Problem::Usage(format!("{shown}: no token in it")));
        }
        speakers = speakers.allow(Identity::bearer(&token), issuer(id)?);
    }
    Ok(Some(Arc::new(speakers)))
}

type Stores = (Arc<dyn Transcript>, Arc<dyn CacheStore>);

fn in_memory() -> Stores {
    let transcript = Redacting(MemoryTranscript::default());
    (Arc::new(transcript), Arc::new(MemoryCache::default()))
}

fn in_files(folder: &Path) -> Result<Stores, Problem> {
    let failed = |error: &dyn std::error::Error| Problem::Failed(with_causes(error));
    let mut ids = IdSource::from_os().map_err(|error| failed(&error))?;
    // A log that is there keeps its id; a folder without one may be what an agent left that never got further.
    let mut named =
        || log::Config::default().with_log_id(LogId::from_bytes(*ids.uuid().as_bytes()));
    let path = folder.join("transcript");
    let transcript = match FileTranscript::open(&path, log::Config::default()) {
        Err(OpenError::NoId) => FileTranscript::open(path, named()),
        opened => opened,
    };
    let transcript = transcript.map_err(|error| failed(&error))?;
    let path = folder.join("cache");
    let cache = match FileCache::open(&path, log::Config::default()) {
        Err(FileCacheError::Open(OpenError::NoId)) => FileCache::open(path, named()),
        opened => opened,
    };
    let cache = cache.map_err(|error| failed(&error))?;
    Ok((Arc::new(Redacting(transcript)), Arc::new(cache)))
}

const NAMES: [&str; 3] = ["text.upper", "text.echo", "text.count"];
/// How long the threads that block may take to end.
const SHUTDOWN: Duration = Duration::from_secs(1);
const USAGE_ERROR: u8 = 2;
const FAILED: u8 = 3;
