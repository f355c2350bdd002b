//! Rules for cores.

use core::time::Duration;

use crate::conformance::course::{Call, Course};
use crate::conformance::line::{Line, SLACK, What};
use crate::conformance::rule::Tally;
use crate::error::ErrorCode;
use crate::limits::{CALL_GRACE, Limits};
use crate::message::{Message, MessageType, Side, ToolCall, ToolCancel};

/// A connection that must be refused: with a welcome of this code (any where it is `None`), then closed.
fn refuses(
    at: ubos_common::time::Mono,
    code: Option<&ErrorCode>,
    course: &Course,
    line: &Line,
    me: Side,
    tally: &mut Tally,
) {
    if course.has_ended(me).is_some() {
        return;
    }
    match line.said_by(me).and_then(|said| said.content.as_ref()) {
        Some(Message::Welcome(_)) => tally.broken("welcome", "the agent was taken in"),
        Some(Message::Refused(error)) if code.is_some_and(|code| *code != error.code) => {
            let wanted = code.map_or("", |code| code.as_str());
            tally.broken(
                "/error/code",
                format!("{} where {wanted} is wanted", error.code),
            );
        }
        _ => {}
    }
    if line.is_end_of(me) {
        let told = course.refused.is_some();
        tally.is(told, "end", || {
            "closed without a core.welcome that says why".to_owned()
        });
    } else if line.at > at.saturating_add(SLACK) {
        tally.broken("refusal", "the connection is still open");
    }
}

/// Anything before the hello is refused.
pub(super) fn hello_first(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some((at, true)) = course.stranger {
        refuses(
            at,
            Some(&ErrorCode::HandshakeRequired),
            course,
            line,
            me,
            tally,
        );
    }
}

/// A hello that lacks a member is refused.
pub(super) fn hello_members(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(hello) = course.hello.as_ref().filter(|hello| !hello.sound) {
        refuses(hello.at, None, course, line, me, tally);
    }
}

/// A token opens one connection, for its agent; every failure looks the same.
pub(super) fn token(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(hello) = &course.hello else {
        // A core that listens no more has refused a second connection, too.
        if course.used && line.is_end_of(me) {
            tally.held();
        }
        return;
    };
    if course.used && line.is_end_of(me) && course.welcome.is_none() && course.refused.is_none() {
        return tally.held();
    }
    if course.used || hello.sound && !hello.ours {
        refuses(
            hello.at,
            Some(&ErrorCode::Unauthorized),
            course,
            line,
            me,
            tally,
        );
    }
}

/// Before a valid hello nothing is answered but with a refusal.
pub(super) fn nothing_before(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if course.welcome.is_some() {
        return;
    }
    if let Some(said) = line.said_by(me) {
        let refusal = said.kind == MessageType::Welcome || said.kind == MessageType::Goodbye;
        tally.is(refusal, "before the welcome", || {
            format!("{} was sent", said.kind)
        });
    }
}

/// A welcome has its members.
pub(super) fn welcome(_: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line
        .said_by(me)
        .filter(|said| said.kind == MessageType::Welcome)
    else {
        return;
    };
    match &said.content {
        Some(Message::Welcome(welcome)) => {
            let good = welcome.heartbeat_interval_ms > 0
                && welcome.max_frame_bytes > 0
                && !welcome.session_id.is_empty();
            tally.is(good, "/payload", || {
                "a cadence, limit or session of nothing".to_owned()
            });
        }
        Some(_) => {}
        None => {
            let first = said.findings.iter().next();
            let pointer = first.map_or("", |found| &found.pointer);
            tally.broken(pointer, "wrong or lacking");
        }
    }
}

/// A core and an agent without a version in common part.
pub(super) fn versions(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let hello = course
        .hello
        .as_ref()
        .filter(|hello| hello.sound && hello.ours);
    if let Some(hello) = hello.filter(|hello| !hello.speaks && !course.used) {
        refuses(
            hello.at,
            Some(&ErrorCode::UnsupportedVersion),
            course,
            line,
            me,
            tally,
        );
    } else if let Some(Message::Welcome(welcome)) =
        line.said_by(me).and_then(|said| said.content.as_ref())
    {
        let right = welcome.accepted_version == 1;
        tally.is(right, "/payload/accepted_version", || {
            "not offered".to_owned()
        });
    }
}

/// After its goodbye a core calls nothing.
pub(super) fn goodbye(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if course.goodbye.is_none() {
        return;
    }
    if call(line, me).is_some() {
        tally.broken("behind the goodbye", "a call");
    } else if line.is_end_of(me) || line.is_end_of(me.other()) {
        tally.held();
    }
}

fn call(line: &Line, me: Side) -> Option<&ToolCall> {
    match &line.said_by(me)?.content {
        Some(Message::ToolCall(call)) => Some(call),
        _ => None,
    }
}

fn cancel(line: &Line, me: Side) -> Option<&ToolCancel> {
    match &line.said_by(me)?.content {
        Some(Message::ToolCancel(cancel)) => Some(cancel),
        _ => None,
    }
}

/// A call names its chain of requests.
pub(super) fn request_ids(_: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if call(line, me).is_some() {
        let named = line
            .said_by(me)
            .is_some_and(|said| said.ids.request_id.is_some());
        tally.is(named, "/request_id", || "a call without one".to_owned());
    }
}

/// Calls are sound, and each has an id of its own.
pub(super) fn calls(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line
        .said_by(me)
        .filter(|said| said.kind == MessageType::ToolCall)
    else {
        return;
    };
    match &said.content {
        Some(Message::ToolCall(call)) => {
            let fresh = !course.calls.contains_key(&call.call_id);
            tally.is(fresh, "/payload/call_id", || {
                "an id that another call has".to_owned()
            });
        }
        _ => {
            let first = said.findings.iter().next();
            let pointer = first.map_or("", |found| &found.pointer);
            tally.broken(pointer, "wrong or lacking");
        }
    }
}

/// Only tools that are registered are called.
pub(super) fn known_tools(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(call) = call(line, me) {
        let known = course.tools.contains_key(&call.tool_id);
        tally.is(known, "/payload/tool_id", || {
            "a tool that is not registered".to_owned()
        });
    }
}

/// No more calls run at once than may.
pub(super) fn inflight(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if call(line, me).is_some() {
        let most = Limits::default().max_inflight_requests;
        let fits = course.running() < most;
        tally.is(fits, "call", || format!("more than {most} calls at once"));
    }
}

/// A call that is not answered in its time, and a second more, is cancelled.
pub(super) fn timeouts(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let due = |call: &Call| Some(call.at.saturating_add(call.timeout()?));
    if let Some(cancel) = cancel(line, me)
        && let Some(call) = course.calls.get(&cancel.call_id)
        && due(call).is_some_and(|due| line.at >= due)
    {
        tally.held();
    }
    // A core that is about to go has nothing more to wait for.
    let parts = line
        .said_by(me)
        .is_some_and(|said| said.kind == MessageType::Goodbye);
    let slack = if parts { Duration::ZERO } else { SLACK };
    let grace = CALL_GRACE.saturating_add(slack);
    let overdue = |call: &Call| {
        call.end.is_none()
            && call.canceled.is_none()
            && due(call).is_some_and(|due| line.at > due.saturating_add(grace))
    };
    if course.goes_on(me) && course.has_ended(me).is_none() && course.calls.values().any(overdue) {
        tally.broken("call", "no result in time, and no cancel");
    }
}

/// A cancel is for a call that was made.
pub(super) fn cancels(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(cancel) = cancel(line, me) {
        let there = course.calls.contains_key(&cancel.call_id);
        tally.is(there, "/payload/call_id", || {
            "a call that never was".to_owned()
        });
    }
}

/// An agent that says it is unhealthy, or nothing at all, gets no calls.
pub(super) fn health(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some((since, welcome)) = &course.welcome else {
        return;
    };
    let unwell = course
        .is_unhealthy()
        .filter(|at| line.at > at.saturating_add(HEARD));
    let last = course.beat.as_ref().map_or(*since, |(at, _)| *at);
    let interval = Duration::from_millis(welcome.heartbeat_interval_ms);
    let silence = last
        .saturating_add(interval.saturating_mul(3))
        .saturating_add(HEARD);
    let silent = line.at > silence;
    if call(line, me).is_some() {
        let well = unwell.is_none() && !silent;
        if !well {
            tally.broken("call", "the agent is unhealthy");
        }
    } else if unwell.is_some() && matches!(line.what, What::Silence | What::End { .. }) {
        tally.held();
    }
}

/// What happened this lately may not have been heard.
const HEARD: Duration = Duration::from_millis(500);

/// Tokens are long, and never the same.
pub(super) fn fresh_tokens(course: &Course, line: &Line, _: Side, tally: &mut Tally) {
    if let What::Begun(launch) = &line.what {
        let long = launch.token.expose().len() >= 43;
        tally.is(long, "token", || {
            "shorter than 256 bits in base64".to_owned()
        });
        let current = course.launch.iter();
        let mut earlier = course.launches.iter().chain(current);
        if earlier.any(|earlier| earlier.token == launch.token) {
            tally.broken("token", "that of an earlier launch");
        }
    }
}

/// The socket and its folder are the user's alone.
pub(super) fn modes(_: &Course, line: &Line, _: Side, tally: &mut Tally) {
    if let What::Begun(launch) = &line.what
        && let Some((folder, socket)) = launch.modes
    {
        let alone = folder & 0o077 == 0 && socket & 0o077 == 0;
        tally.is(alone, "socket", || {
            format!("folder {:o}, socket {:o}", folder & 0o777, socket & 0o777)
        });
    }
}

/// The agent's environment has its variables.
pub(super) fn environment(_: &Course, line: &Line, _: Side, tally: &mut Tally) {
    if let What::Begun(launch) = &line.what
        && let Some(names) = &launch.variables
    {
        for wanted in VARIABLES {
            let there = names.iter().any(|name| name == wanted);
            tally.is(there, "environment", || format!("{wanted} is not set"));
        }
    }
}

/// What a launched agent finds in its environment.
const VARIABLES: [&str; 7] = [
    "OPENSENTIENCE_SOCKET_PATH",
    "OPENSENTIENCE_SESSION_TOKEN",
    "OPENSENTIENCE_AGENT_ID",
    "OPENSENTIENCE_RUN_ID",
    "OPENSENTIENCE_HOME",
    "OPENSENTIENCE_INSTALL_PATH",
    "PATH",
];
