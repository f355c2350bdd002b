//! What is learned: advice for decisions that are still to come.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::{MemberWriter, Write};

use super::aggregate::Aggregate;
use super::essence::{self, EssenceSuggestion};
use super::evidence::{Count, Evidence};
use super::support::Support;
use super::tally::Readings;
use crate::context::PressureLevel;
use crate::ident::{AgentId, Capability};
use crate::transcript::Proof;

/// What signals teach, each piece with its evidence. A value: it changes nothing until somebody uses it.
///
/// [`Rules::learned`](crate::alignment::Rules::learned) takes thresholds and catalogue, and a [`Trial`](super::Trial) an
/// essence: what that gives once it is adopted is an extractor for the cache.
///
/// Spec: SAP 7
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Heuristics {
    /// Members of payloads on which outcomes did not depend.
    pub essences: Vec<EssenceSuggestion>,
    /// Up to which pressure a level was enough.
    pub thresholds: Vec<Threshold>,
    /// What is worth checking.
    pub catalogue: Vec<CatalogueEntry>,
}

/// Up to which pressure a level of deliberation was enough.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Threshold {
    /// The capability.
    pub capability: Capability,
    /// The domain.
    pub territory: Option<String>,
    /// The principle.
    pub principle: String,
    /// The level.
    pub level: PressureLevel,
    /// The last PSI at which it was enough; -1 where it never was.
    pub psi: f64,
    /// For it: good outcomes up to there, bad ones above. Against it: the others.
    pub evidence: Evidence,
    /// The operator who lets it go before a bound that an operator has set; absent where none has.
    pub approved_by: Option<AgentId>,
}

impl Threshold {
    /// Approves it: from now on it goes before a bound that an operator has set for the same principle and level.
    #[must_use]
    pub fn approved(mut self, operator: AgentId) -> Self {
        self.approved_by = Some(operator);
        self
    }
}

/// A principle that checks have looked at, and what they found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CatalogueEntry {
    /// The capability.
    pub capability: Capability,
    /// The domain.
    pub territory: Option<String>,
    /// The principle.
    pub principle: String,
    /// Checks by status.
    pub statuses: BTreeMap<String, u64>,
    /// Violations by severity.
    pub severities: BTreeMap<String, u64>,
    /// The signals that name it.
    pub evidence: Evidence,
}

impl CatalogueEntry {
    /// Whether it was found broken. There may be many severities, and the first says it.
    fn is_broken(&self) -> bool {
        self.severities.values().any(|violations| *violations > 0)
    }
}

impl Heuristics {
    /// Learns from signals. The same signals teach the same, whatever their order.
    ///
    /// `support` is what must speak for a piece: the default, five signals of two issuers, is good where several issuers
    /// send tasks. `learned_from` is where the log stood that the signals belong to. Spec: SAP 7
    // impl: SAP-7-2
    #[must_use]
    pub fn derive(aggregate: &Aggregate, support: Support, learned_from: Option<&Proof>) -> Self {
        Self {
            essences: essence::suggest(aggregate, support, learned_from),
            thresholds: thresholds(aggregate, support, learned_from),
            catalogue: catalogue(aggregate, support, learned_from),
        }
    }

    /// The learned thresholds at a level, for tasks of this kind.
    pub(crate) fn thresholds_of(
        &self,
        capability: &Capability,
        territory: Option<&str>,
        level: PressureLevel,
    ) -> impl Iterator<Item = &Threshold> {
        self.thresholds.iter().filter(move |learned| {
            learned.level == level
                && learned.capability == *capability
                && learned.territory.as_deref() == territory
        })
    }

    /// The principles that were found broken in tasks of this kind.
    pub(crate) fn broken<'a>(
        &'a self,
        capability: &'a Capability,
        territory: Option<&'a str>,
    ) -> impl Iterator<Item = &'a CatalogueEntry> {
        self.catalogue.iter().filter(move |entry| {
            entry.capability == *capability
                && entry.territory.as_deref() == territory
                && entry.is_broken()
        })
    }
}

type Scope = (Capability, Option<String>);

fn thresholds(
    aggregate: &Aggregate,
    support: Support,
    learned_from: Option<&Proof>,
) -> Vec<Threshold> {
    let mut gathered: BTreeMap<(Scope, String, PressureLevel), Readings> = BTreeMap::new();
    for (key, tally) in aggregate {
        let scope = (key.capability.clone(), key.territory.clone());
        for ((principle, level), readings) in &tally.readings {
            let slot = gathered.entry((scope.clone(), principle.clone(), *level));
            let slot = slot.or_default();
            merge(&mut slot.good, &readings.good);
            merge(&mut slot.bad, &readings.bad);
        }
    }
    let learned = gathered.into_iter().filter_map(
        |(((capability, territory), principle, level), readings)| {
            let (psi, count, against) = split(&readings, support)?;
            Some(Threshold {
                capability,
                territory,
                principle,
                level,
                psi,
                evidence: Evidence::new(count, against, learned_from),
                approved_by: None,
            })
        },
    );
    learned.collect()
}

fn merge(into: &mut BTreeMap<u8, Count>, from: &BTreeMap<u8, Count>) {
    for (psi, count) in from {
        into.entry(*psi).or_default().merge(count);
    }
}

/// The pressure that parts good outcomes from bad ones with the fewest on the wrong side; the lower of two that
/// are as good. `None` where too few outcomes are bad, or as many speak against it as for it. No issuer says more than
/// his part of where it is.
fn split(readings: &Readings, support: Support) -> Option<(f64, Count, u64)> {
    let sum = |parts: &BTreeMap<u8, Count>| {
        parts.values().fold(Count::default(), |mut sum, part| {
            sum.merge(part);
            sum
        })
    };
    let bad = sum(&readings.bad);
    if !bad.supports(support) {
        return None;
    }
    let mut all = sum(&readings.good);
    all.merge(&bad);
    let kept = all.shares.kept(support);
    let reduced = |parts: &BTreeMap<u8, Count>| {
        let parts = parts.iter();
        parts
            .map(|(psi, part)| (*psi, part.reduced(&kept)))
            .collect()
    };
    let readings = Readings {
        good: reduced(&readings.good),
        bad: reduced(&readings.bad),
    };
    let side = |is_right: bool, bound: i16| {
        let of = move |parts: &BTreeMap<u8, Count>, is_below: bool| {
            let here = parts.iter();
            let here = here.filter(|(psi, _)| (i16::from(**psi) <= bound) == is_below);
            here.fold(Count::default(), |mut sum, (_, part)| {
                sum.merge(part);
                sum
            })
        };
        let mut count = of(&readings.good, is_right);
        count.merge(&of(&readings.bad, !is_right));
        count
    };
    // Between two readings nothing changes.
    let seen: BTreeSet<u8> = readings
        .good
        .keys()
        .chain(readings.bad.keys())
        .copied()
        .collect();
    let bounds = core::iter::once(-1).chain(seen.into_iter().map(i16::from));
    let bound = bounds.min_by_key(|bound| side(false, *bound).weight)?;
    let (count, against) = (side(true, bound), side(false, bound));
    let is_clear = count.supports(support) && count.weight > against.weight;
    is_clear.then_some((f64::from(bound), count, against.signals))
}

#[derive(Default)]
struct Named {
    statuses: BTreeMap<String, u64>,
    severities: BTreeMap<String, u64>,
    count: Count,
}

fn catalogue(
    aggregate: &Aggregate,
    support: Support,
    learned_from: Option<&Proof>,
) -> Vec<CatalogueEntry> {
    let mut gathered: BTreeMap<(Scope, &str), Named> = BTreeMap::new();
    for (key, tally) in aggregate {
        let scope = (key.capability.clone(), key.territory.clone());
        for ((principle, status), count) in &tally.checks {
            let named = gathered.entry((scope.clone(), principle)).or_default();
            *named.statuses.entry(status.clone()).or_default() += count.signals;
            named.count.merge(count);
        }
        for ((principle, severity), count) in &tally.violations {
            let named = gathered.entry((scope.clone(), principle)).or_default();
            *named.severities.entry(severity.clone()).or_default() += count.signals;
            named.count.merge(count);
        }
    }
    let learned = gathered
        .into_iter()
        .filter(|((_, principle), named)| !principle.is_empty() && named.count.supports(support))
        .map(
            |(((capability, territory), principle), named)| CatalogueEntry {
                capability,
                territory,
                principle: principle.to_owned(),
                statuses: named.statuses,
                severities: named.severities,
                evidence: Evidence::new(named.count, 0, learned_from),
            },
        );
    learned.collect()
}

impl Write for Threshold {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("principle", &self.principle);
        object.member("pressureLevel", &self.level);
        object.member("psi", &self.psi);
        object.member("evidence", &self.evidence);
        object.optional("approvedBy", self.approved_by.as_ref());
        object.end();
    }
}

impl Write for CatalogueEntry {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("principle", &self.principle);
        object.member("statuses", &self.statuses);
        object.member("severities", &self.severities);
        object.member("evidence", &self.evidence);
        object.end();
    }
}
