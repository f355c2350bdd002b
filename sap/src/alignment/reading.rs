//! Texts as people read them.

use ubos_common::is_unseen;
use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc, is_nfkc_quick};

/// A text as it is read: in its compatible normal form, in small letters, with one space for any white space, and
/// without what nobody sees.
pub(super) fn reading_of(text: &str) -> String {
    let mut reading = Reading::default();
    reading.push(text);
    reading.finish()
}

/// Lines as they are read, given piece by piece.
#[derive(Debug, Default)]
pub(super) struct Reading {
    text: String,
    /// Where the line began that is read.
    line: usize,
    has_space: bool,
}

impl Reading {
    /// Reads on in the line. What is given ends where [`cut`] says, or with the line.
    pub(super) fn push(&mut self, text: &str) {
        if text.is_ascii() {
            self.ascii(text);
        } else if is_nfkc(text) {
            self.readable(text.chars());
        } else {
            self.readable(text.nfkc());
        }
    }

    pub(super) fn end_line(&mut self) {
        self.text.push('\n');
        self.line = self.text.len();
        self.has_space = false;
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// An ASCII text, which is most of what is read, and many times as fast.
    fn ascii(&mut self, text: &str) {
        self.text.reserve(text.len());
        for byte in text.bytes() {
            if matches!(byte, b'\t'..=b'\r' | b' ') {
                self.space();
            } else {
                self.word();
                self.text.push(char::from(byte.to_ascii_lowercase()));
            }
        }
    }

    fn readable(&mut self, letters: impl Iterator<Item = char>) {
        for letter in letters.filter(|letter| !is_unseen(*letter)) {
            if letter.is_whitespace() {
                self.space();
            } else {
                self.word();
                self.text.extend(letter.to_lowercase());
            }
        }
    }

    const fn space(&mut self) {
        self.has_space = self.text.len() > self.line;
    }

    fn word(&mut self) {
        if core::mem::take(&mut self.has_space) {
            self.text.push(' ');
        }
    }
}

/// Where a text is cut at or after a place, so that the reading of the parts is that of the whole: before a character
/// that no other before it changes. Where there is none for a while the cut is made nevertheless; nobody can read
/// what is there.
pub(super) fn cut(text: &str, at: usize) -> usize {
    let at = (at..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    let rest = text.get(at..).unwrap_or_default();
    let mut places = rest.char_indices().take(UNREADABLE);
    let place = places.find(|(_, letter)| {
        let first = core::iter::once(*letter).nfkd().next().unwrap_or(*letter);
        let is_sure = is_nfkc_quick(core::iter::once(first)) == IsNormalized::Yes;
        is_sure && canonical_combining_class(first) == 0
    });
    let rest = rest.char_indices().nth(UNREADABLE);
    let end = rest.map_or(text.len(), |(place, _)| at + place);
    place.map_or(end, |(place, _)| at + place)
}

/// Characters in a row that all change the one before them, and that nobody can read.
const UNREADABLE: usize = 256;

/// A text whose `camelCase`, `snake_case` and `kebab-case` names are taken apart, where that is another.
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
    is_apart.then_some(words)
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
            let mut slow = Reading::default();
            slow.readable(text.chars());
            assert_eq!(reading_of(text), slow.finish(), "{text:?}");
            let is_apart = taken_apart(&format!("{text} é")).is_some();
            assert_eq!(taken_apart(text).is_some(), is_apart, "{text:?}");
        }
    }
}
