//! Credentials behind the word of their scheme, and in URLs.

use core::ops::Range;

use super::scan::{is_placeholder, run, run_within};

/// The credentials behind `Bearer` or `Basic` and any white space.
pub(super) fn authorization(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    /// Shorter credentials are words of a sentence.
    const SHORTEST: usize = 16;
    let rest = bytes.get(at..)?;
    let word = [b"bearer".as_slice(), b"basic"].into_iter().find(|word| {
        let start = rest.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    })?;
    let spaces = white_space(bytes, at + word.len());
    if spaces == 0 {
        return None;
    }
    let start = at + word.len() + spaces;
    let length = run(bytes, start, |b| {
        b.is_ascii_alphanumeric() || b"._~+/=-".contains(&b)
    });
    let credentials = bytes.get(start..start + length)?;
    let looks_random = credentials.iter().any(u8::is_ascii_digit)
        || credentials.iter().any(u8::is_ascii_uppercase);
    (length >= SHORTEST && looks_random).then_some(start..start + length)
}

/// Bytes of white space, as a terminal or a URL has it: at most 16 characters of any kind.
fn white_space(bytes: &[u8], from: usize) -> usize {
    const LONGEST: usize = 16;
    const WIDE: [&[u8]; 3] = ["\u{a0}".as_bytes(), "\u{3000}".as_bytes(), b"%20"];
    let mut at = from;
    for _ in 0..LONGEST {
        let rest = bytes.get(at..).unwrap_or_default();
        let wide = WIDE.iter().find(|space| rest.starts_with(space));
        at += match (rest.first(), wide) {
            (_, Some(space)) => space.len(),
            (Some(b), None) if b.is_ascii_whitespace() => 1,
            _ => break,
        };
    }
    at - from
}

/// The password in `scheme://user:password@host`, or a long user without one; `at` is the first colon.
pub(super) fn userinfo(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    const LONGEST: usize = 512;
    /// A shorter user is a name.
    const SHORTEST_TOKEN: usize = 16;
    let authority = bytes.get(at..)?.strip_prefix(b"://")?;
    let start = at + b"://".len();
    if !bytes.get(at.checked_sub(1)?)?.is_ascii_alphanumeric() {
        return None;
    }
    let ends = |b: u8| b.is_ascii_whitespace() || b"/?#\"'`<>\\".contains(&b);
    let length = run_within(authority, 0, LONGEST, |b| !ends(b));
    let info = authority.get(..length)?;
    let info = info.get(..info.iter().rposition(|b| *b == b'@')?)?;
    let (from, value) = match info.iter().position(|b| *b == b':') {
        Some(colon) => (colon + 1, info.get(colon + 1..)?),
        None if info.len() >= SHORTEST_TOKEN && info.iter().any(u8::is_ascii_digit) => (0, info),
        None => return None,
    };
    (!is_placeholder(value)).then_some(start + from..start + from + value.len())
}
