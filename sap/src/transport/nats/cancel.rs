//! Which tasks of one worker are to be stopped.
//!
//! What stops a task is stored, and is looked at in the order in which it came: nobody displaces what somebody else
//! said. What comes while a task runs only wakes who looks, so that none is lost where many come.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::StreamMessage;
use futures::StreamExt as _;
use tokio::sync::mpsc;

use super::{Queue, QueueError};

/// Wakes those whose tasks run here when something is stored on their subjects.
#[derive(Debug, Default)]
pub(super) struct Cancels(Mutex<Listeners>);

/// By subject. A task that was delivered twice is listened for twice.
type Listeners = BTreeMap<String, Vec<mpsc::Sender<()>>>;

/// What is stored on the subject of one task, for as long as it runs.
pub(super) struct Stored<'a> {
    cancels: &'a Cancels,
    subject: String,
    woken: mpsc::Receiver<()>,
    /// From which message of the stream on nothing was looked at.
    next: u64,
}

impl Queue {
    /// All that is stored from now on to stop tasks.
    pub(super) async fn cancels(&self) -> Result<pull::Ordered, QueueError> {
        let consumer = pull::OrderedConfig {
            filter_subject: format!("{}.cancel.>", self.config.name),
            deliver_policy: DeliverPolicy::New,
            ..pull::OrderedConfig::default()
        };
        let consumer = self.out.create_consumer(consumer).await;
        let messages = consumer.map_err(QueueError::nats)?.messages().await;
        messages.map_err(QueueError::nats)
    }
}

impl Cancels {
    /// Wakes who is concerned, and never ends: without a connection there is nobody who could say anything.
    pub(super) async fn listen(&self, mut messages: pull::Ordered) {
        while let Some(message) = messages.next().await {
            let message = message.ok();
            let subject = message.as_ref().map(|message| message.subject.as_str());
            for (of, listeners) in &*self.lock() {
                // After a fault somebody may have said something of any.
                if subject.is_none_or(|subject| subject == of) {
                    for listener in listeners {
                        // One who was woken before, and did not look yet, sees this too.
                        let _ = listener.try_send(());
                    }
                }
            }
        }
        core::future::pending().await
    }

    /// What is stored on a subject. Whoever looks after this misses nothing.
    pub(super) fn of(&self, subject: String) -> Stored<'_> {
        let (sender, woken) = mpsc::channel(1);
        self.lock().entry(subject.clone()).or_default().push(sender);
        Stored {
            cancels: self,
            subject,
            woken,
            next: 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored<'_> {
    /// Waits until there is more to look at.
    pub(super) async fn more(&mut self) {
        if self.woken.recv().await.is_none() {
            core::future::pending().await
        }
    }

    /// The number of the last that is stored by now.
    pub(super) async fn last(&self, queue: &Queue) -> Result<Option<u64>, QueueError> {
        let last = queue.last_stored(&self.subject).await?;
        Ok(last.map(|message| message.sequence))
    }

    /// The next that was not looked at.
    pub(super) async fn next(&self, queue: &Queue) -> Result<Option<StreamMessage>, QueueError> {
        queue.stored_from(&self.subject, self.next).await
    }

    /// One was looked at.
    pub(super) const fn pass(&mut self, message: &StreamMessage) {
        self.next = message.sequence.saturating_add(1);
    }
}

impl Drop for Stored<'_> {
    fn drop(&mut self) {
        self.woken.close();
        let mut listeners = self.cancels.lock();
        if let Some(stored) = listeners.get_mut(&self.subject) {
            stored.retain(|listener| !listener.is_closed());
            if stored.is_empty() {
                listeners.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_ended_is_listened_for_no_more() {
        let cancels = Cancels::default();
        let (first, second) = (cancels.of("a".into()), cancels.of("a".into()));
        assert_eq!(cancels.lock().get("a").map(Vec::len), Some(2));
        drop(first);
        assert_eq!(cancels.lock().get("a").map(Vec::len), Some(1));
        drop(second);
        assert!(cancels.lock().is_empty());
    }
}
