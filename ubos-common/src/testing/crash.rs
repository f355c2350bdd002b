//! Crashes at every durable effect of a run, one run each.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Decides at which durable effect of a run the process dies.
///
/// ```
/// use ubos_common::testing::CrashPoint;
///
/// let mut runs = 0;
/// CrashPoint::at_each(|crash| {
///     runs += 1;
///     // A run with three durable effects, which goes on after the crash.
///     (0..3).filter(|_| crash.is_now()).count();
/// });
/// assert_eq!(runs, 4, "one crash at each of the three, and a run without any");
/// ```
#[derive(Clone, Debug)]
pub struct CrashPoint {
    at: usize,
    seen: Arc<AtomicUsize>,
}

impl CrashPoint {
    /// Never crashes, and counts the effects.
    #[must_use]
    pub fn never() -> Self {
        Self::at(usize::MAX)
    }

    /// Crashes at the durable effect with this number, from 0.
    #[must_use]
    pub fn at(effect: usize) -> Self {
        Self {
            at: effect,
            seen: Arc::default(),
        }
    }

    /// Runs `run` with a crash at the first durable effect, then at the second, and so on; the last run has
    /// fewer effects than that, and no crash.
    pub fn at_each(mut run: impl FnMut(&Self)) {
        for effect in 0.. {
            let crash = Self::at(effect);
            run(&crash);
            if crash.seen() <= effect {
                return;
            }
        }
    }

    /// Counts a durable effect. True where the process dies at it.
    #[must_use]
    pub fn is_now(&self) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed) == self.at
    }

    /// Durable effects so far.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}
