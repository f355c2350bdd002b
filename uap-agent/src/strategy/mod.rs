//! How an agent goes about its work: a strategy decides, the engine does.
//!
//! A strategy does nothing itself. For each run it gives a [`StrategyRun`], which is told what happened and says what
//! is next: begin a step, ask the model, keep some reasoning or a plan, end the step, finish. The engine does the
//! rest, so that every strategy, also one from outside this crate, has streaming, hooks, checkpoints, tools and abort
//! without work of its own.

mod plan;
mod react;
mod tool_loop;

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use upp::{LlmCapabilities, LlmInstance, LlmResponse, Message, UppError};

pub use plan::{PlanOptions, plan};
pub use react::{ReactOptions, react};
#[cfg(feature = "driver")]
pub(crate) use tool_loop::ToolLoop;
pub use tool_loop::{LoopOptions, tool_loop};

use crate::event::EventData;
use crate::state::{AgentState, PlanStep};

/// How agents go about their work.
///
/// Spec: UAP-1.1 5.1
pub trait ExecutionStrategy: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// A run from its beginning.
    fn begin(&self) -> Box<dyn StrategyRun>;
}

/// One run of a strategy. It is deterministic: the same outcomes give the same moves.
pub trait StrategyRun: Send + Sync {
    /// What is next, after what happened.
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Move;
}

/// What a strategy sees of the run.
///
/// Spec: UAP-1.1 5.1
#[derive(Debug)]
#[non_exhaustive]
pub struct ExecutionContext<'a> {
    /// Whose run it is.
    pub agent_id: &'a str,
    /// What the user says. It joins the state when the first step begins, unless the strategy has put it there with
    /// [`Move::Append`].
    pub input: &'a Message,
    /// The state as it stands; when the run begins, as it was given.
    pub state: &'a AgentState,
    /// The step, from 1; 0 before the first.
    pub step: u64,
    /// The session under which states are kept, where they are.
    pub session_id: Option<&'a str>,
    /// The model's options: its tools, what it is told about itself, and what it can do.
    pub llm: &'a LlmInstance,
    /// Makes ids.
    pub ids: &'a mut IdSource,
}

impl ExecutionContext<'_> {
    /// What the model can do.
    #[must_use]
    pub fn capabilities(&self) -> LlmCapabilities {
        self.llm.options().model.capabilities()
    }
}

/// What happened since the last move.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The run begins: the state is the one that was given, without the input.
    Began,
    /// The step has begun.
    StepStarted,
    /// The model has answered.
    #[non_exhaustive]
    Inferred {
        /// What it said.
        response: Box<LlmResponse>,
        /// Whether it called tools, and they have run.
        ran_tools: bool,
    },
    /// The model gave no answer. A strategy that cannot do without gives [`Move::Fail`].
    Failed(UppError),
    /// Messages, reasoning or plan are in the state.
    Kept,
    /// The step is over, hooks have been told, the state is saved, and nothing says stop.
    StepEnded,
}

/// What is next.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Move {
    /// Begin the next step; the data goes into its event.
    StartStep(EventData),
    /// Ask the model; where it calls tools that it was offered, they run.
    Infer(Inference),
    /// Put messages into the state; all but the run's input are part of its turn.
    Append(Vec<Message>),
    /// Keep a piece of reasoning in the state.
    Reason(Arc<str>),
    /// Keep a plan in the state.
    Plan(Vec<PlanStep>),
    /// End the step; the data goes into its event.
    EndStep(EventData),
    /// The run has come to its end.
    Finish,
    /// The run has come to nothing.
    Fail(UppError),
}

/// One question to the model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inference {
    /// What it is for; stands in the metadata of the messages that the strategy brings in.
    pub phase: &'static str,
    /// What the strategy says to the model, behind the conversation; absent where that is enough.
    pub prompt: Option<Arc<str>>,
    /// Whether this is the developer's own call: tools are offered, and the answer may be the run's.
    pub is_action: bool,
    /// The schema of the answer, in place of the developer's, which actions alone have.
    pub structure: Option<Arc<RawObject>>,
}

impl Inference {
    /// The developer's own call: with tools and structure, and nothing said beside the conversation.
    #[must_use]
    pub const fn action() -> Self {
        Self {
            phase: "action",
            prompt: None,
            is_action: true,
            structure: None,
        }
    }

    /// A call of the strategy's: without tools, behind a prompt.
    pub fn aside(phase: &'static str, prompt: impl Into<Arc<str>>) -> Self {
        Self {
            phase,
            prompt: Some(prompt.into()),
            is_action: false,
            structure: None,
        }
    }

    /// The same question, behind what was wrong with its answer.
    pub(crate) fn asked_again(mut self, text: Box<str>) -> Self {
        (self.phase, self.prompt) = ("repair", Some(text.into()));
        self
    }

    /// With something said to the model.
    #[must_use]
    pub fn with_prompt(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.prompt = Some(prompt.into());
        self
    }

    /// With a schema for the answer.
    #[must_use]
    pub fn with_structure(mut self, schema: Arc<RawObject>) -> Self {
        self.structure = Some(schema);
        self
    }
}

/// A limit of 0 would be an agent that never begins.
fn check_limit(limit: Option<u64>, name: &'static str) -> Result<(), UppError> {
    if limit == Some(0) {
        let text = format!("{name} of 0");
        return Err(UppError::new(upp::ErrorCode::InvalidRequest, "uap", text));
    }
    Ok(())
}
