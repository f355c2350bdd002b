//! The report for people.

use core::fmt;

use ubos_common::violation::OneLine;

use super::{CaseOutcome, Report};
use crate::case::Verdict;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.outcomes.iter().map(|outcome| outcome.clause.len());
        let width = width.max().unwrap_or(0);
        for outcome in &self.outcomes {
            write_case(f, outcome, width)?;
        }
        let (judged, passed, failed) = (self.judged(), self.passed(), self.failed());
        for (clause, why) in self.out_of_reach() {
            writeln!(
                f,
                "{:<14}  {clause:<width$}  {}",
                "out of reach",
                OneLine(why)
            )?;
        }
        for outcome in self.unexpected_passes() {
            let name = outcome.name;
            writeln!(
                f,
                "the known failure {name:?} passes: remove it from the expectations"
            )?;
        }
        for (_, problem) in self.problems() {
            writeln!(f, "{problem}")?;
        }
        let known =
            self.count(|outcome| outcome.verdict.is_fail() && outcome.known_failure.is_some());
        write!(f, "{passed} passed, {failed} failed")?;
        if known > 0 {
            write!(f, " ({known} known)")?;
        }
        let unknown = self.count(|outcome| matches!(outcome.verdict, Verdict::Unknown { .. }));
        write!(
            f,
            ", {} not applicable",
            self.outcomes.len() - judged - unknown
        )?;
        if unknown > 0 {
            write!(f, ", {unknown} unknown to the peer")?;
        }
        Ok(())
    }
}

fn write_case(f: &mut fmt::Formatter<'_>, outcome: &CaseOutcome, width: usize) -> fmt::Result {
    let CaseOutcome {
        clause,
        name,
        verdict,
        ..
    } = outcome;
    let word = match (&verdict, &outcome.known_failure) {
        (Verdict::Fail { .. }, Some(_)) => "known failure",
        _ => verdict.as_str(),
    };
    write!(f, "{word:<14}  {clause:<width$}  {name}")?;
    match verdict {
        Verdict::Pass => {}
        Verdict::Fail { place, seen } => write!(f, " ({}: {})", OneLine(place), OneLine(seen))?,
        Verdict::NotApplicable { why } => write!(f, " ({})", OneLine(why))?,
        Verdict::Unknown { what } => write!(f, " (the peer does not know {})", OneLine(what))?,
    }
    writeln!(f)?;
    if outcome.is_new_failure() {
        for line in &outcome.exchange {
            writeln!(f, "    | {}", OneLine(line))?;
        }
    }
    Ok(())
}
