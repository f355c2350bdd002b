//! Strings: their end, their escapes, their text.

use std::borrow::Cow;

use super::super::error::{Fault, FaultKind};
use super::super::scan;
use super::Reader;

impl<'a> Reader<'a> {
    /// A string, from its opening quote, which is known to be there.
    #[inline(always)]
    pub(super) fn quoted(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.at + 1;
        let plain = scan::plain_end(self.text.as_bytes(), start);
        if self.text.as_bytes().get(plain) == Some(&b'"') {
            if plain - start > self.limits.max_string_bytes {
                return Err(self.too_long(self.at));
            }
            self.at = plain + 1;
            return Ok(Cow::Borrowed(
                self.text.get(start..plain).unwrap_or_default(),
            ));
        }
        self.quoted_escaped()
    }

    /// The rare string: with escapes, or none at all.
    #[cold]
    #[inline(never)]
    fn quoted_escaped(&mut self) -> Result<Cow<'a, str>, Fault> {
        let escaped = self.quoted_end()?;
        Ok(Cow::Owned(unescape(escaped)))
    }

    /// Takes a string and drops it.
    #[inline]
    pub(super) fn skip_quoted(&mut self) -> Result<(), Fault> {
        let start = self.at + 1;
        let plain = scan::plain_end(self.text.as_bytes(), start);
        let is_short = plain - start <= self.limits.max_string_bytes;
        if is_short && self.text.as_bytes().get(plain) == Some(&b'"') {
            self.at = plain + 1;
            return Ok(());
        }
        self.quoted_end().map(drop)
    }

    /// Takes a string and checks its escapes; gives what stands between the quotes.
    pub(super) fn quoted_end(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut end = start;
        loop {
            end = scan::plain_end(bytes, end);
            if end - start > self.limits.max_string_bytes {
                return Err(self.too_long(self.at));
            }
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end = self.escape_end(end)?,
                Some(_) => return Err(Fault::new(FaultKind::ControlCharacter, end)),
                None => return Err(self.end()),
            }
        }
        self.at = end + 1;
        Ok(self.text.get(start..end).unwrap_or_default())
    }

    /// The byte behind the escape whose backslash is at `at`.
    fn escape_end(&self, at: usize) -> Result<usize, Fault> {
        let bytes = self.text.as_bytes();
        match bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let invalid = Fault::new(FaultKind::InvalidEscape, at);
                let unit = bytes
                    .get(at + 2..at + 6)
                    .and_then(scan::hex4)
                    .ok_or(invalid)?;
                match unit {
                    0xd800..0xdc00 => {
                        let low = bytes.get(at + 6..at + 12).filter(|b| b.starts_with(b"\\u"));
                        let low = low.and_then(|b| b.get(2..)).and_then(scan::hex4);
                        match low {
                            Some(0xdc00..0xe000) => Ok(at + 12),
                            _ => Err(Fault::new(FaultKind::LoneSurrogate, at)),
                        }
                    }
                    0xdc00..0xe000 => Err(Fault::new(FaultKind::LoneSurrogate, at)),
                    _ => Ok(at + 6),
                }
            }
            Some(_) => Err(Fault::new(FaultKind::InvalidEscape, at)),
            None => Err(self.end()),
        }
    }
}

/// Decodes escapes that have been checked.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        out.push_str(plain);
        let (c, length) = unescape_one(escape);
        out.push(c);
        rest = escape.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The character of one checked escape and the bytes it takes.
fn unescape_one(escape: &str) -> (char, usize) {
    let bytes = escape.as_bytes();
    let plain = match bytes.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let unit = bytes.get(2..).and_then(scan::hex4).unwrap_or(0);
            if (0xd800..0xdc00).contains(&unit) {
                let low = bytes.get(8..).and_then(scan::hex4).unwrap_or(0);
                let code = 0x1_0000 + ((unit & 0x3ff) << 10 | (low & 0x3ff));
                return (
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                    12,
                );
            }
            return (
                char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER),
                6,
            );
        }
        other => other
            .copied()
            .map_or(char::REPLACEMENT_CHARACTER, char::from),
    };
    (plain, 2)
}
