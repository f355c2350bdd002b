//! Writing compact JSON into a buffer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::scan;
use crate::time::{Rfc3339, Timestamp, WholeSecond};

/// A type that can be written as compact JSON.
pub trait Write {
    /// Appends the value to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Whether a strict reader takes the value: not a word or number that only a lenient one lets pass. What members say of
    /// one another, and the limits of the whole text, are not looked at. Types of `wire!` and `words!` know it; one whose `Write`
    /// is written by hand, and which holds such values, asks its members.
    fn is_strict(&self) -> bool {
        true
    }
}

/// The compact JSON of a value.
#[must_use]
pub fn to_vec<T: Write + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_024);
    value.write(&mut out);
    out
}

/// The compact JSON of a value, as text.
#[must_use]
#[expect(clippy::expect_used, reason = "every writer appends whole texts")]
pub fn to_string<T: Write + ?Sized>(value: &T) -> String {
    String::from_utf8(to_vec(value)).expect("writers append UTF-8 only")
}

/// Writes one object member by member.
///
/// ```
/// use ubos_common::json::MemberWriter;
///
/// let mut out = Vec::new();
/// let mut object = MemberWriter::begin(&mut out);
/// object.member("n", &7u64);
/// object.optional("absent", None::<&u64>);
/// object.end();
/// assert_eq!(out, br#"{"n":7}"#);
/// ```
#[derive(Debug)]
pub struct MemberWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> MemberWriter<'a> {
    /// Writes the opening brace.
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes a member.
    pub fn member<T: Write + ?Sized>(&mut self, name: &str, value: &T) {
        self.separate();
        escape_into(self.out, name);
        self.out.push(b':');
        value.write(self.out);
    }

    /// Writes a member unless it is absent.
    pub fn optional<T: Write + ?Sized>(&mut self, name: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.member(name, value);
        }
    }

    /// Writes a member whose name stands quoted, with its colon, in the source.
    #[doc(hidden)]
    pub fn known<T: Write + ?Sized>(&mut self, quoted: &'static str, value: &T) {
        self.separate();
        self.out.extend_from_slice(quoted.as_bytes());
        value.write(self.out);
    }

    /// As [`known`](Self::known), unless it is absent.
    #[doc(hidden)]
    pub fn known_optional<T: Write + ?Sized>(&mut self, quoted: &'static str, value: Option<&T>) {
        if let Some(value) = value {
            self.known(quoted, value);
        }
    }

    /// Writes the closing brace.
    pub fn end(self) {
        self.out.push(b'}');
    }

    fn separate(&mut self) {
        if !core::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }
}

/// Appends a text, quoted and escaped.
pub fn escape_into(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut at = 0;
    loop {
        let end = scan::plain_end(bytes, at);
        out.extend_from_slice(bytes.get(at..end).unwrap_or_default());
        let Some(&byte) = bytes.get(end) else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => {
                out.extend_from_slice(b"\\u00");
                for digit in [control >> 4, control & 0xf] {
                    out.push(HEX.get(usize::from(digit)).copied().unwrap_or(b'0'));
                }
            }
        }
        at = end + 1;
    }
    out.push(b'"');
}

fn display_into(out: &mut Vec<u8>, value: impl core::fmt::Display) {
    use std::io::Write as _;
    // Writing to a vector does not fail.
    let _ = write!(out, "{value}");
}

impl<T: Write + ?Sized> Write for &T {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn is_strict(&self) -> bool {
        (**self).is_strict()
    }
}

impl<T: Write + ?Sized> Write for Box<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn is_strict(&self) -> bool {
        (**self).is_strict()
    }
}

impl<T: Write + ?Sized> Write for Arc<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn is_strict(&self) -> bool {
        (**self).is_strict()
    }
}

impl Write for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

macro_rules! write_integer {
    ($($type:ty)*) => {$(
        impl Write for $type {
            fn write(&self, out: &mut Vec<u8>) {
                match u8::try_from(*self) {
                    // Most of what protocols count: quicker than the formatter.
                    Ok(digit @ 0..10) => out.push(b'0' + digit),
                    _ => display_into(out, self),
                }
            }
        }
    )*};
}

write_integer! { u8 u16 u32 u64 usize i32 i64 }

impl Write for f64 {
    /// The shortest text that reads back as the same double; `null` for what JSON has no number for.
    fn write(&self, out: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(out, self);
    }

    fn is_strict(&self) -> bool {
        self.is_finite()
    }
}

impl Write for str {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self);
    }
}

impl Write for String {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self);
    }
}

impl Write for Cow<'_, str> {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self);
    }
}

impl<T: Write> Write for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn is_strict(&self) -> bool {
        self.as_ref().is_none_or(Write::is_strict)
    }
}

impl<T: Write> Write for [T] {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (n, element) in self.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            element.write(out);
        }
        out.push(b']');
    }

    fn is_strict(&self) -> bool {
        self.iter().all(Write::is_strict)
    }
}

impl<T: Write> Write for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }

    fn is_strict(&self) -> bool {
        self.as_slice().is_strict()
    }
}

impl<T: Write> Write for BTreeMap<String, T> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        for (name, value) in self {
            object.member(name, value);
        }
        object.end();
    }

    fn is_strict(&self) -> bool {
        self.values().all(Write::is_strict)
    }
}

impl Write for uuid::Uuid {
    fn write(&self, out: &mut Vec<u8>) {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        out.push(b'"');
        out.extend_from_slice(self.hyphenated().encode_lower(&mut text).as_bytes());
        out.push(b'"');
    }
}

impl Write for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        let mut text = [0; crate::time::LONGEST_TEXT];
        out.push(b'"');
        out.extend_from_slice(crate::time::to_text(*self, &mut text));
        out.push(b'"');
    }
}

impl Write for WholeSecond {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(&self.to_bytes());
        out.push(b'"');
    }
}

impl Write for Rfc3339 {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self.as_str());
    }
}

impl Write for serde_json::Value {
    fn write(&self, out: &mut Vec<u8>) {
        // A `Value` has no members that a vector could refuse.
        let _ = serde_json::to_writer(out, self);
    }
}
