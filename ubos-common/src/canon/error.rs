//! Why a value has no canonical form, and where.

use core::fmt;

use serde::ser;

/// A refusal to write a canonical form: what is wrong ([`CanonFault`]) and where in the value.
///
/// The message never carries a member's value; the pointer carries member names.
#[derive(Clone, PartialEq, Eq)]
pub struct CanonError(Box<Refusal>);

#[derive(Clone, PartialEq, Eq)]
struct Refusal {
    fault: CanonFault,
    pointer: String,
    offset: Option<usize>,
}

/// The rule that a value broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonFault {
    /// NaN, an infinity, or a number beyond the range of a double. Spec: RFC 8785 3.2.2.3
    #[error("number is not a finite IEEE 754 double")]
    NotFinite,
    /// The canonical number is another decimal value than the one given (only in [`Mode::Exact`]).
    ///
    /// [`Mode::Exact`]: super::Mode::Exact
    #[error("canonical form of the number has another value than the number given")]
    Inexact,
    /// Two members of one object have the same name once escapes are resolved. Spec: RFC 8785 3.1
    #[error("member name occurs more than once in its object")]
    DuplicateKey,
    /// An escape names half of a surrogate pair. Spec: RFC 8785 3.2.2.2
    #[error("string escape is a lone surrogate")]
    LoneSurrogate,
    /// A map key did not serialize as a string.
    #[error("map key is not a string")]
    KeyNotString,
    /// Arrays and objects are nested deeper than `limit`.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The deepest nesting accepted, [`MAX_DEPTH`](super::MAX_DEPTH).
        limit: usize,
    },
    /// The text is not JSON. Spec: RFC 8259 2
    #[error("malformed JSON, wanted {wanted}")]
    Malformed {
        /// What the grammar asks for at this place.
        wanted: &'static str,
    },
    /// Something other than white space follows the value.
    #[error("bytes follow the JSON value")]
    TrailingBytes,
    /// The bytes are not UTF-8.
    #[error("bytes are not UTF-8")]
    NotUtf8,
    /// The value's own `Serialize` gave up; the message is that implementation's.
    #[error("value refused to serialize: {0}")]
    Custom(Box<str>),
}

impl CanonError {
    /// The rule that was broken.
    #[must_use]
    pub fn fault(&self) -> &CanonFault {
        &self.0.fault
    }

    /// JSON Pointer (RFC 6901) to the offending value; empty for the whole document.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.0.pointer
    }

    /// Byte offset in the JSON text being read; `None` when the source is no text.
    ///
    /// For a raw value inside a typed one the offset counts from the start of that raw value.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        self.0.offset
    }

    #[cold]
    pub(super) fn new(fault: CanonFault) -> Self {
        Self(Box::new(Refusal {
            fault,
            pointer: String::new(),
            offset: None,
        }))
    }

    pub(super) fn at(mut self, offset: usize) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Says that the error lies inside the member named `name`.
    #[cold]
    pub(super) fn under_name(mut self, name: &str) -> Self {
        let token = name.replace('~', "~0").replace('/', "~1");
        self.0.pointer.insert_str(0, &token);
        self.0.pointer.insert(0, '/');
        self
    }

    /// Says that the error lies inside the element numbered `index`.
    #[cold]
    pub(super) fn under_index(mut self, index: usize) -> Self {
        self.0.pointer.insert_str(0, &format!("/{index}"));
        self
    }
}

impl From<CanonFault> for CanonError {
    fn from(fault: CanonFault) -> Self {
        Self::new(fault)
    }
}

impl fmt::Display for CanonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.fault)?;
        if !self.0.pointer.is_empty() {
            write!(f, " at {}", self.0.pointer)?;
        }
        match self.0.offset {
            Some(offset) => write!(f, " (byte {offset})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for CanonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CanonError")
            .field("fault", &self.0.fault)
            .field("pointer", &self.0.pointer)
            .field("offset", &self.0.offset)
            .finish()
    }
}

impl core::error::Error for CanonError {}

impl ser::Error for CanonError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        CanonFault::Custom(message.to_string().into_boxed_str()).into()
    }
}
