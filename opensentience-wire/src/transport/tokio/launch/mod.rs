//! Launching agents as processes of their own.

mod logs;
mod process;
mod state;

use core::time::Duration;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

pub use logs::Captured;

use process::Process;
pub use state::{LaunchError, Launcher};

use super::audit::{AuditSink, Listeners, Observer};
use super::core::SharedConnection;
use super::handle::{CoreHandle, drive};
use crate::audit::{AuditEvent, AuditName};
use crate::error::{ErrorCode, require};
use crate::ledger::Ledger;
use crate::manifest::Manifest;
use crate::message::{Health, SharedTools};
use crate::role::CloseReason;
use crate::role::core::{Config, CoreConnection};
use crate::token::{Grant, SessionToken};

/// Connections of a launch that may fail the handshake: a process may try again, and not without end.
const MAX_HANDSHAKES: usize = 16;

/// The longest socket path that every Unix takes, its end counted.
const PATH_BYTES: usize = 104;

impl Launcher {
    /// A launcher of an agent whose program is at a path.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, program: impl AsRef<OsStr>) -> Self {
        Self {
            agent_id: agent_id.into(),
            program: program.as_ref().into(),
            args: Vec::new(),
            envs: Vec::new(),
            manifest_hash: None,
            manifest: None,
            wanted_manifest: None,
            router_agent: None,
            clock: Clock::start(),
            config: Config::default(),
            listeners: Listeners::default(),
            stop_timeout: Duration::from_secs(5),
            output: Captured::default(),
        }
    }

    /// Adds arguments. Everybody on the machine can read them: no secrets.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().into());
        self.args.extend(args);
        self
    }

    /// Adds a variable to the agent's environment, of which nothing is inherited but `PATH`.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let pair = (name.as_ref().into(), value.as_ref().into());
        self.envs.push(pair);
        self
    }

    /// Binds the launch to the hash of a manifest: an agent whose hello names another is turned away.
    #[must_use]
    pub fn with_manifest_hash(mut self, hash: impl Into<String>) -> Self {
        self.manifest_hash = Some(hash.into());
        self
    }

    /// Binds the launch to a manifest and its hash, as `read_manifest` (feature `manifest`) gives them: the agent must be
    /// the manifest's, no call may take longer than it says, and no more may run at once or in a span of time. What the agent
    /// itself may call is the matter of a router, which keeps count over launches, too:
    /// [`AgentSource::of`](super::AgentSource::of).
    #[must_use]
    pub fn with_manifest(mut self, manifest: &Manifest, hash: impl Into<String>) -> Self {
        self.manifest = Some(Box::new(manifest.clone()));
        self.with_manifest_hash(hash)
    }

    /// How the core treats the agent, within the bounds of its manifest.
    fn bounded_config(&self) -> Config {
        let mut config = self.config.clone();
        let Some(manifest) = &self.manifest else {
            return config;
        };
        let (quota, call_timeout) = (manifest.quota(), manifest.call_timeout());
        let limits = &mut config.limits;
        let at_once = quota.concurrent.unwrap_or(usize::MAX);
        limits.max_inflight_requests = limits.max_inflight_requests.min(at_once);
        // A router that has the manifest counts over launches.
        if self.wanted_manifest.is_none() {
            config.manifest_rate = quota.rate;
        }
        let own = config.call_timeout;
        config.with_call_timeout(own.map_or(call_timeout, |own| own.min(call_timeout)))
    }

    /// Sets how the core treats the agent.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Has only the agent of this id be launched, and counts what is kept for it in a ledger.
    pub(super) fn for_router(mut self, agent: &str, ledger: Ledger, clock: Clock) -> Self {
        self.clock = clock;
        self.router_agent = Some((agent.to_owned(), ledger));
        self
    }

    /// Has nothing be launched that is not bound to this manifest.
    pub(super) fn needing_manifest(mut self, wanted: Option<Arc<Manifest>>) -> Self {
        self.wanted_manifest = wanted;
        self
    }

    /// Where everything counts that is kept for the agent.
    fn ledger(&self) -> Ledger {
        let new = || Ledger::new(self.config.limits.max_agent_bytes);
        let given = self.router_agent.as_ref();
        given.map_or_else(new, |(_, ledger)| ledger.clone())
    }

    pub(super) fn map_config(&mut self, change: impl FnOnce(Config) -> Config) {
        self.config = change(core::mem::take(&mut self.config));
    }

    /// Sets where audit records go.
    #[must_use]
    pub fn with_audit(mut self, sink: impl Into<AuditSink>) -> Self {
        self.listeners.audit = sink.into();
        self
    }

    /// Sets what observes the connection's events.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Into<Observer>) -> Self {
        self.listeners.observer = observer.into();
        self
    }

    /// Has somebody hear of the agent's health, beside the observer.
    pub(super) fn telling_health(mut self, health: watch::Sender<Health>) -> Self {
        self.listeners.health = Some(health);
        self
    }

    /// Sets how long the process may take to end after SIGTERM, before it is killed. Before SIGTERM it has a tenth of this span to
    /// end by itself, but at least half a second, or the whole span where that is shorter.
    #[must_use]
    pub const fn with_stop_timeout(mut self, span: Duration) -> Self {
        self.stop_timeout = span;
        self
    }

    /// What the process writes to standard output and error, without what looks like a secret, and how it ends.
    #[must_use]
    pub fn output(&self) -> Captured {
        self.output.clone()
    }

    /// Starts the process and takes the agent in; waits for its tools too, as long as for its hello.
    ///
    /// # Errors
    ///
    /// See [`LaunchError`]; no process is left behind.
    pub async fn launch(self) -> Result<CoreHandle, LaunchError> {
        let wait = self.tools_timeout();
        let mut handle = self.connect().await?;
        // An agent without tools is taken in all the same.
        let _ = tokio::time::timeout(wait, handle.tools_changed()).await;
        Ok(handle)
    }

    /// How long the tools of an agent are waited for.
    pub(super) const fn tools_timeout(&self) -> Duration {
        self.config.handshake_timeout
    }

    /// As [`launch`](Self::launch), without its tools yet.
    pub(super) async fn connect(self) -> Result<CoreHandle, LaunchError> {
        let clock = self.clock;
        let ledger = self.ledger();
        self.output.count_in(&ledger);
        let begun = self.check().and_then(|()| self.spawn());
        let mut agent = begun.inspect_err(|error| self.on_failed(error, &clock))?;
        let mut run = Run::begun(&self, clock);
        let mut grant = Grant::new(clock.mono(), agent.token.clone(), &self.agent_id);
        if let Some(hash) = &self.manifest_hash {
            grant = grant.with_manifest_hash(hash);
        }
        let (tools_tx, tools) = watch::channel(Arc::from(Vec::new()));
        let accepted = self.accept(&mut agent, &clock, grant, tools_tx, &ledger);
        let shared = match accepted.await {
            Ok(shared) => shared,
            Err(error) => {
                self.output
                    .set_status(agent.process.stop(self.stop_timeout).await);
                run.ended(AuditName::RunCrashed, Some(error.line()));
                return Err(error);
            }
        };
        // One connection is all that a launch is for.
        let mut process = agent.into_process();
        let connection = Arc::clone(&shared);
        Ok(drive(shared, tools, move |mut running| async move {
            // Also of one that is not read, which nobody would hear the end of.
            let reason = tokio::select! {
                biased;
                reason = &mut running => reason,
                () = process.gone() => {
                    connection.agent_is_gone();
                    running.await
                }
            };
            drop(connection);
            let asked = matches!(reason, CloseReason::Goodbye);
            run.stop_requested();
            let status = process.stop(self.stop_timeout).await;
            self.output.set_status(status);
            let clean = asked || status.is_some_and(|status| status.success());
            let name = if clean {
                AuditName::RunStopped
            } else {
                AuditName::RunCrashed
            };
            run.ended(name, None);
            reason
        }))
    }

    fn check(&self) -> Result<(), LaunchError> {
        self.config.check()?;
        let has_id = !self.agent_id.is_empty();
        require(has_id, "agent_id", &self.agent_id, "an agent has an id")?;
        let is_other = |id: &&String| **id != self.agent_id;
        let agent = || self.agent_id.clone();
        let bound = self.manifest.as_deref();
        if let Some(manifest) = bound.filter(|bound| bound.agent_id() != self.agent_id) {
            let (manifest, agent) = (manifest.agent_id().to_owned(), agent());
            return Err(LaunchError::OtherManifest { manifest, agent });
        }
        let wanted = self.wanted_manifest.as_deref();
        if wanted.is_some() && wanted != bound {
            return Err(LaunchError::Unbound { agent: agent() });
        }
        let wanted = self.router_agent.as_ref().map(|(wanted, _)| wanted);
        if let Some(wanted) = wanted.filter(is_other) {
            let (launcher, agent) = (agent(), wanted.clone());
            return Err(LaunchError::OtherLauncher { launcher, agent });
        }
        Ok(())
    }

    /// Records a launch that failed. A router tells nobody else why.
    fn on_failed(&self, error: &LaunchError, clock: &Clock) {
        let mut event = self.event(AuditName::RunCrashed, clock);
        event.detail = Some(error.line());
        self.listeners.audit.take(event);
    }

    /// Starts the process alone: its connections are the caller's to drive, with a
    /// [`CoreConnection`] or without one.
    ///
    /// # Errors
    ///
    /// See [`LaunchError`]; no process is left behind.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn spawn(&self) -> Result<AgentProcess, LaunchError> {
        let (folder, path, listener) = socket()?;
        let token = SessionToken::generate()?;
        self.output.guard(&token);
        let process = Process::start(self, &path, &token)?;
        Ok(AgentProcess {
            process,
            listener,
            folder,
            token,
        })
    }

    async fn accept(
        &self,
        agent: &mut AgentProcess,
        clock: &Clock,
        grant: Grant,
        tools: watch::Sender<SharedTools>,
        ledger: &Ledger,
    ) -> Result<Arc<SharedConnection>, LaunchError> {
        let mut grant = Some(grant);
        let span = self.config.handshake_timeout;
        let deadline = clock.mono().saturating_add(span);
        let late = tokio::time::sleep(span);
        tokio::pin!(late);
        // All of them have the time of one.
        for _ in 0..MAX_HANDSHAKES {
            let refused = || {
                let event = self.event(AuditName::HandshakeFailed, clock);
                let event = event.with_code(ErrorCode::Unauthorized);
                self.listeners
                    .audit
                    .take(event.with_detail("a connection of another process"));
            };
            let stream = tokio::select! {
                biased;
                () = &mut late => return Err(LaunchError::Handshake),
                accepted = agent.accept_own(refused) => accepted?,
            };
            let ids = IdSource::from_os()?;
            let left = deadline.saturating_since(clock.mono());
            let config = self.bounded_config().with_handshake_timeout(left);
            let conn = CoreConnection::new(clock.now(), config, ids, grant.take())?;
            let conn = conn.with_ledger(ledger.clone())?;
            let listeners = self.listeners.clone();
            let shared = SharedConnection::new(stream, *clock, conn, listeners, tools.clone());
            if shared.handshake().await {
                return Ok(shared);
            }
            grant = shared.refuse().await;
            if grant.is_none() {
                break;
            }
        }
        Err(LaunchError::Handshake)
    }

    fn event(&self, name: AuditName, clock: &Clock) -> AuditEvent {
        let mut event = AuditEvent::of(name, clock.now().wall);
        event.agent_id = Some(self.agent_id.clone());
        event
    }
}

/// What the audit hears of a process. One that is given up, with its launch or its runtime, has ended, too.
struct Run {
    audit: AuditSink,
    agent_id: String,
    clock: Clock,
    has_ended: bool,
}

impl Run {
    fn begun(launcher: &Launcher, clock: Clock) -> Self {
        let run = Self {
            audit: launcher.listeners.audit.clone(),
            agent_id: launcher.agent_id.clone(),
            clock,
            has_ended: false,
        };
        run.take(AuditName::RunStarted, None);
        run
    }

    fn stop_requested(&self) {
        self.take(AuditName::RunStopRequested, None);
    }

    fn ended(&mut self, name: AuditName, detail: Option<String>) {
        self.has_ended = true;
        self.take(name, detail);
    }

    fn take(&self, name: AuditName, detail: Option<String>) {
        let mut event = AuditEvent::of(name, self.clock.now().wall);
        event.agent_id = Some(self.agent_id.clone());
        event.detail = detail;
        self.audit.take(event);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.has_ended {
            self.take(
                AuditName::RunCrashed,
                Some("given up, and killed".to_owned()),
            );
        }
    }
}

/// The process of a launched agent, and the socket that it connects to. Dropping it kills the process.
#[derive(Debug)]
pub struct AgentProcess {
    process: Process,
    listener: UnixListener,
    folder: tempfile::TempDir,
    token: SessionToken,
}

impl AgentProcess {
    /// The token that the agent has to show in its hello.
    #[must_use]
    pub const fn token(&self) -> &SessionToken {
        &self.token
    }

    /// Waits for the next connection of the process; connections of other processes are closed. May be
    /// dropped at any time.
    ///
    /// # Errors
    ///
    /// The process has ended, or the socket cannot accept.
    pub async fn accept(&mut self) -> Result<UnixStream, LaunchError> {
        self.accept_own(|| {}).await
    }

    async fn accept_own(&mut self, mut refused: impl FnMut()) -> Result<UnixStream, LaunchError> {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let (stream, _) = accepted.map_err(LaunchError::Socket)?;
                    if self.process.owns(&stream) {
                        return Ok(stream);
                    }
                    refused();
                }
                status = self.process.child.wait() => {
                    return Err(status.map_or(LaunchError::Handshake, LaunchError::Ended));
                }
            }
        }
    }

    /// Asks the process to end where it does not by itself, and kills it where it does not within a span: see
    /// [`Launcher::with_stop_timeout`].
    pub async fn stop(mut self, within: Duration) -> Option<ExitStatus> {
        self.process.stop(within).await
    }

    /// The process without its socket, which nobody else may connect to.
    fn into_process(self) -> Process {
        drop((self.listener, self.folder));
        self.process
    }
}

/// A socket that only this user reaches. A path that some Unix does not take is refused.
// impl: OSW-5-2
fn listen(path: &Path) -> Result<UnixListener, LaunchError> {
    let (bytes, limit) = (path.as_os_str().len(), PATH_BYTES);
    if bytes >= limit {
        return Err(LaunchError::PathTooLong { bytes, limit });
    }
    let listener = UnixListener::bind(path).map_err(LaunchError::Socket)?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).map_err(LaunchError::Socket)?;
    Ok(listener)
}

/// A socket in a folder that only this user reaches.
// impl: OSW-5-2
fn socket() -> Result<(tempfile::TempDir, PathBuf, UnixListener), LaunchError> {
    let folder = tempfile::Builder::new()
        .prefix("osw")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .map_err(LaunchError::Socket)?;
    let path = folder.path().join("core");
    let listener = listen(&path)?;
    Ok((folder, path, listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_has_room_for_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let of = |bytes: usize| {
            let begin = folder.path().as_os_str().len() + 1;
            folder.path().join("x".repeat(bytes - begin))
        };
        listen(&of(103)).unwrap();
        let error = listen(&of(104)).unwrap_err();
        let want = LaunchError::PathTooLong {
            bytes: 104,
            limit: 104,
        };
        assert_eq!(error.to_string(), want.to_string());
    }
}
