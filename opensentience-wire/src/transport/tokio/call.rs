//! One call of an agent's tool.

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

/// Who asked for a call, and what they need to hold it.
pub(super) struct CallWaiter {
    pub(super) reply: oneshot::Sender<Result<RunningCall, CommandError>>,
    pub(super) cancels: mpsc::UnboundedSender<CallId>,
    pub(super) capacity_freed: Arc<Notify>,
}

/// A call that was taken.
pub(super) struct Started {
    pub(super) id: CallId,
    pub(super) chunks: mpsc::Receiver<Box<ToolStream>>,
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

/// A call that runs. Dropping it before its result cancels it.
#[derive(Debug)]
pub struct RunningCall {
    started: Started,
    cancels: mpsc::UnboundedSender<CallId>,
    capacity_freed: Arc<Notify>,
    /// Nothing is left to cancel: it ended, or was asked to.
    settled: AtomicBool,
}

impl RunningCall {
    pub(super) const fn new(
        started: Started,
        cancels: mpsc::UnboundedSender<CallId>,
        capacity_freed: Arc<Notify>,
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
    pub const fn id(&self) -> &CallId {
        &self.started.id
    }

    /// The next piece of output, or `None` when no more come. May be dropped at any time.
    ///
    /// Take them, or take the result: an agent whose output nobody takes is not read from.
    pub async fn next_chunk(&mut self) -> Option<ToolStream> {
        let chunk = self.started.chunks.recv().await;
        self.capacity_freed.notify_one();
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
        self.started.chunks.close();
        while self.started.chunks.try_recv().is_ok() {}
        self.capacity_freed.notify_one();
        let outcome = (&mut self.started.outcome).await;
        *self.settled.get_mut() = true;
        outcome.unwrap_or_else(|_| {
            let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the driver has ended");
            Outcome::failed(error)
        })
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.started.chunks.close();
        while self.started.chunks.try_recv().is_ok() {}
        self.cancel();
        self.capacity_freed.notify_one();
    }
}

impl core::fmt::Debug for Started {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.id)
    }
}
