//! What stands around a run: middleware.
//!
//! A run passes the list inwards ([`Middleware::before`], in order), runs, and passes it outwards ([`Middleware::after`],
//! in reverse). What fails on the way is offered to [`Middleware::on_error`], in reverse, of those that had been entered.

mod budget;
mod logging;
mod retry;

use core::future::ready;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::Now;
use upp::{Message, ModelReference, RetryStrategy};

pub use budget::{Budget, Price};
pub use logging::{LogLevel, Logger, LoggingOptions, logging};
pub use retry::retry;

use crate::hooks::HookFuture;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;

/// One layer around a run. The default of every method leaves things as they are.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::hooks::HookFuture;
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
///     state = futures::executor::block_on(agent.ask("next", &state)).map_err(|e| e.error)?.state;
/// }
/// assert_eq!(state.messages().len(), 12); // ten of the past, the input, the answer
/// # Ok::<(), upp::UppError>(())
/// ```
///
/// Spec: UAP-1.1 9.1
// impl: UAP-9-1
pub trait Middleware: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// The run is about to begin: what is changed in the context, the next layer and the strategy see changed.
    fn before<'a>(&'a self, _context: &'a mut MiddlewareContext) -> HookFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }

    /// The run has come to a result: what is given back is what the layer outside of this one sees.
    fn after<'a>(
        &'a self,
        _context: &'a mut MiddlewareContext,
        result: GenerateResult,
    ) -> HookFuture<'a, GenerateResult> {
        Box::pin(ready(Ok(result)))
    }

    /// The run, or a layer, has failed. A result given back ends the matter: no other layer is asked, no
    /// [`Middleware::after`] runs. What this fails with itself is dropped.
    fn on_error<'a>(
        &'a self,
        _context: &'a mut MiddlewareContext,
        _error: &'a AgentError,
    ) -> HookFuture<'a, Option<GenerateResult>> {
        Box::pin(ready(Ok(None)))
    }

    /// What the agent asks in place of its model: asked once, when the agent is made. The first of a list is outermost.
    fn model(&self, model: ModelReference) -> ModelReference {
        model
    }

    /// How failed questions are asked again; of several layers the innermost that says counts. A question is asked again
    /// only while nothing has been heard of its answer.
    fn retries(&self) -> Option<Arc<dyn RetryStrategy>> {
        None
    }

    /// Whether the model may be asked again. Where it may not, the run ends there, well; before its first answer it
    /// fails with `QUOTA_EXCEEDED`. Asked before each question and after each step.
    fn goes_on(&self, _now: Now) -> bool {
        true
    }
}

/// What middleware sees of a request, and may change. Its metadata live as long as the request.
///
/// Spec: UAP-1.1 9.1
#[derive(Debug)]
#[non_exhaustive]
pub struct MiddlewareContext {
    /// Whose run it is; told to layers, and nothing else looks at it.
    pub agent_id: Arc<str>,
    /// What the model is told about itself: the agent's, whatever a layer puts here.
    pub system: Option<Arc<str>>,
    /// What the user says; its id is that of no message of the state.
    pub input: Message,
    /// The state that the run begins with, without the input.
    pub state: AgentState,
    /// What the layers of this request tell each other.
    pub metadata: BTreeMap<String, RawBuf>,
    /// When the layer was asked.
    pub now: Now,
    /// Makes the ids of states and messages that a layer makes.
    pub ids: IdSource,
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
