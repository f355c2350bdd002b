//! Positions of values in a text, for findings that are made after the text was read.
//!
//! Reading a message records no positions. To show a finding, the text is walked once more, for all pointers
//! together.

use std::collections::BTreeMap;

use ubos_common::json::{Fault, Kind, Limits, Position, Reader};
use ubos_common::violation::{Profile, Report};

/// The bytes of a value, and their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Its first byte.
    pub start: usize,
    /// The end: one past its last byte.
    pub end: usize,
    /// Line and column of its first character.
    pub position: Position,
}

/// The text of a message.
///
/// ```
/// use sacp::Source;
///
/// let source = Source::new("{\"g\":\"X\",\n \"plan\":[[\"a\",\"T\",{}]]}");
/// let span = source.span("/plan/0/1").unwrap();
/// assert_eq!((source.text(span), span.position.line, span.position.column), ("\"T\"", 2, 15));
/// // Of a member that is not there, the object that lacks it.
/// assert_eq!(source.span("/plan/0/2/city").map(|span| source.text(span)), Some("{}"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    text: &'a str,
}

impl<'a> Source<'a> {
    /// A text, valid or not.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// The bytes of a span.
    #[must_use]
    pub fn text(&self, span: Span) -> &'a str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// The line that a span begins in, without its line end.
    #[must_use]
    pub fn line(&self, span: Span) -> &'a str {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.text.get(begin..).unwrap_or_default();
        rest.lines().next().unwrap_or_default()
    }

    /// The span of the value that a pointer names, or of its nearest ancestor that exists.
    #[must_use]
    pub fn span(&self, pointer: &str) -> Option<Span> {
        self.spans([pointer]).remove(pointer)
    }

    /// As [`Source::span`] for many pointers, in one walk.
    #[must_use]
    pub fn spans<'p>(
        &self,
        pointers: impl IntoIterator<Item = &'p str>,
    ) -> BTreeMap<&'p str, Span> {
        let mut wanted: Vec<Wanted<'p>> = pointers.into_iter().map(Wanted::new).collect();
        let limits = Limits::default();
        let Ok(mut reader) = Reader::new(self.text.as_bytes(), &limits, Profile::Strict) else {
            return BTreeMap::new();
        };
        let all: Vec<usize> = (0..wanted.len()).collect();
        // Values before a fault in the text have been found.
        let _ = visit(&mut reader, &mut wanted, &all, 0);
        let mut found: Vec<(&str, (usize, usize))> = wanted
            .iter()
            .filter_map(|w| Some((w.pointer, w.found?)))
            .collect();
        found.sort_by_key(|(_, (start, _))| *start);
        let mut places = Places::new(self.text);
        found
            .into_iter()
            .map(|(pointer, (start, end))| {
                let position = places.at(start);
                (
                    pointer,
                    Span {
                        start,
                        end,
                        position,
                    },
                )
            })
            .collect()
    }

    /// Sets the position of each finding, and sorts them by it.
    pub(crate) fn place(&self, report: Report) -> Report {
        let pointers: Vec<String> = report.iter().map(|f| f.pointer.clone()).collect();
        let spans = self.spans(pointers.iter().map(String::as_str));
        let placed = report.map(|finding| match spans.get(finding.pointer.as_str()) {
            Some(span) => finding.at(span.position),
            None => finding,
        });
        placed.sorted_by_key(|finding| finding.position)
    }
}

/// A pointer to find.
struct Wanted<'p> {
    pointer: &'p str,
    tokens: Vec<String>,
    found: Option<(usize, usize)>,
}

impl<'p> Wanted<'p> {
    fn new(pointer: &'p str) -> Self {
        let tokens = pointer.split('/').skip(1);
        Self {
            pointer,
            tokens: tokens
                .map(|t| t.replace("~1", "/").replace("~0", "~"))
                .collect(),
            found: None,
        }
    }
}

/// Walks a value at a depth of tokens, and finds the pointers of `here` in it.
fn visit(
    reader: &mut Reader<'_>,
    wanted: &mut [Wanted<'_>],
    here: &[usize],
    depth: usize,
) -> Result<(), Fault> {
    let start = reader.offset();
    let mut below: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for n in here {
        let token = wanted.get(*n).and_then(|w| w.tokens.get(depth));
        if let Some(token) = token {
            below.entry(token.clone()).or_default().push(*n);
        }
    }
    let kind = reader.peek()?;
    match kind {
        Kind::Object if !below.is_empty() => {
            reader.object(|reader, name| match below.get(name.as_ref()) {
                Some(inner) => visit(reader, wanted, inner, depth + 1),
                None => reader.skip(),
            })?
        }
        Kind::Array if !below.is_empty() => {
            let by_index: BTreeMap<usize, &Vec<usize>> = below
                .iter()
                .filter_map(|(token, inner)| Some((token.parse().ok()?, inner)))
                .collect();
            reader.array(|reader, index| match by_index.get(&index) {
                Some(inner) => visit(reader, wanted, inner, depth + 1),
                None => reader.skip(),
            })?;
        }
        _ => reader.skip()?,
    }
    let end = reader.offset_here();
    for n in here {
        if let Some(w) = wanted.get_mut(*n) {
            // The deepest value on the path remains.
            w.found.get_or_insert((start, end));
        }
    }
    Ok(())
}

/// Lines and columns of ascending offsets.
struct Places<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    column: usize,
}

impl<'a> Places<'a> {
    const fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
            column: 1,
        }
    }

    fn at(&mut self, offset: usize) -> Position {
        for c in self.text.get(self.at..offset).unwrap_or_default().chars() {
            if c == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.at = self.at.max(offset);
        Position::new(self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ubos_common::violation::{Level, Violation};

    const TEXT: &str = "{\"g\":\"é\",\"a/b~\":[1,{\"x\":[true]}],\n\"plan\":[]}";

    #[test]
    fn values_are_found_by_pointer_in_one_walk() {
        let source = Source::new(TEXT);
        let spans = source.spans(["/a~1b~0/1/x/0", "/plan", "", "/a~1b~0/0", "/no/where"]);
        let text = |pointer| source.text(spans[pointer]);
        assert_eq!(text("/a~1b~0/1/x/0"), "true");
        assert_eq!(
            (text("/plan"), spans["/plan"].position),
            ("[]", Position::new(2, 8))
        );
        assert_eq!(text("/a~1b~0/0"), "1");
        assert_eq!(text("/no/where"), TEXT);
        assert_eq!(spans["/a~1b~0/0"].position, Position::new(1, 18));
        assert_eq!(source.line(spans["/plan"]), "\"plan\":[]}");
    }

    #[test]
    fn findings_get_places_and_the_order_of_the_text() {
        let mut report = Report::default();
        for pointer in ["/plan", "/a~1b~0/1", "/g"] {
            report.push(Violation::new(pointer, "x", "C-1", Level::Must, "w"));
        }
        let placed = Source::new(TEXT).place(report);
        let pointers: Vec<_> = placed.iter().map(|f| f.pointer.as_str()).collect();
        assert_eq!(pointers, ["/g", "/a~1b~0/1", "/plan"]);
        assert!(placed.iter().all(|f| f.position.is_some()));
    }

    #[test]
    fn a_text_that_breaks_off_gives_what_stood_before() {
        let source = Source::new("{\"g\":\"G\",\"plan\":[");
        assert_eq!(
            source.span("/g").map(|span| source.text(span)),
            Some("\"G\"")
        );
        assert_eq!(Source::new("").span("/g"), None);
    }
}
