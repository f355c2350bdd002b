//! Rules for agents: calls, from arrival to their one result.

use core::time::Duration;

use ubos_common::json::RawObject;

use crate::osw::common_rules::check_never_sends;
use crate::osw::observed::{Call, End, ObservedState};
use crate::osw::recording::{Line, SLACK};
use crate::osw::rule::RuleVerdict;
use opensentience_wire::ErrorCode;
use opensentience_wire::InputSchema;
use opensentience_wire::message::{Message, MessageType, Side, Status, ToolOutcome};

/// The first result of a call, as the line brings it.
fn result<'a>(state: &'a ObservedState, line: &Line, me: Side) -> Option<(&'a str, &'a Call, End)> {
    let message = line.message_from(me)?;
    let Some(Message::ToolResult(result)) = &message.content else {
        return None;
    };
    let (id, call) = state.calls.get_key_value(&result.call_id)?;
    let ToolOutcome {
        status,
        output,
        error,
        ..
    } = result;
    let error = error.as_ref().or(message.error.as_ref());
    let end = End {
        at: line.at,
        status: status.clone(),
        code: error.map(|error| error.code.clone()),
        output: output.clone(),
    };
    call.end.is_none().then_some((id.as_str(), call, end))
}

/// Each call of which `about` is true ends failed with a code, at once.
fn fails_with(
    code: &ErrorCode,
    about: impl Fn(&Call) -> bool,
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if let Some((_, call, end)) = result(state, line, me)
        && about(call)
    {
        let right = end.status == Status::Failed && end.code.as_ref() == Some(code);
        verdict.check(right, "/payload/error/code", || {
            format!("{} where failed, {code} is wanted", shown(&end))
        });
    }
    let overdue =
        |call: &&Call| about(call) && call.end.is_none() && line.at > call.at.saturating_add(SLACK);
    if state.calls.values().any(|call| overdue(&call)) && state.has_ended(me).is_none() {
        verdict.broken("call", format!("no result where failed, {code} is wanted"));
    }
}

fn shown(end: &End) -> String {
    let code = end
        .code
        .as_ref()
        .map_or_else(String::new, |code| format!(", {code}"));
    format!("{}{code}", end.status)
}

/// Answers to a call echo its ids and no others.
pub(super) fn echoes(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(message) = line.message_from(me) else {
        return;
    };
    let id = match &message.content {
        Some(Message::ToolResult(result)) => &result.call_id,
        Some(Message::ToolStream(chunk)) => &chunk.call_id,
        Some(Message::CancelAck(ack)) => &ack.call_id,
        _ => return,
    };
    if let Some(call) = state.calls.get(id) {
        verdict.check(message.ids == call.ids, "ids", || {
            format!("{} does not echo the ids of its call", message.kind)
        });
    }
}

/// An input that is no object ends its call.
pub(super) fn input_is_object(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let about = |call: &Call| call.asked.is_none();
    fails_with(
        &ErrorCode::ToolInvalidInput,
        about,
        state,
        line,
        me,
        verdict,
    );
}

/// An input that breaks the tool's schema ends its call, and the tool does not run.
pub(super) fn input_fits(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let about = |call: &Call| {
        let spec = state.tools.get(&call.tool);
        let input = call.asked.as_ref().map(|asked| &asked.input);
        spec.zip(input)
            .is_some_and(|(spec, input)| breaks(spec, input))
    };
    fails_with(
        &ErrorCode::ToolInvalidInput,
        about,
        state,
        line,
        me,
        verdict,
    );
}

/// Whether an input breaks a tool's schema for certain.
pub(super) fn breaks(spec: &opensentience_wire::message::ToolSpec, input: &RawObject) -> bool {
    let most = crate::osw::defaults::MAX_SCHEMA_BYTES;
    let refusal = InputSchema::compile(spec, most).refusal(input);
    refusal.is_some_and(|error| error.code == ErrorCode::ToolInvalidInput)
}

/// A tool that is not there ends its call; a call that runs already is told so.
pub(super) fn not_found(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let about = |call: &Call| call.asked.is_some() && !call.known;
    fails_with(&ErrorCode::ToolNotFound, about, state, line, me, verdict);
    if let Some(message) = line
        .message_from(me)
        .filter(|message| message.kind == MessageType::AgentError)
    {
        let about = message.in_reply_to.as_deref().unwrap_or_default();
        if state.duplicate_calls.contains_key(about) {
            let right = message.error_code() == Some(&ErrorCode::InvalidMessage);
            verdict.check(right, "error/code", || {
                "protocol.invalid_message is wanted for a call that runs already".to_owned()
            });
        }
    }
    let late = |at: &&ubos_common::time::Mono| line.at > at.saturating_add(SLACK);
    if state.duplicate_calls.values().any(|at| late(&at)) && state.has_ended(me).is_none() {
        verdict.broken("second call of one id", "not answered with agent.error");
    }
}

/// One result a call: not two, and not none.
pub(super) fn one_result(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let is_result = |message: &crate::osw::RecordedMessage| message.kind == MessageType::ToolResult;
    check_never_sends("OSW-4.3-7", is_result, state, line, me, verdict);
}

/// Nothing is sent for a call after the last piece of its output.
pub(super) fn nothing_after_done(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if state.calls.values().any(|call| call.done) {
        check_never_sends("OSW-4.3-6", |_| true, state, line, me, verdict);
    }
}

/// Each sound call of a tool that is there has a result soon after its time.
pub(super) fn answered(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if result(state, line, me).is_some() {
        verdict.kept();
    }
    let overdue = |call: &&Call| {
        let due = call
            .timeout()
            .map(|span| call.at.saturating_add(span.saturating_add(SLACK)));
        call.end.is_none() && due.is_some_and(|due| line.at > due)
    };
    if state.calls.values().any(|call| overdue(&call)) && state.has_ended(me).is_none() {
        verdict.broken("call", "no result");
    }
}

/// Status, output, error and times of a result agree.
pub(super) fn consistent(_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(message) = line
        .message_from(me)
        .filter(|s| s.kind == MessageType::ToolResult)
    else {
        return;
    };
    if let Some(found) = message
        .findings
        .iter()
        .find(|found| found.clause == "OSW-4.3-8")
    {
        return verdict.broken(&found.pointer, found.message.as_ref());
    }
    let Some(Message::ToolResult(result)) = &message.content else {
        return;
    };
    let times = result.started_at.as_ref().zip(result.finished_at.as_ref());
    let ordered = times.is_none_or(|(start, end)| start.timestamp() <= end.timestamp());
    verdict.check(ordered, "/payload/finished_at", || {
        "before started_at".to_owned()
    });
}

/// A call that takes longer than its `timeout_ms` ends failed, `tool.timeout`.
pub(super) fn timeouts(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let longer = |call: &Call| {
        let span = call
            .timeout()
            .filter(|_| call.name() == "sleep" && call.known);
        let wanted = call.number("ms").map(Duration::from_millis);
        span.zip(wanted).is_some_and(|(span, wanted)| wanted > span)
    };
    if let Some((_, call, end)) = result(state, line, me)
        && longer(call)
        && call.canceled.is_none()
    {
        let right = end.status == Status::Failed && end.code == Some(ErrorCode::ToolTimeout);
        verdict.check(right, "/payload/error/code", || {
            format!("{} where failed, tool.timeout is wanted", shown(&end))
        });
    }
    let overdue = |call: &Call| {
        let due = call
            .timeout()
            .map(|span| call.at.saturating_add(span.saturating_add(SLACK)));
        call.end.is_none() && due.is_some_and(|due| line.at > due)
    };
    let mut calls = state.calls.values();
    if calls.any(|call| longer(call) && overdue(call)) && state.has_ended(me).is_none() {
        verdict.broken("call", "no result at its timeout");
    }
}

/// Calls with one key have one effect; another input with the key is a conflict.
pub(super) fn idempotent(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some((id, call, end)) = result(state, line, me) else {
        return;
    };
    let key = |call: &'_ Call| {
        call.asked
            .as_ref()
            .and_then(|asked| asked.idempotency_key.clone())
    };
    let (Some(own), Some(asked)) = (key(call), &call.asked) else {
        return;
    };
    let same = |(other, first): &(&String, &Call)| {
        other.as_str() != id && first.tool == call.tool && key(first).as_ref() == Some(&own)
    };
    let earlier = state
        .calls
        .iter()
        .filter(same)
        .min_by_key(|(_, first)| first.at);
    let Some((first, before)) = earlier.and_then(|(_, first)| Some((first, first.end.as_ref()?)))
    else {
        return;
    };
    if before.status != Status::Succeeded {
        return;
    }
    if first
        .asked
        .as_ref()
        .is_some_and(|first| first.input == asked.input)
    {
        let right = end.status == before.status && end.output == before.output;
        verdict.check(right, "/payload", || {
            "another result for the same key and input".to_owned()
        });
    } else {
        let right = end.code == Some(ErrorCode::ToolConflict);
        verdict.check(right, "/payload/error/code", || {
            format!("{} where tool.conflict is wanted", shown(&end))
        });
    }
}

/// Of more calls than may run at once one ends `tool.busy`.
pub(super) fn busy(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let most = crate::osw::defaults::MAX_INFLIGHT_REQUESTS;
    let about = |call: &Call| call.known && call.before_it >= most;
    fails_with(&ErrorCode::ToolBusy, about, state, line, me, verdict);
}

/// An output over the limit becomes an error.
pub(super) fn output_fits(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let told = state
        .welcome
        .as_ref()
        .map_or(u64::MAX, |(_, w)| w.max_frame_bytes);
    bounded(told, state, line, me, verdict);
}

/// However much is asked for, the answer has a bound.
pub(super) fn output_bounded(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    bounded(u64::from(u32::MAX), state, line, me, verdict);
}

fn bounded(most: u64, state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let about = |call: &Call| {
        let wanted = call
            .number("bytes")
            .filter(|_| call.name() == "large_output");
        call.known && wanted.is_some_and(|wanted| wanted > most)
    };
    fails_with(
        &ErrorCode::ToolOutputTooLarge,
        about,
        state,
        line,
        me,
        verdict,
    );
}

/// An acknowledged cancel says whether there was something to stop.
pub(super) fn acknowledges(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let Some(Message::CancelAck(ack)) = line
        .message_from(me)
        .and_then(|message| message.content.as_ref())
    else {
        return;
    };
    let call = state.calls.get(&ack.call_id);
    let ended = |call: &Call| call.end.as_ref().map(|end| end.at);
    let runs = call.is_some_and(|call| ended(call).is_none());
    // One that ended while the cancel was on its way may be called either.
    let crossed = call.is_some_and(|call| {
        let canceled = call.canceled.map(|(at, _)| at);
        ended(call)
            .zip(canceled)
            .is_some_and(|(end, cancel)| end >= cancel)
    });
    let right = ack.accepted == runs || crossed;
    verdict.check(right, "/payload/accepted", || {
        let there = if runs {
            "a call that runs"
        } else {
            "a call that does not run"
        };
        format!("{} for {there}", ack.accepted)
    });
}

/// A cancelled call that can stop ends canceled, by its deadline; one whose cancel was too late does not.
pub(super) fn cancels(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some((_, call, end)) = result(state, line, me)
        && call.canceled.is_some()
    {
        let stopped = end.status == Status::Canceled;
        if call.acked == Some(false) {
            verdict.check(!stopped, "/payload/status", || {
                "canceled, though the cancel was not accepted".to_owned()
            });
        } else if call.name() == "sleep" {
            verdict.check(stopped, "/payload/status", || {
                format!("{} where canceled is wanted", shown(&end))
            });
        }
    }
    let overdue = |call: &Call| {
        let Some((at, deadline)) = call.canceled.filter(|_| call.end.is_none()) else {
            return false;
        };
        let span = Duration::from_millis(deadline.unwrap_or(0)).saturating_add(SLACK);
        call.name() == "sleep" && call.known && line.at > at.saturating_add(span)
    };
    if state.calls.values().any(overdue) && state.has_ended(me).is_none() {
        verdict.broken("call", "cancelled, and no result");
    }
}

/// A call and its cancel in one piece are taken in their order.
pub(super) fn in_order(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some(Message::CancelAck(ack)) = line
        .message_from(me)
        .and_then(|message| message.content.as_ref())
        && let Some(call) = state.calls.get(&ack.call_id)
        && call.name() == "sleep"
        && call.end.is_none()
    {
        verdict.check(ack.accepted, "/payload/accepted", || {
            "the cancel was taken before its call".to_owned()
        });
    }
}
