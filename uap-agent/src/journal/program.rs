//! What a run is made of: a program, and what the run begins with.

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::time::Now;
use upp::{LlmInstance, Message};

use super::entry::{Begin, Hex};
use super::{JournalError, print};
use crate::engine::{Engine, EngineConfig};
use crate::repair::RepairPolicy;
use crate::state::AgentState;
use crate::strategy::ExecutionStrategy;

/// What a program brings to a run: all that decides which questions it asks. An agent makes its own
/// ([`Agent::record`](crate::Agent::record)); it is here for who drives a [`Recorder`](super::Recorder) otherwise.
#[derive(Clone)]
#[non_exhaustive]
pub struct Program {
    /// The model's options.
    pub llm: LlmInstance,
    /// How the agent works.
    pub execution: Arc<dyn ExecutionStrategy>,
    /// Whether there are hooks to call.
    pub has_hooks: bool,
    /// Names of the middleware, outermost first.
    pub layers: Vec<String>,
    /// Whether somebody says how failed questions are asked again.
    pub retries: bool,
    /// What is done about calls and outputs that are wrong.
    pub repair: Option<Arc<dyn RepairPolicy>>,
    /// Whether plans are told in events of their own.
    pub plan_events: bool,
    /// Whether states are to be kept.
    pub saves: bool,
}

impl Program {
    /// A model's options and a strategy, without hooks, middleware or saves.
    #[must_use]
    pub fn new(llm: LlmInstance, execution: Arc<dyn ExecutionStrategy>) -> Self {
        Self {
            llm,
            execution,
            has_hooks: false,
            layers: Vec::new(),
            retries: false,
            repair: None,
            plan_events: false,
            saves: false,
        }
    }

    pub(super) fn begin(&self, now: Now, run: RunStart) -> Begin {
        let hex = |(name, digest): (&str, _)| (name.to_owned(), Hex(digest));
        Begin {
            at: now,
            agent_id: run.agent_id,
            session_id: run.session_id,
            strategy: self.execution.name().into(),
            has_hooks: self.has_hooks,
            layers: self.layers.clone(),
            retries: self.retries,
            repairs: self.repair.is_some(),
            plan_events: self.plan_events,
            saves: self.saves,
            seed: run.seed,
            program: print::program(&self.llm).into_iter().map(hex).collect(),
            input: run.input,
            state: run.state,
        }
    }

    pub(super) fn engine(&self, begin: &Begin) -> Engine {
        let ids = IdSource::seeded(begin.seed);
        let mut config = EngineConfig::new(self.llm.clone(), Arc::clone(&begin.agent_id), ids);
        config.has_hooks = self.has_hooks;
        config.layers = self.layers.len();
        config.retries = self.retries;
        config.repair.clone_from(&self.repair);
        config.plan_events = self.plan_events;
        config.saves = self.saves;
        config.session_id.clone_from(&begin.session_id);
        let (strategy, input) = (self.execution.begin(), begin.input.clone());
        Engine::new(begin.at, config, strategy, &begin.state, input)
    }

    /// Whether this is what the run was recorded with.
    pub(super) fn check(&self, begin: &Begin) -> Result<(), JournalError> {
        let refuse = |what: &str| Err(JournalError::Program { what: what.into() });
        if *self.execution.name() != *begin.strategy {
            return refuse("strategy");
        }
        let now = print::program(&self.llm);
        let differs = now
            .iter()
            .find(|(name, digest)| begin.program.get(*name).map(|hex| hex.0) != Some(*digest));
        if let Some((name, _)) = differs {
            return refuse(name);
        }
        let parts = [
            ("middleware", self.layers == begin.layers),
            ("hooks", self.has_hooks == begin.has_hooks),
            ("retries", self.retries == begin.retries),
            ("repair", self.repair.is_some() == begin.repairs),
            ("plan events", self.plan_events == begin.plan_events),
            ("checkpoints", self.saves == begin.saves),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((name, _)) => refuse(name),
            None => Ok(()),
        }
    }
}

impl core::fmt::Debug for Program {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Program")
            .field("llm", &self.llm)
            .field("execution", &self.execution.name())
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

/// What one run begins with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunStart {
    /// Whose run it is.
    pub agent_id: Arc<str>,
    /// Under which session states are kept.
    pub session_id: Option<Arc<str>>,
    /// Of all ids that the run makes: whoever knows it knows them.
    pub seed: u64,
    /// What is asked.
    pub input: Message,
    /// The state, without the input.
    pub state: AgentState,
}

impl RunStart {
    /// A run without a session.
    #[must_use]
    pub const fn new(agent_id: Arc<str>, seed: u64, input: Message, state: AgentState) -> Self {
        Self {
            agent_id,
            session_id: None,
            seed,
            input,
            state,
        }
    }
}
