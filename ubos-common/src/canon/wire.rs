//! Canonical form of JSON text in one pass: what is canonical already is copied, the rest is
//! written anew, and no value is built in between. Grammar: RFC 8259.

use super::writer::{Object, Sink, Writer};
use super::{CanonError, CanonFault, number, order, text};

/// Writes the one value that `json`, which is UTF-8, consists of.
pub(super) fn write<S: Sink>(writer: &mut Writer<'_, S>, json: &[u8]) -> Result<(), CanonError> {
    let mut parser = Parser { json, at: 0 };
    let outcome = parser.document(writer);
    outcome.map_err(|error| error.at(parser.at))
}

struct Parser<'j> {
    json: &'j [u8],
    at: usize,
}

impl<'j> Parser<'j> {
    fn document<S: Sink>(&mut self, writer: &mut Writer<'_, S>) -> Result<(), CanonError> {
        self.value(writer)?;
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(CanonFault::TrailingBytes.into()),
        }
    }

    fn value<S: Sink>(&mut self, writer: &mut Writer<'_, S>) -> Result<(), CanonError> {
        match self.peek() {
            Some(b'"') => self.string(writer.out()),
            Some(b'{') => self.object(writer),
            Some(b'[') => self.array(writer),
            Some(b'-' | b'0'..=b'9') => self.number(writer),
            Some(b't') => self.word(writer, b"true"),
            Some(b'f') => self.word(writer, b"false"),
            Some(b'n') => self.word(writer, b"null"),
            _ => Err(wanted("a value")),
        }
    }

    fn array<S: Sink>(&mut self, writer: &mut Writer<'_, S>) -> Result<(), CanonError> {
        writer.enter(b'[')?;
        self.at += 1;
        if self.peek() != Some(b']') {
            for index in 0usize.. {
                self.value(writer)
                    .map_err(|error| error.under_index(index))?;
                writer.settle();
                match self.peek() {
                    Some(b',') => writer.out().push(b','),
                    Some(b']') => break,
                    _ => return Err(wanted("a comma or ]")),
                }
                self.at += 1;
            }
        }
        self.at += 1;
        writer.leave(b']');
        Ok(())
    }

    fn object<S: Sink>(&mut self, writer: &mut Writer<'_, S>) -> Result<(), CanonError> {
        let mut object = writer.begin_object()?;
        self.at += 1;
        if self.peek() != Some(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(wanted("a member name"));
                }
                writer.begin_member(&mut object);
                self.name(writer, &mut object)?;
                self.expect(b':', "a colon")?;
                self.value(writer)
                    .map_err(|error| writer.locate(&object, error))?;
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break,
                    _ => return Err(wanted("a comma or }")),
                }
            }
        }
        self.at += 1;
        writer.end_object(&object)
    }

    fn name<S: Sink>(
        &mut self,
        writer: &mut Writer<'_, S>,
        object: &mut Object,
    ) -> Result<(), CanonError> {
        let out = writer.out();
        if let Some(name) = self.plain_string(out) {
            return writer.end_name(object, order::prefix(name), false);
        }
        let start = out.len();
        let escaped = self.escaped_string(out)?;
        let prefix = order::prefix_escaped(out.get(start..).unwrap_or_default());
        writer.end_name(object, prefix, escaped)
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), CanonError> {
        out.push(b'"');
        if self.plain_string(out).is_none() {
            self.escaped_string(out)?;
        }
        out.push(b'"');
        Ok(())
    }

    /// Copies the body of a string without escapes; does nothing if the string is another.
    #[inline]
    fn plain_string(&mut self, out: &mut Vec<u8>) -> Option<&'j [u8]> {
        let rest = self.json.get(self.at + 1..)?;
        let (body, [b'"', ..]) = rest.split_at_checked(text::plain_len(rest))? else {
            return None;
        };
        text::append(out, body);
        self.at += body.len() + 2;
        Some(body)
    }

    /// Copies the body of a string, its escapes made canonical. True if any is left in it.
    fn escaped_string(&mut self, out: &mut Vec<u8>) -> Result<bool, CanonError> {
        self.at += 1;
        let mut escaped = false;
        loop {
            let Some((plain, special, _)) = text::split(self.rest()) else {
                self.at = self.json.len();
                return Err(wanted("a closing quote"));
            };
            out.extend_from_slice(plain);
            self.at += plain.len();
            match special {
                b'"' => break,
                b'\\' => escaped |= self.escape(out)?,
                _ => return Err(wanted("an escape for the control character")),
            }
        }
        self.at += 1;
        Ok(escaped)
    }

    /// Reads one escape, from its backslash on. True if what it names needs one still.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<bool, CanonError> {
        let byte = match self.json.get(self.at + 1) {
            Some(b'u') => return self.unicode_escape(out),
            Some(b'b') => 0x08,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 0x0C,
            Some(b'r') => b'\r',
            Some(quoted @ (b'"' | b'\\' | b'/')) => *quoted,
            _ => return Err(wanted("an escape")),
        };
        self.at += 2;
        Ok(text::write_body(out, &[byte]))
    }

    fn unicode_escape(&mut self, out: &mut Vec<u8>) -> Result<bool, CanonError> {
        let first = self.unit(self.at)?;
        let (code, len) = match first {
            0xD800..=0xDBFF => {
                let follows = self.json.get(self.at + 6..self.at + 8) == Some(b"\\u");
                let second = if follows { self.unit(self.at + 6)? } else { 0 };
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(CanonFault::LoneSurrogate.into());
                }
                (0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00), 12)
            }
            _ => (first, 6),
        };
        // Only a low surrogate that follows no high one is left to fail here.
        let character = char::from_u32(code).ok_or(CanonFault::LoneSurrogate)?;
        self.at += len;
        let mut utf8 = [0; 4];
        let utf8 = character.encode_utf8(&mut utf8);
        Ok(text::write_body(out, utf8.as_bytes()))
    }

    /// The code unit of the `\uXXXX` at `at`.
    fn unit(&self, at: usize) -> Result<u32, CanonError> {
        let digits = self.json.get(at + 2..at + 6).unwrap_or_default();
        let digits = digits.first_chunk::<4>().ok_or_else(|| wanted(HEX))?;
        digits.iter().try_fold(0, |unit, byte| {
            let digit = order::hex_digit(*byte).ok_or_else(|| wanted(HEX))?;
            Ok(unit << 4 | u32::from(digit))
        })
    }

    fn number<S: Sink>(&mut self, writer: &mut Writer<'_, S>) -> Result<(), CanonError> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = self.json.get(start..self.at).unwrap_or_default();
        let mode = writer.mode();
        number::write_text(writer.out(), text, mode)
            .map_err(|fault| CanonError::from(fault).at(start))
    }

    fn digits(&mut self) -> Result<(), CanonError> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(wanted("a digit"));
        }
        Ok(())
    }

    fn word<S: Sink>(&mut self, writer: &mut Writer<'_, S>, word: &[u8]) -> Result<(), CanonError> {
        if !self.rest().starts_with(word) {
            return Err(wanted("a value"));
        }
        writer.out().extend_from_slice(word);
        self.at += word.len();
        Ok(())
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), CanonError> {
        if self.peek() != Some(byte) {
            return Err(wanted(what));
        }
        self.at += 1;
        Ok(())
    }

    /// The next byte that is not white space, which is left behind.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn rest(&self) -> &'j [u8] {
        self.json.get(self.at..).unwrap_or_default()
    }
}

const HEX: &str = "four hexadecimal digits";

#[cold]
fn wanted(wanted: &'static str) -> CanonError {
    CanonFault::Malformed { wanted }.into()
}
