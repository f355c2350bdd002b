//! The gRPC statuses that end a call, without a gRPC library.

use std::fmt;

/// The status codes that this protocol uses, with gRPC's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// The call was given up.
    Cancelled = 1,
    /// Something else.
    Unknown = 2,
    /// The request is malformed.
    InvalidArgument = 3,
    /// The call was not taken or complete in time.
    DeadlineExceeded = 4,
    /// The id is unknown.
    NotFound = 5,
    /// A limit is reached.
    ResourceExhausted = 8,
    /// The id names something that is not in the state for this.
    FailedPrecondition = 9,
    /// The call was replaced or its session is over.
    Aborted = 10,
    /// An internal error.
    Internal = 13,
    /// The peer is not there, or is leaving.
    Unavailable = 14,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The verdict.
    pub code: Code,
    /// A description.
    pub message: String,
}

impl Code {
    /// Whether the same call may succeed later, without anything else being done.
    pub(crate) const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::DeadlineExceeded | Self::ResourceExhausted | Self::Unavailable
        )
    }
}

impl Status {
    /// A status with its message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The good end.
    #[must_use]
    pub const fn ok() -> Self {
        Self {
            code: Code::Ok,
            message: String::new(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(f, "{:?}", self.code)
        } else {
            f.write_str(&self.message)
        }
    }
}

/// Cuts a peer's text at a character boundary, to limit memory.
pub(crate) fn brief(text: &str) -> String {
    /// Bytes of a reason that are kept.
    const MAX_REASON_BYTES: usize = 1024;
    let end = (0..=MAX_REASON_BYTES.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}
