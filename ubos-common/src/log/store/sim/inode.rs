//! One file of the simulated disk: what is durable, what is only seen.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) durable: Vec<u8>,
    pub(super) current: Vec<u8>,
    pub(super) pending: Vec<Change>,
    /// Bytes of the disk this file has taken.
    pub(super) taken: u64,
}

#[derive(Debug)]
pub(super) enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Inode {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            durable: bytes.clone(),
            taken: bytes.len() as u64,
            current: bytes,
            pending: Vec::new(),
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.taken = match change {
            Change::Write(..) => self.taken.max(self.current.len() as u64),
            Change::Length(length) => self.taken.min(length as u64),
        };
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        // Only what is pending: bytes that a failed sync forgot are not written by a good one.
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &change);
        }
    }

    /// A sync failed: the bytes count as written from now on, and are not. Lengths are the journal's.
    pub(super) fn forget(&mut self) {
        self.pending
            .retain(|change| matches!(change, Change::Length(_)));
    }

    /// Decides what of the unsynced survives. A sector on the disk is the sector in memory at some moment: it has the
    /// writes to it up to that moment, and none after.
    pub(super) fn settle(&mut self, dice: &mut Dice) {
        let mut lost = BTreeSet::new();
        for change in std::mem::take(&mut self.pending) {
            match (dice.below(4), change) {
                (0, Change::Length(_)) => {}
                (_, change @ Change::Length(_)) => apply(&mut self.durable, &change),
                (luck, Change::Write(offset, bytes)) => {
                    for (at, sector) in sectors(offset, &bytes) {
                        let is_lost = luck == 0 || luck > 1 && dice.below(2) == 0;
                        if is_lost || lost.contains(&(at / SECTOR)) {
                            lost.insert(at / SECTOR);
                        } else {
                            apply(&mut self.durable, &Change::Write(at, sector.to_vec()));
                        }
                    }
                }
            }
        }
        self.current.clone_from(&self.durable);
    }
}

/// The pieces of a write that a disk keeps or loses as a whole.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (sector, after) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
        let piece = (!sector.is_empty()).then_some((at, sector));
        at += sector.len();
        rest = after;
        piece
    })
}

pub(super) fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => bytes.resize(*length, 0),
        Change::Write(offset, written) => {
            let end = offset + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            if let Some(place) = bytes.get_mut(*offset..end) {
                place.copy_from_slice(written);
            }
        }
    }
}

/// SplitMix64: what decides the fate of unsynced bytes.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)).checked_rem(bound).unwrap_or(0)
    }
}

const SECTOR: usize = 512;
