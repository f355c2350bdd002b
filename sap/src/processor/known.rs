//! Tasks that came before, for those who ask what became of them.

use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use futures::future::{Either, select};
use ubos_common::driver::Sleep;

use super::gate::Waits;
use super::guard::{Fragile, guarded};
use super::key::Key;
use super::ledger::{Before, Latest, MAX_FOLLOWERS, Sight};
use super::peer::Peer;
use super::recorded::Unread;
use super::state::Processor;
use crate::ident::{AgentId, TaskId};
use crate::receipt::Ack;
use crate::result::TaskResult;
use crate::role::consumer::Access;
use crate::task::Task;
use crate::work::For;

/// A task that came before, for a peer that may ask about it.
pub(crate) struct KnownTask {
    processor: Arc<Processor>,
    key: Key,
    task: Arc<Task>,
    /// Results that were looked at.
    seen: Option<u64>,
    has_ended: bool,
}

/// Why a peer is told nothing about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It is not here, or is no business of the peer.
    Unknown,
    /// Whether the peer may ask cannot be found out now, or what it asks for cannot be read now.
    Busy,
}

impl From<Unread> for Unanswered {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Lost => Self::Unknown,
            Unread::Now => Self::Busy,
        }
    }
}

/// How far a task is.
pub(crate) enum Standing {
    /// It was taken; nothing was said of it yet.
    Taken(Ack),
    /// Its latest result.
    Result(Box<TaskResult>),
    /// As many as may follow it already.
    TooManyFollow(usize),
    /// Its latest result cannot be read now. Nothing follows: who asks again may learn it.
    Unreadable,
}

impl KnownTask {
    /// The task of an issuer, where it is known and the peer could have brought it: who may send a task may ask
    /// about it, and nobody else is told that it is here.
    pub(crate) async fn of_issuer(
        processor: &Arc<Processor>,
        peer: &Peer,
        issuer: &AgentId,
        task_id: &TaskId,
    ) -> Result<Self, Unanswered> {
        // Before it is looked for: that too many ask tells nobody whether it is here.
        let Some(_waits) = processor.gate.enter() else {
            return Err(Unanswered::Busy);
        };
        let key = Key::new(*task_id, issuer);
        let task = match processor.ledger.before(&key).ok_or(Unanswered::Unknown)? {
            Before::Unwritten(task) => task,
            Before::Written(entry) => {
                let read = guarded(processor.read_task(For::Stranger, entry)).await;
                let read = read.map_err(Unread::from).and_then(|read| Ok(read?));
                Arc::new(read?.ok_or(Unanswered::Unknown)?.0)
            }
        };
        let access = async { Fragile::from(processor.authorize.authorize(peer, &task)).await };
        match guarded(access).await {
            Ok(Access::Allowed) => {}
            Ok(Access::Busy) => return Err(Unanswered::Busy),
            _ => return Err(Unanswered::Unknown),
        }
        Ok(Self {
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

    /// How far it is. It is unknown where it was forgotten since, or its result is here no more.
    pub(crate) async fn latest(
        &self,
        clock: &(dyn Sleep + Send + Sync),
    ) -> Result<Standing, Unanswered> {
        match self.processor.ledger.look(&self.key, None) {
            Sight::Latest { latest, .. } => Ok(self.standing(clock, latest).await?),
            Sight::Wait(_) | Sight::Full | Sight::Unknown => Err(Unanswered::Unknown),
        }
    }

    /// How far it is, at once and then whenever that has changed; `None` after its end, or where that cannot be read. One who asks seldom is
    /// told the latest, and misses what was between. Where as many as may follow it already, that is the last.
    pub(crate) async fn next(&mut self, clock: &(dyn Sleep + Send + Sync)) -> Option<Standing> {
        while !self.has_ended {
            match self.processor.ledger.look(&self.key, self.seen) {
                Sight::Latest { latest, results } => {
                    let standing = match self.standing(clock, latest).await {
                        Ok(standing) => Some(standing),
                        Err(Unread::Lost) => None,
                        Err(Unread::Now) => Some(Standing::Unreadable),
                    };
                    self.seen = Some(results);
                    self.has_ended = standing.as_ref().is_none_or(Standing::is_end);
                    return standing;
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

    /// What there is to tell. What is not read in time cannot be read now.
    async fn standing(
        &self,
        clock: &(dyn Sleep + Send + Sync),
        latest: Latest,
    ) -> Result<Standing, Unread> {
        let late = clock.sleep_until(clock.now().mono.saturating_add(MAX_READING));
        let read = pin!(self.processor.read_latest(latest));
        let Either::Left((read, _)) = select(read, late).await else {
            return Err(Unread::Now);
        };
        Ok(match read? {
            Some(result) => Standing::Result(result),
            None => Standing::Taken(Ack::from(self.task.as_ref())),
        })
    }
}

/// How long it may take to read how far a task is.
const MAX_READING: Duration = Duration::from_secs(30);

impl Standing {
    fn is_end(&self) -> bool {
        match self {
            Self::Taken(_) | Self::TooManyFollow(_) => false,
            Self::Unreadable => true,
            Self::Result(result) => result.status.is_terminal(),
        }
    }
}

impl Processor {
    /// What the hook says of a task, where not too many wait for it, and the place among those.
    pub(super) async fn access(&self, peer: &Peer, task: &Task) -> (Access, Option<Waits>) {
        let Some(waits) = self.gate.enter() else {
            return (Access::Busy, None);
        };
        let access = Fragile::from(self.authorize.authorize(peer, task)).await;
        (access, Some(waits))
    }

    /// Whether the hook shows a peer that a capability is here.
    #[cfg(feature = "mcp")]
    pub(crate) fn shows(&self, peer: &Peer, capability: &crate::Capability) -> bool {
        self.authorize.shows(peer, capability)
    }

    /// Whether a peer may have this task done; `None` where too many ask.
    #[cfg(feature = "nats")]
    pub(crate) async fn allows(&self, peer: &Peer, task: &Task) -> Option<bool> {
        match guarded(self.access(peer, task)).await {
            Ok((Access::Busy, _)) => None,
            access => Some(matches!(access, Ok((Access::Allowed, _)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt as _;
    use futures::executor::block_on;
    use futures::future::BoxFuture;
    use ubos_common::json::RawBuf;

    use super::super::fixture::{Still, TASK, processor};
    use super::super::{Answer, Authorize, Config, Context, Delivery, HandlerError, Outcome};
    use super::*;
    use crate::status::Status;
    use crate::store::MemoryTranscript;

    // spec: SAP-5-10, SAP-5-2
    #[test]
    fn a_task_whose_run_was_dropped_has_its_own_end_though_nothing_may_be_kept_in_memory() {
        let transcript = Arc::new(MemoryTranscript::default());
        let config = Config::default().with_max_remembered_bytes(0);
        let hangs = |_: Context| futures::future::pending::<Result<Outcome, HandlerError>>();
        let processor = processor(transcript, config).handle("text.echo".parse().unwrap(), hangs);
        let mut sink = |_: Delivery<'_>| {};
        let mut run = Box::pin(processor.process(&Still, TASK.as_bytes(), &mut sink));
        assert!((&mut run).now_or_never().is_none());
        drop(run);
        let mut sink = |_: Delivery<'_>| {};
        let again = processor.process(&Still, TASK.as_bytes(), &mut sink);
        let Answer::Result(again) = again.now_or_never().unwrap().unwrap() else {
            panic!("it is turned away");
        };
        assert_eq!(again.status, Status::Failed);
    }

    // spec: SAP-5-10, SAP-10-1
    #[test]
    fn who_follows_a_task_has_its_end_though_nothing_may_be_kept_in_memory() {
        let transcript = Arc::new(MemoryTranscript::default());
        let config = Config::default().with_max_remembered_bytes(0);
        let echo = |_: Context| async {
            let output = RawBuf::parse("\"said\"").map_err(HandlerError::from)?;
            Ok::<_, HandlerError>(Outcome::new(output))
        };
        let processor = processor(transcript, config).handle("text.echo".parse().unwrap(), echo);
        let processor = Arc::new(processor);
        let run = || {
            let mut sink = |_: Delivery<'_>| {};
            block_on(processor.process(&Still, TASK.as_bytes(), &mut sink)).unwrap()
        };
        let first = run();
        assert_eq!(first, run());
        let (peer, id) = (Peer::default(), "00000000-0000-0000-0000-000000000001");
        let (issuer, id) = ("A-prime".parse().unwrap(), id.parse().unwrap());
        let mut known = block_on(KnownTask::of_issuer(&processor, &peer, &issuer, &id))
            .ok()
            .unwrap();
        for standing in [
            block_on(known.latest(&Still)).ok(),
            block_on(known.next(&Still)),
        ] {
            let Some(Standing::Result(result)) = standing else {
                panic!("its result is not there");
            };
            assert_eq!(result.status, Status::Succeeded);
            assert_eq!(result.output.unwrap().as_str(), "\"said\"");
        }
        assert!(block_on(known.next(&Still)).is_none());
    }

    /// Lets the first in, and then answers nobody.
    #[derive(Debug, Default)]
    struct Silent(AtomicBool);

    impl Authorize for Silent {
        fn authorize<'a>(&'a self, _: &'a Peer, _: &'a Task) -> BoxFuture<'a, Access> {
            match self.0.swap(true, Ordering::SeqCst) {
                false => Box::pin(core::future::ready(Access::Allowed)),
                true => Box::pin(core::future::pending()),
            }
        }
    }

    // spec: SAP-11-2
    #[test]
    fn while_too_many_ask_nobody_learns_which_tasks_are_here() {
        let transcript = Arc::new(MemoryTranscript::default());
        let hangs = |_: Context| futures::future::pending::<Result<Outcome, HandlerError>>();
        let processor = processor(transcript, Config::default())
            .authorize(Arc::new(Silent::default()))
            .handle("text.echo".parse().unwrap(), hangs);
        let processor = Arc::new(processor);
        let mut sink = |_: Delivery<'_>| {};
        let mut run = Box::pin(processor.process(&Still, TASK.as_bytes(), &mut sink));
        assert!((&mut run).now_or_never().is_none());
        let (peer, issuer) = (Peer::default(), "A-prime".parse().unwrap());
        let [here, nowhere] = [1, 2].map(|id| {
            let id = format!("00000000-0000-0000-0000-{id:012}");
            id.parse().unwrap()
        });
        let ask = |id| Box::pin(KnownTask::of_issuer(&processor, &peer, &issuer, id));
        let mut asking = Vec::new();
        let busy = loop {
            let mut one = ask(&here);
            match (&mut one).now_or_never() {
                None => asking.push(one),
                Some(busy) => break busy,
            }
            assert!(asking.len() < 10_000, "they have a bound");
        };
        assert_eq!(busy.err(), Some(Unanswered::Busy));
        let unknown = block_on(ask(&nowhere));
        assert_eq!(unknown.err(), Some(Unanswered::Busy));
        #[cfg(feature = "nats")]
        {
            let options = crate::validate::Options::default();
            let (task, _) = crate::validate::decode_task(TASK.as_bytes(), &options).unwrap();
            assert_eq!(block_on(processor.allows(&peer, &task)), None);
        }
        drop(asking);
        let unknown = block_on(ask(&nowhere));
        assert_eq!(unknown.err(), Some(Unanswered::Unknown));
    }
}
