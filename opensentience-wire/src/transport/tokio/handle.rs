//! What an application holds: the agent, and each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use ubos_common::id::IdSource;
use ubos_common::os::Clock;

use super::audit::AuditSink;
use super::call::{CallWaiter, Command, RunningCall};
use super::core::{CoreDriver, Inbox};
use crate::error::{CommandError, ConfigError};
use crate::message::{SharedTools, ToolSpec};
use crate::role::core::{CallRequest, Config, CoreConnection};
use crate::role::{CallId, CloseReason};
use crate::token::Grant;

/// Commands that wait for the driver.
const COMMANDS: usize = 64;

/// An agent that is connected. Dropping it says goodbye.
#[derive(Debug)]
pub struct CoreHandle {
    pub(super) caller: Caller,
    pub(super) tools: watch::Receiver<SharedTools>,
    pub(super) task: JoinHandle<CloseReason>,
}

/// What it takes to call the tools of a connection.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    commands: mpsc::Sender<Command>,
    shutdown: mpsc::Sender<()>,
    /// At most one for each call that was taken.
    cancels: mpsc::UnboundedSender<CallId>,
    capacity_freed: Arc<Notify>,
    pending: Arc<AtomicUsize>,
}

impl Caller {
    /// Waits for room no longer than the call may take.
    pub(super) async fn call(&self, request: CallRequest) -> Result<RunningCall, CommandError> {
        match request.timeout {
            None => self.ask(request).await,
            // A call that the driver takes all the same is dropped there, which cancels it.
            Some(span) => tokio::time::timeout(span, self.ask(request))
                .await
                .unwrap_or(Err(CommandError::Late)),
        }
    }

    async fn ask(&self, request: CallRequest) -> Result<RunningCall, CommandError> {
        let (reply, answer) = oneshot::channel();
        let waiter = CallWaiter {
            reply,
            cancels: self.cancels.clone(),
            capacity_freed: Arc::clone(&self.capacity_freed),
        };
        let command = Command::Call(Box::new(request), waiter);
        let sent = self.commands.send(command).await;
        sent.map_err(|_| CommandError::Closing)?;
        answer.await.map_err(|_| CommandError::Closing)?
    }

    /// Says goodbye. A driver that is gone has ended already, and one is enough.
    pub(super) fn shutdown(&self) {
        let _ = self.shutdown.try_send(());
    }
}

impl CoreHandle {
    /// Calls a tool. While the connection has no room for it this waits, for a call with a timeout as long as that.
    ///
    /// # Errors
    ///
    /// The call is refused, and was not sent: see [`CommandError`].
    pub async fn call(&self, request: CallRequest) -> Result<RunningCall, CommandError> {
        self.caller.call(request).await
    }

    /// Calls whose end has not come, or whose output is still to be taken.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.caller.pending.load(Ordering::Relaxed)
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

    /// Says goodbye, waits until the running calls have ended or the drain time is over, and ends the
    /// process if there is one.
    pub async fn shutdown(self) -> CloseReason {
        let Self { caller, task, .. } = self;
        caller.shutdown();
        let reason = task.await.unwrap_or(CloseReason::Disconnected);
        drop(caller);
        reason
    }
}

/// Both ends of a handle.
pub(super) fn channels() -> (Handles, Inbox) {
    let (commands, commands_rx) = mpsc::channel(COMMANDS);
    let (shutdown, shutdown_rx) = mpsc::channel(1);
    let (cancels, cancels_rx) = mpsc::unbounded_channel();
    let capacity_freed = Arc::new(Notify::new());
    let pending = Arc::new(AtomicUsize::new(0));
    let (tools_tx, tools) = watch::channel(Arc::from(Vec::new()));
    let inbox = Inbox {
        commands: commands_rx,
        shutdown: shutdown_rx,
        cancels: cancels_rx,
        capacity_freed: Arc::clone(&capacity_freed),
        pending: Arc::clone(&pending),
    };
    let caller = Caller {
        commands,
        shutdown,
        cancels,
        capacity_freed,
        pending,
    };
    let handles = Handles {
        caller,
        tools,
        tools_tx,
    };
    (handles, inbox)
}

/// What a handle will hold, before its task is there.
pub(super) struct Handles {
    caller: Caller,
    tools: watch::Receiver<SharedTools>,
    pub(super) tools_tx: watch::Sender<SharedTools>,
}

impl Handles {
    pub(super) fn with(self, task: JoinHandle<CloseReason>) -> CoreHandle {
        CoreHandle {
            caller: self.caller,
            tools: self.tools,
            task,
        }
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
/// `clock` must be the clock that the grant was made with.
///
/// # Errors
///
/// See [`AttachError`].
#[expect(clippy::disallowed_methods, reason = "a connection is a task")]
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
    let (handles, inbox) = channels();
    let conn = CoreConnection::new(clock.now(), config, ids, Some(grant))?;
    let mut driver = CoreDriver::new(stream, clock, conn, audit, handles.tools_tx.clone());
    if driver.handshake().await {
        let mut inbox = inbox;
        let task = tokio::spawn(async move {
            let reason = driver.run(&mut inbox).await;
            tokio::spawn(driver.deliver(inbox));
            reason
        });
        return Ok(handles.with(task));
    }
    let grant = driver.refuse().await;
    Err(AttachError::Handshake { grant })
}
