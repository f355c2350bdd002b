//! The inner loops: white space, strings, numbers.

use crate::plain::{head, plain_len};

/// Bytes from the start of `bytes` that are no white space.
#[inline(always)]
pub(super) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        // Compact text has none: one comparison for most bytes.
        if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            break;
        }
        at += 1;
    }
    at
}

/// The index, from `at`, of the first quote, backslash or control character; the length if there is none.
#[inline]
pub(super) fn plain_end(bytes: &[u8], at: usize) -> usize {
    at + plain_len(bytes.get(at..).unwrap_or_default())
}

/// The index behind the number that begins at `at`, or `None` where the grammar is broken.
pub(super) fn number_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    if bytes.get(end) == Some(&b'-') {
        end += 1;
    }
    end = match bytes.get(end) {
        Some(b'0') => end + 1,
        Some(b'1'..=b'9') => digits_end(bytes, end),
        _ => return None,
    };
    if bytes.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = digits_end(bytes, fraction);
        if end == fraction {
            return None;
        }
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        end += 1;
        if let Some(b'+' | b'-') = bytes.get(end) {
            end += 1;
        }
        let exponent = end;
        end = digits_end(bytes, exponent);
        if end == exponent {
            return None;
        }
    }
    Some(end)
}

fn digits_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The value of four hexadecimal digits.
pub(super) fn hex4(bytes: &[u8]) -> Option<u32> {
    let mut value = 0;
    for at in 0..4 {
        value = value << 4 | char::from(*bytes.get(at)?).to_digit(16)?;
    }
    Some(value)
}

/// A word that differs for most names that differ: their length and ends.
#[inline]
pub(super) fn name_tag(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let last = bytes.last().copied().map_or(0, u64::from);
    head(bytes) ^ ((bytes.len() as u64) << 32 | last << 56).rotate_left(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_the_grammar() {
        for good in [
            "0",
            "-0",
            "10",
            "1.5",
            "1e3",
            "1E+3",
            "-1.25e-7",
            "123456789012345678901234567890",
        ] {
            assert_eq!(number_end(good.as_bytes(), 0), Some(good.len()), "{good}");
        }
        for bad in ["", "-", "+1", ".5", "1.", "1e", "1e+", "e1", "NaN"] {
            assert_eq!(number_end(bad.as_bytes(), 0), None, "{bad}");
        }
        assert_eq!(number_end(b"01", 0), Some(1));
    }
}
