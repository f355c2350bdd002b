//! The two sides of one task as machines: what may happen next, and what is due when.
//!
//! ```text
//! consumer  received -> accepted -> running -> ended                    received -> dismissed
//! producer  drafted  -> sent -> accepted -> in progress -> ended        sent     -> refused
//! ```
//!
//! They do no IO and know no clock: inputs come with the time, outputs are taken from a queue, and
//! [`poll_timeout`](ubos_common::machine::Machine::poll_timeout) says when to come back. What may not follow is
//! refused with where the task is and where it should have gone, and changes nothing.
//!
//! The `processor` (feature `driver`) runs the consumer's machine; whoever brings a loop of his own runs it himself.
//!
//! Spec: SAP 5

pub mod consumer;
pub mod producer;
mod trace;

use core::time::Duration;

use ubos_common::time::{Mono, Now, Timestamp};

/// The end of a deadline: times on the wire are whole seconds, and all of the deadline's second is in time.
fn end_of(deadline: Timestamp) -> Timestamp {
    deadline.saturating_add(Duration::from_secs(1))
}

/// When to look whether a deadline is over. The calendar may be set meanwhile, or the machine sleep, which no monotonic clock
/// shows: it is looked at every now and then.
pub(crate) fn until(deadline: Timestamp, now: Now) -> Mono {
    let left = end_of(deadline).saturating_since(now.wall);
    now.mono.saturating_add(left.min(LOOK))
}

const LOOK: Duration = Duration::from_secs(10);
