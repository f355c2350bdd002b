//! What only the operating system has: randomness and clocks.
//!
//! The one module outside `transport/` and `store/` that reads a clock, so that drivers need not each do it.

use core::fmt;

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::id::{Generator, IdSource};
use crate::time::{Mono, Now, Timestamp};

/// A generator that the operating system seeds once, and again in a process that was forked.
struct OsSeeded {
    generator: ChaCha12Rng,
    /// The process that it was seeded in; `None` where it does not fork.
    process: Option<u32>,
}

impl OsSeeded {
    fn new(process: Option<u32>) -> Result<Self, OsError> {
        let mut seed = Zeroizing::new([0; 32]);
        fill_random(seed.as_mut())?;
        let generator = ChaCha12Rng::from_seed(*seed);
        Ok(Self { generator, process })
    }

    /// A fork has the parent's generator: both would make the same ids.
    fn leave_parent(&mut self, process: u32) {
        match Self::new(Some(process)) {
            Ok(fresh) => *self = fresh,
            Err(_) => self.take_stream(process),
        }
    }

    /// Without randomness the child takes another stream of the same key, as secret as the parent's.
    fn take_stream(&mut self, process: u32) {
        let streams = self.generator.get_stream() ^ (u64::from(process) << 32);
        self.generator.set_stream(streams.wrapping_add(1));
        self.process = Some(process);
    }
}

impl Generator for OsSeeded {
    fn next_two(&mut self) -> [u64; 2] {
        if let Some(seeded_in) = self.process {
            let process = process();
            if seeded_in != process {
                self.leave_parent(process);
            }
        }
        [self.generator.next_u64(), self.generator.next_u64()]
    }
}

/// The number of this process, where processes fork.
fn process() -> u32 {
    if cfg!(unix) { std::process::id() } else { 0 }
}

impl IdSource {
    /// A source that the operating system seeds: unpredictable, and seeded anew in a forked process, so that
    /// parent and child make different ids.
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
        OsSeeded::new(Some(process())).map(Self::from_generator)
    }

    /// As [`from_os`](Self::from_os), for a process that does not fork, or only to run another program at once, as one with an
    /// asynchronous runtime does. It saves a system call an id.
    ///
    /// # Errors
    ///
    /// The operating system gave no randomness.
    pub fn from_os_without_forks() -> Result<Self, OsError> {
        OsSeeded::new(None).map(Self::from_generator)
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

impl Timestamp {
    /// The calendar clock of the system, to the millisecond, which is what the wire carries. Before 1970 it reads as
    /// the epoch, after the year 9999 as the last millisecond of that year. What also measures time reads [`Clock`].
    ///
    /// ```
    /// use ubos_common::time::Timestamp;
    ///
    /// assert!(Timestamp::now() > Timestamp::EPOCH);
    /// ```
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where drivers get the time"
    )]
    pub fn now() -> Self {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Self::EPOCH.saturating_add(since).truncated_to_millis(),
            Err(_) => Self::EPOCH,
        }
    }
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
    pub fn now(&self) -> Now {
        Now::new(self.mono(), Timestamp::now())
    }

    /// The monotonic clock now, for who can do without the calendar.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono::ZERO.saturating_add(self.zero.elapsed())
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
    fn a_forked_process_leaves_its_parents_stream() {
        let at = |process| OsSeeded {
            generator: ChaCha12Rng::from_seed([7; 32]),
            process,
        };
        let own = || at(Some(process()));
        let mut parent = own();
        let next = |source: &mut OsSeeded| source.next();
        assert_eq!(next(&mut parent), next(&mut own()));
        // As a child sees it: the process that seeded the generator is another one.
        let mut child = at(Some(process().wrapping_add(1)));
        parent = own();
        assert_ne!(next(&mut parent), next(&mut child));
        assert_eq!(child.process, Some(process()));
        assert_eq!(next(&mut at(None)), next(&mut own()), "nobody asks");
        // Two children for whom there is no randomness.
        let (mut one, mut other) = (own(), own());
        one.take_stream(1);
        other.take_stream(2);
        let ids = [one, other, own()].map(|mut source| source.generator.next_u64());
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
        #[cfg(unix)]
        assert_eq!(process(), std::process::id(), "a child has another");
    }

    #[test]
    fn clocks_go_forward() {
        let clock = Clock::start();
        let (first, second) = (clock.now(), clock.now());
        assert!(second.mono >= first.mono && first.wall.unix() > 1_700_000_000);
    }
}
