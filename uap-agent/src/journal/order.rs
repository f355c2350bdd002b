//! The order of entries.

use std::collections::BTreeMap;

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
}

impl EntryOrder {
    /// The lease as the entries leave it.
    pub(super) fn into_lease(self) -> Option<LeaseState> {
        self.lease
    }

    /// Takes the entry at a place. A lease without an epoch gets the next.
    pub(super) fn check(&mut self, n: u64, entry: &mut Entry) -> Result<(), &'static str> {
        if self.ended && !matches!(entry, Entry::Lease(_)) {
            return Err("an entry behind the end");
        }
        if (n == 0) != matches!(entry, Entry::Begin(_)) {
            return Err("the beginning as the first entry, and nowhere else, wanted");
        }
        if let (Some(lease), Some(at)) = (&mut self.lease, entry.at()) {
            lease.prolong(at);
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

    fn lease(&mut self, lease: &mut LeaseEntry) -> Result<(), &'static str> {
        let known = self.lease.as_ref().map_or(0, |known| known.last.epoch);
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
