//! Ask, run tools, ask again, until no tool is called.

use std::sync::Arc;

use upp::UppError;

use super::{
    Command, ExecutionContext, ExecutionStrategy, Inference, Outcome, StrategyRun, check_limit,
};
use crate::event::EventData;

/// Options of [`tool_loop`].
///
/// Spec: UAP-1.1 5.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopOptions {
    max_iterations: Option<u64>,
}

impl LoopOptions {
    /// Sets the maximum number of inferences, at least 1. No limit by default.
    #[must_use]
    pub const fn with_max_iterations(mut self, most: u64) -> Self {
        self.max_iterations = Some(most);
        self
    }
}

/// The simplest strategy (`loop()` in the specification): one inference and its tools a step.
///
/// # Errors
///
/// A limit of 0.
///
/// Spec: UAP-1.1 5.2
pub fn tool_loop(options: LoopOptions) -> Result<Arc<dyn ExecutionStrategy>, UppError> {
    check_limit(options.max_iterations, "maxIterations")?;
    Ok(Arc::new(ToolLoop(options)))
}

pub(crate) struct ToolLoop(pub(crate) LoopOptions);

impl ExecutionStrategy for ToolLoop {
    fn name(&self) -> &str {
        "loop"
    }

    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(ToolLoopRun {
            most: self.0.max_iterations,
            goes_on: true,
        })
    }
}

struct ToolLoopRun {
    most: Option<u64>,
    goes_on: bool,
}

// impl: UAP-5-2
impl StrategyRun for ToolLoopRun {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Started => Command::StartStep(EventData::Iteration(1)),
            Outcome::StepStarted => Command::Infer(Inference::action()),
            Outcome::Inferred { ran_tools, .. } => {
                self.goes_on = ran_tools && self.most.is_none_or(|most| context.step < most);
                Command::EndStep(EventData::Iteration(context.step))
            }
            Outcome::StepEnded if self.goes_on => {
                Command::StartStep(EventData::Iteration(context.step + 1))
            }
            Outcome::StepEnded | Outcome::Applied => Command::Finish,
            Outcome::Failed(error) => Command::Fail(error),
        }
    }
}
