//! One call through a router.

use tokio::sync::{mpsc, oneshot};

use crate::error::{ErrorCode, ErrorObject};
use crate::message::ToolStream;
use crate::role::core::Outcome;
use crate::role::router::RouteId;

/// A call that runs. Dropping it before its result cancels it.
#[derive(Debug)]
pub struct RoutedCall {
    pub(super) started: Started,
    pub(super) cancels: mpsc::UnboundedSender<RouteId>,
    pub(super) settled: bool,
}

/// A call that was taken.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) route: RouteId,
    pub(super) chunks: mpsc::Receiver<ToolStream>,
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

impl RoutedCall {
    /// The next piece of output, or `None` when no more come. May be dropped at any time. A call that waits for another with
    /// its idempotency key has none.
    pub async fn next_chunk(&mut self) -> Option<ToolStream> {
        self.started.chunks.recv().await
    }

    /// Asks for the call's end. The result still comes; asking again changes nothing.
    pub fn cancel(&mut self) {
        if !core::mem::replace(&mut self.settled, true) {
            // A driver that is gone has ended the call already.
            let _ = self.cancels.send(self.started.route);
        }
    }

    /// How the call ended. Output that was not taken is dropped.
    pub async fn result(mut self) -> Outcome {
        self.started.chunks.close();
        let outcome = (&mut self.started.outcome).await;
        self.settled = true;
        outcome.unwrap_or_else(|_| {
            let error = ErrorObject::of(ErrorCode::AgentDisconnected, "the router has ended");
            Outcome::failed(error)
        })
    }
}

impl Drop for RoutedCall {
    fn drop(&mut self) {
        self.cancel();
    }
}
