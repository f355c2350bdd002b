//! Rules that hold for both sides.

use ubos_common::violation::Level;

use super::observed::ObservedState;
use super::observed::violation_of;
use super::recording::{Line, LineKind, RecordedMessage, SLACK, index};
use super::rule::{Check, RuleVerdict};
use opensentience_wire::message::{Message, MessageType, Side};
use opensentience_wire::{ErrorCode, ErrorObject};

/// Bytes of the other side that break the framing end the connection, and are never sent.
pub(super) fn closes_after(clause: &'static str) -> impl Check {
    move |state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict| {
        check_closes(clause, state, line, me, verdict);
    }
}

/// No message of this side has a finding of the clause; only messages that `about` picks test it.
pub(super) fn no_finding(clause: &'static str, about: fn(&RecordedMessage) -> bool) -> impl Check {
    move |_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict| {
        check_findings(clause, about, line, me, verdict);
    }
}

/// A violation by the other side does not end the connection.
pub(super) fn tolerates(clause: &'static str) -> impl Check {
    move |state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict| {
        check_tolerates(clause, state, line, me, verdict);
    }
}

/// This side does not violate the clause; only messages that `about` picks test it.
pub(super) fn never_sends(clause: &'static str, about: fn(&RecordedMessage) -> bool) -> impl Check {
    move |state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict| {
        check_never_sends(clause, about, state, line, me, verdict);
    }
}

/// What breaks the rules is dropped, and nothing of it is sent.
pub(super) fn envelopes(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    check_tolerates("OSW-3-1", state, line, me, verdict);
    check_findings("OSW-3-1", |_| true, line, me, verdict);
}

fn check_closes(
    clause: &str,
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if let LineKind::NotAMessage(broken) = &line.kind
        && line.from == me
        && broken.clause() == clause
    {
        verdict.broken("sent", "a frame that no reader takes");
    }
    let Some((at, broken)) = state.framing_error(me.other()) else {
        return;
    };
    if broken.clause() != clause || state.has_ended(me).is_some() {
        return;
    }
    if line.is_end_of(me) {
        verdict.kept();
    } else if line.at > at.saturating_add(SLACK) {
        verdict.broken("behind the broken frame", "the connection is still open");
    }
}

pub(super) fn check_findings(
    clause: &str,
    about: fn(&RecordedMessage) -> bool,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let Some(message) = line.message_from(me).filter(|message| about(message)) else {
        return;
    };
    let of_clause = |found: &&ubos_common::violation::Violation| {
        found.clause == clause && found.level != Level::Advice
    };
    match message.findings.iter().find(of_clause) {
        Some(found) => verdict.broken(&found.pointer, found.message.as_ref()),
        None => verdict.kept(),
    }
}

pub(super) fn check_tolerates(
    clause: &str,
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let fault = state.violations.get(clause);
    let Some((at, _)) = fault.filter(|(_, by)| *by == me.other()) else {
        return;
    };
    if line.is_end_of(me) && state.must_stay_open(me) {
        verdict.broken("behind the fault", "the connection was closed for it");
    } else if line.message_from(me).is_some() && line.at >= *at {
        verdict.kept();
    }
}

pub(super) fn check_never_sends(
    clause: &str,
    about: fn(&RecordedMessage) -> bool,
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    if line.message_from(me).is_some_and(about) {
        match violation_of(state, line) {
            Some((of, seen)) if of == clause => verdict.broken("sent", seen),
            _ => verdict.kept(),
        }
    }
}

/// Errors are written without what is for developers alone.
pub(super) fn no_debug(_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    let Some(message) = line.message_from(me) else {
        return;
    };
    for error in errors(message) {
        let bare = error.debug.is_none();
        verdict.check(bare, "error", || "debug is written".to_owned());
    }
}

fn errors(message: &RecordedMessage) -> Vec<&ErrorObject> {
    let mut errors: Vec<&ErrorObject> = message.error.iter().collect();
    match &message.content {
        Some(Message::ToolResult(result)) => errors.extend(&result.error),
        Some(Message::Registered(reply)) => {
            let rejected = reply.rejected.iter().flatten();
            errors.extend(rejected.map(|rejected| &rejected.error));
        }
        _ => {}
    }
    errors
}

/// Whether a message has an error somewhere, also one that breaks the rules.
pub(super) fn has_error(message: &RecordedMessage) -> bool {
    !errors(message).is_empty()
        || message
            .findings
            .iter()
            .any(|found| found.clause == "OSW-3-11")
}

/// Unknown types are answered where somebody waits, and nowhere else.
pub(super) fn unknown_types(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let mine = if me == Side::Core {
        MessageType::CoreError
    } else {
        MessageType::AgentError
    };
    if let Some(message) = line.message_from(me).filter(|message| message.kind == mine) {
        let about = message.in_reply_to.as_deref().unwrap_or_default();
        let other = state
            .ids
            .get(index(me.other()))
            .and_then(|ids| ids.get(about));
        if matches!(
            other,
            Some(MessageType::CoreError | MessageType::AgentError)
        ) {
            verdict.broken("in_reply_to", "an error is answered with an error");
        }
        match state.unknown.get(about) {
            Some(unknown) if unknown.wants_answer => {
                let code = message.error_code() == Some(&ErrorCode::UnknownType);
                verdict.check(code, "error/code", || {
                    "protocol.unknown_type is wanted".into()
                });
            }
            Some(_) => verdict.broken("in_reply_to", "answered where nobody waits"),
            None => {}
        }
    }
    let waits = state
        .unknown
        .values()
        .filter(|u| u.from != me && u.wants_answer);
    for unknown in waits {
        let late = line.at > unknown.at.saturating_add(SLACK);
        if late || line.is_end_of(me) && state.must_stay_open(me) {
            verdict.broken("unknown type", "somebody waits, and nothing was answered");
        }
    }
}

/// No id is used twice.
pub(super) fn fresh_ids(state: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some(message) = line
        .message_from(me)
        .filter(|message| !message.id.is_empty())
    {
        let known = state.ids.get(index(me));
        let used = known.is_some_and(|ids| ids.contains_key(&message.id));
        verdict.check(!used, "id", || {
            "an id that an earlier message has".to_owned()
        });
    }
}

/// What answers a message names that message, where it names one.
pub(super) fn names_what_it_answers(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    let Some(message) = line.message_from(me) else {
        return;
    };
    let Some(about) = &message.in_reply_to else {
        return;
    };
    let wanted = match message.kind {
        MessageType::Welcome => MessageType::Hello,
        MessageType::Registered => MessageType::Register,
        MessageType::Unregistered => MessageType::Unregister,
        MessageType::ToolResult => MessageType::ToolCall,
        MessageType::CancelAck => MessageType::ToolCancel,
        MessageType::Pong => MessageType::Ping,
        _ => return,
    };
    let there = state
        .ids
        .get(index(me.other()))
        .and_then(|ids| ids.get(about));
    // A hello may be refused for what stands before it.
    let right = there == Some(&wanted) || message.error.is_some() && there.is_some();
    verdict.check(right, "in_reply_to", || {
        format!("{} answers no {wanted}", message.kind)
    });
}

/// Each side sends what is its own, and tolerates what is not.
pub(super) fn own_messages(
    state: &ObservedState,
    line: &Line,
    me: Side,
    verdict: &mut RuleVerdict,
) {
    check_tolerates("OSW-4-1", state, line, me, verdict);
    check_never_sends("OSW-4-1", |_| true, state, line, me, verdict);
}

/// The token is in no message but the hello.
pub(super) fn token_kept(_: &ObservedState, line: &Line, me: Side, verdict: &mut RuleVerdict) {
    if let Some(message) = line.message_from(me) {
        let kept = !message.holds_token || message.kind == MessageType::Hello;
        verdict.check(kept, "message", || {
            format!("{} holds the token", message.kind)
        });
    }
}
