//! Reason, act, observe, and again.

use std::sync::Arc;

use upp::UppError;

use super::{
    Command, ExecutionContext, ExecutionStrategy, Inference, Outcome, StrategyRun, check_limit,
};
use crate::event::EventData;

/// Options of [`react`].
///
/// Spec: UAP-1.1 5.3
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactOptions {
    max_steps: Option<u64>,
    reasoning_prompt: Arc<str>,
}

impl ReactOptions {
    /// Sets the maximum number of cycles, at least 1. No limit by default.
    #[must_use]
    pub const fn with_max_steps(mut self, most: u64) -> Self {
        self.max_steps = Some(most);
        self
    }

    /// Sets the prompt that asks the model to reason. It is sent unaltered.
    #[must_use]
    pub fn with_reasoning_prompt(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.reasoning_prompt = prompt.into();
        self
    }
}

impl Default for ReactOptions {
    fn default() -> Self {
        Self {
            max_steps: None,
            reasoning_prompt: REASON.into(),
        }
    }
}

const REASON: &str = "Before you act: reason step by step about what is known, what is still missing, and which of \
    your tools, if any, brings you closer. Do not call a tool yet and do not answer yet.";
const ACT: &str = "Now act on your reasoning: call the tools you need, or give the final answer.";

/// Reasoning before every action (`react()` in the specification).
///
/// # Errors
///
/// A limit of 0.
///
/// Spec: UAP-1.1 5.3
pub fn react(options: ReactOptions) -> Result<Arc<dyn ExecutionStrategy>, UppError> {
    check_limit(options.max_steps, "maxSteps")?;
    Ok(Arc::new(React(options)))
}

struct React(ReactOptions);

impl ExecutionStrategy for React {
    fn name(&self) -> &str {
        "react"
    }

    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(ReactRun {
            options: self.0.clone(),
            reasons: false,
            goes_on: true,
        })
    }
}

struct ReactRun {
    options: ReactOptions,
    /// Whether the question that is out is the reasoning one.
    reasons: bool,
    goes_on: bool,
}

// impl: UAP-5-3
impl StrategyRun for ReactRun {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        match outcome {
            Outcome::Started => Command::StartStep(EventData::phase("reasoning")),
            Outcome::StepStarted => {
                self.reasons = true;
                Command::Infer(Inference::aside(
                    "reasoning",
                    Arc::clone(&self.options.reasoning_prompt),
                ))
            }
            Outcome::Inferred { response, .. } if self.reasons => {
                self.reasons = false;
                Command::Reason(response.message.text().into())
            }
            Outcome::Applied => Command::Infer(Inference::action().with_prompt(ACT)),
            Outcome::Inferred { ran_tools, .. } => {
                self.goes_on = ran_tools
                    && self
                        .options
                        .max_steps
                        .is_none_or(|most| context.step < most);
                Command::EndStep(EventData::phase("complete"))
            }
            Outcome::StepEnded if self.goes_on => Command::StartStep(EventData::phase("reasoning")),
            Outcome::StepEnded => Command::Finish,
            Outcome::Failed(error) => Command::Fail(error),
        }
    }
}
