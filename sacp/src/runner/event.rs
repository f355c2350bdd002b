//! The inputs and outputs of the runner, and its errors.

use ubos_common::json::RawBuf;

use super::Cause;
use super::attempt::{StepInputs, Ticket};
use super::outcome::Outcome;
use crate::ConfigError;
use crate::any::MessageRef;
use crate::draw::StepState;
use crate::plan::Act;
use crate::reply::{Clarify, ErrReply, Reply};

/// What the driver reports about an attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// The attempt succeeded.
    Succeeded {
        /// The attempt.
        ticket: Ticket,
        /// Its output.
        output: RawBuf,
    },
    /// The attempt failed.
    Failed {
        /// The attempt.
        ticket: Ticket,
        /// The reason.
        cause: Cause,
    },
    /// The attempt made progress: its idle timeout starts again.
    Progress {
        /// The attempt.
        ticket: Ticket,
    },
}

/// What the runner asks of its driver, and what it reports.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Run an act, and report [`Input::Succeeded`] or [`Input::Failed`]. Does not occur in test mode.
    Dispatch {
        /// The attempt.
        ticket: Ticket,
        /// The act.
        act: Act,
        /// Outputs of the steps that this step waited for; for a join, those of its group.
        inputs: StepInputs,
        /// Which agent for the act is meant; 0 is the best.
        rank: usize,
    },
    /// Stop a running attempt. A later result of it is refused.
    Cancel {
        /// The attempt.
        ticket: Ticket,
    },
    /// The state of a step changed; only with [`Config::with_step_events`](super::Config::with_step_events).
    Step {
        /// The step's number.
        step: usize,
        /// Its new state.
        state: StepState,
    },
    /// The run is paused and its last running attempt has ended.
    Paused,
    /// The run ended.
    Ended(Box<Outcome>),
}

/// Why an input or a command is refused. The run is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The run has not started, or has ended.
    #[error("the run has {}", if *.started { "ended" } else { "not started: call start first" })]
    NotRunning {
        /// Whether it ever started.
        started: bool,
    },
    /// The ticket is not that of the running attempt of its step.
    #[error("attempt {} of step {} is not running", .ticket.attempt, .ticket.step)]
    NotDispatched {
        /// The ticket.
        ticket: Ticket,
    },
}

/// Why a message cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The plan is empty, or that of a subtask: ask the sender for one.
    #[error("the plan is empty")]
    Empty {
        /// The pointer of the message that has no plan.
        pointer: String,
    },
    /// The message is `DONE`, `FAILED` or, in 1.0, `CANCELLED` already.
    #[error("the message is {state}, but only a message that has not ended can run")]
    Ended {
        /// The word of its state.
        state: &'static str,
    },
    /// The plan has more steps than [`Config::with_max_steps`](super::Config::with_max_steps) allows.
    #[error("the plan has {seen} steps, but at most {limit} can run")]
    TooManySteps {
        /// The number of steps, those of subtasks included.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl StartError {
    /// The answer to the message.
    ///
    /// Spec: SACP 4
    #[must_use]
    pub fn reply<'a>(&self, message: impl Into<MessageRef<'a>>) -> Reply {
        let message = message.into();
        let code = match self {
            Self::Empty { pointer } => {
                let plan = format!("{pointer}/plan");
                let mut clarify = Clarify::new([plan.trim_start_matches('/')], "nothing to do");
                clarify.reply_to = message.msg_id().map(str::to_owned);
                return Reply::Clarify(clarify);
            }
            Self::Ended { .. } => crate::Code::InvalidState,
            Self::TooManySteps { .. } => crate::Code::MalformedPlan,
            Self::Config(_) => crate::Code::InternalError,
        };
        Reply::Err(ErrReply::new(code, self.to_string()).to(message))
    }
}
