//! How many calls in a span of time: a bucket that fills evenly.

use core::time::Duration;

use ubos_common::time::Mono;

/// Calls, and the span of time that they are for.
pub(crate) type Rate = (u32, Duration);

/// What was taken out of a bucket. One that is new is full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// When it will be full again; the later, the emptier it is.
    full_at: Mono,
}

impl Bucket {
    /// Whether there is one more call in it; else the time until there is.
    pub(super) fn check(self, now: Mono, rate: Rate) -> Result<(), Duration> {
        // With one more call taken out it must not be full later than a whole span from now.
        let next = self.full_at.max(now).saturating_add(interval(rate));
        let latest = now.saturating_add(rate.1);
        match next <= latest {
            true => Ok(()),
            false => Err(next.saturating_since(latest)),
        }
    }

    /// Takes a call out.
    pub(super) fn take(&mut self, now: Mono, rate: Rate) {
        self.full_at = self.full_at.max(now).saturating_add(interval(rate));
    }

    pub(super) fn is_full(self, now: Mono) -> bool {
        self.full_at <= now
    }
}

/// The time in which a bucket gets one call back.
fn interval((calls, span): Rate) -> Duration {
    span / calls.max(1)
}
