//! What is learned, written down for others: playbooks and punch-cards, filed with a librarian.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::{MemberWriter, RawObject, Write};
use ubos_common::time::{Timestamp, WholeSecond};

use super::aggregate::{Aggregate, SignalKey};
use super::essence::EssenceSuggestion;
use super::evidence::Count;
use super::heuristics::{CatalogueEntry, Heuristics, Threshold};
use super::object::object;
use super::signal::SignalId;
use super::support::{Shares, Support};
use super::tally::Tally;
use crate::error::StoreError;
use crate::evidence::{BodyDigest, Fingerprint};
use crate::future::{BoxFuture, yield_once};
use crate::ident::Capability;
use crate::lifecycle::body_digest;

ubos_common::words! {
    /// What kind of artifact it is. Spec: SAP 7
    closed pub enum ArtifactKind {
        /// How a kind of task is done well: one for each capability and territory.
        Playbook = "playbook",
        /// What is known about one task that comes again: one for each fingerprint.
        PunchCard = "punch-card",
    }
}

ubos_common::wire! {
    /// A piece of knowledge. Spec: SAP 7
    pub struct Artifact {
        /// What kind it is.
        required kind: ArtifactKind = "kind", "SAP-7-3";
        /// When it was written.
        required at: WholeSecond = "at", "SAP-7-3";
        /// What it is about.
        required capability: Capability = "capability", "SAP-7-3";
        /// What it says.
        required body: RawObject = "body", "SAP-7-3";
        /// Digest of what it is about and says, so that the same knowledge is filed once.
        required digest: BodyDigest = "digest", "SAP-7-3";
        /// The signals that it comes from, the least ids first, at most 1,000.
        required sources: Vec<SignalId> = "sources", "SAP-7-3";
        /// The domain.
        optional territory: String = "territory", "SAP-7-3";
        /// Of a punch-card: the essence of the payload.
        optional fingerprint: Fingerprint = "fingerprint", "SAP-7-3";
    }
}

impl Artifact {
    /// Sources that are named; the body says how many signals there are.
    pub(crate) const MAX_SOURCES: usize = 1_000;

    fn of(
        kind: ArtifactKind,
        at: Timestamp,
        key: SignalKey,
        body: RawObject,
        ids: &BTreeSet<SignalId>,
    ) -> Self {
        let said = object(|said| {
            said.member("kind", &kind);
            said.member("capability", &key.capability);
            said.optional("territory", key.territory.as_ref());
            said.optional("fingerprint", key.fingerprint.as_ref());
            said.member("body", &body);
        });
        let digest = BodyDigest(body_digest(said.as_str().as_bytes()));
        let sources = ids.iter().take(Self::MAX_SOURCES).copied().collect();
        let mut artifact = Self::new(kind, at.into(), key.capability, body, digest, sources);
        artifact.territory = key.territory;
        artifact.fingerprint = key.fingerprint;
        artifact
    }
}

/// What an artifact is about: a playbook has no fingerprint.
impl From<&Artifact> for SignalKey {
    fn from(artifact: &Artifact) -> Self {
        Self {
            capability: artifact.capability.clone(),
            territory: artifact.territory.clone(),
            fingerprint: artifact.fingerprint,
        }
    }
}

/// Takes knowledge, and keeps it for those who ask. `store::Library` (feature `log`) is one.
pub trait Librarian: fmt::Debug + Send + Sync {
    /// Files an artifact; ready once it is kept.
    ///
    /// # Errors
    ///
    /// It is not kept, and will be offered again.
    fn file<'a>(&'a self, artifact: &'a Artifact) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Files knowledge with a librarian, each piece once.
///
/// It remembers the digests of 100,000 pieces; past that the least digest is forgotten, and
/// its piece may be offered again.
#[derive(Clone, Debug, Default)]
pub struct Publisher {
    filed: BTreeSet<BodyDigest>,
}

impl Publisher {
    /// Pieces that are remembered.
    pub(crate) const MAX_FILED: usize = 100_000;

    /// Files what is new: a playbook for each capability and territory, a punch-card for each fingerprint with at
    /// least that much support. Gives what was filed. It gives way behind each piece.
    ///
    /// # Errors
    ///
    /// The librarian did not file one: that one will be offered again; those before it are filed.
    // impl: SAP-7-3
    pub async fn publish(
        &mut self,
        now: Timestamp,
        aggregate: &Aggregate,
        heuristics: &Heuristics,
        support: Support,
        librarian: &dyn Librarian,
    ) -> Result<Vec<Artifact>, StoreError> {
        let by_scope = ByScope::of(aggregate, heuristics);
        let playbooks = by_scope.scopes.into_iter();
        let playbooks = playbooks.map(|((capability, territory), here)| {
            let key = SignalKey {
                capability: capability.clone(),
                territory: territory.cloned(),
                fingerprint: None,
            };
            let essence = by_scope.essences.get(capability).copied();
            playbook(now, &here, essence, key, support)
        });
        let known = aggregate
            .into_iter()
            .filter(|(key, tally)| key.fingerprint.is_some() && tally.shares.is_enough(support));
        let cards = known.map(|(key, tally)| {
            let body = object(|body| punch_card(body, tally));
            Some(Artifact::of(
                ArtifactKind::PunchCard,
                now,
                key.clone(),
                body,
                &tally.ids,
            ))
        });
        let mut filed = Vec::new();
        for artifact in playbooks.chain(cards) {
            yield_once().await;
            let Some(artifact) = artifact else { continue };
            if self.filed.contains(&artifact.digest) {
                continue;
            }
            librarian.file(&artifact).await?;
            self.filed.insert(artifact.digest);
            if self.filed.len() > Self::MAX_FILED {
                self.filed.pop_first();
            }
            filed.push(artifact);
        }
        Ok(filed)
    }
}

/// One that has filed these before.
impl FromIterator<BodyDigest> for Publisher {
    fn from_iter<I: IntoIterator<Item = BodyDigest>>(digests: I) -> Self {
        let filed = digests.into_iter().take(Self::MAX_FILED).collect();
        Self { filed }
    }
}

type ScopeRef<'a> = (&'a Capability, Option<&'a String>);

/// What is known, by the kind of task: each is looked for once, for there may be very many.
struct ByScope<'a> {
    scopes: BTreeMap<ScopeRef<'a>, Here<'a>>,
    /// The first of each capability.
    essences: BTreeMap<&'a Capability, &'a EssenceSuggestion>,
}

/// What is known of one kind of task.
#[derive(Default)]
struct Here<'a> {
    tallies: Vec<&'a Tally>,
    thresholds: Vec<&'a Threshold>,
    catalogue: Vec<&'a CatalogueEntry>,
}

impl<'a> ByScope<'a> {
    fn of(aggregate: &'a Aggregate, heuristics: &'a Heuristics) -> Self {
        let mut scopes = BTreeMap::<ScopeRef<'_>, Here<'_>>::new();
        for (key, tally) in aggregate {
            let scope = (&key.capability, key.territory.as_ref());
            scopes.entry(scope).or_default().tallies.push(tally);
        }
        for learned in &heuristics.thresholds {
            let scope = (&learned.capability, learned.territory.as_ref());
            if let Some(here) = scopes.get_mut(&scope) {
                here.thresholds.push(learned);
            }
        }
        for learned in &heuristics.catalogue {
            let scope = (&learned.capability, learned.territory.as_ref());
            if let Some(here) = scopes.get_mut(&scope) {
                here.catalogue.push(learned);
            }
        }
        let essences = heuristics.essences.iter().rev();
        let essences = essences.map(|essence| (&essence.capability, essence));
        Self {
            scopes,
            essences: essences.collect(),
        }
    }
}

/// `None` where there are too few signals.
fn playbook(
    now: Timestamp,
    here: &Here<'_>,
    essence: Option<&EssenceSuggestion>,
    key: SignalKey,
    support: Support,
) -> Option<Artifact> {
    let (mut ids, mut shares) = (BTreeSet::new(), Shares::default());
    let (mut actions, mut notes) = (BTreeMap::new(), BTreeMap::new());
    for tally in &here.tallies {
        ids.extend(&tally.ids);
        shares.merge_faded(&tally.shares, Count::WHOLE);
        for (digest, (action, count)) in &tally.actions {
            let slot = actions
                .entry(digest)
                .or_insert_with(|| (action, Count::default()));
            slot.1.merge(count);
        }
        for (note, count) in &tally.notes {
            notes
                .entry(note)
                .or_insert_with(Count::default)
                .merge(count);
        }
    }
    if !shares.is_enough(support) {
        return None;
    }
    let rank = |count: &Count| (count.shares.towards(support), count.signals);
    let body = object(|body| {
        body.member("signals", &(ids.len() as u64));
        body.optional("essence", essence);
        body.member("thresholds", &List(&here.thresholds));
        body.member("catalogue", &List(&here.catalogue));
        let actions = actions
            .into_values()
            .map(|(action, count)| (action, rank(&count)));
        body.member(
            "nextActions",
            &List(&most(actions).collect::<Vec<&RawObject>>()),
        );
        let notes = notes.into_iter().map(|(note, count)| (note, rank(&count)));
        body.member("notes", &List(&most(notes).collect::<Vec<&String>>()));
    });
    Some(Artifact::of(ArtifactKind::Playbook, now, key, body, &ids))
}

fn punch_card(body: &mut MemberWriter<'_>, tally: &Tally) {
    body.member("signals", &(tally.ids.len() as u64));
    body.member("cacheHits", &tally.hits);
    let by_word = |counts: BTreeMap<String, u64>| counts;
    body.member(
        "statuses",
        &by_word(
            tally
                .statuses
                .iter()
                .map(|(word, n)| (word.to_string(), *n))
                .collect(),
        ),
    );
    body.member(
        "alignments",
        &by_word(
            tally
                .alignments
                .iter()
                .map(|(word, n)| (word.to_string(), *n))
                .collect(),
        ),
    );
    let broken: BTreeMap<String, u64> =
        tally
            .violations
            .iter()
            .fold(BTreeMap::new(), |mut sum, ((name, _), count)| {
                *sum.entry(name.clone()).or_default() += count.signals;
                sum
            });
    body.member("violations", &broken);
    let means: BTreeMap<String, f64> = tally
        .metrics
        .iter()
        .map(|(name, metric)| (name.clone(), metric.mean))
        .collect();
    body.member("metrics", &means);
    body.member("praise", &tally.praise.signals);
    body.member("blame", &tally.blame.signals);
}

/// The things of the highest rank, at most ten.
fn most<T>(things: impl Iterator<Item = (T, Rank)>) -> impl Iterator<Item = T> {
    let mut things: Vec<(T, Rank)> = things.collect();
    // Stable, so those of one rank keep their order.
    things.sort_by(|(_, a), (_, b)| b.cmp(a));
    things.into_iter().take(10).map(|(thing, _)| thing)
}

/// How much is counted for a thing, of which one issuer brings no more than his part; and how many signals name it.
type Rank = (u64, u64);

struct List<'a, T>(&'a [T]);

impl<T: Write> Write for List<'_, &T> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (n, item) in self.0.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            item.write(out);
        }
        out.push(b']');
    }
}
