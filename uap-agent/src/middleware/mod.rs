//! Middleware around runs.
//!
//! A run passes the list inwards ([`Middleware::before`], in order), and then outwards ([`Middleware::after`], in reverse
//! order). An error is passed to [`Middleware::on_error`] of the layers that were entered, in reverse order.

mod budget;
mod logging;
mod retry;

use core::future::ready;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now};
use upp::{CycleUsage, Message, ModelReference, RetryStrategy, TokenUsage};

pub use budget::{Budget, Price};
pub use logging::{LogLevel, LoggingOptions, logging};
pub use retry::retry;

use crate::result::{AgentError, GenerateResult, HookFuture};
use crate::state::AgentState;

/// A layer around a run. The default of every method changes nothing.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::HookFuture;
/// use uap_agent::{AgentOptions, Middleware, MiddlewareContext, agent};
/// use upp::{Reply, ScriptedModel};
///
/// /// Keeps the last ten messages of the history.
/// struct Window;
///
/// impl Middleware for Window {
///     fn name(&self) -> &str {
///         "window"
///     }
///
///     fn before<'a>(&'a self, context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
///         let history = context.state.messages();
///         let last: Vec<_> = history.iter().skip(history.len().saturating_sub(10)).cloned().collect();
///         context.state = context.state.with_context(&mut context.ids, last);
///         Box::pin(async { Ok(()) })
///     }
/// }
///
/// let model = Arc::new(ScriptedModel::new((0..9).map(|n| Reply::text(n.to_string()))));
/// let agent = agent(AgentOptions::new(model).with_middleware([Arc::new(Window) as Arc<dyn Middleware>]))?;
/// let mut state = agent.initial_state();
/// for _ in 0..9 {
///     state = futures::executor::block_on(agent.ask("next", &state))?.state;
/// }
/// assert_eq!(state.messages().len(), 12); // ten of the past, the input, the answer
/// # Ok::<(), upp::UppError>(())
/// ```
///
/// Spec: UAP-1.1 9.1
// impl: UAP-9-1
pub trait Middleware: Send + Sync {
    /// The name of the layer.
    fn name(&self) -> &str;

    /// Called before the run. The next layer and the strategy see changes of the context.
    fn before<'a>(&'a self, _context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Called with the result of the run. The next outer layer sees the returned result.
    fn after<'a>(
        &'a self,
        _context: &'a mut MiddlewareContext,
        result: GenerateResult,
    ) -> HookFuture<'a, GenerateResult> {
        Box::pin(ready(Ok(result)))
    }

    /// Called when the run or a layer has failed. A returned result ends the run: no other layer is called, and no
    /// [`Middleware::after`] runs. An error of this method is ignored.
    fn on_error<'a>(
        &'a self,
        _context: &'a mut MiddlewareContext,
        _error: &'a AgentError,
    ) -> HookFuture<'a, Option<GenerateResult>> {
        Box::pin(ready(Ok(None)))
    }

    /// Returns the model that is called instead of the agent's. Called once, when the agent is created. The first layer of a list
    /// is outermost.
    fn model(&self, model: ModelReference) -> ModelReference {
        model
    }

    /// The retry strategy. Where several layers have one, the innermost is used. A request is retried
    /// only before a part of its response was received.
    fn retries(&self) -> Option<Arc<dyn RetryStrategy>> {
        None
    }

    /// Whether another request may be sent to the model. Where not, the run ends with a result; before the first response it
    /// fails with `QUOTA_EXCEEDED`. Called before each request and after each step.
    fn goes_on(&self, _now: Now) -> bool {
        true
    }

    /// When [`Middleware::goes_on`] will say no, as far as that is known. A response that is not there by then is
    /// dropped, and the run ends as if its request had not been sent. Called before each request.
    fn ends_at(&self, _now: Now) -> Option<Mono> {
        None
    }

    /// A run is going to be recorded. `run` is its [`RecordedSpending::run`].
    fn recorded(&self, _now: Now, _run: u64) {}

    /// The agent of this layer is a sub-agent of this type now: a tool of other agents. Called when the tool is made.
    fn serves(&self, _subagent_type: &str) {}

    /// A recorded run has received a response from the model, or the result of a tool that has run sub-agents. Called before
    /// its result is recorded.
    fn responded(&self, _run: u64, _effect: u64) {}

    /// A recorded run is resumed or replayed: this is what it has spent. It may have been counted before, by
    /// [`Middleware::responded`] or because the run was resumed before.
    fn resumed(&self, _now: Now, _spent: &RecordedSpending) {}
}

/// What a recorded run has spent.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RecordedSpending {
    /// Identifies the run: the seed of its ids.
    pub run: u64,
    /// The responses of the model, in order, with their effects. The ids of effects grow.
    pub responses: Vec<(u64, CycleUsage)>,
    /// What sub-agents have used, with the effects of their calls and their types. Their own sub-agents are not among them.
    pub subagents: Vec<(u64, Arc<str>, TokenUsage)>,
    /// How long the run was under way, without the time between two processes.
    pub time: Duration,
    /// Whether the run goes on from here: it is resumed, not replayed.
    pub goes_on: bool,
}

/// What middleware sees of a run, and may change. The metadata exist until the run ends.
///
/// Spec: UAP-1.1 9.1
#[derive(Debug)]
#[non_exhaustive]
pub struct MiddlewareContext {
    /// The agent's id. Changes have no effect outside of the layers.
    pub agent_id: Arc<str>,
    /// The system prompt of the agent. Changes have no effect.
    pub system: Option<Arc<str>>,
    /// The input. No message of the state has its id.
    pub input: Message,
    /// The state that the run starts from, without the input.
    pub state: AgentState,
    /// Data that layers share.
    pub metadata: BTreeMap<String, RawBuf>,
    /// When the layer was called.
    pub now: Now,
    /// The source of ids for states and messages of the layer.
    pub ids: IdSource,
}

impl MiddlewareContext {
    /// A context such as a layer sees before a run; for tests of layers.
    #[must_use]
    pub fn new(now: Now, ids: IdSource, input: Message, state: AgentState) -> Self {
        Self {
            agent_id: Arc::default(),
            system: None,
            input,
            state,
            metadata: BTreeMap::new(),
            now,
            ids,
        }
    }
}

impl Clone for MiddlewareContext {
    fn clone(&self) -> Self {
        Self {
            agent_id: Arc::clone(&self.agent_id),
            system: self.system.clone(),
            input: self.input.clone(),
            state: self.state.clone(),
            metadata: self.metadata.clone(),
            now: self.now,
            // The engine makes it from a seed, anew for each layer.
            ids: self.ids.snapshot().unwrap_or_else(|| IdSource::seeded(0)),
        }
    }
}
