//! Names: ids, agents, capabilities, the protocol's version.

use core::fmt;
use core::str::FromStr;

use ubos_common::json::{Fault, Kind, Read, Reader, Write, escape_into};

ubos_common::id_type! {
    /// Names one task. Spec: SAP 3
    pub struct TaskId;
}

ubos_common::id_type! {
    /// Ties together the messages of one piece of work. Spec: SAP 3
    pub struct CorrelationId;
}

/// The version that these types are of: `"2.0"` on the wire and nothing else. Spec: SAP 2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// SAP V2.0
    #[default]
    V2,
}

/// The word on the wire.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Version {
    const fn as_str(self) -> &'static str {
        match self {
            Self::V2 => "2.0",
        }
    }
}

impl Read<'_> for Version {
    // impl: SAP-2-1
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        const WANTED: &str = "the string \"2.0\"";
        let at = reader.offset();
        if reader.peek()? != Kind::String {
            // A number 2.0 is shown as its text, which is what is wanted.
            const NO_STRING: &str = "the string \"2.0\" and no value of another type";
            let seen = reader.raw()?;
            return Err(reader.bad_value_seen(at, NO_STRING, seen.as_str()));
        }
        let text = reader.str()?;
        if text == Self::V2.as_str() {
            return Ok(Self::V2);
        }
        Err(reader.bad_value_seen(at, WANTED, &text))
    }
}

impl Write for Version {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self.as_str());
    }
}

/// Declares a text that is checked when it is made.
macro_rules! checked_text {
    ($(#[$meta:meta])* $name:ident, $wanted:literal, $holds:expr) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The text on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            // impl: SAP-4.1-15
            fn from_str(text: &str) -> Result<Self, NameError> {
                let holds: fn(&str) -> bool = $holds;
                if holds(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError { wanted: $wanted })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Read<'_> for $name {
            fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
                let at = reader.offset();
                let text = reader.str()?;
                text.parse()
                    .map_err(|_| reader.bad_value_seen(at, $wanted, &text))
            }
        }

        impl Write for $name {
            fn write(&self, out: &mut Vec<u8>) {
                escape_into(out, &self.0);
            }
        }
    };
}

checked_text! {
    /// The logical id of an agent or user: any text that is not blank. Spec: SAP 4.1, 4.2
    AgentId, "an id that is not blank", |text| !text.trim().is_empty()
}

checked_text! {
    /// A namespaced capability: two or more segments between dots, none empty, no white space. Spec: SAP 4.1
    ///
    /// ```
    /// use sap::Capability;
    ///
    /// assert!("consult.align".parse::<Capability>().is_ok());
    /// assert!("echo".parse::<Capability>().is_err());
    /// assert!("a..b".parse::<Capability>().is_err());
    /// ```
    Capability, "a namespaced capability such as consult.align", is_namespaced
}

checked_text! {
    /// Why a task is turned away: any text that is not blank. Spec: SAP 4.3
    Reason, "a reason that is not blank", |text| !text.trim().is_empty()
}

fn is_namespaced(text: &str) -> bool {
    let has_space = if text.is_ascii() {
        // As for characters, the vertical tab counts.
        text.bytes().any(|b| matches!(b, b' ' | b'\t'..=b'\r'))
    } else {
        text.contains(char::is_whitespace)
    };
    let is_hollow = text.starts_with('.') || text.ends_with('.') || text.contains("..");
    !has_space && !is_hollow && text.bytes().any(|b| b == b'.')
}

/// Why a text or number is not a value of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} wanted")]
#[non_exhaustive]
pub struct NameError {
    /// What was wanted.
    pub wanted: &'static str,
}
