//! What an engine is made with.

use core::fmt;
use std::sync::Arc;

use upp::{LlmInstance, Message};

use crate::approval::ApprovalPolicy;
use crate::repair::RepairPolicy;
use crate::state::AgentState;
use crate::strategy::ExecutionStrategy;

/// The configuration of an [`Engine`](super::Engine): what does not change between the runs of an agent. A
/// recorded run is resumed and replayed with the configuration that it was recorded with.
///
/// | setting | default |
/// |---|---|
/// | hooks | off |
/// | layers of middleware | none |
/// | retries | off |
/// | repair policy | none |
/// | plan events | off |
/// | saves | off |
/// | policy for approvals | none |
#[derive(Clone)]
pub struct EngineConfig {
    pub(crate) llm: LlmInstance,
    pub(crate) execution: Arc<dyn ExecutionStrategy>,
    pub(crate) hooks: bool,
    pub(crate) layers: Vec<String>,
    pub(crate) retries: bool,
    pub(crate) repair: Option<Arc<dyn RepairPolicy>>,
    pub(crate) plan_events: bool,
    pub(crate) saves: bool,
    pub(crate) approvals: Option<Arc<dyn ApprovalPolicy>>,
    /// Those of an agent are, when it is made.
    pub(crate) are_tools_checked: bool,
}

impl EngineConfig {
    /// A model with its options, a strategy, and the default for every other setting. Of tools that `agent`
    /// refuses each run fails, with the same error.
    #[must_use]
    pub const fn new(llm: LlmInstance, execution: Arc<dyn ExecutionStrategy>) -> Self {
        Self {
            llm,
            execution,
            hooks: false,
            layers: Vec::new(),
            retries: false,
            repair: None,
            plan_events: false,
            saves: false,
            approvals: None,
            are_tools_checked: false,
        }
    }

    /// Sets whether hooks are called.
    #[must_use]
    pub const fn with_hooks(mut self, enabled: bool) -> Self {
        self.hooks = enabled;
        self
    }

    /// Sets the names of the middleware around a run, outermost first. The engine requests a call for each.
    #[must_use]
    pub fn with_layers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.layers = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether the engine asks, before each inference and after each failure, if and when to send the request.
    #[must_use]
    pub const fn with_retries(mut self, enabled: bool) -> Self {
        self.retries = enabled;
        self
    }

    /// Sets whether plans have events of their own, beside those of the steps.
    #[must_use]
    pub const fn with_plan_events(mut self, enabled: bool) -> Self {
        self.plan_events = enabled;
        self
    }

    /// Sets which calls need the approval of a person. A recorder asks; an engine alone requests such calls as others.
    #[must_use]
    pub fn with_approvals(mut self, policy: Arc<dyn ApprovalPolicy>) -> Self {
        self.approvals = Some(policy);
        self
    }

    /// Sets whether the engine requests a save after each step.
    #[must_use]
    pub const fn with_saves(mut self, enabled: bool) -> Self {
        self.saves = enabled;
        self
    }
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig")
            .field("llm", &self.llm)
            .field("execution", &self.execution.name())
            .field("hooks", &self.hooks)
            .field("layers", &self.layers)
            .field("retries", &self.retries)
            .field("saves", &self.saves)
            .finish_non_exhaustive()
    }
}

/// What one run starts with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunStart {
    /// The agent's id.
    pub agent_id: Arc<str>,
    /// The session under which states are saved.
    pub session_id: Option<Arc<str>>,
    /// The state, without the input.
    pub state: AgentState,
    /// The input.
    pub input: Message,
}

impl RunStart {
    /// A run without a session.
    #[must_use]
    pub fn new(agent_id: impl Into<Arc<str>>, state: AgentState, input: Message) -> Self {
        Self {
            agent_id: agent_id.into(),
            session_id: None,
            state,
            input,
        }
    }
}
