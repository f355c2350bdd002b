//! The inputs and outputs of an orchestrator.

use std::sync::Arc;

use crate::ConfigError;
use crate::any::AnyMessage;
use crate::registry::AgentRecord;
use crate::reply::Reply;
use crate::role::Answer;
use crate::runner::{Cause, ResumeError, Ticket};

/// What the driver reports to an orchestrator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// An agent answered.
    Answered {
        /// The delegation that it answers.
        ticket: Ticket,
        /// The answer, as received.
        bytes: Vec<u8>,
    },
    /// An agent could not be reached, or did not answer.
    Failed {
        /// The delegation.
        ticket: Ticket,
        /// The reason.
        cause: Cause,
    },
    /// An agent made progress.
    Progress {
        /// The delegation.
        ticket: Ticket,
    },
    /// The spawner answered.
    Spawned(Box<Reply>),
}

/// An act that is delegated to an agent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delegation {
    /// The attempt.
    pub ticket: Ticket,
    /// The agent.
    pub agent: Arc<AgentRecord>,
    /// A message with the one act, in the edition of the request; its `out_fmt` is raw unless the agent may answer in prose.
    pub message: AnyMessage,
}

/// A decision of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// The number of the step.
    pub step: usize,
    /// The sender.
    pub sender: Option<String>,
    /// The verb, under its registered name.
    pub verb: String,
    /// The tool.
    pub tool: String,
    /// The agent that may be asked; `None` if no agent may be, or one would be spawned.
    pub agent: Option<String>,
    /// Whether it is allowed.
    pub is_allowed: bool,
}

/// What an orchestrator asks of its driver.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Send the message to the agent, and report [`Input::Answered`] or [`Input::Failed`].
    Delegate(Box<Delegation>),
    /// The delegation is cancelled. A later answer is refused.
    Cancel {
        /// The delegation.
        ticket: Ticket,
    },
    /// Send this message to the spawner, and report [`Input::Spawned`].
    Spawn(Box<AnyMessage>),
    /// The authorizer has decided: once for each verb and tool of the plan before anything is delegated or spawned, and once
    /// for each delegation.
    Decided(Box<Decision>),
    /// No delegation is open, and none follows before [`Orchestrator::resume`](super::Orchestrator::resume).
    Paused,
    /// Answer the sender: in prose if the message asked for it and the last step wrote it. This is the last output.
    Answer(Box<Answer>),
}

/// Why an input or a command is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrchestratorError {
    /// The message is answered.
    #[error("the message is already answered")]
    Closed,
    /// The input belongs to no open delegation or spawn.
    #[error("no open delegation or spawn waits for this input")]
    NotRequested,
}

/// Why a saved run cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text is not a saved run of this message.
    #[error(transparent)]
    Run(#[from] ResumeError),
}
