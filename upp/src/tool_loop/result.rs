//! A call and its events: polling is what drives it.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use ubos_common::time::Now;

use super::{LlmCall, LlmInput, LlmInstance, Next, ToolLoop};
use crate::cancel::{CancelToken, Cancelled};
use crate::error::{ErrorCode, UppError};
use crate::message::Messages;
use crate::model::{LlmRequest, LlmResponse, ModelEvent};
use crate::stream::StreamEvent;
use crate::tool::{Extensions, ToolCall, ToolContext, ToolExecution, ToolSet, guard, run_call};
use crate::turn::Turn;

/// A call in events, then its turn. Dropping it ends the call: the model's request and the tools.
///
/// ```
/// use std::sync::Arc;
/// use futures::StreamExt;
/// use ubos_common::{id::IdSource, time::{Mono, Now, Timestamp}};
/// use upp::{List, LlmCall, LlmOptions, Reply, ScriptedModel, llm};
///
/// # futures::executor::block_on(async {
/// let model = ScriptedModel::new([Reply::text("hello")]);
/// let call = LlmCall::new(IdSource::seeded(1), || Now::new(Mono::ZERO, Timestamp::EPOCH));
/// let mut stream = llm(LlmOptions::new(Arc::new(model)))?.stream(&List::new(), ["hi"], call)?;
/// while let Some(event) = stream.next().await {
///     println!("{}", event?.event_type);
/// }
/// assert_eq!(stream.turn().await?.response.text(), "hello");
/// # Ok::<(), upp::UppError>(())
/// # }).unwrap();
/// ```
///
/// Spec: UPP-1.3 streaming
#[must_use = "nothing runs before it is polled"]
pub struct StreamResult {
    driver: Option<BoxFuture<'static, Result<Turn, UppError>>>,
    shared: Arc<Shared>,
    cancelled: Cancelled,
    result: Option<Result<Turn, UppError>>,
}

/// What the driver and the stream share.
struct Shared {
    state: Mutex<ToolLoop>,
    /// At most what one step of the driver says: it goes on when all is taken.
    events: Mutex<VecDeque<StreamEvent>>,
    /// The caller's.
    cancel: CancelToken,
    /// Told to the tools when the call ends, however it ends.
    tools_cancel: CancelToken,
    extensions: Extensions,
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    streams: bool,
}

impl StreamResult {
    pub(super) fn new<I: Into<LlmInput>>(
        instance: &LlmInstance,
        history: &Messages,
        inputs: impl IntoIterator<Item = I>,
        call: LlmCall,
        streams: bool,
    ) -> Self {
        let now = (call.clock)();
        let state = ToolLoop::new(instance, history, inputs, call.ids, now);
        let cancelled = call.cancel.cancelled();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            events: Mutex::default(),
            cancel: call.cancel,
            tools_cancel: CancelToken::new(),
            extensions: call.extensions,
            clock: call.clock,
            streams,
        });
        Self {
            driver: Some(Box::pin(run(Arc::clone(&shared)))),
            shared,
            cancelled,
            result: None,
        }
    }

    /// Ends the call: what is polled next is `CANCELLED`.
    pub fn abort(&self) {
        self.shared.cancel.cancel();
    }

    /// Drives the call to its end; events that nobody took are dropped.
    ///
    /// # Errors
    ///
    /// What the call failed with; an error that the stream has given is given again.
    pub async fn turn(mut self) -> Result<Turn, UppError> {
        poll_fn(|cx| {
            loop {
                match Pin::new(&mut self).poll_next(cx) {
                    Poll::Ready(Some(_)) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        let ended = || Err(self.shared.state().refuse("the call has ended"));
        self.result.take().unwrap_or_else(ended)
    }

    fn end(&mut self, result: Result<Turn, UppError>) -> Option<Result<StreamEvent, UppError>> {
        self.driver = None;
        self.shared.tools_cancel.cancel();
        let error = result.as_ref().err().cloned();
        self.result = Some(result);
        error.map(Err)
    }
}

impl Stream for StreamResult {
    type Item = Result<StreamEvent, UppError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.driver.is_none() {
            return Poll::Ready(None);
        }
        // An answer that comes together with the abort comes too late.
        if Pin::new(&mut this.cancelled).poll(cx).is_ready() {
            this.shared.events().clear();
            let state = this.shared.state();
            let error = state.failed(UppError::cancelled(state.provider()));
            drop(state);
            return Poll::Ready(this.end(Err(error)));
        }
        loop {
            if let Some(event) = this.shared.events().pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(driver) = this.driver.as_mut() else {
                return Poll::Ready(None);
            };
            match driver.as_mut().poll(cx) {
                Poll::Ready(result) if this.shared.events().is_empty() => {
                    let result = result.map_err(|error| this.shared.state().failed(error));
                    return Poll::Ready(this.end(result));
                }
                // The last events first; a driver that has ended is not polled again.
                Poll::Ready(result) => {
                    this.driver = Some(Box::pin(core::future::ready(result)));
                }
                Poll::Pending if this.shared.events().is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

impl Drop for StreamResult {
    fn drop(&mut self) {
        self.shared.tools_cancel.cancel();
    }
}

impl fmt::Debug for StreamResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamResult")
            .field("ended", &self.driver.is_none())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ToolLoop> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<StreamEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says an event, and waits until it has been taken; whoever takes the last polls the driver.
    async fn say(&self, event: StreamEvent) {
        if self.streams {
            self.events().push_back(event);
        }
        poll_fn(|_| match self.events().is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn tell(&self, event: StreamEvent) {
        if self.streams {
            self.events().push_back(event);
        }
    }

    fn now(&self) -> Now {
        (self.clock)()
    }
}

/// The loop. Its state is locked between its awaits alone.
async fn run(shared: Arc<Shared>) -> Result<Turn, UppError> {
    let mut next = shared.state().start(shared.now())?;
    loop {
        next = match next {
            Next::Infer(request) => {
                let response = infer(&shared, request).await?;
                shared.state().answered(shared.now(), response)?
            }
            Next::Run(calls) => {
                let executions = run_tools(&shared, calls).await;
                shared.state().ran(shared.now(), executions)
            }
            Next::Exhausted(rounds) => {
                exhausted(&shared, rounds).await;
                let text = format!("the model wants more than {rounds} rounds of tools");
                return Err(shared.state().refuse(&text));
            }
            Next::Finished(turn) => return Ok(*turn),
        };
    }
}

async fn infer(shared: &Shared, request: LlmRequest) -> Result<LlmResponse, UppError> {
    let model = Arc::clone(&shared.state().instance.options().model);
    if !shared.streams {
        return model.complete(request).await;
    }
    let mut stream = model.stream(request);
    loop {
        match poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
            Some(Ok(ModelEvent::Event(event))) => shared.say(event).await,
            Some(Ok(ModelEvent::Done(response))) => return Ok(*response),
            Some(Err(error)) => return Err(error),
            None => {
                let text = "the model's stream ended without an answer";
                let code = ErrorCode::InvalidResponse;
                return Err(UppError::new(code, model.provider(), text));
            }
        }
    }
}

/// Runs all calls of a round at the same time; their ends are told as they come, their executions in call order.
async fn run_tools(shared: &Arc<Shared>, calls: Vec<ToolCall>) -> Vec<ToolExecution> {
    let tools = shared.state().instance.options().tools.clone();
    let mut running: Vec<BoxFuture<'static, ToolExecution>> = Vec::with_capacity(calls.len());
    for (index, call) in (0..).zip(&calls) {
        let at = shared.now().wall.unix().saturating_mul(1000);
        shared.tell(StreamEvent::tool_start(index, call, at));
        let (shared, tools, call) = (Arc::clone(shared), tools.clone(), call.clone());
        running.push(Box::pin(async move {
            one_tool(shared, tools, index, call).await
        }));
    }
    let mut executions: Vec<Option<ToolExecution>> = vec![None; running.len()];
    poll_fn(|cx| {
        let mut pending = false;
        // A round has few calls: all are polled again when one of them moves.
        for (future, slot) in running.iter_mut().zip(&mut executions) {
            if slot.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(execution) => *slot = Some(execution),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    executions.into_iter().flatten().collect()
}

async fn one_tool(
    shared: Arc<Shared>,
    tools: ToolSet,
    index: u32,
    call: ToolCall,
) -> ToolExecution {
    let mut context = ToolContext::new(Arc::clone(&call.tool_call_id), shared.tools_cancel.clone());
    context.extensions = shared.extensions.clone();
    let clock = {
        let clock = Arc::clone(&shared.clock);
        move || clock().mono
    };
    let execution = run_call(&tools, &call, &context, &clock).await;
    let at = shared.now().wall.unix().saturating_mul(1000);
    shared.tell(StreamEvent::tool_end(index, &execution, at));
    execution
}

/// What the hook fails with does not hide why it was called.
async fn exhausted(shared: &Shared, rounds: u64) {
    let strategy = shared.state().instance.options().tools.strategy.clone();
    if let Some(strategy) = strategy {
        let _ = guard(strategy.on_max_iterations(rounds)).await;
    }
}
