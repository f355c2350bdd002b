//! How much is known, and where it comes from.

use std::collections::BTreeSet;

use ubos_common::json::{MemberWriter, Write};

use super::SignalId;
use crate::transcript::{Head, Proof};

/// Signals that say one thing: how many, and a few of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// How many signals say it.
    pub signals: u64,
    /// The least of their ids, at most [`Count::MAX_SAMPLES`], whatever the order in which they came.
    pub samples: BTreeSet<SignalId>,
}

impl Count {
    /// Ids that are kept as samples.
    pub const MAX_SAMPLES: usize = 8;

    pub(super) fn add(&mut self, id: SignalId) {
        self.signals += 1;
        self.sample(id);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.signals += other.signals;
        other.samples.iter().for_each(|id| self.sample(*id));
    }

    fn sample(&mut self, id: SignalId) {
        self.samples.insert(id);
        if self.samples.len() > Self::MAX_SAMPLES {
            self.samples.pop_last();
        }
    }
}

/// Where a log stood when something was learned from it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPosition {
    /// Records that it had.
    pub records: u64,
    /// Its head, against which the log can be proven later.
    pub head: Head,
}

impl LogPosition {
    /// The position of a log of so many records that ends with `head`.
    #[must_use]
    pub const fn new(records: u64, head: Head) -> Self {
        Self { records, head }
    }
}

impl From<&Proof> for LogPosition {
    fn from(proof: &Proof) -> Self {
        Self::new(proof.records, proof.head.clone())
    }
}

impl Write for LogPosition {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("records", &self.records);
        object.member("head", self.head.as_str());
        object.end();
    }
}

/// What a heuristic was learned of. Spec: SAP 7
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// The signals that speak for it.
    pub count: Count,
    /// How many signals speak against it.
    pub against: u64,
    /// Where the log stood, where a log is kept.
    pub learned_from: Option<LogPosition>,
}

impl Evidence {
    pub(super) fn new(count: Count, against: u64, learned_from: Option<&LogPosition>) -> Self {
        Self {
            count,
            against,
            learned_from: learned_from.cloned(),
        }
    }
}

impl Write for Evidence {
    fn write(&self, out: &mut Vec<u8>) {
        let samples: Vec<SignalId> = self.count.samples.iter().copied().collect();
        let mut object = MemberWriter::begin(out);
        object.member("signals", &self.count.signals);
        object.member("against", &self.against);
        object.member("samples", &samples);
        object.optional("learnedFrom", self.learned_from.as_ref());
        object.end();
    }
}
