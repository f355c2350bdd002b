//! What secrets look like: names of members, and shapes of values.

use core::ops::Range;

/// What kind of secret a piece of text looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SecretKind {
    /// A PEM block with a private key.
    PrivateKey,
    /// `Bearer` or `Basic` and credentials.
    Authorization,
    /// A JSON web token.
    Jwt,
    /// A key of a cloud or an API, by its prefix.
    ApiKey,
    /// A literal assigned to a name such as `password`.
    Assignment,
}

impl SecretKind {
    /// A short stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PrivateKey => "private_key",
            Self::Authorization => "authorization",
            Self::Jwt => "jwt",
            Self::ApiKey => "api_key",
            Self::Assignment => "assignment",
        }
    }
}

/// A piece of text that looks like a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretShape {
    /// What it looks like.
    pub kind: SecretKind,
    /// Its bytes in the text: the secret itself, not the name or word before it.
    pub range: Range<usize>,
}

/// Finds what looks like a secret, from left to right, in linear time.
///
/// A heuristic: it knows private-key blocks, authorization headers, JSON web tokens, keys with a known
/// prefix, and literals assigned to a name such as `api_key`.
///
/// ```
/// use ubos_common::secret::{SecretKind, secret_shapes};
///
/// let text = "curl -H 'Authorization: Bearer abcdefghijklmnop123456'";
/// let found: Vec<_> = secret_shapes(text).collect();
/// assert_eq!(found[0].kind, SecretKind::Authorization);
/// assert_eq!(&text[found[0].range.clone()], "abcdefghijklmnop123456");
/// ```
pub fn secret_shapes(text: &str) -> impl Iterator<Item = SecretShape> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut barren = Barren::default();
    core::iter::from_fn(move || {
        while at < bytes.len() {
            if let Some(mut found) = shape_at(bytes, at, &mut barren) {
                // A block that is cut by its bound may end inside a character.
                while !text.is_char_boundary(found.range.end) {
                    found.range.end += 1;
                }
                at = found.range.end.max(at + 1);
                return Some(found);
            }
            at += 1;
        }
        None
    })
}

/// Where runs end that were read in vain: a shape that begins inside one fails for the same reason, so that
/// a text of nothing but beginnings is not read again from each.
#[derive(Default)]
struct Barren {
    jwt: usize,
    api_key: usize,
}

fn shape_at(bytes: &[u8], at: usize, barren: &mut Barren) -> Option<SecretShape> {
    let (kind, range) = match bytes.get(at)? {
        b'-' => (SecretKind::PrivateKey, private_key(bytes, at)?),
        b'=' | b':' => (SecretKind::Assignment, assignment(bytes, at)?),
        b'B' | b'b' if starts_word(bytes, at) => {
            (SecretKind::Authorization, authorization(bytes, at)?)
        }
        b'e' if at >= barren.jwt && starts_word(bytes, at) => {
            (SecretKind::Jwt, jwt(bytes, at, &mut barren.jwt)?)
        }
        b'A' | b's' | b'g' | b'x' | b'r' if at >= barren.api_key && starts_word(bytes, at) => {
            (SecretKind::ApiKey, api_key(bytes, at, &mut barren.api_key)?)
        }
        _ => return None,
    };
    Some(SecretShape { kind, range })
}

fn private_key(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    /// Bytes of the longest header and of the longest block that is looked for.
    const HEADER: usize = 64;
    const BLOCK: usize = 16 * 1024;
    let rest = bytes.get(at..)?;
    let header = rest.strip_prefix(b"-----BEGIN ")?;
    let header = header.get(..header.len().min(HEADER))?;
    let end = find(header, b"-----")?;
    if !header.get(..end)?.ends_with(b"PRIVATE KEY") {
        return None;
    }
    let block = rest.get(..rest.len().min(BLOCK))?;
    let footer = find(block, b"-----END ").map(|start| start + b"-----END ".len());
    let close = footer.and_then(|from| find(block.get(from..)?, b"-----").map(|n| from + n + 5));
    Some(at..at + close.unwrap_or(block.len()))
}

fn authorization(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    /// Shorter credentials are words of a sentence.
    const SHORTEST: usize = 16;
    let rest = bytes.get(at..)?;
    let word = [b"bearer ".as_slice(), b"basic "]
        .into_iter()
        .find(|word| {
            rest.get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
        })?;
    let start = at + word.len();
    let length = run(bytes, start, |b| {
        b.is_ascii_alphanumeric() || b"._~+/=-".contains(&b)
    });
    let credentials = bytes.get(start..start + length)?;
    let looks_random = credentials.iter().any(u8::is_ascii_digit)
        || credentials.iter().any(u8::is_ascii_uppercase);
    (length >= SHORTEST && looks_random).then_some(start..start + length)
}

/// Sets `barren` to the end of a header that nothing fitting follows.
fn jwt(bytes: &[u8], at: usize, barren: &mut usize) -> Option<Range<usize>> {
    bytes.get(at..)?.strip_prefix(b"eyJ")?;
    let part = |from| {
        run(bytes, from, |b| {
            b.is_ascii_alphanumeric() || b == b'-' || b == b'_'
        })
    };
    let header = part(at);
    let claims_at = at + header + 1;
    let claims = part(claims_at);
    let signature_at = claims_at + claims + 1;
    let signature = part(signature_at);
    let dotted =
        bytes.get(at + header) == Some(&b'.') && bytes.get(claims_at + claims) == Some(&b'.');
    if dotted && header >= 10 && claims >= 10 && signature >= 10 {
        return Some(at..signature_at + signature);
    }
    *barren = at + header;
    None
}

/// Prefix, and the characters that follow: fewest, whether hyphen and underscore count.
const KEY_PREFIXES: [(&[u8], usize, bool); 14] = [
    (b"AKIA", 16, false),
    (b"ASIA", 16, false),
    (b"AIza", 35, true),
    (b"sk_live_", 16, false),
    (b"rk_live_", 16, false),
    (b"sk-", 20, true),
    (b"ghp_", 36, false),
    (b"gho_", 36, false),
    (b"ghu_", 36, false),
    (b"ghs_", 36, false),
    (b"ghr_", 36, false),
    (b"github_pat_", 22, true),
    (b"xoxb-", 20, true),
    (b"xoxp-", 20, true),
];

/// Sets `barren` to the end of a run without digits.
fn api_key(bytes: &[u8], at: usize, barren: &mut usize) -> Option<Range<usize>> {
    let rest = bytes.get(at..)?;
    let (prefix, fewest, joined) = KEY_PREFIXES
        .iter()
        .find(|(prefix, ..)| rest.starts_with(prefix))?;
    let body = at + prefix.len();
    let length = run(bytes, body, |b| {
        b.is_ascii_alphanumeric() || (*joined && (b == b'-' || b == b'_'))
    });
    // A key has digits; `sk-` before words joined by hyphens is prose.
    let has_digit = bytes
        .get(body..body + length)?
        .iter()
        .any(u8::is_ascii_digit);
    if !has_digit {
        *barren = body + length;
    }
    (length >= *fewest && has_digit).then_some(at..body + length)
}

/// A literal behind `name =` or `name:`; `at` is the sign.
fn assignment(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    /// A shorter literal is a placeholder.
    const SHORTEST: usize = 8;
    let name = name_before(bytes, at)?;
    if !is_secret_name(name) {
        return None;
    }
    let spaces = run(bytes, at + 1, |b| b == b' ' || b == b'\t');
    let mut start = at + 1 + spaces;
    let quote = bytes
        .get(start)
        .copied()
        .filter(|b| matches!(b, b'"' | b'\'' | b'`'));
    let length = match quote {
        Some(quote) => {
            start += 1;
            let length = run(bytes, start, |b| {
                b != quote && !b.is_ascii_whitespace() && b != b'$' && b != b'{'
            });
            if bytes.get(start + length) != Some(&quote) {
                return None;
            }
            length
        }
        // Without quotes only `NAME=value`, as in environment files; anything else may be code.
        None if bytes.get(at) == Some(&b'=') && spaces == 0 => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"+/_-.".contains(&b);
            let length = run(bytes, start, plain);
            let ends = bytes
                .get(start + length)
                .is_none_or(|b| b.is_ascii_whitespace() || *b == b'&');
            let has_digit = bytes
                .get(start..start + length)?
                .iter()
                .any(u8::is_ascii_digit);
            if ends && has_digit { length } else { 0 }
        }
        None => 0,
    };
    (length >= SHORTEST).then_some(start..start + length)
}

/// The name that ends before the sign at `at`, quotes and spaces between them left out.
fn name_before(bytes: &[u8], at: usize) -> Option<&str> {
    /// Bytes of the longest name that is looked at.
    const LONGEST: usize = 64;
    let before = bytes.get(at.saturating_sub(LONGEST)..at)?;
    let end = before
        .iter()
        .rposition(|b| !matches!(b, b' ' | b'\t' | b'"' | b'\''))?
        + 1;
    let named = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let start = before
        .get(..end)?
        .iter()
        .rposition(|b| !named(b))
        .map_or(0, |n| n + 1);
    core::str::from_utf8(before.get(start..end)?)
        .ok()
        .filter(|name| !name.is_empty())
}

/// Whether a member's name says that its value is a secret: by whole words, so that `session_id`, `author`
/// and `max_tokens` are not.
///
/// ```
/// use ubos_common::secret::is_secret_name;
///
/// assert!(is_secret_name("apiKey") && is_secret_name("X-Auth-Token") && is_secret_name("db_password"));
/// assert!(!is_secret_name("session_id") && !is_secret_name("author") && !is_secret_name("max_tokens"));
/// ```
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    const ALONE: [&str; 17] = [
        "apikey",
        "apikeys",
        "authorization",
        "bearer",
        "cookie",
        "cookies",
        "credential",
        "credentials",
        "jwt",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "pwd",
        "secret",
        "secrets",
        "token",
    ];
    const PAIRS: [(&str, &str); 5] = [
        ("access", "key"),
        ("api", "key"),
        ("private", "key"),
        ("signing", "key"),
        ("ssh", "key"),
    ];
    /// A secret's number, kind or place is no secret.
    const ABOUT: [&str; 12] = [
        "budget", "count", "field", "id", "kind", "length", "limit", "name", "path", "size",
        "type", "url",
    ];
    if !has_letters_of_secret(name) {
        return false;
    }
    let words = words(name);
    if words
        .last()
        .is_some_and(|last| ABOUT.contains(&last.as_str()))
    {
        return false;
    }
    let pair = |pair: &[String]| match pair {
        [first, second] => PAIRS.contains(&(first, second.strip_suffix('s').unwrap_or(second))),
        _ => false,
    };
    words.iter().any(|word| ALONE.contains(&word.as_str())) || words.windows(2).any(pair)
}

/// Whether a name has all letters of one of the words that [`is_secret_name`] looks for: most names do not, and
/// need not be taken apart.
fn has_letters_of_secret(name: &str) -> bool {
    const fn letters(word: &[u8]) -> u32 {
        let (mut set, mut rest) = (0, word);
        while let [first, behind @ ..] = rest {
            if first.is_ascii_alphabetic() {
                set |= 1 << (first.to_ascii_lowercase() - b'a');
            }
            rest = behind;
        }
        set
    }
    const SETS: [u32; 8] = [
        // apikey, cookie, token, and all pairs
        letters(b"k"),
        letters(b"authorization"),
        letters(b"bearer"),
        letters(b"credential"),
        letters(b"jwt"),
        letters(b"passphrase"),
        // passwd, password, pwd
        letters(b"pwd"),
        letters(b"secret"),
    ];
    let seen = letters(name.as_bytes());
    SETS.iter().any(|set| seen & set == *set)
}

/// The words of a name, in lower case and without a number at their end: `X-Api_keyHTTPToken2` has x, api,
/// key, http, token.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = name.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(char::is_ascii_lowercase);
        let hump = c.is_ascii_uppercase() && (before.is_ascii_lowercase() || next_is_lower);
        if !c.is_ascii_alphanumeric() || hump {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && c.is_ascii_alphanumeric()
        {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    for word in &mut words {
        word.truncate(word.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    }
    words.retain(|word| !word.is_empty());
    words
}

fn starts_word(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|n| bytes.get(n));
    before.is_none_or(|b| !b.is_ascii_alphanumeric() && *b != b'_')
}

fn run(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    bytes
        .get(from..)
        .unwrap_or_default()
        .iter()
        .take_while(|b| belongs(**b))
        .count()
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<&'static str> {
        secret_shapes(text)
            .map(|found| found.kind.as_str())
            .collect()
    }

    // The samples are put together so that scanners of this source find nothing.
    #[test]
    fn a_name_is_taken_apart_where_it_may_be_a_secret() {
        for name in [
            "apikey",
            "apikeys",
            "authorization",
            "bearer",
            "cookie",
            "cookies",
            "credential",
            "credentials",
            "jwt",
            "passphrase",
            "passwd",
            "password",
            "passwords",
            "pwd",
            "secret",
            "secrets",
            "token",
            "accessKey",
            "api_key",
            "PRIVATE-KEY",
            "signingKeys",
            "ssh key",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        assert!(!has_letters_of_secret("topic") && !has_letters_of_secret("depth"));
    }

    #[test]
    fn known_shapes_are_found() {
        let digits = "0123456789".repeat(4);
        for (text, kind) in [
            (
                format!(
                    "-----BEGIN RSA {} KEY-----\nabc\n-----END RSA {0} KEY-----",
                    "PRIVATE"
                ),
                "private_key",
            ),
            (
                format!("-----BEGIN {} KEY-----\ncut off", "PRIVATE"),
                "private_key",
            ),
            (format!("authorization: bearer {digits}"), "authorization"),
            (format!("eyJ{digits}.{digits}.{digits}"), "jwt"),
            (format!("key AK{}0123456789ABCDEF", "IA"), "api_key"),
            (format!("sk-{digits}"), "api_key"),
            (format!("(ghp_{digits})"), "api_key"),
            ("db_password = \"correct-horse\"".to_owned(), "assignment"),
            ("{\"apiKey\": 'abcdefgh'}".to_owned(), "assignment"),
            ("export TOKEN=abcdefg1".to_owned(), "assignment"),
        ] {
            assert_eq!(kinds(&text), [kind], "{text}");
        }
    }

    #[test]
    fn a_block_that_is_cut_ends_between_characters() {
        let header = format!("-----BEGIN {} KEY-----", "PRIVATE");
        for pad in ["", " ", "  "] {
            let text = format!("{header}{pad}{}", "\u{20ac}".repeat(20_000));
            let found = secret_shapes(&text).next().unwrap();
            assert!(text.is_char_boundary(found.range.end));
        }
    }

    // Quadratic time would not end.
    #[test]
    fn prefixes_without_end_are_read_once() {
        for prefix in ["sk-", "xoxb-", "AIza-", "github_pat_-", "eyJ-", "eyJabc."] {
            assert!(
                secret_shapes(&prefix.repeat(1_000_000)).next().is_none(),
                "{prefix}"
            );
        }
    }

    #[test]
    fn prose_and_code_are_not() {
        for text in [
            "-----BEGIN PUBLIC KEY-----",
            "a bearer of bad news arrives",
            "let token = next_token();",
            "token: String,",
            "password: &str",
            "max_tokens=12345678",
            "sk-as-long-as-words-are-joined-by-hyphens",
            "eyJust.a.word",
            "password = \"${PASSWORD}\"",
            "password=\"short\"",
            "task-AKIA",
            "session_id=12345678",
            "TOKEN=",
        ] {
            assert_eq!(kinds(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn names_count_by_whole_words() {
        for name in [
            "password",
            "userPassword",
            "API_KEY",
            "api-key",
            "Authorization",
            "access_token",
            "HTTPToken",
            "sshKey",
            "passwords",
            "api_keys",
            "password2",
            "TOKEN_1",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "",
            "tokens",
            "tokenizer",
            "author",
            "design",
            "session",
            "key",
            "token_count",
            "passwordless",
            "secretary",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
