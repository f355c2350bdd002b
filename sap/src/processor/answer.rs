//! What comes out of a processor.

use crate::error::StoreError;
use crate::receipt::{Ack, Nack};
use crate::result::TaskResult;
use crate::role::consumer::NotEnforced;
use crate::transcript::TranscriptError;

/// What is told on the way to the answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivery<'a> {
    /// The task was taken; only where its issuer wants to know.
    Ack(Ack),
    /// A result before the last.
    Result(&'a TaskResult),
    /// For the operator, not for the issuer.
    Warning(Warning),
}

/// Something that did not keep a task from its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Records of the cache were there and did not hold; they count as misses.
    #[error("{records} damaged cache records")]
    CacheDamaged {
        /// How many.
        records: usize,
    },
    /// The cache could not be read or written.
    #[error("cache not used")]
    Cache(#[source] StoreError),
    /// The output was not held against its contract.
    #[error("contract not enforced")]
    Contract(#[source] NotEnforced),
    /// What a result says is not learned of: too much waits for the sink of signals. What that refuses later is counted
    /// ([`Processor::lost_signals`](super::Processor::lost_signals)).
    #[error("signal not kept")]
    Signal(#[source] StoreError),
    /// A result did not get to the endpoint that the task names. It stays in the transcript.
    #[error("a result did not get to its endpoint")]
    Unreachable(#[source] Unreachable),
    /// What was said is longer than the transport takes: a part on the way was left out, or an end was told as FAILED. The
    /// transcript has the whole.
    #[error("what was said is longer than the transport takes")]
    TooLong,
    /// Carrying what is said of a task failed: a part on the way was left out, or the task was given back to its queue, and
    /// comes again.
    #[error("the transport failed at a task")]
    Carrier(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a result did not get to the endpoint that the task names. The endpoint itself is not shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreachable {
    /// Nothing here speaks to endpoints of this kind, or it may not.
    #[error("no way to this endpoint")]
    NoWay,
    /// Nobody is there, or it holds as many results as it may.
    #[error("the endpoint takes nothing")]
    Refused,
    /// Carrying it failed.
    #[error("the transport failed")]
    Carrier(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How a task was answered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// It was turned away; no handler ran.
    Nack(Nack),
    /// Its last result; for a task that came before and still runs, the latest.
    Result(Box<TaskResult>),
    /// It came before and was taken, and has no result yet.
    Ack(Ack),
}

/// Why a task has no answer that may be delivered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It could not be written down.
    #[error("not delivered, because it is not in the transcript")]
    Transcript(#[from] TranscriptError),
}
