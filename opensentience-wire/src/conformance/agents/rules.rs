//! Rules for agents: handshake, tools, health.

use core::time::Duration;

use crate::conformance::course::Course;
use crate::conformance::line::{Broken, Line, SLACK, What};
use crate::conformance::rule::Tally;
use crate::limits::{HANDSHAKE_TIMEOUT, MAX_FRAME_BYTES};
use crate::message::{Message, MessageType, Side, is_tool_name};

/// A hello comes first, and soon.
pub(super) fn hello_first(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if course.hello.is_some() || course.stranger.is_some() || course.launch.is_none() {
        return;
    }
    match (&line.what, line.said_by(me)) {
        (_, Some(said)) if said.kind == MessageType::Hello => tally.held(),
        (_, Some(said)) => tally.broken("first", format!("{} before the hello", said.kind)),
        (What::Fatal(_), None) if line.from == me => tally.broken("first", "no message at all"),
        (What::End { .. }, None) if line.from == me => tally.broken("end", "no hello"),
        _ if line.at >= course.begun.saturating_add(HANDSHAKE_TIMEOUT) => {
            tally.broken("begin", "no hello within 10 seconds");
        }
        _ => {}
    }
}

/// A hello has its members, and the token and the id of the launch.
pub(super) fn hello_members(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let said = line
        .said_by(me)
        .filter(|said| said.kind == MessageType::Hello);
    let (Some(said), Some(launch)) = (said, &course.launch) else {
        return;
    };
    let Some(Message::Hello(hello)) = &said.content else {
        let first = said.findings.iter().next();
        let pointer = first.map_or("", |found| &found.pointer);
        return tally.broken(pointer, "wrong or lacking");
    };
    if hello.session_token != launch.token {
        tally.broken("/payload/session_token", "not the token of the launch");
    } else if hello.agent_id != launch.agent_id {
        tally.broken("/payload/agent_id", "not the id of the launch");
    } else {
        tally.held();
    }
}

/// Nothing stands between hello and welcome; a refusal, or a version that was not offered, ends the connection.
pub(super) fn waits_for_welcome(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(hello) = &course.hello else { return };
    let foreign = course
        .welcome
        .as_ref()
        .filter(|(_, w)| w.accepted_version != 1);
    let refused = course.refused.as_ref().map(|(at, _)| *at);
    let refused = refused.or_else(|| foreign.map(|(at, _)| *at));
    if let Some(at) = refused {
        if line.is_end_of(me) {
            tally.held();
        } else if let Some(said) = line.said_by(me) {
            tally.broken("behind the refusal", format!("{} was sent", said.kind));
        } else if line.at > at.saturating_add(SLACK) && course.has_ended(me).is_none() {
            tally.broken("behind the refusal", "the connection is still open");
        }
    } else if let Some(said) = line.said_by(me) {
        let waited = course.welcome.is_some();
        tally.is(waited, "before the welcome", || {
            format!("{} was sent", said.kind)
        });
    } else if line.is_end_of(me) && course.welcome.is_none() && course.goes_on(me) {
        let _ = hello;
    }
}

/// The frame limit that the welcome tells is in force.
pub(super) fn told_limit(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let told = course
        .welcome
        .as_ref()
        .map(|(_, welcome)| welcome.max_frame_bytes);
    let other = told.is_some_and(|told| told != MAX_FRAME_BYTES as u64);
    let Some((at, Broken::TooLarge)) = course.has_broken(me.other()).filter(|_| other) else {
        if other && line.from == me && matches!(line.what, What::Fatal(Broken::TooLarge)) {
            tally.broken("sent", "a frame over the limit that the welcome told");
        }
        return;
    };
    if course.has_ended(me).is_some() {
        return;
    }
    if line.is_end_of(me) {
        tally.held();
    } else if line.at > at.saturating_add(SLACK) {
        tally.broken(
            "behind a frame over the limit told",
            "the connection is still open",
        );
    }
}

/// After a goodbye the agent ends its calls and closes.
pub(super) fn goodbye(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(at) = course.goodbye.filter(|_| course.welcome.is_some()) else {
        return;
    };
    let other = me.other();
    if [me, other]
        .iter()
        .any(|side| course.has_ended(*side).is_some())
        || course.has_broken(other).is_some()
    {
        return;
    }
    if line.is_end_of(me) {
        let all = course.running() == 0;
        tally.is(all, "end", || {
            format!("{} calls without a result", course.running())
        });
    } else if line.at > at.saturating_add(DRAIN) {
        tally.broken("behind the goodbye", "the connection is still open");
    }
}

/// How long an agent may take to end after a goodbye before a judge speaks of it.
pub(super) const DRAIN: Duration = Duration::from_secs(8);

/// A tool's id is the agent's, a slash and the name.
pub(super) fn tool_ids(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(launch) = &course.launch else { return };
    for (n, tool) in offered(line, me).enumerate() {
        let own = tool.tool_id.strip_prefix(launch.agent_id.as_str());
        let name = own.and_then(|rest| rest.strip_prefix('/'));
        let good = name == Some(tool.name.as_str()) && is_tool_name(&tool.name);
        tally.is(good, &format!("/payload/tools/{n}/tool_id"), || {
            "not the agent's id, a slash and the tool's name".to_owned()
        });
    }
}

/// Each tool has its members, a schema that can be used, and a name of its own.
pub(super) fn tool_members(_: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line
        .said_by(me)
        .filter(|said| said.kind == MessageType::Register)
    else {
        return;
    };
    if let Some(found) = said
        .findings
        .iter()
        .find(|found| found.clause == "OSW-4.2-3")
    {
        return tally.broken(&found.pointer, found.message.as_ref());
    }
    let mut names = std::collections::BTreeSet::new();
    for (n, tool) in offered(line, me).enumerate() {
        let most = crate::limits::Limits::default().max_schema_bytes;
        if let Err(why) = crate::schema::check_schemas(&tool, most) {
            tally.broken(&format!("/payload/tools/{n}/input_schema"), why);
        }
        let fresh = names.insert(tool.tool_id);
        tally.is(fresh, &format!("/payload/tools/{n}/tool_id"), || {
            "an id that another tool has".to_owned()
        });
    }
}

/// The sound tools of a registration.
fn offered(line: &Line, me: Side) -> impl Iterator<Item = crate::message::ToolSpec> {
    let register = line.said_by(me).and_then(|said| match &said.content {
        Some(Message::Register(register)) => Some(register),
        _ => None,
    });
    let tools = register.map(|register| register.tools.as_slice());
    let limits = ubos_common::json::Limits::default();
    let read = move |raw: &ubos_common::json::RawBuf| {
        crate::message::ToolSpec::read(raw.as_raw(), &limits).ok()
    };
    tools.unwrap_or_default().iter().filter_map(read)
}

/// Heartbeats come at the cadence told, also while tools run, with the session's id and the true number of calls.
pub(super) fn heartbeats(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some((since, welcome)) = &course.welcome else {
        return;
    };
    if course.has_ended(me).is_some() || !course.goes_on(me) {
        return;
    }
    let interval = Duration::from_millis(welcome.heartbeat_interval_ms.max(1));
    let last = course.beat.as_ref().map_or(*since, |(at, _)| *at);
    // Three intervals without a beat are bad health; a busy machine may not make one of two.
    let late = last.saturating_add(interval.saturating_mul(3).max(Duration::from_secs(1)));
    if line.at > late && welcome.accepted_version == 1 {
        tally.broken("heartbeat", "none for three intervals");
    }
    let said = line.said_by(me);
    let Some(Message::Heartbeat(beat)) = said.and_then(|said| said.content.as_ref()) else {
        return;
    };
    if beat.session_id != welcome.session_id {
        return tally.broken("/payload/session_id", "not that of the welcome");
    }
    // Calls and results that are on their way are counted by one side alone.
    let settled = line.at.saturating_since(last) > Duration::ZERO;
    let (least, most) = calls_around(course, line);
    let count = usize::try_from(beat.inflight_calls).unwrap_or(usize::MAX);
    let right = (least..=most).contains(&count) || !settled;
    tally.is(right, "/payload/inflight_calls", || {
        format!("{count} where {least} to {most} run")
    });
}

/// How many calls an agent may count now: those that run for certain, and those that may.
fn calls_around(course: &Course, line: &Line) -> (usize, usize) {
    let lately = |at: ubos_common::time::Mono| at.saturating_add(LATELY) >= line.at;
    let calls = || course.calls.values().filter(|call| call.known);
    let certain = calls().filter(|call| call.end.is_none() && !lately(call.at));
    let possible = calls().filter(|call| call.end.as_ref().is_none_or(|end| lately(end.at)));
    (certain.count(), possible.count())
}

/// What happened this lately may be unknown to the other side.
const LATELY: Duration = Duration::from_millis(500);

/// A ping is answered with a pong that names it. An agent that knows no ping is not put to the test.
pub(super) fn pongs(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(said) = line
        .said_by(me)
        .filter(|said| said.kind == MessageType::Pong)
    {
        let about = said.in_reply_to.as_deref().unwrap_or_default();
        let right = course.pings.contains_key(about);
        tally.is(right, "in_reply_to", || "no ping has this id".to_owned());
    }
}
