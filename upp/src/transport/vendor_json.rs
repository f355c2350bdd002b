//! The JSON of vendors: strict about what a response needs, tolerant of how vendors write it.
//!
//! A member that the response needs and that cannot be read is an error with its place ([`parse`]). What no response
//! needs is passed over alone ([`Spare`], [`Json::keep`]).

use serde::de::{self, DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use ubos_common::json::{Fault, MemberWriter, Members, RawBuf, Read, Reader, Write, decode};
use ubos_common::violation::Profile;

use crate::kept::{kept_limits, value_of};

/// Characters of a pointer in an error.
const MAX_POINTER: usize = 200;

/// Text that is not the JSON that was expected.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The place of the fault, a JSON Pointer.
    pub(super) pointer: String,
}

/// Parses a document whose size was checked.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let unreadable = |pointer| Unreadable { pointer };
    let text = core::str::from_utf8(bytes).map_err(|_| unreadable(String::new()))?;
    serde_json::from_str(text).map_err(|error| {
        let lines = text.split_inclusive('\n');
        let before: usize = lines
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let lacks_member = error.to_string().starts_with("missing field");
        let offset = before + error.column().saturating_sub(1);
        unreadable(pointer(text, offset, lacks_member))
    })
}

/// The JSON Pointer of the value at an offset, in a text that is JSON up to there; of the object there, if it lacks a member.
fn pointer(text: &str, offset: usize, lacks_member: bool) -> String {
    /// An open array with its index, or an open object with its last name.
    enum Frame {
        Array(usize),
        Object(Option<String>),
    }
    let mut frames: Vec<Frame> = Vec::new();
    let mut rest = text
        .as_bytes()
        .get(..offset.min(text.len()))
        .unwrap_or_default();
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        match (byte, frames.last_mut()) {
            (b'"', last) => {
                let end = string_end(rest);
                let inside = rest.get(..end).unwrap_or_default();
                rest = rest.get(end + 1..).unwrap_or_default();
                if let Some(Frame::Object(name @ None)) = last {
                    *name = Some(String::from_utf8_lossy(inside).into_owned());
                }
            }
            (b'[', _) => frames.push(Frame::Array(0)),
            (b'{', _) => frames.push(Frame::Object(None)),
            (b']' | b'}', _) => drop(frames.pop()),
            (b',', Some(Frame::Array(index))) => *index += 1,
            (b',', Some(Frame::Object(name))) => *name = None,
            _ => {}
        }
    }
    // The fault is not in the last member that was read.
    if let (true, Some(Frame::Object(name))) = (lacks_member, frames.last_mut()) {
        *name = None;
    }
    let mut pointer = String::new();
    for frame in frames {
        match frame {
            Frame::Array(index) => pointer += &format!("/{index}"),
            Frame::Object(Some(name)) => {
                pointer += &format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            }
            Frame::Object(None) => {}
        }
    }
    pointer.chars().take(MAX_POINTER).collect()
}

/// The place of the quote that ends a string.
fn string_end(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(text.len())
}

/// A JSON value kept as text.
#[derive(Clone, Debug)]
pub(super) struct Json(Box<RawValue>);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

impl Json {
    pub(super) fn text(&self) -> &str {
        self.0.get().trim()
    }

    /// The value, where it can be kept in a message. Null is no value.
    pub(super) fn keep(&self) -> Option<RawBuf> {
        value_of(self.text()).filter(|value| value.as_str() != "null")
    }

    /// The value as another type.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.text()).ok()
    }
}

/// The members of an object, in their order.
#[derive(Clone, Debug)]
pub(super) struct Object(pub(super) Members<'static>);

impl<'a> Read<'a> for Object {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut members = Members::new();
        reader.fields(|reader, name, _| members.keep_owned(reader, &name))?;
        Ok(Self(members))
    }
}

impl Write for Object {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        self.0.write_into(&mut object);
        object.end();
    }
}

impl Object {
    /// The members of an object that was kept.
    pub(super) fn of(text: &str) -> Option<Self> {
        let (object, _) = decode(text.as_bytes(), &kept_limits(), Profile::Strict).ok()?;
        Some(object)
    }

    /// A member as another type.
    pub(super) fn read_member<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.0.value(name)?.deserialize().ok()
    }
}

/// A value that no response needs: `None` where it cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Spare<T>(pub(super) Option<T>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Spare<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Json::deserialize(deserializer)?.read()))
    }
}

/// A count. Some vendors write `1.0`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count(pub(super) u64);

impl From<Count> for u64 {
    fn from(count: Count) -> Self {
        count.0
    }
}

impl<'de> Deserialize<'de> for Count {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is whole and in range"
    )]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        if let Ok(count) = json.text().parse() {
            return Ok(Self(count));
        }
        // Above 2^53 a fraction could not be seen.
        match json.text().parse::<f64>() {
            Ok(count) if (0.0..9.0e15).contains(&count) && count.fract() == 0.0 => {
                Ok(Self(count as u64))
            }
            _ => Err(D::Error::custom("expected a count")),
        }
    }
}

/// A piece of a text, as WTF-8: a vendor may split a text between the halves of a surrogate pair.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece(pub(super) Vec<u8>);

impl Piece {
    #[cfg(any(feature = "openai", feature = "anthropic"))]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Piece;

            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Piece, E> {
                Ok(Piece(bytes.to_vec()))
            }
        }
        // As bytes, `serde_json` gives half a pair as it is.
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Joins the pieces of one text.
#[derive(Clone, Debug, Default)]
pub(super) struct Joiner {
    /// The first half of a pair, in WTF-8.
    half: Vec<u8>,
}

impl Joiner {
    /// The text of a piece and of what was held back; the first half of a pair is held back for the next piece. Half a
    /// pair without its other half is U+FFFD.
    pub(super) fn join(&mut self, piece: Piece) -> String {
        let mut bytes = core::mem::take(&mut self.half);
        bytes.extend(piece.0);
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => return text,
            Err(error) => error.into_bytes(),
        };
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match *rest {
                [
                    0xed,
                    high @ 0xa0..=0xaf,
                    low,
                    0xed,
                    second @ 0xb0..=0xbf,
                    last,
                    ..,
                ] => {
                    text.push(paired([high, low], [second, last]));
                    rest = rest.get(6..).unwrap_or_default();
                }
                [0xed, 0xa0..=0xaf, _] => {
                    self.half = rest.to_vec();
                    break;
                }
                [0xed, 0xa0..=0xbf, _, ..] => {
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = rest.get(3..).unwrap_or_default();
                }
                _ => {
                    let end = rest.windows(2).skip(1).position(is_half);
                    let (sound, more) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
                    text += &String::from_utf8_lossy(sound);
                    rest = more;
                }
            }
        }
        text
    }

    /// What stands for half a pair that was held back to the end.
    pub(super) fn finish(&mut self) -> &'static str {
        if core::mem::take(&mut self.half).is_empty() {
            ""
        } else {
            "\u{fffd}"
        }
    }
}

fn is_half(window: &[u8]) -> bool {
    matches!(window, [0xed, 0xa0..=0xbf])
}

/// The character of the last two WTF-8 bytes of both halves.
fn paired(high: [u8; 2], low: [u8; 2]) -> char {
    let bits = |[first, last]: [u8; 2]| (u32::from(first & 0x0f) << 6) | u32::from(last & 0x3f);
    char::from_u32(0x1_0000 + (bits(high) << 10) + bits(low)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_joined_wherever_it_is_split() {
        let join = |pieces: &[&str]| {
            let mut joiner = Joiner::default();
            let mut text = String::new();
            for piece in pieces {
                text += &joiner.join(serde_json::from_str(piece).unwrap());
            }
            text + joiner.finish()
        };
        assert_eq!(join(&[r#""a\ud83d\ude00b""#]), "a😀b");
        assert_eq!(join(&[r#""é\ud83d""#, r#""\ude00b""#]), "é😀b");
        assert_eq!(join(&[r#""a\ud83d""#, r#""""#, r#""\ude00""#]), "a😀");
        assert_eq!(join(&[r#""a\ud83d""#, r#""ü""#]), "a\u{fffd}ü");
        assert_eq!(
            join(&[r#""\ude00a\ud83d\ud83d\ude00""#]),
            "\u{fffd}a\u{fffd}😀"
        );
        assert_eq!(join(&[r#""a\ud83d""#]), "a\u{fffd}");
    }

    #[test]
    fn a_fault_has_its_place() {
        #[derive(Debug, Deserialize)]
        struct Inner {
            #[expect(dead_code, reason = "read for its fault")]
            b: Vec<u8>,
        }
        #[derive(Debug, Deserialize)]
        struct Outer {
            #[serde(rename = "a/~")]
            _a: Inner,
        }
        for (text, at) in [
            (r#"{"x":[{"b":1}],"a/~":{"b":[1,"\"",3]}}"#, "/a~1~0/b/1"),
            ("{\n\"a/~\":{\"b\":[1,\n2", "/a~1~0/b/1"),
            (r#"{"a/~":7}"#, "/a~1~0"),
            (r#"{"a/~":{"c":[{"d":1}] }}"#, "/a~1~0"),
            (r#"{"a/~": }"#, "/a~1~0"),
            (r#"{"x":1}"#, ""),
            ("[1", "/0"),
        ] {
            assert_eq!(
                parse::<Outer>(text.as_bytes()).unwrap_err().pointer,
                at,
                "{text}"
            );
        }
    }

    #[test]
    fn counts_are_read_as_vendors_write_them() {
        let count = |text| {
            serde_json::from_str::<Count>(text)
                .ok()
                .map(|count| count.0)
        };
        assert_eq!(count("1.0"), Some(1));
        assert_eq!(count("18446744073709551615"), Some(u64::MAX));
        assert_eq!(
            [count("1.5"), count("-1"), count("\"1\""), count("1e300")],
            [None; 4]
        );
    }
}
