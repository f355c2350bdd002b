//! One call of an agent's tool.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::{CommandError, ErrorCode, ErrorObject};
use crate::message::ToolStream;
use crate::role::CallId;
use crate::role::core::{CallRequest, Outcome};

/// What handles ask of the driver.
pub(super) enum Command {
    Call(Box<CallRequest>, CallWaiter),
}

/// The reply of a call, and what its handle needs.
pub(super) struct CallWaiter {
    pub(super) reply: oneshot::Sender<Result<RunningCall, CommandError>>,
    pub(super) cancels: mpsc::UnboundedSender<CallId>,
    pub(super) capacity_freed: Arc<Notify>,
}

/// A call that was taken.
pub(super) struct Started<I> {
    pub(super) id: I,
    pub(super) chunks: mpsc::Receiver<Box<ToolStream>>,
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

/// A call that runs. Dropping it before its result cancels it.
///
/// A connection names it by its [`CallId`], a router by a [`RouteId`](crate::role::router::RouteId).
pub struct RunningCall<I: Clone = CallId> {
    started: Started<I>,
    cancels: mpsc::UnboundedSender<I>,
    /// Notified when output was taken; `None` in a router, where nothing waits for it.
    capacity_freed: Option<Arc<Notify>>,
    /// The call ended or was cancelled, so that a drop sends no cancel.
    settled: AtomicBool,
}

impl<I: Clone> RunningCall<I> {
    pub(super) const fn new(
        started: Started<I>,
        cancels: mpsc::UnboundedSender<I>,
        capacity_freed: Option<Arc<Notify>>,
    ) -> Self {
        Self {
            started,
            cancels,
            capacity_freed,
            settled: AtomicBool::new(false),
        }
    }

    /// The call's id.
    #[must_use]
    pub const fn id(&self) -> &I {
        &self.started.id
    }

    /// The next piece of output, or `None` when no more come. Cancel safe. A call that waits for another with its
    /// idempotency key has none.
    ///
    /// Take them, or take the result: an agent whose output nobody takes is not read from.
    pub async fn next_chunk(&mut self) -> Option<ToolStream> {
        let chunk = self.started.chunks.recv().await;
        self.free_capacity();
        chunk.map(|chunk| *chunk)
    }

    /// Asks the agent to stop. The result still comes; asking again changes nothing.
    pub fn cancel(&self) {
        if !self.settled.swap(true, Ordering::Relaxed) {
            // A driver that is gone has ended the call already.
            let _ = self.cancels.send(self.started.id.clone());
        }
    }

    /// How the call ended. Output that was not taken is dropped.
    pub async fn result(mut self) -> Outcome {
        self.drop_output();
        let outcome = (&mut self.started.outcome).await;
        *self.settled.get_mut() = true;
        outcome.unwrap_or_else(|_| {
            let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the driver has ended");
            Outcome::failed(error)
        })
    }

    fn drop_output(&mut self) {
        self.started.chunks.close();
        while self.started.chunks.try_recv().is_ok() {}
        self.free_capacity();
    }

    fn free_capacity(&self) {
        if let Some(freed) = &self.capacity_freed {
            freed.notify_one();
        }
    }
}

impl<I: Clone> Drop for RunningCall<I> {
    fn drop(&mut self) {
        self.drop_output();
        self.cancel();
    }
}

impl<I: Clone + fmt::Debug> fmt::Debug for RunningCall<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningCall({:?})", self.started.id)
    }
}
