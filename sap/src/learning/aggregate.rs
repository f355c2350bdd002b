//! Signals gathered by capability, territory and fingerprint.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::{Mutex, PoisonError};

use ubos_common::json;

use super::bounds::Bounds;
use super::signal::{IssuerDigest, Signal, SignalId, SignalSink};
use super::support::Speaker;
use super::tally::Tally;
use crate::error::StoreError;
use crate::evidence::Fingerprint;
use crate::ident::Capability;

/// What signals are gathered by. Spec: SAP 7
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct SignalKey {
    /// What was done.
    pub capability: Capability,
    /// The domain.
    pub territory: Option<String>,
    /// The essence of the payload.
    pub fingerprint: Option<Fingerprint>,
}

impl From<&Signal> for SignalKey {
    fn from(signal: &Signal) -> Self {
        Self {
            capability: signal.capability.clone(),
            territory: signal.territory.clone(),
            fingerprint: signal.fingerprint,
        }
    }
}

/// Keys of all payloads together, for signals beyond the bounds.
const BEYOND: usize = 64;

/// Signals gathered by capability, territory and fingerprint, in bounded memory.
///
/// Below the [`Bounds`] the order of signals does not matter, and each id counts once.
///
/// ```
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::Timestamp};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
/// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
/// use sap::learning::{Aggregate, Signal, SignalKey};
///
/// let signal = Signal::of_result(&task, None, &result).expect("a terminal result");
/// let mut aggregate = Aggregate::default();
/// assert!(aggregate.insert(&signal)?);
/// assert!(!aggregate.insert(&signal)?);
/// let tally = aggregate.tally(&SignalKey::from(&signal)).expect("known now");
/// assert_eq!(tally.statuses[&Status::Succeeded], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SAP 7
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregate {
    bounds: Bounds,
    tallies: BTreeMap<SignalKey, Tally>,
    /// How many keys each capability has.
    keys: BTreeMap<Capability, usize>,
    seen: BTreeSet<SignalId>,
    /// What each issuer has brought; `None`: those of whom nobody knows which.
    issuers: BTreeMap<Option<IssuerDigest>, Brought>,
    refused: u64,
    bytes: usize,
}

/// What one issuer has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Brought {
    signals: usize,
    /// Of the signals as they are written: what is held of one depends on those before it.
    bytes: usize,
}

impl Aggregate {
    /// An empty one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Adds a signal; gives whether it is new. One that was counted before changes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]; it is counted as refused, and nothing else changes.
    // impl: SAP-7-1, SAP-7-5
    pub fn insert(&mut self, signal: &Signal) -> Result<bool, StoreError> {
        self.insert_beside(signal, Held::default())
    }

    /// The same, where others hold some of what its bounds allow.
    pub(super) fn insert_beside(
        &mut self,
        signal: &Signal,
        others: Held,
    ) -> Result<bool, StoreError> {
        if self.seen.contains(&signal.id) {
            return Ok(false);
        }
        let held = self.held(signal).plus(others);
        if held.signals >= self.bounds.max_signals {
            return Err(self.refuse("signals", self.bounds.max_signals));
        }
        if held.bytes >= self.bounds.max_bytes {
            return Err(self.refuse("bytes", self.bounds.max_bytes));
        }
        let most = self.bounds.of_one_issuer(self.bounds.max_signals);
        if held.issuer.signals >= most {
            return Err(self.refuse("signals of one issuer", most));
        }
        let most = self.bounds.of_one_issuer(self.bounds.max_bytes);
        if held.issuer.bytes >= most {
            return Err(self.refuse("bytes of one issuer", most));
        }
        let mut key = SignalKey::from(signal);
        let is_full = held.keys >= self.bounds.max_keys
            || held.capability_keys >= self.bounds.max_capability_keys;
        // What is new beyond the bounds counts for all payloads together, so that many different ones stop no learning.
        if is_full && !self.tallies.contains_key(&key) {
            key.fingerprint = None;
        }
        if !self.tallies.contains_key(&key) {
            let is_long = key.territory.as_ref().map_or(0, String::len)
                > self.bounds.max_text_bytes
                || key.capability.as_str().len() > self.bounds.max_text_bytes;
            if is_long {
                return Err(self.refuse("bytes of a key", self.bounds.max_text_bytes));
            }
            if held.keys >= self.bounds.max_keys + BEYOND {
                return Err(self.refuse("keys", self.bounds.max_keys));
            }
            if held.capability_keys >= self.bounds.max_capability_keys + BEYOND {
                let limit = self.bounds.max_capability_keys;
                return Err(self.refuse("keys of one capability", limit));
            }
            let keys = self.keys.entry(signal.capability.clone());
            *keys.or_default() += 1;
        }
        self.seen.insert(signal.id);
        let tally = self.tallies.entry(key).or_default();
        let before = tally.ledger.bytes;
        tally.take(signal, &self.bounds);
        self.bytes += tally.ledger.bytes - before;
        if let Speaker::Issuer(issuer) = Speaker::from(signal) {
            let part = self.issuers.entry(issuer).or_default();
            part.signals += 1;
            part.bytes += json::to_vec(signal).len();
        }
        Ok(true)
    }

    pub(super) const fn having_refused(mut self, signals: u64) -> Self {
        self.refused = signals;
        self
    }

    /// How much it holds: in all, of the capability of a signal, and of its issuer.
    pub(super) fn held(&self, signal: &Signal) -> Held {
        let capability_keys = self.keys.get(&signal.capability);
        let issuer = match Speaker::from(signal) {
            Speaker::Issuer(issuer) => self.issuers.get(&issuer),
            Speaker::Free => None,
        };
        Held {
            keys: self.tallies.len(),
            capability_keys: capability_keys.copied().unwrap_or(0),
            signals: self.seen.len(),
            bytes: self.bytes,
            issuer: issuer.copied().unwrap_or_default(),
        }
    }

    /// Adds what another one holds, of whose weight so many thousandths are left.
    pub(super) fn absorb(&mut self, other: &Self, thousandths: u64) {
        for (key, tally) in &other.tallies {
            if !self.tallies.contains_key(key) {
                *self.keys.entry(key.capability.clone()).or_default() += 1;
            }
            let own = self.tallies.entry(key.clone()).or_default();
            own.absorb(tally, thousandths);
        }
        self.seen.extend(&other.seen);
        for (issuer, other) in &other.issuers {
            let part = self.issuers.entry(*issuer).or_default();
            part.signals += other.signals;
            part.bytes += other.bytes;
        }
        self.bytes += other.bytes;
    }

    /// What is known under a key.
    #[must_use]
    pub fn tally(&self, key: &SignalKey) -> Option<&Tally> {
        self.tallies.get(key)
    }

    /// Signals that were refused at a bound.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    const fn refuse(&mut self, what: &'static str, limit: usize) -> StoreError {
        self.refused += 1;
        StoreError::Full { what, limit }
    }
}

/// How much is held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    keys: usize,
    capability_keys: usize,
    signals: usize,
    bytes: usize,
    issuer: Brought,
}

impl Held {
    pub(super) const fn plus(mut self, other: Self) -> Self {
        self.keys += other.keys;
        self.capability_keys += other.capability_keys;
        self.signals += other.signals;
        self.bytes += other.bytes;
        self.issuer.signals += other.issuer.signals;
        self.issuer.bytes += other.issuer.bytes;
        self
    }
}

/// All keys and what is known under them, in order.
impl<'a> IntoIterator for &'a Aggregate {
    type Item = (&'a SignalKey, &'a Tally);
    type IntoIter = btree_map::Iter<'a, SignalKey, Tally>;

    fn into_iter(self) -> Self::IntoIter {
        self.tallies.iter()
    }
}

/// A processor emits to it while others look at it.
impl SignalSink for Mutex<Aggregate> {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        // What a panic of another thread left is a signal half counted at worst.
        let mut aggregate = self.lock().unwrap_or_else(PoisonError::into_inner);
        aggregate.insert(&signal).map(drop)
    }
}
