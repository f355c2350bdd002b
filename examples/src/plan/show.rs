//! Findings for people and for programs.

use std::fmt::Write as _;

use sacp::check::Repair;
use sacp::{Source, Span};
use ubos_common::json::MemberWriter;
use ubos_common::violation::Violation;

/// A finding with its source line, the value underlined, and what would mend it.
#[must_use]
pub fn finding(
    file: &str,
    source: Source<'_>,
    violation: &Violation,
    repairs: &[Repair],
) -> String {
    // A display of a violation is one line, whatever stands in the message.
    let mut text = format!("{violation}\n");
    let span = source.span(&violation.pointer);
    if let Some(span) = span {
        excerpt(&mut text, file, source, span);
    }
    for (n, repair) in repairs.iter().enumerate() {
        let _ = writeln!(text, "  {}. {}", n + 1, plain(&repair.to_string()));
    }
    text
}

fn excerpt(text: &mut String, file: &str, source: Source<'_>, span: Span) {
    /// Characters of a line that are shown, and how many of them before the value.
    const SHOWN: usize = 100;
    const BEFORE: usize = 30;
    let (line, column) = (span.position.line, span.position.column);
    let start = if column > SHOWN - BEFORE {
        column - 1 - BEFORE
    } else {
        0
    };
    let shown: String = source.line(span).chars().skip(start).take(SHOWN).collect();
    let offset = column - 1 - start;
    let rest = shown.chars().count().saturating_sub(offset).max(1);
    let marked = source
        .text(span)
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .count();
    let number = line.to_string();
    let gap = " ".repeat(number.len());
    let _ = writeln!(text, "{gap} --> {}:{line}:{column}", plain(file));
    let _ = writeln!(text, "{number} | {}", plain(&shown));
    let _ = writeln!(
        text,
        "{gap} | {}{}",
        " ".repeat(offset),
        "^".repeat(marked.clamp(1, rest))
    );
}

/// A text that drives no terminal and keeps its length.
fn plain(text: &str) -> String {
    let safe = |c: char| if c.is_control() { '\u{b7}' } else { c };
    text.chars().map(safe).collect()
}

/// A finding as one JSON line.
#[must_use]
pub fn json_line(source: Source<'_>, violation: &Violation, repairs: &[Repair]) -> Vec<u8> {
    let mut line = Vec::new();
    let mut object = MemberWriter::begin(&mut line);
    object.member("pointer", &violation.pointer);
    object.member("code", &violation.code);
    object.member("clause", &violation.clause);
    object.member("level", violation.level.as_str());
    object.member("message", &violation.message);
    if let Some(span) = source.span(&violation.pointer) {
        object.member("line", &span.position.line);
        object.member("column", &span.position.column);
    }
    if !repairs.is_empty() {
        object.member("repairs", repairs);
    }
    object.end();
    line.push(b'\n');
    line
}
