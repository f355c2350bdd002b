//! What an application holds: the agent, and each call.

use core::fmt;
use core::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use super::audit::{AuditSink, Listeners};
use super::call::RunningCall;
use super::core::SharedConnection;
use crate::audit::AuditEvent;
use crate::error::{CommandError, ConfigError};
use crate::ledger::Ledger;
use crate::message::{SharedTools, ToolSpec};
use crate::role::CloseReason;
use crate::role::core::{CallRequest, Config, CoreConnection};
use crate::token::Grant;

/// An agent that is connected. Dropping it says goodbye.
#[derive(Debug)]
pub struct CoreHandle {
    pub(super) caller: Caller,
    pub(super) tools: watch::Receiver<SharedTools>,
    pub(super) task: JoinHandle<CloseReason>,
}

/// What it takes to call the tools of a connection.
#[derive(Clone)]
pub(super) struct Caller {
    shared: Arc<SharedConnection>,
    /// The connection ends when the last is gone.
    shutdown: mpsc::Sender<()>,
}

impl Caller {
    /// Waits for room no longer than the call may take.
    pub(super) async fn call(&self, request: CallRequest) -> Result<RunningCall, CommandError> {
        // Mostly there is room, and no timer to set.
        match self.shared.try_call(request) {
            Ok(taken) => taken,
            Err(request) => self.shared.call(request).await,
        }
    }

    /// Leaves the agent's token out of a record that another made.
    pub(super) fn leave_out_token(&self, event: &mut AuditEvent) {
        self.shared.leave_out_token(event);
    }

    /// Whether a tool of the agent was rejected.
    pub(super) fn has_rejected_tools(&self) -> bool {
        self.shared.has_rejected_tools()
    }

    /// Says goodbye. A driver that is gone has ended already, and one is enough.
    pub(super) fn shutdown(&self) {
        let _ = self.shutdown.try_send(());
    }
}

#[cfg(test)]
impl Caller {
    /// Of a connection that nobody drives.
    pub(super) fn idle() -> Self {
        let (clock, ids) = (Clock::start(), IdSource::seeded(1));
        let conn = CoreConnection::new(clock.now(), Config::default(), ids, None).unwrap();
        let (tools, _) = watch::channel(SharedTools::from(Vec::new()));
        let stream = tokio::io::empty();
        let shared = SharedConnection::new(stream, clock, conn, Listeners::default(), tools);
        let (shutdown, _) = mpsc::channel(1);
        Self { shared, shutdown }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({} calls)", self.shared.pending_calls())
    }
}

impl CoreHandle {
    /// Calls a tool. While the connection has no room for it this waits, as long as the call may take and
    /// [`Config::with_room_timeout`](crate::role::core::Config::with_room_timeout) says.
    ///
    /// # Errors
    ///
    /// The call is refused, and was not sent: see [`CommandError`].
    pub async fn call(&self, request: CallRequest) -> Result<RunningCall, CommandError> {
        // As `Caller::call`, without a future between that the request would be moved through.
        match self.caller.shared.try_call(request) {
            Ok(taken) => taken,
            Err(request) => self.caller.shared.call(request).await,
        }
    }

    /// Calls whose end has not come, or whose output is still to be taken.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.caller.shared.pending_calls()
    }

    /// What is kept for the agent.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        self.caller.shared.ledger()
    }

    /// The tools that the agent offers now.
    #[must_use]
    pub fn tools(&self) -> Arc<[Arc<ToolSpec>]> {
        self.tools.borrow().clone()
    }

    /// Waits until the agent's tools change; `false` when the connection has ended.
    pub async fn tools_changed(&mut self) -> bool {
        self.tools.changed().await.is_ok()
    }

    /// Whether the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.tools.has_changed().is_err()
    }

    /// Says goodbye, waits until the running calls have ended or the drain time is over, and ends the
    /// process if there is one.
    pub async fn shutdown(self) -> CloseReason {
        let Self { caller, task, .. } = self;
        caller.shutdown();
        task.await.unwrap_or(CloseReason::Disconnected)
    }
}

/// Drives a connection until it ends.
pub(super) type Running = Pin<Box<dyn Future<Output = CloseReason> + Send>>;

/// Starts the task of a connection whose handshake succeeded, in what drives it to its end.
#[expect(clippy::disallowed_methods, reason = "a connection is a task")]
pub(super) fn drive<F>(
    shared: Arc<SharedConnection>,
    tools: watch::Receiver<SharedTools>,
    to_its_end: impl FnOnce(Running) -> F,
) -> CoreHandle
where
    F: Future<Output = CloseReason> + Send + 'static,
{
    let (shutdown, requests) = mpsc::channel(1);
    let running = to_its_end(Box::pin(Arc::clone(&shared).run(requests)));
    CoreHandle {
        caller: Caller { shared, shutdown },
        tools,
        task: tokio::spawn(running),
    }
}

/// Why an agent cannot be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The handshake failed; the audit has the reason.
    #[error("the agent did not complete the handshake")]
    Handshake {
        /// The grant, unless it was used: for the next connection.
        grant: Option<Grant>,
    },
}

/// Takes an agent in over any stream: a socket that was accepted elsewhere, or memory in a test.
///
/// `clock` must be the clock that the grant was made with. What is kept for the agent counts in a ledger of this connection, of
/// [`Limits::max_agent_bytes`](crate::Limits); connections of one agent that are to share one are a router's.
///
/// # Errors
///
/// See [`AttachError`].
pub async fn attach<S>(
    stream: S,
    clock: Clock,
    config: Config,
    ids: IdSource,
    grant: Grant,
    audit: AuditSink,
) -> Result<CoreHandle, AttachError>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let conn = CoreConnection::new(clock.now(), config, ids, Some(grant))?;
    let (tools_tx, tools) = watch::channel(Arc::from(Vec::new()));
    let listeners = Listeners {
        audit,
        ..Listeners::default()
    };
    let shared = SharedConnection::new(stream, clock, conn, listeners, tools_tx);
    if shared.handshake().await {
        return Ok(drive(shared, tools, |running| running));
    }
    let grant = shared.refuse().await;
    Err(AttachError::Handshake { grant })
}
