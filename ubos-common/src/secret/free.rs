//! Whether a JSON text needs to be scanned at all: most need not.

use super::shape::{is_secret_name_of, look, may_name_secret, secret_shapes};

/// Whether a sound JSON text certainly holds nothing that a scan would find: no text in it, names of members included, is
/// [shaped like a secret](secret_shapes), and no member is [named like one](super::is_secret_name).
///
/// It is read once and not taken apart, for a fraction of what a scan costs. A text with an escape is not looked at:
/// `false` says only that a scan is needed.
///
/// ```
/// use ubos_common::secret::is_secret_free;
///
/// assert!(is_secret_free(r#"{"text":"a plain one","tokens":[1,2]}"#));
/// assert!(!is_secret_free(r#"{"note":"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}"#));
/// assert!(!is_secret_free(r#"{"password":"x"}"#));
/// assert!(!is_secret_free(r#"{"text":"two\nlines"}"#));
/// ```
#[must_use]
pub fn is_secret_free(json: &str) -> bool {
    let mut rest = json;
    // Outside strings JSON has few bytes.
    while let Some(quote) = rest.bytes().position(|byte| byte == b'"') {
        let Some(string) = rest.get(quote + 1..) else {
            return false;
        };
        let Some(looked) = look(string.as_bytes(), may_name_secret) else {
            return false;
        };
        let (text, behind) = (string.get(..looked.length), string.get(looked.length + 1..));
        let (Some(text), Some(behind)) = (text, behind) else {
            return false;
        };
        rest = behind;
        let is_name = || behind.trim_ascii_start().starts_with(':');
        if (looked.may_have_shape && secret_shapes(text).next().is_some())
            || (may_name_secret(looked.letters)
                && is_name()
                && is_secret_name_of(text, looked.letters))
        {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

    #[test]
    fn a_secret_is_noticed_wherever_it_stands() {
        for text in [
            format!(r#""{KEY}""#),
            format!(r#"["a","{KEY}"]"#),
            format!(r#"{{"a":{{"b":"{KEY}"}}}}"#),
            format!(r#"{{"{KEY}":1}}"#),
            r#"{"a":[{"password" : null}]}"#.into(),
            "{\"api_key\"\n\t:\"x\"}".into(),
        ] {
            assert!(!is_secret_free(&text), "{text}");
        }
    }

    #[test]
    fn a_value_is_no_name_and_what_has_no_strings_is_free() {
        for text in [
            "1",
            "null",
            "[]",
            "{}",
            r#""password""#,
            r#"{"a":"token"}"#,
            r#"["secret",{"b":1}]"#,
        ] {
            assert!(is_secret_free(text), "{text}");
        }
    }

    #[test]
    fn what_is_escaped_is_for_a_scan() {
        assert!(!is_secret_free(r#"{"p\u0061ssword":1}"#));
        assert!(!is_secret_free(r#""a\"b""#));
    }
}
