//! From a byte offset to pointer, line and column: only ever run on the failing path.

use core::fmt;

/// A place in a text, both counted from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Position {
    /// A place, both counted from 1.
    #[must_use]
    pub const fn new(line: usize, column: usize) -> Self {
        Self { line, column }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)
    }
}

/// Where a byte lies.
pub(super) struct Place {
    pub(super) pointer: String,
    pub(super) position: Position,
}

/// Finds the place of the byte at `offset`.
///
/// The text need be sound JSON only up to there.
pub(super) fn locate(text: &str, offset: usize) -> Place {
    let mut walker = Walker::new(text);
    walker.place(offset)
}

/// Walks a text once and answers for ascending offsets.
pub(super) struct Walker<'a> {
    text: &'a str,
    at: usize,
    frames: Vec<Frame>,
    line: usize,
    /// Characters of the line before `counted`, so that one long line is counted once.
    column: usize,
    counted: usize,
}

/// One open array or object: where in it the walker is.
enum Frame {
    Element(usize),
    /// The name is `None` before the first name and after a comma.
    Member(Option<String>),
}

impl<'a> Walker<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            frames: Vec::new(),
            line: 1,
            column: 0,
            counted: 0,
        }
    }

    /// The place of a byte at or behind the one asked for last.
    pub(super) fn place(&mut self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        while self.at < offset {
            self.step(offset);
        }
        let more = self.text.get(self.counted..offset).unwrap_or_default();
        self.column += more.chars().count();
        self.counted = self.counted.max(offset);
        Place {
            pointer: self.pointer(),
            position: Position {
                line: self.line,
                column: self.column + 1,
            },
        }
    }

    /// Takes one byte, or one whole string unless it reaches over `offset`.
    fn step(&mut self, offset: usize) {
        let bytes = self.text.as_bytes();
        match bytes.get(self.at) {
            Some(b'{') => self.frames.push(Frame::Member(None)),
            Some(b'[') => self.frames.push(Frame::Element(0)),
            Some(b'}' | b']') => {
                self.frames.pop();
            }
            Some(b',') => match self.frames.last_mut() {
                Some(Frame::Element(index)) => *index += 1,
                Some(Frame::Member(name)) => *name = None,
                None => {}
            },
            Some(b'\n') => {
                self.line += 1;
                self.column = 0;
                self.counted = self.at + 1;
            }
            Some(b'"') => return self.string(offset),
            _ => {}
        }
        self.at += 1;
    }

    fn string(&mut self, offset: usize) {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start + 1;
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let end = end.saturating_add(1).min(bytes.len());
        if let Some(Frame::Member(name @ None)) = self.frames.last_mut()
            && end <= offset
        {
            let quoted = self.text.get(start..end).unwrap_or_default();
            *name = Some(serde_json::from_str(quoted).unwrap_or_default());
        }
        self.at = end.min(offset);
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for frame in &self.frames {
            match frame {
                Frame::Element(index) => {
                    pointer.push('/');
                    pointer.push_str(&index.to_string());
                }
                Frame::Member(Some(name)) => push_token(&mut pointer, name),
                Frame::Member(None) => {}
            }
        }
        pointer
    }
}

/// Appends one reference token, escaped by RFC 6901.
pub(crate) fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(text: &str, needle: &str) -> (String, usize, usize) {
        let place = locate(text, text.find(needle).unwrap());
        (place.pointer, place.position.line, place.position.column)
    }

    #[test]
    fn finds_values_by_their_first_byte() {
        let text = "{\n \"a/b\": [1, {\"ü~\": \"x\"}],\n \"é\": 7, \"é2\": 8}";
        assert_eq!(pointer(text, "1,"), ("/a~1b/0".into(), 2, 10));
        assert_eq!(pointer(text, "\"x\""), ("/a~1b/1/ü~0".into(), 2, 20));
        assert_eq!(pointer(text, "{\"ü"), ("/a~1b/1".into(), 2, 13));
        assert_eq!(pointer(text, "7"), ("/é".into(), 3, 7));
        assert_eq!(pointer(text, "8"), ("/é2".into(), 3, 16));
        let mut walker = Walker::new(text);
        let columns = ["1,", "\"x\"", "\"x\"", "7", "8"]
            .map(|needle| walker.place(text.find(needle).unwrap()).position.column);
        assert_eq!(columns, [10, 20, 20, 7, 16]);
        assert_eq!(locate(text, 0).pointer, "");
        assert_eq!(locate("{\"a\":\"", 999).pointer, "/a");
        assert_eq!(locate("{\"a\"7}", 4).pointer, "/a");
    }
}
