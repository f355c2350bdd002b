//! The code that a run calls: model, tools, middleware, hooks and store.

use core::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::FutureExt;
use ubos_common::driver::Sleep;
use ubos_common::time::Mono;
use upp::{ModelReference, RetryStrategy, ToolCall, ToolSet, UppError};

use super::OnSaveFailed;
use super::limits::TimeLimits;
use super::rules::CallRules;
use super::scope::RunScope;
use crate::checkpoint::CheckpointStore;
use crate::hooks::{AgentStrategy, HookAnswer, HookCall};
use crate::middleware::Middleware;
use crate::state::AgentState;

/// All that is the parts's.
#[derive(Clone)]
pub(super) struct AgentParts {
    pub(super) agent_id: Arc<str>,
    #[cfg(feature = "tracing")]
    pub(super) name: Option<Arc<str>>,
    #[cfg(feature = "tracing")]
    pub(super) session_id: Option<Arc<str>>,
    pub(super) model: ModelReference,
    pub(super) tools: ToolSet,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) retries: Option<Arc<dyn RetryStrategy>>,
    pub(super) hooks: Option<Arc<dyn AgentStrategy>>,
    pub(super) store: Option<Arc<dyn CheckpointStore>>,
    pub(super) clock: Arc<dyn Sleep + Send + Sync>,
    pub(super) on_save_failed: Option<OnSaveFailed>,
    pub(super) limits: TimeLimits,
    /// Whether responses are streamed.
    pub(super) streams: bool,
    pub(super) rules: CallRules,
    /// Whether the recorder applies the rules. A run that is not recorded cannot wait.
    pub(super) is_recorded: bool,
    /// The call within which the run is made.
    pub(super) outer: Option<RunScope>,
}

impl AgentParts {
    /// Whether all middleware permits another request to the model.
    pub(super) fn goes_on(&self) -> bool {
        let now = self.clock.now();
        self.middleware.iter().all(|layer| layer.goes_on(now))
    }

    /// Why a call is refused for which this run cannot wait.
    pub(super) fn refuses(&self, call: &ToolCall) -> Option<&'static str> {
        let is_repeated = self
            .outer
            .as_ref()
            .is_some_and(|outer| outer.call().is_repeated);
        match self.is_recorded {
            true => None,
            false => self.rules.refuses(call, is_repeated),
        }
    }

    /// When the first layer of middleware has no more time for the run.
    pub(super) fn ends_at(&self) -> Option<Mono> {
        let now = self.clock.now();
        let ends = self
            .middleware
            .iter()
            .filter_map(|layer| layer.ends_at(now));
        ends.min()
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

/// Calls a hook, a layer of middleware, or the stop condition.
pub(super) async fn call_hook(parts: &AgentParts, call: HookCall) -> Result<HookAnswer, UppError> {
    match call {
        HookCall::Before(..) | HookCall::After(..) | HookCall::Caught(..) => {
            return call_layer(&parts.middleware, call).await;
        }
        HookCall::StopCondition(state) => {
            return parts.stops(&state).await.map(HookAnswer::Stop);
        }
        HookCall::MaxIterations(most) => {
            if let Some(strategy) = &parts.tools.strategy {
                // An error or a panic of the hook does not hide the reason for which it was called.
                let call = AssertUnwindSafe(async { strategy.on_max_iterations(most).await });
                let _ = call.catch_unwind().await;
            }
            return Ok(HookAnswer::Done);
        }
        _ => {}
    }
    let Some(hooks) = &parts.hooks else {
        return Ok(HookAnswer::Done);
    };
    let called = match &call {
        HookCall::Error(error) => {
            let recovered = hooks.on_error(error).await?;
            return Ok(recovered.map_or(HookAnswer::Done, |result| {
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
    called.map(|()| HookAnswer::Done)
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
        return Ok(HookAnswer::Done);
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
        _ => HookAnswer::Done,
    })
}
