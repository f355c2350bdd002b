//! How much must be known before something is learned, and how much of it one issuer may say.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use super::signal::{IssuerDigest, Signal, SignalSource};

/// How many signals must speak for a piece of what is learned, and of how many issuers.
///
/// One issuer counts at most for his part of the signals that are wanted: with 5 signals of 2 issuers he counts 2.5, so
/// that nobody has something learned by himself, however much he sends. What an operator says counts whole. Of signals
/// that name no issuer, as those of older logs, nobody knows whose they are: together they count as one issuer's.
///
/// A deployment with a single issuer says so; then he counts whole:
///
/// ```
/// use core::num::NonZeroU64;
/// use sap::learning::Support;
///
/// assert_eq!(Support::default(), Support::of(5));
/// let alone = Support::default().with_issuers(NonZeroU64::MIN);
/// assert_ne!(alone, Support::default());
/// ```
///
/// Spec: SAP 7
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    signals: u64,
    issuers: NonZeroU64,
}

/// Five signals of two issuers.
impl Default for Support {
    fn default() -> Self {
        Self::of(5)
    }
}

impl Support {
    /// Issuers that are wanted where nobody says otherwise.
    pub(super) const ISSUERS: NonZeroU64 = const { NonZeroU64::new(2).expect("not 0") };

    /// So many signals, of two issuers.
    #[must_use]
    pub const fn of(signals: u64) -> Self {
        Self {
            signals,
            issuers: Self::ISSUERS,
        }
    }

    /// Sets of how many issuers they must be: each counts at most for that part of the signals. With 1 a single issuer
    /// is enough.
    #[must_use]
    pub const fn with_issuers(mut self, issuers: NonZeroU64) -> Self {
        self.issuers = issuers;
        self
    }

    /// The weight that is wanted, in thousandths of a signal.
    pub(super) const fn weight(self) -> u64 {
        self.signals.saturating_mul(Shares::WHOLE)
    }

    /// How much of it one issuer may bring.
    pub(super) const fn of_one_issuer(self) -> u64 {
        self.weight().div_ceil(self.issuers.get())
    }
}

/// Whose word a signal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// An operator's, or that of several issuers: no one issuer counts for it.
    Free,
    /// That of an issuer; `None` where nobody knows of which.
    Issuer(Option<IssuerDigest>),
}

impl From<&Signal> for Speaker {
    fn from(signal: &Signal) -> Self {
        match signal.source {
            SignalSource::Operator => Self::Free,
            _ => Self::Issuer(signal.issuer),
        }
    }
}

/// How much of a weight each issuer has brought, in thousandths of a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    /// `None`: those of whom no issuer is known, and those for whom there was no room.
    by_issuer: BTreeMap<Option<IssuerDigest>, u64>,
    free: u64,
}

impl Shares {
    /// The weight of a signal that has not faded.
    pub(super) const WHOLE: u64 = 1_000;
    /// About how many bytes an issuer takes.
    const ENTRY: usize = 64;

    /// Adds weight; gives how many bytes more are held. Of more than `max_issuers` the further ones are counted together,
    /// as one.
    pub(super) fn add(&mut self, speaker: Speaker, weight: u64, max_issuers: usize) -> usize {
        let Speaker::Issuer(mut issuer) = speaker else {
            self.free += weight;
            return 0;
        };
        let mut is_new = !self.by_issuer.contains_key(&issuer);
        if is_new && self.by_issuer.len() >= max_issuers {
            issuer = None;
            is_new = !self.by_issuer.contains_key(&issuer);
        }
        *self.by_issuer.entry(issuer).or_default() += weight;
        if is_new { Self::ENTRY } else { 0 }
    }

    /// Adds those of others, of whose weight so many thousandths are left.
    pub(super) fn merge_faded(&mut self, other: &Self, thousandths: u64) {
        let faded = |weight: u64| weight * thousandths / Self::WHOLE;
        for (issuer, weight) in &other.by_issuer {
            *self.by_issuer.entry(*issuer).or_default() += faded(*weight);
        }
        self.free += faded(other.free);
    }

    pub(super) fn issuers(&self) -> usize {
        self.by_issuer.len()
    }

    /// Whose weight it is.
    pub(super) fn speaker(&self) -> Speaker {
        let mut issuers = self.by_issuer.iter().filter(|(_, weight)| **weight > 0);
        match (issuers.next(), issuers.next(), self.free) {
            (Some((issuer, _)), None, 0) => Speaker::Issuer(*issuer),
            _ => Speaker::Free,
        }
    }

    /// The weight, of which one issuer brings no more than his part of what is wanted.
    pub(super) fn towards(&self, support: Support) -> u64 {
        let most = support.of_one_issuer();
        let of_issuers = self.by_issuer.values().map(|weight| (*weight).min(most));
        of_issuers.fold(self.free, u64::saturating_add)
    }

    pub(super) fn is_enough(&self, support: Support) -> bool {
        self.towards(support) >= support.weight()
    }

    /// How much of his weight each issuer keeps, so that he has no more than his part of all.
    pub(super) fn kept(&self, support: Support) -> Kept {
        let all = self.by_issuer.values().fold(self.free, |sum, w| sum + w);
        let others_of_one = support.issuers.get() - 1;
        let kept = self.by_issuer.iter().map(|(issuer, own)| {
            let most = match (all - own).checked_div(others_of_one) {
                Some(as_others) => as_others.max(support.of_one_issuer()),
                // One issuer is enough.
                None => *own,
            };
            (*issuer, (most.min(*own), *own))
        });
        Kept(kept.collect())
    }

    /// What is left of each share; and of all.
    pub(super) fn reduced(&self, kept: &Kept) -> (Self, u64) {
        let by_issuer = self.by_issuer.iter().map(|(issuer, weight)| {
            let (part, of) = kept.0.get(issuer).copied().unwrap_or((1, 1));
            let weight = u128::from(*weight) * u128::from(part) / u128::from(of.max(1));
            (*issuer, u64::try_from(weight).unwrap_or(u64::MAX))
        });
        let reduced = Self {
            by_issuer: by_issuer.collect(),
            free: self.free,
        };
        let all = reduced.by_issuer.values().fold(self.free, |sum, w| sum + w);
        (reduced, all)
    }
}

/// Of each issuer: what counts, and of how much.
#[derive(Debug)]
pub(super) struct Kept(BTreeMap<Option<IssuerDigest>, (u64, u64)>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_forgotten_says_nothing() {
        let [one, other] = ["A-1", "A-2"].map(|id| IssuerDigest::from(&id.parse().unwrap()));
        let of = |issuer| {
            let mut shares = Shares::default();
            shares.add(Speaker::Issuer(Some(issuer)), Shares::WHOLE, 2);
            shares
        };
        let mut shares = of(one);
        shares.merge_faded(&of(other), 0);
        assert_eq!(shares.speaker(), Speaker::Issuer(Some(one)));
        shares.merge_faded(&of(other), 1);
        assert_eq!(shares.speaker(), Speaker::Free);
    }
}
