//! Places for tasks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;

use crate::trace;

/// Places on the bus, given in the order in which they were asked for.
#[derive(Debug)]
pub(super) struct Places(Mutex<Free>);

#[derive(Debug)]
struct Free {
    places: usize,
    /// The callers' own futures, as many as wait.
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// One place; it goes to the next who waits when it is dropped, wherever that happens.
#[derive(Debug)]
pub(super) struct Place(Option<Arc<Places>>);

impl Places {
    pub(super) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Free {
            places,
            waiting: VecDeque::new(),
        })))
    }

    pub(super) fn try_take(self: &Arc<Self>) -> Option<Place> {
        self.take_of(&mut lock(&self.0))
    }

    fn take_of(self: &Arc<Self>, free: &mut Free) -> Option<Place> {
        free.places = free.places.checked_sub(1)?;
        Some(Place(Some(Arc::clone(self))))
    }

    pub(super) async fn take(self: &Arc<Self>) -> Option<Place> {
        let receiver = {
            // Looked at and waited for under one lock: a place that is given back between would wake nobody.
            let mut free = lock(&self.0);
            if let Some(place) = self.take_of(&mut free) {
                return Some(place);
            }
            let (sender, receiver) = oneshot::channel();
            free.waiting.retain(|waiting| !waiting.is_canceled());
            free.waiting.push_back(sender);
            trace::queue("bus", free.waiting.len(), usize::MAX);
            receiver
        };
        receiver.await.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.0.take() else { return };
        loop {
            let next = {
                let mut free = lock(&places.0);
                let next = free.waiting.pop_front();
                if next.is_none() {
                    free.places += 1;
                }
                next
            };
            let Some(next) = next else { return };
            // Given without the lock: one that nobody takes comes back through here.
            match next.send(Self(Some(Arc::clone(&places)))) {
                Ok(()) => return,
                Err(mut back) => back.0 = None,
            }
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn those_who_wait_no_more_are_forgotten() {
        let places = Places::new(1);
        let place = places.try_take().unwrap();
        for _ in 0..100 {
            assert!(places.take().now_or_never().is_none());
        }
        assert_eq!(lock(&places.0).waiting.len(), 1);
        drop(place);
        assert!(places.try_take().is_some());
    }

    #[test]
    fn a_place_goes_to_one_who_waits_or_is_free_again() {
        let places = Places::new(1);
        drop(places.try_take().unwrap());
        let place = places.try_take().unwrap();
        let mut waiting = Box::pin(places.take());
        assert!((&mut waiting).now_or_never().is_none());
        drop(place);
        // It belongs to the one who waits.
        assert!(places.try_take().is_none());
        drop(waiting.now_or_never().unwrap());
        assert!(places.try_take().is_some());
    }
}
