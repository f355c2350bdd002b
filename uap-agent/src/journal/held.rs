//! Calls that wait for a person.

use std::collections::BTreeMap;

use ubos_common::time::Timestamp;

use super::entry::Entry;
use super::question::{Decision, DecisionError, Question, Verdict};
use crate::engine::EffectId;

/// The questions of a run that is recorded, by effect.
#[derive(Debug, Default)]
pub(super) struct Questions {
    pending: BTreeMap<EffectId, Asked>,
    /// Whether the run waits for nothing any more.
    is_over: bool,
}

/// A question, and what has become of it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) decision: Option<Decision>,
    /// A lease was written behind the approval, so the call may have started.
    pub(super) may_have_run: bool,
}

impl Asked {
    fn is_approved(&self) -> bool {
        matches!(&self.decision, Some(decision) if decision.verdict == Verdict::Approve)
    }
}

impl Questions {
    pub(super) fn of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut questions = Self::default();
        for entry in entries {
            questions.take(entry);
        }
        questions
    }

    pub(super) fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Question(_, question) => {
                let asked = Asked {
                    question: (**question).clone(),
                    decision: None,
                    may_have_run: false,
                };
                self.pending.insert(question.effect, asked);
            }
            Entry::Decision(_, decision) => {
                if let Some(asked) = self.pending.get_mut(&decision.effect) {
                    asked.decision = Some((**decision).clone());
                }
            }
            Entry::Lease(_) => {
                let approved = self
                    .pending
                    .values_mut()
                    .filter(|asked| asked.is_approved());
                approved.for_each(|asked| asked.may_have_run = true);
            }
            Entry::Answer(answer) => match answer.id {
                Some(id) => drop(self.pending.remove(&id)),
                None => self.end(),
            },
            Entry::End(_) => self.end(),
            Entry::Begin(_) | Entry::Effect(_) => {}
        }
    }

    fn end(&mut self) {
        self.pending.clear();
        self.is_over = true;
    }

    /// Whether a lease behind these entries says that an approved call may have started.
    pub(super) fn has_approved(&self) -> bool {
        self.pending
            .values()
            .any(|asked| asked.is_approved() && !asked.may_have_run)
    }

    pub(super) fn get(&self, effect: EffectId) -> Option<&Asked> {
        self.pending.get(&effect)
    }

    pub(super) fn remove(&mut self, effect: EffectId) -> Option<Asked> {
        self.pending.remove(&effect)
    }

    /// The questions that nobody has decided.
    pub(super) fn open(&self) -> impl Iterator<Item = &Question> {
        let open = |asked: &&Asked| asked.decision.is_none();
        self.pending.values().filter(open).map(|it| &it.question)
    }

    /// Whether a decision may be recorded now. `was_asked`: there is an effect of this id.
    pub(super) fn check(
        &self,
        now: Timestamp,
        decision: &Decision,
        was_asked: bool,
    ) -> Result<(), DecisionError> {
        let effect = decision.effect;
        let Some(asked) = self.pending.get(&effect) else {
            return Err(match was_asked {
                true => DecisionError::Over { effect },
                false => DecisionError::NoQuestion { effect },
            });
        };
        if let Some(former) = &asked.decision {
            let by = former.by.clone();
            return Err(DecisionError::Decided { effect, by });
        }
        let question = &asked.question;
        if question.digest != decision.digest {
            return Err(DecisionError::Digest {
                effect,
                wanted: question.digest,
                seen: decision.digest,
            });
        }
        if let Some(until) = question.expires.filter(|_| question.is_expired(now)) {
            return Err(DecisionError::Expired { effect, until });
        }
        let names = &question.may_answer;
        if !names.is_empty() && !names.iter().any(|name| **name == *decision.by) {
            let by = decision.by.clone();
            return Err(DecisionError::NotAllowed { effect, by });
        }
        Ok(())
    }
}
