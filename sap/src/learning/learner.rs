//! Signals of the last while, by period.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ubos_common::ConfigError;
use ubos_common::time::Timestamp;

use super::aggregate::{Aggregate, Held};
use super::bounds::Bounds;
use super::signal::{Signal, SignalSink};
use super::window::Window;
use crate::error::StoreError;

/// Signals of the last while: those of each period apart, so that old ones fade and are forgotten.
///
/// The [`Bounds`] hold for all periods together; a key counts once in each. As in an [`Aggregate`], the order of
/// signals does not matter below them. What is older than the window is forgotten when somebody
/// [gathers](Self::gather).
///
/// ```
/// # use sap::*;
/// # use sap::ubos_common::{id::IdSource, json::RawObject, time::Timestamp};
/// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
/// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
/// # let result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
/// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
/// use sap::learning::{Bounds, Heuristics, Learner, Signal, Support, Window};
///
/// let mut learner = Learner::new(Window::default(), Bounds::default())?;
/// learner.insert(&Signal::of_result(&task, None, &result).expect("a terminal result"))?;
/// let now = Timestamp::EPOCH;
/// let heuristics = Heuristics::derive(&learner.gather(now), Support::default(), None);
/// assert!(heuristics.thresholds.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SAP 7
#[derive(Clone, Debug)]
pub struct Learner {
    window: Window,
    bounds: Bounds,
    periods: BTreeMap<i64, Aggregate>,
    refused: u64,
}

impl Learner {
    /// One that knows nothing yet.
    ///
    /// # Errors
    ///
    /// A setting of the window is out of its range.
    pub fn new(window: Window, bounds: Bounds) -> Result<Self, ConfigError> {
        window.check()?;
        Ok(Self {
            window,
            bounds,
            periods: BTreeMap::new(),
            refused: 0,
        })
    }

    /// Adds a signal to those of its period; gives whether it is new. One that was counted before changes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]; it is counted as refused, and nothing else changes.
    // impl: SAP-7-1, SAP-7-5
    pub fn insert(&mut self, signal: &Signal) -> Result<bool, StoreError> {
        let period = self.window.period(signal.at.timestamp());
        let others = self.periods.iter().filter(|(other, _)| **other != period);
        let others = others.fold(Held::default(), |sum, (_, other)| {
            sum.plus(other.held(signal))
        });
        let inserted = match self.periods.get_mut(&period) {
            Some(known) => known.insert_beside(signal, others),
            None => {
                // One that takes nothing is not kept.
                let mut new = Aggregate::new(self.bounds);
                let inserted = new.insert_beside(signal, others);
                if inserted.is_ok() {
                    self.periods.insert(period, new);
                }
                inserted
            }
        };
        if inserted.is_err() {
            self.refused += 1;
        }
        inserted
    }

    /// Everything that counts now, each signal with the weight of its age. What no longer counts is forgotten.
    pub fn gather(&mut self, now: Timestamp) -> Aggregate {
        self.periods = self.periods.split_off(&self.window.first(now));
        let mut gathered = Aggregate::new(self.bounds).having_refused(self.refused);
        for (period, held) in &self.periods {
            gathered.absorb(held, self.window.weight(*period, now));
        }
        gathered
    }

    /// Signals that were refused at a bound.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// Signals come while others look at it, and wait for as long as they do.
impl SignalSink for Mutex<Learner> {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        // What a panic of another thread left is a signal half counted at worst.
        let mut learner = self.lock().unwrap_or_else(PoisonError::into_inner);
        learner.insert(&signal).map(drop)
    }
}
