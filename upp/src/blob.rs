//! Bytes on the wire: always written as base64.

use core::fmt;
use std::sync::Arc;

use ubos_common::json::{Fault, Kind, Read, Reader, Write};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes of an image, a sound or a file; copies share them.
///
/// Written as standard base64 with padding. Read from that, from an array of numbers, and from the object with
/// index keys that JavaScript makes of a byte array.
///
/// ```
/// use ubos_common::json;
/// use upp::Blob;
///
/// assert_eq!(json::to_string(&Blob::from(vec![1, 2, 3])), "\"AQID\"");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Blob(Arc<[u8]>);

impl Blob {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as standard base64 with padding.
    #[must_use]
    pub fn to_base64(&self) -> String {
        let mut text = String::with_capacity(self.0.len().div_ceil(3) * 4);
        for group in self.0.chunks(3) {
            let at = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
            let bits = at(0) << 16 | at(1) << 8 | at(2);
            for n in 0..4_usize {
                let index = usize::try_from(bits >> (18 - 6 * n) & 63).unwrap_or(0);
                let digit = ALPHABET.get(index).copied().unwrap_or(b'A');
                text.push(char::from(if n <= group.len() { digit } else { b'=' }));
            }
        }
        text
    }

    /// The bytes that a base64 text stands for; padding may be absent, anything else is refused.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches('=').as_bytes();
        if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
            return None;
        }
        let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
        let (mut bits, mut held) = (0_u32, 0);
        for digit in digits {
            let value = ALPHABET.iter().position(|d| d == digit)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
            held += 6;
            if held >= 8 {
                held -= 8;
                bytes.push(u8::try_from(bits >> held & 255).ok()?);
                bits &= (1 << held) - 1;
            }
        }
        (bits == 0).then(|| bytes.into())
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Write for Blob {
    fn write(&self, out: &mut Vec<u8>) {
        self.to_base64().write(out);
    }
}

impl<'a> Read<'a> for Blob {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let (mark, at) = (reader.mark(), reader.offset());
        match reader.peek()? {
            Kind::String => {
                let text = reader.str()?;
                Self::from_base64(&text).ok_or_else(|| reader.bad_value(at, "base64"))
            }
            Kind::Array => Vec::<u8>::read(reader).map(Self::from),
            Kind::Object => {
                let mut bytes = Vec::new();
                let mut in_order = true;
                reader.object(|reader, name| {
                    in_order &= name.parse() == Ok(bytes.len());
                    bytes.push(u8::read(reader)?);
                    Ok(())
                })?;
                let wanted = "bytes under the keys 0, 1, 2 …";
                in_order
                    .then(|| Self::from(bytes))
                    .ok_or_else(|| reader.bad_value(at, wanted))
            }
            seen => Err(reader.wrong_type(mark, "base64 or bytes", seen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ubos_common::json::{Limits, decode, to_string};
    use ubos_common::violation::Profile;

    fn read(text: &str) -> Option<Blob> {
        let read = decode(text.as_bytes(), &Limits::default(), Profile::Strict);
        read.ok().map(|(blob, _)| blob)
    }

    #[test]
    fn bytes_have_one_form_on_the_wire_and_three_ways_in() {
        for length in 0..=70_u8 {
            let blob = Blob::from((0..length).map(|n| n.wrapping_mul(89)).collect::<Vec<_>>());
            assert_eq!(read(&to_string(&blob)), Some(blob));
        }
        let three = Some(Blob::from(vec![1, 2, 255]));
        assert_eq!(read("\"AQL/\""), three);
        assert_eq!(read("[1,2,255]"), three);
        assert_eq!(read(r#"{"0":1,"1":2,"2":255}"#), three);
        for bad in [
            "\"A\"",
            "\"AQ=x\"",
            "\"AR==\"",
            "\"A-==\"",
            "[256]",
            r#"{"1":1}"#,
            "7",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
