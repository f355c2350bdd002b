//! What a side can do wrong that a connection survives.

use super::course::{Call, Course};
use super::line::{Line, What};
use crate::message::{Message, MessageType, ToolStream};

/// What a line does wrong that a connection survives: the clause, and what was seen.
pub(super) fn fault_of(course: &Course, line: &Line) -> Option<(&'static str, &'static str)> {
    let What::Message(said) = &line.what else {
        return None;
    };
    let content = match &said.content {
        None if said.kind == MessageType::ToolResult => {
            return Some(("OSW-4.3-8", "a result that breaks the rules"));
        }
        None => return Some(("OSW-3-1", "a message that breaks the rules")),
        Some(content) => content,
    };
    if said.kind.sender() == Some(line.from.other()) {
        return Some(("OSW-4-1", "a message of the other side"));
    }
    match content {
        Message::Hello(_) if course.hello.is_some() => Some(("OSW-4-1", "a second hello")),
        Message::Welcome(_) if course.welcome.is_some() => Some(("OSW-4-1", "a second welcome")),
        Message::ToolStream(chunk) => fault_of_chunk(course.calls.get(&chunk.call_id), chunk),
        Message::ToolResult(result) => match course.calls.get(&result.call_id) {
            None => Some(("OSW-4.3-12", "a result of a call that never was")),
            Some(call) if call.end.is_some() => Some(("OSW-4.3-7", "a second result of one call")),
            Some(_) => None,
        },
        Message::CancelAck(ack) if !course.cancels.contains(&ack.call_id) => {
            Some(("OSW-4.3-12", "a cancel_ack that nobody waits for"))
        }
        Message::Heartbeat(beat) => {
            let (_, welcome) = course.welcome.as_ref()?;
            let other = beat.session_id != welcome.session_id;
            other.then_some(("OSW-4.5-1", "a heartbeat of another session"))
        }
        _ => None,
    }
}

fn fault_of_chunk(call: Option<&Call>, chunk: &ToolStream) -> Option<(&'static str, &'static str)> {
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
