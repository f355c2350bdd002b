//! Texts as people read them.

use unicode_normalization::{UnicodeNormalization as _, is_nfkc};

/// A text as it is read: in its compatible normal form, in small letters, with one space for any white space, and
/// without what nobody sees.
pub(super) fn reading_of(text: &str) -> String {
    if text.is_ascii() {
        ascii(text)
    } else if is_nfkc(text) {
        readable(text.chars())
    } else {
        readable(text.nfkc())
    }
}

/// The reading of a text whose `camelCase`, `snake_case` and `kebab-case` names are taken apart, where that is another.
pub(super) fn taken_apart(text: &str) -> Option<String> {
    if text.is_ascii() && !is_apart_in_ascii(text.as_bytes()) {
        return None;
    }
    let mut words = String::with_capacity(text.len() + 8);
    let mut is_small = false;
    let mut is_apart = false;
    for letter in text.chars() {
        if matches!(letter, '_' | '-' | '.') {
            words.push(' ');
            is_apart = true;
        } else {
            if is_small && letter.is_uppercase() {
                words.push(' ');
                is_apart = true;
            }
            words.push(letter);
        }
        is_small = letter.is_lowercase() || letter.is_numeric();
    }
    is_apart.then(|| reading_of(&words))
}

/// Whether an ASCII text has a name that is taken apart.
fn is_apart_in_ascii(text: &[u8]) -> bool {
    let mut is_small = false;
    text.iter().any(|&byte| {
        let is_apart = matches!(byte, b'_' | b'-' | b'.') || is_small && byte.is_ascii_uppercase();
        is_small = byte.is_ascii_lowercase() || byte.is_ascii_digit();
        is_apart
    })
}

/// The reading of an ASCII text, which is most of what is read, and many times as fast.
fn ascii(text: &str) -> String {
    let mut reading = String::with_capacity(text.len());
    let mut has_space = false;
    for byte in text.bytes() {
        if matches!(byte, b'\t'..=b'\r' | b' ') {
            has_space = !reading.is_empty();
            continue;
        }
        if core::mem::take(&mut has_space) {
            reading.push(' ');
        }
        reading.push(char::from(byte.to_ascii_lowercase()));
    }
    reading
}

fn readable(letters: impl Iterator<Item = char>) -> String {
    let mut reading = String::new();
    let mut has_space = false;
    for letter in letters.filter(|letter| !is_unseen(*letter)) {
        if letter.is_whitespace() {
            has_space = !reading.is_empty();
            continue;
        }
        if core::mem::take(&mut has_space) {
            reading.push(' ');
        }
        reading.extend(letter.to_lowercase());
    }
    reading
}

/// Whether a character leaves no mark on what is read: Unicode calls these default ignorable.
const fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFF8}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_read_as_all_else() {
        let every: String = (0..=127_u8).map(char::from).collect();
        for text in [
            &every,
            " a  B\tc ",
            "",
            "Home_Address",
            "homeAddress2Go",
            "A-1.b",
            "\u{b}x\u{1f}y",
        ] {
            assert_eq!(ascii(text), readable(text.chars()), "{text:?}");
            let is_apart = taken_apart(&format!("{text} é")).is_some();
            assert_eq!(taken_apart(text).is_some(), is_apart, "{text:?}");
        }
    }
}
