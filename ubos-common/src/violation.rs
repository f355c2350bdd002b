//! Findings: which rule a message breaks, where, and how much that matters.

use core::fmt;
use std::borrow::Cow;

use crate::json::Position;
use crate::json::{MemberWriter, Write};

/// How strictly messages are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// exhaustive: a judge that knows a third profile is another judge
pub enum Profile {
    /// Every MUST binds.
    #[default]
    Strict,
    /// Reads what can be understood, and names what it let pass.
    Lenient,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// exhaustive: the three levels of the clause registers
pub enum Level {
    /// The message is invalid.
    Must,
    /// The specification recommends otherwise.
    Should,
    /// Worth knowing.
    Advice,
}

impl Level {
    /// `MUST`, `SHOULD` or `ADVICE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Advice => "ADVICE",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One finding about a message.
///
/// Messages name rules, types and bounds. They show a value only where a rule asks for that and the member
/// is not marked secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The value, as an RFC 6901 pointer; empty for the whole document.
    pub pointer: String,
    /// A short stable name of what is wrong.
    pub code: Cow<'static, str>,
    /// The clause that is broken.
    pub clause: Cow<'static, str>,
    /// How much it matters.
    pub level: Level,
    /// What was wanted and what was seen.
    pub message: Cow<'static, str>,
    /// Line and column of the value, where the text is at hand.
    pub position: Option<Position>,
}

impl Violation {
    /// A finding without a position.
    #[must_use]
    pub fn new(
        pointer: impl Into<String>,
        code: impl Into<Cow<'static, str>>,
        clause: impl Into<Cow<'static, str>>,
        level: Level,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code: code.into(),
            clause: clause.into(),
            level,
            message: message.into(),
            position: None,
        }
    }

    /// Adds line and column.
    #[must_use]
    pub const fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() {
            "/"
        } else {
            &self.pointer
        };
        write!(
            f,
            "{} {}: {} [{}",
            self.level,
            OneLine(pointer),
            OneLine(&self.message),
            self.code
        )?;
        if !self.clause.is_empty() {
            write!(f, ", {}", self.clause)?;
        }
        if let Some(position) = self.position {
            write!(f, ", {position}")?;
        }
        f.write_str("]")
    }
}

/// A text that may come from a peer, in a list for people: control characters are shown as escapes, so that
/// it begins no line of its own and drives no terminal.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        self.0.chars().try_for_each(|c| {
            if c.is_control() {
                write!(f, "{}", c.escape_default())
            } else {
                f.write_char(c)
            }
        })
    }
}

/// A JSON pointer in a message for people: quoted, and the top of a document by name.
///
/// ```
/// use ubos_common::violation::PointerText;
///
/// assert_eq!(format!("at {}, at {}", PointerText("/plan/0"), PointerText("")), r#"at "/plan/0", at the top"#);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PointerText<'a>(pub &'a str);

impl fmt::Display for PointerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str("the top"),
            pointer => write!(f, "{pointer:?}"),
        }
    }
}

impl Write for Violation {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("pointer", &self.pointer);
        object.member("code", &self.code);
        object.member("clause", &self.clause);
        object.member("level", self.level.as_str());
        object.member("message", &self.message);
        object.end();
    }
}

impl serde::Serialize for Violation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut object = serializer.serialize_struct("Violation", 5)?;
        object.serialize_field("pointer", &self.pointer)?;
        object.serialize_field("code", &self.code)?;
        object.serialize_field("clause", &self.clause)?;
        object.serialize_field("level", self.level.as_str())?;
        object.serialize_field("message", &self.message)?;
        object.end()
    }
}

/// All findings about one message, in the order of the document.
///
/// Displays as a list, one finding a line; [`Write`] and serde give a JSON array, in which a last finding
/// with the code `unlisted` stands for those past the limit.
///
/// ```
/// use ubos_common::violation::{Level, Report, Violation};
///
/// let mut report = Report::default();
/// report.push(Violation::new("/status", "bad_value", "SAP-4.2-2", Level::Must, "one of the seven words wanted"));
/// assert!(!report.is_valid());
/// assert_eq!(report.to_string(), "MUST /status: one of the seven words wanted [bad_value, SAP-4.2-2]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    findings: Vec<Violation>,
    unlisted: usize,
    /// Whether one of the unlisted breaks a MUST.
    refused_unlisted: bool,
}

impl Report {
    /// Whether no MUST is broken.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.refused_unlisted && self.findings.iter().all(|f| f.level != Level::Must)
    }

    /// Whether there is no finding of any level.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.unlisted == 0
    }

    /// Findings that are listed.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.findings.len()
    }

    /// Findings past the limit, which were counted and not listed. Those that break a MUST make the message
    /// invalid all the same.
    #[must_use]
    pub const fn unlisted(&self) -> usize {
        self.unlisted
    }

    /// The findings.
    pub fn iter(&self) -> core::slice::Iter<'_, Violation> {
        self.findings.iter()
    }

    /// Adds a finding.
    pub fn push(&mut self, finding: Violation) {
        self.findings.push(finding);
    }

    /// Changes each finding, and keeps the count of those past the limit.
    #[must_use]
    pub fn map(mut self, change: impl FnMut(Violation) -> Violation) -> Self {
        self.findings = self.findings.into_iter().map(change).collect();
        self
    }

    /// Puts the findings into the order of a key.
    #[must_use]
    pub fn sorted_by_key<K: Ord>(mut self, key: impl FnMut(&Violation) -> K) -> Self {
        self.findings.sort_by_cached_key(key);
        self
    }

    /// Adds the findings of a part that stands at `pointer` in the whole.
    pub fn extend_under(&mut self, pointer: &str, part: Self) {
        self.unlisted += part.unlisted;
        self.refused_unlisted |= part.refused_unlisted;
        self.findings
            .extend(part.findings.into_iter().map(|mut finding| {
                finding.pointer.insert_str(0, pointer);
                finding.position = None;
                finding
            }));
    }

    /// The finding that stands for the unlisted ones where a machine reads the list.
    fn remainder(&self) -> Option<Violation> {
        let level = if self.refused_unlisted {
            Level::Must
        } else {
            Level::Advice
        };
        let message = format!("{} more findings", self.unlisted);
        (self.unlisted > 0).then(|| Violation::new("", "unlisted", "", level, message))
    }

    pub(crate) const fn count_unlisted(&mut self, more: usize, refused: bool) {
        self.unlisted += more;
        self.refused_unlisted |= refused;
    }
}

impl<'a> IntoIterator for &'a Report {
    type Item = &'a Violation;
    type IntoIter = core::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, finding) in self.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{finding}")?;
        }
        if self.unlisted > 0 {
            let and = if self.findings.is_empty() {
                ""
            } else {
                "\nand "
            };
            write!(f, "{and}{} more", self.unlisted)?;
        }
        Ok(())
    }
}

impl Write for Report {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (n, finding) in self.iter().chain(&self.remainder()).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            finding.write(out);
        }
        out.push(b']');
    }
}

impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().chain(&self.remainder()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_makes_no_second_line() {
        let mut report = Report::default();
        let pointer = "/a\nMUST /b: forged\u{1b}[2K";
        report.push(Violation::new(
            pointer,
            "code",
            "C-1",
            Level::Must,
            "wanted",
        ));
        assert_eq!(
            report.to_string(),
            "MUST /a\\nMUST /b: forged\\u{1b}[2K: wanted [code, C-1]"
        );
    }

    #[test]
    fn a_list_of_nothing_but_a_count_is_one_line() {
        let mut report = Report::default();
        report.count_unlisted(2, false);
        assert_eq!(report.to_string(), "2 more");
    }

    #[test]
    fn changing_findings_keeps_the_count_of_the_unlisted() {
        let mut report = Report::default();
        for pointer in ["/b", "/a"] {
            report.push(Violation::new(pointer, "x", "C-1", Level::Should, "w"));
        }
        report.count_unlisted(3, true);
        let changed = report.map(|mut finding| {
            finding.code = "y".into();
            finding
        });
        let sorted = changed.sorted_by_key(|finding| finding.pointer.clone());
        assert_eq!((sorted.unlisted(), sorted.is_valid()), (3, false));
        let seen: Vec<_> = sorted
            .iter()
            .map(|f| (f.pointer.as_str(), f.code.as_ref()))
            .collect();
        assert_eq!(seen, [("/a", "y"), ("/b", "y")]);
    }

    #[test]
    fn the_json_says_that_there_are_more() {
        let mut report = Report::default();
        report.push(Violation::new("/a", "code", "C-1", Level::Should, "wanted"));
        assert_eq!(crate::json::to_string(&report).matches("level").count(), 1);
        report.count_unlisted(2, true);
        let written = crate::json::to_string(&report);
        let more = r#"{"pointer":"","code":"unlisted","clause":"","level":"MUST","message":"2 more findings"}]"#;
        assert!(written.ends_with(more), "{written}");
        assert_eq!(serde_json::to_string(&report).unwrap(), written);
        let mut advice = Report::default();
        advice.count_unlisted(1, false);
        assert!(crate::json::to_string(&advice).contains("ADVICE"));
    }

    #[test]
    fn findings_of_a_part_stand_under_its_place() {
        let finding =
            |pointer: &str| Violation::new(pointer, "code", "C-1", Level::Should, "wanted");
        let (mut whole, mut part) = (Report::default(), Report::default());
        whole.push(finding("/first"));
        part.push(finding("/name"));
        part.count_unlisted(3, true);
        whole.extend_under("/parts/0", part);
        let lines = whole.to_string();
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "SHOULD /first: wanted [code, C-1]",
                "SHOULD /parts/0/name: wanted [code, C-1]",
                "and 3 more"
            ]
        );
        assert!(!whole.is_valid(), "one of the three breaks a MUST");
    }
}
