//! Tasks that came before, for those who ask what became of them.

use std::sync::Arc;

use super::guard::guarded;
use super::ledger::{Before, Key, MAX_FOLLOWERS, Sight};
use super::peer::Peer;
use super::state::Processor;
use crate::ident::{AgentId, TaskId};
use crate::receipt::Ack;
use crate::result::TaskResult;
use crate::role::consumer::Access;
use crate::task::Task;
use crate::validate::{Options, decode_result};
use crate::work;

/// A task that came before, for a peer that may ask about it.
pub(crate) struct KnownTask {
    processor: Arc<Processor>,
    key: Key,
    task: Arc<Task>,
    /// Results that were looked at.
    seen: Option<u64>,
    has_ended: bool,
}

/// How far a task is.
pub(crate) enum Standing {
    /// It was taken; nothing was said of it yet.
    Taken(Ack),
    /// Its latest result.
    Result(Box<TaskResult>),
    /// As many as may follow it already.
    TooManyFollow(usize),
}

impl KnownTask {
    /// The task of an issuer, where it is known and the peer could have brought it: who may send a task may ask
    /// about it, and nobody else is told that it is here.
    pub(crate) async fn of_issuer(
        processor: &Arc<Processor>,
        peer: &Peer,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Option<Self> {
        let key = Key::new(*task_id, issuer.clone());
        let task = match processor.ledger.before(&key)? {
            Before::Unwritten(task) => task,
            Before::Written(entry) => {
                let read = guarded(processor.read_task(entry)).await.ok()?;
                let (task, _) = read.ok()??;
                Arc::new(task)
            }
        };
        if !processor.allows(peer, &task).await {
            return None;
        }
        Some(Self {
            processor: Arc::clone(processor),
            key,
            task,
            seen: None,
            has_ended: false,
        })
    }

    /// Has the task stopped, where it runs; true then.
    pub(crate) fn cancel(&self) -> bool {
        self.processor.ledger.cancel(&self.key)
    }

    /// How far it is; `None` where it was forgotten since.
    pub(crate) async fn latest(&self) -> Option<Standing> {
        match self.processor.ledger.look(&self.key, None) {
            Sight::Latest { encoded, .. } => Some(self.standing(encoded).await),
            Sight::Wait(_) | Sight::Full | Sight::Unknown => None,
        }
    }

    /// How far it is, at once and then whenever that has changed; `None` after its end. One who asks seldom is
    /// told the latest, and misses what was between. Where as many as may follow it already, that is the last.
    pub(crate) async fn next(&mut self) -> Option<Standing> {
        while !self.has_ended {
            match self.processor.ledger.look(&self.key, self.seen) {
                Sight::Latest { encoded, results } => {
                    let standing = self.standing(encoded).await;
                    self.seen = Some(results);
                    self.has_ended = standing.is_end();
                    return Some(standing);
                }
                // It is woken by being dropped.
                Sight::Wait(changed) => drop(changed.await),
                Sight::Full => {
                    self.has_ended = true;
                    return Some(Standing::TooManyFollow(MAX_FOLLOWERS));
                }
                Sight::Unknown => self.has_ended = true,
            }
        }
        None
    }

    async fn standing(&self, encoded: Option<Arc<[u8]>>) -> Standing {
        match read_result(encoded).await {
            Some(result) => Standing::Result(result),
            None => Standing::Taken(Ack::from(self.task.as_ref())),
        }
    }
}

/// A result that was said before: read at once where it is short, on another thread where it is not.
pub(super) async fn read_result(encoded: Option<Arc<[u8]>>) -> Option<Box<TaskResult>> {
    let encoded = encoded?;
    let read = work::wanted(encoded.len(), move || {
        decode_result(&encoded, &Options::default()).ok()
    });
    read.await.map(|(result, _)| Box::new(result))
}

impl Standing {
    fn is_end(&self) -> bool {
        match self {
            Self::Taken(_) | Self::TooManyFollow(_) => false,
            Self::Result(result) => result.status.is_terminal(),
        }
    }
}

impl Processor {
    /// What the hook says of a task, where not too many wait for it.
    pub(super) async fn access(&self, peer: &Peer, task: &Task) -> Access {
        let Some(_waits) = self.gate.enter() else {
            return Access::Busy;
        };
        self.authorize.authorize(peer, task).await
    }

    /// Whether a peer may have this task done.
    pub(crate) async fn allows(&self, peer: &Peer, task: &Task) -> bool {
        let access = guarded(self.access(peer, task)).await;
        matches!(access, Ok(Access::Allowed))
    }
}
