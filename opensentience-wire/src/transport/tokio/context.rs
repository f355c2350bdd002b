//! What a tool's author sees of a call.

use core::fmt;
use core::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use ubos_common::json::RawObject;
use ubos_common::os::Clock;
use ubos_common::time::Mono;

use crate::error::{CommandError, ErrorCode, ErrorObject};
use crate::message::{Channel, ToolCall};
use crate::role::CallId;
use crate::role::agent::{Chunk, IncomingCall};

/// A piece of output on its way to the driver.
pub(super) struct Piece {
    pub(super) id: CallId,
    pub(super) chunk: Chunk,
    pub(super) reply: oneshot::Sender<Result<(), CommandError>>,
}

/// Why a tool failed. The text goes to the core: keep secrets and stack traces out of it.
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

impl From<ErrorObject> for ToolError {
    fn from(error: ErrorObject) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for ToolError {}

/// A call, as an asynchronous tool sees it.
#[derive(Clone)]
pub struct ToolContext {
    pub(super) call: std::sync::Arc<IncomingCall>,
    pub(super) chunks_tx: mpsc::Sender<Piece>,
    pub(super) cancel: watch::Receiver<bool>,
    pub(super) clock: Clock,
    pub(super) due: Option<Mono>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolContext({})", self.call.call_id)
    }
}

impl ToolContext {
    /// What the call asks: caller, context, timeout.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.call.call
    }

    /// The call with the ids that tie it to its cause.
    #[must_use]
    pub fn incoming(&self) -> &IncomingCall {
        &self.call
    }

    /// Sends a piece of output; waits while the core is slow.
    ///
    /// # Errors
    ///
    /// The call has ended, or the piece is too long.
    pub async fn send(&self, chunk: Chunk) -> Result<(), CommandError> {
        let (reply, answer) = oneshot::channel();
        let id = self.call.call_id.clone();
        let piece = Piece { id, chunk, reply };
        let sent = self.chunks_tx.send(piece).await;
        sent.map_err(|_| CommandError::Closing)?;
        answer.await.unwrap_or(Err(CommandError::Closing))
    }

    /// Sends ordinary output.
    ///
    /// # Errors
    ///
    /// As [`ToolContext::send`].
    pub async fn stdout(&self, text: impl Into<String>) -> Result<(), CommandError> {
        self.send(Chunk::text(Channel::Stdout, text)).await
    }

    /// Writes to the tool's log, which the core keeps apart from its output.
    ///
    /// # Errors
    ///
    /// As [`ToolContext::send`].
    pub async fn log(&self, text: impl Into<String>) -> Result<(), CommandError> {
        self.send(Chunk::text(Channel::Log, text)).await
    }

    /// Says what the tool is doing.
    ///
    /// # Errors
    ///
    /// As [`ToolContext::send`].
    pub async fn status(&self, text: impl Into<String>) -> Result<(), CommandError> {
        self.send(Chunk::text(Channel::Status, text)).await
    }

    /// Sends a part of the result.
    ///
    /// # Errors
    ///
    /// As [`ToolContext::send`].
    pub async fn partial(&self, json: RawObject) -> Result<(), CommandError> {
        self.send(Chunk::partial(json)).await
    }

    /// What is left of the call's timeout; nothing once it is over, `None` where there is none.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let due = self.due?;
        Some(due.saturating_since(self.clock.now().mono))
    }

    /// Waits until the call is cancelled, or nobody waits for it any more.
    pub async fn cancelled(&self) {
        // A driver that is gone is a cancel too.
        let _ = self.cancel.clone().wait_for(|cancelled| *cancelled).await;
    }

    /// Whether the call is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.cancel.borrow() || self.cancel.has_changed().is_err()
    }
}

/// A call, as a blocking tool sees it on its own thread.
#[derive(Clone, Debug)]
pub struct BlockingContext(pub(super) ToolContext);

impl BlockingContext {
    /// What the call asks: caller, context, timeout.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        self.0.call()
    }

    /// Sends a piece of output; waits while the core is slow.
    ///
    /// # Errors
    ///
    /// The call has ended, or the piece is too long.
    pub fn send(&self, chunk: Chunk) -> Result<(), CommandError> {
        let (reply, answer) = oneshot::channel();
        let id = self.0.call.call_id.clone();
        let sent = self.0.chunks_tx.blocking_send(Piece { id, chunk, reply });
        sent.map_err(|_| CommandError::Closing)?;
        answer.blocking_recv().unwrap_or(Err(CommandError::Closing))
    }

    /// Sends ordinary output.
    ///
    /// # Errors
    ///
    /// As [`BlockingContext::send`].
    pub fn stdout(&self, text: impl Into<String>) -> Result<(), CommandError> {
        self.send(Chunk::text(Channel::Stdout, text))
    }

    /// Writes to the tool's log, which the core keeps apart from its output.
    ///
    /// # Errors
    ///
    /// As [`BlockingContext::send`].
    pub fn log(&self, text: impl Into<String>) -> Result<(), CommandError> {
        self.send(Chunk::text(Channel::Log, text))
    }

    /// Says what the tool is doing.
    ///
    /// # Errors
    ///
    /// As [`BlockingContext::send`].
    pub fn status(&self, text: impl Into<String>) -> Result<(), CommandError> {
        self.send(Chunk::text(Channel::Status, text))
    }

    /// Sends a part of the result.
    ///
    /// # Errors
    ///
    /// As [`BlockingContext::send`].
    pub fn partial(&self, json: RawObject) -> Result<(), CommandError> {
        self.send(Chunk::partial(json))
    }

    /// As [`ToolContext::time_left`].
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.0.time_left()
    }

    /// Whether the call is cancelled: ask often, and return [`ToolError::canceled`] then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}
