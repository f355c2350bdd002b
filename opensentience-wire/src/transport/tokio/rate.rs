//! How fast the bytes of an agent's process are looked at.

use core::time::Duration;

use ubos_common::time::Mono;

/// What may come in a second on the long run, and at once.
const BYTES_A_SECOND: u64 = 8 << 20;

/// What a short piece counts for: it costs a system call, however little it is.
pub(super) const LEAST: usize = 1 << 10;

/// How long nothing is read once that was too much: not for every piece.
const PAUSE: Duration = Duration::from_millis(20);

/// What has come of a stream.
#[derive(Default)]
pub(super) struct Rate {
    /// When all of it is forgotten; the later, the more it was.
    even_at: Mono,
}

impl Rate {
    /// Counts bytes. Gives how long the stream is to rest; nothing mostly.
    pub(super) fn charge(&mut self, now: Mono, bytes: usize) -> Duration {
        let span = Duration::from_nanos(bytes as u64 * 1_000_000_000 / BYTES_A_SECOND);
        self.even_at = self.even_at.max(now).saturating_add(span);
        let burst = now.saturating_add(Duration::from_secs(1));
        match self.even_at.saturating_since(burst) {
            Duration::ZERO => Duration::ZERO,
            excess => excess.max(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_rests_until_it_is_within_its_rate() {
        let mut rate = Rate::default();
        let second = Mono::ZERO.saturating_add(Duration::from_secs(1));
        assert_eq!(rate.charge(Mono::ZERO, 8 << 20), Duration::ZERO);
        assert_eq!(rate.charge(Mono::ZERO, 4096), PAUSE);
        assert_eq!(rate.charge(Mono::ZERO, 4 << 20).as_millis(), 500);
        assert_eq!(rate.charge(second, 4 << 20), PAUSE);
    }
}
