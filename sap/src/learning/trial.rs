//! Whether members of a payload may be left out of an essence: tried before, and watched after.

use core::fmt;
use core::num::NonZeroU64;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ubos_common::time::Timestamp;

use super::essence::EssenceSuggestion;
use super::object::object;
use super::signal::{IssuerDigest, Observed, Signal, SignalId, SignalSink};
use super::support::Support;
use crate::cache::DropMembers;
use crate::error::StoreError;
use crate::evidence::BodyDigest;
use crate::ident::AgentId;
use crate::lifecycle::body_digest;

/// How a [`Trial`] stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrialState {
    /// The cache answers as before. So many outcomes were compared that count, and all are equal.
    Open {
        /// How many, of which one issuer has no more than his part of those that are wanted.
        agreed: u64,
    },
    /// As many as were wanted are equal. The cache answers as before until an operator adopts the suggestion.
    Proven,
    /// The members are left out. Some of the hits are computed all the same, and compared.
    Adopted {
        /// Who adopted it.
        operator: AgentId,
    },
    /// An outcome depends on what was to be left out. The cache answers as it did before the trial, for good.
    Refuted {
        /// The two outcomes that differ.
        outcomes: [SignalId; 2],
    },
}

/// Why a suggestion is not adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// Too few outcomes were compared.
    #[error("{agreed} outcomes were compared, and {wanted} are wanted")]
    NotProven {
        /// Outcomes that were compared.
        agreed: u64,
        /// Outcomes that are wanted.
        wanted: u64,
    },
    /// An outcome depends on what was to be left out.
    #[error("an outcome depends on what was to be left out")]
    Refuted,
}

/// A suggestion to leave members out of an essence, tried in the shadow before it is believed.
///
/// While it is open it answers nothing: each task that it would have answered is computed, and what came of it is
/// compared with what it would have been answered. Once enough are equal an operator may [adopt](Self::adopt) it.
/// From then on it answers, except that one hit in [some](Self::with_one_in) is computed and compared. The first
/// outcome that differs ends it as soon as its signal is told, and the cache has its former essence again.
///
/// It learns of the signals that a processor emits, when they are told, and `Caching::with_trial` puts it beside
/// the essence that it is to follow, of the same capability. A signal that is lost
/// ([`Processor::lost_signals`](crate::processor::Processor::lost_signals)) is not compared. Signals that are older than the trial say what is known, and do not count for it.
///
/// | bound | value | at the bound |
/// |---|---|---|
/// | essences whose outcome is remembered | 10,000 | the oldest is forgotten |
/// | payloads of one of them that are told apart | 64 | further ones do not count for it |
/// | outcomes of one issuer | half of those that are wanted ([`with_issuers`](Self::with_issuers)) | further ones do not count for it |
///
/// ```
/// use sap::learning::{Heuristics, Trial, TrialState};
/// use sap::ubos_common::time::Timestamp;
///
/// # let heuristics = Heuristics::default();
/// for suggestion in heuristics.essences {
///     let trial = Trial::new(suggestion, Timestamp::now());
///     assert_eq!(trial.state(), TrialState::Open { agreed: 0 });
///     assert!(trial.adopt("ada".parse()?).is_err());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SAP 7
pub struct Trial {
    suggestion: EssenceSuggestion,
    since: Timestamp,
    wanted: u64,
    issuers: NonZeroU64,
    one_in: NonZeroU64,
    /// Nothing before an operator has adopted it.
    adopted: OnceLock<DropMembers>,
    hits: AtomicU64,
    shadow: Mutex<Shadow>,
}

#[derive(Debug)]
struct Shadow {
    state: TrialState,
    /// Outcomes that count, by issuer: no more issuers than outcomes are wanted.
    agreed: BTreeMap<Option<IssuerDigest>, u64>,
    known: BTreeMap<BodyDigest, Known>,
    /// The oldest first.
    order: VecDeque<BodyDigest>,
}

/// What came of payloads that are one without the members.
#[derive(Debug)]
struct Known {
    outcome: BodyDigest,
    first: SignalId,
    payloads: BTreeSet<BodyDigest>,
}

impl Trial {
    /// Essences whose outcome is remembered.
    pub(crate) const MAX_KNOWN: usize = 10_000;
    /// Payloads of one essence that are told apart.
    pub(crate) const MAX_PAYLOADS: usize = 64;

    /// A trial that begins now: 100 outcomes are wanted, of two issuers at least, and of those that it then answers one in 20 is computed.
    #[must_use]
    pub fn new(suggestion: EssenceSuggestion, now: Timestamp) -> Self {
        Self {
            suggestion,
            since: now,
            wanted: 100,
            issuers: Support::ISSUERS,
            one_in: const { NonZeroU64::new(20).expect("not 0") },
            adopted: OnceLock::new(),
            hits: AtomicU64::new(0),
            shadow: Mutex::new(Shadow {
                state: TrialState::Open { agreed: 0 },
                agreed: BTreeMap::new(),
                known: BTreeMap::new(),
                order: VecDeque::new(),
            }),
        }
    }

    /// Sets how many outcomes must be equal.
    #[must_use]
    pub const fn with_wanted(mut self, outcomes: u64) -> Self {
        self.wanted = outcomes;
        self
    }

    /// Sets of how many issuers the outcomes must be at least: each counts at most for that part of those that are wanted,
    /// rounded up. With 1 a single issuer is enough.
    #[must_use]
    pub const fn with_issuers(mut self, issuers: NonZeroU64) -> Self {
        self.issuers = issuers;
        self
    }

    /// Sets which share of the hits is computed once it is adopted: one in so many.
    #[must_use]
    pub const fn with_one_in(mut self, hits: NonZeroU64) -> Self {
        self.one_in = hits;
        self
    }

    /// What is tried.
    #[must_use]
    pub const fn suggestion(&self) -> &EssenceSuggestion {
        &self.suggestion
    }

    /// How it stands.
    pub fn state(&self) -> TrialState {
        self.lock().state.clone()
    }

    /// Lets it answer. Where it does already, the operator who came first stays.
    ///
    /// # Errors
    ///
    /// [`AdoptError`]; nothing changes.
    pub fn adopt(&self, operator: AgentId) -> Result<(), AdoptError> {
        let mut shadow = self.lock();
        match shadow.state {
            TrialState::Open { agreed } => Err(AdoptError::NotProven {
                agreed,
                wanted: self.wanted,
            }),
            TrialState::Refuted { .. } => Err(AdoptError::Refuted),
            TrialState::Adopted { .. } => Ok(()),
            TrialState::Proven => {
                let names = self.suggestion.drop.iter().map(String::as_str);
                // Only here is it made, and nobody comes here twice.
                let _ = self
                    .adopted
                    .set(DropMembers::approved(operator.clone(), names));
                shadow.state = TrialState::Adopted { operator };
                Ok(())
            }
        }
    }

    /// The essence without the members, where it is adopted.
    pub fn adopted(&self) -> Option<&DropMembers> {
        let is_adopted = matches!(self.lock().state, TrialState::Adopted { .. });
        self.adopted.get().filter(|_| is_adopted)
    }

    /// Whether this hit is one that is computed; each call is another hit.
    pub fn draws(&self) -> bool {
        let hits = self.hits.fetch_add(1, Ordering::Relaxed);
        hits.is_multiple_of(self.one_in.get())
    }

    /// Compares an outcome with what is known.
    fn compare(&self, signal: &Signal, observed: &Observed) {
        let essence = self.digest(signal, observed, true);
        let payload = self.digest(signal, observed, false);
        let mut guard = self.lock();
        let shadow = &mut *guard;
        if matches!(shadow.state, TrialState::Refuted { .. }) {
            return;
        }
        let Some(known) = shadow.known.get_mut(&essence) else {
            let known = Known {
                outcome: observed.output,
                first: signal.id,
                payloads: [payload].into(),
            };
            return shadow.remember(essence, known);
        };
        if known.outcome != observed.output {
            // The same payload may have another outcome each time: then no essence holds, this one neither.
            let outcomes = [known.first, signal.id];
            shadow.state = TrialState::Refuted { outcomes };
            return;
        }
        let own = shadow.agreed.get(&signal.issuer).copied().unwrap_or(0);
        if own >= self.wanted.div_ceil(self.issuers.get()) {
            // His part is full, and the payload is left to others.
            return;
        }
        // An outcome of the same payload says nothing about what is left out of it.
        let is_new = known.payloads.len() < Self::MAX_PAYLOADS && known.payloads.insert(payload);
        if let TrialState::Open { agreed } = &mut shadow.state
            && is_new
            && signal.at.timestamp() >= self.since
        {
            *agreed += 1;
            shadow.agreed.insert(signal.issuer, own + 1);
            if *agreed >= self.wanted {
                shadow.state = TrialState::Proven;
            }
        }
    }

    /// The digest of territory and members, with or without those that are tried.
    fn digest(&self, signal: &Signal, observed: &Observed, is_essence: bool) -> BodyDigest {
        let tried = &self.suggestion.drop;
        let members = observed.members.iter();
        let members: BTreeMap<String, BodyDigest> = members
            .filter(|(name, _)| !is_essence || !tried.contains(name))
            .map(|(name, digest)| (name.clone(), *digest))
            .collect();
        let seen = object(|seen| {
            seen.optional("territory", signal.territory.as_ref());
            seen.member("members", &members);
        });
        BodyDigest(body_digest(seen.as_str().as_bytes()))
    }

    fn lock(&self) -> MutexGuard<'_, Shadow> {
        // What a panic of another thread left is an outcome that is not known yet at worst.
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shadow {
    fn remember(&mut self, essence: BodyDigest, known: Known) {
        self.known.insert(essence, known);
        self.order.push_back(essence);
        if self.order.len() > Trial::MAX_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

// impl: SAP-7-2
impl SignalSink for Trial {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        if signal.capability == self.suggestion.capability
            && let Some(observed) = &signal.observed
        {
            self.compare(&signal, observed);
        }
        Ok(())
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial")
            .field("suggestion", &self.suggestion)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
