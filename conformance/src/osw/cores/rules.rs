//! Rules for cores.

use core::time::Duration;

use crate::osw::defaults::{CALL_GRACE, MAX_INFLIGHT_REQUESTS};
use crate::osw::observed::{Call, ObservedState};
use crate::osw::recording::{Line, LineKind, SLACK};
use crate::osw::rule::RuleVerdict;
use opensentience_wire::ErrorCode;
use opensentience_wire::message::{Message, MessageType, Side, ToolCall, ToolCancel};

/// A connection that must be refused: with a welcome of this code (any where it is `None`), then closed.
fn refuses(
    at: ubos_common::time::Mono,
    code: Option<&ErrorCode>,
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if state.has_ended(me).is_some() {
        return;
    }
    match line
        .message_from(me)
        .and_then(|message| message.content.as_ref())
    {
        Some(Message::Welcome(_)) => verdict.broken("welcome", "the agent was taken in"),
        Some(Message::Refused(error)) if code.is_some_and(|code| *code != error.code) => {
            let wanted = code.map_or("", |code| code.as_str());
            verdict.broken(
                "/error/code",
                format!("{} where {wanted} is wanted", error.code),
            );
        }
        _ => {}
    }
    if line.is_end_of(me) {
        let told = state.refused.is_some();
        verdict.check(told, "end", || {
            "closed without a core.welcome that says why".to_owned()
        });
    } else if line.at > at.saturating_add(SLACK) {
        verdict.broken("refusal", "the connection is still open");
    }
}

/// Anything before the hello is refused.
pub(super) fn hello_first(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some((at, true)) = state.before_hello {
        refuses(
            at,
            Some(&ErrorCode::HandshakeRequired),
            state,
            line,
            me,
            verdict,
        );
    }
}

/// A hello that lacks a member is refused.
pub(super) fn hello_members(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if let Some(hello) = state.hello.as_ref().filter(|hello| !hello.sound) {
        refuses(hello.at, None, state, line, me, verdict);
    }
}

/// A token opens one connection, for its agent; every failure looks the same.
pub(super) fn token(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(hello) = &state.hello else {
        // A core that listens no more has refused a second connection, too.
        if state.token_used && line.is_end_of(me) {
            verdict.kept();
        }
        return;
    };
    if state.token_used && line.is_end_of(me) && state.welcome.is_none() && state.refused.is_none()
    {
        return verdict.kept();
    }
    if state.token_used || hello.sound && !hello.ours {
        refuses(
            hello.at,
            Some(&ErrorCode::Unauthorized),
            state,
            line,
            me,
            verdict,
        );
    }
}

/// Before a valid hello nothing is answered but with a refusal.
pub(super) fn nothing_before(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if state.welcome.is_some() {
        return;
    }
    if let Some(message) = line.message_from(me) {
        let refusal = message.kind == MessageType::Welcome || message.kind == MessageType::Goodbye;
        verdict.check(refusal, "before the welcome", || {
            format!("{} was sent", message.kind)
        });
    }
}

/// A welcome has its members.
pub(super) fn welcome(_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(message) = line
        .message_from(me)
        .filter(|message| message.kind == MessageType::Welcome)
    else {
        return;
    };
    match &message.content {
        Some(Message::Welcome(welcome)) => {
            let good = welcome.heartbeat_interval_ms > 0
                && welcome.max_frame_bytes > 0
                && !welcome.session_id.is_empty();
            verdict.check(good, "/payload", || {
                "a cadence, limit or session of nothing".to_owned()
            });
        }
        Some(_) => {}
        None => {
            let first = message.findings.iter().next();
            let pointer = first.map_or("", |found| &found.pointer);
            verdict.broken(pointer, "wrong or lacking");
        }
    }
}

/// A core and an agent without a version in common part.
pub(super) fn versions(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let hello = state
        .hello
        .as_ref()
        .filter(|hello| hello.sound && hello.ours);
    if let Some(hello) = hello.filter(|hello| !hello.speaks && !state.token_used) {
        refuses(
            hello.at,
            Some(&ErrorCode::UnsupportedVersion),
            state,
            line,
            me,
            verdict,
        );
    } else if let Some(Message::Welcome(welcome)) = line
        .message_from(me)
        .and_then(|message| message.content.as_ref())
    {
        let right = welcome.accepted_version == 1;
        verdict.check(right, "/payload/accepted_version", || {
            "not offered".to_owned()
        });
    }
}

/// After its goodbye a core calls nothing.
pub(super) fn goodbye(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if state.goodbye.is_none() {
        return;
    }
    if call(line, me).is_some() {
        verdict.broken("behind the goodbye", "a call");
    } else if line.is_end_of(me) || line.is_end_of(me.other()) {
        verdict.kept();
    }
}

fn call(line: &Line, me: Side) -> Option<&ToolCall> {
    match &line.message_from(me)?.content {
        Some(Message::ToolCall(call)) => Some(call),
        _ => None,
    }
}

fn cancel(line: &Line, me: Side) -> Option<&ToolCancel> {
    match &line.message_from(me)?.content {
        Some(Message::ToolCancel(cancel)) => Some(cancel),
        _ => None,
    }
}

/// A call names its chain of requests.
pub(super) fn request_ids(_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if call(line, me).is_some() {
        let named = line
            .message_from(me)
            .is_some_and(|message| message.ids.request_id.is_some());
        verdict.check(named, "/request_id", || "a call without one".to_owned());
    }
}

/// Calls are sound, and each has an id of its own.
pub(super) fn calls(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(message) = line
        .message_from(me)
        .filter(|message| message.kind == MessageType::ToolCall)
    else {
        return;
    };
    match &message.content {
        Some(Message::ToolCall(call)) => {
            let fresh = !state.calls.contains_key(&call.call_id);
            verdict.check(fresh, "/payload/call_id", || {
                "an id that another call has".to_owned()
            });
        }
        _ => {
            let first = message.findings.iter().next();
            let pointer = first.map_or("", |found| &found.pointer);
            verdict.broken(pointer, "wrong or lacking");
        }
    }
}

/// Only tools that are registered are called.
pub(super) fn known_tools(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some(call) = call(line, me) {
        let known = state.tools.contains_key(&call.tool_id);
        verdict.check(known, "/payload/tool_id", || {
            "a tool that is not registered".to_owned()
        });
    }
}

/// No more calls run at once than may.
pub(super) fn inflight(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if call(line, me).is_some() {
        let most = MAX_INFLIGHT_REQUESTS;
        let fits = state.running() < most;
        verdict.check(fits, "call", || format!("more than {most} calls at once"));
    }
}

/// A call that is not answered in its time, and a second more, is cancelled.
pub(super) fn timeouts(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let due = |call: &Call| Some(call.at.saturating_add(call.timeout()?));
    if let Some(cancel) = cancel(line, me)
        && let Some(call) = state.calls.get(&cancel.call_id)
        && due(call).is_some_and(|due| line.at >= due)
    {
        verdict.kept();
    }
    // A core that is about to go has nothing more to wait for.
    let parts = line
        .message_from(me)
        .is_some_and(|message| message.kind == MessageType::Goodbye);
    let slack = if parts { Duration::ZERO } else { SLACK };
    let grace = CALL_GRACE.saturating_add(slack);
    let overdue = |call: &Call| {
        call.end.is_none()
            && call.canceled.is_none()
            && due(call).is_some_and(|due| line.at > due.saturating_add(grace))
    };
    if state.must_stay_open(me)
        && state.has_ended(me).is_none()
        && state.calls.values().any(overdue)
    {
        verdict.broken("call", "no result in time, and no cancel");
    }
}

/// A cancel is for a call that was made.
pub(super) fn cancels(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some(cancel) = cancel(line, me) {
        let there = state.calls.contains_key(&cancel.call_id);
        verdict.check(there, "/payload/call_id", || {
            "a call that never was".to_owned()
        });
    }
}

/// An agent that says it is unhealthy, or nothing at all, gets no calls.
pub(super) fn health(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some((since, welcome)) = &state.welcome else {
        return;
    };
    let unwell = state
        .is_unhealthy()
        .filter(|at| line.at > at.saturating_add(HEARD));
    let last = state.heartbeat.as_ref().map_or(*since, |(at, _)| *at);
    let interval = Duration::from_millis(welcome.heartbeat_interval_ms);
    let silence = last
        .saturating_add(interval.saturating_mul(3))
        .saturating_add(HEARD);
    let silent = line.at > silence;
    if call(line, me).is_some() {
        let well = unwell.is_none() && !silent;
        if !well {
            verdict.broken("call", "the agent is unhealthy");
        }
    } else if unwell.is_some() && matches!(line.kind, LineKind::Silence | LineKind::End { .. }) {
        verdict.kept();
    }
}

/// What happened this lately may not have been heard.
const HEARD: Duration = Duration::from_millis(500);

/// Tokens are long, and never the same.
pub(super) fn fresh_tokens(state: &ObservedState, line: &Line, _: Side, verdict: &mut RuleVerdict) {
    if let LineKind::Launched(launch) = &line.kind {
        let long = launch.token.expose().len() >= 43;
        verdict.check(long, "token", || {
            "shorter than 256 bits in base64".to_owned()
        });
        let current = state.launch.iter();
        let mut earlier = state.launches.iter().chain(current);
        if earlier.any(|earlier| earlier.token == launch.token) {
            verdict.broken("token", "that of an earlier launch");
        }
    }
}

/// The socket and its folder are the user's alone.
pub(super) fn modes(_: &ObservedState, line: &Line, _: Side, verdict: &mut RuleVerdict) {
    if let LineKind::Launched(launch) = &line.kind
        && let Some((folder, socket)) = launch.modes
    {
        let alone = folder & 0o077 == 0 && socket & 0o077 == 0;
        verdict.check(alone, "socket", || {
            format!("folder {:o}, socket {:o}", folder & 0o777, socket & 0o777)
        });
    }
}

/// The agent's environment has its variables.
pub(super) fn environment(_: &ObservedState, line: &Line, _: Side, verdict: &mut RuleVerdict) {
    if let LineKind::Launched(launch) = &line.kind
        && let Some(names) = &launch.variables
    {
        for wanted in VARIABLES {
            let there = names.iter().any(|name| name == wanted);
            verdict.check(there, "environment", || format!("{wanted} is not set"));
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
