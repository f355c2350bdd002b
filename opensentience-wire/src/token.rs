//! The session token: what proves that an agent is the one that was launched.

use core::fmt;

use subtle::ConstantTimeEq as _;
use ubos_common::json::{Fault, Read, Reader, Write, escape_into};
use ubos_common::secret::Secret;
use ubos_common::time::Mono;

use crate::limits::TOKEN_LIFETIME;

/// A session token. It has no `Display`, its `Debug` shows nothing, its memory is wiped.
///
/// ```
/// use opensentience_wire::SessionToken;
///
/// let token = SessionToken::from_random([7; 32]);
/// assert_eq!(token.expose().len(), 43);
/// assert_eq!(format!("{token:?}"), "SessionToken(…)");
/// ```
///
/// Spec: OpenSentience 5.1
#[derive(Clone)]
pub struct SessionToken(Secret<String>);

impl SessionToken {
    /// A token from 256 random bits: 43 characters of base64url.
    // impl: OSW-5-1
    #[must_use]
    pub fn from_random(bits: [u8; 32]) -> Self {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(43);
        for group in bits.chunks(3) {
            let mut word = [0; 4];
            if let Some(to) = word.get_mut(1..=group.len()) {
                to.copy_from_slice(group);
            }
            let word = u32::from_be_bytes(word);
            for place in 0..=group.len() {
                let digit = (word >> (18 - 6 * place)) & 0x3f;
                let digit = DIGITS.get(digit as usize).copied().unwrap_or(b'A');
                text.push(char::from(digit));
            }
        }
        Self(Secret::new(text))
    }

    /// Draws a token from the operating system's generator.
    ///
    /// # Errors
    ///
    /// The operating system gave no randomness.
    #[cfg(feature = "tokio")]
    pub fn generate() -> Result<Self, ubos_common::os::OsError> {
        let mut bits = [0; 32];
        ubos_common::os::fill_random(&mut bits)?;
        Ok(Self::from_random(bits))
    }

    /// The token's text. Keep it out of everything but a hello and a child's environment.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Whether two tokens are the same, in a time that depends on their lengths alone.
    // impl: OSW-4.1-3
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.expose()
            .as_bytes()
            .ct_eq(other.expose().as_bytes())
            .into()
    }
}

/// Finds a token as it would stand in JSON, by Horspool's search: for a token of 43 bytes it looks at one byte in forty.
pub(crate) struct TokenFinder {
    needle: Secret<String>,
    /// How far the search goes on behind a byte.
    skip: Box<[usize; 256]>,
}

impl TokenFinder {
    pub(crate) fn new(token: &SessionToken) -> Self {
        let mut quoted = Vec::new();
        escape_into(&mut quoted, token.expose());
        let quoted = Secret::new(String::from_utf8(quoted).unwrap_or_default());
        let text = quoted.expose();
        let inner = text.get(1..text.len() - 1).unwrap_or_default();
        Self::of(inner)
    }

    fn of(text: &str) -> Self {
        let last = text.len().saturating_sub(1);
        let mut skip = Box::new([text.len().max(1); 256]);
        for (at, byte) in text.bytes().take(last).enumerate() {
            if let Some(slot) = skip.get_mut(usize::from(byte)) {
                *slot = last - at;
            }
        }
        Self {
            needle: Secret::new(text.to_owned()),
            skip,
        }
    }

    /// Whether `bytes` contain the token.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        let needle = self.needle.expose().as_bytes();
        let mut at = 0;
        while let Some(window) = bytes.get(at..at + needle.len()) {
            let end = window.last().copied();
            if window == needle {
                return end.is_some();
            }
            at += end.map_or(1, |end| {
                self.skip.get(usize::from(end)).copied().unwrap_or(1)
            });
        }
        false
    }
}

/// Nothing of the token.
impl fmt::Debug for TokenFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenFinder(…)")
    }
}

impl From<String> for SessionToken {
    fn from(text: String) -> Self {
        Self(Secret::new(text))
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(…)")
    }
}

/// In constant time: `==` of a message that holds a token leaks nothing.
impl PartialEq for SessionToken {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl Read<'_> for SessionToken {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        reader.str().map(|text| text.into_owned().into())
    }
}

impl Write for SessionToken {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, self.expose());
    }
}

/// The right of one launched agent to open one connection, once.
///
/// It is a value that cannot be copied: a [`CoreConnection`](crate::role::core::CoreConnection) takes it,
/// keeps it when the handshake succeeds, and gives it back when a stranger's failed.
#[derive(Debug)]
pub struct Grant {
    pub(crate) token: SessionToken,
    pub(crate) agent_id: Box<str>,
    pub(crate) manifest_hash: Option<Box<str>>,
    pub(crate) expires: Mono,
}

impl Grant {
    /// A grant for an agent, good for five minutes from `now`.
    #[must_use]
    pub fn new(now: Mono, token: SessionToken, agent_id: &str) -> Self {
        Self {
            token,
            agent_id: agent_id.into(),
            manifest_hash: None,
            expires: now.saturating_add(TOKEN_LIFETIME),
        }
    }

    /// Binds it to a manifest: the SHA-256 in hexadecimal digits, with or without `sha256:` before them. It finds a manifest that
    /// was changed by mistake, and no lie: an agent whose hello names none is taken in, and one may name any.
    #[must_use]
    pub fn with_manifest_hash(mut self, hash: &str) -> Self {
        self.manifest_hash = Some(bare_hash(hash).to_ascii_lowercase().into());
        self
    }

    /// Whether a hello's hash is that of the manifest; an absent one is taken.
    pub(crate) fn takes_manifest(&self, hash: Option<&str>) -> bool {
        match (&self.manifest_hash, hash) {
            (Some(wanted), Some(hash)) => bare_hash(hash).eq_ignore_ascii_case(wanted),
            _ => true,
        }
    }
}

fn bare_hash(hash: &str) -> &str {
    hash.strip_prefix("sha256:").unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // spec: OSW-5-1
    #[test]
    fn a_token_is_base64url_and_shows_nothing() {
        let token = SessionToken::from_random([0xfb; 32]);
        assert_eq!(token.expose().len(), 43);
        assert!(
            token
                .expose()
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        );
        assert!(!format!("{token:?}").contains(token.expose()));
        assert_eq!(
            SessionToken::from_random([0xff; 32]).expose(),
            format!("{}8", "_".repeat(42))
        );
    }

    // spec: OSW-4.1-3
    #[test]
    fn only_the_same_token_matches() {
        let token = SessionToken::from("abc".to_owned());
        for (other, same) in [
            ("abc", true),
            ("abd", false),
            ("ab", false),
            ("abcd", false),
            ("", false),
        ] {
            assert_eq!(token.matches(&other.to_owned().into()), same, "{other}");
        }
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_a_plain_one(hay in "[ab]{0,30}", needle in "[ab]{1,5}") {
            let finder = TokenFinder::of(&needle);
            prop_assert_eq!(finder.is_in(hay.as_bytes()), hay.contains(&needle));
        }
    }
}
