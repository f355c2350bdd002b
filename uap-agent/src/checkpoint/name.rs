//! Sessions' names as names of files.

use super::CheckpointError;

/// Bytes of a file's name.
const MAX_BYTES: usize = 255;

/// Percent-encodes all but letters, digits and `-_.~`.
pub(super) fn encode(session: &str) -> Result<String, CheckpointError> {
    encode_but(session, u8::is_ascii_alphanumeric)
}

/// Percent-encodes upper-case letters as well: two names differ where case does not count, too.
#[cfg(feature = "log")]
pub(super) fn encode_caseless(session: &str) -> Result<String, CheckpointError> {
    encode_but(session, |byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit()
    })
}

fn encode_but(session: &str, is_plain: fn(&u8) -> bool) -> Result<String, CheckpointError> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut name = String::with_capacity(session.len());
    for byte in session.bytes() {
        if is_plain(&byte) || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            name.push(char::from(byte));
        } else {
            let digit = |place: u8| DIGITS.get(usize::from(place)).copied().unwrap_or(b'0');
            name.push('%');
            name.push(char::from(digit(byte >> 4)));
            name.push(char::from(digit(byte & 15)));
        }
    }
    let why = match name.as_str() {
        "" => "it is empty",
        "." | ".." => "it names a folder above",
        _ if name.len() > MAX_BYTES => "it is longer than a file's name may be",
        _ => return Ok(name),
    };
    Err(CheckpointError::Session(why))
}

/// The session of a name; none where the name is no encoded one.
pub(super) fn decode(name: &str) -> Option<String> {
    decode_by(name, encode)
}

/// The session of a name by [`encode_caseless`].
#[cfg(feature = "log")]
pub(super) fn decode_caseless(name: &str) -> Option<String> {
    decode_by(name, encode_caseless)
}

fn decode_by(name: &str, encode: fn(&str) -> Result<String, CheckpointError>) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let session = String::from_utf8(bytes).ok()?;
    (encode(&session).ok()? == name).then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_leads_out_of_the_folder_is_refused() {
        for bad in ["", ".", ".."] {
            assert!(encode(bad).is_err(), "{bad:?}");
        }
        assert!(encode(&"ü".repeat(50)).is_err());
        assert!(encode(&"x".repeat(255)).is_ok() && encode(&"x".repeat(256)).is_err());
        assert_eq!(encode("../a b/ü").unwrap(), "..%2Fa%20b%2F%C3%BC");
        for foreign in ["a b", "a%2fb", "%zz", "a%"] {
            assert_eq!(decode(foreign), None, "{foreign}");
        }
    }

    proptest! {
        #[cfg(feature = "log")]
        #[test]
        fn a_name_is_that_of_one_session_where_case_does_not_count(session in "\\PC{1,20}") {
            if let Ok(name) = encode_caseless(&session) {
                prop_assert_eq!(decode_caseless(&name), Some(session));
                let escapes = name.split('%').skip(1).filter_map(|rest| rest.get(..2));
                let upper = escapes.collect::<String>().matches(char::is_uppercase).count();
                prop_assert_eq!(name.matches(char::is_uppercase).count(), upper);
            }
        }

        #[test]
        fn a_name_is_that_of_one_session(session in "\\PC{1,20}") {
            if let Ok(name) = encode(&session) {
                prop_assert_eq!(decode(&name), Some(session));
                prop_assert!(name.is_ascii() && !name.contains(['/', '\\', ' ']));
            }
        }
    }
}
