//! Texts for a page: escaped, cut, laid out; and numbers that stand under one another.

use core::fmt::Write as _;

use ubos_common::json::{Kind, RawBuf};

/// Bytes of one text on the page; the rest is counted.
const MAX_TEXT: usize = 32 << 10;
/// Bytes of JSON that stay on one line.
const SHORT: usize = 60;
/// Spaces that one level of JSON is set in.
const INDENT: usize = 2;
/// Levels of JSON that are laid out; deeper ones stay on one line.
const MAX_LEVELS: usize = 25;

/// Appends a text as HTML. What a browser would not show, or would let change the order of what it shows, is made
/// visible: control characters as their pictures, marks of direction as their numbers.
pub(super) fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\0'..='\u{1f}' => {
                out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'))
            }
            '\u{7f}' => out.push('\u{2421}'),
            '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\u{27e8}U+{:04X}\u{27e9}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
}

/// The beginning of a text on one line, for a heading.
pub(super) fn gist(text: &str, chars: usize) -> String {
    let words = text.split_whitespace().enumerate();
    let mut line =
        words.flat_map(|(n, word)| (n > 0).then_some(' ').into_iter().chain(word.chars()));
    let mut gist: String = line.by_ref().take(chars).collect();
    if line.next().is_some() {
        gist.push('…');
    }
    gist
}

/// The text, cut where it is too long for a page, and how many bytes were cut.
pub(super) fn cut(text: &str) -> (&str, usize) {
    let mut ends = (0..=text.len().min(MAX_TEXT)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    let (shown, rest) = text.split_at(end.unwrap_or(0));
    (shown, rest.len())
}

/// A value for a person: a string as it is, anything else as JSON over several lines.
pub(super) fn readable(value: &RawBuf) -> String {
    if value.kind() == Kind::String {
        return value.deserialize().unwrap_or_default();
    }
    let json = value.as_str();
    set(json, if json.len() > SHORT { MAX_LEVELS } else { 0 })
}

/// Sound JSON on one line, with room behind commas and colons.
pub(super) fn spaced(json: &str) -> String {
    set(json, 0)
}

/// Sound JSON, of which so many levels have lines of their own.
fn set(json: &str, levels: usize) -> String {
    let line = |out: &mut String, level: usize| {
        if level < levels {
            out.push('\n');
            out.extend(core::iter::repeat_n(' ', level * INDENT));
        }
    };
    let (mut out, mut level) = (String::with_capacity(json.len()), 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    let mut characters = json.chars().peekable();
    while let Some(c) = characters.next() {
        if in_string {
            out.push(c);
            (in_string, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                level += 1;
                if !matches!(characters.peek(), Some('}' | ']')) {
                    line(&mut out, level);
                }
            }
            '}' | ']' => {
                level = level.saturating_sub(1);
                if !out.ends_with(['{', '[']) {
                    line(&mut out, level);
                }
                out.push(c);
            }
            ',' if level < levels => {
                out.push(c);
                line(&mut out, level);
            }
            ',' => out.push_str(", "),
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A span for a sentence.
pub(super) fn span(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}\u{202f}ms"),
        1_000..60_000 => format!("{}.{:02}\u{202f}s", millis / 1000, millis % 1000 / 10),
        60_000..3_600_000 => {
            format!(
                "{}\u{202f}min {:02}\u{202f}s",
                millis / 60_000,
                millis / 1000 % 60
            )
        }
        _ => format!(
            "{}\u{202f}h {:02}\u{202f}min",
            millis / 3_600_000,
            millis / 60_000 % 60
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_browser_acts_on_is_left() {
        let mut out = String::new();
        escape(
            &mut out,
            "</script>&\"'\0\u{1b}[2J\u{7f}\u{202e}x\u{61c}\u{feff}\ny",
        );
        assert_eq!(
            out,
            "&lt;/script&gt;&amp;&quot;&#39;\u{2400}\u{241b}[2J\u{2421}⟨U+202E⟩x⟨U+061C⟩⟨U+FEFF⟩\ny"
        );
    }

    #[test]
    fn json_is_set_in_lines_and_strings_are_not_touched() {
        let json = r#"{ "a":[1,{"b,":"x\\\":{"}],"empty":{},"none":[],"long":"aaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
        let wanted = "{\n  \"a\": [\n    1,\n    {\n      \"b,\": \"x\\\\\\\":{\"\n    }\n  ],\n  \"empty\": {},\n  \
            \"none\": [],\n  \"long\": \"aaaaaaaaaaaaaaaaaaaaaaaaa\"\n}";
        assert_eq!(readable(&RawBuf::parse(json).unwrap()), wanted);
        assert_eq!(
            spaced(r#"{ "a" :1,"b\\":"x,y: \"z"}"#),
            r#"{"a": 1, "b\\": "x,y: \"z"}"#
        );
        assert_eq!(readable(&upp::json_text("a\nb")), "a\nb");
        let lines = |n| {
            let array = format!("[\"{}\"]", "a".repeat(n));
            readable(&RawBuf::parse(&array).unwrap()).lines().count()
        };
        assert_eq!((lines(56), lines(57)), (1, 3), "60 bytes, and 61");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (grouped(999), grouped(1_000)),
            ("999".into(), "1\u{202f}000".into())
        );
        assert_eq!(span(999), "999\u{202f}ms");
        assert_eq!(span(61_500), "1\u{202f}min 01\u{202f}s");
        assert_eq!(
            (gist("a  b\nc", 5), gist("a  b\nc", 4)),
            ("a b c".into(), "a b …".into())
        );
        assert_eq!(cut(&"é".repeat(MAX_TEXT)).1, MAX_TEXT);
        // No character is cut in two.
        let long = format!("x{}", "é".repeat(MAX_TEXT));
        assert_eq!(
            (cut(&long).0.len(), cut(&long).1),
            (MAX_TEXT - 1, MAX_TEXT + 2)
        );
    }
}
