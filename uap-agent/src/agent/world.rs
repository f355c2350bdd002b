//! The world around a run: the developer's model, tools, hooks and store.

use core::future::{Future, poll_fn};
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::FutureExt;
use futures::stream::StreamExt;
use ubos_common::driver::{self, Sleep, Step};
use upp::{
    CancelToken, Cancelled, ErrorCode, Failure, LlmRequest, ModelEvent, ModelReference,
    ModelStream, RetryStrategy, ToolCall, ToolContext, ToolExecution, ToolSet, UppError, run_call,
};

use super::SaveFailed;
use crate::checkpoint::{CheckpointError, CheckpointMetadata, CheckpointStore};
use crate::engine::{Answer, CallScope, Effect, EffectId, Engine};
use crate::event::AgentStreamEvent;
use crate::hooks::{AgentStrategy, HookAnswer, HookCall};
use crate::middleware::Middleware;
use crate::result::{AgentError, GenerateResult};
use crate::state::{AgentState, SubagentExecutionTrace};
use crate::subagent::RunScope;

/// Events that wait for a reader before no further effect begins.
const EVENTS: usize = 64;

/// What the run and its reader share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) cancel: CancelToken,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: VecDeque<AgentStreamEvent>,
    /// Effects that wait for room: at most one for each tool call of a round.
    waiting: Vec<Waker>,
    result: Option<Result<GenerateResult, Box<AgentError>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pop(&self) -> Option<AgentStreamEvent> {
        let mut inner = self.lock();
        let event = inner.events.pop_front();
        if inner.events.len() < EVENTS {
            inner.waiting.drain(..).for_each(Waker::wake);
        }
        event
    }

    #[expect(
        clippy::expect_used,
        reason = "the driver ends with the engine, and its last output is the result"
    )]
    pub(super) fn take_result(&self) -> Result<GenerateResult, Box<AgentError>> {
        self.lock()
            .result
            .take()
            .expect("a run that has ended has a result")
    }

    /// Ready once a reader has taken enough.
    async fn room(&self) {
        poll_fn(|cx| {
            let mut inner = self.lock();
            if inner.events.len() < EVENTS {
                return Poll::Ready(());
            }
            inner.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Puts events between those of the run.
#[derive(Clone)]
pub(crate) struct Emitter(Arc<Shared>);

impl Emitter {
    /// Waits where the reader is behind.
    pub(crate) async fn emit(&self, event: AgentStreamEvent) {
        self.0.room().await;
        self.0.lock().events.push_back(event);
    }
}

/// All that is the developer's.
#[derive(Clone)]
pub(super) struct Developer {
    pub(super) agent_id: Arc<str>,
    pub(super) model: ModelReference,
    pub(super) tools: ToolSet,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) retries: Option<Arc<dyn RetryStrategy>>,
    pub(super) hooks: Option<Arc<dyn AgentStrategy>>,
    pub(super) store: Option<Arc<dyn CheckpointStore>>,
    pub(super) clock: Arc<dyn Sleep + Send + Sync>,
    pub(super) on_save_failed: Option<SaveFailed>,
}

pub(super) struct World {
    developer: Arc<Developer>,
    shared: Arc<Shared>,
    /// The one answer that is being streamed.
    streams: BTreeMap<EffectId, ModelStream>,
    /// Waits for an abort, until it has been told.
    aborted: Option<Cancelled>,
}

impl World {
    pub(super) fn new(developer: Developer) -> Self {
        let shared = Arc::new(Shared::default());
        let aborted = Some(shared.cancel.cancelled());
        Self {
            developer: Arc::new(developer),
            shared,
            streams: BTreeMap::new(),
            aborted,
        }
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    fn start(
        &self,
        id: EffectId,
        effect: impl Future<Output = WorldAnswer> + Send + 'static,
    ) -> Step<WorldAnswer> {
        let shared = self.shared();
        Step::start(id, async move {
            shared.room().await;
            effect.await
        })
    }

    fn read(&mut self, id: EffectId) -> Step<WorldAnswer> {
        let Some(mut stream) = self.streams.remove(&id) else {
            return Step::Done;
        };
        self.start(id, async move {
            // A panic of a model is an error like any other.
            let item = AssertUnwindSafe(stream.next()).catch_unwind().await;
            let item = item.unwrap_or_else(|_| Some(Err(panicked("the model"))));
            WorldAnswer::Model(id, item, stream)
        })
    }

    /// The first piece of an answer; no question is asked that the middleware does not want asked.
    fn infer(&mut self, id: EffectId, request: LlmRequest) -> Step<WorldAnswer> {
        if !self.developer.goes_on() {
            return Step::start(id, core::future::ready(WorldAnswer::Stop(id)));
        }
        let model = &self.developer.model;
        let stream = std::panic::catch_unwind(AssertUnwindSafe(|| model.stream(request)));
        let failed = |_| futures::stream::once(async { Err(panicked("the model")) }).boxed();
        self.streams.insert(id, stream.unwrap_or_else(failed));
        self.read(id)
    }

    fn tool(&self, id: EffectId, call: ToolCall, scope: CallScope) -> Step<WorldAnswer> {
        let developer = Arc::clone(&self.developer);
        let cancel = self.shared.cancel.clone();
        let mut context = ToolContext::new(Arc::clone(&call.tool_call_id), cancel);
        let agent = Arc::clone(&developer.agent_id);
        let scope = RunScope::new(agent, scope, Emitter(self.shared()));
        context.extensions.insert(scope.clone());
        self.start(id, async move {
            let clock = || developer.clock.now().mono;
            let execution = run_call(&developer.tools, &call, &context, &clock).await;
            WorldAnswer::Tool(id, execution, scope.take())
        })
    }

    /// What the retry strategy says. How often was asked is the engine's to know: a run that is resumed counts on.
    fn attempt(
        &self,
        id: EffectId,
        attempt: u32,
        failure: Option<&UppError>,
        random: u64,
    ) -> Step<WorldAnswer> {
        let now = self.developer.clock.now().mono;
        let retries = self.developer.retries.as_deref();
        let asked = AssertUnwindSafe(|| match (retries, failure) {
            // A cancelled question is never asked again, whatever the strategy says.
            (_, Some(failure)) if failure.code == ErrorCode::Cancelled => None,
            (Some(retries), Some(failure)) => {
                retries.on_retry(Failure::new(now, failure, attempt, random))
            }
            (Some(retries), None) => Some(retries.before_request(now)),
            (None, _) => None,
        });
        let answer = std::panic::catch_unwind(asked)
            .map(HookAnswer::Ask)
            .map_err(|_| panicked("a retry strategy"));
        Step::start(id, core::future::ready(WorldAnswer::Hook(id, answer)))
    }

    fn sleep(&self, id: EffectId, span: Duration) -> Step<WorldAnswer> {
        let clock = &self.developer.clock;
        let deadline = clock.now().mono.saturating_add(span);
        let sleeping = clock.sleep_until(deadline);
        Step::start(id, async move {
            sleeping.await;
            WorldAnswer::Slept(id)
        })
    }

    fn hook(&self, id: EffectId, call: HookCall) -> Step<WorldAnswer> {
        let developer = Arc::clone(&self.developer);
        // A hook waits for no reader: the error hook must run also when nobody reads any more.
        Step::start(id, async move {
            let answer = AssertUnwindSafe(call_hook(&developer, call))
                .catch_unwind()
                .await;
            WorldAnswer::Hook(id, answer.unwrap_or_else(|_| Err(panicked("a hook"))))
        })
    }

    fn save(
        &self,
        id: EffectId,
        metadata: CheckpointMetadata,
        state: AgentState,
    ) -> Step<WorldAnswer> {
        let developer = Arc::clone(&self.developer);
        Step::start(id, async move {
            let saving = AssertUnwindSafe(async {
                match &developer.store {
                    Some(store) => store.save(metadata, state).await,
                    None => Ok(()),
                }
            });
            let saved = saving.catch_unwind().await;
            WorldAnswer::Saved(
                id,
                saved.unwrap_or_else(|_| Err(CheckpointError::Failed("it panicked".into()))),
            )
        })
    }

    fn save_failed(&self, error: &CheckpointError) {
        if let Some(told) = &self.developer.on_save_failed {
            // Whoever is told must not take the run down either.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| told(error)));
        }
    }
}

impl Developer {
    /// Whether all middleware lets the model be asked again.
    fn goes_on(&self) -> bool {
        let now = self.clock.now();
        self.middleware.iter().all(|layer| layer.goes_on(now))
    }

    async fn stops(&self, state: &AgentState) -> Result<bool, UppError> {
        if !self.goes_on() {
            return Ok(true);
        }
        match &self.hooks {
            Some(hooks) => hooks.stop_condition(state).await,
            None => Ok(false),
        }
    }
}

async fn call_hook(developer: &Developer, call: HookCall) -> Result<HookAnswer, UppError> {
    match call {
        HookCall::Before(..) | HookCall::After(..) | HookCall::Caught(..) => {
            return call_layer(&developer.middleware, call).await;
        }
        HookCall::StopCondition(state) => {
            return developer.stops(&state).await.map(HookAnswer::Stop);
        }
        HookCall::MaxIterations(most) => {
            if let Some(strategy) = &developer.tools.strategy {
                // What it fails with does not hide why it was called.
                let _ = strategy.on_max_iterations(most).await;
            }
            return Ok(HookAnswer::Told);
        }
        _ => {}
    }
    let Some(hooks) = &developer.hooks else {
        return Ok(HookAnswer::Told);
    };
    let told = match &call {
        HookCall::Error(error) => {
            let recovered = hooks.on_error(error).await?;
            return Ok(recovered.map_or(HookAnswer::Told, |result| {
                HookAnswer::Recovered(Box::new(result))
            }));
        }
        HookCall::StepStart(state) => hooks.on_step_start(state.step(), state).await,
        HookCall::Reason(step, text) => hooks.on_reason(*step, text).await,
        HookCall::Act(step, message) => hooks.on_act(*step, message.calls()).await,
        HookCall::Observe(step, executions) => hooks.on_observe(*step, executions).await,
        HookCall::StepEnd(step, result) => hooks.on_step_end(*step, result).await,
        HookCall::Complete(result) => hooks.on_complete(result).await,
        HookCall::StopCondition(_)
        | HookCall::MaxIterations(_)
        | HookCall::Attempt(..)
        | HookCall::Before(..)
        | HookCall::After(..)
        | HookCall::Caught(..) => Ok(()),
    };
    told.map(|()| HookAnswer::Told)
}

async fn call_layer(
    middleware: &[Arc<dyn Middleware>],
    call: HookCall,
) -> Result<HookAnswer, UppError> {
    let layer = match &call {
        HookCall::Before(n, _) | HookCall::After(n, ..) | HookCall::Caught(n, ..) => {
            middleware.get(*n)
        }
        _ => None,
    };
    let Some(layer) = layer else {
        return Ok(HookAnswer::Told);
    };
    Ok(match call {
        HookCall::Before(_, mut context) => {
            let done = layer.before(&mut context).await;
            HookAnswer::Layer(context, done.map(|()| None))
        }
        HookCall::After(_, mut context, result) => {
            let done = layer.after(&mut context, *result).await;
            HookAnswer::Layer(context, done.map(|result| Some(Box::new(result))))
        }
        HookCall::Caught(_, mut context, error) => {
            let done = layer.on_error(&mut context, &error).await;
            HookAnswer::Layer(context, done.map(|result| result.map(Box::new)))
        }
        _ => HookAnswer::Told,
    })
}

fn panicked(who: &str) -> UppError {
    UppError::new(ErrorCode::ProviderError, "uap", format!("{who} panicked"))
}

/// What an effect comes to.
pub(super) enum WorldAnswer {
    Model(EffectId, Option<Result<ModelEvent, UppError>>, ModelStream),
    Stop(EffectId),
    Slept(EffectId),
    Tool(EffectId, ToolExecution, Vec<SubagentExecutionTrace>),
    Hook(EffectId, Result<HookAnswer, UppError>),
    Saved(EffectId, Result<(), CheckpointError>),
}

impl driver::World<Engine> for World {
    type Answer = WorldAnswer;

    fn perform(&mut self, effect: Effect) -> Step<WorldAnswer> {
        match effect {
            Effect::Infer(id, request) => self.infer(id, request),
            Effect::More(id) => self.read(id),
            Effect::Tool(id, call, scope) => self.tool(id, call, scope),
            Effect::Hook(id, HookCall::Attempt(attempt, failure, random)) => {
                self.attempt(id, attempt, failure.as_deref(), random)
            }
            Effect::Hook(id, call) => self.hook(id, call),
            Effect::Sleep(id, span) => self.sleep(id, span),
            Effect::Save(id, metadata, state) => self.save(id, metadata, state),
            Effect::Cancel(id) => {
                self.streams.remove(&id);
                Step::Cancel(id)
            }
            Effect::Event(event) => {
                self.shared.lock().events.push_back(event);
                Step::Done
            }
            Effect::SaveFailed(error) => {
                self.save_failed(&error);
                Step::Done
            }
            Effect::Finished(result) => {
                self.shared.lock().result = Some(result);
                Step::Done
            }
        }
    }

    fn input(&mut self, answer: WorldAnswer) -> Answer {
        // An answer that comes together with the abort comes too late.
        if self.aborted.is_some() && self.shared.cancel.is_cancelled() {
            self.aborted = None;
            return Answer::Abort;
        }
        match answer {
            WorldAnswer::Model(id, item, stream) => {
                if let (Some(Ok(ModelEvent::Done(_))), Some(retries)) =
                    (&item, &self.developer.retries)
                {
                    retries.reset();
                }
                if matches!(item, Some(Ok(ModelEvent::Event(_)))) {
                    self.streams.insert(id, stream);
                }
                Answer::Model(id, item)
            }
            WorldAnswer::Stop(id) => Answer::Stop(id),
            WorldAnswer::Slept(id) => Answer::Slept(id),
            WorldAnswer::Tool(id, execution, traces) => Answer::Tool(id, execution, traces),
            WorldAnswer::Hook(id, answer) => Answer::Hook(id, answer),
            WorldAnswer::Saved(id, result) => Answer::Saved(id, result),
        }
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        match self
            .aborted
            .as_mut()
            .map(|aborted| Pin::new(aborted).poll(cx))
        {
            Some(Poll::Ready(())) => {
                self.aborted = None;
                Poll::Ready(Answer::Abort)
            }
            _ => Poll::Pending,
        }
    }

    fn expects_external(&self) -> bool {
        self.aborted.is_some()
    }
}

impl Drop for World {
    /// The run is over or nobody wants it any more: tools that left something running elsewhere are told.
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}
