//! The answer to a message of 1.0.

use std::collections::BTreeMap;

use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::time::Timestamp;

use super::outcome::{End, Outcome, StepReport};
use super::{Cause, StepState};
use crate::message::{NonEmpty, OutFmt};
use crate::v1::{Bounded, Code, Failure, Id, Message, Metrics, Outcome as Result, State};

impl Outcome {
    /// The answer to a message of 1.0, written at `at` by `sender` with the id `msg_id`.
    ///
    /// A run that is done is answered by `DONE`, with all outputs that have a key and the result of each step; a failed
    /// one by `FAILED`, with the step and whether a retry may help; a cancelled one by `CANCELLED`. A summary says in
    /// words how many steps ended how. Its trace is its own:
    /// the span `msg_id` below that of the request, with the attempts, the calls and the time of this run.
    ///
    /// Spec: SACP 1.0, 5, 7
    // impl: SACP1-7-1
    #[must_use]
    pub fn answer_v1(&self, request: &Message, at: Timestamp, sender: Id, msg_id: Id) -> Message {
        let mut answer = request.answer_to(at, sender, msg_id);
        self.measure_v1(&mut answer);
        if let Some(overruled) = self.told_overruled() {
            let ext = answer.ext.get_or_insert_default();
            ext.insert("sacp.overruled", overruled);
        }
        match self.end {
            End::Done => {
                let short = answer.out_fmt == Some(OutFmt::Summary);
                answer.done(self.result_v1(short))
            }
            End::Failed => answer.failed(self.failure_v1()),
            End::Cancelled => {
                answer.state = State::Cancelled;
                answer
            }
        }
    }

    fn result_v1(&self, short: bool) -> Result {
        let keyed =
            |step: &StepReport| Some((step.output_key.clone()?, step.output.as_deref()?.clone()));
        let outputs: BTreeMap<String, RawBuf> = self.steps.iter().filter_map(keyed).collect();
        let mut result = Result::new(outputs);
        result.summary = short.then(|| NonEmpty::new(self.summary())).flatten();
        result.step_results = Some(self.step_results());
        result
    }

    fn step_results(&self) -> RawObject {
        by_step(self.steps.iter().map(|step| (&*step.id, step_result(step))))
    }

    /// How many steps ended in which state.
    fn summary(&self) -> String {
        let count = |state| self.steps.iter().filter(|step| step.state == state).count();
        let mut text = format!(
            "{} of {} steps done",
            count(StepState::Done),
            self.steps.len()
        );
        for state in [StepState::Failed, StepState::Skipped, StepState::Cancelled] {
            match count(state) {
                0 => {}
                some => text += &format!(", {some} {}", state_word(state).to_lowercase()),
            }
        }
        text
    }

    /// Sets what this run took.
    fn measure_v1(&self, answer: &mut Message) {
        let attempts = |step: &StepReport| u64::from(step.attempts);
        let mut metrics = Metrics::new();
        let took = self
            .took
            .and_then(|took| u64::try_from(took.as_millis()).ok());
        metrics.latency_ms = took.and_then(Bounded::new);
        metrics.tool_calls = Bounded::new(self.steps.iter().map(attempts).sum());
        if let Some(trace) = &mut answer.trace {
            trace.attempt = self.steps.iter().map(attempts).max().and_then(Bounded::new);
            trace.metrics = Some(metrics);
        }
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

/// The results of steps that each succeeded at once.
pub(crate) fn all_done<'a>(ids: impl Iterator<Item = &'a str>) -> RawObject {
    by_step(ids.map(|id| (id, ended(StepState::Done, 1, None))))
}

fn by_step<'a>(results: impl Iterator<Item = (&'a str, RawBuf)>) -> RawObject {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    for (id, result) in results {
        object.member(id, &result);
    }
    object.end();
    RawObject::new(crate::reply::raw(text)).unwrap_or_default()
}

/// One of the twelve codes, and the message. Any other code becomes part of the message.
fn code_of(cause: &Cause) -> (Code, String) {
    match Code::from(cause.code()) {
        Code::Other(other) => (Code::ToolInvocationFailed, format!("{other}: {cause}")),
        known => (known, cause.to_string()),
    }
}

fn step_result(step: &StepReport) -> RawBuf {
    let failure = step.failure.as_ref();
    let error = failure.filter(|_| step.state != StepState::Done);
    let error = error.map(|failure| code_of(&failure.cause).0);
    ended(step.state, step.attempts, error)
}

fn ended(state: StepState, attempts: u32, error: Option<Code>) -> RawBuf {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    object.member("state", state_word(state));
    object.member("attempts", &attempts);
    object.optional("error", error.as_ref());
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
