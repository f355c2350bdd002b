//! The roles as machines without IO: [`core`] and [`agent`], and the [`router`] over many connections of a core.

pub mod agent;
mod common;
pub mod core;
mod idempotency;
mod rate;
pub mod router;
mod table;

use std::fmt;

use ubos_common::ShortText;
use ubos_common::id::Uuid;

use crate::error::{ErrorCode, ErrorObject};

/// Names a call on its connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(ShortText);

impl CallId {
    fn new(id: Uuid) -> Self {
        let mut text = [0; 36];
        Self(ShortText::from(&*id.hyphenated().encode_lower(&mut text)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text on the wire.
impl AsRef<str> for CallId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for CallId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What comes into a machine.
#[derive(Clone, Copy)]
// exhaustive: a byte stream gives bytes and an end
pub enum Input<'a> {
    /// Bytes, however they were split.
    Bytes(&'a [u8]),
    /// The peer sends nothing more, or the connection is gone.
    Eof,
}

/// Sizes alone: bytes may be a hello with its token.
impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Eof => f.write_str("Eof"),
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The core said goodbye and all calls have ended.
    Goodbye,
    /// The agent has ended its work.
    Shutdown,
    /// The peer closed, or the stream broke.
    Disconnected,
    /// A fault of the protocol, on either side.
    Protocol(ErrorCode),
}

/// The one sentence for an output over the limit.
// impl: OSW-7-3
fn output_too_large(bytes: usize, limit: usize) -> ErrorObject {
    let message = format!(
        "an output of {bytes} bytes where {limit} are allowed; return a reference to it instead"
    );
    ErrorObject::of(ErrorCode::ToolOutputTooLarge, message)
}
