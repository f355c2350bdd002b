//! What an agent answers: a message, `VALID`, `ERR` or `REQ_CLARIFY`.

use ubos_common::json::{MemberWriter, RawBuf, Write};

use crate::error::Code;
use crate::message::Message;

/// One answer.
///
/// Spec: SACP 4, 8
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A message with the results.
    Message(Box<Message>),
    /// A message was found valid.
    Valid {
        /// The message.
        reply_to: Option<String>,
    },
    /// A message was refused, or has failed.
    Err(ErrReply),
    /// Something is missing that only the sender knows.
    Clarify(Clarify),
}

/// A refusal or failure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ErrReply {
    /// Which condition.
    pub code: Code,
    /// What is wrong and what was wanted, in words.
    pub details: String,
    /// Where, as an RFC 6901 pointer into the message.
    pub pointer: Option<String>,
    /// The message that this one answers.
    pub reply_to: Option<String>,
}

/// A question back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clarify {
    /// What is missing.
    pub missing: Vec<String>,
    /// The question.
    pub details: String,
    /// The message that this one answers.
    pub reply_to: Option<String>,
}

impl ErrReply {
    /// A refusal without a place.
    #[must_use]
    pub fn new(code: Code, details: impl Into<String>) -> Self {
        Self {
            code,
            details: details.into(),
            pointer: None,
            reply_to: None,
        }
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// Sets the message that is answered.
    #[must_use]
    pub fn to(mut self, message: &Message) -> Self {
        self.reply_to = message.msg_id.as_ref().map(|id| id.as_str().to_owned());
        self
    }
}

impl core::fmt::Display for ErrReply {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.code, self.details)?;
        match &self.pointer {
            Some(pointer) => write!(f, " at {pointer:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ErrReply {}

impl Clarify {
    /// A question about what is missing.
    #[must_use]
    pub fn new(
        missing: impl IntoIterator<Item = impl Into<String>>,
        details: impl Into<String>,
    ) -> Self {
        Self {
            missing: missing.into_iter().map(Into::into).collect(),
            details: details.into(),
            reply_to: None,
        }
    }
}

impl Write for Reply {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Message(message) => message.write(out),
            Self::Valid { reply_to } => {
                let mut object = MemberWriter::begin(out);
                object.member("status", "VALID");
                object.optional("reply_to", reply_to.as_ref());
                object.end();
            }
            Self::Err(error) => error.write(out),
            Self::Clarify(clarify) => clarify.write(out),
        }
    }
}

impl Write for ErrReply {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("status", "ERR");
        object.member("code", self.code.as_str());
        object.member("details", &self.details);
        object.optional("pointer", self.pointer.as_ref());
        object.optional("reply_to", self.reply_to.as_ref());
        object.end();
    }
}

impl Write for Clarify {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("status", "REQ_CLARIFY");
        object.member("missing", &self.missing);
        object.member("details", &self.details);
        object.optional("reply_to", self.reply_to.as_ref());
        object.end();
    }
}

/// A JSON text from parts of which each is one, for results of groups.
pub(crate) fn list(values: &[&RawBuf]) -> RawBuf {
    let mut text = String::from("[");
    for (n, value) in values.iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        text.push_str(value.as_str());
    }
    text.push(']');
    // Each part is sound; only their number or depth may now be over the limits.
    RawBuf::parse(&text).unwrap_or_else(|_| ubos_common::json::Raw::NULL.to_owned())
}

/// A value from text that is sound by the way it was made; only a limit on it may be broken.
pub(crate) fn raw(text: Vec<u8>) -> RawBuf {
    let parsed = String::from_utf8(text)
        .ok()
        .and_then(|text| RawBuf::parse(&text).ok());
    parsed.unwrap_or_else(|| ubos_common::json::Raw::NULL.to_owned())
}
