//! The options of an agent, and the input of a run.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::time::Now;
use ubos_common::trace_context::TraceContext;
use upp::{LlmOptions, Message, ModelReference, Stamp, Tool};

use super::Runtime;
use super::limits::TimeLimits;
use crate::approval::ApprovalPolicy;
use crate::checkpoint::{CheckpointError, CheckpointStore};
use crate::hooks::AgentStrategy;
use crate::middleware::Middleware;
use crate::repair::RepairPolicy;
use crate::state::AgentState;
use crate::strategy::{ExecutionStrategy, LoopOptions, ToolLoop};

/// A callback for checkpoints that could not be saved.
pub(super) type OnSaveFailed = Arc<dyn Fn(&CheckpointError) + Send + Sync>;

/// The options of an agent. Only the model is required.
///
/// | option | default |
/// |---|---|
/// | `execution` | [`tool_loop`](crate::tool_loop) without a limit |
/// | `middleware` | none |
/// | `strategy` | no hooks |
/// | `checkpoints` | none |
/// | `session_id` | a new UUIDv4, where there are checkpoints |
/// | `name` | none |
/// | `runtime` | the operating system's, with feature `os`; required without it |
/// | `repair` | none: wrong calls and outputs are left as they are |
/// | `plan_events` | off |
/// | `approvals` | none: every call runs |
/// | `ownership` (feature `canon`) | [`Ownership::default`](crate::journal::Ownership) |
/// | `streaming` | on |
/// | `max_time`, `max_model_time`, `max_tool_time` | none |
///
/// Spec: UAP-1.1 4.2
pub struct AgentOptions {
    pub(super) llm: LlmOptions,
    pub(super) execution: Arc<dyn ExecutionStrategy>,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) strategy: Option<Arc<dyn AgentStrategy>>,
    pub(super) checkpoints: Option<Arc<dyn CheckpointStore>>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) name: Option<Arc<str>>,
    pub(super) runtime: Option<Runtime>,
    pub(super) on_save_failed: Option<OnSaveFailed>,
    pub(super) repair: Option<Arc<dyn RepairPolicy>>,
    pub(super) plan_events: bool,
    pub(super) limits: TimeLimits,
    pub(super) streams: bool,
    pub(super) approvals: Option<Arc<dyn ApprovalPolicy>>,
    #[cfg(feature = "canon")]
    pub(super) ownership: crate::journal::Ownership,
}

impl AgentOptions {
    /// A model, and the default for every other option.
    #[must_use]
    pub fn new(model: ModelReference) -> Self {
        Self {
            llm: LlmOptions::new(model),
            execution: Arc::new(ToolLoop(LoopOptions::default())),
            middleware: Vec::new(),
            strategy: None,
            checkpoints: None,
            session_id: None,
            name: None,
            runtime: None,
            on_save_failed: None,
            repair: None,
            plan_events: false,
            limits: TimeLimits::default(),
            streams: true,
            approvals: None,
            #[cfg(feature = "canon")]
            ownership: crate::journal::Ownership::default(),
        }
    }

    /// Changes the options of the model, such as its structure, its own middleware or the hooks of its tools.
    ///
    /// The model's middleware is nearer to the model than what the agent's middleware adds.
    #[must_use]
    pub fn map_llm(mut self, change: impl FnOnce(LlmOptions) -> LlmOptions) -> Self {
        self.llm = change(self.llm);
        self
    }

    /// Sets the tools.
    #[must_use]
    pub fn with_tools(self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.map_llm(|llm| llm.with_tools(tools))
    }

    /// Adds a tool.
    #[must_use]
    pub fn with_tool(self, tool: impl Tool + 'static) -> Self {
        self.map_llm(|llm| llm.with_tool(tool))
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn with_system(self, system: impl Into<Arc<str>>) -> Self {
        self.map_llm(|llm| llm.with_system(system))
    }

    /// Sets the vendor's parameters. They are sent unaltered.
    #[must_use]
    pub fn with_params(self, params: impl Into<Arc<RawObject>>) -> Self {
        self.map_llm(|llm| llm.with_params(params))
    }

    /// Sets the execution strategy.
    #[must_use]
    pub fn with_execution(mut self, execution: Arc<dyn ExecutionStrategy>) -> Self {
        self.execution = execution;
        self
    }

    /// Sets the middleware around each run, outermost first.
    #[must_use]
    pub fn with_middleware(
        mut self,
        middleware: impl IntoIterator<Item = Arc<dyn Middleware>>,
    ) -> Self {
        self.middleware = middleware.into_iter().collect();
        self
    }

    /// Sets the policy for wrong tool calls and outputs.
    #[must_use]
    pub fn with_repair(mut self, policy: Arc<dyn RepairPolicy>) -> Self {
        self.repair = Some(policy);
        self
    }

    /// Sets whether plans have events of their own (`plan_created`, `plan_step_start`, `plan_step_end`), which are not
    /// in the specification's list.
    #[must_use]
    pub const fn with_plan_events(mut self, enabled: bool) -> Self {
        self.plan_events = enabled;
        self
    }

    /// Sets the hooks at the boundaries of steps.
    #[must_use]
    pub fn with_strategy(mut self, hooks: Arc<dyn AgentStrategy>) -> Self {
        self.strategy = Some(hooks);
        self
    }

    /// Sets the store in which the state is saved after each step.
    #[must_use]
    pub fn with_checkpoints(mut self, store: Arc<dyn CheckpointStore>) -> Self {
        self.checkpoints = Some(store);
        self
    }

    /// Sets the session under which states are saved.
    #[must_use]
    pub fn with_session_id(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session_id = Some(session.into());
        self
    }

    /// Sets the name of the agent in the spans of its runs (feature `tracing`): what it is for, the same for all its runs.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the clock and the source of ids.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Sets whether the model is asked for a stream. Off, it is asked for a whole response, whose events follow at once: for
    /// a model or a server that cannot stream.
    #[must_use]
    pub const fn with_streaming(mut self, streams: bool) -> Self {
        self.streams = streams;
        self
    }

    /// Sets how long a run may take. Then it is aborted, and its result is `TIMEOUT`.
    #[must_use]
    pub const fn with_max_time(mut self, time: Duration) -> Self {
        self.limits.run = Some(time);
        self
    }

    /// Sets how long a request to the model may take, until its response is read. Then it fails with `TIMEOUT`.
    #[must_use]
    pub const fn with_max_model_time(mut self, time: Duration) -> Self {
        self.limits.model = Some(time);
        self
    }

    /// Sets how long a tool may take. Then it is dropped, its token is cancelled, and the model gets an error result.
    #[must_use]
    pub const fn with_max_tool_time(mut self, time: Duration) -> Self {
        self.limits.tool = Some(time);
        self
    }

    /// Sets which tool calls need the approval of a person. Such a call pauses a recorded run, and is refused in others, and so
    /// in agents that are called as tools.
    #[must_use]
    pub fn with_approvals(mut self, policy: Arc<dyn ApprovalPolicy>) -> Self {
        self.approvals = Some(policy);
        self
    }

    /// Sets under which name and lease runs are recorded and resumed, and what is done with tool calls of which nobody
    /// knows whether they have run.
    #[cfg(feature = "canon")]
    #[must_use]
    pub fn with_ownership(mut self, ownership: crate::journal::Ownership) -> Self {
        self.ownership = ownership;
        self
    }

    /// Sets a callback for saves that fail. The run continues.
    #[must_use]
    pub fn with_on_save_failed(
        mut self,
        callback: impl Fn(&CheckpointError) + Send + Sync + 'static,
    ) -> Self {
        self.on_save_failed = Some(Arc::new(callback));
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

/// The input of a run: a text or a message, and the run's place in a trace where it has one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AgentInput {
    /// Becomes a user message with one text block.
    Text(String),
    /// Is used unchanged. A run from a state that holds a message with its id fails with `INVALID_REQUEST`.
    Message(Message),
    /// Is given to a run with a place in a distributed trace ([`AgentInput::with_trace`]).
    Traced(Box<Self>, TraceContext),
}

impl AgentInput {
    /// Sets the place of the run in a distributed trace, in place of the one that the run's state or session names. It stands
    /// in the metadata of the states of the run ([`AgentState::with_trace_context`]), and so in checkpoints and in the journal:
    /// a run that is resumed keeps it. Requests to the model, tools ([`ToolContext::trace`](upp::ToolContext::trace)) and
    /// sub-agents have it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use uap_agent::{AgentInput, AgentOptions, agent};
    /// use ubos_common::trace_context::TraceContext;
    /// use upp::{Reply, ScriptedModel};
    ///
    /// let place = TraceContext::new([1; 16], [2; 8]).ok_or("no place in a trace")?;
    /// let wanted = place.clone();
    /// let model = ScriptedModel::with(move |request| {
    ///     assert_eq!(request.trace, Some(wanted.clone()));
    ///     Some(Reply::text("hello"))
    /// });
    /// let agent = agent(AgentOptions::new(Arc::new(model)))?;
    /// let input = AgentInput::from("hi").with_trace(place);
    /// let result = futures::executor::block_on(agent.generate(input, &agent.initial_state()))?;
    /// assert!(result.state.trace_context().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Spec: UAP-1.1 6.1
    #[must_use]
    pub fn with_trace(self, trace: TraceContext) -> Self {
        match self {
            Self::Traced(input, _) => Self::Traced(input, trace),
            input => Self::Traced(Box::new(input), trace),
        }
    }

    /// With a place in a trace, unless it has one.
    pub(crate) fn or_trace(self, trace: Option<&TraceContext>) -> Self {
        match (self, trace) {
            (Self::Traced(input, own), _) => Self::Traced(input, own),
            (input, Some(trace)) => input.with_trace(trace.clone()),
            (input, None) => input,
        }
    }

    /// The message, and the state that the run starts from: with the place of this input where it has one.
    pub(super) fn start(
        self,
        now: Now,
        ids: &mut IdSource,
        state: &AgentState,
    ) -> (Message, AgentState) {
        match self {
            Self::Text(text) => (
                Message::user(Stamp::new(ids, now.wall), text),
                state.clone(),
            ),
            Self::Message(message) => (message, state.clone()),
            Self::Traced(input, trace) => {
                let (message, state) = input.start(now, ids, state);
                (message, state.with_trace_context(ids, Some(&trace)))
            }
        }
    }
}

impl From<&str> for AgentInput {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AgentInput {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Message> for AgentInput {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}
