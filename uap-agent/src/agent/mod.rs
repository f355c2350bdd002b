//! Agents: options, calls, and the stream that drives a run.

#[cfg(feature = "canon")]
mod record;
mod stream;
#[cfg(feature = "os")]
mod timer;
mod world;

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "os")]
use futures_core::future::BoxFuture;
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
#[cfg(feature = "os")]
use ubos_common::time::Mono;
use ubos_common::time::Now;
use upp::{
    LlmInstance, LlmMiddleware, LlmOptions, Message, ModelReference, RetryStrategy, Stamp, Turn,
    UppError, llm,
};

#[cfg(feature = "canon")]
pub use record::RecordedAgent;
pub use stream::{AbortHandle, AgentStreamResult};

use crate::checkpoint::{CheckpointError, CheckpointStore};
use crate::engine::{Engine, EngineConfig};
use crate::hooks::AgentStrategy;
use crate::middleware::Middleware;
use crate::repair::RepairPolicy;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;
use crate::strategy::{ExecutionStrategy, LoopOptions};
pub(crate) use world::Emitter;
use world::{Developer, World};

/// The time and the ids of an agent.
pub struct Runtime {
    clock: Arc<dyn Sleep + Send + Sync>,
    ids: IdSource,
}

impl Runtime {
    /// A clock and a source of ids: seeded ones make a run that can be repeated. Agents that share a budget or a retry
    /// strategy need one clock, or clocks with one zero.
    #[must_use]
    pub fn new(clock: Arc<dyn Sleep + Send + Sync>, ids: IdSource) -> Self {
        Self { clock, ids }
    }

    /// The operating system's: all agents that have it have one clock.
    ///
    /// # Errors
    ///
    /// The operating system gave no randomness.
    #[cfg(feature = "os")]
    pub fn system() -> Result<Self, ubos_common::os::OsError> {
        Ok(Self::new(Arc::new(SystemClock), IdSource::from_os()?))
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

/// One for all agents: what they share (budgets, retry strategies) compares the times of one with those of the other.
#[cfg(feature = "os")]
static CLOCK: std::sync::LazyLock<ubos_common::os::Clock> =
    std::sync::LazyLock::new(ubos_common::os::Clock::start);

#[cfg(feature = "os")]
struct SystemClock;

#[cfg(feature = "os")]
impl Sleep for SystemClock {
    fn now(&self) -> Now {
        CLOCK.now()
    }

    fn sleep_until(&self, deadline: Mono) -> BoxFuture<'static, ()> {
        timer::sleep(deadline.saturating_since(CLOCK.now().mono))
    }
}

/// Told of a save that failed.
pub type SaveFailed = Arc<dyn Fn(&CheckpointError) + Send + Sync>;

/// What an agent is made of. Only the model is required.
///
/// | option | default |
/// |---|---|
/// | `execution` | [`tool_loop`](crate::tool_loop) without a limit |
/// | `middleware` | none |
/// | `strategy` | no hooks |
/// | `checkpoints` | none |
/// | `session_id` | a UUIDv4 where there are checkpoints |
/// | `runtime` | the operating system's, with feature `os`; required without it |
///
/// Spec: UAP-1.1 4.2
#[non_exhaustive]
pub struct AgentOptions {
    /// The model, its tools, system prompt, parameters and structure. Its own middleware ([`AgentOptions::middleware`]
    /// is the agent's) lies nearer to the model than what the agent's puts there.
    pub llm: LlmOptions,
    /// How the agent goes about its work.
    pub execution: Arc<dyn ExecutionStrategy>,
    /// What stands around each run, outermost first.
    pub middleware: Vec<Arc<dyn Middleware>>,
    /// Hooks at the boundaries of steps.
    pub strategy: Option<Arc<dyn AgentStrategy>>,
    /// Where states are kept, after each step.
    pub checkpoints: Option<Arc<dyn CheckpointStore>>,
    /// Under which session.
    pub session_id: Option<Arc<str>>,
    /// The time and the ids.
    pub runtime: Option<Runtime>,
    /// Told when a save fails: the run goes on.
    pub on_save_failed: Option<SaveFailed>,
    /// What is done about calls and outputs that are wrong: nothing by default.
    pub repair: Option<Arc<dyn RepairPolicy>>,
    /// Whether plans are told in events of their own (`plan_created`, `plan_step_start`, `plan_step_end`), which the
    /// specification's list does not have.
    pub plan_events: bool,
}

impl AgentOptions {
    /// A model, and every default.
    #[must_use]
    pub fn new(model: ModelReference) -> Self {
        Self::with_llm(LlmOptions::new(model))
    }

    /// A model with its options, and every default.
    #[must_use]
    pub fn with_llm(llm: LlmOptions) -> Self {
        Self {
            llm,
            execution: Arc::new(crate::strategy::ToolLoop(LoopOptions::default())),
            middleware: Vec::new(),
            strategy: None,
            checkpoints: None,
            session_id: None,
            runtime: None,
            on_save_failed: None,
            repair: None,
            plan_events: false,
        }
    }

    /// Sets the tools.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn upp::Tool>>) -> Self {
        self.llm.tools.tools = tools.into_iter().collect();
        self
    }

    /// Sets what the model is told about itself.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.llm.system = Some(system.into());
        self
    }

    /// Sets how the agent goes about its work.
    #[must_use]
    pub fn with_execution(mut self, execution: Arc<dyn ExecutionStrategy>) -> Self {
        self.execution = execution;
        self
    }

    /// Sets what stands around each run, outermost first.
    #[must_use]
    pub fn with_middleware(
        mut self,
        middleware: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> Self {
        self.middleware = middleware.into_iter().collect();
        self
    }

    /// Sets what is done about calls and outputs that are wrong.
    #[must_use]
    pub fn with_repair(mut self, policy: Arc<dyn RepairPolicy>) -> Self {
        self.repair = Some(policy);
        self
    }

    /// Sets whether plans are told in events of their own.
    #[must_use]
    pub const fn with_plan_events(mut self, tells: bool) -> Self {
        self.plan_events = tells;
        self
    }

    /// Sets the hooks.
    #[must_use]
    pub fn with_strategy(mut self, hooks: Arc<dyn AgentStrategy>) -> Self {
        self.strategy = Some(hooks);
        self
    }

    /// Sets where states are kept.
    #[must_use]
    pub fn with_checkpoints(mut self, store: Arc<dyn CheckpointStore>) -> Self {
        self.checkpoints = Some(store);
        self
    }

    /// Sets the session.
    #[must_use]
    pub fn with_session_id(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session_id = Some(session.into());
        self
    }

    /// Sets the time and the ids.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Sets who is told when a save fails.
    #[must_use]
    pub fn with_on_save_failed(
        mut self,
        told: impl Fn(&CheckpointError) + Send + Sync + 'static,
    ) -> Self {
        self.on_save_failed = Some(Arc::new(told));
        self
    }
}

impl fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentOptions")
            .field("llm", &self.llm)
            .field("execution", &self.execution.name())
            .finish_non_exhaustive()
    }
}

/// What a user says to an agent: a text, or a message that is ready.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// Becomes a user's message of one text block.
    Text(String),
    /// Taken as it is. A run from a state that holds a message of its id fails with `INVALID_REQUEST`.
    Message(Message),
}

impl Input {
    fn message(self, ids: &mut IdSource, now: Now) -> Message {
        match self {
            Self::Text(text) => Message::user(Stamp::new(ids, now.wall), text),
            Self::Message(message) => message,
        }
    }
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Message> for Input {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

/// Makes an agent.
///
/// ```
/// use std::sync::Arc;
/// use uap_agent::{AgentOptions, agent};
/// use upp::{Reply, ScriptedModel};
///
/// let model = Arc::new(ScriptedModel::new([Reply::text("hello"), Reply::text("again")]));
/// let agent = agent(AgentOptions::new(model))?;
/// let state = agent.initial_state();
/// let first = futures::executor::block_on(agent.ask("hi", &state)).map_err(|e| e.error)?;
/// let second = futures::executor::block_on(agent.ask("hi", &first.state)).map_err(|e| e.error)?;
/// assert_eq!(second.turn.response.text(), "again");
/// assert_eq!(second.state.messages().len(), 4);
/// # Ok::<(), upp::UppError>(())
/// ```
///
/// # Errors
///
/// The model lacks what the options ask of it; no runtime is given and none is built in; the store of checkpoints has no
/// place for a session of that name.
///
/// Spec: UAP-1.1 4.1
pub fn agent(mut options: AgentOptions) -> Result<Agent, UppError> {
    let layers = options.middleware.iter().cloned().map(around_model);
    options.llm.middleware.splice(0..0, layers);
    let llm = llm(options.llm)?;
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
            UppError::new(upp::ErrorCode::InvalidRequest, "uap", error.to_string())
        };
        store.takes_session(session).map_err(refused)?;
    }
    Ok(Agent {
        id: ids.uuid().to_string().into(),
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
        repair: options.repair,
    })
}

/// What a layer puts in the place of the model, as the model's own middleware.
fn around_model(layer: Arc<dyn Middleware>) -> Arc<dyn LlmMiddleware> {
    struct Layer(Arc<dyn Middleware>);
    impl LlmMiddleware for Layer {
        fn wrap(&self, model: ModelReference) -> ModelReference {
            self.0.model(model)
        }
    }
    Arc::new(Layer(layer))
}

#[cfg(feature = "os")]
fn built_in() -> Result<Runtime, UppError> {
    Runtime::system().map_err(|error| UppError::wrap("uap", error))
}

#[cfg(not(feature = "os"))]
fn built_in() -> Result<Runtime, UppError> {
    let text = "no runtime is given, and none is built in without feature os";
    Err(UppError::new(upp::ErrorCode::InvalidRequest, "uap", text))
}

/// A model, its tools, and a way to work. It keeps no conversation: what a run sees is the options, the input and
/// the state that it is given.
///
/// Spec: UAP-1.1 4.3
pub struct Agent {
    id: Arc<str>,
    llm: LlmInstance,
    execution: Arc<dyn ExecutionStrategy>,
    middleware: Arc<[Arc<dyn Middleware>]>,
    retries: Option<Arc<dyn RetryStrategy>>,
    hooks: Option<Arc<dyn AgentStrategy>>,
    checkpoints: Option<Arc<dyn CheckpointStore>>,
    session_id: Option<Arc<str>>,
    clock: Arc<dyn Sleep + Send + Sync>,
    ids: Mutex<IdSource>,
    on_save_failed: Option<SaveFailed>,
    plan_events: bool,
    repair: Option<Arc<dyn RepairPolicy>>,
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

    /// The session under which states are kept, where they are.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// A state in which nothing has happened.
    #[must_use]
    pub fn initial_state(&self) -> AgentState {
        AgentState::initial(&mut self.ids())
    }

    /// Runs the agent from a state. The state itself stays as it is.
    ///
    /// # Errors
    ///
    /// What went wrong, with the last state that a run can go on from.
    pub async fn generate(
        &self,
        input: impl Into<Input>,
        state: &AgentState,
    ) -> Result<GenerateResult, Box<AgentError>> {
        self.stream(input, state).result().await
    }

    /// As [`Agent::generate`]: with the state that comes back, the conversation goes on.
    ///
    /// # Errors
    ///
    /// As [`Agent::generate`].
    pub async fn ask(
        &self,
        input: impl Into<Input>,
        state: &AgentState,
    ) -> Result<GenerateResult, Box<AgentError>> {
        self.generate(input, state).await
    }

    /// Runs the agent from nothing and gives its turn alone.
    ///
    /// # Errors
    ///
    /// As [`Agent::generate`].
    pub async fn query(&self, input: impl Into<Input>) -> Result<Turn, Box<AgentError>> {
        Ok(self.apart(input.into()).result().await?.turn)
    }

    /// A run from nothing. Its checkpoints must not take the place of the conversation's.
    pub(crate) fn apart(&self, input: Input) -> AgentStreamResult {
        let session = self.checkpoints.is_some().then(|| self.fresh_id());
        self.run(input, &self.initial_state(), session)
    }

    pub(crate) fn fresh_id(&self) -> Arc<str> {
        self.ids().uuid().to_string().into()
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Runs the agent from a state and tells what happens while it does. Nothing runs before the stream is polled or
    /// its result awaited.
    pub fn stream(&self, input: impl Into<Input>, state: &AgentState) -> AgentStreamResult {
        self.run(input.into(), state, self.session_id.clone())
    }

    fn run(
        &self,
        input: Input,
        state: &AgentState,
        session_id: Option<Arc<str>>,
    ) -> AgentStreamResult {
        let mut ids = self.fork_ids();
        let now = self.clock.now();
        let input = input.message(&mut ids, now);
        let mut config = EngineConfig::new(self.llm.clone(), Arc::clone(&self.id), ids);
        config.has_hooks = self.hooks.is_some();
        config.layers = self.middleware.len();
        config.retries = self.retries.is_some();
        config.plan_events = self.plan_events;
        config.repair.clone_from(&self.repair);
        config.saves = self.checkpoints.is_some();
        config.session_id = session_id;
        let engine = Engine::new(now, config, self.execution.begin(), state, input);
        let world = self.world(Arc::clone(&self.id));
        AgentStreamResult::new(engine, world, Arc::clone(&self.clock))
    }

    /// The developer's side of a run.
    fn world(&self, agent_id: Arc<str>) -> World {
        let options = self.llm.options();
        World::new(Developer {
            agent_id,
            model: Arc::clone(&options.model),
            tools: options.tools.clone(),
            middleware: Arc::clone(&self.middleware),
            retries: self.retries.clone(),
            hooks: self.hooks.clone(),
            store: self.checkpoints.clone(),
            clock: Arc::clone(&self.clock),
            on_save_failed: self.on_save_failed.clone(),
        })
    }

    fn ids(&self) -> std::sync::MutexGuard<'_, IdSource> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A source for one run: of the same kind as the agent's own, so that seeded runs can be repeated.
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
