//! The report for continuous integration.

use super::{CaseOutcome, Report};
use crate::case::Verdict;

impl Report {
    /// The report as a JUnit test suite. A known failure is a skipped test, and what else fails the run is a
    /// failed test of its own.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let problems = self.problems();
        let failures = self.count(CaseOutcome::is_new_failure) + problems.len();
        let skipped = self.count(|outcome| {
            !outcome.verdict.is_tested() || outcome.verdict.is_fail() && !outcome.is_new_failure()
        });
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">\n",
            escape(self.kit()),
            self.outcomes.len() + problems.len(),
        );
        for outcome in &self.outcomes {
            let (clause, name) = (escape(outcome.clause), escape(outcome.name));
            let inner = inner(outcome);
            xml +=
                &format!("  <testcase classname=\"{clause}\" name=\"{name}\">{inner}</testcase>\n");
        }
        for (name, problem) in problems {
            let problem = escape(&problem);
            xml += &format!(
                "  <testcase classname=\"run\" name=\"{name}\"><failure message=\"{problem}\"/></testcase>\n"
            );
        }
        xml + "</testsuite>\n"
    }
}

fn inner(outcome: &CaseOutcome) -> String {
    match (&outcome.verdict, &outcome.known_failure) {
        (Verdict::Pass, _) => String::new(),
        (Verdict::Fail { place, seen }, Some(why)) => {
            let message = format!("known failure ({why}): {place}: {seen}");
            format!("<skipped message=\"{}\"/>", escape(&message))
        }
        (Verdict::Fail { place, seen }, None) => {
            let exchange: String = outcome
                .exchange
                .iter()
                .map(|line| escape(line) + "\n")
                .collect();
            format!(
                "<failure message=\"{}: {}\">{exchange}</failure>",
                escape(place),
                escape(seen)
            )
        }
        (Verdict::NotApplicable { why }, _) => format!("<skipped message=\"{}\"/>", escape(why)),
        (Verdict::Unknown { what }, _) => {
            format!(
                "<skipped message=\"the peer does not know {}\"/>",
                escape(what)
            )
        }
    }
}

/// Text for XML; control characters and others that XML cannot hold become the replacement character.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            c => out.push(c),
        }
    }
    out
}
