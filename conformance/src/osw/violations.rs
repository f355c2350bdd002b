//! What a side can do wrong that a connection tolerates.

use super::observed::{Call, ObservedState};
use super::recording::{Line, LineKind};
use opensentience_wire::message::{Message, MessageType, ToolStream};

/// What a line does wrong that a connection tolerates: the clause, and what was seen.
pub(super) fn violation_of(
    state: &ObservedState,
    line: &Line,
) -> Option<(&'static str, &'static str)> {
    let LineKind::Message(message) = &line.kind else {
        return None;
    };
    let content = match &message.content {
        None if message.kind == MessageType::ToolResult => {
            return Some(("OSW-4.3-8", "a result that breaks the rules"));
        }
        None => return Some(("OSW-3-1", "a message that breaks the rules")),
        Some(content) => content,
    };
    if message.kind.sender() == Some(line.from.other()) {
        return Some(("OSW-4-1", "a message of the other side"));
    }
    match content {
        Message::Hello(_) if state.hello.is_some() => Some(("OSW-4-1", "a second hello")),
        Message::Welcome(_) if state.welcome.is_some() => Some(("OSW-4-1", "a second welcome")),
        Message::ToolStream(chunk) => chunk_violation(state.calls.get(&chunk.call_id), chunk),
        Message::ToolResult(result) => match state.calls.get(&result.call_id) {
            None => Some(("OSW-4.3-12", "a result of a call that never was")),
            Some(call) if call.end.is_some() => Some(("OSW-4.3-7", "a second result of one call")),
            Some(_) => None,
        },
        Message::CancelAck(ack) if !state.cancels.contains(&ack.call_id) => {
            Some(("OSW-4.3-12", "a cancel_ack that nobody waits for"))
        }
        Message::Heartbeat(beat) => {
            let (_, welcome) = state.welcome.as_ref()?;
            let other = beat.session_id != welcome.session_id;
            other.then_some(("OSW-4.5-1", "a heartbeat of another session"))
        }
        _ => None,
    }
}

fn chunk_violation(
    call: Option<&Call>,
    chunk: &ToolStream,
) -> Option<(&'static str, &'static str)> {
    let Some(call) = call.filter(|call| call.end.is_none()) else {
        return Some(("OSW-4.3-12", "output of a call that does not run"));
    };
    if call.done {
        Some(("OSW-4.3-6", "output behind the last piece"))
    } else if call.last_seq == 0 && chunk.seq != 1 {
        Some(("OSW-4.3-5", "output that does not begin with 1"))
    } else if chunk.seq <= call.last_seq {
        Some(("OSW-4.3-5", "a number that does not increase"))
    } else if !chunk.fits_channel() {
        Some(("OSW-4.3-5", "data of another shape than the channel's"))
    } else {
        None
    }
}
