//! The texts of an output.

use std::borrow::Cow;

use ubos_common::json::{Raw, RawBuf};

use super::output::read;
use super::reading::{Read, Reading, taken_apart};

/// What somebody reads in an output: strings and names without their escapes, all else as it is written. Names in
/// them that are written as one word are there a second time, taken apart. Each text has a line of its own: no reading
/// has a line break, so that nothing is found over two of them.
pub(super) fn texts_of(output: Raw<'_>) -> Read {
    let mut reading = Reading::default();
    let mut rest = output.as_str();
    // Sound JSON, from the beginning of a token on.
    while let Some(start) = rest.bytes().position(|byte| !is_structure(byte)) {
        let (_, token) = rest.split_at(start);
        let is_string = token.starts_with('"');
        let length = if is_string {
            string_len(token)
        } else {
            token.bytes().position(is_structure).unwrap_or(token.len())
        };
        let (token, behind) = token.split_at(length);
        rest = behind;
        if is_string {
            let text = unescaped(token);
            reading.line(&text);
            if let Some(apart) = taken_apart(&text) {
                reading.line(&apart);
            }
        } else {
            reading.line(token);
        }
    }
    reading.finish()
}

const fn is_structure(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b'\r' | b'[' | b']' | b'{' | b'}' | b',' | b':'
    )
}

/// Bytes of a string that begins a text, with its quotes.
fn string_len(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

/// What a string says. One that cannot be read is looked at as it is written.
fn unescaped(token: &str) -> Cow<'_, str> {
    if !token.contains('\\') {
        return Cow::Borrowed(token.get(1..token.len() - 1).unwrap_or_default());
    }
    let raw = RawBuf::parse(token).ok();
    let text = raw.and_then(|raw| read::<String>(raw.as_raw()));
    text.map_or(Cow::Borrowed(token), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_has_its_line() {
        let output =
            r#" {"homeAddress":"A\u0042 \"c\\","l":[1.5E3,true , null,[],"x\n y"],"e":""}"#;
        let output = RawBuf::parse(output).unwrap();
        assert_eq!(
            texts_of(output.as_raw()).text,
            "homeaddress\nhome address\nab \"c\\\nl\n1.5e3\ntrue\nnull\nx y\ne\n\n"
        );
    }
}
