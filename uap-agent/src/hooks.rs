//! Hooks at the boundaries of steps.

use core::future::ready;
use core::time::Duration;
use std::sync::Arc;

use upp::{ToolCall, ToolExecution, UppError};

use crate::middleware::MiddlewareContext;
pub use crate::result::HookFuture;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

/// Hooks that are called while an agent runs.
///
/// The default of every hook does nothing. Runs have no limit by default: [`AgentStrategy::stop_condition`] ends a run
/// that would continue.
///
/// Spec: UAP-1.1 10.1
pub trait AgentStrategy: Send + Sync {
    /// Whether the run ends after this step. It ends with a result.
    fn stop_condition<'a>(&'a self, _state: &'a AgentState) -> HookFuture<'a, bool> {
        Box::pin(ready(Ok(false)))
    }
    /// A step starts.
    fn on_step_start<'a>(&'a self, _step: u64, _state: &'a AgentState) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The model has produced reasoning.
    fn on_reason<'a>(&'a self, _step: u64, _reasoning: &'a str) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The model calls tools. None has run yet.
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
    /// A step has ended. The result is that of the run so far.
    fn on_step_end<'a>(&'a self, _step: u64, _result: &'a GenerateResult) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The run ends with a result.
    fn on_complete<'a>(&'a self, _result: &'a GenerateResult) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
    /// The run has failed. A returned result replaces the error.
    fn on_error<'a>(&'a self, _error: &'a AgentError) -> HookFuture<'a, Option<GenerateResult>> {
        Box::pin(ready(Ok(None)))
    }
}

/// A call that the engine requests: a hook, a layer of middleware, or the retry strategy.
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
    /// [`crate::Middleware::retries`]: if and when a request is sent. With the number of the attempt, from 1, the error of
    /// the previous attempt, where it failed, and 64 random bits
    Attempt(u32, Option<Box<UppError>>, u64),
    /// [`crate::Middleware::before`] of the layer with this number, from 0
    Before(usize, Box<MiddlewareContext>),
    /// [`crate::Middleware::after`]
    After(usize, Box<MiddlewareContext>, Box<GenerateResult>),
    /// [`crate::Middleware::on_error`]
    Caught(usize, Box<MiddlewareContext>, Box<AgentError>),
}

/// The outcome of a hook.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HookAnswer {
    /// The hook has returned, and has no other outcome.
    Done,
    /// Whether the run stops.
    Stop(bool),
    /// How long to wait before the request is sent; `None` where it is not sent again.
    Ask(Option<Duration>),
    /// The result with which an error hook recovers.
    Recovered(Box<GenerateResult>),
    /// The context after a layer of middleware, and the outcome of the layer: a result for [`HookCall::After`] and,
    /// where the layer recovers, for [`HookCall::Caught`].
    Layer(
        Box<MiddlewareContext>,
        Result<Option<Box<GenerateResult>>, UppError>,
    ),
}
