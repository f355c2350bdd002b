//! What goes in and out of a task's machine.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::work::{Access, ContractFinding, Ended, Outcome, Progress, StopReason};
use crate::alignment::{Assessment, Subject};
use crate::cache::{CacheKey, CacheRecord, Keys};
use crate::receipt::{Ack, Nack};
use crate::result::{Producer, TaskResult};
use crate::status::Status;
use crate::task::Task;
use ubos_common::json::RawBuf;
use ubos_common::time::Timestamp;

/// Who answers, and for how long.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) producer: Arc<Producer>,
    pub(super) default_time: Duration,
}

impl Config {
    /// Tasks are answered by `producer`; one without a deadline has an hour.
    #[must_use]
    pub fn new(producer: Producer) -> Self {
        Self {
            producer: Arc::new(producer),
            default_time: Duration::from_secs(3_600),
        }
    }

    /// Sets the time of a task that names no deadline, from its arrival.
    #[must_use]
    pub const fn with_default_time(mut self, time: Duration) -> Self {
        self.default_time = time;
        self
    }
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// It is here, and nothing is decided.
    Received,
    /// It was taken, and its handler has not begun.
    Accepted,
    /// Its handler is at work: RUNNING, or PARTIAL.
    Running,
    /// Its last result is being recorded, or is.
    Ended(Status),
    /// Nothing is to be done: it was turned away, or answered with what is known of it.
    Dismissed,
    /// It could not be recorded.
    Lost,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received => f.pad("received"),
            Self::Accepted => f.pad("accepted"),
            Self::Running => f.pad("running"),
            Self::Ended(status) => write!(f, "ended as {status}"),
            Self::Dismissed => f.pad("dismissed"),
            Self::Lost => f.pad("lost"),
        }
    }
}

/// What happens to a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// A request was done.
    Reply {
        /// The request's id.
        id: u64,
        /// What came of it.
        reply: Reply,
    },
    /// The handler reports progress. Welcome while [`ReceivedTask::accepts_report`](super::ReceivedTask::accepts_report).
    Report(Progress),
    /// Somebody asks to stop the task.
    Cancel,
    /// Nobody goes on with the task: the process ends, or who waited for the answer is gone.
    Shutdown,
}

/// What is to be done about a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Output {
    /// The world does this, and replies with the id.
    Request {
        /// The id of the reply.
        id: u64,
        /// What is to be done.
        request: Request,
    },
    /// The request of this id is dropped; nobody waits for its reply.
    Cancel(u64),
    /// The handler is to stop by itself.
    Stop(StopReason),
    /// This is the latest recorded result: it answers the same task when that comes again.
    Remember(Arc<Written>),
    /// Nothing that could answer the same task is recorded.
    Forget,
    /// The task is done with. Nothing follows.
    Close(End),
}

/// What the world does for a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Whether the issuer may have this done. [`Reply::Access`]
    Authorize,
    /// Look for a handler, and take the task's place among those that run. [`Reply::Admission`]. Where this is
    /// [cancelled](Output::Cancel), no place is kept.
    Enter,
    /// Write this down; durable. [`Reply::Recorded`], [`Reply::NotRecorded`]
    Record(Record),
    /// Say this. [`Reply::Delivered`]
    Deliver(Message),
    /// The policy's verdict. [`Reply::Assessed`]
    Assess(Proposed),
    /// Make the task's keys and look for its record in the cache. [`Reply::Found`]
    LookUp,
    /// Join those that compute the same outcome at the same time. [`Reply::Lead`] at once where nobody does, and
    /// [`Reply::Followed`] once another one has ended.
    Join(CacheKey),
    /// Run the handler. [`Input::Report`] on the way, then [`Reply::Ran`].
    Run,
    /// Hold the output against the task's contract. [`Reply::Checked`]
    Check(Arc<Outcome>),
    /// Keep the outcome in the cache; durable. [`Reply::Kept`]
    Keep(Arc<CacheRecord>),
}

/// What is written down.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Record {
    /// The task.
    Task,
    /// A result.
    Result(Arc<Written>),
}

/// What is said before the last result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Message {
    /// The task was taken.
    Ack(Ack),
    /// A result.
    Result(Arc<Written>),
}

/// A result and its bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// The result.
    pub result: TaskResult,
    /// Its bytes.
    pub encoded: Arc<[u8]>,
}

/// What is judged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Proposed {
    /// The task before anything is computed.
    Nothing,
    /// A part.
    Part(Arc<Progress>),
    /// An outcome.
    Outcome(Arc<Outcome>),
    /// An outcome of the cache.
    Record(Arc<CacheRecord>),
}

impl Proposed {
    /// The subject of the verdict.
    #[must_use]
    pub fn subject<'a>(&'a self, task: &'a Task) -> Subject<'a> {
        let subject = Subject::admission(&task.target.capability, &task.constitutional_context);
        match self {
            Self::Nothing => subject,
            Self::Part(part) => {
                subject.proposing(part.output.as_ref().map(RawBuf::as_raw), &part.citations)
            }
            Self::Outcome(made) => {
                subject.proposing(made.output.as_ref().map(RawBuf::as_raw), &made.citations)
            }
            Self::Record(record) => {
                subject.proposing(Some(record.output.as_raw()), &record.citations)
            }
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// Whether the issuer may.
    Access(Access),
    /// The place of the task.
    Admission(Admission),
    /// It is in the transcript.
    Recorded,
    /// It is not in the transcript.
    NotRecorded,
    /// It was said.
    Delivered,
    /// The verdict.
    Assessed(Assessment),
    /// What the cache has.
    Found {
        /// The task's keys, where it has any.
        keys: Option<Keys>,
        /// The newest intact record.
        record: Option<Arc<CacheRecord>>,
        /// Whether there is a cache that could keep an outcome.
        keeps: bool,
    },
    /// This task computes; others wait for it until it is closed.
    Lead,
    /// The other task that computed has ended.
    Followed,
    /// The handler has ended.
    Ran(Ended),
    /// What was found about the output.
    Checked(ContractFinding),
    /// The cache has taken the outcome, or has not; it is told elsewhere why not.
    Kept,
    /// What does it panicked.
    Panicked,
}

/// Whether a task has a place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Admission {
    /// It is new, and has one.
    New,
    /// It began before the process was started again, and has a place.
    Interrupted {
        /// Its last status.
        status: Option<Status>,
        /// The last second of one that names no deadline. That of one that does is its own.
        ends: Timestamp,
    },
    /// It came before; this is its latest result, where there is one.
    Known(Option<Box<TaskResult>>),
    /// Another task of this id came before.
    Other,
    /// No such capability or agent is here.
    NotFound,
    /// As many tasks run as may.
    Full,
    /// It came before, and what the transcript has of it cannot be read now.
    Unreadable,
    /// It came before and has ended, and the transcript has its result no more.
    Gone,
}

/// How a task is done with.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum End {
    /// It was turned away; this is to be told.
    Nack(Nack),
    /// This is its answer: the last result, or the latest of one that came before.
    Answer(Arc<Written>),
    /// Its answer was recorded earlier.
    Again(Box<TaskResult>),
    /// It came before, and has no result yet.
    Taken(Ack),
    /// A record failed: nothing may be told.
    Lost,
}

/// Why an input is refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No request of that id is open: it was answered, or dropped.
    #[error("no request {id} is open")]
    NotOpen {
        /// The id.
        id: u64,
    },
    /// The reply is none to that request.
    #[error("request {id} has another kind of reply")]
    OtherReply {
        /// The request's id.
        id: u64,
    },
    /// The handler has something to say before what it said last is done with, or when it does not run.
    #[error("the handler is not listened to now")]
    NotListening,
    /// The task has no place yet, or its end is decided.
    #[error("a task that is {stage} cannot be cancelled")]
    NotOpenToCancel {
        /// Where it is.
        stage: Stage,
    },
    /// Nothing comes after the end.
    #[error("the task is done with")]
    Closed,
}
