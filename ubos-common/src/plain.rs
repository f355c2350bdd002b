//! Finding what a JSON string cannot hold as it is: the inner loop of reading and writing, plain and canonical.

/// How many bytes at the start of `text` need no escape: the index of the first control
/// character, quote or backslash, else the length. Reads eight bytes at a time.
#[inline]
pub(crate) fn plain_len(text: &[u8]) -> usize {
    // Most strings end early: only behind this many bytes it pays to look at more at once.
    match text.split_first_chunk::<BLOCK>() {
        None => plain_words(text),
        Some((first, rest)) => match plain_words(first) {
            BLOCK => BLOCK + plain_blocks(rest),
            short => short,
        },
    }
}

/// Bytes that are looked at together.
const BLOCK: usize = 32;

/// As [`plain_len`], for what is probably long.
#[inline(never)]
fn plain_blocks(text: &[u8]) -> usize {
    let is_special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    let mut rest = text;
    while let Some((block, behind)) = rest.split_first_chunk::<BLOCK>() {
        // Without an early end, so that compilers look at all bytes at once.
        if block
            .iter()
            .fold(false, |found, byte| found | is_special(*byte))
        {
            break;
        }
        rest = behind;
    }
    text.len() - rest.len() + plain_words(rest)
}

#[inline]
fn plain_words(text: &[u8]) -> usize {
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
pub(crate) fn head(text: &[u8]) -> u64 {
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
const fn specials(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES * 0x80;
    let control = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * 0x22)).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * 0x5C)).wrapping_sub(ONES);
    // A byte of 0x80 or more needs none, whatever the subtraction made of it.
    (control | quote | backslash) & !word & TOPS
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
            prop_oneof![6 => any::<u8>(), 20 => 0x1Fu8..=0x23, 40 => 0x30u8..0xFF, 2 => Just(b'\\')], 0..40), before in prop_oneof![Just(0), 20usize..140]) {
            let bytes = [vec![b'a'; before], bytes].concat();
            let slow = bytes.iter().position(|b| is_special(*b)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_len(&bytes), slow);
        }
    }
}
