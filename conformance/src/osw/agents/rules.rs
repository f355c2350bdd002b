//! Rules for agents: handshake, tools, health.

use core::time::Duration;

use crate::osw::defaults::MAX_SCHEMA_BYTES;
use crate::osw::observed::ObservedState;
use crate::osw::recording::{FramingError, Line, LineKind, SLACK};
use crate::osw::rule::RuleVerdict;
use opensentience_wire::MAX_FRAME_BYTES;
use opensentience_wire::message::{Message, MessageType, Side, is_tool_name};

/// The ten seconds of the specification, on a busy machine.
const HELLO: Duration = SLACK.saturating_add(Duration::from_secs(10));

/// A hello comes first, and soon.
pub(super) fn hello_first(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if state.hello.is_some() || state.before_hello.is_some() || state.launch.is_none() {
        return;
    }
    match (&line.kind, line.message_from(me)) {
        (_, Some(message)) if message.kind == MessageType::Hello => verdict.kept(),
        (_, Some(message)) => verdict.broken("first", format!("{} before the hello", message.kind)),
        (LineKind::NotAMessage(_), None) if line.from == me => {
            verdict.broken("first", "no message at all")
        }
        (LineKind::End { .. }, None) if line.from == me => verdict.broken("end", "no hello"),
        _ if line.at >= state.connected_at.saturating_add(HELLO) => {
            verdict.broken("begin", "no hello within 10 seconds");
        }
        _ => {}
    }
}

/// A hello has its members, and the token and the id of the launch.
pub(super) fn hello_members(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let message = line
        .message_from(me)
        .filter(|message| message.kind == MessageType::Hello);
    let (Some(message), Some(launch)) = (message, &state.launch) else {
        return;
    };
    let Some(Message::Hello(hello)) = &message.content else {
        let first = message.findings.iter().next();
        let pointer = first.map_or("", |found| &found.pointer);
        return verdict.broken(pointer, "wrong or lacking");
    };
    if hello.session_token != launch.token {
        verdict.broken("/payload/session_token", "not the token of the launch");
    } else if hello.agent_id != launch.agent_id {
        verdict.broken("/payload/agent_id", "not the id of the launch");
    } else {
        verdict.kept();
    }
}

/// Nothing stands between hello and welcome; a refusal, or a version that was not offered, ends the connection.
pub(super) fn waits_for_welcome(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let Some(hello) = &state.hello else { return };
    let foreign = state
        .welcome
        .as_ref()
        .filter(|(_, w)| w.accepted_version != 1);
    let refused = state.refused.as_ref().map(|(at, _)| *at);
    let refused = refused.or_else(|| foreign.map(|(at, _)| *at));
    if let Some(at) = refused {
        if line.is_end_of(me) {
            verdict.kept();
        } else if let Some(message) = line.message_from(me) {
            verdict.broken("behind the refusal", format!("{} was sent", message.kind));
        } else if line.at > at.saturating_add(SLACK) && state.has_ended(me).is_none() {
            verdict.broken("behind the refusal", "the connection is still open");
        }
    } else if let Some(message) = line.message_from(me) {
        let waited = state.welcome.is_some();
        verdict.check(waited, "before the welcome", || {
            format!("{} was sent", message.kind)
        });
    } else if line.is_end_of(me) && state.welcome.is_none() && state.must_stay_open(me) {
        let _ = hello;
    }
}

/// The frame limit that the welcome tells is in force.
pub(super) fn told_limit(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let told = state
        .welcome
        .as_ref()
        .map(|(_, welcome)| welcome.max_frame_bytes);
    let other = told.is_some_and(|told| told != MAX_FRAME_BYTES as u64);
    let Some((at, FramingError::TooLarge)) = state.framing_error(me.other()).filter(|_| other)
    else {
        if other
            && line.from == me
            && matches!(line.kind, LineKind::NotAMessage(FramingError::TooLarge))
        {
            verdict.broken("sent", "a frame over the limit that the welcome told");
        }
        return;
    };
    if state.has_ended(me).is_some() {
        return;
    }
    if line.is_end_of(me) {
        verdict.kept();
    } else if line.at > at.saturating_add(SLACK) {
        verdict.broken(
            "behind a frame over the limit told",
            "the connection is still open",
        );
    }
}

/// After a goodbye the agent ends its calls and closes.
pub(super) fn goodbye(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(at) = state.goodbye.filter(|_| state.welcome.is_some()) else {
        return;
    };
    let other = me.other();
    if [me, other]
        .iter()
        .any(|side| state.has_ended(*side).is_some())
        || state.framing_error(other).is_some()
    {
        return;
    }
    if line.is_end_of(me) {
        let all = state.running() == 0;
        verdict.check(all, "end", || {
            format!("{} calls without a result", state.running())
        });
    } else if line.at > at.saturating_add(DRAIN) {
        verdict.broken("behind the goodbye", "the connection is still open");
    }
}

/// How long an agent may take to end after a goodbye before a judge speaks of it.
pub(super) const DRAIN: Duration = Duration::from_secs(15);

/// A tool's id is the agent's, a slash and the name.
pub(super) fn tool_ids(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(launch) = &state.launch else { return };
    for (n, tool) in offered(line, me).enumerate() {
        let own = tool.tool_id.strip_prefix(launch.agent_id.as_str());
        let name = own.and_then(|rest| rest.strip_prefix('/'));
        let good = name == Some(tool.name.as_str()) && is_tool_name(&tool.name);
        verdict.check(good, &format!("/payload/tools/{n}/tool_id"), || {
            "not the agent's id, a slash and the tool's name".to_owned()
        });
    }
}

/// Each tool has its members, a schema that can be used, and a name of its own.
pub(super) fn tool_members(_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(message) = line
        .message_from(me)
        .filter(|message| message.kind == MessageType::Register)
    else {
        return;
    };
    if let Some(found) = message
        .findings
        .iter()
        .find(|found| found.clause == "OSW-4.2-3")
    {
        return verdict.broken(&found.pointer, found.message.as_ref());
    }
    let mut names = std::collections::BTreeSet::new();
    for (n, tool) in offered(line, me).enumerate() {
        let most = MAX_SCHEMA_BYTES;
        if let Err(why) = opensentience_wire::check_schemas(&tool, most) {
            verdict.broken(&format!("/payload/tools/{n}/input_schema"), why);
        }
        let fresh = names.insert(tool.tool_id);
        verdict.check(fresh, &format!("/payload/tools/{n}/tool_id"), || {
            "an id that another tool has".to_owned()
        });
    }
}

/// The sound tools of a registration.
fn offered(line: &Line, me: Side) -> impl Iterator<Item = opensentience_wire::message::ToolSpec> {
    let register = line
        .message_from(me)
        .and_then(|message| match &message.content {
            Some(Message::Register(register)) => Some(register),
            _ => None,
        });
    let tools = register.map(|register| register.tools.as_slice());
    let limits = ubos_common::json::Limits::default();
    let read = move |raw: &ubos_common::json::RawBuf| {
        opensentience_wire::message::ToolSpec::read(raw.as_raw(), &limits).ok()
    };
    tools.unwrap_or_default().iter().filter_map(read)
}

/// Heartbeats come at the cadence told, also while tools run, with the session's id and the true number of calls.
pub(super) fn heartbeats(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some((since, welcome)) = &state.welcome else {
        return;
    };
    if state.has_ended(me).is_some() || !state.must_stay_open(me) {
        return;
    }
    let interval = Duration::from_millis(welcome.heartbeat_interval_ms.max(1));
    let last = state.heartbeat.as_ref().map_or(*since, |(at, _)| *at);
    // Three intervals without a beat are bad health; a busy machine may not make one of two, nor one of some seconds.
    let late = last.saturating_add(interval.saturating_mul(3).max(Duration::from_secs(5)));
    if line.at > late && welcome.accepted_version == 1 {
        verdict.broken("heartbeat", "none for three intervals");
    }
    let message = line.message_from(me);
    let Some(Message::Heartbeat(beat)) = message.and_then(|message| message.content.as_ref())
    else {
        return;
    };
    if beat.session_id != welcome.session_id {
        return verdict.broken("/payload/session_id", "not that of the welcome");
    }
    // Calls and results that are on their way are counted by one side alone.
    let settled = line.at.saturating_since(last) > Duration::ZERO;
    let (least, most) = calls_around(state, line);
    let count = usize::try_from(beat.inflight_calls).unwrap_or(usize::MAX);
    let right = (least..=most).contains(&count) || !settled;
    verdict.check(right, "/payload/inflight_calls", || {
        format!("{count} where {least} to {most} run")
    });
}

/// How many calls an agent may count now: those that run for certain, and those that may.
fn calls_around(state: &ObservedState, line: &Line) -> (usize, usize) {
    let lately = |at: ubos_common::time::Mono| at.saturating_add(LATELY) >= line.at;
    let calls = || state.calls.values().filter(|call| call.known);
    let certain = calls().filter(|call| call.end.is_none() && !lately(call.at));
    let possible = calls().filter(|call| call.end.as_ref().is_none_or(|end| lately(end.at)));
    (certain.count(), possible.count())
}

/// What happened this lately may be unknown to the other side.
const LATELY: Duration = Duration::from_secs(3);

/// A ping is answered with a pong that names it. An agent that knows no ping is not put to the test.
pub(super) fn pongs(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some(message) = line
        .message_from(me)
        .filter(|message| message.kind == MessageType::Pong)
    {
        let about = message.in_reply_to.as_deref().unwrap_or_default();
        let right = state.pings.contains_key(about);
        verdict.check(right, "in_reply_to", || "no ping has this id".to_owned());
    }
}
