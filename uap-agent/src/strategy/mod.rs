//! Execution strategies: a strategy decides what a run does next, and the engine does it.
//!
//! A strategy performs nothing itself. For each run it makes a [`StrategyRun`], which gets the outcome of the last command
//! and returns the next one: start a step, ask the model, keep reasoning or a plan, end the step, finish. The engine does the
//! rest, so every strategy has streaming, hooks, checkpoints, tools and abort.

mod plan;
mod react;
mod tool_loop;

use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use upp::{LlmInstance, LlmResponse, Message, UppError};

pub use plan::{PlanOptions, plan};
pub use react::{ReactOptions, react};
#[cfg(feature = "driver")]
pub(crate) use tool_loop::ToolLoop;
pub use tool_loop::{LoopOptions, tool_loop};

use crate::event::EventData;
use crate::state::{AgentState, PlanStep, PlanSteps};

/// An execution strategy of agents.
///
/// Spec: UAP-1.1 5.1
pub trait ExecutionStrategy: Send + Sync {
    /// The name of the strategy.
    fn name(&self) -> &str;

    /// Starts a run.
    fn begin(&self) -> Box<dyn StrategyRun>;
}

/// One run of a strategy. It must be deterministic: the same outcomes give the same commands.
pub trait StrategyRun: Send + Sync {
    /// The next command, after the outcome of the last one.
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command;
}

/// What a strategy sees of the run.
///
/// Spec: UAP-1.1 5.1
#[derive(Debug)]
#[non_exhaustive]
pub struct ExecutionContext<'a> {
    /// The id of the agent.
    pub agent_id: &'a str,
    /// The input of the run. It is added to the state when the first step starts, unless the strategy has added it with
    /// [`Command::Append`].
    pub input: &'a Message,
    /// The current state.
    pub state: &'a AgentState,
    /// The step, from 1; 0 before the first.
    pub step: u64,
    /// The session under which states are saved, if they are.
    pub session_id: Option<&'a str>,
    /// The model with its options: tools, system prompt and capabilities.
    pub llm: &'a LlmInstance,
    /// The source of ids.
    pub ids: &'a mut IdSource,
}

/// What the last command of a strategy led to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The run has started. The state is the one it starts from, without the input.
    Started,
    /// The step has started.
    StepStarted,
    /// The model has responded.
    #[non_exhaustive]
    Inferred {
        /// The response.
        response: Box<LlmResponse>,
        /// Whether the response called tools, which have run.
        ran_tools: bool,
    },
    /// The inference failed. A strategy that needs the response returns [`Command::Fail`].
    Failed(UppError),
    /// Messages, reasoning or a plan were added to the state.
    Applied,
    /// The step has ended: hooks were called, the state is saved, and the stop condition does not hold.
    StepEnded,
}

/// What a strategy does next.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Start the next step. The data becomes part of its event.
    StartStep(EventData),
    /// Send a request to the model. Tools that it calls are run.
    Infer(Inference),
    /// Add messages to the state. All but the run's input become part of its turn.
    Append(Vec<Message>),
    /// Add reasoning to the state.
    Reason(Arc<str>),
    /// Set the plan of the state.
    Plan(PlanSteps),
    /// Replace the step in a place of the plan, from 0. A place that the plan does not have fails the run.
    PlanStep(usize, PlanStep),
    /// End the step. The data becomes part of its event.
    EndStep(EventData),
    /// End the run with its result.
    Finish,
    /// End the run with an error.
    Fail(UppError),
}

/// One request of a strategy to the model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inference {
    /// The purpose of the request, recorded in the metadata of the messages that the strategy adds.
    pub phase: &'static str,
    /// A prompt that is sent after the conversation.
    pub prompt: Option<Arc<str>>,
    /// Whether the request is an action: the model may call tools, and the response may be the result of the run. In other
    /// requests the tools are declared, and calls of them are forbidden.
    pub is_action: bool,
    /// A schema of the response, instead of the schema in the options, which applies to actions only.
    pub structure: Option<Arc<RawObject>>,
}

impl Inference {
    /// An action: with tools and the structure of the options, and without a prompt.
    #[must_use]
    pub const fn action() -> Self {
        Self {
            phase: "action",
            prompt: None,
            is_action: true,
            structure: None,
        }
    }

    /// A request of the strategy itself: with a prompt, and without calls of tools.
    pub fn aside(phase: &'static str, prompt: impl Into<Arc<str>>) -> Self {
        Self {
            phase,
            prompt: Some(prompt.into()),
            is_action: false,
            structure: None,
        }
    }

    /// Sets the prompt.
    #[must_use]
    pub fn with_prompt(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.prompt = Some(prompt.into());
        self
    }

    /// Asks again, with a text about the fault of the answer.
    pub(crate) fn asked_again(mut self, text: Box<str>) -> Self {
        (self.phase, self.prompt) = ("repair", Some(text.into()));
        self
    }
}

/// Refuses a limit of 0, with which an agent could never begin.
// impl: UAP-2-1
fn check_limit(limit: Option<u64>, name: &'static str) -> Result<(), UppError> {
    if limit == Some(0) {
        let text = format!("{name} is 0, but a run needs at least 1");
        return Err(UppError::new(upp::ErrorCode::InvalidRequest, "uap", text));
    }
    Ok(())
}
