//! BLAKE3 digests, plain or bound to a domain.

use core::fmt;
use core::str::FromStr;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::writer::Sink;

/// A BLAKE3 digest of 32 bytes, written as 64 lower-case hexadecimal digits, in JSON too.
///
/// ```
/// use ubos_common::canon::{Digest, Domain};
///
/// let digest = Digest::of_bytes(b"");
/// assert!(digest.to_string().starts_with("af1349b9f5f9a1a6"));
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// assert_ne!(digest, Digest::of(&Domain::new("example.org 2026 records"), b""));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; blake3::OUT_LEN]);

impl Digest {
    /// Size of a digest in bytes.
    pub const BYTES: usize = blake3::OUT_LEN;

    /// Plain BLAKE3 of `bytes`.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }

    /// Plain BLAKE3 of `beginning`, and of `beginning` with `rest` behind it: the beginning is gone through once.
    #[must_use]
    pub fn of_both(beginning: &[u8], rest: &[u8]) -> [Self; 2] {
        let mut hasher = blake3::Hasher::new();
        let first = hasher.update(beginning).finalize();
        let all = hasher.update(rest).finalize();
        [first, all].map(|hash| Self(hash.into()))
    }

    /// BLAKE3 of `bytes` within `domain`: equal bytes of other domains have other digests.
    #[must_use]
    pub fn of(domain: &Domain, bytes: &[u8]) -> Self {
        match domain.0 {
            None => Self::of_bytes(bytes),
            Some(_) => Self(domain.hasher().update(bytes).finalize().into()),
        }
    }

    /// The digest that consists of `bytes`, computed elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&blake3::Hash::from(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Reads 64 lower-case hexadecimal digits, and nothing else.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        if text.len() != 2 * Self::BYTES {
            return Err(DigestError::Length { seen: text.len() });
        }
        let mut bytes = [0; Self::BYTES];
        // Looked at once behind the loop: a branch a digit would cost more than the digits.
        let mut wrong = 0;
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let [high, low] = pair.map(digit_of);
            wrong |= high | low;
            *byte = high << 4 | low & 0xf;
        }
        if wrong > 0xf {
            let at = text.bytes().position(|byte| digit_of(byte) > 0xf);
            return Err(DigestError::Character {
                at: at.unwrap_or(0),
            });
        }
        Ok(Self(bytes))
    }
}

/// The value of a lower-case hexadecimal digit; more than 15 for anything else.
const fn digit_of(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => 0xff,
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hex;
        impl de::Visitor<'_> for Hex {
            type Value = Digest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 lower-case hexadecimal digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Hex)
    }
}

/// Why a text is no [`Digest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DigestError {
    /// The text has another length.
    #[error("digest of {seen} bytes, wanted 64")]
    Length {
        /// Length of the text in bytes.
        seen: usize,
    },
    /// The text has something other than a lower-case hexadecimal digit.
    #[error("no lower-case hexadecimal digit at byte {at} of a digest")]
    Character {
        /// Where, in bytes from the start.
        at: usize,
    },
}

/// What a digest is for: the same bytes hashed in two domains have unrelated digests.
///
/// Build it once and keep it: making one costs a hash, using it costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain(Option<ContextKey>);

impl Domain {
    /// The domain of a context string: hard-coded, globally unique, never taken from input.
    ///
    /// Convention: `"<project> <date> <purpose>"`.
    #[must_use]
    pub fn new(context: &str) -> Self {
        Self(Some(hash_derive_key_context(context)))
    }

    /// No domain: plain BLAKE3, which others can compute without knowing of domains.
    #[must_use]
    pub const fn plain() -> Self {
        Self(None)
    }

    fn hasher(&self) -> blake3::Hasher {
        match &self.0 {
            None => blake3::Hasher::new(),
            Some(key) => blake3::Hasher::new_from_context_key(key),
        }
    }
}

/// Collects canonical text into blocks and hashes it.
pub(super) struct Hashing {
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
}

/// BLAKE3 works on many chunks of 1024 bytes at once; blocks of a power of two of them never
/// leave it with a broken one.
const BLOCK: usize = 32 * 1024;

impl Hashing {
    pub(super) fn new(domain: &Domain) -> Self {
        Self {
            hasher: domain.hasher(),
            buffer: Vec::with_capacity(8 * 1024),
        }
    }

    pub(super) fn finish(mut self) -> Digest {
        Digest(self.hasher.update(&self.buffer).finalize().into())
    }

    #[cold]
    fn flush(&mut self) {
        let blocks = self.buffer.len() / BLOCK * BLOCK;
        self.hasher
            .update(self.buffer.get(..blocks).unwrap_or_default());
        self.buffer.drain(..blocks);
    }
}

impl Sink for Hashing {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn settle(&mut self) {
        if self.buffer.len() >= BLOCK {
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::{CanonError, Mode, to_vec, value, wire, writer::Writer};
    use serde_json::{Map, Value, json};

    /// The most that was held; the digest is that of the text.
    fn held(
        value: &Value,
        write: impl FnOnce(&mut Writer<'_, Hashing>) -> Result<(), CanonError>,
    ) -> usize {
        let mut hashing = Hashing::new(&Domain::plain());
        write(&mut Writer::new(&mut hashing, Mode::Exact)).unwrap();
        let held = hashing.buffer.capacity();
        let whole = Digest::of_bytes(&to_vec(value).unwrap());
        assert_eq!(hashing.finish(), whole);
        held
    }

    #[test]
    fn a_digest_of_a_long_value_holds_little_of_it() {
        let numbers: Vec<Value> = (0..50_000).map(Value::from).collect();
        let named = numbers.iter().map(|n| (n.to_string(), n.clone()));
        let named = Value::Object(named.collect::<Map<_, _>>());
        let objects = Value::from(vec![json!({"a": 1}); 50_000]);
        let listed = Value::from(numbers.clone());
        let serialized = held(&listed, |writer| listed.serialize(writer));
        assert!(serialized <= 2 * BLOCK, "{serialized}");
        for long in [Value::from(numbers), objects.clone(), named] {
            let parsed = held(&long, |writer| value::write(writer, &long));
            assert!(parsed <= 2 * BLOCK, "{parsed}");
        }
        for long in [&objects, &listed] {
            let text = long.to_string();
            let read = held(long, |writer| wire::write(writer, text.as_bytes()));
            assert!(read <= 2 * BLOCK, "{read}");
        }
        let serialized = held(&objects, |writer| objects.serialize(writer));
        assert!(serialized <= 2 * BLOCK, "{serialized}");
    }
}
