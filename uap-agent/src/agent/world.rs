//! Performs the effects of a run: the model, tools, hooks and the store of checkpoints.

use core::future::{Future, ready};
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use futures::future::FutureExt;
use futures::stream::{self, StreamExt};
use futures_core::future::BoxFuture;
use ubos_common::driver::{self, Step};
use upp::{
    CancelToken, Cancelled, Failure, LlmRequest, LlmResponse, ModelEvent, ModelStream, ToolCall,
    ToolContext, ToolExecution, UppError, events_of, json_text, run_call,
};

use super::events::{Emitter, Shared};
use super::limits::{CallToken, Cut, Deadline, Response, slow, until};
use super::parts::{AgentParts, call_hook};
use super::scope::RunScope;
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::engine::{CallScope, EffectId, Engine, GRACE, Input, Output, panicked};
use crate::hooks::{HookAnswer, HookCall};
use crate::state::{AgentState, SubagentExecutionTrace};

/// The caller's side of [`drive`](driver::drive).
pub(super) struct RunWorld {
    parts: Arc<AgentParts>,
    shared: Arc<Shared>,
    /// The response that is being read.
    responses: BTreeMap<EffectId, Response>,
    /// Waits for an abort; `None` once the engine has been told.
    aborted: Option<Cancelled>,
    /// The result that arrived together with the abort; it is handed over after it.
    late: Option<Input>,
    /// Waits for the end of the run's time; `None` once it is over, or where there is none.
    expires: Option<Deadline>,
    /// The run's time is over.
    is_expired: bool,
    /// The seed of a recorded run.
    run: Option<u64>,
    #[cfg(feature = "tracing")]
    span: super::spans::RunSpan,
}

impl RunWorld {
    pub(super) fn new(parts: AgentParts) -> Self {
        let shared = Arc::new(Shared::default());
        let aborted = Some(shared.cancel.cancelled());
        let ends = parts
            .limits
            .run
            .map(|span| parts.clock.now().mono.saturating_add(span));
        let expires = ends.map(|at| Deadline::new(&parts.clock, at));
        Self {
            parts: Arc::new(parts),
            shared,
            responses: BTreeMap::new(),
            aborted,
            late: None,
            expires,
            is_expired: false,
            run: None,
            #[cfg(feature = "tracing")]
            span: super::spans::RunSpan::default(),
        }
    }

    /// The world of a recorded run, with the seed of its ids.
    #[cfg(feature = "canon")]
    pub(super) const fn of_run(mut self, seed: u64) -> Self {
        self.run = Some(seed);
        self
    }

    /// Whether the run is aborted and the engine does not know yet. A run whose time is over is aborted.
    fn is_aborting(&mut self) -> bool {
        if self.expires.as_ref().is_some_and(Deadline::is_over) {
            self.expire();
        }
        self.aborted.is_some() && self.shared.cancel.is_cancelled()
    }

    fn expire(&mut self) {
        (self.expires, self.is_expired) = (None, !self.shared.cancel.is_cancelled());
        self.shared.cancel.cancel();
    }

    /// Tells the engine of the abort.
    fn abort(&mut self) -> Input {
        (self.aborted, self.expires) = (None, None);
        match self.is_expired {
            true => Input::Expire,
            false => Input::Abort,
        }
    }

    fn answer(&mut self, answer: Completed) -> Input {
        match answer {
            Completed::Model(id, item, response) => {
                if matches!(item, Some(Ok(ModelEvent::Done(_)))) {
                    self.reset_retries();
                    self.responded(id);
                }
                if matches!(item, Some(Ok(ModelEvent::Event(_)))) {
                    self.responses.insert(id, response);
                }
                Input::Model(id, item)
            }
            Completed::Stop(id) => Input::Stop(id),
            Completed::Slept(id) => Input::Slept(id),
            Completed::Tool(id, execution, traces) => {
                if !traces.is_empty() {
                    self.responded(id);
                }
                Input::Tool(id, execution, traces)
            }
            Completed::Hook(id, answer) => Input::Hook(id, answer),
            Completed::Saved(id, result) => {
                self.shared.set_saved(&result);
                Input::Saved(id, result)
            }
        }
    }

    fn responded(&self, id: EffectId) {
        let layers = self.run.map(|run| (run, self.parts.middleware.iter()));
        for (run, layer) in layers
            .into_iter()
            .flat_map(|(run, all)| all.map(move |it| (run, it)))
        {
            // A panic of the layer does not change the response.
            let _ = catch_unwind(AssertUnwindSafe(|| layer.responded(run, id)));
        }
    }

    fn reset_retries(&self) {
        if let Some(retries) = &self.parts.retries {
            // A panic of the strategy does not change the response.
            let _ = catch_unwind(AssertUnwindSafe(|| retries.reset()));
        }
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    fn start(
        &self,
        id: EffectId,
        effect: impl Future<Output = Completed> + Send + 'static,
    ) -> Step<Completed> {
        let shared = self.shared();
        Step::start(id, async move {
            shared.capacity().await;
            effect.await
        })
    }

    fn read(&mut self, id: EffectId) -> Step<Completed> {
        let Some(mut response) = self.responses.remove(&id) else {
            return Step::Done;
        };
        let clock = &self.parts.clock;
        // A model that is always ready never waits for the end.
        if let Some((at, cut)) = response.ends
            && clock.now().mono >= at
        {
            return Step::start(id, ready(cut_off(id, cut, response)));
        }
        let end = response.ends.map(|(at, _)| Deadline::new(clock, at));
        self.start(id, async move {
            // A panic of the model is an error of the request.
            let item = AssertUnwindSafe(response.stream.next()).catch_unwind();
            match (until(end, item).await, response.ends) {
                (None, Some((_, cut))) => cut_off(id, cut, response),
                (item, _) => {
                    let item = item.unwrap_or(Ok(None));
                    let item = item.unwrap_or_else(|_| Some(Err(panicked("the model"))));
                    Completed::Model(id, item, response)
                }
            }
        })
    }

    /// Sends a request, unless the middleware stops the run, and reads the first event of the response.
    fn infer(&mut self, id: EffectId, request: LlmRequest) -> Step<Completed> {
        let failed = |who| stream::once(async move { Err(panicked(who)) }).boxed();
        let parts = &self.parts;
        let now = parts.clock.now().mono;
        let end = AssertUnwindSafe(|| parts.goes_on().then(|| parts.ends_at()));
        let mut spent = None;
        let stream = match catch_unwind(end) {
            Ok(None) => return Step::start(id, ready(Completed::Stop(id))),
            Ok(Some(end)) => {
                spent = end.map(|at| (at, Cut::Spent));
                catch_unwind(AssertUnwindSafe(|| sent(parts, request)))
                    .unwrap_or_else(|_| failed("the model"))
            }
            Err(_) => failed("a layer"),
        };
        let slow = parts
            .limits
            .model
            .map(|span| (now.saturating_add(span), Cut::Slow));
        let ends = spent.into_iter().chain(slow).min();
        self.responses.insert(id, Response { stream, ends });
        self.read(id)
    }

    fn tool(&self, id: EffectId, call: ToolCall, scope: CallScope) -> Step<Completed> {
        let parts = Arc::clone(&self.parts);
        if let Some(why) = parts.refuses(&call) {
            let execution = failed_call(&call, why, 0);
            return self.start(id, ready(Completed::Tool(id, execution, Vec::new())));
        }
        let cancel = self.shared.cancel.clone();
        let limit = parts.limits.tool;
        let token = limit.map(|_| CallToken(CancelToken::default()));
        let told = token.as_ref().map_or(&cancel, |token| &token.0).clone();
        let mut context = ToolContext::new(Arc::clone(&call.tool_call_id), told);
        context.trace.clone_from(&scope.trace);
        let agent = Arc::clone(&parts.agent_id);
        let (emitter, rules) = (Emitter(self.shared()), parts.rules.clone());
        let scope = RunScope::new(agent, &call, scope, emitter, rules, parts.outer.as_ref());
        context.extensions.insert(scope.clone());
        self.start(id, async move {
            let clock = || parts.clock.now().mono;
            let began = clock();
            let end = limit.map(|span| Deadline::new(&parts.clock, began.saturating_add(span)));
            let run =
                AssertUnwindSafe(run_call(&parts.tools, &call, &context, &clock)).catch_unwind();
            let execution = match &token {
                Some(token) => until(end, token.over(cancel, run)).await,
                None => Some(run.await),
            };
            let failed = |why: &str| {
                let millis = clock().saturating_since(began).as_millis();
                failed_call(&call, why, u64::try_from(millis).unwrap_or(u64::MAX))
            };
            let execution = match execution {
                Some(Ok(execution)) => execution,
                Some(Err(_)) => failed("the tool panicked"),
                None => failed("the tool has taken too long, and was stopped"),
            };
            Completed::Tool(id, execution, scope.take())
        })
    }

    /// Asks the retry strategy. The engine counts the attempts, so that a resumed run goes on counting.
    fn attempt(
        &self,
        id: EffectId,
        attempt: u32,
        failure: Option<&UppError>,
        random: u64,
    ) -> Step<Completed> {
        let now = self.parts.clock.now().mono;
        let retries = self.parts.retries.as_deref();
        let asked = AssertUnwindSafe(|| match (retries, failure) {
            // What cannot pass is never retried, whatever the strategy returns.
            (_, Some(failure)) if failure.code.is_lasting() => None,
            (Some(retries), Some(failure)) => {
                retries.on_retry(Failure::new(now, failure, attempt, random))
            }
            (Some(retries), None) => Some(retries.before_request(now)),
            (None, _) => None,
        });
        let answer = catch_unwind(asked)
            .map(HookAnswer::Ask)
            .map_err(|_| panicked("a retry strategy"));
        Step::start(id, ready(Completed::Hook(id, answer)))
    }

    fn sleep(&self, id: EffectId, span: Duration) -> Step<Completed> {
        if span.is_zero() {
            // The driver yields between the start of the effect and its result.
            return self.start(id, ready(Completed::Slept(id)));
        }
        let clock = &self.parts.clock;
        let wanted = clock.now().mono.saturating_add(span);
        // Then no request is sent any more, and the run ends. The panic of a layer is an error of that request.
        let ends = catch_unwind(AssertUnwindSafe(|| self.parts.ends_at())).unwrap_or_default();
        let sleeping = clock.sleep_until(ends.map_or(wanted, |at| at.min(wanted)));
        Step::start(id, async move {
            sleeping.await;
            Completed::Slept(id)
        })
    }

    fn hook(&self, id: EffectId, call: HookCall) -> Step<Completed> {
        let parts = Arc::clone(&self.parts);
        let aborted = matches!(call, HookCall::Error(_) | HookCall::Caught(..))
            .then(|| self.shared.cancel.cancelled());
        // A hook does not wait for the reader: the error hook must run even if nothing reads the events.
        Step::start(id, async move {
            let end = aborted.map(|aborted| -> BoxFuture<'static, ()> {
                let clock = Arc::clone(&parts.clock);
                Box::pin(async move {
                    aborted.await;
                    let end = clock.now().mono.saturating_add(GRACE);
                    Deadline::new(&clock, end).await;
                })
            });
            let answer = AssertUnwindSafe(call_hook(&parts, call)).catch_unwind();
            // An error hook that hangs leaves the error as it is.
            let answer = until(end, answer).await.unwrap_or(Ok(Err(slow("a hook"))));
            Completed::Hook(id, answer.unwrap_or_else(|_| Err(panicked("a hook"))))
        })
    }

    fn save(
        &self,
        id: EffectId,
        metadata: CheckpointMetadata,
        state: AgentState,
    ) -> Step<Completed> {
        let parts = Arc::clone(&self.parts);
        Step::start(id, async move {
            let saving = AssertUnwindSafe(async {
                match &parts.store {
                    Some(store) => store.save(metadata, state).await,
                    None => Ok(()),
                }
            });
            let saved = saving.catch_unwind().await;
            Completed::Saved(
                id,
                saved.unwrap_or_else(|_| Err(CheckpointError::Failed("the store panicked".into()))),
            )
        })
    }

    // impl: UAP-12-2
    fn save_failed(&self, error: &CheckpointError) {
        if let Some(callback) = &self.parts.on_save_failed {
            // A panic of the callback must not end the run.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(error)));
        }
    }
}

impl RunWorld {
    fn perform_now(&mut self, effect: Output) -> Step<Completed> {
        match effect {
            // The abort ends these effects, so they are not started.
            Output::Infer(..) | Output::More(_) | Output::Tool(..) | Output::Sleep(..)
                if self.is_aborting() =>
            {
                Step::Done
            }
            Output::Infer(id, request) => self.infer(id, request),
            Output::More(id) => self.read(id),
            Output::Tool(id, call, scope) => self.tool(id, call, scope),
            Output::Hook(id, HookCall::Attempt(attempt, failure, random)) => {
                self.attempt(id, attempt, failure.as_deref(), random)
            }
            Output::Hook(id, call) => self.hook(id, call),
            Output::Sleep(id, span) => self.sleep(id, span),
            Output::Save(id, metadata, state) => self.save(id, metadata, state),
            Output::Cancel(id) => {
                self.responses.remove(&id);
                Step::Cancel(id)
            }
            Output::Event(event) => {
                self.shared.push(event);
                Step::Done
            }
            Output::SaveFailed(error) => {
                self.save_failed(&error);
                Step::Done
            }
            Output::Finished(result) => {
                self.shared.set_result(result);
                Step::Done
            }
        }
    }
}

/// Sends a request.
fn sent(parts: &AgentParts, request: LlmRequest) -> ModelStream {
    #[cfg(feature = "tracing")]
    return super::spans::in_plan(parts, request, |request| response(parts, request));
    #[cfg(not(feature = "tracing"))]
    response(parts, request)
}

/// The events of a response. One that is not streamed has its events when it is there.
fn response(parts: &AgentParts, request: LlmRequest) -> ModelStream {
    if parts.streams {
        return parts.model.stream(request);
    }
    let events = |response: Result<LlmResponse, UppError>| match response {
        Ok(response) => {
            let events = events_of(&response, usize::MAX).into_iter();
            let events = events.map(ModelEvent::Event);
            let done = ModelEvent::Done(Box::new(response));
            stream::iter(events.chain([done]).map(Ok).collect::<Vec<_>>())
        }
        Err(error) => stream::iter(vec![Err(error)]),
    };
    stream::once(parts.model.complete(request))
        .map(events)
        .flatten()
        .boxed()
}

/// A call that has failed without a word of the tool.
fn failed_call(call: &ToolCall, why: &str, millis: u64) -> ToolExecution {
    let (name, id) = (Arc::clone(&call.tool_name), Arc::clone(&call.tool_call_id));
    ToolExecution::new(
        name,
        id,
        call.arguments.clone(),
        json_text(why),
        true,
        millis,
    )
}

/// The end of a response that is not read to its end.
fn cut_off(id: EffectId, cut: Cut, response: Response) -> Completed {
    match cut {
        Cut::Spent => Completed::Stop(id),
        Cut::Slow => Completed::Model(id, Some(Err(slow("the model"))), response),
    }
}

/// The result of an effect.
pub(super) enum Completed {
    Model(EffectId, Option<Result<ModelEvent, UppError>>, Response),
    Stop(EffectId),
    Slept(EffectId),
    Tool(EffectId, ToolExecution, Vec<SubagentExecutionTrace>),
    Hook(EffectId, Result<HookAnswer, UppError>),
    Saved(EffectId, Result<(), CheckpointError>),
}

impl driver::World<Engine> for RunWorld {
    type Answer = Completed;

    #[cfg(feature = "tracing")]
    fn perform(&mut self, effect: Output) -> Step<Completed> {
        match &effect {
            Output::Finished(result) => self.span.end(result),
            Output::Event(_) | Output::SaveFailed(_) | Output::Cancel(_) => {}
            _ => {
                let (mut span, parts) = (core::mem::take(&mut self.span), Arc::clone(&self.parts));
                let step = span.around(&parts, || self.perform_now(effect));
                self.span = span;
                return step;
            }
        }
        self.perform_now(effect)
    }

    #[cfg(not(feature = "tracing"))]
    fn perform(&mut self, effect: Output) -> Step<Completed> {
        self.perform_now(effect)
    }

    fn input(&mut self, answer: Completed) -> Input {
        let answer = self.answer(answer);
        if !self.is_aborting() {
            return answer;
        }
        // The abort goes first. Only the result of an error hook still matters after it, and must not be lost.
        self.late = Some(answer);
        self.abort()
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        if let Some(late) = self.late.take() {
            return Poll::Ready(late);
        }
        let over = self.expires.as_mut().map(|over| Pin::new(over).poll(cx));
        if over.is_some_and(|over| over.is_ready()) {
            self.expire();
        }
        let aborted = self.aborted.as_mut().map(|it| Pin::new(it).poll(cx));
        match aborted {
            Some(Poll::Ready(())) => Poll::Ready(self.abort()),
            _ => Poll::Pending,
        }
    }

    fn expects_external(&self) -> bool {
        self.aborted.is_some() || self.late.is_some()
    }
}

// impl: UAP-11-1
impl Drop for RunWorld {
    /// The run has ended or was dropped: tools may have work running elsewhere, which has to be cancelled.
    fn drop(&mut self) {
        self.shared.cancel.cancel();
        self.shared.end();
    }
}
