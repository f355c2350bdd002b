//! Rules for agents: calls, from arrival to their one result.

use core::time::Duration;

use ubos_common::json::RawObject;

use crate::conformance::both::avoids;
use crate::conformance::course::{Call, Course, End};
use crate::conformance::line::{Line, SLACK};
use crate::conformance::rule::Tally;
use crate::error::ErrorCode;
use crate::message::{Message, MessageType, Side, Status, ToolOutcome};
use crate::schema::InputCheck;

/// The first result of a call, as the line brings it.
fn result<'a>(course: &'a Course, line: &Line, me: Side) -> Option<(&'a str, &'a Call, End)> {
    let said = line.said_by(me)?;
    let Some(Message::ToolResult(result)) = &said.content else {
        return None;
    };
    let (id, call) = course.calls.get_key_value(&result.call_id)?;
    let ToolOutcome {
        status,
        output,
        error,
        ..
    } = result;
    let error = error.as_ref().or(said.error.as_ref());
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
    course: &Course,
    line: &Line,
    me: Side,
    tally: &mut Tally,
) {
    if let Some((_, call, end)) = result(course, line, me)
        && about(call)
    {
        let right = end.status == Status::Failed && end.code.as_ref() == Some(code);
        tally.is(right, "/payload/error/code", || {
            format!("{} where failed, {code} is wanted", shown(&end))
        });
    }
    let overdue =
        |call: &&Call| about(call) && call.end.is_none() && line.at > call.at.saturating_add(SLACK);
    if course.calls.values().any(|call| overdue(&call)) && course.has_ended(me).is_none() {
        tally.broken("call", format!("no result where failed, {code} is wanted"));
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
pub(super) fn echoes(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line.said_by(me) else { return };
    let id = match &said.content {
        Some(Message::ToolResult(result)) => &result.call_id,
        Some(Message::ToolStream(chunk)) => &chunk.call_id,
        Some(Message::CancelAck(ack)) => &ack.call_id,
        _ => return,
    };
    if let Some(call) = course.calls.get(id) {
        tally.is(said.ids == call.ids, "ids", || {
            format!("{} does not echo the ids of its call", said.kind)
        });
    }
}

/// An input that is no object ends its call.
pub(super) fn input_is_object(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let about = |call: &Call| call.asked.is_none();
    fails_with(&ErrorCode::ToolInvalidInput, about, course, line, me, tally);
}

/// An input that breaks the tool's schema ends its call, and the tool does not run.
pub(super) fn input_fits(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let about = |call: &Call| {
        let spec = course.tools.get(&call.tool);
        let input = call.asked.as_ref().map(|asked| &asked.input);
        spec.zip(input)
            .is_some_and(|(spec, input)| breaks(spec, input))
    };
    fails_with(&ErrorCode::ToolInvalidInput, about, course, line, me, tally);
}

/// Whether an input breaks a tool's schema for certain.
pub(super) fn breaks(spec: &crate::message::ToolSpec, input: &RawObject) -> bool {
    let most = crate::limits::Limits::default().max_schema_bytes;
    let refusal = InputCheck::of(spec, most).refusal(input);
    refusal.is_some_and(|error| error.code == ErrorCode::ToolInvalidInput)
}

/// A tool that is not there ends its call; a call that runs already is told so.
pub(super) fn not_found(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let about = |call: &Call| call.asked.is_some() && !call.known;
    fails_with(&ErrorCode::ToolNotFound, about, course, line, me, tally);
    if let Some(said) = line
        .said_by(me)
        .filter(|said| said.kind == MessageType::AgentError)
    {
        let about = said.in_reply_to.as_deref().unwrap_or_default();
        if course.doubles.contains_key(about) {
            let right = said.error_code() == Some(&ErrorCode::InvalidMessage);
            tally.is(right, "error/code", || {
                "protocol.invalid_message is wanted for a call that runs already".to_owned()
            });
        }
    }
    let late = |at: &&ubos_common::time::Mono| line.at > at.saturating_add(SLACK);
    if course.doubles.values().any(|at| late(&at)) && course.has_ended(me).is_none() {
        tally.broken("second call of one id", "not answered with agent.error");
    }
}

/// One result a call: not two, and not none.
pub(super) fn one_result(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let is_result = |said: &crate::conformance::Said| said.kind == MessageType::ToolResult;
    avoids("OSW-4.3-7", is_result, course, line, me, tally);
}

/// Each sound call of a tool that is there has a result soon after its time.
pub(super) fn answered(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if result(course, line, me).is_some() {
        tally.held();
    }
    let overdue = |call: &&Call| {
        let due = call
            .timeout()
            .map(|span| call.at.saturating_add(span.saturating_add(SLACK)));
        call.end.is_none() && due.is_some_and(|due| line.at > due)
    };
    if course.calls.values().any(|call| overdue(&call)) && course.has_ended(me).is_none() {
        tally.broken("call", "no result");
    }
}

/// Status, output, error and times of a result agree.
pub(super) fn consistent(_: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line
        .said_by(me)
        .filter(|s| s.kind == MessageType::ToolResult)
    else {
        return;
    };
    if let Some(found) = said
        .findings
        .iter()
        .find(|found| found.clause == "OSW-4.3-8")
    {
        return tally.broken(&found.pointer, found.message.as_ref());
    }
    let Some(Message::ToolResult(result)) = &said.content else {
        return;
    };
    let times = result.started_at.as_ref().zip(result.finished_at.as_ref());
    let ordered = times.is_none_or(|(start, end)| start.timestamp() <= end.timestamp());
    tally.is(ordered, "/payload/finished_at", || {
        "before started_at".to_owned()
    });
}

/// A call that takes longer than its `timeout_ms` ends failed, `tool.timeout`.
pub(super) fn timeouts(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let longer = |call: &Call| {
        let span = call
            .timeout()
            .filter(|_| call.name() == "sleep" && call.known);
        let wanted = call.number("ms").map(Duration::from_millis);
        span.zip(wanted).is_some_and(|(span, wanted)| wanted > span)
    };
    if let Some((_, call, end)) = result(course, line, me)
        && longer(call)
        && call.canceled.is_none()
    {
        let right = end.status == Status::Failed && end.code == Some(ErrorCode::ToolTimeout);
        tally.is(right, "/payload/error/code", || {
            format!("{} where failed, tool.timeout is wanted", shown(&end))
        });
    }
    let overdue = |call: &Call| {
        let due = call
            .timeout()
            .map(|span| call.at.saturating_add(span.saturating_add(SLACK)));
        call.end.is_none() && due.is_some_and(|due| line.at > due)
    };
    let mut calls = course.calls.values();
    if calls.any(|call| longer(call) && overdue(call)) && course.has_ended(me).is_none() {
        tally.broken("call", "no result at its timeout");
    }
}

/// Calls with one key have one effect; another input with the key is a conflict.
pub(super) fn idempotent(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some((id, call, end)) = result(course, line, me) else {
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
    let earlier = course
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
        tally.is(right, "/payload", || {
            "another result for the same key and input".to_owned()
        });
    } else {
        let right = end.code == Some(ErrorCode::ToolConflict);
        tally.is(right, "/payload/error/code", || {
            format!("{} where tool.conflict is wanted", shown(&end))
        });
    }
}

/// Of more calls than may run at once one ends `tool.busy`.
pub(super) fn busy(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let most = crate::limits::Limits::default().max_inflight_requests;
    let about = |call: &Call| call.known && call.before_it >= most;
    fails_with(&ErrorCode::ToolBusy, about, course, line, me, tally);
}

/// An output over the limit becomes an error.
pub(super) fn output_fits(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let told = course
        .welcome
        .as_ref()
        .map_or(u64::MAX, |(_, w)| w.max_frame_bytes);
    bounded(told, course, line, me, tally);
}

/// However much is asked for, the answer has a bound.
pub(super) fn output_bounded(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    bounded(u64::from(u32::MAX), course, line, me, tally);
}

fn bounded(most: u64, course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let about = |call: &Call| {
        let wanted = call
            .number("bytes")
            .filter(|_| call.name() == "large_output");
        call.known && wanted.is_some_and(|wanted| wanted > most)
    };
    fails_with(
        &ErrorCode::ToolOutputTooLarge,
        about,
        course,
        line,
        me,
        tally,
    );
}

/// An acknowledged cancel says whether there was something to stop.
pub(super) fn acknowledges(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(Message::CancelAck(ack)) = line.said_by(me).and_then(|said| said.content.as_ref())
    else {
        return;
    };
    let call = course.calls.get(&ack.call_id);
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
    tally.is(right, "/payload/accepted", || {
        let there = if runs {
            "a call that runs"
        } else {
            "a call that does not run"
        };
        format!("{} for {there}", ack.accepted)
    });
}

/// A cancelled call that can stop ends canceled, by its deadline; one whose cancel was too late does not.
pub(super) fn cancels(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some((_, call, end)) = result(course, line, me)
        && call.canceled.is_some()
    {
        let stopped = end.status == Status::Canceled;
        if call.acked == Some(false) {
            tally.is(!stopped, "/payload/status", || {
                "canceled, though the cancel was not accepted".to_owned()
            });
        } else if call.name() == "sleep" {
            tally.is(stopped, "/payload/status", || {
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
    if course.calls.values().any(overdue) && course.has_ended(me).is_none() {
        tally.broken("call", "cancelled, and no result");
    }
}

/// A call and its cancel in one piece are taken in their order.
pub(super) fn in_order(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(Message::CancelAck(ack)) = line.said_by(me).and_then(|said| said.content.as_ref())
        && let Some(call) = course.calls.get(&ack.call_id)
        && call.name() == "sleep"
        && call.end.is_none()
    {
        tally.is(ack.accepted, "/payload/accepted", || {
            "the cancel was taken before its call".to_owned()
        });
    }
}
