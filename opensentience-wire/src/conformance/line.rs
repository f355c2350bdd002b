//! A recording: what both sides sent, line by line, as judges read it.

use core::fmt;
use core::time::Duration;

use ubos_common::json::{Limits, Read as _, Reader};
use ubos_common::time::Mono;
use ubos_common::violation::{Profile, Report};

use crate::envelope::{Correlation, Envelope};
use crate::error::{DecodeError, ErrorCode, ErrorObject, FrameError};
use crate::frame::FrameDecoder;
use crate::limits::MAX_FRAME_BYTES;
use crate::message::{AboutCall, Message, MessageType, Side};
use crate::token::SessionToken;

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
    pub what: What,
}

/// What a line tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum What {
    /// A launch, and its first connection.
    Begun(Box<Launch>),
    /// One more connection of the launch.
    Again(Box<Launch>),
    /// A message, sound or not.
    Message(Box<Said>),
    /// Bytes after which a connection cannot go on.
    Fatal(Broken),
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
pub enum Broken {
    /// The prefix announces no byte.
    Empty,
    /// The frame is longer than the limit in force.
    TooLarge,
    /// No JSON object.
    NoObject,
}

impl Broken {
    pub(super) const fn clause(self) -> &'static str {
        match self {
            Self::Empty => "OSW-2-4",
            Self::TooLarge => "OSW-2-3",
            Self::NoObject => "OSW-2-1",
        }
    }
}

/// A frame that holds an object.
#[derive(Clone)]
#[non_exhaustive]
pub struct Said {
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
    pub about_call: Option<String>,
    /// Whether it holds the launch's token.
    pub holds_token: bool,
}

/// Names and sizes alone.
impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.kind, self.bytes)
    }
}

impl Said {
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

    fn read(body: &[u8], launch: Option<&Launch>) -> Result<Self, Broken> {
        let limits = Limits::default().with_max_bytes(usize::MAX);
        let mut judged = crate::limits::Limits::default().with_max_frame_bytes(usize::MAX);
        judged.json = limits;
        let findings = crate::validate::message(body, &judged);
        let holds_token = launch.is_some_and(|launch| launch.token.is_in(body));
        let mut said = Self {
            kind: MessageType::Other("".into()),
            id: String::new(),
            in_reply_to: None,
            ids: Correlation::default(),
            error: None,
            bytes: body.len(),
            findings,
            content: None,
            about_call: None,
            holds_token,
        };
        let envelope = match Envelope::decode(body, &limits) {
            Ok((envelope, _)) => envelope,
            Err(DecodeError::Invalid(_)) => return Ok(said),
            Err(_) => return Err(Broken::NoObject),
        };
        said.kind = envelope.message_type();
        said.id = envelope.id.to_string();
        said.in_reply_to = envelope.in_reply_to.as_deref().map(str::to_owned);
        said.ids = envelope.correlation();
        said.error.clone_from(&envelope.error);
        let sound = envelope.v == crate::envelope::VERSION;
        let content = envelope.message(&limits);
        said.content = content.ok().map(|(message, _)| message).filter(|_| sound);
        if said.content.is_none() {
            let payload = envelope.payload.as_raw();
            let mut reader = Reader::of_raw(payload, &limits, Profile::Strict);
            said.about_call = AboutCall::read(&mut reader).ok().and_then(|about| about.0);
        }
        Ok(said)
    }
}

/// Turns the bytes of both sides into lines. Knows the frame limit that is in force.
#[derive(Debug)]
pub(super) struct Ear {
    sides: [Hearing; 2],
    launch: Option<Launch>,
}

#[derive(Debug)]
struct Hearing {
    decoder: FrameDecoder,
    /// Nothing can be read any more.
    over: bool,
}

impl Ear {
    pub(super) fn new() -> Self {
        let hearing = || Hearing {
            decoder: FrameDecoder::new(MAX_FRAME_BYTES),
            over: false,
        };
        Self {
            sides: [hearing(), hearing()],
            launch: None,
        }
    }

    /// A connection begins: the first of a launch, or one more.
    pub(super) fn begin(&mut self, at: Mono, launch: Launch, again: bool) -> Line {
        *self = Self::new();
        self.launch = Some(launch.clone());
        let launch = Box::new(launch);
        let what = if again {
            What::Again(launch)
        } else {
            What::Begun(launch)
        };
        Line {
            at,
            from: Side::Core,
            what,
        }
    }

    /// Bytes of a side; each line that they complete goes to `take`.
    pub(super) fn hear(
        &mut self,
        at: Mono,
        from: Side,
        mut bytes: &[u8],
        mut take: impl FnMut(Line),
    ) {
        let mut limit = None;
        let Some(hearing) = self.sides.get_mut(index(from)) else {
            return;
        };
        while !hearing.over {
            let what = match hearing.decoder.decode(bytes) {
                Ok((_, None)) => break,
                Ok((taken, Some(body))) => {
                    bytes = bytes.get(taken..).unwrap_or_default();
                    match Said::read(body, self.launch.as_ref()) {
                        Ok(said) => What::Message(Box::new(said)),
                        Err(broken) => What::Fatal(broken),
                    }
                }
                Err(FrameError::TooLarge { .. }) => What::Fatal(Broken::TooLarge),
                Err(_) => What::Fatal(Broken::Empty),
            };
            hearing.over = matches!(what, What::Fatal(_));
            if let What::Message(said) = &what
                && let Some(Message::Welcome(welcome)) = &said.content
                && from == Side::Core
            {
                let told = usize::try_from(welcome.max_frame_bytes).unwrap_or(usize::MAX);
                hearing.decoder.set_limit(told);
                limit = Some(told);
            }
            take(Line { at, from, what });
        }
        if let (Some(limit), Some(other)) = (limit, self.sides.get_mut(index(from.other()))) {
            other.decoder.set_limit(limit);
        }
    }

    /// A side sends nothing more.
    pub(super) fn end(&mut self, at: Mono, from: Side) -> Line {
        let hearing = self.sides.get_mut(index(from));
        let inside_frame = hearing.is_some_and(|hearing| {
            let inside = !hearing.over && hearing.decoder.finish().is_err();
            hearing.over = true;
            inside
        });
        let what = What::End { inside_frame };
        Line { at, from, what }
    }
}

pub(super) const fn index(side: Side) -> usize {
    match side {
        Side::Core => 0,
        Side::Agent => 1,
    }
}

/// How much later than it must a thing may happen before a judge speaks of it: machines are busy.
pub(super) const SLACK: Duration = Duration::from_secs(3);
