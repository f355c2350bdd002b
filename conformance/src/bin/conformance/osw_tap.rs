//! `osw-tap`: stands between a core and its agent, and judges both.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use ubos_common::os::Clock;
use ubos_conformance::Expectations;
use ubos_conformance::osw::{Launch, Tap, relay};

use super::{Judgement, Stop};

/// How long the agent may take to connect.
const CONNECTING: Duration = Duration::from_secs(60);

/// How long the agent may take to end, when its connection has.
const ENDING: Duration = Duration::from_millis(400);

/// Judges what passes between the core that launched this program, and an agent that it launches.
pub(super) fn judge(command: &[OsString], _: &Expectations) -> Result<Judgement, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|err| Stop::Fault(err.to_string()))?;
    runtime.block_on(listen(command))
}

async fn listen(command: &[OsString]) -> Result<Judgement, Stop> {
    let var = |name: &str| {
        let missing = || Stop::Usage(format!("{name} is not set: a core launches this program"));
        std::env::var(name).map_err(|_| missing())
    };
    let path = var("OPENSENTIENCE_SOCKET_PATH").or_else(|_| var("OPENSENTIENCE_SOCKET"))?;
    let token = var("OPENSENTIENCE_SESSION_TOKEN")?;
    let launch = Launch::new(var("OPENSENTIENCE_AGENT_ID")?, token.into());
    let fault = |err: std::io::Error| Stop::Fault(err.to_string());
    let core = UnixStream::connect(path).await;
    let core = core.map_err(|err| Stop::Fault(format!("the core's socket: {err}")))?;
    let folder = Folder::new().map_err(fault)?;
    let socket = folder.0.join("tap");
    let listener = UnixListener::bind(&socket).map_err(fault)?;
    let mut agent = start(command, &socket)?;
    let (clock, tap) = (Clock::start(), Mutex::new(Tap::new()));
    let heard = || {
        tap.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    heard().begin(clock.now().mono, launch);
    let passed = async {
        let connected = tokio::select! {
            accepted = listener.accept() => accepted.ok(),
            _ = agent.wait() => None,
            () = tokio::time::sleep(CONNECTING) => None,
        };
        if let Some((agent, _)) = connected {
            relay(core, agent, clock, &tap).await;
        }
    };
    let mut asked = signal(SignalKind::terminate()).map_err(fault)?;
    tokio::select! {
        () = passed => {}
        // What was heard until now counts.
        _ = asked.recv() => {}
    }
    if tokio::time::timeout(ENDING, agent.wait()).await.is_err() {
        // It may have ended in between.
        let _ = agent.kill().await;
    }
    let tap = tap
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let verdicts = tap.finish(clock.now().mono);
    let reports = vec![("agent", verdicts.agent), ("core", verdicts.core)];
    let levels = Vec::new();
    Ok(Judgement { reports, levels })
}

/// The agent, with this program's environment but for the socket.
fn start(command: &[OsString], socket: &Path) -> Result<Child, Stop> {
    let program = command
        .first()
        .map_or_else(|| OsStr::new(""), OsString::as_os_str);
    Command::new(program)
        .args(command.iter().skip(1))
        .env_remove("OPENSENTIENCE_SOCKET")
        .env("OPENSENTIENCE_SOCKET_PATH", socket)
        .kill_on_drop(true)
        .spawn()
        .map_err(|err| Stop::Usage(format!("{}: {err}", program.to_string_lossy())))
}

/// A folder that only this user reaches, and that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = std::env::temp_dir().join(format!("osw-tap-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is a folder of ours with a dead socket in it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
