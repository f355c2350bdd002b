//! Errors: the object that travels, and what can be wrong on this side.

use core::time::Duration;
use std::borrow::Cow;

use ubos_common::json::{JsonError, RawObject};
use ubos_common::violation::Report;

ubos_common::words! {
    /// What went wrong, as a stable word. The set is open: an unknown word is kept.
    ///
    /// Spec: OpenSentience 3.3
    open pub enum ErrorCode {
        /// The token does not open this connection.
        Unauthorized = "protocol.unauthorized",
        /// No protocol version in common.
        UnsupportedVersion = "protocol.unsupported_version",
        /// A frame that is no JSON object, empty, or cut off.
        InvalidFrame = "protocol.invalid_frame",
        /// A frame longer than the limit.
        FrameTooLarge = "protocol.frame_too_large",
        /// A message that breaks the envelope's or its type's rules.
        InvalidMessage = "protocol.invalid_message",
        /// A message of a type that is not known and seems to want an answer.
        UnknownType = "protocol.unknown_type",
        /// Something came before the hello.
        HandshakeRequired = "protocol.handshake_required",
        /// No hello, or no welcome, in time.
        HandshakeTimeout = "protocol.handshake_timeout",
        /// The agent's id is not the one the token was issued for; only ever seen in audits.
        AgentIdMismatch = "protocol.agent_id_mismatch",
        /// The manifest's hash is not that of the manifest that was enabled.
        ManifestMismatch = "protocol.manifest_mismatch",
        /// A heartbeat of another session.
        SessionMismatch = "protocol.session_mismatch",
        /// No such tool is registered.
        ToolNotFound = "tool.not_found",
        /// A tool id that is not `agent_id/name`.
        ToolInvalidId = "tool.invalid_id",
        /// A tool's declaration or schema cannot be used.
        ToolInvalidSchema = "tool.invalid_schema",
        /// A tool's name is taken.
        ToolConflict = "tool.conflict",
        /// The input does not fit the tool.
        ToolInvalidInput = "tool.invalid_input",
        /// The output is larger than allowed; return a reference to it.
        ToolOutputTooLarge = "tool.output_too_large",
        /// The call took longer than it was given.
        ToolTimeout = "tool.timeout",
        /// The call was cancelled.
        ToolCanceled = "tool.canceled",
        /// The tool failed.
        ToolFailed = "tool.failed",
        /// A panic or another fault inside the tool or its runtime.
        ToolInternal = "tool.internal",
        /// The caller may not use this tool.
        ToolPermissionDenied = "tool.permission_denied",
        /// The tool is only called for a directive, and none was named.
        ToolDirectiveRequired = "tool.directive_required",
        /// Too many calls at once.
        ToolBusy = "tool.busy",
        /// Too many calls in a span of time.
        RateExceeded = "limits.rate_exceeded",
        /// Too many calls of one kind at once.
        ConcurrencyExceeded = "limits.concurrency_exceeded",
        /// The agent is not well enough for new calls.
        AgentUnhealthy = "agent.unhealthy",
        /// The connection to the agent is gone.
        AgentDisconnected = "agent.disconnected",
    }
}

impl ErrorCode {
    /// Whether the same request may well succeed later.
    pub(crate) const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::ToolTimeout
                | Self::ToolBusy
                | Self::RateExceeded
                | Self::ConcurrencyExceeded
                | Self::AgentUnhealthy
                | Self::AgentDisconnected
        )
    }

    /// The code as an audit has it: one that is no short word is a text of the peer's, and becomes `other`.
    pub(crate) fn recorded(&self) -> Self {
        let of_word = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_');
        let word = self.as_str();
        if (1..=MAX_WORD_BYTES).contains(&word.len()) && word.bytes().all(of_word) {
            self.clone()
        } else {
            Self::from("other")
        }
    }
}

/// Bytes of a code that is recorded as it is.
const MAX_WORD_BYTES: usize = 64;

ubos_common::wire! {
    /// The error object of every message.
    ///
    /// Nothing in it may hold a secret: it is shown, stored and relayed.
    ///
    /// Spec: OpenSentience 3.3
    pub struct ErrorObject {
        /// What went wrong.
        required code: ErrorCode = "code", "OSW-3-11";
        /// The same for a person, in one safe sentence.
        required message: String = "message", "OSW-3-11";
        /// More about it.
        nullable details: RawObject = "details", "OSW-3-6";
        /// Whether a retry may succeed; absent says nothing.
        nullable retryable: bool = "retryable", "OSW-3-6";
        /// The component that noticed, such as `core.router`.
        nullable component: String = "where", "OSW-3-6";
        /// For developers; never written unless that is enabled.
        nullable debug: RawObject = "debug", "OSW-3-6";
    }
}

impl ErrorObject {
    /// An error of a code, retryable where the code is.
    #[must_use]
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        let retryable = code.is_retryable().then_some(true);
        let mut error = Self::new(code, message.into());
        error.retryable = retryable;
        error
    }

    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let raw = |raw: &Option<RawObject>| raw.as_ref().map_or(0, |raw| raw.as_str().len());
        let component = self.component.as_ref().map_or(0, String::len);
        let texts = self.code.as_str().len() + self.message.len() + component;
        texts + raw(&self.details) + raw(&self.debug) + self.extra.bytes()
    }

    /// Names the component that noticed.
    pub(crate) fn noticed_by(mut self, component: &str) -> Self {
        self.component = Some(component.into());
        self
    }
}

impl core::fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ErrorObject {}

/// Bytes that are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The prefix announces no byte at all.
    #[error("the frame is empty, but a frame holds one object")]
    Empty,
    /// The prefix announces more bytes than the limit; none of them was kept.
    #[error("the frame has {length} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Bytes announced.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame, after {received} of its bytes")]
    Truncated {
        /// Bytes of the frame that came, prefix counted.
        received: usize,
    },
}

/// The code that goes to the peer.
impl From<&FrameError> for ErrorCode {
    fn from(error: &FrameError) -> Self {
        match error {
            FrameError::TooLarge { .. } => Self::FrameTooLarge,
            FrameError::Empty | FrameError::Truncated { .. } => Self::InvalidFrame,
        }
    }
}

/// A frame that is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No sound JSON within the limits: the connection cannot go on.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Sound JSON, but no object: the connection cannot go on.
    #[error("the frame holds no JSON object")]
    NotAnObject,
    /// An object that breaks rules: all of them are listed.
    #[error("{0}")]
    Invalid(Report),
}

/// The code that goes to the peer.
impl From<&DecodeError> for ErrorCode {
    fn from(error: &DecodeError) -> Self {
        match error {
            DecodeError::Json(_) | DecodeError::NotAnObject => Self::InvalidFrame,
            DecodeError::Invalid(_) => Self::InvalidMessage,
        }
    }
}

/// A message that is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Longer than the limit that is in force.
    #[error("the message has {length} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Bytes of the message.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The message holds the session's live token and is no hello.
    #[error("the message contains the session token, which only a hello may")]
    HoldsToken,
}

/// Settings that cannot work. They are checked where the machine is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of its range.
    #[error(transparent)]
    Setting(#[from] ubos_common::ConfigError),
    /// The hello of the agent cannot be written.
    #[error("the hello of this agent cannot be written: {0}")]
    Hello(#[from] EncodeError),
}

/// Checks one setting: `wanted` is a sentence that goes behind "`setting` is `seen`, but".
pub(crate) fn require(
    holds: bool,
    setting: &'static str,
    seen: impl core::fmt::Debug,
    wanted: &'static str,
) -> Result<(), ConfigError> {
    ubos_common::ConfigError::require(holds, setting, seen, wanted)?;
    Ok(())
}

/// A tool's name as an error shows it: what is asked for may be as long as a frame.
pub(crate) fn named(tool: &str) -> Box<str> {
    const LONGEST: usize = 200;
    let end = tool
        .char_indices()
        .nth(LONGEST)
        .map_or(tool.len(), |(end, _)| end);
    tool.get(..end).unwrap_or_default().into()
}

/// A command that is refused; it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The handshake is not done.
    #[error("no session yet")]
    NotOpen,
    /// The connection has ended, or is about to.
    #[error("the connection is closing or closed")]
    Closing,
    /// The agent offers no such tool.
    #[error("no such tool: {tool:?}")]
    ToolNotFound {
        /// The tool that was asked for; the beginning of a long name.
        tool: Box<str>,
    },
    /// The caller may not use the tool.
    #[error("the caller has no permission for this tool")]
    PermissionDenied,
    /// The tool wants a directive and the request names no cause.
    #[error("the tool needs a directive: set causation_id")]
    DirectiveRequired,
    /// The input is larger than allowed.
    #[error("the input has {bytes} bytes, at most {limit} are allowed")]
    InputTooLarge {
        /// Bytes of the input.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// As many calls run as may run at once, and as many wait as may wait, in number, or in the bytes that are kept for the
    /// agent.
    #[error("too many calls at once")]
    Busy,
    /// The connection had no room for the call in the call's time.
    #[error("the connection had no room for the call in its time")]
    Late,
    /// The connection had no room for the call in the time that its core waits for some.
    #[error("the connection had no room for the call within {within:?}")]
    NoRoom {
        /// How long that was waited for.
        within: Duration,
    },
    /// Too many calls in a span of time.
    #[error("the core takes no more calls now; retry in {retry_after:?}")]
    RateExceeded {
        /// When there is room again.
        retry_after: Duration,
    },
    /// The agent is unhealthy.
    #[error("the agent is unhealthy")]
    Unhealthy,
    /// No such call is running: it never was, or its result is sent.
    #[error("no such call runs")]
    NoSuchCall,
    /// The call's stream was ended with `done`.
    #[error("the stream of this call is done")]
    StreamDone,
    /// Nobody would check inputs: the feature `schema` is off, and the tools do not say that they do.
    #[error(
        "nothing checks the inputs: enable the feature `schema`, or set `with_tools_checking_inputs`"
    )]
    InputsUnchecked,
    /// More output waits than may; try again when some is taken.
    #[error("too much output waits to be sent")]
    Backlog,
    /// The message cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// The code under which a caller sees the refusal.
impl From<&CommandError> for ErrorCode {
    fn from(error: &CommandError) -> Self {
        match error {
            CommandError::NotOpen | CommandError::Closing => Self::AgentDisconnected,
            CommandError::ToolNotFound { .. } => Self::ToolNotFound,
            CommandError::PermissionDenied => Self::ToolPermissionDenied,
            CommandError::DirectiveRequired => Self::ToolDirectiveRequired,
            CommandError::InputTooLarge { .. } => Self::ToolInvalidInput,
            CommandError::Encode(EncodeError::TooLarge { .. }) => Self::ToolInvalidInput,
            CommandError::Busy | CommandError::Backlog | CommandError::NoRoom { .. } => {
                Self::ToolBusy
            }
            CommandError::RateExceeded { .. } => Self::RateExceeded,
            CommandError::Late => Self::ToolTimeout,
            CommandError::Unhealthy => Self::AgentUnhealthy,
            CommandError::NoSuchCall | CommandError::StreamDone => Self::InvalidMessage,
            CommandError::InputsUnchecked | CommandError::Encode(EncodeError::HoldsToken) => {
                Self::ToolInternal
            }
        }
    }
}

/// The peer broke the protocol for good, or the machine has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The bytes are no frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame is no message that the connection survives.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The handshake failed.
    #[error("the handshake failed: {code}, {reason}")]
    Handshake {
        /// What the peer is told, or told us.
        code: ErrorCode,
        /// What happened.
        reason: Cow<'static, str>,
    },
    /// A message of an unknown type, which the strict policy does not suffer.
    #[error("a message of an unknown type")]
    UnknownType,
    /// The machine has ended and takes no more input.
    #[error("the connection has ended")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_holds_counts_with_all_its_members() {
        let long = "x".repeat(1_000);
        let raw = RawObject::parse(&format!(r#"{{"a":"{long}"}}"#)).ok();
        let bare = ErrorObject::of(ErrorCode::ToolFailed, "");
        for more in [
            ErrorObject::of(ErrorCode::Other(long.as_str().into()), ""),
            ErrorObject::of(ErrorCode::ToolFailed, &*long),
            bare.clone().noticed_by(&long),
            ErrorObject {
                details: raw.clone(),
                ..bare.clone()
            },
            ErrorObject {
                debug: raw.clone(),
                ..bare.clone()
            },
        ] {
            let more = more.weight().saturating_sub(bare.weight());
            assert!((980..1_020).contains(&more), "{more}");
        }
    }
}
