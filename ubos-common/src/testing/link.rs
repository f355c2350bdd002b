//! Links between machines: what is on its way, and what goes wrong with it.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::VecDeque;

use crate::id::IdSource;
use crate::time::Mono;

/// Names a link of the lab, in the order of [`Lab::connect`](super::Lab::connect).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(super) usize);

impl LinkId {
    /// The link that was connected as the `index`th, from 0.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }
}

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A byte stream, as a socket: ordered and whole until it breaks; split and joined at will.
    Stream,
    /// Messages: each arrives whole or not at all, perhaps twice, perhaps late.
    Messages,
}

/// What goes wrong on a link. Chances are in a thousand.
///
/// On a stream only latency, splits, joins and breaks happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// From sending to arriving.
    pub latency: RangeInclusive<Duration>,
    /// A piece of a stream arrives in two.
    pub split: u16,
    /// Two pieces of a stream that wait arrive as one.
    pub join: u16,
    /// A message is lost.
    pub drop: u16,
    /// A message arrives twice.
    pub duplicate: u16,
    /// A message overtakes those before it.
    pub reorder: u16,
    /// The link breaks instead of carrying a piece.
    pub sever: u16,
}

impl Faults {
    /// Nothing goes wrong, and everything arrives at once.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            latency: Duration::ZERO..=Duration::ZERO,
            split: 0,
            join: 0,
            drop: 0,
            duplicate: 0,
            reorder: 0,
            sever: 0,
        }
    }

    /// A bad day on which nothing is lost: 0 to 50 ms, pieces split and joined half of the time.
    #[must_use]
    pub const fn rough() -> Self {
        let mut faults = Self::none();
        faults.latency = Duration::ZERO..=Duration::from_millis(50);
        faults.split = 500;
        faults.join = 500;
        faults
    }

    /// Sets the latency.
    #[must_use]
    pub const fn with_latency(mut self, latency: RangeInclusive<Duration>) -> Self {
        self.latency = latency;
        self
    }

    /// Sets the chances of a message to be lost, doubled, and moved ahead.
    #[must_use]
    pub const fn with_losses(mut self, drop: u16, duplicate: u16, reorder: u16) -> Self {
        self.drop = drop;
        self.duplicate = duplicate;
        self.reorder = reorder;
        self
    }

    /// Sets the chance of the link to break with a piece.
    #[must_use]
    pub const fn with_sever(mut self, sever: u16) -> Self {
        self.sever = sever;
        self
    }
}

/// What arrives at an end of a link.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    HalfClose,
    Broken,
}

/// One direction of a link.
#[derive(Debug, Default)]
pub(super) struct Direction {
    pub(super) queue: VecDeque<(Mono, Packet)>,
    pub(super) ended: bool,
}

/// A link between two nodes.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [usize; 2],
    kind: LinkKind,
    faults: Faults,
    pub(super) directions: [Direction; 2],
    pub(super) broken: bool,
}

impl Link {
    pub(super) fn new(ends: [usize; 2], kind: LinkKind, faults: Faults) -> Self {
        Self {
            ends,
            kind,
            faults,
            directions: Default::default(),
            broken: false,
        }
    }

    /// Sends from the end `from`; gives whether the link broke.
    pub(super) fn send(&mut self, now: Mono, from: usize, bytes: Vec<u8>, dice: &mut Dice) -> bool {
        let ended = self
            .directions
            .get(from)
            .is_none_or(|direction| direction.ended);
        if self.broken || ended || bytes.is_empty() && self.kind == LinkKind::Stream {
            return false;
        }
        if dice.hits(self.faults.sever) {
            return true;
        }
        match self.kind {
            LinkKind::Stream => self.send_stream(now, from, bytes, dice),
            LinkKind::Messages => self.send_message(now, from, &bytes, dice),
        }
        false
    }

    fn send_stream(&mut self, now: Mono, from: usize, bytes: Vec<u8>, dice: &mut Dice) {
        let due = now.saturating_add(dice.within(&self.faults.latency));
        let Some(direction) = self.directions.get_mut(from) else {
            return;
        };
        // What would arrive before its own time waits for itself.
        if let Some((last, Packet::Bytes(waiting))) = direction.queue.back_mut()
            && *last >= due
            && dice.hits(self.faults.join)
        {
            waiting.extend_from_slice(&bytes);
            return;
        }
        let after = direction
            .queue
            .back()
            .map_or(due, |(last, _)| due.max(*last));
        direction.queue.push_back((after, Packet::Bytes(bytes)));
    }

    fn send_message(&mut self, now: Mono, from: usize, bytes: &[u8], dice: &mut Dice) {
        if dice.hits(self.faults.drop) {
            return;
        }
        let copies = 1 + usize::from(dice.hits(self.faults.duplicate));
        for _ in 0..copies {
            let due = now.saturating_add(dice.within(&self.faults.latency));
            let ahead = dice.hits(self.faults.reorder);
            let Some(direction) = self.directions.get_mut(from) else {
                return;
            };
            let after = direction
                .queue
                .back()
                .map_or(due, |(last, _)| due.max(*last));
            let packet = Packet::Bytes(bytes.to_vec());
            if ahead {
                direction.queue.push_front((now, packet));
            } else {
                direction.queue.push_back((after, packet));
            }
        }
    }

    /// Ends one direction behind what is on its way.
    pub(super) fn half_close(&mut self, now: Mono, from: usize) {
        if self.broken {
            return;
        }
        let Some(direction) = self.directions.get_mut(from) else {
            return;
        };
        if !core::mem::replace(&mut direction.ended, true) {
            let after = direction
                .queue
                .back()
                .map_or(now, |(last, _)| now.max(*last));
            direction.queue.push_back((after, Packet::HalfClose));
        }
    }

    /// Breaks the link: what is on its way is lost, and the ends in `told` hear of it.
    pub(super) fn sever(&mut self, now: Mono, told: &[usize]) {
        if core::mem::replace(&mut self.broken, true) {
            return;
        }
        for (from, direction) in self.directions.iter_mut().enumerate() {
            direction.queue.clear();
            direction.ended = true;
            if told.contains(&(1 - from)) {
                direction.queue.push_back((now, Packet::Broken));
            }
        }
    }

    /// Takes what arrives next from `from`; a piece of a stream perhaps not whole.
    pub(super) fn take(&mut self, from: usize, dice: &mut Dice) -> Option<Packet> {
        let split = self.kind == LinkKind::Stream && dice.hits(self.faults.split);
        let direction = self.directions.get_mut(from)?;
        let (due, packet) = direction.queue.pop_front()?;
        match packet {
            Packet::Bytes(mut bytes) if split && bytes.len() > 1 => {
                let at = 1 + dice.below(bytes.len() - 1);
                let rest = bytes.split_off(at);
                direction.queue.push_front((due, Packet::Bytes(rest)));
                Some(Packet::Bytes(bytes))
            }
            packet => Some(packet),
        }
    }
}

/// The lab's chance.
#[derive(Debug)]
pub(super) struct Dice(pub(super) IdSource);

impl Dice {
    pub(super) fn hits(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.0.bits() % 1000 < u64::from(per_mille)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        usize::try_from(self.0.bits() % bound).unwrap_or(0)
    }

    fn within(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let spread = range.end().saturating_sub(*range.start()).as_nanos();
        let spread = u64::try_from(spread)
            .unwrap_or(u64::MAX)
            .saturating_add(1)
            .max(1);
        *range.start() + Duration::from_nanos(self.0.bits() % spread)
    }
}
