//! Single flight: what is computed already is waited for, not computed again.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::Shared;

use crate::cache::CacheKey;

/// The outcomes that are being computed: at most one a running task, which bounds them.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<BTreeMap<CacheKey, Landed>>>);

/// A task's part in computing an outcome.
pub(super) enum Flight {
    /// It computes; the others wait until this is dropped.
    Lead(Landing),
    /// Another one computes.
    Follow(Landed),
}

impl Flights {
    pub(super) fn join(&self, key: CacheKey) -> Flight {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(landed) = flights.get(&key) {
            return Flight::Follow(landed.clone());
        }
        let (sender, receiver) = oneshot::channel();
        flights.insert(key, Landed(receiver.shared()));
        Flight::Lead(Landing {
            flights: self.clone(),
            key,
            _sender: sender,
        })
    }
}

/// Dropped when the outcome is kept, or will not come.
pub(super) struct Landing {
    flights: Flights,
    key: CacheKey,
    /// Its drop wakes those who wait.
    _sender: oneshot::Sender<()>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self
            .flights
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        flights.remove(&self.key);
    }
}

/// Ready when the one that computes has ended, however.
#[derive(Clone, Debug)]
pub(super) struct Landed(Shared<oneshot::Receiver<()>>);

impl Future for Landed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_unpin(cx).map(|_| ())
    }
}
