//! The stream of a run: polling it, or awaiting its result, is what drives the run.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use ubos_common::driver::{Sleep, drive};
use upp::CancelToken;

use super::events::Shared;
use super::world::RunWorld;
use crate::checkpoint::CheckpointError;
use crate::engine::Engine;
use crate::event::AgentStreamEvent;
use crate::result::RunResult;

/// A run and its events. Dropping it ends the run: model, tools and hooks.
///
/// ```
/// use std::sync::Arc;
/// use futures::StreamExt;
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel};
///
/// # futures::executor::block_on(async {
/// let agent = agent(AgentOptions::new(Arc::new(ScriptedModel::new([Reply::text("hello")])))).unwrap();
/// let mut run = agent.stream("hi", &agent.initial_state());
/// let mut events = 0;
/// while let Some(_event) = run.next().await {
///     events += 1;
/// }
/// assert_eq!(events, 7); // step_start, five of the model, step_end
/// assert_eq!(run.result().await.unwrap().turn.response.text(), "hello");
/// # });
/// ```
///
/// Spec: UAP-1.1 11.1
pub struct AgentStreamResult {
    driver: Option<BoxFuture<'static, ()>>,
    shared: Arc<Shared>,
    /// Events since the caller last had to wait.
    in_a_row: u32,
}

/// Events after which the runtime's other tasks get their turn, although the next event is ready.
const YIELD_AFTER: u32 = 64;

impl AgentStreamResult {
    pub(super) fn new(
        mut engine: Engine,
        mut world: RunWorld,
        clock: Arc<dyn Sleep + Send + Sync>,
    ) -> Self {
        let shared = world.shared();
        let driver = Box::pin(async move {
            // A world that expects an abort is never stalled.
            let _ = drive(&mut engine, &mut world, clock.as_ref()).await;
        });
        Self::over(driver, shared)
    }

    /// A run that a future drives, and what they share.
    pub(super) fn over(driver: BoxFuture<'static, ()>, shared: Arc<Shared>) -> Self {
        Self {
            driver: Some(driver),
            shared,
            in_a_row: 0,
        }
    }

    /// Ends the run, as soon as it is polled: its result is `CANCELLED`.
    // impl: UAP-11-1
    pub fn abort(&self) {
        self.shared.cancel.cancel();
    }

    /// A token that ends the run from elsewhere.
    #[must_use]
    pub fn abort_handle(&self) -> CancelToken {
        self.shared.cancel.clone()
    }

    /// The result of the run. Events that were not read are dropped.
    ///
    /// # Errors
    ///
    /// The error of the run, with the last state from which a run can continue.
    pub async fn result(self) -> RunResult {
        self.result_and_save().await.0
    }

    /// The result of the run, and why its last save has failed.
    pub(super) async fn result_and_save(mut self) -> (RunResult, Option<CheckpointError>) {
        while poll_fn(|cx| self.poll_event(cx)).await.is_some() {}
        (self.shared.take_result(), self.shared.take_unsaved())
    }

    // impl: UAP-11-1
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<AgentStreamEvent>> {
        if self.in_a_row >= YIELD_AFTER {
            self.in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.in_a_row += 1;
        if let Some(event) = self.shared.pop() {
            return Poll::Ready(Some(event));
        }
        // Before the run goes on: what a tool tells from a thread of its own may come at any time from here on.
        self.shared.set_reader(cx.waker());
        let ended = match self.driver.as_mut() {
            Some(driver) => driver.as_mut().poll(cx).is_ready(),
            None => true,
        };
        if ended {
            self.driver = None;
        }
        match self.shared.pop() {
            Some(event) => Poll::Ready(Some(event)),
            None if ended => Poll::Ready(None),
            None => {
                self.in_a_row = 0;
                Poll::Pending
            }
        }
    }
}

impl Stream for AgentStreamResult {
    type Item = AgentStreamEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentStreamEvent>> {
        self.poll_event(cx)
    }
}

impl fmt::Debug for AgentStreamResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentStreamResult")
            .field("ended", &self.driver.is_none())
            .finish_non_exhaustive()
    }
}
