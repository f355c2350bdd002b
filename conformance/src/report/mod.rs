//! The result of a run: as a table, as JSON, as JUnit.

mod json;
mod junit;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::violation::Level;

use crate::case::{Case, Protocol, Reach, Verdict};
use crate::expectations::Expectations;

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaseOutcome {
    /// The clause.
    pub clause: &'static str,
    /// The case.
    pub name: &'static str,
    /// The level of the clause.
    pub level: Level,
    /// How the case reached the peer.
    pub reach: Reach,
    /// The verdict.
    pub verdict: Verdict,
    /// Why the peer is known to fail this case, where its author declared that.
    pub known_failure: Option<String>,
    /// The recorded exchange of a failed case, a line an entry; long ones are shortened.
    pub exchange: Vec<String>,
}

impl CaseOutcome {
    pub(crate) const fn new<P: Protocol>(
        case: &Case<P>,
        verdict: Verdict,
        exchange: Vec<String>,
    ) -> Self {
        Self {
            clause: case.clause(),
            name: case.name(),
            level: case.level(),
            reach: case.reach(),
            verdict,
            known_failure: None,
            exchange,
        }
    }

    /// Whether the case failed and was not known to.
    #[must_use]
    pub const fn is_new_failure(&self) -> bool {
        self.verdict.is_fail() && self.known_failure.is_none()
    }

    /// Whether the case passed though it is known to fail.
    #[must_use]
    pub fn is_unexpected_pass(&self) -> bool {
        self.verdict == Verdict::Pass && self.known_failure.is_some()
    }
}

/// The verdicts of a run, in the order of the kit. Displays as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    kit: &'static str,
    outcomes: Vec<CaseOutcome>,
    floor: usize,
    out_of_reach: BTreeMap<String, String>,
    known_failures: BTreeMap<String, String>,
    /// Names in the expectations that the kit does not have.
    strays: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        kit: &'static str,
        expectations: &Expectations,
        out_of_reach: &[(&str, &str)],
        cases: impl Iterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        let (names, clauses): (BTreeSet<_>, BTreeSet<_>) = cases.unzip();
        let of_kit = out_of_reach.iter().map(|&(clause, why)| (clause, why));
        let strays = expectations
            .known_failures()
            .filter(|(case, _)| !names.contains(case))
            .map(|(case, _)| case)
            .chain(
                expectations
                    .out_of_reach()
                    .filter(|(clause, _)| !clauses.contains(clause))
                    .map(|(clause, _)| clause),
            )
            .chain(expectations.supported_nowhere(&clauses));
        Self {
            kit,
            outcomes: Vec::new(),
            floor: expectations.floor(),
            strays: strays.map(ToOwned::to_owned).collect(),
            out_of_reach: of_kit
                .chain(expectations.out_of_reach())
                .map(|(clause, why)| (clause.to_owned(), why.to_owned()))
                .collect(),
            known_failures: expectations
                .known_failures()
                .map(|(case, why)| (case.to_owned(), why.to_owned()))
                .collect(),
        }
    }

    pub(crate) fn push(&mut self, mut outcome: CaseOutcome) {
        outcome.known_failure = self.known_failures.get(outcome.name).cloned();
        self.outcomes.push(outcome);
    }

    pub(crate) fn declare_out_of_reach(&mut self, clause: &str, why: &str) {
        self.out_of_reach
            .entry(clause.to_owned())
            .or_insert_with(|| why.to_owned());
    }

    /// What the kit is called.
    #[must_use]
    pub const fn kit(&self) -> &'static str {
        self.kit
    }

    /// The outcomes, in the order of the kit.
    #[must_use]
    pub fn outcomes(&self) -> &[CaseOutcome] {
        &self.outcomes
    }

    /// How many cases judged the peer: those that passed and those that failed.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.count(|outcome| outcome.verdict.is_tested())
    }

    /// How many cases passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|outcome| outcome.verdict == Verdict::Pass)
    }

    /// How many cases failed, known failures among them.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|outcome| outcome.verdict.is_fail())
    }

    fn count(&self, is: impl Fn(&CaseOutcome) -> bool) -> usize {
        self.outcomes.iter().filter(|outcome| is(outcome)).count()
    }

    /// Clauses of MUST level that no case tested, though neither the kit nor the peer's author declared
    /// them out of reach, the author supports them, and the peer did not answer that it does not know them.
    ///
    /// Cases that judge a recording do not count: a recording shows what it shows.
    #[must_use]
    pub fn untested(&self) -> Vec<&'static str> {
        let tested: BTreeSet<_> = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.verdict.is_tested())
            .map(|outcome| outcome.clause)
            .collect();
        let untested: BTreeSet<_> = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.level == Level::Must && outcome.reach != Reach::Trace)
            .filter(|outcome| matches!(outcome.verdict, Verdict::NotApplicable { .. }))
            .map(|outcome| outcome.clause)
            .filter(|clause| !tested.contains(clause) && !self.out_of_reach.contains_key(*clause))
            .collect();
        untested.into_iter().collect()
    }

    /// Clauses that are not tested, each with the reason that the kit or the peer's author gives.
    pub fn out_of_reach(&self) -> impl Iterator<Item = (&str, &str)> {
        self.out_of_reach
            .iter()
            .map(|(clause, why)| (clause.as_str(), why.as_str()))
    }

    /// Cases that passed though they are known to fail: the expectations are out of date.
    pub fn unexpected_passes(&self) -> impl Iterator<Item = &CaseOutcome> {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.is_unexpected_pass())
    }

    /// Names of cases and clauses in the expectations that the kit does not have.
    #[must_use]
    pub fn strays(&self) -> &[String] {
        &self.strays
    }

    /// Whether the peer conforms as far as it was tested: no case failed that is not known to fail, enough
    /// cases judged it, no MUST was left out in silence, and the expectations name only what there is.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        !self.outcomes.iter().any(CaseOutcome::is_new_failure) && self.problems().is_empty()
    }

    /// Why the run fails, apart from the cases that failed.
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let (judged, floor) = (self.judged(), self.floor);
        if judged < floor {
            problems.push((
                "floor",
                format!("{judged} cases judged the peer, {floor} are wanted"),
            ));
        }
        let untested = self.untested();
        if !untested.is_empty() {
            let listed = untested.join(", ");
            problems.push(("untested", format!("not tested: {listed}")));
        }
        if !self.strays.is_empty() {
            let listed = self.strays.join(", ");
            problems.push(("expectations", format!("not in this kit: {listed}")));
        }
        problems
    }
}
