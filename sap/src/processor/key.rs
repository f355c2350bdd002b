//! Which task it is.

use ubos_common::canon::Digest;

use crate::ident::{AgentId, TaskId};
use crate::task::Task;

/// Which task it is: ids are an issuer's own, and nobody takes another one's by using it first. Of the issuer it has the
/// digest, for his name may be as long as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(TaskId, Digest);

impl Key {
    pub(super) fn of(task: &Task) -> Self {
        Self::new(task.task_id, &task.issuer.agent_id)
    }

    pub(super) fn new(task_id: TaskId, issuer: &AgentId) -> Self {
        Self(task_id, Digest::of_bytes(issuer.as_str().as_bytes()))
    }

    pub(super) const fn task_id(&self) -> TaskId {
        self.0
    }

    pub(super) const fn issuer(&self) -> Digest {
        self.1
    }
}
