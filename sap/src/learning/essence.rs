//! Which members of a payload an outcome does not depend on.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::{MemberWriter, Write};

use super::aggregate::Aggregate;
use super::evidence::{Count, Evidence};
use super::signal::SignalId;
use super::support::{Speaker, Support};
use crate::evidence::BodyDigest;
use crate::ident::Capability;
use crate::transcript::Proof;

/// Members of a capability's payload on which no outcome that was seen depended. One that was not seen may: see
/// [`Trial`](super::Trial).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EssenceSuggestion {
    /// The capability.
    pub capability: Capability,
    /// The members, in order.
    pub drop: Vec<String>,
    /// What speaks for it: outcomes that stayed the same while one of the members differed.
    pub evidence: Evidence,
}

impl Write for EssenceSuggestion {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("capability", &self.capability);
        object.member("drop", &self.drop);
        object.member("evidence", &self.evidence);
        object.end();
    }
}

/// Territory, members and output of what was computed once; and one signal that says so.
struct Sample<'a> {
    territory: Option<&'a str>,
    members: &'a BTreeMap<String, BodyDigest>,
    output: BodyDigest,
    id: SignalId,
    /// Free where several issuers say so.
    speaker: Speaker,
    weight: u64,
}

type Seen<'a> = (
    Option<&'a str>,
    &'a BTreeMap<String, BodyDigest>,
    BodyDigest,
);

pub(super) fn suggest(
    aggregate: &Aggregate,
    support: Support,
    learned_from: Option<&Proof>,
) -> Vec<EssenceSuggestion> {
    // The same thing may be known under two keys, where the extractor has changed: it is one sample.
    let mut seen: BTreeMap<&Capability, BTreeMap<Seen<'_>, Count>> = BTreeMap::new();
    for (key, tally) in aggregate {
        let of_capability = seen.entry(&key.capability).or_default();
        for ((members, output), count) in &tally.observed {
            let slot = of_capability.entry((key.territory.as_deref(), members, *output));
            slot.or_default().merge(count);
        }
    }
    let suggestions = seen.into_iter().filter_map(|(capability, seen)| {
        let samples = seen
            .into_iter()
            .filter_map(|((territory, members, output), count)| {
                Some(Sample {
                    territory,
                    members,
                    output,
                    id: *count.samples.first()?,
                    speaker: count.shares.speaker(),
                    weight: count.weight.min(Count::WHOLE),
                })
            });
        let (drop, count) = droppable(&samples.collect::<Vec<_>>(), support)?;
        Some(EssenceSuggestion {
            capability: capability.clone(),
            drop,
            evidence: Evidence::new(count, 0, learned_from),
        })
    });
    suggestions.collect()
}

/// The members that can be left out together: each has support of its own, and no two samples that agree without
/// them have different outputs.
fn droppable(samples: &[Sample<'_>], support: Support) -> Option<(Vec<String>, Count)> {
    let names: BTreeSet<&String> = samples.iter().flat_map(|s| s.members.keys()).collect();
    let mut candidates: Vec<(&str, Count)> = names
        .into_iter()
        .filter_map(|name| {
            let count = unchanged(samples, &[name])?;
            count.supports(support).then_some((name.as_str(), count))
        })
        .collect();
    candidates.sort_by(|(a, left), (b, right)| right.weight.cmp(&left.weight).then(a.cmp(b)));
    let mut drop = Vec::new();
    let mut count = Count::default();
    for (name, own) in candidates {
        drop.push(name);
        if unchanged(samples, &drop).is_some() {
            count.merge(&own);
        } else {
            drop.pop();
        }
    }
    drop.sort_unstable();
    (!drop.is_empty()).then(|| (drop.into_iter().map(str::to_owned).collect(), count))
}

/// Samples whose output stayed the same though members of these names differed; `None` where one changed.
fn unchanged(samples: &[Sample<'_>], drop: &[&str]) -> Option<Count> {
    type Rest<'a> = (Option<&'a str>, Vec<(&'a str, BodyDigest)>);
    let mut groups: BTreeMap<Rest<'_>, (BodyDigest, Vec<&Sample<'_>>)> = BTreeMap::new();
    for sample in samples {
        let rest = sample.members.iter();
        let rest = rest.filter(|(name, _)| !drop.contains(&name.as_str()));
        let rest = rest
            .map(|(name, digest)| (name.as_str(), *digest))
            .collect();
        let group = groups.entry((sample.territory, rest));
        let (output, same) = group.or_insert_with(|| (sample.output, Vec::new()));
        if *output != sample.output {
            return None;
        }
        same.push(sample);
    }
    let mut count = Count::default();
    for (_, same) in groups.into_values().filter(|(_, same)| same.len() > 1) {
        for sample in same {
            count.add_faded(sample.id, sample.speaker, sample.weight);
        }
    }
    Some(count)
}
