//! Performs the effects of a tool loop: the model, the tools and the hook.

use core::future::{Future, pending, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::future::BoxFuture;
use ubos_common::driver::{self, Sleep, Step};
use ubos_common::time::{Mono, Now};
use ubos_common::trace_context::TraceContext;

use super::{EffectId, Input, Output, ToolLoop};
use crate::cancel::{CancelToken, Cancelled};
use crate::error::UppError;
use crate::model::{LlmRequest, ModelEvent, ModelReference, ModelStream};
use crate::options::LlmInstance;
use crate::stream::StreamEvent;
use crate::tool::{Extensions, ToolCall, ToolContext, ToolExecution, ToolSet, guard, run_call};
use crate::turn::Turn;

/// The clock of a call.
#[derive(Clone)]
pub(super) struct CallClock(pub(super) Arc<dyn Fn() -> Now + Send + Sync>);

impl CallClock {
    pub(super) fn read(&self) -> Now {
        (self.0)()
    }
}

impl Sleep for CallClock {
    fn now(&self) -> Now {
        self.read()
    }

    /// Never ready: a tool loop sets no timeout.
    fn sleep_until(&self, _deadline: Mono) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }
}

/// What the driver and the stream of a call share.
pub(super) struct Shared {
    /// Cancelled by the caller.
    pub(super) cancel: CancelToken,
    /// Cancelled when the call ends, for whatever reason: tools may have work running elsewhere.
    pub(super) tools_cancel: CancelToken,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: VecDeque<StreamEvent>,
    /// The read of the model's response that waits until all events are taken. There is at most one.
    waiting: Option<Waker>,
    result: Option<Result<Turn, UppError>>,
}

impl Shared {
    pub(super) fn new(cancel: CancelToken) -> Self {
        Self {
            cancel,
            tools_cancel: CancelToken::default(),
            inner: Mutex::default(),
        }
    }

    pub(super) fn pop_event(&self) -> Option<StreamEvent> {
        let mut inner = self.lock();
        let event = inner.events.pop_front();
        let is_empty = inner.events.is_empty();
        let waiting = inner.waiting.take_if(|_| is_empty);
        drop(inner);
        // Outside of the lock: a waker is foreign code.
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        event
    }

    pub(super) fn take_result(&self) -> Option<Result<Turn, UppError>> {
        self.lock().result.take()
    }

    fn push_event(&self, event: StreamEvent) {
        self.lock().events.push_back(event);
    }

    fn clear_events(&self) {
        self.lock().events.clear();
    }

    fn finish(&self, result: Result<Box<Turn>, UppError>) {
        self.lock().result = Some(result.map(|turn| *turn));
    }

    /// Ready once all events are taken, so that the model is read no faster than the caller reads.
    async fn drained(&self) {
        poll_fn(|cx| {
            let mut inner = self.lock();
            if inner.events.is_empty() {
                return Poll::Ready(());
            }
            inner.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller's side of [`drive`](driver::drive).
pub(super) struct World {
    model: ModelReference,
    tools: ToolSet,
    /// What the tools are given.
    pub(super) extensions: Extensions,
    /// The place in a trace of requests and tools.
    pub(super) trace: Option<TraceContext>,
    clock: CallClock,
    /// Whether the response is requested as a stream, and events are reported.
    streams: bool,
    shared: Arc<Shared>,
    /// The response that is being read.
    responses: BTreeMap<EffectId, ModelStream>,
    /// Waits for an abort; `None` once the machine has been told.
    aborted: Option<Cancelled>,
}

/// The result of an effect.
pub(super) enum Answer {
    /// With the rest of the response.
    Model(
        EffectId,
        Option<Result<ModelEvent, UppError>>,
        Option<ModelStream>,
    ),
    Tool(EffectId, ToolExecution),
    HookDone(EffectId),
}

impl World {
    pub(super) fn new(
        instance: &LlmInstance,
        shared: Arc<Shared>,
        clock: CallClock,
        streams: bool,
    ) -> Self {
        let options = instance.options();
        let aborted = Some(shared.cancel.cancelled());
        Self {
            model: Arc::clone(options.model()),
            tools: options.tools().clone(),
            extensions: Extensions::default(),
            trace: None,
            clock,
            streams,
            shared,
            responses: BTreeMap::new(),
            aborted,
        }
    }

    /// Whether the call is aborted and the machine does not know yet.
    fn is_aborting(&self) -> bool {
        self.aborted.is_some() && self.shared.cancel.is_cancelled()
    }

    // impl: UPP-6
    fn abort(&mut self) -> Input {
        self.aborted = None;
        self.shared.clear_events();
        Input::Abort
    }

    fn infer(&mut self, id: EffectId, mut request: LlmRequest) -> Step<Answer> {
        request.trace.clone_from(&self.trace);
        if self.streams {
            let stream = self.model.stream(request);
            self.responses.insert(id, stream);
            return self.read(id);
        }
        let response = self.model.complete(request);
        Step::start(id, async move {
            let response = response.await;
            let done = response.map(|response| ModelEvent::Done(Box::new(response)));
            Answer::Model(id, Some(done), None)
        })
    }

    fn read(&mut self, id: EffectId) -> Step<Answer> {
        let Some(mut stream) = self.responses.remove(&id) else {
            return Step::Done;
        };
        let shared = Arc::clone(&self.shared);
        Step::start(id, async move {
            shared.drained().await;
            let item = poll_fn(|cx| stream.as_mut().poll_next(cx)).await;
            Answer::Model(id, item, Some(stream))
        })
    }

    fn tool(&self, id: EffectId, call: ToolCall) -> Step<Answer> {
        let cancel = self.shared.tools_cancel.clone();
        let mut context = ToolContext::new(Arc::clone(&call.tool_call_id), cancel);
        context.extensions = self.extensions.clone();
        context.trace.clone_from(&self.trace);
        let (tools, clock) = (self.tools.clone(), self.clock.clone());
        Step::start(id, async move {
            let clock = move || clock.read().mono;
            Answer::Tool(id, run_call(&tools, &call, &context, &clock).await)
        })
    }

    fn max_iterations(&self, id: EffectId, rounds: u64) -> Step<Answer> {
        let strategy = self.tools.strategy.clone();
        Step::start(id, async move {
            if let Some(strategy) = strategy {
                // An error or a panic of the hook does not hide the reason for which it was called.
                let told = async { strategy.on_max_iterations(rounds).await };
                let _ = guard(Box::pin(told)).await;
            }
            Answer::HookDone(id)
        })
    }
}

impl driver::World<ToolLoop> for World {
    type Answer = Answer;

    fn perform(&mut self, output: Output) -> Step<Answer> {
        match output {
            // The abort ends these effects, so they are not started.
            Output::Infer(..) | Output::More(_) | Output::Tool(..) | Output::MaxIterations(..)
                if self.is_aborting() =>
            {
                Step::Done
            }
            Output::Infer(id, request) => self.infer(id, request),
            Output::More(id) => self.read(id),
            Output::Tool(id, call) => self.tool(id, call),
            Output::MaxIterations(id, rounds) => self.max_iterations(id, rounds),
            Output::Cancel(id) => Step::Cancel(id),
            Output::Event(event) => {
                if self.streams {
                    self.shared.push_event(event);
                }
                Step::Done
            }
            Output::Finished(result) => {
                self.shared.finish(result);
                Step::Done
            }
        }
    }

    fn input(&mut self, answer: Answer) -> Input {
        // A result that arrives together with the abort is too late.
        if self.is_aborting() {
            return self.abort();
        }
        match answer {
            Answer::Model(id, item, stream) => {
                if matches!(item, Some(Ok(ModelEvent::Event(_))))
                    && let Some(stream) = stream
                {
                    self.responses.insert(id, stream);
                }
                Input::Model(id, item)
            }
            Answer::Tool(id, execution) => Input::Tool(id, execution),
            Answer::HookDone(id) => Input::HookDone(id),
        }
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        let Some(aborted) = &mut self.aborted else {
            return Poll::Pending;
        };
        match Pin::new(aborted).poll(cx) {
            Poll::Ready(()) => Poll::Ready(self.abort()),
            Poll::Pending => Poll::Pending,
        }
    }

    fn expects_external(&self) -> bool {
        self.aborted.is_some()
    }
}
