//! Rules that hold for both sides.

use ubos_common::violation::Level;

use super::course::Course;
use super::faults::fault_of;
use super::line::{Line, SLACK, Said, What, index};
use super::rule::Tally;
use crate::error::{ErrorCode, ErrorObject};
use crate::message::{Message, MessageType, Side};

/// Bytes that break the frames or the text of a clause end the connection, and are never sent.
pub(super) fn ends_after(clause: &str, course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let What::Fatal(broken) = &line.what
        && line.from == me
        && broken.clause() == clause
    {
        tally.broken("sent", "a frame that no reader takes");
    }
    let Some((at, broken)) = course.has_broken(me.other()) else {
        return;
    };
    if broken.clause() != clause || course.has_ended(me).is_some() {
        return;
    }
    if line.is_end_of(me) {
        tally.held();
    } else if line.at > at.saturating_add(SLACK) {
        tally.broken("behind the broken frame", "the connection is still open");
    }
}

/// No message of this side has a finding of the clause; only those that `about` picks put it to the test.
pub(super) fn without_finding(
    clause: &str,
    about: fn(&Said) -> bool,
    line: &Line,
    me: Side,
    tally: &mut Tally,
) {
    let Some(said) = line.said_by(me).filter(|said| about(said)) else {
        return;
    };
    let of_clause = |found: &&ubos_common::violation::Violation| {
        found.clause == clause && found.level != Level::Advice
    };
    match said.findings.iter().find(of_clause) {
        Some(found) => tally.broken(&found.pointer, found.message.as_ref()),
        None => tally.held(),
    }
}

/// A fault of the other side's is survived.
pub(super) fn survives(clause: &str, course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let fault = course.faults.get(clause);
    let Some((at, _)) = fault.filter(|(_, by)| *by == me.other()) else {
        return;
    };
    if line.is_end_of(me) && course.goes_on(me) {
        tally.broken("behind the fault", "the connection was closed for it");
    } else if line.said_by(me).is_some() && line.at >= *at {
        tally.held();
    }
}

/// This side does not do wrong itself.
pub(super) fn avoids(
    clause: &str,
    about: fn(&Said) -> bool,
    course: &Course,
    line: &Line,
    me: Side,
    tally: &mut Tally,
) {
    if line.said_by(me).is_some_and(about) {
        match fault_of(course, line) {
            Some((of, seen)) if of == clause => tally.broken("sent", seen),
            _ => tally.held(),
        }
    }
}

/// Errors are written without what is for developers alone.
pub(super) fn no_debug(_: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line.said_by(me) else { return };
    for error in errors(said) {
        let bare = error.debug.is_none();
        tally.is(bare, "error", || "debug is written".to_owned());
    }
}

fn errors(said: &Said) -> Vec<&ErrorObject> {
    let mut errors: Vec<&ErrorObject> = said.error.iter().collect();
    match &said.content {
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
pub(super) fn has_error(said: &Said) -> bool {
    !errors(said).is_empty() || said.findings.iter().any(|found| found.clause == "OSW-3-11")
}

/// Unknown types are answered where somebody waits, and nowhere else.
pub(super) fn unknown_types(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let mine = if me == Side::Core {
        MessageType::CoreError
    } else {
        MessageType::AgentError
    };
    if let Some(said) = line.said_by(me).filter(|said| said.kind == mine) {
        let about = said.in_reply_to.as_deref().unwrap_or_default();
        let other = course
            .ids
            .get(index(me.other()))
            .and_then(|ids| ids.get(about));
        if matches!(
            other,
            Some(MessageType::CoreError | MessageType::AgentError)
        ) {
            tally.broken("in_reply_to", "an error is answered with an error");
        }
        match course.unknown.get(about) {
            Some(unknown) if unknown.wants_answer => {
                let code = said.error_code() == Some(&ErrorCode::UnknownType);
                tally.is(code, "error/code", || {
                    "protocol.unknown_type is wanted".into()
                });
            }
            Some(_) => tally.broken("in_reply_to", "answered where nobody waits"),
            None => {}
        }
    }
    let waits = course
        .unknown
        .values()
        .filter(|u| u.from != me && u.wants_answer);
    for unknown in waits {
        let late = line.at > unknown.at.saturating_add(SLACK);
        if late || line.is_end_of(me) && course.goes_on(me) {
            tally.broken("unknown type", "somebody waits, and nothing was answered");
        }
    }
}

/// No id is used twice.
pub(super) fn fresh_ids(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(said) = line.said_by(me).filter(|said| !said.id.is_empty()) {
        let known = course.ids.get(index(me));
        let used = known.is_some_and(|ids| ids.contains_key(&said.id));
        tally.is(!used, "id", || {
            "an id that an earlier message has".to_owned()
        });
    }
}

/// What answers a message names that message, where it names one.
pub(super) fn names_what_it_answers(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    let Some(said) = line.said_by(me) else { return };
    let Some(about) = &said.in_reply_to else {
        return;
    };
    let wanted = match said.kind {
        MessageType::Welcome => MessageType::Hello,
        MessageType::Registered => MessageType::Register,
        MessageType::Unregistered => MessageType::Unregister,
        MessageType::ToolResult => MessageType::ToolCall,
        MessageType::CancelAck => MessageType::ToolCancel,
        MessageType::Pong => MessageType::Ping,
        _ => return,
    };
    let there = course
        .ids
        .get(index(me.other()))
        .and_then(|ids| ids.get(about));
    // A hello may be refused for what stands before it.
    let right = there == Some(&wanted) || said.error.is_some() && there.is_some();
    tally.is(right, "in_reply_to", || {
        format!("{} answers no {wanted}", said.kind)
    });
}

/// Each side sends what is its own, and survives what is not.
pub(super) fn own_messages(course: &Course, line: &Line, me: Side, tally: &mut Tally) {
    survives("OSW-4-1", course, line, me, tally);
    avoids("OSW-4-1", |_| true, course, line, me, tally);
}

/// The token is in no message but the hello.
pub(super) fn token_kept(_: &Course, line: &Line, me: Side, tally: &mut Tally) {
    if let Some(said) = line.said_by(me) {
        let kept = !said.holds_token || said.kind == MessageType::Hello;
        tally.is(kept, "message", || format!("{} holds the token", said.kind));
    }
}
