//! What can be wrong with a document: a fault while reading, and the same with its place.

use core::fmt;

use super::kind::Kind;
use super::locate::{Position, locate, push_token};
use crate::violation::{PointerText, Report};

/// A fault at a byte of the text, without its place: turned into a [`JsonError`] or a finding on the failing path.
///
/// One word long, so that what goes well is not moved through memory for the sake of what does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(Box<At>);

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    kind: FaultKind,
    at: usize,
}

impl Fault {
    #[cold]
    pub(super) fn new(kind: FaultKind, at: usize) -> Self {
        Self(Box::new(At { kind, at }))
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &FaultKind {
        &self.0.kind
    }

    /// The byte of the text where it is wrong.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.at
    }

    /// Whether the document is sound JSON here and only not what was wanted, so that reading can go on
    /// behind the value.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        matches!(
            self.kind(),
            FaultKind::WrongType { .. } | FaultKind::BadValue { .. } | FaultKind::Noted
        )
    }
}

/// One way in which a document can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// More bytes than [`Limits::max_bytes`](super::Limits::max_bytes).
    #[error("{seen} bytes where {limit} are allowed")]
    TooLarge {
        /// Bytes of the document.
        seen: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    InvalidUtf8,
    /// The text ends inside a value.
    #[error("the text ends inside a value")]
    UnexpectedEnd,
    /// A byte that cannot stand here.
    #[error("{wanted} wanted")]
    Unexpected {
        /// What could stand here.
        wanted: &'static str,
    },
    /// Something follows the value.
    #[error("bytes after the end of the value")]
    TrailingBytes,
    /// A member name occurs twice in one object.
    #[error("a member name stands twice in one object")]
    DuplicateMember,
    /// Deeper than [`Limits::max_depth`](super::Limits::max_depth).
    #[error("more than {limit} arrays and objects inside one another")]
    TooDeep {
        /// Depth allowed.
        limit: usize,
    },
    /// More members than [`Limits::max_members`](super::Limits::max_members).
    #[error("an object of more than {limit} members")]
    TooManyMembers {
        /// Members allowed.
        limit: usize,
    },
    /// More elements than [`Limits::max_array_len`](super::Limits::max_array_len).
    #[error("an array of more than {limit} elements")]
    ArrayTooLong {
        /// Elements allowed.
        limit: usize,
    },
    /// Longer than [`Limits::max_string_bytes`](super::Limits::max_string_bytes).
    #[error("a string or number of more than {limit} bytes")]
    StringTooLong {
        /// Bytes allowed.
        limit: usize,
    },
    /// A control character inside a string.
    #[error("a control character inside a string")]
    ControlCharacter,
    /// A backslash that begins no escape.
    #[error("a backslash that begins no escape")]
    InvalidEscape,
    /// Half of a surrogate pair: no Unicode text holds it.
    #[error("half of a surrogate pair")]
    LoneSurrogate,
    /// Sound JSON of another type.
    #[error("{wanted} wanted, {seen} seen")]
    WrongType {
        /// The type that was wanted.
        wanted: &'static str,
        /// The type that was seen.
        seen: Kind,
    },
    /// The right type with a value that the rule excludes.
    #[error("{wanted} wanted{}", .seen.as_ref().map(|s| format!(", {s:?} seen")).unwrap_or_default())]
    BadValue {
        /// What was wanted.
        wanted: &'static str,
        /// A bounded piece of what was seen, where the rule says it and the member is no secret.
        seen: Option<Box<str>>,
    },
    /// Findings for this value are already noted, and it has been read to its end.
    #[error("refused, with findings")]
    Noted,
}

impl FaultKind {
    /// A short stable name, for findings and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::UnexpectedEnd => "unexpected_end",
            Self::Unexpected { .. } => "syntax",
            Self::TrailingBytes => "trailing_bytes",
            Self::DuplicateMember => "duplicate_member",
            Self::TooDeep { .. } => "too_deep",
            Self::TooManyMembers { .. } => "too_many_members",
            Self::ArrayTooLong { .. } => "array_too_long",
            Self::StringTooLong { .. } => "string_too_long",
            Self::ControlCharacter => "control_character",
            Self::InvalidEscape => "invalid_escape",
            Self::LoneSurrogate => "lone_surrogate",
            Self::WrongType { .. } => "wrong_type",
            Self::BadValue { .. } => "bad_value",
            Self::Noted => "refused",
        }
    }
}

/// A document that is no sound JSON within the limits, with the place where that shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonError {
    /// What is wrong.
    pub kind: FaultKind,
    /// The value where it is wrong, as an RFC 6901 pointer; empty for the whole document.
    pub pointer: String,
    /// Line and column of the byte.
    pub position: Position,
    /// The byte itself, from 0.
    pub offset: usize,
}

impl JsonError {
    /// Finds the place of a fault in the bytes that were read.
    #[must_use]
    pub fn new(fault: Fault, bytes: &[u8]) -> Self {
        let At { kind, at } = *fault.0;
        let text = match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(err) => core::str::from_utf8(bytes.get(..err.valid_up_to()).unwrap_or_default())
                .unwrap_or_default(),
        };
        // Looking for a place in a document that is refused for its size would cost what the limit saves.
        let text = if matches!(kind, FaultKind::TooLarge { .. }) {
            ""
        } else {
            text
        };
        let mut place = locate(text, at);
        if kind == FaultKind::DuplicateMember {
            let name = text.get(at..).and_then(first_string).unwrap_or_default();
            push_token(&mut place.pointer, &name);
        }
        Self {
            kind,
            pointer: place.pointer,
            position: place.position,
            offset: at,
        }
    }
}

/// The string that `text` begins with.
fn first_string(text: &str) -> Option<String> {
    serde_json::Deserializer::from_str(text)
        .into_iter::<String>()
        .next()?
        .ok()
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = PointerText(&self.pointer);
        write!(f, "{}: {} at {place}", self.position, self.kind)
    }
}

impl std::error::Error for JsonError {}

/// Why [`decode`](super::decode) gives no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No sound JSON within the limits; reading stopped there.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Sound JSON that breaks rules of the protocol: all of them are listed.
    #[error("{0}")]
    Invalid(Report),
}
