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

/// What an agent has sent beside the answers to its calls: registrations, health, messages that break the rules. Each of them
/// costs the core work that no caller asked for, so they have a rate: beyond it the connection is not read for a while, and the
/// agent waits. What all connections of an agent bring counts together, in the ledger.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The connection is not read.
    pub(super) is_active: bool,
}

impl Throttle {
    /// Counts a message. Gives when the connection may be read again, if the agent has sent too much.
    pub(super) fn charge(ledger: &Ledger, now: Mono, bytes: usize) -> Option<Mono> {
        let even_at = ledger.owe(now, duration(bytes.max(LEAST) as u64));
        let excess = even_at.saturating_since(now.saturating_add(duration(BURST)));
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
