//! Signals gathered by capability, territory and fingerprint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bounds::Bounds;
use super::signal::{Signal, SignalError, SignalId, SignalSink};
use super::tally::Tally;
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

/// What came of a signal that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Taken {
    /// It counts.
    New,
    /// It was counted before; nothing changes.
    Repeat,
}

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
/// use sap::learning::{Aggregate, Signal, SignalKey, Taken};
///
/// let signal = Signal::of_result(&task, None, &result).expect("a terminal result");
/// let mut aggregate = Aggregate::default();
/// assert_eq!(aggregate.take(&signal)?, Taken::New);
/// assert_eq!(aggregate.take(&signal)?, Taken::Repeat);
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
    seen: BTreeSet<SignalId>,
    refused: u64,
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

    /// Takes a signal.
    ///
    /// # Errors
    ///
    /// [`SignalError::Full`]; it is counted as refused, and nothing else changes.
    // impl: SAP-7-1, SAP-7-5
    pub fn take(&mut self, signal: &Signal) -> Result<Taken, SignalError> {
        if self.seen.contains(&signal.id) {
            return Ok(Taken::Repeat);
        }
        if self.seen.len() >= self.bounds.max_signals {
            return Err(self.refuse("signals", self.bounds.max_signals));
        }
        if self.bytes >= self.bounds.max_bytes {
            return Err(self.refuse("bytes", self.bounds.max_bytes));
        }
        let key = SignalKey::from(signal);
        if !self.tallies.contains_key(&key) {
            let is_long = key.territory.as_ref().map_or(0, String::len)
                > self.bounds.max_text_bytes
                || key.capability.as_str().len() > self.bounds.max_text_bytes;
            if is_long {
                return Err(self.refuse("bytes of a key", self.bounds.max_text_bytes));
            }
            if self.tallies.len() >= self.bounds.max_keys {
                return Err(self.refuse("keys", self.bounds.max_keys));
            }
        }
        self.seen.insert(signal.id);
        let tally = self.tallies.entry(key).or_default();
        let before = tally.ledger.bytes;
        tally.take(signal, &self.bounds);
        self.bytes += tally.ledger.bytes - before;
        Ok(Taken::New)
    }

    /// What is known under a key.
    #[must_use]
    pub fn tally(&self, key: &SignalKey) -> Option<&Tally> {
        self.tallies.get(key)
    }

    /// All keys and what is known under them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&SignalKey, &Tally)> {
        self.tallies.iter()
    }

    /// Signals that count.
    #[must_use]
    pub fn signals(&self) -> usize {
        self.seen.len()
    }

    /// Signals that were refused at a bound.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    const fn refuse(&mut self, what: &'static str, limit: usize) -> SignalError {
        self.refused += 1;
        SignalError::Full { what, limit }
    }
}

/// An [`Aggregate`] that a processor can emit to while others look at it.
#[derive(Debug, Default)]
pub struct Learner(Mutex<Aggregate>);

impl Learner {
    /// An empty one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self(Mutex::new(Aggregate::new(bounds)))
    }

    /// Looks at what is known. Signals wait meanwhile.
    pub fn look<T>(&self, at: impl FnOnce(&Aggregate) -> T) -> T {
        at(&self.lock())
    }

    /// What a panic of another thread left is a signal half counted at worst.
    fn lock(&self) -> MutexGuard<'_, Aggregate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SignalSink for Learner {
    fn emit(&self, signal: Signal) -> Result<(), SignalError> {
        self.lock().take(&signal).map(drop)
    }
}
