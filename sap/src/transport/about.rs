//! What became of a task that was sent before: how far it is, to the end, and its cancel.

use core::fmt;
use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use futures::future::{Either, select};
use ubos_common::driver::Sleep;

use super::{Message, Service};
use crate::error::ErrorCode;
use crate::ident::{AgentId, TaskId};
use crate::processor::{KnownTask, Peer, Standing, Unanswered};
use crate::receipt::{Nack, ReceiptStatus};

/// A task that a service was sent before.
///
/// What is said about it is an Ack where it was taken and has no result yet, else its latest result.
pub struct About {
    task: KnownTask,
    task_id: TaskId,
    clock: Arc<dyn Sleep + Send + Sync>,
}

impl Service {
    /// The task of an issuer that came before. Who may send it may ask about it. To anybody else it is as unknown
    /// as one that never came, or that was forgotten.
    ///
    /// # Errors
    ///
    /// What to tell a peer, which is noted: a Nack `NOT_FOUND` where there is no such task for it, and `RATE_LIMIT` where it cannot
    /// be found out now whether it may ask: too many ask, the transcript cannot be read, or the hook says so or is silent for 30 s.
    pub async fn about(
        &self,
        peer: &Peer,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Result<About, Nack> {
        match About::find(self, peer, issuer, task_id).await {
            Ok(about) => Ok(about),
            Err(why) => Err(self.note(unanswered(task_id, why)).await),
        }
    }
}

impl About {
    /// The task, where the service knows it and the peer may send it. A hook that never answers must not keep a connection for ever.
    pub(super) async fn find(
        service: &Service,
        peer: &Peer,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Result<Self, Unanswered> {
        let clock = service.clock();
        let late = clock.sleep_until(clock.now().mono.saturating_add(MAX_AUTHORIZE));
        let known = pin!(KnownTask::of_issuer(
            service.processor(),
            peer,
            issuer,
            task_id
        ));
        let Either::Left((known, _)) = select(known, late).await else {
            return Err(Unanswered::Busy);
        };
        Ok(Self {
            task: known?,
            task_id: *task_id,
            clock: Arc::clone(clock),
        })
    }

    /// How far the task is; a Nack `RATE_LIMIT` where that cannot be read now, or not in 30 s.
    #[must_use]
    pub async fn latest(&self) -> Message {
        match self.task.latest(self.clock.as_ref()).await {
            Ok(standing) => self.message(standing),
            Err(why) => Message::Nack(unanswered(&self.task_id, why)),
        }
    }

    /// Has the task stopped where it runs, and tells how far it is. Its end comes as soon as its handler has
    /// stopped, CANCELLED where it had not ended by itself.
    // impl: SAP-5-8
    #[must_use]
    pub async fn cancel(&self) -> Message {
        self.task.cancel();
        self.latest().await
    }

    /// How far the task is, at once and then whenever that has changed; `None` after its end. One who asks seldom
    /// is told the latest, and misses what was between. Where 1,024 follow the task already, or its latest result cannot be
    /// read now, or not in 30 s, a Nack `RATE_LIMIT` says so, and is the last.
    pub async fn next(&mut self) -> Option<Message> {
        let standing = self.task.next(self.clock.as_ref()).await?;
        Some(self.message(standing))
    }

    fn message(&self, standing: Standing) -> Message {
        match standing {
            Standing::Taken(ack) => Message::Ack(ack),
            Standing::Result(result) => Message::Result(result),
            Standing::TooManyFollow(limit) => Message::Nack(too_many_follow(&self.task_id, limit)),
            Standing::Unreadable => Message::Nack(unanswered(&self.task_id, Unanswered::Busy)),
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

/// How long it may take to know whether somebody may ask about a task.
pub(super) const MAX_AUTHORIZE: Duration = Duration::from_secs(30);

pub(super) fn unanswered(task_id: &TaskId, why: Unanswered) -> Nack {
    match why {
        Unanswered::Unknown => unknown(task_id),
        Unanswered::Busy => {
            let why = "what is known of this task, or whether you may ask, cannot be found out now; try again later";
            nack(task_id, ErrorCode::RateLimit, why)
        }
    }
}

fn unknown(task_id: &TaskId) -> Nack {
    let why = "no task of this issuer and id is known here";
    nack(task_id, ErrorCode::NotFound, why)
}

fn too_many_follow(task_id: &TaskId, limit: usize) -> Nack {
    let why = format!("{limit} follow this task already; ask for its status");
    nack(task_id, ErrorCode::RateLimit, &why)
}

#[expect(clippy::expect_used, reason = "the reasons are texts of this file")]
fn nack(task_id: &TaskId, code: ErrorCode, why: &str) -> Nack {
    let reason = why.parse().expect("the reason is not blank");
    let mut nack = Nack::new(ReceiptStatus::Nack, code, reason);
    nack.message_id = Some(*task_id);
    nack
}
