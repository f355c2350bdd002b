//! The JSON of the lines of a trace.

use std::sync::Arc;

use ubos_common::json::{
    DecodeError, Limits, RawBuf, RawObject, Read, decode, read_raw, to_string,
};
use ubos_common::violation::{Level, Profile, Report, Violation};
use upp::{ErrorCode, Message, StreamEvent, TokenUsage};

use crate::event::UapEventType;
use crate::result::{AgentError, GenerateResult};

ubos_common::wire! {
    /// The events that a trace could not keep.
    pub struct LeftOut {
        /// How many events.
        required events: u64 = "events", "UAP-11-3";
        /// How many bytes their lines would have had.
        required bytes: u64 = "bytes", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// One line: exactly one of the three is there.
    struct LineJson {
        /// Milliseconds since 1970.
        required at: u64 = "at", "UAP-11-3";
        /// An event.
        nullable event: RawObject = "event", "UAP-11-3";
        /// The end of a run.
        nullable end: RawObject = "end", "UAP-11-3";
        /// The events that are missing.
        nullable left_out: LeftOut = "leftOut", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// How a run ended.
    pub(super) struct End {
        /// The input.
        nullable input: Arc<str> = "input", "UAP-11-3";
        /// The response.
        nullable answer: Arc<str> = "answer", "UAP-11-3";
        /// Token counts; a cycle is an inference.
        nullable usage: TokenUsage = "usage", "UAP-11-3";
        /// The error.
        nullable error: EndError = "error", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// The error of a run.
    pub(super) struct EndError {
        /// The kind of error.
        required code: ErrorCode = "code", "UAP-11-3";
        /// The provider that failed.
        required provider: Arc<str> = "provider", "UAP-11-3";
        /// The message for a reader.
        required message: Arc<str> = "message", "UAP-11-3";
    }
}

ubos_common::words! {
    /// The agent's id.
    closed pub(super) enum Source {
        /// An event of the agent.
        Uap = "uap",
        /// An event of the model or of a tool.
        Upp = "upp",
    }
}

ubos_common::wire! {
    /// An event, of which one half is there.
    pub(super) struct Event {
        /// Which half.
        required source: Source = "source", "UAP-11-3";
        /// An event of the agent.
        nullable uap: AgentEvent = "uap", "UAP-11-3";
        /// An event of the model or of a tool.
        nullable upp: StreamEvent = "upp", "UAP-11-3";
    }
}

ubos_common::wire! {
    /// An event of the agent.
    pub(super) struct AgentEvent {
        /// The type of the event.
        required event_type: UapEventType = "type", "UAP-11-3";
        /// From 1.
        required step: u64 = "step", "UAP-11-3";
        /// Whose.
        required agent_id: Arc<str> = "agentId", "UAP-11-3";
        /// Its shape follows from the type.
        required data: RawObject = "data", "UAP-11-3";
    }
}

/// A line that was read.
pub(super) struct ReadLine {
    pub(super) at: u64,
    pub(super) what: Line,
}

pub(super) enum Line {
    Event(RawObject),
    End(RawObject),
    LeftOut(LeftOut),
}

pub(super) fn read_line(line: &[u8], limits: &Limits) -> Result<ReadLine, DecodeError> {
    let (read, mut report) = decode::<LineJson>(line, limits, Profile::Strict)?;
    let what = match (read.event, read.end, read.left_out) {
        (Some(event), None, None) => {
            let checked = read_raw::<Event>(event.as_raw(), limits, Profile::Strict);
            under(&mut report, "/event", checked)?.filter(|event| is_whole(event, &mut report));
            Line::Event(event)
        }
        (None, Some(end), None) => {
            under(
                &mut report,
                "/end",
                read_raw::<End>(end.as_raw(), limits, Profile::Strict),
            )?;
            Line::End(end)
        }
        (None, None, Some(left_out)) => Line::LeftOut(left_out),
        _ => {
            report.push(finding("", "exactly one of event, end and leftOut wanted"));
            return Err(DecodeError::Invalid(report));
        }
    };
    if !report.is_valid() {
        return Err(DecodeError::Invalid(report));
    }
    Ok(ReadLine { at: read.at, what })
}

/// The half that the source names is there, and no other.
fn is_whole(event: &Event, report: &mut Report) -> bool {
    let is_uap = event.source == Source::Uap;
    let whole = (event.uap.is_some(), event.upp.is_some()) == (is_uap, !is_uap);
    if !whole {
        let wanted = "the member that source names, and no other, wanted";
        report.push(finding("/event", wanted));
    }
    whole
}

fn under<T>(
    report: &mut Report,
    pointer: &str,
    read: Result<(T, Report), DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let (value, part) = match read {
        Ok((value, part)) => (Some(value), part),
        Err(DecodeError::Invalid(part)) => (None, part),
        Err(error) => return Err(error),
    };
    report.extend_under(pointer, part);
    Ok(value)
}

fn finding(pointer: &str, message: impl Into<std::borrow::Cow<'static, str>>) -> Violation {
    Violation::new(pointer, "trace", "UAP-11-3", Level::Must, message)
}

/// A half of an event or an end, for who draws it: what cannot be read is absent.
pub(super) fn lenient<'a, T: Read<'a>>(object: &'a RawObject, limits: &Limits) -> Option<T> {
    let read = read_raw::<T>(object.as_raw(), limits, Profile::Lenient);
    read.ok().map(|(value, _)| value)
}

/// The end of a run with this result.
pub(super) fn end_of(result: &Result<GenerateResult, Box<AgentError>>) -> End {
    let mut end = End::new();
    let (state, turn) = match result {
        Ok(result) => (&result.state, Some(&result.turn)),
        Err(error) => {
            let told = &error.error;
            let (code, text) = (told.code.clone(), &*told.message);
            end.error = Some(EndError::new(code, Arc::clone(&told.provider), text.into()));
            (&error.state, error.turn.as_ref())
        }
    };
    let asked = |message: &&Message| matches!(message, Message::User(_)) && !is_synthetic(message);
    let messages = state.messages();
    let mut places = (0..messages.len()).rev();
    let input = places.find_map(|n| messages.get(n).filter(asked));
    end.input = input.map(|message| message.text().into());
    if let Some(turn) = turn {
        end.usage = Some(turn.usage.clone());
        let answer = || turn.response.text().into();
        end.answer = end.error.is_none().then(answer);
    }
    end
}

ubos_common::wire! {
    /// The mark of a strategy's own messages.
    struct Mark {
        /// Whether nobody but the strategy said it.
        nullable synthetic: bool = "synthetic", "UAP-5-8";
    }
}

fn is_synthetic(message: &Message) -> bool {
    let mark = message.metadata().and_then(|metadata| metadata.get("uap"));
    let mark = mark.and_then(|mark| {
        read_raw::<Mark>(mark, &Limits::default(), Profile::Lenient)
            .ok()
            .and_then(|(mark, _)| mark.synthetic)
    });
    mark == Some(true)
}

/// The JSON of a value that was read, for who shows it.
pub(super) fn raw(value: &impl ubos_common::json::Write) -> RawBuf {
    RawBuf::assume_sound(to_string(value))
}
