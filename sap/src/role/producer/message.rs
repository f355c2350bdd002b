//! What a producer's tasks take and say.

use core::fmt;

use crate::error::ErrorCode;
use crate::ident::{CorrelationId, TaskId};
use crate::lifecycle::LifecycleError;
use crate::receipt::{Ack, Nack};
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;

/// Where a task is, as its producer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// It was made, and not sent.
    Drafted,
    /// It was sent, and nothing came back.
    Sent,
    /// An Ack came.
    Accepted,
    /// A result came that is not the last.
    InProgress(Status),
    /// The last result came.
    Ended(Status),
    /// A Nack came.
    Refused(ErrorCode),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drafted => f.pad("drafted"),
            Self::Sent => f.pad("sent"),
            Self::Accepted => f.pad("accepted"),
            Self::InProgress(status) => write!(f, "in progress as {status}"),
            Self::Ended(status) => write!(f, "ended as {status}"),
            Self::Refused(code) => write!(f, "refused as {code}"),
        }
    }
}

/// What happens to a producer's tasks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The task is to be sent, for the first time or again.
    Dispatch(&'a Task),
    /// An Ack came.
    Ack(&'a Ack),
    /// A Nack came.
    Nack(&'a Nack),
    /// A result came.
    Result(&'a TaskResult),
}

/// What is to be done, and what is known now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// This task is to be sent.
    Transmit(TaskId),
    /// The task was taken.
    Accepted(TaskId),
    /// The task was turned away; no result follows.
    Refused(TaskId, ErrorCode),
    /// A result that is new; the last one where its status is terminal.
    Result(Box<TaskResult>),
    /// Nothing came for too long. The task stays where it is: it may be sent again, and what comes late counts.
    Overdue(TaskId, Waiting),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// A receipt.
    Receipt,
    /// A result.
    Result,
    /// The last result: the deadline of the task is over.
    End,
}

/// Why something is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// That may not follow.
    #[error("{to} may not follow {from}")]
    Illegal {
        /// Where the task is.
        from: Stage,
        /// Where it should have gone.
        to: Stage,
    },
    /// No task of that id was sent, or it was forgotten since.
    #[error("no task {task_id} is known")]
    Unknown {
        /// The id.
        task_id: TaskId,
    },
    /// A Nack that does not say which task it turns away, and there is more than one that it could be.
    #[error("a Nack without the id of its task")]
    Nameless,
    /// A receipt whose correlation id is not the task's.
    #[error("receipt with correlation id {seen}, wanted {wanted}")]
    Correlation {
        /// The task's id.
        wanted: CorrelationId,
        /// The receipt's.
        seen: CorrelationId,
    },
    /// A result that does not belong to the task, or does not follow.
    #[error(transparent)]
    Lifecycle(#[from] LifecycleError),
    /// There are as many open tasks as there may be.
    #[error("{limit} tasks are open, which is the bound")]
    Full {
        /// The bound.
        limit: usize,
    },
}
