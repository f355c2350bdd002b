//! A recording: what both sides sent, line by line, as judges read it.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use ubos_common::json::{Limits, Raw, RawBuf};
use ubos_common::time::Mono;
use ubos_common::violation::Report;

use opensentience_wire::FrameDecoder;
use opensentience_wire::MAX_FRAME_BYTES;
use opensentience_wire::SessionToken;
use opensentience_wire::message::{Message, MessageType, Side};
use opensentience_wire::{Correlation, Envelope};
use opensentience_wire::{DecodeError, ErrorCode, ErrorObject, FrameError};

/// What an agent was launched with, as far as it is known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// The agent's id.
    pub agent_id: String,
    /// The token that opens one connection.
    pub token: SessionToken,
    /// Names of the variables that the agent's environment had; `None` where nobody looked.
    pub variables: Option<Vec<String>>,
    /// Permissions of the socket's folder and of the socket, as `stat` gives them; `None` where nobody looked.
    pub modes: Option<(u32, u32)>,
}

impl Launch {
    /// What every launch has.
    #[must_use]
    pub fn new(agent_id: impl Into<String>, token: SessionToken) -> Self {
        Self {
            agent_id: agent_id.into(),
            token,
            variables: None,
            modes: None,
        }
    }
}

/// One line of a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// When, by the clock of whoever records.
    pub at: Mono,
    /// Who did it.
    pub from: Side,
    /// What it was.
    pub kind: LineKind,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.from {
            Side::Core => "core",
            Side::Agent => "agent",
        };
        let millis = self.at.as_nanos() / 1_000_000;
        match &self.kind {
            LineKind::Launched(launch) => write!(f, "{millis} ms: {} launched", launch.agent_id),
            LineKind::Reconnected(_) => write!(f, "{millis} ms: connected once more"),
            LineKind::Message(message) => write!(f, "{millis} ms, {from}: {message:?}"),
            LineKind::NotAMessage(error) => {
                write!(f, "{millis} ms, {from}: no message, {}", error.words())
            }
            LineKind::End { .. } => write!(f, "{millis} ms, {from}: end of the stream"),
            LineKind::Silence => write!(f, "{millis} ms: nothing more came"),
        }
    }
}

/// What a line tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LineKind {
    /// A launch, and its first connection.
    Launched(Box<Launch>),
    /// One more connection of the launch.
    Reconnected(Box<Launch>),
    /// A message, sound or not.
    Message(Box<RecordedMessage>),
    /// Bytes after which a connection cannot go on.
    NotAMessage(FramingError),
    /// The side sends nothing more; `inside_frame` where it broke off.
    End {
        /// Whether a frame was begun and not ended.
        inside_frame: bool,
    },
    /// Nothing more came until this line.
    Silence,
}

/// Why bytes are no messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// The prefix announces no byte.
    Empty,
    /// The frame is longer than the limit in force.
    TooLarge,
    /// No JSON object.
    NotAnObject,
}

impl FramingError {
    const fn words(self) -> &'static str {
        match self {
            Self::Empty => "a frame of no bytes",
            Self::TooLarge => "a frame over the limit",
            Self::NotAnObject => "a frame that is no JSON object",
        }
    }

    pub(super) const fn clause(self) -> &'static str {
        match self {
            Self::Empty => "OSW-2-4",
            Self::TooLarge => "OSW-2-3",
            Self::NotAnObject => "OSW-2-1",
        }
    }
}

/// A frame that holds an object.
#[derive(Clone)]
#[non_exhaustive]
pub struct RecordedMessage {
    /// The type.
    pub kind: MessageType,
    /// The message's own id; empty where the envelope is no envelope.
    pub id: String,
    /// The message that it answers.
    pub in_reply_to: Option<String>,
    /// The ids of its call.
    pub ids: Correlation,
    /// The error at the top.
    pub error: Option<ErrorObject>,
    /// Bytes of the frame's body.
    pub bytes: usize,
    /// What is wrong with it.
    pub findings: Report,
    /// The payload; `None` where it breaks the rules.
    pub content: Option<Message>,
    /// The call that a payload without `content` names all the same.
    pub call_id: Option<String>,
    /// Whether it holds the launch's token.
    pub holds_token: bool,
}

/// Its type and size, the code of an error that is known, and the first finding: nothing of a payload.
impl fmt::Debug for RecordedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.kind, self.bytes)?;
        if let Some(code) = self.error_code()
            && !matches!(code, ErrorCode::Other(_))
        {
            write!(f, ", {code}")?;
        }
        match self.findings.iter().next() {
            Some(first) => write!(f, "; {first}"),
            None => Ok(()),
        }
    }
}

impl RecordedMessage {
    /// Whether it is a message that its reader must take: an envelope and a payload that keep the rules.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.content.is_some()
    }

    /// The code of the error at the top.
    #[must_use]
    pub fn error_code(&self) -> Option<&ErrorCode> {
        self.error.as_ref().map(|error| &error.code)
    }

    fn decode(body: &[u8], launch: Option<&Launch>) -> Result<Self, FramingError> {
        let limits = Limits::default().with_max_bytes(usize::MAX);
        let judged = opensentience_wire::Limits::default()
            .with_max_frame_bytes(usize::MAX)
            .with_json(limits);
        let findings = opensentience_wire::validate::message(body, &judged);
        let holds_token =
            launch.is_some_and(|launch| contains(body, launch.token.expose().as_bytes()));
        let mut message = Self {
            kind: MessageType::Other("".into()),
            id: String::new(),
            in_reply_to: None,
            ids: Correlation::default(),
            error: None,
            bytes: body.len(),
            findings,
            content: None,
            call_id: None,
            holds_token,
        };
        let envelope = match Envelope::decode(body, &limits) {
            Ok((envelope, _)) => envelope,
            Err(DecodeError::Invalid(_)) => return Ok(message),
            Err(_) => return Err(FramingError::NotAnObject),
        };
        message.kind = envelope.message_type();
        message.id = envelope.id.to_string();
        message.in_reply_to = envelope.in_reply_to.as_deref().map(str::to_owned);
        message.ids = (&envelope).into();
        message.error = envelope.error.as_deref().cloned();
        let sound = envelope.v == 1;
        let content = envelope.message(&limits);
        message.content = content.ok().map(|(message, _)| message).filter(|_| sound);
        if message.content.is_none() {
            let payload = envelope.payload.as_raw();
            message.call_id = call_id_of(payload);
        }
        Ok(message)
    }
}

/// Turns the bytes of both sides into lines. Knows the frame limit that is in force.
#[derive(Debug)]
pub(super) struct LineReader {
    sides: [Direction; 2],
    launch: Option<Launch>,
}

#[derive(Debug)]
struct Direction {
    decoder: FrameDecoder,
    /// Nothing can be read any more.
    over: bool,
}

impl LineReader {
    pub(super) fn new() -> Self {
        let direction = || Direction {
            decoder: FrameDecoder::new(MAX_FRAME_BYTES),
            over: false,
        };
        Self {
            sides: [direction(), direction()],
            launch: None,
        }
    }

    /// A connection begins: the first of a launch, or one more.
    pub(super) fn begin(&mut self, at: Mono, launch: Launch, again: bool) -> Line {
        *self = Self::new();
        self.launch = Some(launch.clone());
        let launch = Box::new(launch);
        let kind = if again {
            LineKind::Reconnected(launch)
        } else {
            LineKind::Launched(launch)
        };
        Line {
            at,
            from: Side::Core,
            kind,
        }
    }

    /// Bytes of a side; each line that they complete goes to `take`.
    pub(super) fn read(
        &mut self,
        at: Mono,
        from: Side,
        mut bytes: &[u8],
        mut take: impl FnMut(Line),
    ) {
        let mut limit = None;
        let Some(direction) = self.sides.get_mut(index(from)) else {
            return;
        };
        while !direction.over {
            let kind = match direction.decoder.decode(bytes) {
                Ok((_, None)) => break,
                Ok((taken, Some(body))) => {
                    bytes = bytes.get(taken..).unwrap_or_default();
                    match RecordedMessage::decode(body, self.launch.as_ref()) {
                        Ok(message) => LineKind::Message(Box::new(message)),
                        Err(broken) => LineKind::NotAMessage(broken),
                    }
                }
                Err(FrameError::TooLarge { .. }) => LineKind::NotAMessage(FramingError::TooLarge),
                Err(_) => LineKind::NotAMessage(FramingError::Empty),
            };
            direction.over = matches!(kind, LineKind::NotAMessage(_));
            if let LineKind::Message(message) = &kind
                && let Some(Message::Welcome(welcome)) = &message.content
                && from == Side::Core
            {
                let told = usize::try_from(welcome.max_frame_bytes).unwrap_or(usize::MAX);
                direction.decoder.set_limit(told);
                limit = Some(told);
            }
            take(Line { at, from, kind });
        }
        if let (Some(limit), Some(other)) = (limit, self.sides.get_mut(index(from.other()))) {
            other.decoder.set_limit(limit);
        }
    }

    /// A side sends nothing more.
    pub(super) fn end(&mut self, at: Mono, from: Side) -> Line {
        let direction = self.sides.get_mut(index(from));
        let inside_frame = direction.is_some_and(|direction| {
            let inside = !direction.over && direction.decoder.finish().is_err();
            direction.over = true;
            inside
        });
        let kind = LineKind::End { inside_frame };
        Line { at, from, kind }
    }
}

pub(super) const fn index(side: Side) -> usize {
    match side {
        Side::Core => 0,
        Side::Agent => 1,
    }
}

/// How much later than it must a thing may happen before a judge speaks of it: machines are busy.
pub(super) const SLACK: Duration = Duration::from_secs(10);

/// How long a judge waits for what must come before it counts as missing.
pub(super) const PATIENCE: Duration = SLACK.saturating_add(Duration::from_millis(100));

/// How long a peer may take for its first word, as a process that starts, and for what a scenario goes on with: a case without
/// it judges nothing.
pub(super) const START: Duration = Duration::from_secs(60);

/// The call that a payload names, also one that breaks the rules.
fn call_id_of(payload: Raw<'_>) -> Option<String> {
    let members: BTreeMap<String, RawBuf> = payload.to_owned().deserialize().ok()?;
    members.get("call_id")?.deserialize().ok()
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && bytes.windows(text.len()).any(|window| window == text)
}
