//! The envelope: what every message has, with its payload left as text for the second step.

use core::ops::Deref;
use std::borrow::Cow;
use std::sync::Arc;

use ubos_common::json::{self, Fault, Kind, Raw, Read, Reader, Write, escape_into};
use ubos_common::time::{Rfc3339, Timestamp};
use ubos_common::violation::{Profile, Report};

use crate::error::{DecodeError, EncodeError, ErrorObject};
use crate::frame::encode_frame;
use crate::message::{Actor, Message, MessageType, Register, ToolSpec};
use crate::token::{SessionToken, TokenFinder};
use ubos_common::id::{IdSource, Uuid};

/// The version that this crate speaks.
pub(crate) const VERSION: u64 = 1;

ubos_common::wire! {
    /// One message, its payload still text.
    ///
    /// Unknown members are kept in `extra` and written back.
    ///
    /// Spec: OpenSentience 3
    // impl: OSW-3-8
    pub struct Envelope<'a, P = Payload<'a>> {
        /// The protocol version; 1 is the only one.
        required v: u64 = "v", "OSW-3-1";
        /// What the payload is: see [`MessageType`].
        required kind: Text<'a> = "type", "OSW-3-1";
        /// Names this message; never used twice.
        required id: Text<'a> = "id", "OSW-3-1";
        /// When the sender made it.
        required ts: Time<'a> = "ts", "OSW-3-1";
        /// The message that this one answers.
        // impl: OSW-3-2
        nullable in_reply_to: Cow<'a, str> = "in_reply_to", "OSW-3-2";
        /// The chain of requests that it belongs to.
        nullable request_id: Cow<'a, str> = "request_id", "OSW-3-2";
        /// The conversation, mission or run that it belongs to.
        nullable correlation_id: Cow<'a, str> = "correlation_id", "OSW-3-2";
        /// What caused it.
        nullable causation_id: Cow<'a, str> = "causation_id", "OSW-3-2";
        /// Who stands behind it.
        // impl: OSW-3-5
        nullable actor: Box<Actor> = "actor", "OSW-3-5";
        /// What went wrong.
        // impl: OSW-3-6
        nullable error: Box<ErrorObject> = "error", "OSW-3-6";
        /// The rest, by type.
        required payload: P = "payload", "OSW-3-1";
    }
}

impl<'a> Envelope<'a> {
    /// Reads a frame's body: the first step.
    ///
    /// # Errors
    ///
    /// What [`DecodeError`] lists; only [`DecodeError::Invalid`] leaves the stream usable.
    ///
    /// Spec: OpenSentience 3
    // impl: OSW-8-2, OSW-3-1
    pub fn decode(body: &'a [u8], limits: &json::Limits) -> Result<(Self, Report), DecodeError> {
        match json::decode(body, limits, Profile::Strict) {
            Ok(read) => Ok(read),
            Err(json::DecodeError::Invalid(report)) if is_no_object(&report) => {
                Err(DecodeError::NotAnObject)
            }
            Err(json::DecodeError::Invalid(report)) => Err(DecodeError::Invalid(report)),
            Err(json::DecodeError::Json(error)) => Err(error.into()),
            Err(other) => Err(DecodeError::Invalid(unplaced(&other))),
        }
    }

    /// What the payload is.
    #[must_use]
    pub fn message_type(&self) -> MessageType {
        MessageType::from(&*self.kind)
    }

    /// Reads the payload by its type: the second step. Pointers begin at the envelope.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] with every finding.
    pub fn message(&self, limits: &json::Limits) -> Result<(Message, Report), DecodeError> {
        macro_rules! payload {
            ($variant:ident) => {
                self.payload(limits)
                    .map(|(payload, report)| (Message::$variant(payload), report))
            };
        }
        match self.message_type() {
            MessageType::Hello => payload!(Hello),
            MessageType::Welcome => match &self.error {
                Some(error) => Ok((Message::Refused(error.clone()), Report::default())),
                None => payload!(Welcome),
            },
            MessageType::Goodbye => payload!(Goodbye),
            MessageType::Register => self.register(limits),
            MessageType::Registered => payload!(Registered),
            MessageType::Unregister => payload!(Unregister),
            MessageType::Unregistered => payload!(Unregistered),
            MessageType::ToolCall => payload!(ToolCall),
            MessageType::ToolStream => payload!(ToolStream),
            MessageType::ToolResult => payload!(ToolResult),
            MessageType::ToolCancel => payload!(ToolCancel),
            MessageType::CancelAck => payload!(CancelAck),
            MessageType::Heartbeat => payload!(Heartbeat),
            other => self
                .payload(limits)
                .map(|(payload, report)| (Message::Plain(other, payload), report)),
        }
    }

    /// A registration with a wrong tool is a sound message; each tool's findings stand below it.
    fn register(&self, limits: &json::Limits) -> Result<(Message, Report), DecodeError> {
        let (register, mut report) = self.payload::<Register>(limits)?;
        for (n, tool) in register.tools.iter().enumerate() {
            if let Err(findings) = ToolSpec::read(tool.as_raw(), limits) {
                report.extend_under(&format!("/payload/tools/{n}"), findings);
            }
        }
        Ok((Message::Register(register), report))
    }

    /// Reads the payload into a type of the caller's choice.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] with every finding.
    pub fn payload<T: Read<'a>>(&self, limits: &json::Limits) -> Result<(T, Report), DecodeError> {
        let (read, report) = match json::read_raw::<T>(self.payload.0, limits, Profile::Strict) {
            Ok((value, report)) => (Some(value), report),
            Err(json::DecodeError::Invalid(report)) => (None, report),
            Err(other) => (None, unplaced(&other)),
        };
        let mut whole = Report::default();
        whole.extend_under("/payload", report);
        match read {
            Some(value) => Ok((value, whole)),
            None => Err(DecodeError::Invalid(whole)),
        }
    }
}

impl<'a, P: Read<'a>> Envelope<'a, P> {
    /// Reads a frame whose text begins as this library writes a type, payload and all, in one pass. `None` where it does not,
    /// or where it breaks a rule: then it is to be read in two steps, which say more.
    pub(crate) fn decode_whole(
        body: &'a [u8],
        start: &[u8],
        limits: &json::Limits,
    ) -> Option<Self> {
        if !body.starts_with(start) {
            return None;
        }
        let mut reader = Reader::new(body, limits, Profile::Strict).ok()?;
        let envelope = Self::read(&mut reader).ok()?;
        let report = reader.finish().ok()?;
        report.is_valid().then_some(envelope)
    }
}

/// A fault that a sound text cannot have, as a finding.
// impl: OSW-2-9
fn unplaced(error: &json::DecodeError) -> Report {
    use ubos_common::violation::{Level, Violation};
    let mut report = Report::default();
    let message = error.to_string();
    report.push(Violation::new(
        "",
        "refused",
        "OSW-2-9",
        Level::Must,
        message,
    ));
    report
}

fn is_no_object(report: &Report) -> bool {
    report
        .iter()
        .any(|finding| finding.pointer.is_empty() && finding.code == "wrong_type")
}

/// A text of at least one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a>(Cow<'a, str>);

impl<'a> Text<'a> {
    /// The text; `None` for an empty one.
    fn new(text: impl Into<Cow<'a, str>>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self(text))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> Read<'a> for Text<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        Self::new(text).ok_or_else(|| reader.bad_value(at, "a string of at least one character"))
    }
}

impl Write for Text<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, &self.0);
    }
}

/// An RFC 3339 time that was checked and keeps its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time<'a> {
    text: Cow<'a, str>,
    at: Timestamp,
}

impl Time<'_> {
    /// The moment.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        self.at
    }
}

impl From<Timestamp> for Time<'_> {
    fn from(at: Timestamp) -> Self {
        Self {
            text: at.to_string().into(),
            at,
        }
    }
}

impl From<Rfc3339> for Time<'_> {
    fn from(time: Rfc3339) -> Self {
        Self {
            at: time.timestamp(),
            text: time.as_str().to_owned().into(),
        }
    }
}

impl<'a> Read<'a> for Time<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let start = reader.offset();
        let text = reader.str()?;
        match ubos_common::time::rfc3339(&text) {
            Ok(at) => Ok(Self { text, at }),
            Err(_) => Err(reader.bad_value_seen(start, "an RFC 3339 time", &text)),
        }
    }
}

impl Write for Time<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, &self.text);
    }
}

/// A payload: an object, kept as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(Raw<'a>);

impl<'a> Payload<'a> {
    /// The object in a value, if it is one.
    fn new(value: Raw<'a>) -> Option<Self> {
        (value.kind() == Kind::Object).then_some(Self(value))
    }

    /// The object.
    #[must_use]
    pub const fn as_raw(&self) -> Raw<'a> {
        self.0
    }
}

impl<'a> Read<'a> for Payload<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mark = reader.mark();
        let raw = reader.raw()?;
        Self::new(raw).ok_or_else(|| reader.wrong_type(mark, "an object", raw.kind()))
    }
}

impl Write for Payload<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// The ids that tie a call to its cause, echoed by everything that the call brings about.
///
/// Spec: OpenSentience 3.1
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Correlation {
    /// The chain of requests.
    pub request_id: Option<Arc<str>>,
    /// The conversation, mission or run.
    pub correlation_id: Option<Arc<str>>,
    /// The immediate cause.
    pub causation_id: Option<Arc<str>>,
}

impl Correlation {
    /// The bytes that they hold.
    pub(crate) fn weight(&self) -> usize {
        let ids = [&self.request_id, &self.correlation_id, &self.causation_id];
        ids.into_iter().flatten().map(|id| id.len()).sum()
    }
}

/// The ids that every answer to a message echoes.
impl<P> From<&Envelope<'_, P>> for Correlation {
    fn from(envelope: &Envelope<'_, P>) -> Self {
        let own = |id: &Option<Cow<'_, str>>| id.as_deref().map(Arc::from);
        Self {
            request_id: own(&envelope.request_id),
            correlation_id: own(&envelope.correlation_id),
            causation_id: own(&envelope.causation_id),
        }
    }
}

/// The ids of a call, lent to be written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ids<'a> {
    pub(crate) request_id: Option<&'a str>,
    pub(crate) correlation_id: Option<&'a str>,
    pub(crate) causation_id: Option<&'a str>,
}

impl<'a> From<&'a Correlation> for Ids<'a> {
    fn from(ids: &'a Correlation) -> Self {
        Self {
            request_id: ids.request_id.as_deref(),
            correlation_id: ids.correlation_id.as_deref(),
            causation_id: ids.causation_id.as_deref(),
        }
    }
}

/// What stands around a payload that is to be written.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Head<'a> {
    /// The type of the message.
    kind: MessageType,
    /// The message that it answers.
    in_reply_to: Option<&'a str>,
    /// The ids of a call, echoed or set.
    ids: Ids<'a>,
    /// Who stands behind it.
    actor: Option<&'a Actor>,
    /// What went wrong.
    error: Option<&'a ErrorObject>,
}

impl<'a> Head<'a> {
    /// A message of a type that answers nothing.
    pub(crate) const fn new(kind: MessageType) -> Self {
        Self {
            kind,
            in_reply_to: None,
            ids: Ids {
                request_id: None,
                correlation_id: None,
                causation_id: None,
            },
            actor: None,
            error: None,
        }
    }

    /// Answers a message.
    pub(crate) const fn in_reply_to(mut self, id: Option<&'a str>) -> Self {
        self.in_reply_to = id;
        self
    }

    /// Echoes or sets the ids of a call.
    pub(crate) fn correlation(mut self, ids: impl Into<Ids<'a>>) -> Self {
        self.ids = ids.into();
        self
    }

    /// Names who stands behind it.
    pub(crate) const fn actor(mut self, actor: Option<&'a Actor>) -> Self {
        self.actor = actor;
        self
    }

    /// Says what went wrong.
    pub(crate) const fn error(mut self, error: &'a ErrorObject) -> Self {
        self.error = Some(error);
        self
    }
}

/// The ids of one connection, drawn once and counted on: drawing each would cost more than writing it.
///
/// Those of two connections differ in 122 random bits, 62 of which are where the count begins.
#[derive(Debug)]
struct IdSequence {
    high: u64,
    low: u64,
}

impl IdSequence {
    fn new(ids: &mut IdSource) -> Self {
        let (high, low) = ids.uuid().as_u64_pair();
        Self { high, low }
    }

    const fn next_id(&mut self) -> Uuid {
        /// The two bits that tell the layout of a UUID.
        const VARIANT: u64 = 0b11 << 62;
        let id = Uuid::from_u64_pair(self.high, self.low);
        self.low = (self.low & VARIANT) | (self.low.wrapping_add(1) & !VARIANT);
        id
    }
}

/// Writes a session's messages as frames, each with a fresh id.
///
/// It knows the session's live token and refuses to let it out in anything but a hello.
///
/// Spec: OpenSentience 2.1, 3, 7
#[derive(Debug)]
pub(crate) struct Encoder {
    ids: IdSequence,
    max_frame_bytes: usize,
    token: Option<TokenFinder>,
    /// Empty: room for the next frame.
    spare: Vec<u8>,
}

impl Encoder {
    /// An encoder that refuses frames over `max_frame_bytes`.
    #[must_use]
    pub(crate) fn new(mut ids: IdSource, max_frame_bytes: usize) -> Self {
        Self {
            ids: IdSequence::new(&mut ids),
            max_frame_bytes,
            token: None,
            spare: Vec::new(),
        }
    }

    /// Takes the memory of a frame that was sent, for the next one.
    #[cfg(feature = "tokio")]
    pub(crate) fn reuse(&mut self, mut frame: Vec<u8>) {
        /// Frames are mostly short: what a long one took is given back.
        const KEPT: usize = 4 << 10;
        if frame.capacity() <= KEPT {
            frame.clear();
            self.spare = frame;
        }
    }

    /// Guards a token.
    pub(crate) fn guard(&mut self, token: &SessionToken) {
        self.token = Some(TokenFinder::new(token));
    }

    /// Whether a text holds the token that is guarded.
    pub(crate) fn guards(&self, text: &str) -> bool {
        let token = self.token.as_ref();
        token.is_some_and(|token| token.is_in(text.as_bytes()))
    }

    /// Changes the limit.
    pub(crate) const fn set_max_frame_bytes(&mut self, bytes: usize) {
        self.max_frame_bytes = bytes;
    }

    /// A fresh id.
    pub(crate) const fn next_id(&mut self) -> Uuid {
        self.ids.next_id()
    }

    /// Writes one frame.
    ///
    /// # Errors
    ///
    /// Over the limit, or it holds the token and is no hello.
    // impl: OSW-3-9, OSW-7-1
    pub(crate) fn encode<P: Write + ?Sized>(
        &mut self,
        at: Timestamp,
        head: &Head<'_>,
        payload: &P,
    ) -> Result<Vec<u8>, EncodeError> {
        let id = self.ids.next_id();
        let mut out = core::mem::take(&mut self.spare);
        out.reserve(640);
        encode_frame(&mut out, self.max_frame_bytes, |out| {
            let mut object = json::MemberWriter::begin(out);
            object.known("\"v\":", &VERSION);
            object.known("\"type\":", &head.kind);
            object.known("\"id\":", &id);
            object.known("\"ts\":", &at);
            object.known_optional("\"in_reply_to\":", head.in_reply_to.as_ref());
            object.known_optional("\"request_id\":", head.ids.request_id);
            object.known_optional("\"correlation_id\":", head.ids.correlation_id);
            object.known_optional("\"causation_id\":", head.ids.causation_id);
            object.known_optional("\"actor\":", head.actor);
            object.known_optional("\"error\":", head.error);
            object.known("\"payload\":", payload);
            object.end();
        })?;
        let guarded = self
            .token
            .as_ref()
            .filter(|_| head.kind != MessageType::Hello);
        if guarded.is_some_and(|token| token.is_in(&out)) {
            return Err(EncodeError::HoldsToken);
        }
        Ok(out)
    }
}
