//! Agents: options, calls, and the stream that drives a run.

mod events;
#[cfg(feature = "canon")]
mod key;
mod limits;
mod options;
mod parts;
#[cfg(feature = "canon")]
mod record;
mod rules;
mod runtime;
mod scope;
mod session;
#[cfg(feature = "tracing")]
mod spans;
mod stream;
mod sync;
#[cfg(feature = "os")]
mod timer;
mod world;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubos_common::driver::Sleep;
use ubos_common::id::{IdSource, Uuid};
use ubos_common::time::Now;
use upp::{
    ErrorCode, LlmInstance, LlmMiddleware, ModelReference, RetryStrategy, Turn, UppError, llm,
};

use crate::approval::ApprovalPolicy;
use crate::checkpoint::{CheckpointError, CheckpointStore};
use crate::engine::{Engine, EngineConfig, RunStart};
use crate::hooks::AgentStrategy;
use crate::middleware::Middleware;
use crate::repair::RepairPolicy;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;
use crate::strategy::ExecutionStrategy;
use crate::tools;

use limits::TimeLimits;
use options::OnSaveFailed;
pub use options::{AgentInput, AgentOptions};
use parts::AgentParts;
use rules::CallRules;
pub use runtime::Runtime;
pub use scope::RunScope;
pub use session::AgentSession;
pub use stream::AgentStreamResult;
use world::RunWorld;

/// Creates an agent.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel};
///
/// let model = Arc::new(ScriptedModel::new([Reply::text("hello"), Reply::text("again")]));
/// let agent = agent(AgentOptions::new(model))?;
/// let state = agent.initial_state();
/// let first = futures::executor::block_on(agent.ask("hi", &state))?;
/// let second = futures::executor::block_on(agent.ask("hi", &first.state))?;
/// assert_eq!(second.turn.response.text(), "again");
/// assert_eq!(second.state.messages().len(), 4);
/// # Ok::<(), upp::UppError>(())
/// ```
///
/// # Errors
///
/// The model does not support an option; two tools have one name, or a tool has a name that a vendor refuses (all take 1 to
/// 64 of A-Z, a-z, 0-9, `_` and `-`, of which the first is a letter or `_`) or parameters that are no JSON Schema of an
/// object; no runtime is set, and there is none without the feature `os`; the checkpoint store refuses the name of the
/// session; the term of a lease is under a millisecond.
///
/// Spec: UAP-1.1 4.1
// impl: UAP-4-1
pub fn agent(options: AgentOptions) -> Result<Agent, UppError> {
    #[cfg(feature = "canon")]
    if let Err(error) = options.ownership.check() {
        let code = ErrorCode::InvalidRequest;
        return Err(UppError::new(code, "uap", error.to_string()));
    }
    let layers = options.middleware.iter().cloned().map(model_layer);
    let llm = llm(options.llm.with_middleware(layers))?;
    tools::check(llm.options().tools())?;
    let runtime = match options.runtime {
        Some(runtime) => runtime,
        None => built_in()?,
    };
    let mut ids = runtime.ids;
    let session_id = match (options.session_id, &options.checkpoints) {
        (None, Some(_)) => Some(ids.uuid().to_string().into()),
        (given, _) => given,
    };
    if let (Some(store), Some(session)) = (&options.checkpoints, &session_id) {
        let refused = |error: CheckpointError| {
            UppError::new(ErrorCode::InvalidRequest, "uap", error.to_string())
        };
        store.takes_session(session).map_err(refused)?;
    }
    Ok(Agent {
        id: ids.uuid().to_string().into(),
        name: options.name,
        llm,
        execution: options.execution,
        retries: options
            .middleware
            .iter()
            .rev()
            .find_map(|layer| layer.retries()),
        middleware: options.middleware.into(),
        hooks: options.strategy,
        checkpoints: options.checkpoints,
        session_id,
        clock: runtime.clock,
        ids: Mutex::new(ids),
        on_save_failed: options.on_save_failed,
        plan_events: options.plan_events,
        limits: options.limits,
        streams: options.streams,
        repair: options.repair,
        rules: CallRules::new(
            options.approvals.clone(),
            #[cfg(feature = "canon")]
            options.ownership.clone(),
        ),
        approvals: options.approvals,
        #[cfg(feature = "canon")]
        ownership: options.ownership,
    })
}

/// A layer's replacement for the model, as middleware of the model.
fn model_layer(layer: Arc<dyn Middleware>) -> Arc<dyn LlmMiddleware> {
    struct ModelLayer(Arc<dyn Middleware>);
    impl LlmMiddleware for ModelLayer {
        fn wrap(&self, model: ModelReference) -> ModelReference {
            self.0.model(model)
        }
    }
    Arc::new(ModelLayer(layer))
}

#[cfg(feature = "os")]
fn built_in() -> Result<Runtime, UppError> {
    Runtime::system().map_err(|error| {
        UppError::new(ErrorCode::ProviderError, "uap", error.to_string()).with_cause(error)
    })
}

#[cfg(not(feature = "os"))]
fn built_in() -> Result<Runtime, UppError> {
    let text = "no runtime is set: set one, or enable the feature os";
    Err(UppError::new(ErrorCode::InvalidRequest, "uap", text))
}

/// A model, its tools and an execution strategy. An agent holds no conversation: a run sees the options, its input and
/// the state that it starts from.
///
/// Spec: UAP-1.1 4.3
pub struct Agent {
    id: Arc<str>,
    #[cfg_attr(
        not(feature = "tracing"),
        expect(dead_code, reason = "only spans have it")
    )]
    name: Option<Arc<str>>,
    llm: LlmInstance,
    execution: Arc<dyn ExecutionStrategy>,
    middleware: Arc<[Arc<dyn Middleware>]>,
    retries: Option<Arc<dyn RetryStrategy>>,
    hooks: Option<Arc<dyn AgentStrategy>>,
    checkpoints: Option<Arc<dyn CheckpointStore>>,
    session_id: Option<Arc<str>>,
    clock: Arc<dyn Sleep + Send + Sync>,
    ids: Mutex<IdSource>,
    on_save_failed: Option<OnSaveFailed>,
    plan_events: bool,
    limits: TimeLimits,
    streams: bool,
    repair: Option<Arc<dyn RepairPolicy>>,
    approvals: Option<Arc<dyn ApprovalPolicy>>,
    rules: CallRules,
    #[cfg(feature = "canon")]
    ownership: crate::journal::Ownership,
}

impl Agent {
    /// The agent's id, a UUIDv4.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The model and its options.
    #[must_use]
    pub const fn llm(&self) -> &LlmInstance {
        &self.llm
    }

    /// The session under which states are saved, where there are checkpoints.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// An empty state.
    #[must_use]
    pub fn initial_state(&self) -> AgentState {
        AgentState::initial(&mut self.ids())
    }

    /// Runs the agent from a state. The state itself is not changed.
    ///
    /// # Errors
    ///
    /// The error of the run, with the last state from which a run can continue.
    pub async fn generate(
        &self,
        input: impl Into<AgentInput>,
        state: &AgentState,
    ) -> Result<GenerateResult, Box<AgentError>> {
        self.stream(input, state).result().await
    }

    /// As [`Agent::generate`]. The returned state continues the conversation.
    ///
    /// # Errors
    ///
    /// As [`Agent::generate`].
    // impl: UAP-4-4
    pub async fn ask(
        &self,
        input: impl Into<AgentInput>,
        state: &AgentState,
    ) -> Result<GenerateResult, Box<AgentError>> {
        self.generate(input, state).await
    }

    /// Runs the agent from an empty state and returns the turn only.
    ///
    /// # Errors
    ///
    /// As [`Agent::generate`].
    // impl: UAP-4-5
    pub async fn query(&self, input: impl Into<AgentInput>) -> Result<Turn, Box<AgentError>> {
        Ok(self.run_separately(input.into(), None).result().await?.turn)
    }

    /// A run from an empty state, in a session of its own: its checkpoints must not replace those of the conversation, nor those
    /// of the run before where the call within which it is made is repeated.
    pub(crate) fn run_separately(
        &self,
        input: AgentInput,
        outer: Option<&RunScope>,
    ) -> AgentStreamResult {
        let session = self.checkpoints.is_some().then(|| self.fresh_id());
        #[cfg(feature = "canon")]
        if let Some(outer) = outer {
            let mut ids = outer.fork_ids();
            let state = AgentState::initial(&mut ids);
            return self.start(ids, input, &state, session, None, Some(outer));
        }
        let state = self.initial_state();
        self.start(self.fork_ids(), input, &state, session, None, outer)
    }

    pub(crate) fn fresh_id(&self) -> Arc<str> {
        self.fresh_uuid().to_string().into()
    }

    pub(crate) fn fresh_uuid(&self) -> Uuid {
        self.ids().uuid()
    }

    /// Tells the middleware that this agent is a sub-agent of a type.
    pub(crate) fn serves(&self, subagent_type: &str) {
        self.tell_layers(|layer| layer.serves(subagent_type));
    }

    /// Tells the middleware something. A panic of a layer changes nothing.
    fn tell_layers(&self, tell: impl Fn(&dyn Middleware)) {
        for layer in self.middleware.iter() {
            let _ = catch_unwind(AssertUnwindSafe(|| tell(layer.as_ref())));
        }
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Runs the agent from a state and returns its events as they occur. Nothing runs before the stream is polled or its
    /// result is awaited.
    pub fn stream(&self, input: impl Into<AgentInput>, state: &AgentState) -> AgentStreamResult {
        self.run(input.into(), state, self.session_id.clone())
    }

    fn run(
        &self,
        input: AgentInput,
        state: &AgentState,
        session_id: Option<Arc<str>>,
    ) -> AgentStreamResult {
        self.run_in(input, state, session_id, None)
    }

    /// A run whose states are saved in another store than the agent's, where there is one.
    // impl: UAP-11-2
    fn run_in(
        &self,
        input: AgentInput,
        state: &AgentState,
        session_id: Option<Arc<str>>,
        store: Option<Arc<dyn CheckpointStore>>,
    ) -> AgentStreamResult {
        // impl: UAP-4-6
        self.start(self.fork_ids(), input, state, session_id, store, None)
    }

    /// A run with its ids, within the call of another run where there is one.
    fn start(
        &self,
        mut ids: IdSource,
        input: AgentInput,
        state: &AgentState,
        session_id: Option<Arc<str>>,
        store: Option<Arc<dyn CheckpointStore>>,
        outer: Option<&RunScope>,
    ) -> AgentStreamResult {
        let now = self.clock.now();
        let (input, state) = input.start(now, &mut ids, state);
        let mut start = RunStart::new(Arc::clone(&self.id), state, input);
        let mut parts = self.parts(Arc::clone(&self.id), false);
        if let Some(outer) = outer {
            parts.rules = parts.rules.within(&outer.rules);
            parts.outer = Some(outer.clone());
        }
        #[cfg(feature = "tracing")]
        parts.session_id.clone_from(&session_id);
        start.session_id = session_id;
        parts.store = store.or(parts.store);
        let config = self.engine_config().with_saves(parts.store.is_some());
        let engine = Engine::new(now, config, ids, start);
        let world = RunWorld::new(parts);
        AgentStreamResult::new(engine, world, Arc::clone(&self.clock))
    }

    fn engine_config(&self) -> EngineConfig {
        let names = self.middleware.iter().map(|layer| layer.name());
        let mut config = EngineConfig::new(self.llm.clone(), Arc::clone(&self.execution))
            .with_hooks(self.hooks.is_some())
            .with_layers(names)
            .with_retries(self.retries.is_some())
            .with_plan_events(self.plan_events)
            .with_saves(self.checkpoints.is_some());
        config.repair.clone_from(&self.repair);
        config.approvals.clone_from(&self.approvals);
        config.are_tools_checked = true;
        config
    }

    /// What performs the effects of a run.
    fn parts(&self, agent_id: Arc<str>, is_recorded: bool) -> AgentParts {
        let options = self.llm.options();
        AgentParts {
            agent_id,
            #[cfg(feature = "tracing")]
            name: self.name.clone(),
            #[cfg(feature = "tracing")]
            session_id: self.session_id.clone(),
            model: Arc::clone(options.model()),
            tools: options.tools().clone(),
            middleware: Arc::clone(&self.middleware),
            retries: self.retries.clone(),
            hooks: self.hooks.clone(),
            store: self.checkpoints.clone(),
            clock: Arc::clone(&self.clock),
            on_save_failed: self.on_save_failed.clone(),
            limits: self.limits,
            rules: self.rules.clone(),
            is_recorded,
            outer: None,
            streams: self.streams,
        }
    }

    fn ids(&self) -> MutexGuard<'_, IdSource> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A source of ids for one run. It is seeded where the agent's is, so that the run can be repeated.
    fn fork_ids(&self) -> IdSource {
        let mut ids = self.ids();
        #[cfg(feature = "os")]
        if ids.snapshot().is_none()
            && let Ok(fresh) = IdSource::from_os()
        {
            return fresh;
        }
        IdSource::seeded(ids.bits())
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.id)
            .field("execution", &self.execution.name())
            .field("llm", &self.llm)
            .finish_non_exhaustive()
    }
}
