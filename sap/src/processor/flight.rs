//! Single flight: equal tasks at the same time are computed once.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::Shared;

use crate::cache::CacheKey;

/// The outcomes that are being computed. There is at most one for each running task, which bounds them.
#[derive(Clone, Debug, Default)]
pub(super) struct SingleFlight(Arc<Mutex<BTreeMap<CacheKey, Completion>>>);

/// The part of a task in computing an outcome.
pub(super) enum Flight {
    /// It computes; the followers wait until the guard is dropped.
    Lead(LeaderGuard),
    /// Another task computes.
    Follow(Completion),
}

impl SingleFlight {
    pub(super) fn join(&self, key: CacheKey) -> Flight {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(completion) = flights.get(&key) {
            return Flight::Follow(completion.clone());
        }
        let (sender, receiver) = oneshot::channel();
        flights.insert(key, Completion(receiver.shared()));
        Flight::Lead(LeaderGuard {
            flights: self.clone(),
            key,
            _sender: sender,
        })
    }
}

/// Held by the leader until the outcome is stored or will not come.
pub(super) struct LeaderGuard {
    flights: SingleFlight,
    key: CacheKey,
    /// Its drop wakes the followers.
    _sender: oneshot::Sender<()>,
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        let mut flights = self
            .flights
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        flights.remove(&self.key);
    }
}

/// Ready when the leader has ended, with an outcome or without.
#[derive(Clone, Debug)]
pub(super) struct Completion(Shared<oneshot::Receiver<()>>);

impl Future for Completion {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_unpin(cx).map(|_| ())
    }
}
