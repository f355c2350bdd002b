//! Texts as people read them.

use std::borrow::Cow;

use ubos_common::is_unseen;
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick, is_nfkc};

/// A text as it is read: in its compatible normal form, whatever the case of its letters, with one space for any white space,
/// and without what nobody sees.
pub(super) fn reading_of(text: &str) -> String {
    let mut reading = Reading::default();
    reading.read(text);
    reading.finish().text
}

/// What was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) text: String,
    /// Whether something is missing, because a reading has a bound.
    pub(super) is_cut: bool,
}

/// Bytes of a reading. One letter may become eleven times as long in its compatible form.
pub(super) const MAX_READING: usize = 4 << 20;

/// A text without what nobody sees.
fn seen(text: &str) -> Cow<'_, str> {
    match text.chars().any(is_hidden) {
        true => text.chars().filter(|letter| !is_hidden(*letter)).collect(),
        false => text.into(),
    }
}

/// Lines as they are read, one behind another.
#[derive(Debug, Default)]
pub(super) struct Reading {
    text: String,
    /// Where the line began that is read.
    line: usize,
    has_space: bool,
    /// Not all was read, for it was too long.
    is_cut: bool,
}

impl Reading {
    /// Reads a text, and ends its line.
    pub(super) fn line(&mut self, text: &str) {
        self.read(text);
        self.text.push('\n');
        self.line = self.text.len();
        self.has_space = false;
    }

    fn read(&mut self, text: &str) {
        if text.is_ascii() {
            return self.ascii(text);
        }
        // What nobody sees would keep a letter and its mark apart.
        let seen = seen(text);
        if is_nfkc(&seen) {
            self.folded(seen.chars());
        } else {
            self.folded(seen.nfkc());
        }
    }

    fn folded(&mut self, letters: impl Iterator<Item = char>) {
        let room = MAX_READING.saturating_sub(self.text.len());
        let mut folded = String::new();
        for letter in letters.flat_map(fold) {
            if folded.len() + letter.len_utf8() > room {
                self.is_cut = true;
                break;
            }
            folded.push(letter);
        }
        // A letter that became several may have a form of its own with the mark behind it.
        if is_nfc_quick(folded.chars()) == IsNormalized::Yes {
            self.readable(folded.chars());
        } else {
            self.readable(folded.nfc());
        }
    }

    pub(super) fn finish(self) -> Read {
        Read {
            text: self.text,
            is_cut: self.is_cut,
        }
    }

    /// An ASCII text, which is most of what is read, and many times as fast.
    fn ascii(&mut self, text: &str) {
        self.text.reserve(text.len());
        for byte in text.bytes() {
            if matches!(byte, b'\t'..=b'\r' | b' ') {
                self.space();
            } else if !byte.is_ascii_control() {
                self.word();
                self.text.push(char::from(byte.to_ascii_lowercase()));
            }
        }
    }

    fn readable(&mut self, letters: impl Iterator<Item = char>) {
        for letter in letters.filter(|letter| !is_hidden(*letter)) {
            if letter.is_whitespace() {
                self.space();
            } else {
                self.word();
                self.text.push(letter);
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

/// A text whatever the case of its letters.
pub(super) fn caseless(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(fold).nfc().collect()
}

/// A letter whatever its case, as full case folding has it: `ß` is `ss`, and `ς` is `σ`. A dotless `ı` is an `i`, too.
fn fold(letter: char) -> impl Iterator<Item = char> {
    // The capital sharp s has capitals only through the small one.
    let capitals = letter.to_lowercase().flat_map(char::to_uppercase);
    capitals.flat_map(char::to_lowercase)
}

/// Whether nobody sees a character, nor any space in its place.
fn is_hidden(letter: char) -> bool {
    is_unseen(letter) || letter.is_control() && !letter.is_whitespace()
}

/// A text whose `camelCase`, `HTTPCase`, `snake_case` and `kebab-case` names are taken apart, where that is another.
pub(super) fn taken_apart(text: &str) -> Option<String> {
    if text.is_ascii() && !is_apart_in_ascii(text.as_bytes()) {
        return None;
    }
    let mut words = String::with_capacity(text.len() + 8);
    let mut is_apart = false;
    let mut before = Letter::Other;
    // A full-width joiner is one, too.
    let text = seen(text);
    let text = match text.is_ascii() || is_nfkc(&text) {
        true => text,
        false => text.nfkc().take(MAX_READING).collect(),
    };
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let kind = Letter::of(letter);
        if kind == Letter::Joins {
            words.push(' ');
            is_apart = true;
        } else {
            if kind.begins_word(before, || letters.peek().copied().map(Letter::of)) {
                words.push(' ');
                is_apart = true;
            }
            words.push(letter);
        }
        before = kind;
    }
    is_apart.then_some(words)
}

/// Whether an ASCII text has a name that is taken apart.
fn is_apart_in_ascii(text: &[u8]) -> bool {
    let mut before = Letter::Other;
    let mut letters = text.iter().filter(|byte| !is_hidden(char::from(**byte)));
    while let Some(byte) = letters.next() {
        let kind = Letter::of_ascii(*byte);
        let next = || letters.clone().next().map(|byte| Letter::of_ascii(*byte));
        if kind == Letter::Joins || kind.begins_word(before, next) {
            return true;
        }
        before = kind;
    }
    false
}

/// What a character is to the name that it stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letter {
    Small,
    Digit,
    Capital,
    Joins,
    Other,
}

impl Letter {
    fn of(letter: char) -> Self {
        match letter {
            '_' | '-' | '.' => Self::Joins,
            _ if letter.is_lowercase() => Self::Small,
            _ if letter.is_numeric() => Self::Digit,
            _ if letter.is_uppercase() => Self::Capital,
            _ => Self::Other,
        }
    }

    const fn of_ascii(byte: u8) -> Self {
        match byte {
            b'_' | b'-' | b'.' => Self::Joins,
            b'a'..=b'z' => Self::Small,
            b'0'..=b'9' => Self::Digit,
            b'A'..=b'Z' => Self::Capital,
            _ => Self::Other,
        }
    }

    /// Whether a word begins with it: a capital behind a small letter or a digit, or the last of several before a small one.
    fn begins_word(self, before: Self, next: impl FnOnce() -> Option<Self>) -> bool {
        self == Self::Capital
            && match before {
                Self::Small | Self::Digit => true,
                Self::Capital => next() == Some(Self::Small),
                Self::Joins | Self::Other => false,
            }
    }
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
            "userIPAddress",
            "HOMEAddress",
            "IPs",
            "NATO-A",
            "IP2A",
            "home\u{1}Address",
            "A\u{7f}Bc",
            "--",
        ] {
            let mut slow = Reading::default();
            slow.folded(text.chars());
            assert_eq!(reading_of(text), slow.finish().text, "{text:?}");
            let is_apart = taken_apart(&format!("{text} é")).is_some();
            assert_eq!(taken_apart(text).is_some(), is_apart, "{text:?}");
        }
    }

    #[test]
    fn letters_are_the_same_in_any_case() {
        for (one, other) in [
            ("ΟΔΟΣ", "οδος"),
            ("Straße", "STRASSE"),
            ("Straße", "STRA\u{1e9e}E"),
            ("ǰ", "J\u{30c}"),
            ("\u{390}", "\u{3aa}\u{301}"),
            ("Ωmega", "\u{2126}MEGA"),
            ("ﬁle", "FILE"),
            ("İ", "i\u{307}"),
            ("ՙև", "ՙԵՒ"),
        ] {
            assert_eq!(reading_of(one), reading_of(other), "{one}");
            let is_compatible = is_nfkc(one) && is_nfkc(other);
            assert!(!is_compatible || caseless(one) == caseless(other), "{one}");
        }
        assert_ne!(reading_of("strase"), reading_of("straße"));
        assert_ne!(caseless("cafe"), caseless("CAFÉ"));
    }

    #[test]
    fn what_nobody_sees_parts_no_letter_from_its_mark() {
        for text in ["cafe\u{34f}\u{301}", "CAFE\u{200b}\u{301}"] {
            assert_eq!(reading_of(text), reading_of("café"));
        }
    }

    #[test]
    fn names_are_taken_apart_at_their_words() {
        for (name, words) in [
            ("homeAddress", Some("home Address")),
            ("userIPAddress", Some("user IP Address")),
            ("HOMEAddress", Some("HOME Address")),
            ("parseHTTP2Now", Some("parse HTTP2 Now")),
            ("ΟΔΟΣΜου", Some("ΟΔΟΣ Μου")),
            ("home\u{1}Address", Some("home Address")),
            ("é\u{200b}IP\u{200b}Ab", Some("é IP Ab")),
            ("a_b-c.d", Some("a b c d")),
            ("home\u{ff3f}address", Some("home address")),
            ("HOME", None),
            ("Home address", None),
            ("A Bc", None),
        ] {
            assert_eq!(taken_apart(name).as_deref(), words, "{name}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn a_reading_has_a_bound_and_says_so() {
        // One letter of three bytes that is read as 33.
        let long = "\u{fdfa}";
        for (letter, letters, is_cut) in [
            (long, MAX_READING / 40, false),
            (long, MAX_READING / 20, true),
            ("é", MAX_READING / 2, false),
            ("é", MAX_READING / 2 + 1, true),
        ] {
            let mut reading = Reading::default();
            reading.line(&letter.repeat(letters));
            let read = reading.finish();
            assert_eq!(read.is_cut, is_cut);
            assert!(read.text.len() <= MAX_READING + 1);
        }
    }
}
