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
use ubos_common::driver::{self, Step};
use upp::{
    Cancelled, ErrorCode, Failure, LlmRequest, ModelEvent, ModelStream, ToolCall, ToolContext,
    ToolExecution, UppError, run_call,
};

use super::events::{Emitter, Shared};
use super::parts::{AgentParts, call_hook};
use super::scope::RunScope;
use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::engine::{CallScope, EffectId, Engine, Input, Output, panicked};
use crate::hooks::{HookAnswer, HookCall};
use crate::state::{AgentState, SubagentExecutionTrace};

/// The caller's side of [`drive`](driver::drive).
pub(super) struct RunWorld {
    parts: Arc<AgentParts>,
    shared: Arc<Shared>,
    /// The response that is being read.
    responses: BTreeMap<EffectId, ModelStream>,
    /// Waits for an abort; `None` once the engine has been told.
    aborted: Option<Cancelled>,
    /// The result that arrived together with the abort; it is handed over after it.
    late: Option<Input>,
}

impl RunWorld {
    pub(super) fn new(parts: AgentParts) -> Self {
        let shared = Arc::new(Shared::default());
        let aborted = Some(shared.cancel.cancelled());
        Self {
            parts: Arc::new(parts),
            shared,
            responses: BTreeMap::new(),
            aborted,
            late: None,
        }
    }

    /// Whether the run is aborted and the engine does not know yet.
    fn is_aborting(&self) -> bool {
        self.aborted.is_some() && self.shared.cancel.is_cancelled()
    }

    fn answer(&mut self, answer: Completed) -> Input {
        match answer {
            Completed::Model(id, item, stream) => {
                if matches!(item, Some(Ok(ModelEvent::Done(_)))) {
                    self.reset_retries();
                }
                if matches!(item, Some(Ok(ModelEvent::Event(_)))) {
                    self.responses.insert(id, stream);
                }
                Input::Model(id, item)
            }
            Completed::Stop(id) => Input::Stop(id),
            Completed::Slept(id) => Input::Slept(id),
            Completed::Tool(id, execution, traces) => Input::Tool(id, execution, traces),
            Completed::Hook(id, answer) => Input::Hook(id, answer),
            Completed::Saved(id, result) => Input::Saved(id, result),
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
        let Some(mut stream) = self.responses.remove(&id) else {
            return Step::Done;
        };
        self.start(id, async move {
            // A panic of the model is an error of the request.
            let item = AssertUnwindSafe(stream.next()).catch_unwind().await;
            let item = item.unwrap_or_else(|_| Some(Err(panicked("the model"))));
            Completed::Model(id, item, stream)
        })
    }

    /// Sends a request, unless the middleware stops the run, and reads the first event of the response.
    fn infer(&mut self, id: EffectId, request: LlmRequest) -> Step<Completed> {
        let failed = |who| stream::once(async move { Err(panicked(who)) }).boxed();
        let parts = &self.parts;
        let response = match catch_unwind(AssertUnwindSafe(|| parts.goes_on())) {
            Ok(false) => return Step::start(id, ready(Completed::Stop(id))),
            Ok(true) => catch_unwind(AssertUnwindSafe(|| parts.model.stream(request)))
                .unwrap_or_else(|_| failed("the model")),
            Err(_) => failed("a layer"),
        };
        self.responses.insert(id, response);
        self.read(id)
    }

    fn tool(&self, id: EffectId, call: ToolCall, scope: CallScope) -> Step<Completed> {
        let parts = Arc::clone(&self.parts);
        let cancel = self.shared.cancel.clone();
        let mut context = ToolContext::new(Arc::clone(&call.tool_call_id), cancel);
        let agent = Arc::clone(&parts.agent_id);
        let scope = RunScope::new(agent, scope, Emitter(self.shared()));
        context.extensions.insert(scope.clone());
        self.start(id, async move {
            let clock = || parts.clock.now().mono;
            let execution = run_call(&parts.tools, &call, &context, &clock).await;
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
            // A cancelled request is never retried, whatever the strategy returns.
            (_, Some(failure)) if failure.code == ErrorCode::Cancelled => None,
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
        let deadline = clock.now().mono.saturating_add(span);
        let sleeping = clock.sleep_until(deadline);
        Step::start(id, async move {
            sleeping.await;
            Completed::Slept(id)
        })
    }

    fn hook(&self, id: EffectId, call: HookCall) -> Step<Completed> {
        let parts = Arc::clone(&self.parts);
        // A hook does not wait for the reader: the error hook must run even if nothing reads the events.
        Step::start(id, async move {
            let answer = AssertUnwindSafe(call_hook(&parts, call))
                .catch_unwind()
                .await;
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

    fn save_failed(&self, error: &CheckpointError) {
        if let Some(callback) = &self.parts.on_save_failed {
            // A panic of the callback must not end the run.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(error)));
        }
    }
}

/// The result of an effect.
pub(super) enum Completed {
    Model(EffectId, Option<Result<ModelEvent, UppError>>, ModelStream),
    Stop(EffectId),
    Slept(EffectId),
    Tool(EffectId, ToolExecution, Vec<SubagentExecutionTrace>),
    Hook(EffectId, Result<HookAnswer, UppError>),
    Saved(EffectId, Result<(), CheckpointError>),
}

impl driver::World<Engine> for RunWorld {
    type Answer = Completed;

    fn perform(&mut self, effect: Output) -> Step<Completed> {
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

    fn input(&mut self, answer: Completed) -> Input {
        let answer = self.answer(answer);
        if !self.is_aborting() {
            return answer;
        }
        // The abort goes first. Only the result of an error hook still matters after it, and must not be lost.
        (self.aborted, self.late) = (None, Some(answer));
        Input::Abort
    }

    fn poll_external(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
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
                Poll::Ready(Input::Abort)
            }
            _ => Poll::Pending,
        }
    }

    fn expects_external(&self) -> bool {
        self.aborted.is_some() || self.late.is_some()
    }
}

impl Drop for RunWorld {
    /// The run has ended or was dropped: tools may have work running elsewhere, which has to be cancelled.
    fn drop(&mut self) {
        self.shared.cancel.cancel();
        self.shared.end();
    }
}
