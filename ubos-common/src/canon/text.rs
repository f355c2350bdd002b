//! Strings: what must be escaped, and how. Spec: RFC 8785 3.2.2.2

pub(super) use crate::plain::{head, plain_len};

/// Appends `text` as a canonical string, quotes included.
#[inline]
pub(super) fn write_str(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_body(out, text.as_bytes());
    out.push(b'"');
}

/// As [`write_str`] without the quotes, of bytes that are UTF-8. True if anything had to be
/// escaped.
#[inline]
pub(super) fn write_body(out: &mut Vec<u8>, text: &[u8]) -> bool {
    let plain = plain_len(text);
    if plain == text.len() {
        append(out, text);
        return false;
    }
    write_parts(out, text);
    true
}

/// Appends `text`; the short pieces that JSON is made of by copies of a fixed size, which
/// overlap in the middle, for a call of `memcpy` costs more than they do.
#[inline]
pub(super) fn append(out: &mut Vec<u8>, text: &[u8]) {
    let end = out.len() + text.len();
    match text.len() {
        0..8 => out.extend_from_slice(&head(text).to_le_bytes()),
        8..=16 => append_ends::<8>(out, text),
        17..=32 => append_ends::<16>(out, text),
        _ => out.extend_from_slice(text),
    }
    out.truncate(end);
}

/// Appends a text of `N` to `2 * N` bytes as its first and its last `N`.
#[inline]
fn append_ends<const N: usize>(out: &mut Vec<u8>, text: &[u8]) {
    if let (Some(first), Some(last)) = (text.first_chunk::<N>(), text.last_chunk::<N>()) {
        let middle = out.len() + text.len() - N;
        out.extend_from_slice(first);
        out.truncate(middle);
        out.extend_from_slice(last);
    }
}

fn write_parts(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some((plain, special, after)) = split(rest) {
        out.extend_from_slice(plain);
        write_escaped(out, special);
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Splits at the first byte that cannot stand for itself in a JSON string.
#[inline]
pub(super) fn split(text: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let (plain, rest) = text.split_at_checked(plain_len(text))?;
    let (special, after) = rest.split_first()?;
    Some((plain, *special, after))
}

/// Appends the escape of one control character, quote or backslash.
pub(super) fn write_escaped(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0C => b'f',
        b'\r' => b'r',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(b'0' + (byte >> 4));
            let low = byte & 0xF;
            out.push(if low < 10 {
                b'0' + low
            } else {
                b'a' + low - 10
            });
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_appended_whole() {
        let text: Vec<u8> = (0..100).collect();
        for len in 0..text.len() {
            let mut out = b"before".to_vec();
            append(&mut out, &text[..len]);
            assert_eq!(out, [b"before", &text[..len]].concat());
        }
    }

    #[test]
    fn every_control_character_has_its_escape() {
        for byte in 0..0x20u8 {
            let mut out = Vec::new();
            write_escaped(&mut out, byte);
            let canonical = serde_json::to_vec(&char::from(byte)).unwrap();
            assert_eq!(out, canonical[1..canonical.len() - 1], "byte {byte:#04x}");
        }
    }
}
