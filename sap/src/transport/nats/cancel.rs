//! Which tasks of one worker are to be stopped.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_nats::{HeaderMap, Subscriber};
use futures::StreamExt as _;
use tokio::sync::mpsc;

/// Hands on what is said on the subjects of the tasks that run here.
#[derive(Debug, Default)]
pub(super) struct Cancels(Mutex<Listeners>);

/// By subject. A task that was delivered twice is listened for twice.
type Listeners = BTreeMap<String, Vec<mpsc::Sender<HeaderMap>>>;

/// What is said on the subject of one task, for as long as it runs.
pub(super) struct Told<'a> {
    cancels: &'a Cancels,
    subject: String,
    receiver: mpsc::Receiver<HeaderMap>,
}

impl Cancels {
    /// Hands on what comes, and never ends: without a connection there is nobody who could say anything.
    pub(super) async fn listen(&self, mut subscriber: Subscriber) {
        while let Some(message) = subscriber.next().await {
            let listeners = self.lock();
            let told = listeners.get(message.subject.as_str());
            if let Some((told, headers)) = told.zip(message.headers) {
                for listener in told {
                    // What was said this often and came to nothing may be left out.
                    let _ = listener.try_send(headers.clone());
                }
            }
        }
        core::future::pending().await
    }

    /// What is said from now on.
    pub(super) fn of(&self, subject: &str) -> Told<'_> {
        let (sender, receiver) = mpsc::channel(WAITING);
        self.lock()
            .entry(subject.to_owned())
            .or_default()
            .push(sender);
        Told {
            cancels: self,
            subject: subject.to_owned(),
            receiver,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told<'_> {
    /// The headers of the next one.
    pub(super) async fn next(&mut self) -> HeaderMap {
        match self.receiver.recv().await {
            Some(headers) => headers,
            None => core::future::pending().await,
        }
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        let mut listeners = self.cancels.lock();
        if let Some(told) = listeners.get_mut(&self.subject) {
            told.retain(|listener| !listener.is_closed());
            if told.is_empty() {
                listeners.remove(&self.subject);
            }
        }
    }
}

/// What waits for one task.
const WAITING: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_ended_is_listened_for_no_more() {
        let cancels = Cancels::default();
        let (first, second) = (cancels.of("a"), cancels.of("a"));
        assert_eq!(cancels.lock().get("a").map(Vec::len), Some(2));
        drop(first);
        assert_eq!(cancels.lock().get("a").map(Vec::len), Some(1));
        drop(second);
        assert!(cancels.lock().is_empty());
    }
}
