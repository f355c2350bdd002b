//! The levels of section 14, and the log of the middleware.

use core::fmt;

use crate::{Judge, Report, Verdict};
use ubos_common::json::{MemberWriter, Write};

use super::recording::RecordedLine;

/// A level of conformance.
///
/// Spec: UAP-1.1 14.1
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Agents, their calls, states and the loop.
    Core,
    /// React, plan, custom strategies, no limits by default.
    AdvancedExecution,
    /// Branches and their history; optional.
    ThreadTrees,
    /// Middleware.
    Middleware,
}

impl Level {
    /// All levels, in the order of the specification.
    pub const ALL: [Self; 4] = [
        Self::Core,
        Self::AdvancedExecution,
        Self::ThreadTrees,
        Self::Middleware,
    ];

    /// The name in the specification.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "Core",
            Self::AdvancedExecution => "Advanced Execution",
            Self::ThreadTrees => "Thread Trees",
            Self::Middleware => "Middleware",
        }
    }

    /// Whether every implementation must reach it.
    #[must_use]
    pub const fn is_required(self) -> bool {
        !matches!(self, Self::ThreadTrees)
    }

    /// The level that a clause belongs to.
    #[must_use]
    pub fn of_clause(clause: &str) -> Self {
        match clause {
            "UAP-5-3" | "UAP-5-4" | "UAP-5-5" | "UAP-5-6" | "UAP-5-7" | "UAP-5-8" | "UAP-2-1"
            | "UAP-2-3" => Self::AdvancedExecution,
            _ if clause.starts_with("UAP-7-") => Self::ThreadTrees,
            _ if clause.starts_with("UAP-9-") => Self::Middleware,
            _ => Self::Core,
        }
    }
}

/// The results of the cases of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelReport {
    /// The level.
    pub level: Level,
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
}

impl LevelReport {
    /// Whether something was judged, and nothing failed.
    #[must_use]
    pub const fn is_conformant(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    /// `conforms`, `does not conform` or `not judged`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match (self.passed, self.failed) {
            (0, 0) => "not judged",
            (_, 0) => "conforms",
            _ => "does not conform",
        }
    }
}

impl fmt::Display for LevelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let required = if self.level.is_required() {
            "required"
        } else {
            "optional"
        };
        let (level, verdict) = (self.level.as_str(), self.as_str());
        let (passed, failed) = (self.passed, self.failed);
        write!(
            f,
            "{level} ({required}): {verdict}, {passed} passed, {failed} failed"
        )
    }
}

impl Write for LevelReport {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("level", self.level.as_str());
        object.member("required", &self.level.is_required());
        object.member("verdict", self.as_str());
        object.member("passed", &self.passed);
        object.member("failed", &self.failed);
        object.end();
    }
}

/// Adds up reports by level, in the order of the specification.
#[must_use]
pub fn levels<'a>(reports: impl IntoIterator<Item = &'a Report>) -> [LevelReport; 4] {
    let mut levels = Level::ALL.map(|level| LevelReport {
        level,
        passed: 0,
        failed: 0,
    });
    for outcome in reports.into_iter().flat_map(Report::outcomes) {
        let level = Level::of_clause(outcome.clause);
        let own = levels.iter_mut().filter(|report| report.level == level);
        own.for_each(|report| match outcome.verdict {
            Verdict::Pass => report.passed += 1,
            Verdict::Fail { .. } => report.failed += 1,
            Verdict::NotApplicable { .. } | Verdict::Unknown { .. } => {}
        });
    }
    levels
}

/// Each run has a line for its start and one for its end, in the form of the logging middleware.
#[derive(Default)]
pub(super) struct Logging {
    lines: usize,
    seen: usize,
    open: Option<usize>,
    /// Whether the last line reports a success: an outer layer may still fail.
    has_completed: bool,
    /// Whether the starts of runs are logged: at a higher level only failures are.
    tells_beginnings: bool,
    /// The first failure of a run whose start was not logged.
    without_beginning: Option<usize>,
    fault: Option<(usize, String)>,
}

/// What a line of a log reports about a run.
#[derive(Clone, Copy)]
enum LoggedStep {
    Started,
    Completed,
    Failed,
}

impl LoggedStep {
    /// The first word decides: the text of an error comes after it.
    fn of(text: &str) -> Option<Self> {
        let forms = [
            ("Execution started", Self::Started),
            ("Execution completed", Self::Completed),
            ("Execution failed", Self::Failed),
        ];
        let places = forms.map(|(form, said)| Some((text.find(form)?, said)));
        let first = places.into_iter().flatten().min_by_key(|(place, _)| *place);
        first.map(|(_, said)| said)
    }
}

impl Judge<RecordedLine> for Logging {
    fn see(&mut self, line: &RecordedLine) {
        self.lines += 1;
        let RecordedLine::Log(text) = line else {
            return;
        };
        self.seen += 1;
        let at = self.lines;
        let mut refuse = |at, why: &str| {
            self.fault.get_or_insert_with(|| (at, why.to_owned()));
        };
        let forms = ["[UAP:DEBUG] ", "[UAP:INFO] ", "[UAP:WARN] ", "[UAP:ERROR] "];
        let Some(form) = forms.into_iter().find(|form| text.starts_with(form)) else {
            return refuse(at, "a line without [UAP:LEVEL] at its beginning");
        };
        // Lines for who looks for bugs hold what was said.
        let said = LoggedStep::of(text).filter(|_| form != "[UAP:DEBUG] ");
        self.tells_beginnings |= form == "[UAP:INFO] ";
        let had_completed = core::mem::take(&mut self.has_completed);
        let level = match said {
            None => return self.has_completed = had_completed,
            Some(LoggedStep::Started) => {
                if let Some(open) = self.open.replace(at) {
                    refuse(open, "a run that began has no line at its end");
                }
                return;
            }
            Some(LoggedStep::Completed) => {
                self.has_completed = true;
                if !text.contains("tokens=") {
                    refuse(at, "a run that ended well without tokens=");
                }
                "[UAP:INFO] "
            }
            Some(LoggedStep::Failed) => "[UAP:ERROR] ",
        };
        if form != level {
            refuse(at, "an end at another level than its own");
        }
        let may_follow = had_completed && matches!(said, Some(LoggedStep::Failed));
        if self.open.take().is_none() && !may_follow {
            self.without_beginning.get_or_insert(at);
        }
    }

    fn verdict(&mut self) -> Verdict {
        let open = self
            .open
            .map(|at| (at, "a run that began has no line at its end".to_owned()));
        let unbegun = self.without_beginning.filter(|_| self.tells_beginnings);
        let unbegun = unbegun.map(|at| {
            (
                at,
                "a run that ended had no line at its beginning".to_owned(),
            )
        });
        match self.fault.take().or(unbegun).or(open) {
            Some((at, why)) => Verdict::fail(format!("line {at}"), why),
            None if self.seen == 0 => Verdict::not_applicable("no line of a log"),
            None => Verdict::Pass,
        }
    }
}
