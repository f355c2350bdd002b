//! The sections of the report, in Markdown.

use std::fmt::Write as _;

use super::findings::Findings;
use super::fleet::Check;
use super::scan::{Count, Note};

/// Sections by name, in the order of the report.
pub const SECTIONS: [&str; 6] = [
    "summary",
    "languages",
    "largest",
    "notes",
    "duplicates",
    "secrets",
];

/// Entries of a list that a section shows.
const SHOWN: usize = 10;

/// Writes one section; `None` for a name that is none.
#[must_use]
pub fn section(name: &str, findings: &Findings, check: &Check) -> Option<String> {
    Some(match name {
        "summary" => summary(findings, check),
        "languages" => languages(findings),
        "largest" => largest(findings),
        "notes" => places(
            "Notes",
            "No TODO or FIXME.",
            &findings.notes,
            findings.more_notes,
        ),
        "duplicates" => duplicates(findings),
        "secrets" => places(
            "Secrets",
            "Nothing that looks like a secret.",
            &findings.secrets,
            findings.more_secrets,
        ),
        _ => return None,
    })
}

fn summary(findings: &Findings, check: &Check) -> String {
    let figures = &findings.figures;
    let counted = Count {
        files: figures.files,
        lines: figures.lines,
        bytes: figures.bytes,
    };
    let checked = if check.count == counted {
        format!(
            "A second count by {} agents came to the same.",
            check.sessions
        )
    } else {
        let Count {
            files,
            lines,
            bytes,
        } = check.count;
        format!("**A second count came to {files} files, {lines} lines and {bytes} bytes.**")
    };
    let unreadable = match figures.unreadable.len() as u64 + figures.more_unreadable {
        0 => String::new(),
        n => format!(" {n} could not be read."),
    };
    format!(
        "# Audit\n\n{} files, {} lines, {} bytes.{unreadable} {checked}\n",
        figures.files, figures.lines, figures.bytes
    )
}

fn languages(findings: &Findings) -> String {
    let mut languages: Vec<_> = findings.figures.languages.iter().collect();
    languages.sort_by(|(a, x), (b, y)| y.bytes.cmp(&x.bytes).then_with(|| a.cmp(b)));
    let mut text =
        "## Languages\n\n| language | files | lines | bytes |\n|---|---:|---:|---:|\n".to_owned();
    for (name, counts) in languages {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} |",
            counts.files, counts.lines, counts.bytes
        );
    }
    text
}

fn largest(findings: &Findings) -> String {
    let mut text = "## Largest files\n\n".to_owned();
    if findings.largest.is_empty() {
        text.push_str("No files.\n");
    }
    for file in findings.largest.iter().take(SHOWN) {
        let _ = writeln!(text, "- {} ({} bytes)", code(&file.path), file.bytes);
    }
    text
}

fn places(title: &str, none: &str, places: &[Note], more: u64) -> String {
    let mut text = format!("## {title}\n\n");
    if places.is_empty() && more == 0 {
        let _ = writeln!(text, "{none}");
        return text;
    }
    for place in places.iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "- {} line {}: {}",
            code(&place.path),
            place.line,
            place.kind
        );
    }
    rest(&mut text, places.len(), more);
    text
}

fn duplicates(findings: &Findings) -> String {
    let mut text = "## Duplicates\n\n".to_owned();
    if findings.duplicates.is_empty() && findings.more_duplicates == 0 {
        text.push_str("No two files of equal content.\n");
        return text;
    }
    for group in findings.duplicates.iter().take(SHOWN) {
        let names: Vec<String> = group.iter().take(SHOWN).map(|path| code(path)).collect();
        let more = group.len().saturating_sub(SHOWN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let _ = writeln!(text, "- {}{more}", names.join(", "));
    }
    rest(
        &mut text,
        findings.duplicates.len(),
        findings.more_duplicates,
    );
    text
}

fn rest(text: &mut String, listed: usize, more: u64) {
    let unshown = listed.saturating_sub(SHOWN) as u64 + more;
    if unshown > 0 {
        let _ = writeln!(text, "- … and {unshown} more");
    }
}

/// A path as code: a name may hold back-ticks and line breaks, and must not write the report itself.
fn code(path: &str) -> String {
    let clean: String = path
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if clean.contains('`') {
        format!("`` {clean} ``")
    } else {
        format!("`{clean}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_is_written_and_lists_are_cut() {
        let notes = |n: u64| {
            (0..n)
                .map(|line| Note {
                    path: "a`b\nc".into(),
                    line,
                    kind: "TODO".into(),
                })
                .collect()
        };
        let findings = Findings {
            notes: notes(12),
            more_notes: 3,
            ..Findings::default()
        };
        let check = Check::default();
        for name in SECTIONS {
            assert!(
                section(name, &findings, &check).unwrap().starts_with('#'),
                "{name}"
            );
        }
        let text = section("notes", &findings, &check).unwrap();
        assert!(
            text.contains("and 5 more") && text.contains("`` a`b\u{fffd}c ``"),
            "{text}"
        );
        assert!(section("other", &findings, &check).is_none());
        let differs = Check {
            count: Count {
                files: 9,
                ..Count::default()
            },
            sessions: 2,
        };
        assert!(
            section("summary", &findings, &differs)
                .unwrap()
                .contains("**A second count")
        );
    }
}
