//! Names of members whose values are secrets.

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
    is_secret_name_of(name, letters(name.as_bytes()))
}

/// As [`is_secret_name`], of a name of these letters, a bit for each.
pub(in crate::secret) fn is_secret_name_of(name: &str, letters: u32) -> bool {
    const ALONE: [&str; 21] = [
        "accesskey",
        "apikey",
        "apikeys",
        "authorization",
        "authtoken",
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
        "privatekey",
        "pwd",
        "secret",
        "secretkey",
        "secrets",
        "token",
    ];
    const PAIRS: [(&str, &str); 9] = [
        ("access", "key"),
        ("account", "key"),
        ("api", "key"),
        ("auth", "key"),
        ("encryption", "key"),
        ("master", "key"),
        ("private", "key"),
        ("signing", "key"),
        ("ssh", "key"),
    ];
    /// A secret's number, kind or place is no secret.
    const ABOUT: [&str; 12] = [
        "budget", "count", "field", "id", "kind", "length", "limit", "name", "path", "size",
        "type", "url",
    ];
    if !holds_secret_word(name, letters) {
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
    // `pass` alone is an outcome; `db_pass` is a password.
    let is_pass = words.len() > 1 && words.last().is_some_and(|last| last == "pass");
    let alone = |word: &String| ALONE.contains(&word.as_str());
    is_pass || words.iter().any(alone) || words.windows(2).any(pair)
}

/// The words that [`is_secret_name`] looks for, or a part of each, with their letters: most names lack one of them.
const WORDS: [(u32, &[u8]); 10] = [
    // accesskey, apikey, privatekey, secretkey, and all pairs
    with_letters(b"key"),
    with_letters(b"token"),
    with_letters(b"cookie"),
    // passphrase, passwd, password
    with_letters(b"pass"),
    with_letters(b"pwd"),
    with_letters(b"authorization"),
    with_letters(b"bearer"),
    with_letters(b"credential"),
    with_letters(b"jwt"),
    with_letters(b"secret"),
];

/// Whether a name of these letters, a bit for each, may be that of a secret.
pub(in crate::secret) fn may_name_secret(seen: u32) -> bool {
    let holds = |letters| seen & letters == letters;
    WORDS.iter().any(|(letters, _)| holds(*letters))
}

/// Whether a name holds one of the words, or a part of one: most names do not, and need not be taken apart.
fn holds_secret_word(name: &str, seen: u32) -> bool {
    let name = name.as_bytes();
    WORDS.iter().any(|(letters, word)| {
        let mut places = name.windows(word.len());
        seen & letters == *letters && places.any(|place| place.eq_ignore_ascii_case(word))
    })
}

const fn with_letters(word: &[u8]) -> (u32, &[u8]) {
    (letters(word), word)
}

/// The letters of a word, a bit for each.
pub(super) const fn letters(word: &[u8]) -> u32 {
    let (mut set, mut rest) = (0, word);
    while let [first, behind @ ..] = rest {
        set |= letter(*first);
        rest = behind;
    }
    set
}

const fn letter(byte: u8) -> u32 {
    if byte.is_ascii_alphabetic() {
        1 << (byte.to_ascii_lowercase() - b'a')
    } else {
        0
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_lists_is_known() {
        for name in [
            "apikey",
            "accesskey",
            "authtoken",
            "privatekey",
            "secretkey",
            "dbPass",
            "account_key",
            "auth-key",
            "encryptionKey",
            "MASTER_KEY",
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
        let all = (1 << 26) - 1;
        assert!(!holds_secret_word("topic", all) && !holds_secret_word("protocolVersion", all));
        assert!(!may_name_secret(letters(b"topic")) && may_name_secret(letters(b"apiKey")));
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
            "pass",
            "passage",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
