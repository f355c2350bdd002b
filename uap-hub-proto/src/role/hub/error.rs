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
    #[error("{most} agents are registered, which is the limit")]
    Full {
        /// The bound.
        most: usize,
    },
    /// The registrations have too many bytes together.
    #[error("the agents' registrations would have more than {most} bytes, which is the maximum")]
    FullOfBytes {
        /// The bound.
        most: usize,
    },
    /// The peer has too many agents registered.
    #[error("{most} agents of this peer are registered, which is the maximum")]
    PeerFull {
        /// The bound.
        most: usize,
    },
    /// The registrations of the peer have too many bytes together.
    #[error(
        "the registrations of this peer's agents would have more than {most} bytes, which is the maximum"
    )]
    PeerFullOfBytes {
        /// The bound.
        most: usize,
    },
    /// The hub is leaving.
    #[error("the hub is shutting down")]
    ShuttingDown,
}

impl RegisterError {
    /// The status that answers the call.
    // impl: HUB-2-1
    #[must_use]
    pub fn status(&self) -> Status {
        let code = match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Full { .. }
            | Self::FullOfBytes { .. }
            | Self::PeerFull { .. }
            | Self::PeerFullOfBytes { .. } => Code::ResourceExhausted,
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
    #[error("{most} jobs wait or run, which is the limit")]
    TooManyJobs {
        /// The bound.
        most: usize,
    },
    /// The waiting payloads fill their bound.
    #[error("{seen} bytes of payloads would wait, at most {most} are allowed")]
    QueueFull {
        /// Bytes that would wait.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// One job's init message is too large to be sent.
    #[error("the job has {seen} bytes, at most {most} can be sent")]
    TooLarge {
        /// Bytes of the message.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// The job's type is empty.
    #[error("the job's type is empty")]
    EmptyType,
    /// The agent of the job is not registered.
    #[error("no agent has this client id")]
    UnknownAgent,
    /// The agent of the job has no such capability, or requires other payloads.
    #[error("the agent of the job cannot do it: {unmet}")]
    IncapableAgent {
        /// The requirement that the job does not meet, in words for people.
        unmet: String,
    },
    /// No such job waits or runs.
    #[error("no job with this id waits or runs")]
    UnknownJob,
    /// The command came from inside `HubHandle::inspect`, which holds the hub.
    #[error("the hub is being inspected: give commands after the inspection")]
    Inspecting,
    /// The session waits for no preparation.
    #[error("the session does not wait to be prepared")]
    NotPreparing,
    /// No agent that has listened can do it, and the hub is set to refuse such jobs.
    #[error("no agent that listened offers {skill} and takes these payloads: {unmet}")]
    NoCapableAgent {
        /// The skill that the job requires.
        skill: Skill,
        /// The requirements that the job does not meet, with how many agents have them, in words for people.
        unmet: String,
    },
    /// The job's group is longer than names may be.
    #[error("the group has {seen} bytes, at most {most} are allowed")]
    LongGroup {
        /// Bytes of the name.
        seen: usize,
        /// The bound.
        most: usize,
    },
    /// A job with this id waits or runs.
    #[error("a job with this id waits or runs")]
    DuplicateJob,
    /// No record of the job is being stored.
    #[error("no record of this job is being stored")]
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
    #[error("a stream with this id is open")]
    StreamInUse,
}
