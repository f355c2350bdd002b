//! Secrets of Azure, which have no prefix.

use core::ops::Range;

use super::scan::{run_within, starts_word};

/// The secret of an application: three characters, a digit, `Q~`, and 31 to 34 more; `at` is the tilde.
pub(super) fn client_secret(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    const FEWEST: usize = 31;
    const MOST: usize = 34;
    let start = at.checked_sub(BEFORE)?;
    let [first @ .., digit, b'Q'] = bytes.get(start..at)? else {
        return None;
    };
    let before = start.checked_sub(1).and_then(|n| bytes.get(n));
    let is_begun = digit.is_ascii_digit()
        && first.iter().all(|b| *b != b'-' && belongs(*b))
        && !before.is_some_and(|b| belongs(*b));
    if !is_begun {
        return None;
    }
    // One more, which may be the end of a sentence.
    let length = run_within(bytes, at + 1, MOST + 2, belongs);
    let value = bytes.get(at + 1..at + 1 + length)?;
    let value = match value {
        [value @ .., b'.'] if length > MOST => value,
        value => value,
    };
    let is_random = is_mixed(value, &[u8::is_ascii_uppercase, u8::is_ascii_lowercase]);
    let end = at + 1 + value.len();
    ((FEWEST..=MOST).contains(&value.len()) && is_random).then_some(start..end)
}

/// Characters before the tilde.
pub(super) const BEFORE: usize = 5;

const fn belongs(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'~' | b'.' | b'-')
}

/// What signs a URL: `sig`, in a query that has a version or an end, too; `at` is the sign behind the name.
pub(super) fn signature(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    /// 32 bytes in base64, without what fills them up.
    const FEWEST: usize = 43;
    /// The same with every sign encoded, and to spare.
    const MOST: usize = 160;
    /// Bytes of the query on either side.
    const NEAR: usize = 512;
    let name = at.checked_sub(SIGNED.len())?;
    if bytes.get(name..at)? != SIGNED || !starts_word(bytes, name) {
        return None;
    }
    let start = at + 1;
    let length = run_within(bytes, start, MOST, |b| {
        b.is_ascii_alphanumeric() || b"%+/=-_".contains(&b)
    });
    let end = start + length;
    let random = [
        u8::is_ascii_uppercase,
        u8::is_ascii_lowercase,
        u8::is_ascii_digit,
    ];
    if length < FEWEST || !is_mixed(bytes.get(start..end)?, &random) {
        return None;
    }
    let belongs = |b: u8| !b.is_ascii_whitespace() && !b"\"'`<>".contains(&b);
    let before = bytes.get(name.saturating_sub(NEAR)..name)?;
    let from = before.iter().rposition(|b| !belongs(*b));
    let before = before.get(from.map_or(0, |n| n + 1)..)?;
    let behind = run_within(bytes, end, NEAR, belongs);
    let behind = bytes.get(end..end + behind)?;
    (has_term(before) || has_term(behind)).then_some(start..end)
}

/// The name of the parameter that signs.
pub(super) const SIGNED: &[u8] = b"sig";

/// Whether a query has a version (`sv`) or an end (`se`).
fn has_term(query: &[u8]) -> bool {
    let is_term = |name: &[u8]| name == b"se=" || name == b"sv=";
    let begins = query.get(..3).is_some_and(is_term);
    // An ampersand in HTML ends with a semicolon.
    let mut places = query.windows(4);
    begins
        || places.any(|place| match place {
            [b'?' | b'&' | b';', name @ ..] => is_term(name),
            _ => false,
        })
}

/// Whether a value has some of each.
pub(super) fn is_mixed(value: &[u8], kinds: &[fn(&u8) -> bool]) -> bool {
    kinds.iter().all(|kind| value.iter().any(kind))
}
