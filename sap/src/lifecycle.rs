//! Results held against their task and against the results before them.

use std::collections::VecDeque;

use ubos_common::canon::{self, Digest, Domain};
use ubos_common::violation::Profile;

use crate::ident::{CorrelationId, TaskId};
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;

/// What one side knows of a task's results.
///
/// ```
/// use sap::{Accepted, Lifecycle, LifecycleError};
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::Timestamp, violation::Profile};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let result = |status| TaskResult::of(&task, Timestamp::EPOCH,
/// #     Producer::new("b".parse().unwrap(), ProducerKind::Agent), status, ConstitutionalEvidence::new(Alignment::Valid));
/// let mut lifecycle = Lifecycle::new(&task, Profile::Strict);
/// assert_eq!(lifecycle.accept(&result(Status::Running))?, Accepted::Moved);
/// assert_eq!(lifecycle.accept(&result(Status::Succeeded))?, Accepted::Moved);
/// assert_eq!(lifecycle.accept(&result(Status::Succeeded))?, Accepted::Repeat);
/// assert!(matches!(lifecycle.accept(&result(Status::Failed)), Err(LifecycleError::Transition { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lifecycle {
    task_id: TaskId,
    correlation_id: CorrelationId,
    profile: Profile,
    status: Option<Status>,
    seen: VecDeque<Digest>,
}

/// What came of a result that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It is new.
    Moved,
    /// It is a copy of one that came before; nothing changes.
    Repeat,
    /// Its status may not follow the last one, and the lenient profile took it all the same. A terminal
    /// status stays the status.
    OutOfOrder,
}

/// Why a result is refused; the lifecycle has not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LifecycleError {
    /// It belongs to another task.
    #[error("result of task {seen}, wanted {wanted}")]
    Task {
        /// The task's id.
        wanted: TaskId,
        /// The result's.
        seen: TaskId,
    },
    /// Its correlation id is not the task's.
    #[error("result with correlation id {seen}, wanted {wanted}")]
    Correlation {
        /// The task's id.
        wanted: CorrelationId,
        /// The result's.
        seen: CorrelationId,
    },
    /// Its status may not follow the last one.
    #[error("{to} may not follow {from}")]
    Transition {
        /// The status of the last result.
        from: Status,
        /// The status of this one.
        to: Status,
    },
}

impl Lifecycle {
    /// Results remembered to know their copies; of an older one a copy is taken for a new result.
    pub(crate) const MAX_SEEN: usize = 1_024;

    /// Before the first result of `task`.
    #[must_use]
    pub fn new(task: &Task, profile: Profile) -> Self {
        Self {
            task_id: task.task_id,
            correlation_id: task.correlation_id,
            profile,
            status: None,
            seen: VecDeque::new(),
        }
    }

    /// The status of the last result.
    #[must_use]
    pub const fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Whether nothing follows.
    pub(crate) fn is_closed(&self) -> bool {
        self.status.as_ref().is_some_and(Status::is_terminal)
    }

    /// Takes a result. The order of its members does not make it another one.
    ///
    /// # Errors
    ///
    /// [`LifecycleError`]; nothing has changed then. Spec: SAP 5
    // impl: SAP-5-3, SAP-5-5
    pub fn accept(&mut self, result: &TaskResult) -> Result<Accepted, LifecycleError> {
        self.accept_digested(result, digest_of)
    }

    /// The same; the digest is made where the ids are those of the task.
    pub(crate) fn accept_digested(
        &mut self,
        result: &TaskResult,
        digest: impl FnOnce(&TaskResult) -> Digest,
    ) -> Result<Accepted, LifecycleError> {
        if result.task_id != self.task_id {
            return Err(LifecycleError::Task {
                wanted: self.task_id,
                seen: result.task_id,
            });
        }
        if result.correlation_id != self.correlation_id {
            return Err(LifecycleError::Correlation {
                wanted: self.correlation_id,
                seen: result.correlation_id,
            });
        }
        let digest = digest(result);
        if self.seen.contains(&digest) {
            return Ok(Accepted::Repeat);
        }
        let follows = result.status.may_follow(self.status.as_ref());
        if !follows && self.profile == Profile::Strict {
            return Err(LifecycleError::Transition {
                from: self.status.clone().unwrap_or(Status::Queued),
                to: result.status.clone(),
            });
        }
        if self.seen.len() == Self::MAX_SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back(digest);
        if !self.is_closed() {
            self.status = Some(result.status.clone());
        }
        Ok(if follows {
            Accepted::Moved
        } else {
            Accepted::OutOfOrder
        })
    }
}

/// What tells a result from another.
pub(crate) fn digest_of(result: &TaskResult) -> Digest {
    body_digest(&result.encode())
}

/// The digest of a message: of its canonical form, so that the order of members does not count; of the bytes
/// themselves where a number has no exact one.
pub(crate) fn body_digest(bytes: &[u8]) -> Digest {
    canon::digest_slice(&Domain::plain(), bytes).unwrap_or_else(|_| Digest::of_bytes(bytes))
}
