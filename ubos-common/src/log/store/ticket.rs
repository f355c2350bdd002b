//! What an append hands back.

use crate::log::Position;
use crate::log::format::RECORD_HEADER_BYTES;

/// A submitted record or batch that may not be durable yet; give it to [`Log::wait`](crate::log::Log::wait).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a submitted record is durable only after waiting or committing"]
pub struct Ticket {
    pub(super) first: Position,
    pub(super) end: u64,
}

/// Where the records of a batch lie.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// Position of the first record.
    pub first: Position,
    /// Positions of all records, in order.
    pub positions: Vec<Position>,
}

impl Batch {
    pub(super) fn new(ticket: Ticket, records: &[&[u8]]) -> Self {
        let mut next = ticket.first;
        let positions = records.iter().map(|record| {
            let position = next;
            next.sequence += 1;
            next.offset += (RECORD_HEADER_BYTES + record.len()) as u64;
            position
        });
        Self {
            first: ticket.first,
            positions: positions.collect(),
        }
    }
}
