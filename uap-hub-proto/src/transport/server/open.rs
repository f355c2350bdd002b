//! The calls of a connection that are open, which keep it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The calls of a connection, without those that do not keep it.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    open: AtomicUsize,
}

impl OpenCalls {
    /// A call has come.
    pub(super) fn add(&self) -> OpenCall {
        self.0.made.fetch_add(1, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenCall(self.clone())
    }

    /// How many were made.
    pub(super) fn made(&self) -> usize {
        self.0.made.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) == 0
    }
}

/// A call that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenCall(OpenCalls);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_while_they_are_open_and_for_ever() {
        let calls = OpenCalls::default();
        assert!(calls.is_empty() && calls.made() == 0);
        for made in 1..=2 {
            let open = calls.add();
            assert!(!calls.is_empty());
            drop(open);
            assert!(calls.is_empty() && calls.made() == made);
        }
    }
}
