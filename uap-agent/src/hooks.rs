//! Hooks of the developer at the boundaries of steps.

use core::future::ready;
use core::time::Duration;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use upp::{ToolCall, ToolExecution, UppError};

use crate::middleware::MiddlewareContext;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

/// The answer of a hook. An error of a hook is the run's error.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, UppError>>;

/// What the developer wants told and asked while an agent runs.
///
/// The default of every hook does nothing. Since no run has a limit by default, [`AgentStrategy::stop_condition`] is
/// what ends one that would go on.
///
/// Spec: UAP-1.1 10.1
pub trait AgentStrategy: Send + Sync {
    /// Whether the run ends, well, after this step.
    fn stop_condition<'a>(&'a self, _state: &'a AgentState) -> HookFuture<'a, bool> {
        Box::pin(ready(Ok(false)))
    }
    /// A step begins.
    fn on_step_start<'a>(&'a self, _step: u64, _state: &'a AgentState) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The model has reasoned.
    fn on_reason<'a>(&'a self, _step: u64, _reasoning: &'a str) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The model wants tools called; none has run yet.
    fn on_act<'a>(&'a self, _step: u64, _calls: &'a [ToolCall]) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// Tools have run.
    fn on_observe<'a>(
        &'a self,
        _step: u64,
        _observations: &'a [ToolExecution],
    ) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// A step is over; the result is that of the run so far.
    fn on_step_end<'a>(&'a self, _step: u64, _result: &'a GenerateResult) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The run has come to its end, well.
    fn on_complete<'a>(&'a self, _result: &'a GenerateResult) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The run has failed; a result given back takes the place of the error.
    fn on_error<'a>(&'a self, _error: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        Box::pin(ready(Ok(None)))
    }
}

/// A hook that the engine asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HookCall {
    /// [`AgentStrategy::stop_condition`]
    StopCondition(AgentState),
    /// [`AgentStrategy::on_step_start`]
    StepStart(AgentState),
    /// [`AgentStrategy::on_reason`]
    Reason(u64, Arc<str>),
    /// [`AgentStrategy::on_act`]
    Act(u64, Arc<upp::AssistantMessage>),
    /// [`AgentStrategy::on_observe`]
    Observe(u64, Arc<[ToolExecution]>),
    /// [`AgentStrategy::on_step_end`]
    StepEnd(u64, Box<GenerateResult>),
    /// [`AgentStrategy::on_complete`]
    Complete(Box<GenerateResult>),
    /// [`AgentStrategy::on_error`]
    Error(Box<AgentError>),
    /// [`upp::ToolUseStrategy::on_max_iterations`]
    MaxIterations(u64),
    /// What [`crate::Middleware::retries`] says of a question that is about to be asked for this time, from 1; with what
    /// the time before came to, where it failed, and with 64 random bits
    Attempt(u32, Option<Box<UppError>>, u64),
    /// [`crate::Middleware::before`] of the layer with this number, from 0
    Before(usize, Box<MiddlewareContext>),
    /// [`crate::Middleware::after`]
    After(usize, Box<MiddlewareContext>, Box<GenerateResult>),
    /// [`crate::Middleware::on_error`]
    Caught(usize, Box<MiddlewareContext>, Box<AgentError>),
}

/// What a hook came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HookAnswer {
    /// It was told.
    Done,
    /// The stop condition's answer.
    Stop(bool),
    /// How long to wait before the question is asked; `None` where it is not asked again.
    Ask(Option<Duration>),
    /// What an error hook recovers with.
    Recovered(Box<GenerateResult>),
    /// The context as a layer of middleware left it, and what the layer came to: a result of [`HookCall::After`] and,
    /// where it recovers, of [`HookCall::Caught`].
    Layer(
        Box<MiddlewareContext>,
        Result<Option<Box<GenerateResult>>, UppError>,
    ),
}
