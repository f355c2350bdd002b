//! The order of member names: by UTF-16 code units, which is not the order of UTF-8 bytes.

use core::cmp::Ordering;

use super::text;

/// Compares two UTF-8 strings by their UTF-16 code units. Spec: RFC 8785 3.2.3
///
/// Code points and UTF-16 units agree on the order of any two characters but one kind of pair:
/// a character beyond the basic plane becomes surrogates (D800-DFFF) and so sorts below
/// U+E000-U+FFFF. Where two strings first differ, the lead bytes tell (EE and EF against F0-F4);
/// continuation bytes never reach those values.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((x, y)) => rank(*x).cmp(&rank(*y)),
        None => a.len().cmp(&b.len()),
    }
}

/// As [`compare`], for two string bodies in canonical JSON, whose escapes it resolves.
pub(super) fn compare_escaped(a: &[u8], b: &[u8]) -> Ordering {
    unescaped(a).map(rank).cmp(unescaped(b).map(rank))
}

/// The first bytes of a string as a number: where two such numbers differ, they are ordered as
/// the strings are; where they are equal, the strings may still differ.
#[inline]
pub(super) fn prefix(name: &[u8]) -> u64 {
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let head = text::head(name);
    if head & TOPS == 0 {
        return head.swap_bytes();
    }
    u64::from_be_bytes(head.to_le_bytes().map(rank))
}

/// As [`prefix`], of a string body in canonical JSON.
pub(super) fn prefix_escaped(body: &[u8]) -> u64 {
    let mut head = [0; 8];
    for (slot, byte) in head.iter_mut().zip(unescaped(body)) {
        *slot = rank(byte);
    }
    u64::from_be_bytes(head)
}

fn rank(byte: u8) -> u8 {
    match byte {
        // Behind F4, the last byte that UTF-8 has.
        0xEE | 0xEF => byte + 0x10,
        _ => byte,
    }
}

/// The bytes that a canonical string body stands for. Canonical escapes are all one ASCII byte.
fn unescaped(body: &[u8]) -> impl Iterator<Item = u8> {
    let mut bytes = body.iter().copied();
    core::iter::from_fn(move || match bytes.next()? {
        b'\\' => Some(match bytes.next()? {
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 0x0C,
            b'r' => b'\r',
            b'u' => {
                let tens = bytes.nth(2)?;
                (tens - b'0') << 4 | hex_digit(bytes.next()?)?
            }
            quoted => quoted,
        }),
        plain => Some(plain),
    })
}

/// The value of one hexadecimal digit.
pub(super) fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_units(a: &str, b: &str) -> Ordering {
        a.encode_utf16().cmp(b.encode_utf16())
    }

    proptest! {
        #[test]
        fn prefixes_never_contradict(a in "[a\"\u{0}-\u{2}\u{7f}é\u{ffff}😂]{0,9}",
                                    b in "[a\"\u{0}-\u{2}\u{7f}é\u{ffff}😂]{0,9}") {
            let order = prefix(a.as_bytes()).cmp(&prefix(b.as_bytes()));
            prop_assert!(order.is_eq() || order == by_units(&a, &b));
            let mut body = Vec::new();
            text::write_body(&mut body, a.as_bytes());
            prop_assert_eq!(prefix_escaped(&body), prefix(a.as_bytes()));
        }

        #[test]
        fn order_is_that_of_utf16(a in "[a\u{7f}é\u{d7ff}\u{e000}\u{ffff}😂\u{10ffff}]{0,6}",
                                  b in "[a\u{7f}é\u{d7ff}\u{e000}\u{ffff}😂\u{10ffff}]{0,6}") {
            prop_assert_eq!(compare(a.as_bytes(), b.as_bytes()), by_units(&a, &b));
        }

        #[test]
        fn order_looks_through_escapes(a in "[a\"\\\\\u{0}-\u{1f}\u{ffff}😂]{0,6}",
                                       b in "[a\"\\\\\u{0}-\u{1f}\u{ffff}😂]{0,6}") {
            let (mut x, mut y) = (Vec::new(), Vec::new());
            text::write_body(&mut x, a.as_bytes());
            text::write_body(&mut y, b.as_bytes());
            prop_assert_eq!(compare_escaped(&x, &y), by_units(&a, &b));
        }
    }
}
