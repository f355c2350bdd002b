//! Literals behind the name of a secret: in code, environment files, headers, flags and JSON.

use core::ops::Range;

use super::key::is_cloud_key;
use super::kind::SecretKind;
use super::name::is_secret_name;
use super::scan::{Barren, find, is_placeholder, run, run_within};

/// A shorter literal is a word.
const SHORTEST: usize = 8;
/// Bytes of the longest name that is looked at.
const LONGEST_NAME: usize = 64;
/// Bytes of a literal that are judged; what is one goes on to its end.
const JUDGED: usize = 1024;
/// Bytes of the longest literal in quotes.
const LONGEST_QUOTED: usize = 4 * 1024;

/// A literal behind `name =` or `name:`; `at` is the sign.
pub(super) fn assignment(
    bytes: &[u8],
    at: usize,
    barren: &mut Barren,
) -> Option<(SecretKind, Range<usize>)> {
    let name = name_before(bytes, at)?;
    let is_value = || is_value_name(name) && is_value_of_secret(bytes, at);
    if !is_secret_name(name) && !is_value() {
        return None;
    }
    // `:=`, `==` and `=>` are signs, too.
    let sign = 1 + run(bytes, at + 1, |b| matches!(b, b'=' | b'>')).min(1);
    let (spaces, is_next_line) = spaces(bytes, at + sign);
    let start = at + sign + spaces;
    if let Some(range) = quoted(bytes, start) {
        return graded(bytes, name, range);
    }
    if bytes.get(at) == Some(&b':') && is_header(name) {
        return header(bytes, start, name);
    }
    let is_tight = bytes.get(at) == Some(&b'=') && spaces == 0 && !is_next_line;
    graded(bytes, name, bare(bytes, start, is_tight, barren)?)
}

/// A literal of a name: the key of a cloud, or any.
fn graded(bytes: &[u8], name: &str, range: Range<usize>) -> Option<(SecretKind, Range<usize>)> {
    let is_key = is_cloud_key(name, bytes.get(range.clone())?);
    let kind = if is_key {
        SecretKind::ApiKey
    } else {
        SecretKind::Assignment
    };
    Some((kind, range))
}

/// A literal behind `--name`; `at` is the first hyphen.
pub(super) fn flag(
    bytes: &[u8],
    at: usize,
    barren: &mut Barren,
) -> Option<(SecretKind, Range<usize>)> {
    let start = at + bytes.get(at..)?.starts_with(b"--").then_some(2)?;
    let length = run_within(bytes, start, LONGEST_NAME, is_name_byte);
    let name = core::str::from_utf8(bytes.get(start..start + length)?).ok()?;
    let (spaces, _) = spaces(bytes, start + length);
    if spaces == 0 || !is_secret_name(name) {
        return None;
    }
    let start = start + length + spaces;
    let range = quoted(bytes, start).or_else(|| bare(bytes, start, true, barren))?;
    graded(bytes, name, range)
}

/// Spaces before a value, which may stand on the next line.
fn spaces(bytes: &[u8], from: usize) -> (usize, bool) {
    let is_space = |b: u8| b == b' ' || b == b'\t';
    let same = run(bytes, from, is_space).min(SPACES);
    let breaks = run(bytes, from + same, |b| b == b'\r' || b == b'\n').min(2);
    if breaks == 0 {
        return (same, false);
    }
    let indent = run(bytes, from + same + breaks, is_space).min(SPACES);
    (same + breaks + indent, true)
}

/// A literal in quotes, which may be escaped as JSON in JSON has it; `at` is the first backslash or the quote.
fn quoted(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let escapes = run(bytes, at, |b| b == b'\\').min(7);
    let quote = *bytes.get(at + escapes)?;
    if !matches!(quote, b'"' | b'\'' | b'`') {
        return None;
    }
    let start = at + escapes + 1;
    let mut backslashes = 0;
    let mut end = start;
    loop {
        let byte = *bytes.get(end)?;
        match byte {
            b'\n' => return None,
            _ if end - start > LONGEST_QUOTED => return None,
            b'\\' => backslashes += 1,
            // As many backslashes as before the first quote; more of them escape this one.
            _ if byte == quote && backslashes <= escapes => break,
            _ => backslashes = 0,
        }
        end += 1;
    }
    let end = end - backslashes;
    let value = bytes.get(start..end)?;
    // Words between quotes are a sentence, unless there is a digit among them.
    let is_sentence = value.contains(&b' ') && !value.iter().any(u8::is_ascii_digit);
    (value.len() >= SHORTEST && !is_sentence && !is_placeholder(value)).then_some(start..end)
}

/// A literal without quotes. `is_tight`: as in environment files, where nothing else can stand there; elsewhere
/// it may be code or prose, so it has to look random.
///
/// Sets `barren` to the end of what has neither digits nor signs: what begins inside is read from there on.
fn bare(bytes: &[u8], start: usize, is_tight: bool, barren: &mut Barren) -> Option<Range<usize>> {
    let belongs = |b: u8| {
        !b.is_ascii_whitespace() && !b.is_ascii_control() && !b"\"'`,;&|()[]{}<>\\".contains(&b)
    };
    let known = barren.literal.saturating_sub(start);
    let unread = JUDGED.saturating_sub(known);
    let length = known + run_within(bytes, start + known, unread, belongs);
    let value = bytes.get(start..start + length)?;
    let rest = value.get(known..)?;
    if !rest.iter().any(|b| b.is_ascii_digit() || is_special(b)) {
        barren.literal = start + length;
        return None;
    }
    let behind = start + length + run_within(bytes, start + length, 4, |b| b == b' ');
    let is_code = matches!(bytes.get(behind), Some(b'(' | b'[' | b'{' | b'<'))
        || find(value, b"::").is_some()
        || find(value, b"://").is_some();
    let is_literal = length >= SHORTEST && (is_tight || is_random(value));
    let end = start + length + run(bytes, start + length, belongs);
    (is_literal && !is_code && !is_placeholder(value)).then_some(start..end)
}

fn is_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let has = |kind: fn(&u8) -> bool| value.iter().any(kind);
    let is_path = value.iter().any(|b| matches!(b, b'.' | b'_' | b':'));
    match digits {
        0 => has(is_special) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase),
        1 => has(is_special) && !is_path,
        _ => has(is_special) || !is_path || has(u8::is_ascii_uppercase),
    }
}

/// What people put into passwords, and nobody into identifiers.
const fn is_special(byte: &u8) -> bool {
    matches!(
        byte,
        b'!' | b'@' | b'#' | b'%' | b'^' | b'*' | b'?' | b'~' | b'+'
    )
}

/// Names of headers have hyphens, but for these.
fn is_header(name: &str) -> bool {
    let known = ["authorization", "cookie"];
    name.contains('-') || known.iter().any(|it| name.eq_ignore_ascii_case(it))
}

/// The value of a header: up to the end of the line where it has parts.
fn header(bytes: &[u8], start: usize, name: &str) -> Option<(SecretKind, Range<usize>)> {
    let ends = |b: u8| matches!(b, b'\r' | b'\n' | b'"' | b'\'' | b'\\');
    let line = run_within(bytes, start, JUDGED, |b| !ends(b));
    let value = bytes.get(start..start + line)?.trim_ascii_end();
    // What is judged by its beginning goes on to the end of the line.
    let whole = |from| {
        let end = start + line + run(bytes, start + line, |b| !ends(b));
        if line == JUDGED {
            from..end
        } else {
            from..start + value.len()
        }
    };
    let word = run(value, 0, |b| !b.is_ascii_whitespace());
    if name.to_ascii_lowercase().contains("cookie") {
        let is_cookie = value.contains(&b'=') && value.len() >= SHORTEST && !is_placeholder(value);
        return is_cookie.then(|| (SecretKind::Assignment, whole(start)));
    }
    let first = value.get(..word)?;
    if SCHEMES
        .iter()
        .any(|scheme| first.eq_ignore_ascii_case(scheme.as_bytes()))
    {
        let spaces = run(value, word, |b| b.is_ascii_whitespace());
        let rest = value.get(word + spaces..)?;
        let from = start + word + spaces;
        return is_credential(rest).then(|| (SecretKind::Authorization, whole(from)));
    }
    let is_value = word == value.len() && is_credential(first);
    is_value.then(|| (SecretKind::Assignment, whole(start)))
}

/// Not the words of a sentence.
fn is_credential(value: &[u8]) -> bool {
    let is_sentence = value.contains(&b' ') && !value.contains(&b'=');
    let looks_random = value.iter().any(u8::is_ascii_digit) || value.iter().any(is_special);
    value.len() >= SHORTEST && looks_random && !is_sentence && !is_placeholder(value)
}

const SCHEMES: [&str; 8] = [
    "apikey",
    "aws4-hmac-sha256",
    "basic",
    "bearer",
    "digest",
    "key",
    "negotiate",
    "token",
];

/// The name that ends before the sign at `at`; quotes, brackets and spaces between them are left out.
fn name_before(bytes: &[u8], at: usize) -> Option<&str> {
    let before = bytes.get(at.saturating_sub(LONGEST_NAME)..at)?;
    let between = |b: &u8| matches!(b, b' ' | b'\t' | b'"' | b'\'' | b'\\' | b']' | b'?');
    let end = before.iter().rposition(|b| !between(b))? + 1;
    let name = before.get(..end)?;
    let start = name
        .iter()
        .rposition(|b| !is_name_byte(*b))
        .map_or(0, |n| n + 1);
    let name = core::str::from_utf8(name.get(start..)?).ok()?;
    (!name.is_empty()).then_some(name)
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Whether a member has the value of something that another member names.
pub(in crate::secret) fn is_value_name(name: &str) -> bool {
    ["value", "val"]
        .iter()
        .any(|it| name.eq_ignore_ascii_case(it))
}

/// Whether a member names what another one has the value of.
pub(in crate::secret) fn is_name_name(name: &str) -> bool {
    let known = ["name", "key", "field", "header", "variable"];
    known.iter().any(|it| name.eq_ignore_ascii_case(it))
}

/// Whether the `value` before the sign at `at` is of something named like a secret just before:
/// `{"name":"password","value":`.
fn is_value_of_secret(bytes: &[u8], at: usize) -> bool {
    /// Bytes between the two names.
    const NEAR: usize = 160;
    let before = bytes.get(at.saturating_sub(NEAR)..at).unwrap_or_default();
    // Within the object that the value is a member of.
    let opened = before.iter().rposition(|b| matches!(b, b'{' | b'}'));
    let before = before.get(opened.unwrap_or_default()..).unwrap_or_default();
    let quotes = |b: &u8| matches!(b, b'"' | b'\'' | b'\\');
    let mut parts = before.split(quotes).map(<[u8]>::trim_ascii);
    let mut named = None;
    while let Some(part) = parts.find(|part| !part.is_empty()) {
        let text = core::str::from_utf8(part).unwrap_or_default();
        match named {
            Some(true) if is_secret_name(text) => return true,
            Some(_) if part == b":" => named = Some(true),
            _ => named = is_name_name(text).then_some(false),
        }
    }
    false
}

const SPACES: usize = 64;
