//! Kits: running one against a stranger, proving one, and listening with one.

use core::fmt;

use ubos_common::violation::Level;

use crate::case::{Case, Judge, Protocol, Reach, Recorder, Verdict};
use crate::expectations::Expectations;
use crate::report::{CaseOutcome, Report};

/// The cases of one protocol role, and the clauses that no peer can be tested for.
pub struct Kit<P: Protocol> {
    name: &'static str,
    pub(crate) cases: Vec<Case<P>>,
    out_of_reach: Vec<(&'static str, &'static str)>,
}

impl<P: Protocol> Kit<P> {
    /// A kit of these cases.
    #[must_use]
    pub fn new(name: &'static str, cases: impl IntoIterator<Item = Case<P>>) -> Self {
        Self {
            name,
            cases: cases.into_iter().collect(),
            out_of_reach: Vec::new(),
        }
    }

    /// Adds clauses that no case of this kit can test with any peer, each with the reason.
    #[must_use]
    pub fn out_of_reach(mut self, clauses: &[(&'static str, &'static str)]) -> Self {
        self.out_of_reach.extend_from_slice(clauses);
        self
    }

    /// Sets the level of these clauses' cases.
    #[must_use]
    pub fn at_level(mut self, level: Level, clauses: &[&str]) -> Self {
        for case in &mut self.cases {
            if clauses.contains(&case.clause) {
                case.level = level;
            }
        }
        self
    }

    /// What the kit is called in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The cases, in their order.
    #[must_use]
    pub fn cases(&self) -> &[Case<P>] {
        &self.cases
    }

    /// Keeps the cases for which `keep` is true.
    #[must_use]
    pub fn only(mut self, keep: impl FnMut(&Case<P>) -> bool) -> Self {
        self.cases.retain(keep);
        self
    }

    /// Judges a stranger: runs every case against a peer of its own, which `connect` makes.
    ///
    /// The run fails where a case fails that is not known to fail, where fewer cases than the floor judged
    /// the peer, and where a MUST was not tested though nobody declared it out of reach. A peer that
    /// `connect` cannot make leaves its case not applicable, with the reason.
    pub fn run(
        &self,
        expectations: &Expectations,
        mut connect: impl FnMut(&Case<P>) -> Result<Box<P::Peer>, ConnectError>,
    ) -> Report {
        let mut report = self.report(expectations);
        for case in &self.cases {
            if !expectations.is_supported(case.clause) {
                let why = "the peer does not support it";
                report.declare_out_of_reach(case.clause, why);
                report.push(CaseOutcome::new(
                    case,
                    Verdict::not_applicable(why),
                    Vec::new(),
                ));
                continue;
            }
            let (verdict, exchange) = match connect(case) {
                Ok(mut peer) => play(case, &mut peer),
                Err(ConnectError::Unreachable(why)) => (Verdict::not_applicable(why), Vec::new()),
                Err(ConnectError::Unknown(what)) => (Verdict::unknown(what), Vec::new()),
            };
            report.push(CaseOutcome::new(case, verdict, exchange));
        }
        report
    }

    /// Proves the kit: each reference passes its own case and fails none, and each mutant fails its own case
    /// and breaks no clause but those that the case names. A mutant that refuses one word of a closed list fails
    /// the case of the list.
    ///
    /// # Errors
    ///
    /// Every way in which the kit does not keep that.
    pub fn prove(&self) -> Result<(), Vec<ProofError>> {
        let mut errors = Vec::new();
        for (n, case) in self.cases.iter().enumerate() {
            if self
                .cases
                .iter()
                .take(n)
                .any(|other| other.name == case.name)
            {
                errors.push(ProofError::SameName { name: case.name });
            }
            self.prove_reference(case, &mut errors);
            self.prove_mutant(case, &mut errors);
            Self::prove_finer_mutants(case, &mut errors);
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    fn prove_reference(&self, case: &Case<P>, errors: &mut Vec<ProofError>) {
        for other in &self.cases {
            let (verdict, _) = play(other, &mut case.reference());
            let own = other.name == case.name;
            if verdict.is_fail() || own && verdict != Verdict::Pass {
                errors.push(ProofError::ReferenceFails {
                    of: case.name,
                    case: other.name,
                    verdict,
                });
            }
        }
    }

    fn prove_mutant(&self, case: &Case<P>, errors: &mut Vec<ProofError>) {
        for other in &self.cases {
            let (verdict, _) = play(other, &mut case.mutant());
            if other.name == case.name {
                if !verdict.is_fail() {
                    errors.push(ProofError::MutantPasses {
                        of: case.name,
                        verdict,
                    });
                }
            } else if verdict.is_fail()
                && other.clause != case.clause
                && !case.also_breaks.contains(&other.clause)
            {
                errors.push(ProofError::MutantBreaksMore {
                    of: case.name,
                    clause: other.clause,
                    verdict,
                });
            }
        }
    }

    /// Each against its own case only: there are many, and what is wrong in one point may well show in other cases.
    fn prove_finer_mutants(case: &Case<P>, errors: &mut Vec<ProofError>) {
        for (breach, mutant) in &case.finer_mutants {
            let (verdict, _) = play(case, &mut mutant());
            if !verdict.is_fail() {
                errors.push(ProofError::FinerMutantPasses {
                    of: case.name,
                    breach: breach.clone(),
                    verdict,
                });
            }
        }
    }

    /// Judges that listen to live traffic between two other parties.
    #[must_use]
    pub fn tap(&self, expectations: &Expectations) -> Tap<P> {
        Tap {
            report: self.report(expectations),
            listeners: self
                .cases
                .iter()
                .map(|case| (case.clone(), (case.judge)()))
                .collect(),
        }
    }

    fn report(&self, expectations: &Expectations) -> Report {
        let cases = self.cases.iter().map(|case| (case.name, case.clause));
        Report::new(self.name, expectations, &self.out_of_reach, cases)
    }
}

impl<P: Protocol> Clone for Kit<P> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            cases: self.cases.clone(),
            out_of_reach: self.out_of_reach.clone(),
        }
    }
}

impl<P: Protocol> fmt::Debug for Kit<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kit")
            .field("name", &self.name)
            .field("cases", &self.cases)
            .finish_non_exhaustive()
    }
}

/// Runs one case. The exchange comes back where the case failed, and is empty otherwise.
fn play<P: Protocol>(case: &Case<P>, peer: &mut P::Peer) -> (Verdict, Vec<String>) {
    let mut recorder = Recorder::new();
    (case.scenario)(peer, &mut recorder);
    let verdict = recorder.early_verdict().unwrap_or_else(|| {
        let mut judge = (case.judge)();
        for line in recorder.lines() {
            judge.see(line);
        }
        judge.verdict()
    });
    let exchange = if verdict.is_fail() {
        exchange_of::<P>(recorder.lines())
    } else {
        Vec::new()
    };
    (verdict, exchange)
}

/// Lines of an exchange that a report shows at its beginning, and as many at its end.
const SHOWN_LINES: usize = 20;

/// Characters of one line that a report shows.
const SHOWN_CHARS: usize = 400;

fn exchange_of<P: Protocol>(lines: &[P::Line]) -> Vec<String> {
    let left_out = lines.len().saturating_sub(2 * SHOWN_LINES);
    let mut shown = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        if left_out > 0 && n == SHOWN_LINES {
            shown.push(format!("... {left_out} lines ..."));
        }
        if n < SHOWN_LINES || n >= lines.len() - SHOWN_LINES {
            shown.push(shorten(P::describe(line)));
        }
    }
    shown
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!(
            "{} ... ({} bytes)",
            text.get(..at).unwrap_or(""),
            text.len()
        ),
        None => text,
    }
}

/// Why there is no peer for a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer cannot be reached, so that the case is not applicable.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
    /// The peer answered that it does not know what the case asks of it.
    #[error("the peer does not know {0}")]
    Unknown(String),
}

/// One way in which a kit does not keep what it promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// Two cases have one name.
    #[error("two cases are called {name:?}")]
    SameName {
        /// The name.
        name: &'static str,
    },
    /// A reference does not pass.
    #[error("the reference of {of:?} does not pass {case:?}: {verdict:?}")]
    ReferenceFails {
        /// The case that brings the reference.
        of: &'static str,
        /// The case that it does not pass.
        case: &'static str,
        /// The verdict there.
        verdict: Verdict,
    },
    /// A mutant does not fail its own case.
    #[error("the mutant of {of:?} does not fail it: {verdict:?}")]
    MutantPasses {
        /// The case.
        of: &'static str,
        /// The verdict there.
        verdict: Verdict,
    },
    /// A mutant that breaks the clause in one point alone does not fail its case: no vector or scenario shows that point.
    #[error("a peer that {breach} does not fail {of:?}: {verdict:?}")]
    FinerMutantPasses {
        /// The case.
        of: &'static str,
        /// What the mutant does wrong.
        breach: String,
        /// The verdict there.
        verdict: Verdict,
    },
    /// A mutant breaks a clause that its case does not name.
    #[error("the mutant of {of:?} also breaks {clause}: {verdict:?}")]
    MutantBreaksMore {
        /// The case that brings the mutant.
        of: &'static str,
        /// The clause that it breaks as well.
        clause: &'static str,
        /// The verdict there.
        verdict: Verdict,
    },
}

/// The judges of a kit, listening to live traffic between two others. Made by [`Kit::tap`].
pub struct Tap<P: Protocol> {
    report: Report,
    listeners: Vec<Listener<P>>,
}

/// A case and its judge of this traffic.
type Listener<P> = (Case<P>, Box<dyn Judge<<P as Protocol>::Line>>);

impl<P: Protocol> Tap<P> {
    /// Shows a line to every judge.
    pub fn see(&mut self, line: &P::Line) {
        for (_, judge) in &mut self.listeners {
            judge.see(line);
        }
    }

    /// Ends the traffic and gives the verdicts.
    #[must_use]
    pub fn finish(self) -> Report {
        let Self {
            mut report,
            listeners,
        } = self;
        for (case, mut judge) in listeners {
            let mut outcome = CaseOutcome::new(&case, judge.verdict(), Vec::new());
            // Live traffic shows what it shows, as any recording.
            outcome.reach = Reach::Trace;
            report.push(outcome);
        }
        report
    }
}

impl<P: Protocol> fmt::Debug for Tap<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("judges", &self.listeners.len())
            .finish_non_exhaustive()
    }
}
