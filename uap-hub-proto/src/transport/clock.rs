//! The clocks of a driver.

use std::time::Duration;

use ubos_common::{
    os,
    time::{Mono, Now},
};

/// How long a reading of the calendar clock holds: it is read to the millisecond.
const HOLDS: Duration = Duration::from_millis(1);

/// The system's clocks. A session reads them a dozen times, so the calendar clock, which only stands in reports, is read once a
/// millisecond.
#[derive(Debug)]
pub(super) struct Clock {
    clock: os::Clock,
    /// When both were read.
    read: Now,
}

impl Clock {
    pub(super) fn start() -> Self {
        let clock = os::Clock::start();
        Self {
            clock,
            read: clock.now(),
        }
    }

    /// The time; the calendar's part may be a millisecond old.
    pub(super) fn now(&mut self) -> Now {
        let clock = self.clock;
        self.since(clock.mono(), || clock.now())
    }

    fn since(&mut self, mono: Mono, both: impl FnOnce() -> Now) -> Now {
        if mono.saturating_since(self.read.mono) >= HOLDS {
            self.read = both();
            return self.read;
        }
        Now::new(mono, self.read.wall)
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::time::Timestamp;

    use super::*;

    #[test]
    fn the_calendar_is_read_once_a_millisecond() {
        let mut clock = Clock::start();
        let at = |nanos| Mono::from_nanos(clock.read.mono.as_nanos() + nanos);
        let (soon, later) = (at(999_999), at(1_000_000));
        let wall = clock.read.wall;
        let early = clock.since(soon, || unreachable!("it is not read again"));
        assert_eq!(early, Now::new(soon, wall));
        let both = Now::new(later, Timestamp::EPOCH);
        assert_eq!(clock.since(later, || both), both);
        assert_eq!(clock.since(later, || unreachable!("nor then")), both);
    }
}
