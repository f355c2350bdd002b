//! The first fault of a recording.

use crate::Verdict;

/// The first fault, and the number of lines that were judged.
#[derive(Default)]
pub(super) struct FirstFault {
    line: usize,
    judged: usize,
    fault: Option<(usize, String)>,
}

impl FirstFault {
    /// Counts the next line.
    pub(super) const fn next(&mut self) {
        self.line += 1;
    }

    /// Counts something that was judged.
    pub(super) const fn look(&mut self) {
        self.judged += 1;
    }

    /// This line breaks the clause.
    pub(super) fn refuse(&mut self, why: impl Into<String>) {
        let line = self.line;
        self.fault.get_or_insert_with(|| (line, why.into()));
    }

    /// Notes the fault if this line breaks the clause.
    pub(super) fn refuse_if(&mut self, broken: bool, why: &str) {
        if broken {
            self.refuse(why);
        }
    }

    pub(super) fn verdict(&mut self, nothing: &str) -> Verdict {
        match self.fault.take() {
            Some((line, why)) => Verdict::fail(format!("line {line}"), why),
            None if self.judged == 0 => Verdict::not_applicable(nothing),
            None => Verdict::Pass,
        }
    }
}
