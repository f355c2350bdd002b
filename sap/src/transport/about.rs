//! What became of a task that was sent before: how far it is, to the end, and its cancel.

use core::fmt;

use super::{Message, Service};
use crate::error::ErrorCode;
use crate::ident::{AgentId, TaskId};
use crate::processor::{KnownTask, Peer, Standing};
use crate::receipt::{Nack, ReceiptStatus};

/// A task that a service was sent before.
///
/// What is said about it is an Ack where it was taken and has no result yet, else its latest result.
pub struct About {
    task: KnownTask,
    task_id: TaskId,
}

impl Service {
    /// The task of an issuer that came before. Who may send it may ask about it. To anybody else it is as unknown
    /// as one that never came, or that was forgotten.
    ///
    /// # Errors
    ///
    /// What to tell a peer for whom there is no such task: a Nack `NOT_FOUND`, which is noted.
    pub async fn about(
        &self,
        peer: &Peer,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Result<About, Nack> {
        match About::find(self, peer, issuer, task_id).await {
            Some(about) => Ok(about),
            None => Err(self.note(unknown(task_id)).await),
        }
    }
}

impl About {
    /// The task, where the service knows it and the peer may send it.
    pub(super) async fn find(
        service: &Service,
        peer: &Peer,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Option<Self> {
        let known = KnownTask::of_issuer(service.processor(), peer, issuer, task_id);
        Some(Self {
            task: known.await?,
            task_id: *task_id,
        })
    }

    /// How far the task is.
    #[must_use]
    pub fn latest(&self) -> Message {
        let latest = self.task.latest().map(Message::from);
        latest.unwrap_or_else(|| Message::Nack(unknown(&self.task_id)))
    }

    /// Has the task stopped where it runs, and tells how far it is. Its end comes as soon as its handler has
    /// stopped, CANCELLED where it had not ended by itself.
    // impl: SAP-5-6
    #[must_use]
    pub fn cancel(&self) -> Message {
        self.task.cancel();
        self.latest()
    }

    /// How far the task is, at once and then whenever that has changed; `None` after its end, and where as many
    /// follow it as may: 1,024. One who asks seldom is told the latest, and misses what was between.
    pub async fn next(&mut self) -> Option<Message> {
        self.task.next().await.map(Message::from)
    }
}

impl From<Standing> for Message {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Taken(ack) => Self::Ack(ack),
            Standing::Result(result) => Self::Result(result),
        }
    }
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("About")
            .field("task_id", &self.task_id)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::expect_used, reason = "the reason is a text of this function")]
pub(super) fn unknown(task_id: &TaskId) -> Nack {
    let why = "no task of this issuer and id is known here";
    let reason = why.parse().expect("the reason is not blank");
    let mut nack = Nack::new(ReceiptStatus::Nack, ErrorCode::NotFound, reason);
    nack.message_id = Some(*task_id);
    nack
}
