//! The outcome of a run, and the answer made of it.

use core::time::Duration;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{MemberWriter, RawBuf, Write};
use ubos_common::time::Timestamp;
use ubos_common::violation::Violation;

use super::Failure;
use crate::any::MessageRef;
use crate::draw::StepState;
use crate::error::Code;
use crate::message::{Message, NonEmpty, OutFmt, State};
use crate::reply::{self, ErrReply, Reply};
use crate::v1::Id;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Every step ended, though some may have failed or been skipped by a rule.
    Done,
    /// A step failed for good, or the run exceeded its timeout.
    Failed,
    /// The caller cancelled it.
    Cancelled,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The reason, unless the run is done.
    pub failure: Option<Failure>,
    /// Every step, in the order of their numbers.
    pub steps: Vec<StepReport>,
    /// The output of the plan's last entry; of a group, the list of all. Absent if it has none.
    pub result: Option<RawBuf>,
    /// The time from the start of the run to the end of its last step.
    pub took: Option<Duration>,
    /// MUST findings about the plan that the caller chose to overrule; empty unless a configuration says so.
    pub overruled: Vec<Violation>,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// Its number.
    pub number: usize,
    /// Its number among the acts of its own message, from 1.
    pub place: usize,
    /// Its id.
    pub id: String,
    /// The scope that it belongs to: 0 is the outermost message.
    pub scope: usize,
    /// Its pointer in the outermost message.
    pub pointer: String,
    /// The name of its output, if it has one.
    pub output_key: Option<String>,
    /// Its last state.
    pub state: StepState,
    /// Its output, if it is done.
    pub output: Option<Arc<RawBuf>>,
    /// The number of attempts.
    pub attempts: u32,
    /// Why its last attempt failed, or why the step was skipped.
    pub failure: Option<Failure>,
    /// The time from its first start to its end.
    pub took: Option<Duration>,
}

impl Outcome {
    /// The answer to a message of either edition, written at `at` with an id of its own. Who wrote it is, in 1.0, the
    /// recipient of the request; for another sender there is [`answer_v1`](Self::answer_v1).
    // impl: SACP-3-2
    #[must_use]
    pub fn answer<'a>(
        &self,
        at: Timestamp,
        request: impl Into<MessageRef<'a>>,
        ids: &mut IdSource,
    ) -> Reply {
        let msg_id = ids.uuid().to_string();
        match request.into() {
            MessageRef::V01(request) => self.answer_v01(request, &msg_id),
            MessageRef::V10(request) => {
                let sender = request.recipient.clone().unwrap_or_else(Id::nameless);
                let msg_id = Id::new(msg_id).unwrap_or_else(Id::nameless);
                Reply::V10(Box::new(self.answer_v1(request, at, sender, msg_id)))
            }
        }
    }

    /// The answer to a message of 0.1.
    ///
    /// The answer to a run that is done is a `DONE` message. Its context has `result`, the last output; `results`, all
    /// outputs by act number; `failed`, the reasons of failed and skipped steps by act number, if there are any; and
    /// `overruled`, the findings that the run went on in spite of. A summary has no `results`. The answer to any other run is `ERR` with `STEP_FAILED`.
    ///
    /// Spec: SACP 3, 4
    pub(crate) fn answer_v01(&self, request: &Message, msg_id: &str) -> Reply {
        match (&self.end, &self.failure) {
            (End::Done, _) => Reply::Message(Box::new(self.message(request, msg_id))),
            (_, failure) => {
                let at = failure
                    .as_ref()
                    .and_then(|failure| self.report(failure.step?));
                let cause = failure.as_ref().map(|failure| failure.cause.to_string());
                let cause = cause.unwrap_or_else(|| "the run failed".to_owned());
                let error = match at {
                    Some(at) => {
                        ErrReply::new(Code::StepFailed, format!("act {}: {cause}", at.place))
                            .at(&at.pointer)
                    }
                    None => ErrReply::new(Code::StepFailed, cause),
                };
                Reply::Err(error.to(request))
            }
        }
    }

    /// Pointer and code of each finding that was overruled.
    pub(super) fn told_overruled(&self) -> Option<RawBuf> {
        let told = |finding: &Violation| {
            let mut text = Vec::new();
            let mut object = MemberWriter::begin(&mut text);
            object.member("pointer", &finding.pointer);
            object.member("code", finding.code.as_ref());
            object.end();
            reply::raw(text)
        };
        let told: Vec<RawBuf> = self.overruled.iter().map(told).collect();
        (!told.is_empty()).then(|| reply::list(&told.iter().collect::<Vec<_>>()))
    }

    /// The report of a step.
    pub(super) fn report(&self, step: usize) -> Option<&StepReport> {
        self.steps.get(step.checked_sub(1)?)
    }

    // impl: SACP-4-3, SACP-3-8
    fn message(&self, request: &Message, msg_id: &str) -> Message {
        let mut message = answer_to(request);
        message.msg_id = NonEmpty::new(msg_id);
        let outermost = || self.steps.iter().filter(|step| step.scope == 0);
        if let Some(result) = &self.result {
            message.set_context("result", result.clone());
        }
        if request.out_fmt() == OutFmt::Summary {
            message.out_fmt = Some(OutFmt::Summary);
        } else {
            let results = outermost()
                .filter_map(|step| Some((name_of(step), step.output.as_deref()?.clone())));
            message.set_context("results", by_name(results));
        }
        let failed: Vec<(String, RawBuf)> = outermost()
            .filter(|step| matches!(step.state, StepState::Failed | StepState::Skipped))
            .filter_map(|step| {
                Some((
                    name_of(step),
                    words(&step.failure.as_ref()?.cause.to_string()),
                ))
            })
            .collect();
        if !failed.is_empty() {
            message.set_context("failed", by_name(failed.into_iter()));
        }
        if let Some(overruled) = self.told_overruled() {
            message.set_context("overruled", overruled);
        }
        message
    }
}

/// The name of a step's output in `results`: the act number, or `subtask`.
fn name_of(step: &StepReport) -> String {
    if step.pointer == "/subtask" {
        "subtask".to_owned()
    } else {
        step.place.to_string()
    }
}

/// A `DONE` answer without results: goal, context and plan of the request.
pub(super) fn answer_to(request: &Message) -> Message {
    let mut message = Message::new(&request.g, request.plan.clone());
    message.reply_to = request.msg_id.as_deref().and_then(NonEmpty::new);
    message.context = Some(request.context.clone().unwrap_or_default());
    message.out_fmt = Some(OutFmt::Raw);
    message.state = Some(State::Done);
    message
}

pub(super) fn by_name(values: impl Iterator<Item = (String, RawBuf)>) -> RawBuf {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    for (name, value) in values {
        object.member(&name, &value);
    }
    object.end();
    reply::raw(text)
}

fn words(text: &str) -> RawBuf {
    let mut out = Vec::new();
    text.write(&mut out);
    reply::raw(out)
}
