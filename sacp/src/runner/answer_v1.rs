//! The answer to a message of 1.0.

use std::collections::BTreeMap;

use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::time::Timestamp;

use super::outcome::{End, Outcome, StepReport};
use super::{Cause, StepState};
use crate::message::OutFmt;
use crate::v1::{
    Bounded, Code, Failure, Id, Message, Metrics, Outcome as Result, State, Trace, Ts,
};

impl Outcome {
    /// The answer to a message of 1.0, written at `at` by `sender` with the id `msg_id`.
    ///
    /// A run that is done is answered by `DONE`, with all outputs that have a key and the result of each step; a failed
    /// one by `FAILED`, with the step and whether a retry may help; a cancelled one by `CANCELLED`. Its trace is its own:
    /// the span `msg_id` below that of the request, with the attempts, the calls and the time of this run.
    ///
    /// Spec: SACP 1.0, 5, 7
    // impl: SACP1-7-1
    #[must_use]
    pub fn answer_v1(&self, request: &Message, at: Timestamp, sender: Id, msg_id: Id) -> Message {
        let mut answer = request.clone();
        answer.reply_to = Some(request.msg_id.clone());
        answer.recipient = Some(request.sender.clone());
        answer.trace = Some(self.trace_v1(request, &msg_id));
        answer.out_fmt = Some(OutFmt::Raw);
        if let Some(overruled) = self.told_overruled() {
            let ext = answer.ext.get_or_insert_default();
            ext.insert("sacp.overruled", overruled);
        }
        (answer.msg_id, answer.sender, answer.ts) = (msg_id, sender, Ts::from(at));
        match self.end {
            End::Done => answer.done(self.result_v1()),
            End::Failed => answer.failed(self.failure_v1()),
            End::Cancelled => {
                (answer.result, answer.error) = (None, None);
                answer.state = State::Cancelled;
                answer
            }
        }
    }

    fn result_v1(&self) -> Result {
        let keyed =
            |step: &StepReport| Some((step.output_key.clone()?, step.output.as_deref()?.clone()));
        let outputs: BTreeMap<String, RawBuf> = self.steps.iter().filter_map(keyed).collect();
        let mut result = Result::new(outputs);
        result.step_results = Some(self.step_results());
        result
    }

    fn step_results(&self) -> RawObject {
        let mut text = Vec::new();
        let mut object = MemberWriter::begin(&mut text);
        for step in &self.steps {
            object.member(&step.id, &step_result(step));
        }
        object.end();
        RawObject::new(crate::reply::raw(text)).unwrap_or_default()
    }

    /// The trace of the answer: a span of its own below that of the request, with what this run took.
    fn trace_v1(&self, request: &Message, msg_id: &Id) -> Trace {
        let asked = request.trace.as_ref();
        let attempts = |step: &StepReport| u64::from(step.attempts);
        let mut metrics = Metrics::new();
        let took = self
            .took
            .and_then(|took| u64::try_from(took.as_millis()).ok());
        metrics.latency_ms = took.and_then(Bounded::new);
        metrics.tool_calls = Bounded::new(self.steps.iter().map(attempts).sum());
        let mut trace = Trace::new();
        trace.trace_id = asked.and_then(|trace| trace.trace_id.clone());
        trace.parent_span_id = asked.and_then(|trace| trace.span_id.clone());
        trace.span_id = Some(msg_id.clone());
        trace.attempt = self.steps.iter().map(attempts).max().and_then(Bounded::new);
        trace.metrics = Some(metrics);
        trace
    }

    fn failure_v1(&self) -> Failure {
        let Some(failure) = &self.failure else {
            return Failure::of(Code::InternalError, "the run failed");
        };
        let (code, words) = code_of(&failure.cause);
        let error = Failure::of(code, &words).retryable(failure.cause.is_retryable());
        match failure.step.and_then(|step| self.report(step)) {
            Some(step) => error.in_step(&step.id),
            None => error,
        }
    }
}

/// One of the twelve codes, and the message. Any other code becomes part of the message.
fn code_of(cause: &Cause) -> (Code, String) {
    match Code::from(cause.code()) {
        Code::Other(other) => (Code::ToolInvocationFailed, format!("{other}: {cause}")),
        known => (known, cause.to_string()),
    }
}

fn step_result(step: &StepReport) -> RawBuf {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    object.member("state", state_word(step.state));
    object.member("attempts", &step.attempts);
    if step.state != StepState::Done {
        let error = step
            .failure
            .as_ref()
            .map(|failure| code_of(&failure.cause).0);
        object.optional("error", error.as_ref());
    }
    object.end();
    crate::reply::raw(text)
}

const fn state_word(state: StepState) -> &'static str {
    match state {
        StepState::Waiting => "WAITING",
        StepState::Running => "RUNNING",
        StepState::Done => "DONE",
        StepState::Failed => "FAILED",
        StepState::Skipped => "SKIPPED",
        StepState::Cancelled => "CANCELLED",
    }
}
