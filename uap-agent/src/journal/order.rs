//! The order of entries.

use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::time::{Mono, Now};

use super::entry::{Entry, Kind};
use super::lease::{LeaseEntry, LeaseState};
use crate::engine::EffectId;

/// Checks the order of entries, and counts the epochs of leases.
#[derive(Default)]
pub(super) struct EntryOrder {
    asked: BTreeMap<EffectId, Option<Kind>>,
    /// Digests of questions that nobody has decided.
    questions: BTreeMap<EffectId, ubos_common::canon::Digest>,
    lease: Option<LeaseState>,
    ended: bool,
    /// How long the run was under way, and up to which reading of the present process's clock.
    time: Duration,
    counted: Mono,
}

impl EntryOrder {
    /// The lease as the entries leave it.
    pub(super) fn into_lease(self) -> Option<LeaseState> {
        self.lease
    }

    /// The epoch of the lease; 0 before the beginning.
    pub(super) fn epoch(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.last.epoch)
    }

    /// The reading of the owner's clock at the last entry that has one.
    pub(super) const fn counted(&self) -> Mono {
        self.counted
    }

    /// Takes the entry at a place. A lease without an epoch gets the next.
    pub(super) fn check(&mut self, n: u64, entry: &mut Entry) -> Result<(), &'static str> {
        if self.ended && !matches!(entry, Entry::Lease(_)) {
            return Err("an entry behind the end");
        }
        if (n == 0) != matches!(entry, Entry::Begin(_)) {
            return Err("the beginning as the first entry, and nowhere else, wanted");
        }
        if let Some(at) = entry.at() {
            self.at(at, entry);
        }
        match entry {
            Entry::Begin(begin) => {
                let last = LeaseEntry {
                    at: begin.at,
                    epoch: 1,
                    owner: begin.owner.clone(),
                    term: begin.term,
                    is_released: false,
                };
                self.lease = Some(LeaseState { last });
            }
            Entry::Lease(lease) => self.lease(lease)?,
            Entry::Effect(effect) => {
                if self.asked.insert(effect.id, Some(effect.kind)).is_some() {
                    return Err("a second effect of this id");
                }
            }
            Entry::Answer(answer) => {
                let Some(id) = answer.id else { return Ok(()) };
                self.questions.remove(&id);
                let kind = self.asked.get_mut(&id).and_then(Option::take);
                if kind.map(Kind::as_str) != answer.result.kind() {
                    return Err("an answer that nothing before it asks for");
                }
            }
            Entry::Question(_, question) => {
                if self.asked.get(&question.effect) != Some(&Some(Kind::Tool)) {
                    return Err("a question about a tool call that is waited for wanted");
                }
                let former = self.questions.insert(question.effect, question.digest);
                if former.is_some() {
                    return Err("a second question before the first is decided");
                }
            }
            Entry::Decision(_, decision) => {
                let digest = self.questions.remove(&decision.effect);
                if digest != Some(decision.digest) {
                    return Err("a decision of a question that is open wanted");
                }
            }
            Entry::End(_) => self.ended = true,
        }
        Ok(())
    }

    /// How long the run was under way, as far as entries tell, without the time between two processes.
    pub(super) const fn time(&self) -> Duration {
        self.time
    }

    fn at(&mut self, at: Now, entry: &Entry) {
        let epoch = self.epoch();
        let begins = match entry {
            Entry::Begin(_) => true,
            Entry::Lease(lease) => lease.epoch != epoch,
            // Another process has decided, by its own clock.
            Entry::Decision(..) => return,
            _ => false,
        };
        if !begins {
            let more = at.mono.saturating_since(self.counted);
            self.time = self.time.saturating_add(more);
        }
        self.counted = at.mono;
        if let Some(lease) = &mut self.lease {
            lease.prolong(at);
        }
    }

    fn lease(&mut self, lease: &mut LeaseEntry) -> Result<(), &'static str> {
        let known = self.epoch();
        if lease.epoch == 0 {
            lease.epoch = known + 1;
        }
        if lease.epoch < known {
            return Err("a lease whose epoch is not over wanted");
        }
        self.lease = Some(LeaseState {
            last: lease.clone(),
        });
        Ok(())
    }
}
