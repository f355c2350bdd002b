//! Replies: a message, `VALID`, `ERR` or `REQ_CLARIFY`.

use ubos_common::json::{
    self, DecodeError, Fault, Kind, Limits, MemberWriter, RawBuf, RawObject, Read, Reader, Write,
};
use ubos_common::violation::{Level, PointerText, Profile};

use crate::any::{AnyMessage, MessageRef, Peek};
use crate::error::Code;
use crate::message::Message;
use crate::v1;

/// A reply.
///
/// Spec: SACP 4, 8
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A message with the results.
    Message(Box<Message>),
    /// An answer of 1.0, whatever became of the message: its state says it.
    V10(Box<v1::Message>),
    /// A message is valid.
    Valid {
        /// The message.
        reply_to: Option<String>,
    },
    /// A message is refused, or has failed.
    Err(ErrReply),
    /// The sender must supply something.
    Clarify(Clarify),
}

/// A refusal or failure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ErrReply {
    /// The code; `INTERNAL_ERROR` for one that is not listed.
    pub code: Code,
    /// A description; the JSON text of details that are an object.
    pub details: String,
    /// A code or details that this crate only reads; they are written back unchanged.
    pub foreign: Option<Box<Foreign>>,
    /// The place, as an RFC 6901 pointer into the message.
    pub pointer: Option<String>,
    /// The id of this reply.
    pub msg_id: Option<String>,
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
}

/// Members of an `ERR` that this crate reads but does not make.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Foreign {
    /// A code that is not in the catalogue.
    pub code: Option<Box<str>>,
    /// Details that are an object.
    pub details: Option<RawObject>,
}

/// A question to the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clarify {
    /// What is missing.
    pub missing: Vec<String>,
    /// The question.
    pub details: String,
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
}

impl Reply {
    /// Reads a reply: an object with `status`, or a message of either edition.
    ///
    /// ```
    /// use sacp::{Code, Reply};
    ///
    /// let text = br#"{"status":"ERR","code":"MALFORMED_PLAN","details":"Missing parameters for action step 2"}"#;
    /// let Reply::Err(error) = Reply::decode(text)? else { unreachable!() };
    /// assert_eq!(error.code, Code::MalformedPlan);
    /// # Ok::<(), ubos_common::json::DecodeError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or neither of them.
    ///
    /// Spec: SACP 8
    // impl: SACP-8-1
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let limits = Limits::default();
        let peek = Peek::whole(bytes, &limits).unwrap_or_default();
        if peek.status.is_none() || peek.is_message {
            return AnyMessage::decode(bytes).map(|(message, _)| Self::from(message));
        }
        json::decode::<Status>(bytes, &limits, Profile::Strict).map(|(status, _)| status.0)
    }

    /// The compact JSON.
    ///
    /// ```
    /// use sacp::Reply;
    ///
    /// let text = br#"{"status":"REQ_CLARIFY","missing":["step[2].params.dst"],"details":"Where to?"}"#;
    /// assert_eq!(Reply::decode(text)?.encode(), text);
    /// # Ok::<(), ubos_common::json::DecodeError>(())
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec(self)
    }
}

impl From<AnyMessage> for Reply {
    fn from(message: AnyMessage) -> Self {
        match message {
            AnyMessage::V01(message) => Self::Message(message),
            AnyMessage::V10(message) => Self::V10(message),
        }
    }
}

ubos_common::wire! {
    /// Any reply with a `status`.
    struct AnyStatus {
        required status: String = "status", "SACP-8-1";
        optional code: String = "code", "SACP-8-1";
        optional details: Details = "details", "SACP-8-1";
        optional missing: Vec<String> = "missing", "SACP-2-7";
        optional pointer: String = "pointer", "SACP-8-1";
        optional msg_id: String = "msg_id", "SACP-8-1";
        optional reply_to: String = "reply_to", "SACP-8-1";
    }
}

/// Details are a text or an object.
#[derive(Clone, Debug, PartialEq)]
enum Details {
    Text(String),
    Object(RawObject),
}

impl Read<'_> for Details {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mark = reader.mark();
        match reader.peek()? {
            Kind::String => String::read(reader).map(Self::Text),
            Kind::Object => RawObject::read(reader).map(Self::Object),
            seen => Err(reader.wrong_type(mark, "a text or an object", seen)),
        }
    }
}

impl Write for Details {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => text.write(out),
            Self::Object(object) => object.write(out),
        }
    }
}

struct Status(Reply);

impl Read<'_> for Status {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let any = AnyStatus::read(reader)?;
        Ok(Self(match any.status.as_str() {
            "VALID" => Reply::Valid {
                reply_to: any.reply_to,
            },
            "REQ_CLARIFY" => Reply::Clarify(any.into_clarify()),
            "ERR" => {
                if any.code.is_none() && !reader.has_refused() {
                    reader.missing(at, "code", "SACP-8-1", Level::Must);
                    return Err(reader.noted());
                }
                Reply::Err(any.into_error())
            }
            _ => {
                let what = "one of VALID, ERR, REQ_CLARIFY wanted";
                reader.note(at, Some("status".into()), "bad_value", Level::Must, what);
                return Err(reader.noted());
            }
        }))
    }
}

impl AnyStatus {
    fn into_error(self) -> ErrReply {
        let word = self.code.unwrap_or_default();
        let code = Code::from_word(&word);
        let mut error = ErrReply::new(code.unwrap_or(Code::InternalError), "");
        let mut foreign = Foreign::default();
        if code.is_none() {
            foreign.code = Some(word.into());
        }
        match self.details {
            Some(Details::Text(text)) => error.details = text,
            Some(Details::Object(object)) => {
                object.as_str().clone_into(&mut error.details);
                foreign.details = Some(object);
            }
            None => {}
        }
        if foreign != Foreign::default() {
            error.foreign = Some(Box::new(foreign));
        }
        (error.pointer, error.msg_id, error.reply_to) = (self.pointer, self.msg_id, self.reply_to);
        error
    }

    fn into_clarify(self) -> Clarify {
        let details = match self.details {
            Some(Details::Text(text)) => text,
            Some(Details::Object(object)) => object.as_str().to_owned(),
            None => String::new(),
        };
        Clarify {
            missing: self.missing.unwrap_or_default(),
            details,
            reply_to: self.reply_to,
        }
    }
}

impl ErrReply {
    /// An error without a pointer.
    #[must_use]
    pub fn new(code: Code, details: impl Into<String>) -> Self {
        Self {
            code,
            details: details.into(),
            foreign: None,
            pointer: None,
            msg_id: None,
            reply_to: None,
        }
    }

    /// Sets the pointer.
    pub(crate) fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// Sets the id of the answered message.
    pub(crate) fn to<'a>(mut self, message: impl Into<MessageRef<'a>>) -> Self {
        self.reply_to = message.into().msg_id().map(str::to_owned);
        self
    }
}

impl core::fmt::Display for ErrReply {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.code, self.details)?;
        match &self.pointer {
            Some(pointer) => write!(f, " at {}", PointerText(pointer)),
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
            Self::V10(message) => message.write(out),
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
        let foreign = self.foreign.as_deref();
        match foreign.and_then(|foreign| foreign.code.as_deref()) {
            Some(word) => object.member("code", word),
            None => object.member("code", self.code.as_str()),
        }
        match foreign.and_then(|foreign| foreign.details.as_ref()) {
            Some(details) => object.member("details", details),
            None => object.member("details", &self.details),
        }
        object.optional("pointer", self.pointer.as_ref());
        object.optional("msg_id", self.msg_id.as_ref());
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

/// A JSON array of values.
pub(crate) fn list(values: &[&RawBuf]) -> RawBuf {
    let mut text = String::from("[");
    for (n, value) in values.iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        text.push_str(value.as_str());
    }
    text.push(']');
    // Each part is valid; only their number or depth may exceed the limits.
    RawBuf::parse(&text).unwrap_or_else(|_| json::Raw::NULL.to_owned())
}

/// A value from text that this crate made; only a limit may be exceeded.
pub(crate) fn raw(text: Vec<u8>) -> RawBuf {
    let parsed = String::from_utf8(text)
        .ok()
        .and_then(|text| RawBuf::parse(&text).ok());
    parsed.unwrap_or_else(|| json::Raw::NULL.to_owned())
}

/// Reads a type from raw JSON.
pub(crate) fn read<T: for<'a> Read<'a>>(raw: &RawBuf) -> Result<T, String> {
    let read = json::decode::<T>(raw.as_str().as_bytes(), &Limits::default(), Profile::Strict);
    read.map(|(value, _)| value).map_err(|err| err.to_string())
}
