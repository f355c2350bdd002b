//! Reading bytes: runs, words, placeholders, and what was read in vain.

/// Where runs end that were read in vain: a shape that begins inside one fails for the same reason, so that
/// a text of nothing but beginnings is not read again from each.
#[derive(Default)]
pub(super) struct Barren {
    pub(super) jwt: usize,
    pub(super) api_key: usize,
    /// The same of keys that have dots.
    pub(super) dotted_key: usize,
    /// Without digits and signs.
    pub(super) literal: usize,
    /// Behind the last id of an AWS key: its secret may be near.
    pub(super) aws_id: Option<usize>,
}

pub(super) fn starts_word(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|n| bytes.get(n));
    before.is_none_or(|b| !b.is_ascii_alphanumeric() && *b != b'_')
}

/// How many bytes from `from` on belong.
pub(super) fn run(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    run_within(bytes, from, usize::MAX, belongs)
}

/// How many of at most so many bytes from `from` on belong: where a run that is read in vain is read again from
/// a later sign.
pub(super) fn run_within(
    bytes: &[u8],
    from: usize,
    most: usize,
    belongs: impl Fn(u8) -> bool,
) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().take(most).take_while(|b| belongs(**b)).count()
}

pub(super) fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Whether a piece of text is in place of a value: `<your-key>`, `${TOKEN}`, `********`, `[REDACTED]`.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let Some((first, rest)) = value.split_first() else {
        return true;
    };
    const TEMPLATES: [&[u8]; 4] = [b"${", b"{{", b"$(", b"%("];
    const WORDS: [&str; 18] = [
        "api",
        "change",
        "changeme",
        "dummy",
        "example",
        "here",
        "insert",
        "key",
        "me",
        "pass",
        "passwd",
        "password",
        "placeholder",
        "pwd",
        "redacted",
        "secret",
        "token",
        "your",
    ];
    if b"<$%{[".contains(first) || rest.iter().all(|b| b == first) {
        return true;
    }
    if TEMPLATES.iter().any(|it| find(value, it).is_some()) {
        return true;
    }
    // All of it: `super-secret-99` is what people choose. Signs alone are no words.
    let is_listed = |word: &[u8]| {
        WORDS
            .iter()
            .any(|it| word.eq_ignore_ascii_case(it.as_bytes()))
    };
    let words = value.split(|b| !b.is_ascii_alphanumeric());
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    words.peek().is_some() && words.all(is_listed)
}
