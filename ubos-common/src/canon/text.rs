//! Strings: what must be escaped, and how. Spec: RFC 8785 3.2.2.2

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

/// How many bytes at the start of `text` need no escape: the index of the first control
/// character, quote or backslash, else the length. Reads eight bytes at a time.
#[inline]
pub(super) fn plain_len(text: &[u8]) -> usize {
    let (words, tail) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let hits = specials(u64::from_le_bytes(*word));
        if hits != 0 {
            return index * 8 + first_byte(hits);
        }
    }
    match text.last_chunk::<8>() {
        _ if tail.is_empty() => text.len(),
        // Looks again at bytes known to be plain, which is quicker than one by one.
        Some(last) => text.len() - 8 + first_byte(specials(u64::from_le_bytes(*last))),
        None => first_byte(specials(head(text))).min(text.len()),
    }
}

/// The first eight bytes, the first of them lowest; zeros where there are fewer.
#[inline]
pub(super) fn head(text: &[u8]) -> u64 {
    if let Some(word) = text.first_chunk::<8>() {
        return u64::from_le_bytes(*word);
    }
    match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        // Two halves that overlap, and agree where they do.
        (Some(low), Some(high)) => {
            let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
            u64::from(low) | u64::from(high) << ((text.len() - 4) * 8)
        }
        _ => (text.iter().rev()).fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The index of the lowest byte in which a bit is set; 8 if there is none.
fn first_byte(hits: u64) -> usize {
    (hits.trailing_zeros() / 8) as usize
}

/// Sets the top bit of each byte of `word` that needs an escape. A borrow may also set it in
/// bytes above such a byte, never below: only the lowest hit is to be believed.
fn specials(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES * 0x80;
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word;
    let control = below(word, 0x20);
    let quote = below(word ^ (ONES * 0x22), 1);
    let backslash = below(word ^ (ONES * 0x5C), 1);
    (control | quote | backslash) & TOPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_special(byte: u8) -> bool {
        byte < 0x20 || byte == b'"' || byte == b'\\'
    }

    proptest! {
        #[test]
        fn words_find_what_bytes_find(bytes in proptest::collection::vec(
            prop_oneof![6 => any::<u8>(), 20 => 0x1Fu8..=0x23, 40 => 0x30u8..0xFF, 2 => Just(b'\\')], 0..40)) {
            let slow = bytes.iter().position(|b| is_special(*b)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_len(&bytes), slow);
        }
    }

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
