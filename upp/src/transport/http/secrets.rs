//! The secrets of a request, which no error may repeat.

use std::sync::Arc;

use ubos_common::secret::{PLACEHOLDER, Secret, redact_text};

use super::ProviderConfig;
use crate::error::UppError;

/// Characters of an error message that are kept.
const MAX_CHARS: usize = 500;

/// Characters of a header's value, or of a word of it, from which on it is a secret. Shorter ones stand in any text.
const MIN_CHARS: usize = 4;

/// What a vendor knows from the request and must not be repeated: the key, the user's headers, the password of the URL.
#[derive(Clone)]
pub(super) struct Secrets(Arc<[Secret<String>]>);

impl Secrets {
    pub(super) fn new(
        config: &ProviderConfig,
        base: &reqwest::Url,
        key: Option<&Secret<String>>,
    ) -> Self {
        let mut all: Vec<&str> = Vec::new();
        for (_, value) in &config.headers {
            // A vendor may repeat the credential without the name of its scheme.
            let words = value.expose().split_whitespace();
            let parts = words.chain([value.expose().trim()]);
            all.extend(parts.filter(|part| part.chars().count() >= MIN_CHARS));
        }
        all.extend(base.password());
        all.extend(key.map(|key| key.expose().trim()));
        all.retain(|secret| !secret.is_empty());
        // Longest first: a secret may be a part of another.
        all.sort_by_key(|secret| core::cmp::Reverse(secret.len()));
        let secret = |text: &str| Secret::new(text.to_owned());
        Self(all.into_iter().map(secret).collect())
    }

    /// The error without secrets, and with a message of bounded length. The secrets go first: the cut could leave a part
    /// of one.
    // impl: UPP-8
    pub(super) fn hide(&self, mut error: UppError) -> UppError {
        let mut message = String::from(core::mem::take(&mut error.message));
        for secret in self.0.iter() {
            if message.contains(secret.expose().as_str()) {
                message = message.replace(secret.expose().as_str(), PLACEHOLDER);
            }
        }
        error.message = redact_text(&message, MAX_CHARS).into_owned().into();
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    // spec: UPP-8
    #[test]
    fn words_of_a_header_are_hidden_from_four_characters_on() {
        let config = ProviderConfig::default().with_header("x-gateway", "Up äöüß".to_owned());
        let base = reqwest::Url::parse("http://vendor.example/").unwrap();
        // A key without characters is in every text, and another may have the word as a part.
        for (key, said) in [(" ", "äöüß"), ("(äöüß)", "(äöüß)")] {
            let key = Secret::new(key.to_owned());
            let secrets = Secrets::new(&config, &base, Some(&key));
            let error = UppError::new(ErrorCode::ProviderError, "p", format!("Up with {said}"));
            let hidden = secrets.hide(error).message;
            assert_eq!(&*hidden, format!("Up with {PLACEHOLDER}"));
        }
    }
}
