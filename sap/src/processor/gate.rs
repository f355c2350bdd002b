//! How many tasks wait for a hook to say who may have them done.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Places before the hook. Whoever brings a task has shown nothing yet, so these are few.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicUsize);

/// A place, until it is dropped.
pub(super) struct Waits<'a>(&'a Gate);

impl Gate {
    /// A place, where one is free.
    pub(super) fn enter(&self) -> Option<Waits<'_>> {
        let more = |waiting: usize| (waiting < MAX_AUTHORIZING).then_some(waiting + 1);
        let entered = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.ok().map(|_| Waits(self))
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tasks, and questions about tasks, that wait for the hook at the same time.
const MAX_AUTHORIZING: usize = 256;
