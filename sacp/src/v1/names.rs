//! The names of 1.0: texts of limited length, some of a limited alphabet.

use ubos_common::json::{Fault, Read, Reader, Write};
use ubos_common::time::{Rfc3339, Timestamp};

macro_rules! name {
    ($(#[$meta:meta])* $name:ident, $wanted:literal, |$text:ident| $good:expr) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name; `None` if it is not valid.
            #[must_use]
            pub fn new(text: impl Into<String>) -> Option<Self> {
                let text = text.into();
                Self::fits(&text).then_some(Self(text))
            }

            /// Whether a text is a valid name.
            pub(crate) fn fits($text: &str) -> bool {
                $good
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// A valid replacement for an empty text.
            #[allow(dead_code, reason = "not every name is ever made of another text")]
            pub(crate) fn nameless() -> Self {
                Self("_".to_owned())
            }
        }

        impl core::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Read<'_> for $name {
            fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
                let at = reader.offset();
                let text = reader.str()?;
                if !Self::fits(&text) {
                    return Err(reader.bad_value_seen(at, $wanted, &text));
                }
                Ok(Self(text.into_owned()))
            }
        }

        impl Write for $name {
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
        }
    };
}

name! {
    /// Names a message or an agent: 1 to 128 of letters, digits, `.`, `_`, `:` and `-`.
    ///
    /// Spec: SACP 1.0, 4
    Id, "1 to 128 letters, digits, dots, underscores, colons or hyphens",
    |text| has_alphabet(text) && in_length(text, 128)
}

name! {
    /// Names a step or an output: as [`Id`], up to 64.
    ///
    /// Spec: SACP 1.0, 6
    Name, "1 to 64 letters, digits, dots, underscores, colons or hyphens",
    |text| has_alphabet(text) && in_length(text, 64)
}

name! {
    /// A verb or tool: any 1 to 64 characters.
    ///
    /// Spec: SACP 1.0, 6
    Word, "1 to 64 characters", |text| in_length(text, 64)
}

name! {
    /// A goal: any 1 to 128 characters.
    ///
    /// Spec: SACP 1.0, 4
    Goal, "1 to 128 characters", |text| in_length(text, 128)
}

/// A moment in UTC: RFC 3339 with `Z`, a fraction allowed; written as it was read.
///
/// Spec: SACP 1.0, 4
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ts(Rfc3339);

impl From<&Ts> for Timestamp {
    fn from(ts: &Ts) -> Self {
        ts.0.timestamp()
    }
}

impl From<Timestamp> for Ts {
    fn from(at: Timestamp) -> Self {
        Self(at.into())
    }
}

impl Read<'_> for Ts {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        const WANTED: &str = "an RFC 3339 time in UTC, with Z";
        let at = reader.offset();
        let text = reader.str()?;
        match text.parse() {
            Ok(time) if text.ends_with('Z') => Ok(Self(time)),
            _ => Err(reader.bad_value_seen(at, WANTED, &text)),
        }
    }
}

impl Write for Ts {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

// impl: SACP1-4-2
fn has_alphabet(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
}

/// Whether a text has from one to `most` characters.
// impl: SACP1-4-2
pub(super) fn in_length(text: &str, most: usize) -> bool {
    // A character has at most four bytes, so long texts are not counted.
    !text.is_empty() && text.len() <= most.saturating_mul(4) && text.chars().count() <= most
}
