//! Calls that wait for a person.

use std::sync::Arc;

use ubos_common::json::RawObject;
use ubos_common::time::Now;
use upp::{ErrorCode, ToolCall, ToolExecution, UppError, json_text};

use super::super::JournalError;
use super::super::entry::Entry;
use super::super::lease::LeaseState;
use super::super::question::{Decision, Paused, Question, QuestionKind, Verdict};
use super::super::recording::limits;
use super::{Recorder, Writing};
use crate::approval::ApprovalRequest;
use crate::engine::{self, EffectId};
use crate::trace_event::debug;

impl Recorder {
    /// Writes a question in place of a call that needs an approval; all else is handed on.
    pub(super) fn ask_people(
        &mut self,
        now: Now,
        output: engine::Output,
        entries: &mut Vec<Entry>,
    ) -> Option<engine::Output> {
        let engine::Output::Tool(_, call, _) = &output else {
            return Some(output);
        };
        match self.needs_approval(call) {
            Some(request) => {
                self.hold(now, QuestionKind::Approval, output, request, entries);
                None
            }
            None => Some(output),
        }
    }

    /// The approval that a call needs; `None` where it needs none.
    pub(super) fn needs_approval(&self, call: &ToolCall) -> Option<ApprovalRequest> {
        let policy = self.approvals.as_ref()?;
        let requested =
            std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| policy.request(call)));
        // A policy that panics has not said that the call needs no approval.
        requested.unwrap_or_else(|_| Some(ApprovalRequest::default()))
    }

    /// Writes a question about a call, which waits for the decision.
    pub(super) fn hold(
        &mut self,
        now: Now,
        kind: QuestionKind,
        output: engine::Output,
        request: ApprovalRequest,
        entries: &mut Vec<Entry>,
    ) {
        if let engine::Output::Tool(id, call, _) = &output {
            let question = Question::new(now, *id, kind, call, request);
            debug!(effect = *id, kind = kind.as_str(), "person asked");
            entries.push(Entry::Question(now, Box::new(question.clone())));
            self.held.insert(*id, (question, output));
        }
    }

    /// Entries of others stand where this recorder wanted to write.
    pub(super) fn on_behind(&mut self, now: Now, entries: &[RawObject]) {
        let entries_of_own = core::mem::take(&mut self.unwritten);
        let first = self.next - entries_of_own.len() as u64;
        self.gives_up_at = None;
        match self.decisions(first, entries) {
            Ok(decisions) => {
                self.next = first + entries.len() as u64;
                for decision in decisions {
                    self.decide(now, &decision);
                }
                // There is something to do: the lease is kept.
                if matches!(self.writing, Writing::Pause) {
                    self.writing = Writing::Nothing;
                } else {
                    self.write(now, entries_of_own);
                }
            }
            Err(error) => self.on_written(Err(error)),
        }
    }

    /// The decisions that these entries are; an error where one is another's.
    fn decisions(&self, first: u64, entries: &[RawObject]) -> Result<Vec<Decision>, JournalError> {
        let conflict = || JournalError::Conflict {
            wanted: first,
            seen: first + entries.len() as u64,
        };
        let mut decisions = Vec::new();
        for (n, raw) in (first..).zip(entries) {
            let read = Entry::read_at(n, raw, &limits());
            match read.map_err(|error| JournalError::Entry { entry: n, error })? {
                Entry::Decision(_, decision) => decisions.push(*decision),
                // One of this epoch is that of another who took the run over at the same time, and was first.
                Entry::Lease(last) if last.epoch >= self.tenure.epoch => {
                    let (epoch, by) = (self.tenure.epoch, LeaseState { last }.lease());
                    return Err(JournalError::Superseded { epoch, by });
                }
                _ => return Err(conflict()),
            }
        }
        match decisions.is_empty() {
            true => Err(conflict()),
            false => Ok(decisions),
        }
    }

    fn decide(&mut self, now: Now, decision: &Decision) {
        if let Some((_, output)) = self.held.remove(&decision.effect) {
            self.decided(now, &decision.verdict, output);
        }
    }

    /// Goes on with a call that was decided.
    pub(super) fn decided(&mut self, now: Now, verdict: &Verdict, output: engine::Output) {
        let engine::Output::Tool(id, call, _) = &output else {
            return;
        };
        match verdict {
            Verdict::Approve => self.approved.push(output),
            Verdict::Reject(reason) => {
                self.answer(
                    now,
                    *id,
                    call,
                    json_text(&format!("rejected: {reason}")),
                    true,
                );
            }
            Verdict::Answer(result) => self.answer(now, *id, call, result.clone(), false),
        }
    }

    /// Answers a call in place of its tool.
    pub(super) fn answer(
        &mut self,
        now: Now,
        id: EffectId,
        call: &ToolCall,
        result: ubos_common::json::RawBuf,
        is_error: bool,
    ) {
        let (name, call_id) = (Arc::clone(&call.tool_name), Arc::clone(&call.tool_call_id));
        let arguments = call.arguments.clone();
        let execution = ToolExecution::new(name, call_id, arguments, result, is_error, 0);
        let input = engine::Input::Tool(id, execution, Vec::new());
        self.queue.push_back((now, input));
    }

    /// Requests approved calls. First it is written that they may run from here on.
    pub(super) fn request_approved(&mut self, now: Now) {
        if matches!(self.writing, Writing::Nothing) && !self.approved.is_empty() {
            let outputs = core::mem::take(&mut self.approved);
            let lease = Entry::Lease(self.tenure.entry(now));
            self.write_requests(now, vec![lease], outputs);
        }
    }

    /// Ends the run for now, where it can do nothing but wait for persons.
    pub(super) fn wait_for_people(&mut self, now: Now) {
        let waits = matches!(self.writing, Writing::Nothing)
            && !self.held.is_empty()
            && self.pending.len() == self.held.len();
        if !waits {
            return;
        }
        let expired =
            |(_, (question, _)): &(&EffectId, &(Question, _))| question.is_expired(now.wall);
        let expired: Vec<_> = self
            .held
            .iter()
            .filter(expired)
            .map(|(id, _)| *id)
            .collect();
        if expired.is_empty() {
            let release = Entry::Lease(self.tenure.release(now));
            self.write(now, vec![release]);
            self.writing = Writing::Pause;
            return;
        }
        for id in expired {
            if let Some((question, engine::Output::Tool(_, call, _))) = self.held.remove(&id) {
                self.expire(now, &question, &call);
            }
        }
        self.write_answers(now);
    }

    /// Nobody has decided in time.
    pub(super) fn expire(&mut self, now: Now, question: &Question, call: &ToolCall) {
        let text = json_text("rejected: nobody has decided in time");
        self.answer(now, question.effect, call, text, true);
    }

    /// The lease is given up: the run ends, and waits for persons.
    pub(super) fn pause(&mut self) {
        let held = core::mem::take(&mut self.held);
        let paused = Paused {
            questions: held.into_values().map(|(question, _)| question).collect(),
        };
        let code = ErrorCode::from(Paused::CODE);
        self.end(UppError::new(code, "uap", paused.to_string()).with_cause(paused));
    }
}
