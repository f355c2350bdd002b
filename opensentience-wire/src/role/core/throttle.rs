//! How much an agent may say beside its calls.

use core::time::Duration;

use ubos_common::time::Mono;

use crate::ledger::Ledger;
use crate::message::MessageType;

/// The bytes that an agent may send at once.
const BURST: u64 = 8 << 20;
/// The bytes that it may send in a second on the long run.
const BYTES_A_SECOND: u64 = 256 << 10;
/// What a short message counts for.
const LEAST: usize = 1 << 10;
/// How long a connection is not read at most: versions of an agent that come and go do not add up to hours for the next one.
const LONGEST: Duration = Duration::from_secs(120);

/// What an agent has sent beside the answers to its calls: registrations, health, messages that break the rules. Each of them
/// costs the core work that no caller asked for, so they have a rate: beyond it the connection is not read for a while, and the
/// agent waits. What all connections of an agent bring counts together, in the ledger.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The connection is not read.
    pub(super) is_active: bool,
    /// The agent is gone: what it has sent has no rate.
    pub(super) is_lifted: bool,
}

impl Throttle {
    /// Counts a message. Gives when the connection may be read again, if the agent has sent too much.
    pub(super) fn charge(ledger: &Ledger, now: Mono, bytes: usize) -> Option<Mono> {
        let burst = duration(BURST);
        let span = duration(bytes.max(LEAST) as u64);
        let even_at = ledger.owe(now, span, burst.saturating_add(LONGEST));
        let excess = even_at.saturating_since(now.saturating_add(burst));
        (!excess.is_zero()).then(|| now.saturating_add(excess))
    }
}

/// The time in which so many bytes may be sent.
const fn duration(bytes: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / BYTES_A_SECOND)
}

impl MessageType {
    /// Whether an agent sends it about a call: then the calls bound it.
    pub(super) const fn is_about_call(&self) -> bool {
        matches!(self, Self::ToolStream | Self::ToolResult | Self::CancelAck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Versions of an agent that each say too much would otherwise leave hours to the one that behaves.
    #[test]
    fn what_an_agent_owes_is_forgotten_in_its_time() {
        let ledger = Ledger::new(0);
        assert_eq!(Throttle::charge(&ledger, Mono::ZERO, 8 << 20), None);
        let second = Mono::ZERO.saturating_add(Duration::from_secs(1));
        let until = Throttle::charge(&ledger, Mono::ZERO, 256 << 10);
        assert_eq!(until, Some(second));
        let longest = Mono::ZERO.saturating_add(LONGEST);
        for _ in 0..1_000 {
            let until = Throttle::charge(&ledger, Mono::ZERO, 16 << 20).unwrap();
            assert!(until <= longest);
        }
        let later = longest.saturating_add(duration(BURST));
        assert_eq!(Throttle::charge(&ledger, later, 8 << 20), None);
    }
}
