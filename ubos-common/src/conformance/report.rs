//! What a run of a kit came to: as a table, as JSON, as JUnit.

use core::fmt;

use super::{Case, Protocol, Reach, Verdict};
use crate::json::{MemberWriter, Write};
use crate::violation::OneLine;

/// What one case came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The clause.
    pub clause: &'static str,
    /// The case.
    pub name: &'static str,
    /// How it reached the peer.
    pub reach: Reach,
    /// What its judge said.
    pub verdict: Verdict,
}

impl Outcome {
    pub(super) const fn new<P: Protocol>(case: &Case<P>, verdict: Verdict) -> Self {
        Self {
            clause: case.clause,
            name: case.name,
            reach: case.reach,
            verdict,
        }
    }
}

/// The verdicts of a run, in the order of the kit. Displays as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConformanceReport {
    outcomes: Vec<Outcome>,
    floor: usize,
}

impl ConformanceReport {
    pub(super) const fn new(floor: usize) -> Self {
        Self {
            outcomes: Vec::new(),
            floor,
        }
    }

    pub(super) fn push(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// The outcomes, in the order of the kit.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Cases that really judged the peer: those that passed and those that failed.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.passed() + self.failed()
    }

    /// Cases that passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|o| o.verdict == Verdict::Pass)
            .count()
    }

    /// Cases that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.outcomes.iter().filter(|o| o.verdict.is_fail()).count()
    }

    /// Whether nothing failed and at least the floor was really judged.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        self.failed() == 0 && self.judged() >= self.floor
    }

    /// The report in the form that continuous integration reads.
    #[must_use]
    pub fn to_junit(&self, suite: &str) -> String {
        let skipped = self.outcomes.len() - self.judged();
        let missed = usize::from(self.judged() < self.floor);
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{skipped}\">\n",
            escape(suite),
            self.outcomes.len() + missed,
            self.failed() + missed,
        );
        for outcome in &self.outcomes {
            let (clause, name) = (escape(outcome.clause), escape(outcome.name));
            let inner = match &outcome.verdict {
                Verdict::Pass => String::new(),
                Verdict::Fail { place, seen } => {
                    format!("<failure message=\"{}: {}\"/>", escape(place), escape(seen))
                }
                Verdict::NotApplicable { why } => format!("<skipped message=\"{}\"/>", escape(why)),
            };
            xml +=
                &format!("  <testcase classname=\"{clause}\" name=\"{name}\">{inner}</testcase>\n");
        }
        if missed > 0 {
            let (judged, floor) = (self.judged(), self.floor);
            xml += &format!(
                "  <testcase classname=\"floor\" name=\"cases judged\"><failure message=\"{judged} judged, {floor} wanted\"/></testcase>\n"
            );
        }
        xml + "</testsuite>\n"
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .outcomes
            .iter()
            .map(|o| o.clause.len())
            .max()
            .unwrap_or(0);
        for outcome in &self.outcomes {
            let Outcome {
                clause,
                name,
                verdict,
                ..
            } = outcome;
            write!(f, "{:<14}  {clause:<width$}  {name}", verdict.as_str())?;
            match verdict {
                Verdict::Pass => writeln!(f)?,
                Verdict::Fail { place, seen } => {
                    writeln!(f, " ({}: {})", OneLine(place), OneLine(seen))?;
                }
                Verdict::NotApplicable { why } => writeln!(f, " ({})", OneLine(why))?,
            }
        }
        let (judged, passed, failed) = (self.judged(), self.passed(), self.failed());
        write!(
            f,
            "{passed} passed, {failed} failed, {} not applicable",
            self.outcomes.len() - judged
        )?;
        if judged < self.floor {
            write!(f, "; only {judged} judged where {} are wanted", self.floor)?;
        }
        Ok(())
    }
}

impl Write for ConformanceReport {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("conformant", &self.is_conformant());
        object.member("judged", &self.judged());
        object.member("passed", &self.passed());
        object.member("failed", &self.failed());
        object.member("floor", &self.floor);
        object.member("cases", &self.outcomes);
        object.end();
    }
}

impl Write for Outcome {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("clause", self.clause);
        object.member("name", self.name);
        object.member("reach", self.reach.as_str());
        object.member("verdict", self.verdict.as_str());
        match &self.verdict {
            Verdict::Pass => {}
            Verdict::Fail { place, seen } => {
                object.member("place", place);
                object.member("seen", seen);
            }
            Verdict::NotApplicable { why } => object.member("why", why),
        }
        object.end();
    }
}

/// Text for XML; control characters and others that XML cannot say become the replacement character.
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
                out.push(char::REPLACEMENT_CHARACTER)
            }
            c => out.push(c),
        }
    }
    out
}
