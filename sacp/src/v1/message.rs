//! The message of 1.0 and its codec.

use std::collections::BTreeMap;

use ubos_common::json::{self, DecodeError, Fault, Limits, RawBuf, Read, Reader, Write};
use ubos_common::time::Timestamp;
use ubos_common::trace_context::TraceContext;
use ubos_common::violation::{Level, Profile};

use super::closed::refuse_unknown;
use super::names::{Goal, Id, Ts};
use super::outcome::{Failure, Outcome};
use super::state::State;
use super::step::Step;
use super::steps::Steps;
use super::trace::{Ext, Trace};
use crate::message::OutFmt;

ubos_common::wire! {
    /// A message of SACP 1.0. Members that 1.0 does not name are refused.
    ///
    /// Spec: SACP 1.0, 4
    pub struct Message checked by check {
        /// The version: 1.0.0 is written, every 1.0.x is read.
        required proto_ver: Version = "proto_ver", "SACP1-4-1";
        /// The id of the message.
        required msg_id: Id = "msg_id", "SACP1-4-2";
        /// The time of writing.
        required ts: Ts = "ts", "SACP1-4-1";
        /// The sender.
        required sender: Id = "sender", "SACP1-4-2";
        /// The goal.
        required g: Goal = "g", "SACP1-4-2";
        /// The plan: at least one step.
        required plan: Steps = "plan", "SACP1-6-2";
        /// Its state.
        required state: State = "state", "SACP1-4-1";
        /// The id of the message that this one answers.
        optional reply_to: Id = "reply_to", "SACP1-4-2";
        /// The recipient.
        optional recipient: Id = "recipient", "SACP1-4-2";
        /// The context, by name.
        optional ctx: BTreeMap<String, RawBuf> = "ctx", "SACP1-4-1";
        /// The format of the answer; absent means raw.
        optional out_fmt: OutFmt = "out_fmt", "SACP1-4-1";
        /// The result: present exactly if the state is DONE.
        optional result: Outcome = "result", "SACP1-7-1";
        /// The error: present exactly if the state is FAILED.
        optional error: Failure = "error", "SACP1-7-1";
        /// Its place in a trace.
        optional trace: Trace = "trace", "SACP1-4-4";
        /// Whether steps are only simulated.
        optional test_mode: bool = "test_mode", "SACP1-4-1";
        /// Extensions.
        optional ext: Ext = "ext", "SACP1-4-4";
    }
}

impl Message {
    /// A pending message; `None` if there are no steps.
    #[must_use]
    pub fn pending(msg_id: Id, ts: Ts, sender: Id, g: Goal, plan: Vec<Step>) -> Option<Self> {
        let plan = Steps::new(plan)?;
        let version = Version::default();
        Some(Self::new(
            version,
            msg_id,
            ts,
            sender,
            g,
            plan,
            State::Pending,
        ))
    }

    /// Reads and validates a message with the default limits.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has a finding that is a MUST.
    ///
    /// Spec: SACP 1.0, 4
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        json::decode(bytes, &Limits::default(), Profile::Strict).map(|(message, _)| message)
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec(self)
    }

    /// The place in a distributed trace that the message comes from, as its extensions `w3c.traceparent` and
    /// `w3c.tracestate` say; `None` where they say nothing valid.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        let ext = self.ext.as_ref()?;
        let text = |name| ext.value(name)?.deserialize::<String>().ok();
        let state = text(TRACESTATE);
        TraceContext::read(&text(TRACEPARENT)?, state.as_deref())
    }

    /// Sets the place in a distributed trace that the message comes from. Its [`trace`](Self::trace) has the same trace id.
    /// Answers have the place, too; the spans of messages, which are named by the messages, go on below it.
    ///
    /// ```
    /// # let text = br#"{"proto_ver":"1.0.0","msg_id":"m1","ts":"2025-10-01T12:00:00Z","sender":"planner","g":"TRIP",
    /// #     "plan":[{"id":"w","verb":"fetch","tool":"WEATHER","params":{}}],"state":"PENDING"}"#;
    /// # let mut message = sacp::v1::Message::decode(text)?;
    /// use sacp::ubos_common::trace_context::TraceContext;
    ///
    /// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let place = TraceContext::read(parent, []).ok_or("no place in a trace")?;
    /// message.set_trace_context(&place);
    /// assert_eq!(message.trace_context(), Some(place));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Spec: SACP 1.0, 4
    // impl: SACP1-4-4
    pub fn set_trace_context(&mut self, place: &TraceContext) {
        let hex: String = place
            .trace_id()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.trace.get_or_insert_with(Trace::new).trace_id = Id::new(hex);
        let ext = self.ext.get_or_insert_default();
        ext.remove(TRACESTATE);
        let texts = [
            (TRACEPARENT, Some(place.traceparent())),
            (TRACESTATE, place.tracestate().map(str::to_owned)),
        ];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| RawBuf::from_serialize(&text).ok()) {
                ext.insert(name, value);
            }
        }
    }

    /// What every answer to this message has: its own id, author, time and version, a span below that of the request, and
    /// the form that it was asked for.
    // impl: SACP1-4-1, SACP1-4-4, SACP-4-3
    pub(crate) fn answer_to(&self, at: Timestamp, sender: Id, msg_id: Id) -> Self {
        let mut answer = self.clone();
        answer.proto_ver = Version::default();
        answer.reply_to = Some(self.msg_id.clone());
        answer.recipient = Some(self.sender.clone());
        answer.trace = Some(Trace::below(self.trace.as_ref(), &msg_id));
        answer.out_fmt = Some(match self.out_fmt {
            Some(OutFmt::Summary) => OutFmt::Summary,
            _ => OutFmt::Raw,
        });
        (answer.msg_id, answer.sender, answer.ts) = (msg_id, sender, Ts::from(at));
        (answer.result, answer.error) = (None, None);
        answer
    }

    /// Ends the message with a result.
    pub(crate) fn done(mut self, result: Outcome) -> Self {
        self.state = State::Done;
        self.error = None;
        self.result = Some(result);
        self
    }

    /// Ends the message with an error.
    pub(crate) fn failed(mut self, error: Failure) -> Self {
        self.state = State::Failed;
        self.result = None;
        self.error = Some(error);
        self
    }
}

/// The extensions that name a place in a distributed trace.
const TRACEPARENT: &str = "w3c.traceparent";
const TRACESTATE: &str = "w3c.tracestate";

/// Refuses unknown members, and a result or error that does not agree with the state.
// impl: SACP1-4-1
fn check(reader: &mut Reader<'_>, at: usize, message: &Message) -> Result<(), Fault> {
    let unknown = reader.under("SACP1-4-1", false, |reader| {
        let what = "a message of 1.0 has no such member";
        Ok(refuse_unknown(reader, at, &message.extra, what))
    })?;
    let outcome = reader.under("SACP1-4-3", false, |reader| {
        Ok(refuse_outcome(reader, at, message))
    })?;
    if unknown == Some(true) || outcome == Some(true) {
        return Err(reader.noted());
    }
    Ok(())
}

/// Reports a result without DONE, an error without FAILED, and the reverse; returns whether there was one.
// impl: SACP1-4-3
fn refuse_outcome(reader: &mut Reader<'_>, at: usize, message: &Message) -> bool {
    let mut refused = false;
    let pairs = [
        ("result", message.result.is_some(), State::Done),
        ("error", message.error.is_some(), State::Failed),
    ];
    for (member, is_there, state) in pairs {
        let wanted = message.state == state;
        // A member that was refused reads as absent.
        if is_there == wanted || wanted && reader.has_refused() {
            continue;
        }
        refused = true;
        let (code, what) = if wanted {
            ("missing", format!("absent where the state is {state}"))
        } else {
            (
                "state_outcome",
                format!("there only where the state is {state}"),
            )
        };
        reader.note(at, Some(member.into()), code, Level::Must, what);
    }
    refused
}

/// A supported version: any 1.0.x.
///
/// Spec: SACP 1.0, 4
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Box<str>);

impl Version {
    /// Whether a text is a supported version.
    pub(crate) fn fits(text: &str) -> bool {
        let Some(patch) = text.strip_prefix("1.0.") else {
            return false;
        };
        let canonical = patch == "0" || !patch.starts_with('0');
        let digits = (1..=9).contains(&patch.len()) && patch.bytes().all(|b| b.is_ascii_digit());
        canonical && digits
    }
}

impl Default for Version {
    fn default() -> Self {
        Self("1.0.0".into())
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.0)
    }
}

impl Read<'_> for Version {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        if !Self::fits(&text) {
            return Err(reader.bad_value_seen(at, "version 1.0.x", &text));
        }
        Ok(Self(text.into_owned().into()))
    }
}

impl Write for Version {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.as_ref().write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SACP1-4-4
    #[test]
    fn answers_come_from_the_same_place_in_a_trace() {
        let text = br#"{"proto_ver":"1.0.0","msg_id":"m1","ts":"2025-10-01T12:00:00Z","sender":"planner","g":"TRIP",
            "plan":[{"id":"w","verb":"fetch","tool":"WEATHER","params":{}}],"state":"PENDING"}"#;
        let mut message = Message::decode(text).unwrap();
        let place = TraceContext::new([1; 16], [2; 8]).unwrap();
        message.set_trace_context(&place);
        let at = Timestamp::from_unix(0).unwrap();
        let answer = message.answer_to(at, message.sender.clone(), Id::new("m2").unwrap());
        assert_eq!(answer.trace_context(), Some(place));
    }
}
