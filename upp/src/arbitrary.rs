//! Messages and events of any shape, for fuzzing and property tests: valid ones, their corners included.
//!
//! ```
//! use arbitrary::{Arbitrary as _, Unstructured};
//! use ubos_common::json::{Limits, decode, to_vec};
//! use ubos_common::violation::Profile;
//! use upp::Message;
//!
//! let bytes: Vec<u8> = (0..=255).cycle().take(4_096).collect();
//! let message = Message::arbitrary(&mut Unstructured::new(&bytes))?;
//! let read = decode::<Message>(&to_vec(&message), &Limits::default(), Profile::Strict);
//! assert_eq!(read.unwrap().0, message);
//! # Ok::<(), arbitrary::Error>(())
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use ::arbitrary::{Arbitrary, Error, Result, Unstructured};
use ubos_common::json::{self, Limits, Members, RawBuf, RawObject, Read, to_vec};
use ubos_common::time::{Rfc3339, Timestamp};
use ubos_common::violation::Profile;

use crate::blob::Blob;
use crate::content::{ContentBlock, MediaKind, Source};
use crate::message::{AssistantMessage, Message, Stamp, ToolResultMessage, UserMessage};
use crate::metadata::Metadata;
use crate::stream::{StreamEvent, StreamEventType};
use crate::tool::{ToolCall, ToolExecution, ToolResult};
use crate::transport::SseReader;

/// A dictionary for fuzzers.
pub const DICTIONARY: &str = include_str!("../vectors/upp.dict");

/// Seed messages, one JSON line each.
pub fn seeds() -> impl Iterator<Item = &'static str> {
    include_str!("../vectors/messages.jsonl").lines()
}

/// The data of server-sent events that arrive in parts, as the adapters read them, and whether all of them could be read.
pub fn server_sent_events<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
    let (mut reader, mut events) = (SseReader::default(), Vec::new());
    for part in parts {
        let fed = reader.feed(part);
        events.extend(core::iter::from_fn(|| reader.next_event()).map(|event| event.data));
        if fed.is_err() {
            return (events, false);
        }
    }
    let finished = reader.finish();
    events.extend(core::iter::from_fn(|| reader.next_event()).map(|event| event.data));
    (events, finished.is_ok())
}

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match u.int_in_range(0..=2)? {
            0 => UserMessage::arbitrary(u)?.into(),
            1 => AssistantMessage::arbitrary(u)?.into(),
            _ => ToolResultMessage::arbitrary(u)?.into(),
        })
    }
}

impl<'a> Arbitrary<'a> for UserMessage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut message = Self::new(stamp(u)?, list(u, |u| block(u, true))?);
        (message.metadata, message.extra) = (maybe(u, metadata)?, extra(u)?);
        Ok(message)
    }
}

impl<'a> Arbitrary<'a> for AssistantMessage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (stamp, content) = (stamp(u)?, list(u, |u| block(u, false))?);
        let calls = maybe(u, |u| list(u, ToolCall::arbitrary))?;
        let mut message = Self::new(stamp, content, calls);
        (message.metadata, message.extra) = (maybe(u, metadata)?, extra(u)?);
        Ok(message)
    }
}

impl<'a> Arbitrary<'a> for ToolResultMessage {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let stamp = stamp(u)?;
        let results = list(u, |u| {
            let mut result = ToolResult::new(word(u)?, value(u)?);
            result.is_error = u.arbitrary()?;
            Ok(result)
        })?;
        let mut message = Self::new(stamp, results);
        (message.metadata, message.extra) = (maybe(u, metadata)?, extra(u)?);
        Ok(message)
    }
}

impl<'a> Arbitrary<'a> for ToolCall {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut call = Self::new(word(u)?, word(u)?, object(u)?);
        call.extra = extra(u)?;
        Ok(call)
    }
}

impl<'a> Arbitrary<'a> for ToolExecution {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (name, id) = (word(u)?, word(u)?);
        let (arguments, result) = (object(u)?, value(u)?);
        let mut done = Self::new(name, id, arguments, result, u.arbitrary()?, u.arbitrary()?);
        done.approved = u.arbitrary()?;
        Ok(done)
    }
}

impl<'a> Arbitrary<'a> for StreamEvent {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        // Few places: events of one block are many.
        let index = u.int_in_range(0..=3)?;
        let kind: StreamEventType = u
            .choose(StreamEventType::WORDS)
            .map(|word| (*word).into())?;
        Ok(match kind {
            StreamEventType::ToolExecutionStart => {
                Self::tool_start(index, &ToolCall::arbitrary(u)?, u.arbitrary()?)
            }
            StreamEventType::ToolExecutionEnd => {
                Self::tool_end(index, &ToolExecution::arbitrary(u)?, u.arbitrary()?)
            }
            StreamEventType::ToolCallDelta => {
                let (id, name) = (maybe(u, word)?, maybe(u, word)?);
                Self::tool_call(index, id, name, text(u)?)
            }
            kind => {
                let mut event = Self::bare(kind, index);
                event.delta.text = maybe(u, word)?;
                event.delta.data = maybe(u, blob)?;
                event
            }
        })
    }
}

fn block(u: &mut Unstructured<'_>, is_users: bool) -> Result<ContentBlock> {
    let kinds = if is_users { [0, 2, 3, 4] } else { [0, 1, 2, 3] };
    Ok(match *u.choose(&kinds)? {
        0 => ContentBlock::text(text(u)?),
        1 => ContentBlock::Reasoning(word(u)?),
        2 => ContentBlock::Image {
            source: image(u)?,
            mime_type: text(u)?.into(),
            width: u.arbitrary()?,
            height: u.arbitrary()?,
        },
        3 => {
            let kind = if u.arbitrary()? {
                MediaKind::Audio
            } else {
                MediaKind::Video
            };
            ContentBlock::media(kind, blob(u)?, text(u)?)
        }
        _ => ContentBlock::Document {
            source: document(u)?,
            mime_type: text(u)?.into(),
            title: maybe(u, text)?.map(Into::into),
        },
    })
}

fn image(u: &mut Unstructured<'_>) -> Result<Source> {
    Ok(match u.int_in_range(0..=2)? {
        0 => Source::Base64(blob(u)?.to_base64().into()),
        1 => Source::Url(text(u)?.into()),
        _ => Source::Bytes(blob(u)?),
    })
}

fn document(u: &mut Unstructured<'_>) -> Result<Source> {
    Ok(match u.int_in_range(0..=2)? {
        0 => Source::Base64(blob(u)?.to_base64().into()),
        1 => Source::Url(text(u)?.into()),
        _ => Source::Text(word(u)?),
    })
}

fn blob(u: &mut Unstructured<'_>) -> Result<Blob> {
    let bytes = <&[u8]>::arbitrary(u)?;
    Ok(bytes.iter().copied().take(24).collect::<Vec<u8>>().into())
}

/// An id that is not empty, and a time in one of the forms that are read.
fn stamp(u: &mut Unstructured<'_>) -> Result<Stamp> {
    let mut stamp = Stamp::with_id(format!("m{}", text(u)?), Timestamp::EPOCH);
    let seconds = u.int_in_range(Timestamp::MIN.unix()..=Timestamp::MAX.unix())?;
    let at = Timestamp::from_unix(seconds).ok_or(Error::IncorrectFormat)?;
    stamp.timestamp = match u.int_in_range(0..=2)? {
        0 => Rfc3339::from(at),
        1 => "2025-10-01T14:00:00.25+02:00"
            .parse()
            .map_err(|_| Error::IncorrectFormat)?,
        _ => stamp.timestamp,
    };
    Ok(stamp)
}

fn metadata(u: &mut Unstructured<'_>) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    for _ in 0..u.int_in_range(0..=2)? {
        metadata.set(text(u)?, object(u)?);
    }
    Ok(metadata)
}

/// Unknown members.
fn extra(u: &mut Unstructured<'_>) -> Result<Members<'static>> {
    let mut members = Members::new();
    for _ in 0..u.int_in_range(0..=2)? {
        members.insert(format!("x-{}", text(u)?), value(u)?);
    }
    Ok(members)
}

fn object(u: &mut Unstructured<'_>) -> Result<RawObject> {
    let members = list(u, |u| Ok((text(u)?, value(u)?)))?;
    let members: BTreeMap<String, RawBuf> = members.into_iter().collect();
    read(&to_vec(&members)).ok_or(Error::IncorrectFormat)
}

/// Any JSON value, not deep.
fn value(u: &mut Unstructured<'_>) -> Result<RawBuf> {
    let text = match u.int_in_range(0..=6)? {
        0 => b"null".to_vec(),
        1 => bool::arbitrary(u)?.to_string().into_bytes(),
        2 => i64::arbitrary(u)?.to_string().into_bytes(),
        3 => b"1.50e+3".to_vec(),
        4 => to_vec(&list(u, text)?),
        5 => b"{\"a\":{}}".to_vec(),
        _ => to_vec(&text(u)?),
    };
    read(&text).ok_or(Error::IncorrectFormat)
}

fn word(u: &mut Unstructured<'_>) -> Result<Arc<str>> {
    text(u).map(Into::into)
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(<&str>::arbitrary(u)?.chars().take(24).collect())
}

fn maybe<'a, T>(
    u: &mut Unstructured<'a>,
    make: impl FnOnce(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if u.arbitrary()? {
        make(u).map(Some)
    } else {
        Ok(None)
    }
}

fn list<'a, T>(
    u: &mut Unstructured<'a>,
    mut make: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..u.int_in_range(0..=3)?).map(|_| make(u)).collect()
}

fn read<T: for<'a> Read<'a>>(text: &[u8]) -> Option<T> {
    let read = json::decode(text, &Limits::default(), Profile::Strict);
    read.ok().map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that is given no events compares nothing.
    #[test]
    fn all_events_are_given_those_of_the_last_part_too() {
        let read = |parts: &[&'static [u8]]| server_sent_events(parts.iter().copied());
        let (first, last) = (&b"data: a\n\ndata:"[..], &b" b\n\ndata: c"[..]);
        let all = ["a", "b", "c"].map(String::from).to_vec();
        assert_eq!(read(&[first, last]), (all, true));
        let (events, is_whole) = read(&[b"data: a\n\n", b"data: \xff\n\n", b"data: c\n\n"]);
        assert_eq!((events, is_whole), (vec!["a".into()], false));
    }

    #[test]
    fn every_message_is_valid_and_every_kind_is_made() {
        let mut ids = ubos_common::id::IdSource::seeded(1);
        let mut all = String::new();
        for _ in 0..3_000 {
            let bytes: Vec<u8> = (0..64).flat_map(|_| ids.bits().to_le_bytes()).collect();
            let Ok(message) = Message::arbitrary(&mut Unstructured::new(&bytes)) else {
                continue;
            };
            let written = to_vec(&message);
            assert_eq!(read::<Message>(&written).as_ref(), Some(&message));
            all += &String::from_utf8(written).unwrap();
            let event = StreamEvent::arbitrary(&mut Unstructured::new(&bytes)).unwrap();
            all += &String::from_utf8(to_vec(&event)).unwrap();
        }
        for kind in [
            r#""type":"user""#,
            r#""type":"assistant""#,
            r#""type":"tool_result""#,
            r#"{"type":"text","text""#,
            r#"{"type":"reasoning""#,
            r#"{"type":"image","source":{"type":"base64""#,
            r#"{"type":"image","source":{"type":"url""#,
            r#"{"type":"image","source":{"type":"bytes""#,
            r#"{"type":"audio""#,
            r#"{"type":"video""#,
            r#"{"type":"document","source":{"type":"base64""#,
            r#"{"type":"document","source":{"type":"url""#,
            r#"{"type":"document","source":{"type":"text","data""#,
            r#""metadata":{""#,
            r#""x-"#,
            "25+02:00",
            "1970-01-01T00:00:00",
            ":null",
            r#""result":true"#,
            r#""result":-"#,
            r#""argumentsJson":"#,
            r#"{"type":"tool_execution_end","index":1,"delta":{"toolCallId":"#,
            r#"{"type":"tool_execution_start","index":1,"delta":{"toolCallId":"#,
            ":1.50e+3",
            r#":[""#,
            r#":{"a":{}}"#,
        ] {
            assert!(all.contains(kind), "{kind}");
        }
        let count = |text: &str| all.matches(text).count();
        let fixed =
            count("\"1970-01-01T00:00:00.000Z\"") + count("\"2025-10-01T14:00:00.25+02:00\"");
        assert!(count("\"timestamp\":") > fixed + 100, "{fixed}");
    }
}
