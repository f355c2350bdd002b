//! The world around a run: the developer's model, tools, hooks and store.

use core::future::Future;
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
use crate::engine::{Answer, CallScope, Effect, EffectId, Engine, panicked};
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
    /// Who waits for room: effects of the run, and what tools have running elsewhere. Each leaves when it is dropped.
    waiting: BTreeMap<u64, Waker>,
    /// The number of the last that came to wait.
    waiters: u64,
    /// Who waits for events: they may come from another thread.
    reader: Option<Waker>,
    /// Whether the run is over, or its reader gone: nothing is told any more, and nobody held back.
    is_over: bool,
    result: Option<Result<GenerateResult, Box<AgentError>>>,
}

impl Inner {
    fn has_room(&self) -> bool {
        self.is_over || self.events.len() < EVENTS
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pop(&self) -> Option<AgentStreamEvent> {
        let mut inner = self.lock();
        let event = inner.events.pop_front();
        if inner.has_room() {
            Self::wake(inner);
        }
        event
    }

    /// Lets go on who waits for room: outside of the lock, for a waker is foreign code.
    fn wake(mut inner: MutexGuard<'_, Inner>) {
        let waiting = core::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Who is to be woken by an event from another thread.
    pub(super) fn set_reader(&self, waker: &Waker) {
        let mut inner = self.lock();
        if !inner
            .reader
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            let former = inner.reader.replace(waker.clone());
            drop(inner);
            drop(former);
        }
    }

    fn end(&self) {
        let mut inner = self.lock();
        inner.is_over = true;
        Self::wake(inner);
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
    fn room(&self) -> Room<'_> {
        let mut inner = self.lock();
        inner.waiters += 1;
        Room(self, inner.waiters)
    }
}

/// Waits for room, under its number.
struct Room<'a>(&'a Shared, u64);

impl Future for Room<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.0.lock();
        if inner.has_room() {
            return Poll::Ready(());
        }
        inner.waiting.insert(self.1, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // A waker is foreign code, also when it is dropped.
        let left = self.0.lock().waiting.remove(&self.1);
        drop(left);
    }
}

/// Puts events between those of the run.
#[derive(Clone)]
pub(crate) struct Emitter(Arc<Shared>);

impl Emitter {
    /// Waits where the reader is behind. What is told after the end of the run is told to nobody.
    pub(crate) async fn emit(&self, event: AgentStreamEvent) {
        self.0.room().await;
        let mut inner = self.0.lock();
        if inner.is_over {
            return;
        }
        inner.events.push_back(event);
        let reader = inner.reader.take();
        drop(inner);
        if let Some(reader) = reader {
            reader.wake();
        }
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
    /// The answer that came together with the abort: told after it.
    late: Option<Answer>,
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
            late: None,
        }
    }

    /// Whether the run is aborted and has not been told.
    fn is_aborting(&self) -> bool {
        self.aborted.is_some() && self.shared.cancel.is_cancelled()
    }

    fn answer(&mut self, answer: WorldAnswer) -> Answer {
        match answer {
            WorldAnswer::Model(id, item, stream) => {
                if matches!(item, Some(Ok(ModelEvent::Done(_)))) {
                    self.went_well();
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

    fn went_well(&self) {
        if let Some(retries) = &self.developer.retries {
            // The answer is there, whatever becomes of who is told of it.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| retries.reset()));
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
        let failed = |who| futures::stream::once(async move { Err(panicked(who)) }).boxed();
        let developer = &self.developer;
        let stream = match std::panic::catch_unwind(AssertUnwindSafe(|| developer.goes_on())) {
            Ok(false) => return Step::start(id, core::future::ready(WorldAnswer::Stop(id))),
            Ok(true) => {
                std::panic::catch_unwind(AssertUnwindSafe(|| developer.model.stream(request)))
                    .unwrap_or_else(|_| failed("the model"))
            }
            Err(_) => failed("a layer"),
        };
        self.streams.insert(id, stream);
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
        if span.is_zero() {
            // A pause: the reader comes to read, and other tasks to their turn.
            return self.start(id, core::future::ready(WorldAnswer::Slept(id)));
        }
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
                // What it fails with, a panic too, does not hide why it was called.
                let told = AssertUnwindSafe(async { strategy.on_max_iterations(most).await });
                let _ = told.catch_unwind().await;
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
            // The abort is about to be told, and ends them: they need not begin.
            Effect::Infer(..) | Effect::More(_) | Effect::Tool(..) | Effect::Sleep(..)
                if self.is_aborting() =>
            {
                Step::Done
            }
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
        let answer = self.answer(answer);
        if !self.is_aborting() {
            return answer;
        }
        // To what the abort has ended it comes too late. Only error hooks go on, and theirs must not be lost.
        (self.aborted, self.late) = (None, Some(answer));
        Answer::Abort
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        if let Some(late) = self.late.take() {
            return Poll::Ready(late);
        }
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
        self.aborted.is_some() || self.late.is_some()
    }
}

impl Drop for World {
    /// The run is over or nobody wants it any more: tools that left something running elsewhere are told.
    fn drop(&mut self) {
        self.shared.cancel.cancel();
        self.shared.end();
    }
}
