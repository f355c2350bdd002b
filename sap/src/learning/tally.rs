//! What is known under one key.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::{self, RawBuf, RawObject, Read};
use ubos_common::violation::Profile;

use super::bounds::Bounds;
use super::evidence::Count;
use super::signal::{Feedback, Observed, Signal, SignalId};
use super::support::{Shares, Speaker};
use crate::context::PressureLevel;
use crate::evidence::{Alignment, BodyDigest, PolicyCheck, PolicyViolation};
use crate::lifecycle::body_digest;
use crate::limits::unbounded;
use crate::number::Number;
use crate::status::Status;

/// What signals under one key came to. Equal whatever the order in which they came, below the bounds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tally {
    /// The ids of all signals.
    pub ids: BTreeSet<SignalId>,
    /// Results that the cache answered. They count here, by status and by verdict, and nowhere else.
    pub hits: u64,
    /// Results by status.
    pub statuses: BTreeMap<Status, u64>,
    /// Results by verdict.
    pub alignments: BTreeMap<Alignment, u64>,
    /// Policy checks by principle and status.
    pub checks: BTreeMap<(String, String), Count>,
    /// Violations by principle and severity.
    pub violations: BTreeMap<(String, String), Count>,
    /// Outcomes by principle, level and pressure.
    pub readings: BTreeMap<(String, PressureLevel), Readings>,
    /// Numbers that results report of themselves.
    pub metrics: BTreeMap<String, Metric>,
    /// Proposed next actions, each under its digest.
    pub actions: BTreeMap<BodyDigest, (RawObject, Count)>,
    /// What operators note.
    pub notes: BTreeMap<String, Count>,
    /// What operators say for outcomes.
    pub praise: Count,
    /// What operators say against outcomes.
    pub blame: Count,
    /// Parts of signals for which there was no room, or whose text is too long.
    pub left_out: u64,
    /// What was computed of what.
    pub(super) observed: BTreeMap<Observation, Count>,
    /// Whose the signals are.
    pub(super) shares: Shares,
    pub(super) ledger: Ledger,
}

/// What is held, and what is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// About how many bytes are held.
    pub(super) bytes: usize,
    left_out: u64,
}

/// Digests of the members of a payload, and of what came of it.
pub(super) type Observation = (BTreeMap<String, BodyDigest>, BodyDigest);

/// Outcomes by pressure: the key is the whole part of the PSI, from 0 to 100.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Readings {
    /// Outcomes that kept the principle.
    pub good: BTreeMap<u8, Count>,
    /// Outcomes that did not.
    pub bad: BTreeMap<u8, Count>,
}

/// A number that results report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// How often.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// Millionths, summed exactly: a sum of doubles would depend on their order.
    sum_millionths: i128,
}

impl Metric {
    /// Greater values are passed over.
    const GREATEST: f64 = 1e15;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the value is within bounds, and a mean is a rounded number"
    )]
    fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum_millionths += (value * 1e6).round() as i128;
        self.mean = self.sum_millionths as f64 / 1e6 / self.count as f64;
    }

    #[expect(clippy::cast_precision_loss, reason = "a mean is a rounded number")]
    fn merge(&mut self, other: &Self) {
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum_millionths += other.sum_millionths;
        self.mean = self.sum_millionths as f64 / 1e6 / self.count as f64;
    }
}

impl Tally {
    pub(super) fn take(&mut self, signal: &Signal, bounds: &Bounds) {
        self.ids.insert(signal.id);
        let speaker = Speaker::from(signal);
        let grown = self.shares.add(speaker, Count::WHOLE, bounds.max_issuers);
        self.ledger.bytes += Ledger::ENTRY + grown;
        if let Some(feedback) = &signal.feedback {
            self.take_feedback(signal, feedback, bounds);
        }
        if let Some(status) = &signal.status {
            *self.statuses.entry(status.clone()).or_default() += 1;
        }
        if let Some(alignment) = &signal.alignment {
            *self.alignments.entry(alignment.clone()).or_default() += 1;
        }
        if signal.cache_hit == Some(true) {
            // What a hit says was said when its record was computed.
            self.hits += 1;
        } else {
            self.take_findings(signal, bounds);
            self.take_readings(signal, bounds);
            self.take_metrics(signal, bounds);
            self.take_actions(signal, bounds);
            if let Some(observed) = &signal.observed {
                self.take_observed(signal, observed, bounds);
            }
        }
        self.left_out = self.ledger.left_out;
    }

    /// Adds what another one has, of whose weight so many thousandths are left.
    pub(super) fn absorb(&mut self, other: &Self, thousandths: u64) {
        let fade = |own: &mut Count, count: &Count| own.merge_faded(count, thousandths);
        self.ids.extend(&other.ids);
        self.shares.merge_faded(&other.shares, Count::WHOLE);
        self.hits += other.hits;
        merge(&mut self.statuses, &other.statuses, |own, n| *own += n);
        merge(&mut self.alignments, &other.alignments, |own, n| *own += n);
        merge(&mut self.checks, &other.checks, fade);
        merge(&mut self.violations, &other.violations, fade);
        merge(&mut self.readings, &other.readings, |own, readings| {
            merge(&mut own.good, &readings.good, fade);
            merge(&mut own.bad, &readings.bad, fade);
        });
        merge(&mut self.metrics, &other.metrics, Metric::merge);
        for (digest, (action, count)) in &other.actions {
            take_action(self.actions.entry(*digest).or_default(), action);
            if let Some((_, own)) = self.actions.get_mut(digest) {
                fade(own, count);
            }
        }
        merge(&mut self.notes, &other.notes, fade);
        fade(&mut self.praise, &other.praise);
        fade(&mut self.blame, &other.blame);
        merge(&mut self.observed, &other.observed, fade);
        self.left_out += other.left_out;
        self.ledger.bytes += other.ledger.bytes;
        self.ledger.left_out += other.ledger.left_out;
    }

    fn take_feedback(&mut self, signal: &Signal, feedback: &Feedback, bounds: &Bounds) {
        self.ledger.bytes += match feedback.is_good() {
            Some(true) => self.praise.add(signal, bounds),
            Some(false) => self.blame.add(signal, bounds),
            None => 0,
        };
        if let Some(note) = feedback.notes.clone() {
            let bytes = note.len();
            if let Some(slot) = self.ledger.slot(&mut self.notes, note, bytes, bounds) {
                self.ledger.bytes += slot.add(signal, bounds);
            }
        }
    }

    fn take_findings(&mut self, signal: &Signal, bounds: &Bounds) {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let checks = signal.policy_checks.iter().flatten();
        let checks = checks.filter(|check| !is_own_doing(signal, check));
        let checks = checks.map(|check| (text(&check.principle), text(&check.status)));
        for key in checks {
            let bytes = key.0.len() + key.1.len();
            if let Some(slot) = self.ledger.slot(&mut self.checks, key, bytes, bounds) {
                self.ledger.bytes += slot.add(signal, bounds);
            }
        }
        let issues = signal.violations.iter().flatten();
        // A constraint is a text of the task's own, and says nothing of a principle of that name.
        let is_found =
            |issue: &&PolicyViolation| !issue.is_by_threshold() && !issue.is_of_constraint();
        let issues = issues.filter(is_found);
        let issues = issues.map(|issue| (text(&issue.principle), text(&issue.severity)));
        for key in issues {
            let bytes = key.0.len() + key.1.len();
            if let Some(slot) = self.ledger.slot(&mut self.violations, key, bytes, bounds) {
                self.ledger.bytes += slot.add(signal, bounds);
            }
        }
    }

    fn take_readings(&mut self, signal: &Signal, bounds: &Bounds) {
        for (principle, reading) in signal.pressure_readings.iter().flatten() {
            let Some(is_good) = verdict(signal, principle) else {
                continue;
            };
            let key = (principle.clone(), signal.pressure_level);
            let bytes = principle.len();
            let readings = self.ledger.slot(&mut self.readings, key, bytes, bounds);
            let Some(readings) = readings else { continue };
            let side = if is_good {
                &mut readings.good
            } else {
                &mut readings.bad
            };
            let grown = side.entry(psi(reading)).or_default().add(signal, bounds);
            self.ledger.bytes += Ledger::ENTRY + grown;
        }
    }

    fn take_metrics(&mut self, signal: &Signal, bounds: &Bounds) {
        let Some(metrics) = &signal.metrics else {
            return;
        };
        for (name, value) in members::<RawBuf>(metrics) {
            let value = value.deserialize::<f64>();
            let Some(value) = value.ok().filter(|value| value.abs() <= Metric::GREATEST) else {
                continue;
            };
            let bytes = name.len();
            let slot = self.ledger.slot(&mut self.metrics, name, bytes, bounds);
            if let Some(slot) = slot {
                slot.add(value);
            }
        }
    }

    fn take_actions(&mut self, signal: &Signal, bounds: &Bounds) {
        for action in signal.next_actions.iter().flatten() {
            let bytes = action.as_str().len();
            let digest = BodyDigest(body_digest(action.as_str().as_bytes()));
            let slot = self.ledger.slot(&mut self.actions, digest, bytes, bounds);
            if let Some(slot) = slot {
                take_action(slot, action);
                self.ledger.bytes += slot.1.add(signal, bounds);
            }
        }
    }

    fn take_observed(&mut self, signal: &Signal, observed: &Observed, bounds: &Bounds) {
        let bytes = observed.members.keys().map(|name| name.len() + 32).sum();
        let key = (observed.members.clone(), observed.output);
        let bounds = Bounds {
            max_names: bounds.max_observed,
            max_text_bytes: bounds.max_text_bytes.saturating_mul(4),
            ..*bounds
        };
        if let Some(slot) = self.ledger.slot(&mut self.observed, key, bytes, &bounds) {
            self.ledger.bytes += slot.add(signal, &bounds);
        }
    }
}

impl Ledger {
    /// About what an entry takes besides its text.
    const ENTRY: usize = 64;

    /// The place of a key, made where there is room for it.
    fn slot<'m, K: Ord, V: Default>(
        &mut self,
        map: &'m mut BTreeMap<K, V>,
        key: K,
        bytes: usize,
        bounds: &Bounds,
    ) -> Option<&'m mut V> {
        let is_new = !map.contains_key(&key);
        if is_new && (map.len() >= bounds.max_names || bytes > bounds.max_text_bytes) {
            self.left_out += 1;
            return None;
        }
        if is_new {
            self.bytes += bytes + Self::ENTRY;
        }
        Some(map.entry(key).or_default())
    }
}

/// Of two spellings of an action the lesser, so that the order does not matter.
fn take_action((text, count): &mut (RawObject, Count), action: &RawObject) {
    if count.signals == 0 || action.as_str() < text.as_str() {
        text.clone_from(action);
    }
}

fn merge<K: Ord + Clone, V: Default>(
    own: &mut BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
    mut add: impl FnMut(&mut V, &V),
) {
    for (key, value) in other {
        add(own.entry(key.clone()).or_default(), value);
    }
}

/// Whether an outcome kept a principle; `None` where the signal does not say.
fn verdict(signal: &Signal, principle: &str) -> Option<bool> {
    if let Some(feedback) = &signal.feedback {
        return feedback.is_good();
    }
    let mut broken = signal.violations.iter().flatten().peekable();
    let names_any = broken.peek().is_some();
    let is_here = |violation: &&PolicyViolation| violation.principle.as_deref() == Some(principle);
    let mut here = broken.filter(is_here).peekable();
    if here.peek().is_some() {
        // What a threshold has stopped says nothing of what would have come of it: a bound that learned of itself
        // would become tighter and tighter.
        let is_found = here.any(|violation| !violation.is_by_threshold());
        return is_found.then_some(false);
    }
    let is_done = matches!(signal.status, Some(Status::Succeeded | Status::Partial));
    match &signal.alignment {
        Some(Alignment::Valid) => is_done.then_some(true),
        // Somebody broke something: whom it concerns is said, or it concerns all.
        Some(_) => (!names_any).then_some(false),
        None => None,
    }
}

/// Whether a threshold alone has made a check fail. That a principle was found broken binds it for others, and a bound must
/// not widen itself.
fn is_own_doing(signal: &Signal, check: &PolicyCheck) -> bool {
    let issues = signal.violations.iter().flatten();
    let mut here = issues
        .filter(|issue| issue.principle == check.principle)
        .peekable();
    check.status.as_deref() == Some("FAIL")
        && here.peek().is_some()
        && here.all(PolicyViolation::is_by_threshold)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0..=100"
)]
fn psi(reading: &Number) -> u8 {
    reading.value().clamp(0.0, 100.0).floor() as u8
}

fn members<T: for<'a> Read<'a>>(object: &RawObject) -> BTreeMap<String, T> {
    let read = json::read_raw::<BTreeMap<String, T>>;
    let outcome = read(object.as_raw(), &unbounded(), Profile::Strict);
    outcome.map(|(members, _)| members).unwrap_or_default()
}
