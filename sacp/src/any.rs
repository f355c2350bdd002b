//! A message of the edition that its `proto_ver` names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ubos_common::json::{self, DecodeError, Fault, Kind, Limits, RawBuf, Reader, Write};
use ubos_common::violation::{Level, Profile, Report, Violation};

use crate::graph::Graph;
use crate::message::{Message, OutFmt, State};
use crate::v1;

/// An edition of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Edition {
    /// 0.1: `proto_ver` is absent or `0.1`.
    V01,
    /// 1.0: `proto_ver` is `1.0.x`.
    V10,
}

impl Edition {
    const fn as_str(self) -> &'static str {
        match self {
            Self::V01 => "0.1",
            Self::V10 => "1.0",
        }
    }

    /// The edition that a `proto_ver` names.
    ///
    /// Spec: SACP 5
    #[must_use]
    pub(crate) fn of_version(proto_ver: &str) -> Option<Self> {
        match proto_ver {
            "0.1" => Some(Self::V01),
            later if v1::Version::fits(later) => Some(Self::V10),
            _ => None,
        }
    }
}

impl core::fmt::Display for Edition {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A message of either edition.
///
/// ```
/// use sacp::{AnyMessage, Graph};
///
/// let (message, _) = AnyMessage::decode(br#"{"g":"ADD","plan":[["get","ONE",{}]]}"#)?;
/// assert!(matches!(message, AnyMessage::V01(_)));
/// assert_eq!(Graph::from(&message).steps().len(), 1);
/// # Ok::<(), ubos_common::json::DecodeError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AnyMessage {
    /// A message of 0.1.
    V01(Box<Message>),
    /// A message of 1.0.
    V10(Box<v1::Message>),
}

impl AnyMessage {
    /// Reads and validates a message of the edition that its `proto_ver` names. Also returns the findings that were let pass.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or has a finding that is a MUST.
    ///
    /// Spec: SACP 5, 8
    // impl: SACP-2-8
    pub fn decode(bytes: &[u8]) -> Result<(Self, Report), DecodeError> {
        Self::decode_with(bytes, &Limits::default(), Profile::Strict)
    }

    /// As [`AnyMessage::decode`], with the caller's limits and profile.
    ///
    /// # Errors
    ///
    /// As [`AnyMessage::decode`].
    pub fn decode_with(
        bytes: &[u8],
        limits: &Limits,
        profile: Profile,
    ) -> Result<(Self, Report), DecodeError> {
        let version = Peek::of(bytes, limits).and_then(|peek| peek.proto_ver);
        match version.as_deref().and_then(Edition::of_version) {
            Some(Edition::V10) => json::decode(bytes, limits, profile)
                .map(|(m, report)| (Self::V10(Box::new(m)), report)),
            _ => json::decode(bytes, limits, profile)
                .map(|(m, report)| (Self::V01(Box::new(m)), report)),
        }
    }

    /// Reads a message that must be of one edition.
    ///
    /// # Errors
    ///
    /// As [`AnyMessage::decode`]; a `proto_ver` of another edition is the only finding.
    pub(crate) fn decode_as(bytes: &[u8], edition: Edition) -> Result<(Self, Report), DecodeError> {
        let limits = Limits::default();
        let version = Peek::of(bytes, &limits).and_then(|peek| peek.proto_ver);
        let other = version.as_deref().and_then(Edition::of_version);
        if other.is_some_and(|other| other != edition) {
            return Err(DecodeError::Invalid(contradiction(edition)));
        }
        match edition {
            Edition::V01 => json::decode(bytes, &limits, Profile::Strict)
                .map(|(message, report)| (Self::V01(Box::new(message)), report)),
            Edition::V10 => json::decode(bytes, &limits, Profile::Strict)
                .map(|(message, report)| (Self::V10(Box::new(message)), report)),
        }
    }

    /// The edition.
    #[must_use]
    pub fn edition(&self) -> Edition {
        MessageRef::from(self).edition()
    }

    /// The id of the message.
    pub(crate) fn msg_id(&self) -> Option<&str> {
        MessageRef::from(self).msg_id()
    }

    /// Whether the plan is empty; a message of 1.0 always has a step.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::V01(message) if message.plan.items.is_empty() && message.subtask.is_none())
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec(self)
    }
}

/// A message of either edition that belongs to somebody else.
///
/// What reads messages of both editions takes anything that becomes one: `&Message`, `&v1::Message` or `&AnyMessage`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MessageRef<'a> {
    /// A message of 0.1.
    V01(&'a Message),
    /// A message of 1.0.
    V10(&'a v1::Message),
}

impl<'a> MessageRef<'a> {
    pub(crate) const fn edition(self) -> Edition {
        match self {
            Self::V01(_) => Edition::V01,
            Self::V10(_) => Edition::V10,
        }
    }

    /// The id of the message.
    #[must_use]
    pub fn msg_id(self) -> Option<&'a str> {
        match self {
            Self::V01(message) => message.msg_id.as_deref(),
            Self::V10(message) => Some(&message.msg_id),
        }
    }

    /// The id of the message that this one answers.
    #[must_use]
    pub fn reply_to(self) -> Option<&'a str> {
        match self {
            Self::V01(message) => message.reply_to.as_deref(),
            Self::V10(message) => message.reply_to.as_deref(),
        }
    }

    /// The goal.
    #[must_use]
    pub fn goal(self) -> &'a str {
        match self {
            Self::V01(message) => &message.g,
            Self::V10(message) => &message.g,
        }
    }

    /// The context, by name.
    #[must_use]
    pub const fn context(self) -> Option<&'a BTreeMap<String, RawBuf>> {
        match self {
            Self::V01(message) => message.context.as_ref(),
            Self::V10(message) => message.ctx.as_ref(),
        }
    }

    /// The format of the answer: raw if absent.
    #[must_use]
    pub fn out_fmt(self) -> OutFmt {
        match self {
            Self::V01(message) => message.out_fmt(),
            Self::V10(message) => message.out_fmt.clone().unwrap_or(OutFmt::Raw),
        }
    }

    /// Whether acts are only simulated.
    #[must_use]
    pub fn is_test(self) -> bool {
        match self {
            Self::V01(message) => message.is_test(),
            Self::V10(message) => message.test_mode == Some(true),
        }
    }

    /// The word of its state, if it has ended.
    pub(crate) fn ended(self) -> Option<&'static str> {
        match self {
            Self::V01(message) => match message.state() {
                State::Done => Some("DONE"),
                State::Failed => Some("FAILED"),
                _ => None,
            },
            Self::V10(message) => match message.state {
                v1::State::Done => Some("DONE"),
                v1::State::Failed => Some("FAILED"),
                v1::State::Cancelled => Some("CANCELLED"),
                _ => None,
            },
        }
    }
}

impl Write for MessageRef<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::V01(message) => message.write(out),
            Self::V10(message) => message.write(out),
        }
    }
}

impl<'a> From<&'a Message> for MessageRef<'a> {
    fn from(message: &'a Message) -> Self {
        Self::V01(message)
    }
}

impl<'a> From<&'a v1::Message> for MessageRef<'a> {
    fn from(message: &'a v1::Message) -> Self {
        Self::V10(message)
    }
}

impl<'a> From<&'a AnyMessage> for MessageRef<'a> {
    fn from(message: &'a AnyMessage) -> Self {
        match message {
            AnyMessage::V01(message) => Self::V01(message),
            AnyMessage::V10(message) => Self::V10(message),
        }
    }
}

impl From<MessageRef<'_>> for AnyMessage {
    fn from(message: MessageRef<'_>) -> Self {
        match message {
            MessageRef::V01(message) => message.clone().into(),
            MessageRef::V10(message) => message.clone().into(),
        }
    }
}

impl From<MessageRef<'_>> for Graph {
    fn from(message: MessageRef<'_>) -> Self {
        match message {
            MessageRef::V01(message) => Self::from(message),
            MessageRef::V10(message) => Self::from(message),
        }
    }
}

impl From<&AnyMessage> for Graph {
    fn from(message: &AnyMessage) -> Self {
        Self::from(MessageRef::from(message))
    }
}

impl From<Message> for AnyMessage {
    fn from(message: Message) -> Self {
        Self::V01(Box::new(message))
    }
}

impl From<v1::Message> for AnyMessage {
    fn from(message: v1::Message) -> Self {
        Self::V10(Box::new(message))
    }
}

impl Write for AnyMessage {
    fn write(&self, out: &mut Vec<u8>) {
        MessageRef::from(self).write(out);
    }
}

fn contradiction(wanted: Edition) -> Report {
    let clause = match wanted {
        Edition::V01 => "SACP-2-8",
        Edition::V10 => "SACP1-4-1",
    };
    let what = format!("version {wanted} wanted, another one seen");
    let mut report = Report::default();
    report.push(Violation::new(
        "/proto_ver",
        "bad_value",
        clause,
        Level::Must,
        what,
    ));
    report
}

/// What is known of a message before it is read, and of one that is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek<'a> {
    pub(crate) proto_ver: Option<Cow<'a, str>>,
    pub(crate) msg_id: Option<Cow<'a, str>>,
    /// Whether it has a goal or plan: it is a message and not a reply.
    pub(crate) is_message: bool,
    pub(crate) status: Option<Cow<'a, str>>,
}

impl<'a> Peek<'a> {
    /// The version and no more, for text that may hold one; the common message of 0.1 is not read twice.
    pub(crate) fn of(bytes: &'a [u8], limits: &Limits) -> Option<Self> {
        if bytes.len() > limits.max_bytes {
            return None;
        }
        let text = core::str::from_utf8(bytes).ok()?;
        // A name may contain escapes.
        if !text.contains("proto_ver") && !text.contains('\\') {
            return None;
        }
        Self::whole(bytes, limits)
    }

    /// Everything, up to the first fault of the text.
    pub(crate) fn whole(bytes: &'a [u8], limits: &Limits) -> Option<Self> {
        let mut reader = Reader::new(bytes, limits, Profile::Strict).ok()?;
        let mut peek = Self::default();
        // Members before a fault are known.
        let _ = reader.fields(|reader, name, _| peek.member(reader, &name));
        Some(peek)
    }

    fn member(&mut self, reader: &mut Reader<'a>, name: &str) -> Result<(), Fault> {
        self.is_message |= matches!(name, "g" | "plan");
        let slot = match name {
            "proto_ver" => &mut self.proto_ver,
            "msg_id" => &mut self.msg_id,
            "status" => &mut self.status,
            _ => return reader.skip(),
        };
        if reader.peek()? != Kind::String {
            return reader.skip();
        }
        *slot = Some(reader.str()?);
        Ok(())
    }
}
