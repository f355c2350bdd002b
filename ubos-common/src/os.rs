//! What only the operating system has: randomness and clocks.
//!
//! The one module outside `transport/` and `store/` that reads a clock, so that drivers need not each do it.

use core::fmt;

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::id::{Generator, IdSource};
use crate::time::{Mono, Now, Timestamp};

/// A generator that was seeded by the operating system once, so that no id costs a system call.
struct OsSeeded(ChaCha12Rng);

impl Generator for OsSeeded {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }
}

impl IdSource {
    /// A source that the operating system seeds: unpredictable, and no system call an id.
    ///
    /// # Errors
    ///
    /// The operating system gave no randomness.
    ///
    /// ```
    /// use ubos_common::id::IdSource;
    ///
    /// let mut ids = IdSource::from_os()?;
    /// assert_ne!(ids.uuid(), ids.uuid());
    /// # Ok::<(), ubos_common::os::OsError>(())
    /// ```
    pub fn from_os() -> Result<Self, OsError> {
        let mut seed = Zeroizing::new([0; 32]);
        fill_random(seed.as_mut())?;
        Ok(Self::from_generator(OsSeeded(ChaCha12Rng::from_seed(
            *seed,
        ))))
    }
}

/// Fills `bytes` from the operating system's generator: for tokens and keys.
///
/// # Errors
///
/// The operating system gave no randomness.
pub fn fill_random(bytes: &mut [u8]) -> Result<(), OsError> {
    getrandom::fill(bytes).map_err(|_| OsError::Randomness)
}

/// The system's clocks, read together.
///
/// [`Mono`] counts from the moment the clock was made.
#[derive(Clone, Copy)]
pub struct Clock {
    zero: std::time::Instant,
}

impl Clock {
    /// A clock whose monotonic zero is now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where drivers get the time"
    )]
    pub fn start() -> Self {
        Self {
            zero: std::time::Instant::now(),
        }
    }

    /// Both clocks now; the calendar clock to the millisecond, which is what the wire carries. Before 1970 it
    /// reads as the epoch, after the year 9999 as the last millisecond of that year.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where drivers get the time"
    )]
    pub fn now(&self) -> Now {
        let mono = Mono::ZERO.saturating_add(self.zero.elapsed());
        let wall = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Timestamp::EPOCH.saturating_add(since).truncated_to_millis(),
            Err(_) => Timestamp::EPOCH,
        };
        Now::new(mono, wall)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// The operating system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OsError {
    /// No randomness is to be had.
    #[error("the operating system gave no randomness")]
    Randomness,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sources_differ_and_cannot_be_copied() {
        let (mut one, mut two) = (IdSource::from_os().unwrap(), IdSource::from_os().unwrap());
        assert_ne!(one.uuid(), two.uuid());
        assert!(one.snapshot().is_none());
    }

    #[test]
    fn clocks_go_forward() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.now());
        assert!(second.mono >= first.mono && first.wall.unix() > 1_700_000_000);
    }
}
