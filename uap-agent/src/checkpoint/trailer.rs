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
//! A state does not name its session. Behind its JSON are two digests: one of the JSON in a domain of its own, and one of that
//! digest and the session. So a file of another session is told from one that was changed.
//!
//! A file without this line was written by another, and is not checked.

use ubos_common::canon::{Digest, Domain};

/// Bytes of a trailer without a session.
#[cfg(test)]
const BYTES: usize = 1 + BITS;

/// Characters of a digest.
const BITS: usize = 256;

/// Why a file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsound {
    /// The digest is another.
    Changed,
    /// It is whole, and of another session.
    Foreign,
}

/// A text with its digest.
pub(super) fn signed(text: &[u8]) -> Vec<u8> {
    with(text, &[Digest::of_bytes(text)])
}

/// A text with its digest, bound to a session.
pub(super) fn signed_in(session: &str, text: &[u8]) -> Vec<u8> {
    let digest = of_bound(text);
    with(text, &[digest, in_session(&digest, session)])
}

fn with(text: &[u8], digests: &[Digest]) -> Vec<u8> {
    let bits: Vec<u8> = digests.iter().flat_map(bits).collect();
    [text, b"\n", &bits].concat()
}

fn of_bound(text: &[u8]) -> Digest {
    Digest::of(
        &Domain::new("ubos uap-agent 2026-11 file of a session"),
        text,
    )
}

fn in_session(text: &Digest, session: &str) -> Digest {
    let bytes = [&text.as_bytes()[..], session.as_bytes()].concat();
    Digest::of(
        &Domain::new("ubos uap-agent 2026-11 session of a file"),
        &bytes,
    )
}

/// A digest as white space.
fn bits(digest: &Digest) -> impl Iterator<Item = u8> + use<> {
    let digest = *digest.as_bytes();
    let of = |byte: u8| {
        (0..8).map(move |n| match byte.rotate_left(n) & 0x80 {
            0 => b' ',
            _ => b'\t',
        })
    };
    digest.into_iter().flat_map(of)
}

/// The text of a file: without its digest, where it has one. A digest that is bound to a session is checked against this one.
pub(super) fn checked<'a>(session: &str, bytes: &'a [u8]) -> Result<&'a [u8], Unsound> {
    let text = bytes.trim_ascii_end();
    let behind = bytes.get(text.len()..).unwrap_or_default();
    // Others end a file with a line break, if with anything.
    if !behind.iter().any(|byte| matches!(byte, b' ' | b'\t')) {
        return Ok(bytes);
    }
    let written = behind.strip_prefix(b"\n").ok_or(Unsound::Changed)?;
    let is = |digest: &Digest, written: &[u8]| bits(digest).eq(written.iter().copied());
    let Some((first, second)) = written.split_at_checked(BITS) else {
        return Err(Unsound::Changed);
    };
    if second.is_empty() {
        return match is(&Digest::of_bytes(text), first) {
            true => Ok(text),
            false => Err(Unsound::Changed),
        };
    }
    let digest = of_bound(text);
    let is_digest = second.len() == BITS && second.iter().all(|bit| matches!(bit, b' ' | b'\t'));
    if !is(&digest, first) || !is_digest {
        return Err(Unsound::Changed);
    }
    match is(&in_session(&digest, session), second) {
        true => Ok(text),
        false => Err(Unsound::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_is_seen() {
        let text = br#"{"a":"b"}"#;
        assert_eq!(signed(text).len(), text.len() + BYTES);
        for bytes in [signed(text), signed_in("s", text)] {
            any_change_of(text, &bytes);
        }
    }

    fn any_change_of(text: &[u8], bytes: &[u8]) {
        let checked = |bytes: &[u8]| checked("s", bytes).ok().map(<[u8]>::to_vec);
        assert_eq!(checked(bytes).as_deref(), Some(text));
        for place in 0..bytes.len() * 8 {
            let mut changed = bytes.to_vec();
            changed[place / 8] ^= 1 << (place % 8);
            // What is no white space any more is no JSON, either.
            let is_json = |seen: &[u8]| {
                let rest = seen.strip_prefix(text);
                rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_whitespace))
            };
            assert!(
                !checked(&changed).as_deref().is_some_and(is_json),
                "{place}"
            );
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
            assert_eq!(checked("s", text.as_bytes()), Ok(text.as_bytes()));
        }
        assert_eq!(checked("s", b"{}\n  "), Err(Unsound::Changed));
    }

    #[test]
    fn what_is_whole_and_of_another_session_is_told_from_what_was_changed() {
        let mut bytes = signed_in("ann", b"{}");
        assert_eq!(checked("ann", &bytes), Ok(&b"{}"[..]));
        assert_eq!(checked("bob", &bytes), Err(Unsound::Foreign));
        bytes.push(b' ');
        assert_eq!(checked("bob", &bytes), Err(Unsound::Changed));
        bytes[0] = b'[';
        bytes.pop();
        assert_eq!(checked("bob", &bytes), Err(Unsound::Changed));
    }
}
