//! The texts of an output.

use std::borrow::Cow;

use ubos_common::json::{Raw, RawBuf};

use super::output::read;
use super::reading::{Reading, cut, taken_apart};

/// What somebody reads in an output: strings and names without their escapes, all else as it is written. Names in
/// them that are written as one word are there a second time, taken apart. Each text has a line of its own: no reading
/// has a line break, so that nothing is found over two of them.
pub(super) fn texts_of(output: Raw<'_>) -> String {
    let mut texts = Texts::new(output);
    while texts.step() {}
    texts.finish()
}

/// The texts of an output, read a piece at a time, for others may have something to do between two.
#[derive(Debug)]
pub(super) struct Texts<'a> {
    /// What was not looked at yet: sound JSON from the beginning of a token on.
    rest: &'a str,
    /// What is read at present, and from where on.
    text: Option<(Cow<'a, str>, usize)>,
    /// The same text taken apart, which is read after it.
    apart: Option<String>,
    reading: Reading,
}

impl<'a> Texts<'a> {
    pub(super) fn new(output: Raw<'a>) -> Self {
        Self {
            rest: output.as_str(),
            text: None,
            apart: None,
            reading: Reading::default(),
        }
    }

    /// Reads the next piece; false where nothing is left.
    pub(super) fn step(&mut self) -> bool {
        let mut left = PIECE;
        while left > 0 {
            let Some((text, at)) = self.text.take() else {
                match self.next_text(left) {
                    Some(read) => left = left.saturating_sub(read),
                    None => return false,
                }
                continue;
            };
            let end = cut(&text, at + left);
            self.reading.push(text.get(at..end).unwrap_or_default());
            left = left.saturating_sub(end - at);
            if end < text.len() {
                self.text = Some((text, end));
            } else {
                self.reading.end_line();
                self.text = self.apart.take().map(|apart| (Cow::Owned(apart), 0));
            }
        }
        true
    }

    pub(super) fn finish(self) -> String {
        self.reading.finish()
    }

    /// Takes up the next string, or reads a token that is none. Gives the bytes that it took to get there.
    fn next_text(&mut self, left: usize) -> Option<usize> {
        let before = self.rest.len();
        let structure = |byte: u8| {
            matches!(
                byte,
                b' ' | b'\t' | b'\n' | b'\r' | b'[' | b']' | b'{' | b'}' | b',' | b':'
            )
        };
        let mut bytes = self.rest.bytes().take(left);
        let Some(start) = bytes.position(|byte| !structure(byte)) else {
            // Nothing but structure, as far as it was looked at.
            self.rest = self.rest.get(left..).unwrap_or_default();
            return (before > 0).then_some(before - self.rest.len());
        };
        let (_, rest) = self.rest.split_at(start);
        let length = if rest.starts_with('"') {
            string_len(rest)
        } else {
            rest.bytes().position(structure).unwrap_or(rest.len())
        };
        let (token, rest) = rest.split_at(length);
        self.rest = rest;
        if token.starts_with('"') {
            let text = unescaped(token);
            self.apart = taken_apart(&text);
            self.text = Some((text, 0));
        } else {
            self.reading.push(token);
            self.reading.end_line();
        }
        Some(before - self.rest.len())
    }
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

/// Bytes of an output that are read in one step, more or less.
const PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_text_has_its_line() {
        let output =
            r#" {"homeAddress":"A\u0042 \"c\\","l":[1.5E3,true , null,[],"x\n y"],"e":""}"#;
        let output = RawBuf::parse(output).unwrap();
        assert_eq!(
            texts_of(output.as_raw()),
            "homeaddress\nhome address\nab \"c\\\nl\n1.5e3\ntrue\nnull\nx y\ne\n\n"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        // A run of marks alone is parted by force, and may be read otherwise.
        #[test]
        fn a_long_text_is_read_as_a_short_one(
            piece in "[a-c][a-cA-C _é\u{301}\u{323}\u{1100}\u{1161}\u{11a8}\u{ff9e}\u{200b}ﬁ\u{3000}]{0,40}",
        ) {
            let many = PIECE * 3 / piece.len();
            let text = piece.repeat(many);
            let output = RawBuf::from_serialize(&text).unwrap();
            let mut whole = Reading::default();
            whole.push(&text);
            whole.end_line();
            let texts = texts_of(output.as_raw());
            let whole = whole.finish();
            prop_assert!(texts.starts_with(&whole));
        }
    }

    #[test]
    fn no_step_reads_much_more_than_a_piece() {
        for text in ["lorem ipsum ", "\u{301}", "\u{1161}", "é", "aB"] {
            let long = text.repeat((1 << 20) / text.len());
            let output = RawBuf::from_serialize(&long).unwrap();
            let mut texts = Texts::new(output.as_raw());
            let mut steps = 0;
            while texts.step() {
                steps += 1;
            }
            assert!(steps >= (1 << 20) / PIECE / 2, "{text:?}: {steps}");
        }
    }
}
