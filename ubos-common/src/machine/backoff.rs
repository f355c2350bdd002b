//! Delays between attempts.

use core::time::Duration;

use crate::id::IdSource;

/// Delays that double up to a ceiling: how long to wait before the next attempt.
///
/// ```
/// use core::time::Duration;
/// use ubos_common::machine::Backoff;
///
/// let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// let delays: Vec<u64> = (0..8).map(|_| backoff.next_delay().as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
/// backoff.reset();
/// assert_eq!(backoff.next_delay().as_secs(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    next: Duration,
    attempts: u32,
}

impl Backoff {
    /// Delays from `first`, doubling, never above `ceiling`.
    #[must_use]
    pub fn new(first: Duration, ceiling: Duration) -> Self {
        let next = first.min(ceiling);
        Self {
            first: next,
            ceiling,
            next,
            attempts: 0,
        }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.ceiling);
        self.attempts = self.attempts.saturating_add(1);
        delay
    }

    /// As [`Backoff::next_delay`], drawn evenly from the upper half of the delay, so that many peers that
    /// lost one server do not come back at once.
    pub fn next_delay_with_jitter(&mut self, ids: &mut IdSource) -> Duration {
        let delay = self.next_delay();
        let half = u64::try_from(delay.as_nanos() / 2).unwrap_or(u64::MAX);
        delay - Duration::from_nanos(ids.bits() % half.saturating_add(1))
    }

    /// Attempts since the start or the last [`Backoff::reset`].
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Begins anew: an attempt went well.
    pub const fn reset(&mut self) {
        self.next = self.first;
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_the_upper_half() {
        let mut ids = IdSource::seeded(1);
        for _ in 0..1000 {
            let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
            let delay = backoff.next_delay_with_jitter(&mut ids);
            assert!((Duration::from_millis(5)..=Duration::from_millis(10)).contains(&delay));
        }
        let mut zero = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(zero.next_delay_with_jitter(&mut ids), Duration::ZERO);
    }
}
