//! What a tool's author sees of a call.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};
use ubos_common::os::Clock;
use ubos_common::time::Mono;

use crate::error::{CommandError, ErrorCode, ErrorObject};
use crate::role::CallId;
use crate::role::agent::{Chunk, IncomingCall};

/// A piece of output on its way to the driver.
pub(super) struct Piece {
    pub(super) id: CallId,
    pub(super) chunk: Chunk,
    pub(super) reply: oneshot::Sender<Result<(), CommandError>>,
}

/// Why a tool failed. The text goes to the core: keep secrets and stack traces out of it.
///
/// ```
/// use opensentience_wire::transport::tokio::ToolError;
///
/// fn number(text: &str) -> Result<u32, ToolError> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(number("x").unwrap_err().to_string(), "tool.failed: invalid digit found in string");
/// ```
#[derive(Debug)]
pub struct ToolError(Box<ErrorObject>);

impl ToolError {
    /// The tool failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::from(ErrorObject::of(ErrorCode::ToolFailed, message))
    }

    /// The input does not fit the tool.
    #[must_use]
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::from(ErrorObject::of(ErrorCode::ToolInvalidInput, message))
    }

    /// The tool stopped because it was asked to.
    #[must_use]
    pub fn canceled() -> Self {
        Self::from(ErrorObject::of(ErrorCode::ToolCanceled, "canceled"))
    }

    pub(super) fn into_inner(self) -> ErrorObject {
        *self.0
    }
}

/// Any error is one of a tool, and a text alone, so that `?` takes it: its text goes to the core under `tool.failed`. An [`ErrorObject`] goes as
/// it is, for tools that call others; what a [`ToolContext`] refuses because the call has ended is a cancel.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ToolError {
    fn from(error: E) -> Self {
        let error = match error.into().downcast::<ErrorObject>() {
            Ok(object) => return Self(object),
            Err(other) => other,
        };
        let error = match error.downcast::<Box<ErrorObject>>() {
            Ok(object) => return Self(*object),
            Err(other) => other,
        };
        match error.downcast_ref() {
            Some(CommandError::Closing | CommandError::NoSuchCall) => Self::canceled(),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A call, as its tool sees it.
#[derive(Clone)]
pub struct ToolContext {
    pub(super) running: Arc<Running>,
    pub(super) chunks_tx: mpsc::Sender<Piece>,
    pub(super) clock: Clock,
    pub(super) due: Option<Mono>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolContext({})", self.running.call.call_id)
    }
}

/// A call whose tool runs: what its context and the driver share.
pub(super) struct Running {
    pub(super) call: Box<IncomingCall>,
    is_cancelled: AtomicBool,
    cancelled: Notify,
}

/// The driver's hold on a tool that runs. A tool that it lets go is cancelled: nobody waits for it any more.
pub(super) struct RunningTool(Arc<Running>);

impl RunningTool {
    pub(super) fn new(call: Box<IncomingCall>) -> Self {
        Self(Arc::new(Running {
            call,
            is_cancelled: AtomicBool::new(false),
            cancelled: Notify::new(),
        }))
    }

    pub(super) fn share(&self) -> Arc<Running> {
        Arc::clone(&self.0)
    }

    pub(super) fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        self.0.cancelled.notify_waiters();
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl ToolContext {
    /// What the call asks, and the ids that tie it to its cause. Its input is the tool's own, which it was run with.
    #[must_use]
    pub fn incoming(&self) -> &IncomingCall {
        &self.running.call
    }

    /// Sends a piece of output, which a text is as well; waits while the core is slow.
    ///
    /// # Errors
    ///
    /// The call has ended, or the piece is too long.
    pub async fn send(&self, chunk: impl Into<Chunk>) -> Result<(), CommandError> {
        let (piece, answer) = self.piece(chunk.into());
        // Where nobody takes it, the answer goes with it.
        let _ = self.chunks_tx.send(piece).await;
        answer.await.unwrap_or(Err(CommandError::Closing))
    }

    /// As [`ToolContext::send`], for a tool that [blocks](super::Agent::blocking_tool).
    ///
    /// # Errors
    ///
    /// As [`ToolContext::send`].
    ///
    /// # Panics
    ///
    /// On a task of tokio: only a thread may block.
    pub fn blocking_send(&self, chunk: impl Into<Chunk>) -> Result<(), CommandError> {
        let (piece, answer) = self.piece(chunk.into());
        // Where nobody takes it, the answer goes with it.
        let _ = self.chunks_tx.blocking_send(piece);
        answer.blocking_recv().unwrap_or(Err(CommandError::Closing))
    }

    fn piece(&self, chunk: Chunk) -> (Piece, oneshot::Receiver<Result<(), CommandError>>) {
        let (reply, answer) = oneshot::channel();
        let id = self.running.call.call_id.clone();
        (Piece { id, chunk, reply }, answer)
    }

    /// What is left of the call's timeout; nothing once it is over, `None` where there is none.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let due = self.due?;
        Some(due.saturating_since(self.clock.mono()))
    }

    /// Waits until the call is cancelled, or nobody waits for it any more.
    pub async fn cancelled(&self) {
        // Made before the look, so that no cancel in between is missed.
        let cancelled = self.running.cancelled.notified();
        if !self.is_cancelled() {
            cancelled.await;
        }
    }

    /// Whether the call is cancelled: a blocking tool asks often, and returns [`ToolError::canceled`] then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.running.is_cancelled.load(Ordering::Acquire)
    }
}
