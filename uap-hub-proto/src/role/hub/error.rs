//! The errors of the hub.

use crate::{
    capability::{RegistrationError, Skill},
    status::{Code, Status},
};

/// Why `Register` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The registration is wrong.
    #[error(transparent)]
    Invalid(#[from] RegistrationError),
    /// Too many agents are registered.
    #[error("{most} agents are registered, more are not taken")]
    Full {
        /// The bound.
        most: usize,
    },
    /// The hub is leaving.
    #[error("the hub is shutting down")]
    ShuttingDown,
}

impl RegisterError {
    /// The status that answers the call.
    #[must_use]
    pub fn status(&self) -> Status {
        let code = match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Full { .. } => Code::ResourceExhausted,
            Self::ShuttingDown => Code::Unavailable,
        };
        Status::new(code, self.to_string())
    }
}

/// Why a command is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Too many jobs wait or run.
    #[error("{most} jobs wait or run, more are not taken")]
    TooManyJobs {
        /// The bound.
        most: usize,
    },
    /// The waiting payloads fill their bound.
    #[error("{seen} bytes of payloads would wait, at most {most} may")]
    QueueFull {
        /// Bytes that would wait.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// One job's init message is too large to be sent.
    #[error("a job of {seen} bytes, at most {most} can be sent")]
    TooLarge {
        /// Bytes of the message.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// The job's type is empty.
    #[error("a job's type is not empty")]
    EmptyType,
    /// The agent of the job is not registered.
    #[error("no agent has that client id")]
    UnknownAgent,
    /// The agent of the job has no such capability, or requires other payloads.
    #[error("the agent with that client id has no such capability, or requires other payloads")]
    IncapableAgent,
    /// No such job waits or runs.
    #[error("no job that waits or runs has that id")]
    UnknownJob,
    /// The session waits for no preparation.
    #[error("the session does not wait to be prepared")]
    NotPreparing,
    /// No registered agent can do it, and the hub is set to refuse such jobs.
    #[error("no registered agent offers {skill} for these payloads")]
    NoCapableAgent {
        /// The skill that the job requires.
        skill: Skill,
    },
    /// The job's group is longer than names may be.
    #[error("a group of {seen} bytes, at most {most} are taken")]
    LongGroup {
        /// Bytes of the name.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// A job with this id waits or runs.
    #[error("a job of that id waits or runs")]
    DuplicateJob,
    /// No record of the job is being stored.
    #[error("nothing of that job is being stored")]
    NotStoring,
    /// The hub is leaving.
    #[error("the hub is shutting down")]
    ShuttingDown,
}

/// Why an input is refused: faults of the driver. Faults of peers are [`Audit`](super::Audit)s and statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The hub is shut down.
    #[error("the hub is shut down")]
    Closed,
    /// A stream id was used twice.
    #[error("a stream of that name is open")]
    StreamInUse,
}
