//! Which members of a payload an outcome does not depend on.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use ubos_common::json::{MemberWriter, Write};

use super::aggregate::Aggregate;
use super::evidence::{Count, Evidence};
use super::signal::SignalId;
use super::support::{Speaker, Support};
use crate::evidence::BodyDigest;
use crate::ident::Capability;
use crate::transcript::Proof;

/// Members of a capability's payload on which no outcome that was seen depended. One that was not seen may: see
/// [`Trial`](super::Trial). Where payloads have very many different members, those that most payloads have are looked at.
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
    let mut candidates: Vec<(&str, Count)> = names(samples, MAX_VISITS)
        .into_iter()
        .filter_map(|name| {
            let count = unchanged(samples, &[name])?;
            count.supports(support).then_some((name, count))
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

/// The names of members that are looked at: those that most samples have, as many as may be looked at in so many visits of a
/// member. Whoever sends a task chooses its names, and each is looked at in all samples, at most twice.
fn names<'a>(samples: &[Sample<'a>], visits: usize) -> Vec<&'a str> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    let mut members = samples.len();
    for sample in samples {
        members += sample.members.len();
        for name in sample.members.keys() {
            *all.entry(name).or_default() += 1;
        }
    }
    let mut names: Vec<(&str, usize)> = all.into_iter().collect();
    // Stable, so those of as many samples keep their order.
    names.sort_by_key(|(_, samples)| Reverse(*samples));
    let most = visits / 2 / members.max(1);
    names.into_iter().take(most).map(|(name, _)| name).collect()
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

/// Visits of members in the samples of one capability: a few seconds.
const MAX_VISITS: usize = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::body_digest;

    // spec: SAP-7-2
    #[test]
    fn the_names_that_most_samples_have_are_looked_at_as_many_as_there_is_time_for() {
        let digest = |number: usize| BodyDigest(body_digest(number.to_string().as_bytes()));
        // Ten payloads with one time of asking, and one of somebody who makes up names.
        let payload = |number: usize| match number {
            10 => (0..64)
                .map(|name| (format!("a{name:02}"), digest(0)))
                .collect(),
            _ => BTreeMap::from([
                ("q".to_owned(), digest(0)),
                ("z".to_owned(), digest(number)),
            ]),
        };
        let payloads: Vec<BTreeMap<String, BodyDigest>> = (0..11).map(payload).collect();
        let sample = |members| Sample {
            territory: None,
            members,
            output: digest(0),
            id: SignalId(body_digest(b"")),
            speaker: Speaker::Free,
            weight: Count::WHOLE,
        };
        let samples: Vec<Sample<'_>> = payloads.iter().map(sample).collect();
        // To look at a name once visits 84 members and 11 samples.
        let once = 10 * 2 + 64 + 11;
        assert_eq!(names(&samples, 2 * once - 1), [""; 0]);
        assert_eq!(names(&samples, 4 * once), ["q", "z"]);
        assert_eq!(names(&samples, 6 * once), ["q", "z", "a00"]);
        assert_eq!(names(&samples, MAX_VISITS).len(), 66);
    }
}
