//! The message of 1.0 and its codec.

use std::collections::BTreeMap;

use ubos_common::json::{self, DecodeError, Fault, Limits, RawBuf, Read, Reader, Write};
use ubos_common::violation::{Level, Profile, Report};

use super::closed::refuse_unknown;
use super::names::{Goal, Id, Ts};
use super::outcome::{Failure, Outcome};
use super::state::State;
use super::step::Step;
use super::steps::Steps;
use super::trace::{Ext, Trace};
use crate::message::OutFmt;

ubos_common::wire! {
    /// The members of a [`Message`].
    pub struct OpenMessage {
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

/// A message of SACP 1.0. It has the members of [`OpenMessage`] and no others.
///
/// Spec: SACP 1.0, 4
#[derive(Clone, Debug, PartialEq)]
pub struct Message(OpenMessage);

impl Message {
    /// A pending message; `None` if there are no steps.
    #[must_use]
    pub fn new(msg_id: Id, ts: Ts, sender: Id, g: Goal, plan: Vec<Step>) -> Option<Self> {
        let plan = Steps::new(plan)?;
        let version = Version::default();
        let open = OpenMessage::new(version, msg_id, ts, sender, g, plan, State::Pending);
        Some(Self(open))
    }

    /// Reads and validates a message with the default limits.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has a finding that is a MUST.
    ///
    /// Spec: SACP 1.0, 4
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::validate(bytes).map(|(message, _)| message)
    }

    /// As [`Message::decode`], with the findings that were let pass.
    ///
    /// # Errors
    ///
    /// As [`Message::decode`].
    pub fn validate(bytes: &[u8]) -> Result<(Self, Report), DecodeError> {
        json::decode(bytes, &Limits::default(), Profile::Strict)
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec(self)
    }

    /// Ends the message with a result.
    #[must_use]
    pub fn done(mut self, result: Outcome) -> Self {
        self.0.state = State::Done;
        self.0.error = None;
        self.0.result = Some(result);
        self
    }

    /// Ends the message with an error.
    #[must_use]
    pub fn failed(mut self, error: Failure) -> Self {
        self.0.state = State::Failed;
        self.0.result = None;
        self.0.error = Some(error);
        self
    }
}

impl core::ops::Deref for Message {
    type Target = OpenMessage;

    fn deref(&self) -> &OpenMessage {
        &self.0
    }
}

impl core::ops::DerefMut for Message {
    fn deref_mut(&mut self) -> &mut OpenMessage {
        &mut self.0
    }
}

impl Read<'_> for Message {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let open = OpenMessage::read(reader)?;
        let unknown = reader.under("SACP1-4-1", false, |reader| {
            let what = "a message of 1.0 has no such member";
            Ok(refuse_unknown(reader, at, &open.extra, what))
        })?;
        let outcome = reader.under("SACP1-4-3", false, |reader| {
            Ok(refuse_outcome(reader, at, &open))
        })?;
        if unknown == Some(true) || outcome == Some(true) {
            return Err(reader.noted());
        }
        Ok(Self(open))
    }
}

impl Write for Message {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// Reports a result without DONE, an error without FAILED, and the reverse; returns whether there was one.
// impl: SACP1-4-3
fn refuse_outcome(reader: &mut Reader<'_>, at: usize, open: &OpenMessage) -> bool {
    let mut refused = false;
    let pairs = [
        ("result", open.result.is_some(), State::Done),
        ("error", open.error.is_some(), State::Failed),
    ];
    for (member, is_there, state) in pairs {
        let wanted = open.state == state;
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
    #[must_use]
    pub fn fits(text: &str) -> bool {
        let Some(patch) = text.strip_prefix("1.0.") else {
            return false;
        };
        let canonical = patch == "0" || !patch.starts_with('0');
        let digits = (1..=9).contains(&patch.len()) && patch.bytes().all(|b| b.is_ascii_digit());
        canonical && digits
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Version {
    fn default() -> Self {
        Self("1.0.0".into())
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
