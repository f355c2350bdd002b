//! The digest behind the JSON of a file.
//!
//! A file in the standard layout is one JSON text, which other implementations read. White space may stand behind it: the digest
//! is written in it, a bit a character, so that the text and its digest are replaced together and nobody has to know of it.
//!
//! ```text
//! {"id":…}⏎                the JSON
//! ␠⇥⇥␠…                    256 spaces (0) and tabs (1): BLAKE3 of the JSON, the highest bit of each byte first
//! ```
//!
//! A file without this line was written by another, and is not checked.

use ubos_common::canon::Digest;

/// Bytes of a trailer.
pub(super) const BYTES: usize = 1 + 256;

/// A text with its digest.
pub(super) fn signed(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + BYTES);
    bytes.extend_from_slice(text);
    bytes.push(b'\n');
    bytes.extend(bits(text));
    bytes
}

/// The digest of a text as white space.
fn bits(text: &[u8]) -> impl Iterator<Item = u8> {
    let digest = *Digest::of_bytes(text).as_bytes();
    let of = |byte: u8| {
        (0..8).map(move |n| match byte.rotate_left(n) & 0x80 {
            0 => b' ',
            _ => b'\t',
        })
    };
    digest.into_iter().flat_map(of)
}

/// The text of a file: without its digest, where it has one. None where the digest is another.
pub(super) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let text = bytes.trim_ascii_end();
    let behind = bytes.get(text.len()..)?;
    // Others end a file with a line break, if with anything.
    if !behind.iter().any(|byte| matches!(byte, b' ' | b'\t')) {
        return Some(bytes);
    }
    let written = behind.strip_prefix(b"\n")?;
    bits(text).eq(written.iter().copied()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_is_seen() {
        let text = br#"{"a":"b"}"#;
        let bytes = signed(text);
        assert_eq!(bytes.len(), text.len() + BYTES);
        assert_eq!(checked(&bytes), Some(&text[..]));
        for place in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[place / 8] ^= 1 << (place % 8);
            // What is no white space any more is no JSON, either.
            let is_json = |seen: &[u8]| {
                let rest = seen.strip_prefix(text);
                rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_whitespace))
            };
            assert!(!checked(&changed).is_some_and(is_json), "{place}");
            assert!(place / 8 >= text.len() || checked(&changed).is_none());
        }
        for cut in text.len() + 1..bytes.len() {
            let seen = checked(&bytes[..cut]);
            assert!(seen.is_none() || cut == text.len() + 1, "{cut}");
        }
    }

    #[test]
    fn what_another_wrote_is_not_checked() {
        for text in ["{}", "{}\n", "", "\n", "{}\r\n", "{}\n\n"] {
            assert_eq!(checked(text.as_bytes()), Some(text.as_bytes()));
        }
        assert_eq!(checked(b"{}\n  "), None);
    }
}
