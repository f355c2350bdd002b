//! A recorded run is taken over.

use std::sync::Arc;

use ubos_common::time::Now;
use upp::json_text;

use super::super::JournalError;
use super::super::entry::{EndEntry, Entry};
use super::super::fingerprint;
use super::super::held::{Asked, Questions};
use super::super::lease::{Ownership, UnknownOutcome};
use super::super::playback::Playback;
use super::super::question::{Paused, QuestionKind};
use super::Recorder;
use crate::approval::ApprovalPolicy;
use crate::engine::{self, EffectId};
use crate::trace_event::debug;

/// A recording that was played to its end.
pub(in crate::journal) struct Takeover {
    pub(in crate::journal) now: Now,
    pub(in crate::journal) playback: Playback,
    /// The place of the next entry.
    pub(in crate::journal) next: u64,
    /// The epoch that is taken.
    pub(in crate::journal) epoch: u64,
    pub(in crate::journal) questions: Questions,
}

impl Recorder {
    /// Continues a run at the end of its recording.
    pub(in crate::journal) fn resume(
        takeover: Takeover,
        approvals: Option<Arc<dyn ApprovalPolicy>>,
        owner: &Ownership,
    ) -> Result<Self, JournalError> {
        let Takeover {
            now,
            playback,
            next,
            epoch,
            mut questions,
        } = takeover;
        let has_ended = playback.result.is_some();
        if !has_ended && playback.fresh.is_empty() {
            can_go_on(now, &playback, &questions)?;
        }
        debug!(
            next,
            epoch,
            outstanding = playback.pending.len(),
            "recorded run resumed"
        );
        let tenure = owner.tenure(epoch);
        let mut entries = Vec::new();
        // This entry makes the resumers of one run compete for the write: only one of them goes on to act.
        entries.extend((!has_ended).then(|| Entry::Lease(tenure.entry(now))));
        let mut recorder = Self::over(playback.engine, playback.fingerprinter, next, tenure);
        recorder.approvals = approvals;
        let mut outputs: Vec<engine::Output> = Vec::new();
        for (id, (_, effect)) in playback.pending {
            recorder.pending.insert(id);
            let asked = questions.remove(id);
            outputs.extend(recorder.undecided(now, effect, asked, owner, &mut entries));
        }
        for (request, effect) in playback.fresh {
            recorder.pending.insert(request.id);
            entries.push(Entry::Effect(request));
            outputs.extend(recorder.ask_people(now, effect, &mut entries));
        }
        if let Some(result) = playback.result {
            if !playback.has_ended {
                entries.push(Entry::End(EndEntry {
                    success: result.is_ok(),
                    fingerprint: fingerprint::end(&result),
                }));
            }
            outputs.push(engine::Output::Finished(result));
        }
        recorder.write_requests(now, entries, outputs);
        Ok(recorder)
    }

    /// What becomes of a request that has no recorded result.
    fn undecided(
        &mut self,
        now: Now,
        effect: engine::Output,
        asked: Option<Asked>,
        owner: &Ownership,
        entries: &mut Vec<Entry>,
    ) -> Option<engine::Output> {
        let engine::Output::Tool(id, call, scope) = effect else {
            return Some(effect);
        };
        let output = |is_repeated| {
            let mut scope = scope.clone();
            scope.is_repeated |= is_repeated;
            engine::Output::Tool(id, call.clone(), scope)
        };
        let was_decided = asked.is_some();
        let kind = asked.as_ref().map(|asked| asked.question.kind);
        let again = kind == Some(QuestionKind::Outcome);
        match asked {
            Some(Asked {
                question,
                decision: None,
                ..
            }) => {
                if question.is_expired(now.wall) {
                    self.expire(now, &question, &call);
                } else {
                    self.held.insert(id, (question, output(again)));
                }
                return None;
            }
            Some(Asked {
                decision: Some(decision),
                may_have_run: false,
                ..
            }) => {
                self.decided(now, &decision.verdict, output(again));
                // The lease is written behind the approval anyway.
                return self.approved.pop();
            }
            _ => {}
        }
        self.unknown(now, output(true), was_decided, owner, entries)
    }

    /// What becomes of a call that may have run.
    fn unknown(
        &mut self,
        now: Now,
        output: engine::Output,
        was_decided: bool,
        owner: &Ownership,
        entries: &mut Vec<Entry>,
    ) -> Option<engine::Output> {
        let engine::Output::Tool(id, call, _) = &output else {
            return Some(output);
        };
        let approval = self.needs_approval(call);
        match owner.unknown_of(&call.tool_name) {
            // No call is repeated without the approval that it needs by now.
            UnknownOutcome::AskAgain if was_decided || approval.is_none() => return Some(output),
            UnknownOutcome::Fail => {
                let text =
                    "the outcome of this call is unknown: the process ended while the tool ran";
                self.answer(now, *id, call, json_text(text), true);
            }
            UnknownOutcome::AskAgain | UnknownOutcome::Wait => {
                let request = approval.unwrap_or_default();
                self.hold(now, QuestionKind::Outcome, output, request, entries);
            }
        }
        None
    }
}

/// Refuses a run that waits for decisions and can do nothing else.
fn can_go_on(now: Now, playback: &Playback, questions: &Questions) -> Result<(), JournalError> {
    let waits = |id: &EffectId| {
        let open = questions.get(*id).filter(|asked| asked.decision.is_none());
        open.is_some_and(|asked| !asked.question.is_expired(now.wall))
    };
    if playback.pending.is_empty() || !playback.pending.keys().all(waits) {
        return Ok(());
    }
    let questions = questions.open().cloned().collect();
    Err(JournalError::Paused(Paused { questions }))
}
