//! How much is known, and where it comes from.

use std::collections::BTreeSet;

use ubos_common::json::{MemberWriter, Write};

use super::SignalId;
use super::bounds::Bounds;
use super::signal::Signal;
use super::support::{Kept, Shares, Speaker, Support};
use crate::transcript::Proof;

/// Signals that say one thing: how many, and a few of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// How many signals say it.
    pub signals: u64,
    /// How much they weigh together, in thousandths of a signal: less than their number where they are old, or, for a
    /// threshold, where one issuer says more than all others.
    pub weight: u64,
    /// The least of their ids, at most 8, whatever the order in which they came.
    pub samples: BTreeSet<SignalId>,
    /// How much of the weight each issuer has brought.
    pub(super) shares: Shares,
}

impl Count {
    /// Ids that are kept as samples.
    pub(crate) const MAX_SAMPLES: usize = 8;
    /// The weight of a signal that has not faded.
    pub(super) const WHOLE: u64 = Shares::WHOLE;

    /// How many issuers say it, as far as they are told apart.
    #[must_use]
    pub fn issuers(&self) -> usize {
        self.shares.issuers()
    }

    /// Adds a new signal; gives how many bytes more are held.
    pub(super) fn add(&mut self, signal: &Signal, bounds: &Bounds) -> usize {
        self.signals += 1;
        self.weight += Self::WHOLE;
        self.sample(signal.id);
        let speaker = Speaker::from(signal);
        self.shares.add(speaker, Self::WHOLE, bounds.max_issuers)
    }

    pub(super) fn add_faded(&mut self, id: SignalId, speaker: Speaker, weight: u64) {
        self.signals += 1;
        self.weight += weight;
        self.sample(id);
        self.shares.add(speaker, weight, usize::MAX);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.merge_faded(other, Self::WHOLE);
    }

    /// Adds those of another count, of whose weight so many thousandths are left.
    pub(super) fn merge_faded(&mut self, other: &Self, thousandths: u64) {
        self.signals += other.signals;
        self.weight += other.weight * thousandths / Self::WHOLE;
        self.shares.merge_faded(&other.shares, thousandths);
        other.samples.iter().for_each(|id| self.sample(*id));
    }

    /// Whether they weigh enough, of which one issuer brings no more than his part.
    pub(super) fn supports(&self, support: Support) -> bool {
        self.shares.is_enough(support)
    }

    /// The same signals, each with as much of its weight as its issuer keeps.
    pub(super) fn reduced(&self, kept: &Kept) -> Self {
        let (shares, weight) = self.shares.reduced(kept);
        Self {
            shares,
            weight,
            ..self.clone()
        }
    }

    fn sample(&mut self, id: SignalId) {
        self.samples.insert(id);
        if self.samples.len() > Self::MAX_SAMPLES {
            self.samples.pop_last();
        }
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
    /// Where the log stood, where a log is kept: it can be proven against that later.
    pub learned_from: Option<Proof>,
}

impl Evidence {
    pub(crate) fn new(count: Count, against: u64, learned_from: Option<&Proof>) -> Self {
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
        object.member("weight", &self.count.weight);
        object.member("issuers", &(self.count.issuers() as u64));
        object.member("against", &self.against);
        object.member("samples", &samples);
        let position = self.learned_from.as_ref().map(LogPosition);
        object.optional("learnedFrom", position.as_ref());
        object.end();
    }
}

/// Where a log stood, as it is written: its length and its end.
struct LogPosition<'a>(&'a Proof);

impl Write for LogPosition<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("records", &self.0.records);
        object.member("head", self.0.head.as_ref());
        object.end();
    }
}
