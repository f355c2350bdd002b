//! Traces, metrics and extensions of a message.

use std::collections::BTreeMap;

use ubos_common::json::{Fault, RawBuf, Read, Reader, Write};

use super::closed::refuse_unknown;

ubos_common::wire! {
    /// The place of a message in a trace.
    ///
    /// Spec: SACP 1.0, 4
    pub struct OpenTrace {
        /// The trace id.
        optional trace_id: String = "trace_id", "SACP1-4-4";
        /// The span id of this message.
        optional span_id: String = "span_id", "SACP1-4-4";
        /// The parent span id.
        optional parent_span_id: String = "parent_span_id", "SACP1-4-4";
        /// The number of the attempt, from 1.
        optional attempt: Attempt = "attempt", "SACP1-4-4";
        /// Its metrics.
        optional metrics: Metrics = "metrics", "SACP1-4-4";
    }
}

ubos_common::wire! {
    /// The metrics of a message.
    ///
    /// Spec: SACP 1.0, 4
    pub struct OpenMetrics {
        /// Milliseconds from request to answer.
        optional latency_ms: u64 = "latency_ms", "SACP1-4-4";
        /// Milliseconds that it waited before it started.
        optional queue_ms: u64 = "queue_ms", "SACP1-4-4";
        /// Tools called.
        optional tool_calls: u64 = "tool_calls", "SACP1-4-4";
        /// Tokens read by models.
        optional tokens_in: u64 = "tokens_in", "SACP1-4-4";
        /// Tokens written by models.
        optional tokens_out: u64 = "tokens_out", "SACP1-4-4";
        /// US dollars.
        optional cost_usd: f64 = "cost_usd", "SACP1-4-4";
    }
}

/// A closed object: unknown members are refused.
macro_rules! closed {
    ($(#[$meta:meta])* $name:ident($open:ident), $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name($open);

        impl core::ops::Deref for $name {
            type Target = $open;

            fn deref(&self) -> &$open {
                &self.0
            }
        }

        impl core::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut $open {
                &mut self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self($open::new())
            }
        }

        impl Read<'_> for $name {
            fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
                let at = reader.offset();
                let open = $open::read(reader)?;
                if refuse_unknown(reader, at, &open.extra, $what) {
                    return Err(reader.noted());
                }
                Ok(Self(open))
            }
        }

        impl Write for $name {
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
        }
    };
}

closed! {
    /// The place of a message in a trace. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 4
    Trace(OpenTrace), "a trace has no such member"
}

closed! {
    /// The metrics of a message. Unknown members are refused.
    ///
    /// Spec: SACP 1.0, 4
    Metrics(OpenMetrics), "metrics have no such member"
}

/// The number of an attempt, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(u64);

impl Attempt {
    /// The attempt; `None` for 0.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl Read<'_> for Attempt {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.number()?;
        let number = text.parse().ok().and_then(Self::new);
        number.ok_or_else(|| reader.bad_value_seen(at, "an integer from 1", text))
    }
}

impl Write for Attempt {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// Extensions by name: `vendor.name`.
///
/// Spec: SACP 1.0, 4
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ext(BTreeMap<String, RawBuf>);

impl Ext {
    /// Adds an extension. Returns `false` and changes nothing if its name is not valid.
    pub fn insert(&mut self, name: &str, value: RawBuf) -> bool {
        let good = Self::fits(name);
        if good {
            self.0.insert(name.to_owned(), value);
        }
        good
    }

    /// Removes an extension.
    pub fn remove(&mut self, name: &str) -> Option<RawBuf> {
        self.0.remove(name)
    }

    /// The extension with this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&RawBuf> {
        self.0.get(name)
    }

    /// All extensions, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawBuf)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a name is valid: lower-case letters and digits, a dot, then letters, digits, `_`, `.` and `-`.
    #[must_use]
    pub fn fits(name: &str) -> bool {
        let Some((vendor, rest)) = name.split_once('.') else {
            return false;
        };
        let vendor_byte = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let rest_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        !vendor.is_empty()
            && !rest.is_empty()
            && vendor.bytes().all(vendor_byte)
            && rest.bytes().all(rest_byte)
    }
}

impl Read<'_> for Ext {
    // impl: SACP1-4-4
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut refused = false;
        let mut members = BTreeMap::new();
        reader.object(|reader, name| {
            if !Self::fits(name) {
                let here = reader.offset();
                reader.reject(here, "ext_name", "an extension is named vendor.name");
                refused = true;
                return reader.skip();
            }
            members.insert(name.clone().into_owned(), RawBuf::read(reader)?);
            Ok(())
        })?;
        if refused {
            return Err(reader.noted());
        }
        Ok(Self(members))
    }
}

impl Write for Ext {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
