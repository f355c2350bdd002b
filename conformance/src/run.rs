//! Running a kit against a stranger, and proving the kit itself.

use core::fmt;

use super::report::{ConformanceReport, Outcome};
use super::{Case, Judge, Protocol, Recorder, Verdict};

/// Judges a stranger: plays every case against a peer of its own, which `connect` makes.
///
/// The run fails when fewer than `floor` cases were really judged: a peer that cannot be reached passes
/// nothing. A peer that `connect` cannot make leaves its case not applicable, with the reason.
pub fn run<P: Protocol>(
    cases: &[Case<P>],
    floor: usize,
    mut connect: impl FnMut(&Case<P>) -> Result<Box<P::Peer>, String>,
) -> ConformanceReport {
    let mut report = ConformanceReport::new(floor);
    for case in cases {
        let verdict = match connect(case) {
            Ok(mut peer) => play(case, &mut peer),
            Err(why) => Verdict::not_applicable(why),
        };
        report.push(Outcome::new(case, verdict));
    }
    report
}

fn play<P: Protocol>(case: &Case<P>, peer: &mut P::Peer) -> Verdict {
    let mut recorder = Recorder::new();
    (case.play)(peer, &mut recorder);
    if recorder.cut {
        return Verdict::fail(format!("line {}", recorder.bound), "a flood without end");
    }
    let mut judge = (case.judge)();
    for line in recorder.lines() {
        judge.see(line);
    }
    judge.verdict()
}

/// Judges a kit: the twins of each case against all cases.
///
/// # Errors
///
/// Every way in which the kit does not hold what it says.
pub fn prove<P: Protocol>(cases: &[Case<P>]) -> Result<(), Vec<ProofError>> {
    let mut errors = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        if cases.iter().take(n).any(|other| other.name == case.name) {
            errors.push(ProofError::SameName { name: case.name });
        }
        prove_good(case, cases, &mut errors);
        prove_bad(case, cases, &mut errors);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn prove_good<P: Protocol>(case: &Case<P>, cases: &[Case<P>], errors: &mut Vec<ProofError>) {
    for other in cases {
        let verdict = play(other, &mut (case.good)());
        let own = other.name == case.name;
        if verdict.is_fail() || own && verdict != Verdict::Pass {
            errors.push(ProofError::GoodTwin {
                of: case.name,
                case: other.name,
                verdict,
            });
        }
    }
}

fn prove_bad<P: Protocol>(case: &Case<P>, cases: &[Case<P>], errors: &mut Vec<ProofError>) {
    for other in cases {
        let verdict = play(other, &mut (case.bad)());
        if other.name == case.name {
            if !verdict.is_fail() {
                errors.push(ProofError::BadTwinPasses {
                    of: case.name,
                    verdict,
                });
            }
        } else if verdict.is_fail()
            && other.clause != case.clause
            && !case.drags.contains(&other.clause)
        {
            errors.push(ProofError::BadTwinDrags {
                of: case.name,
                clause: other.clause,
                verdict,
            });
        }
    }
}

/// One way in which a kit does not hold what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProofError {
    /// Two cases have one name.
    SameName {
        /// The name.
        name: &'static str,
    },
    /// A good twin does not pass.
    GoodTwin {
        /// The case that brings the twin.
        of: &'static str,
        /// The case that it does not pass.
        case: &'static str,
        /// What was said there.
        verdict: Verdict,
    },
    /// A bad twin does not fail its own case.
    BadTwinPasses {
        /// The case.
        of: &'static str,
        /// What was said there.
        verdict: Verdict,
    },
    /// A bad twin breaks a clause that its case does not say it drags along.
    BadTwinDrags {
        /// The case that brings the twin.
        of: &'static str,
        /// The clause that it breaks, too.
        clause: &'static str,
        /// What was said there.
        verdict: Verdict,
    },
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName { name } => write!(f, "two cases are called {name:?}"),
            Self::GoodTwin { of, case, verdict } => {
                write!(
                    f,
                    "the good twin of {of:?} does not pass {case:?}: {verdict:?}"
                )
            }
            Self::BadTwinPasses { of, verdict } => {
                write!(f, "the bad twin of {of:?} does not fail it: {verdict:?}")
            }
            Self::BadTwinDrags {
                of,
                clause,
                verdict,
            } => {
                write!(
                    f,
                    "the bad twin of {of:?} also breaks {clause}: {verdict:?}"
                )
            }
        }
    }
}

impl std::error::Error for ProofError {}

/// Judges of a kit that listen to live traffic between two others.
pub struct Tap<P: Protocol> {
    judges: Vec<Listener<P>>,
    floor: usize,
}

/// A case and its judge of this traffic.
type Listener<P> = (Case<P>, Box<dyn Judge<<P as Protocol>::Line>>);

impl<P: Protocol> Tap<P> {
    /// A tap with a judge for each case; `floor` as in [`run`].
    #[must_use]
    pub fn new(cases: &[Case<P>], floor: usize) -> Self {
        Self {
            judges: cases.iter().map(|case| (*case, (case.judge)())).collect(),
            floor,
        }
    }

    /// Shows a line to every judge.
    pub fn see(&mut self, line: &P::Line) {
        for (_, judge) in &mut self.judges {
            judge.see(line);
        }
    }

    /// Ends the traffic and gives the verdicts.
    #[must_use]
    pub fn finish(self) -> ConformanceReport {
        let mut report = ConformanceReport::new(self.floor);
        for (case, mut judge) in self.judges {
            report.push(Outcome::new(&case, judge.verdict()));
        }
        report
    }
}

impl<P: Protocol> fmt::Debug for Tap<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("judges", &self.judges.len())
            .finish_non_exhaustive()
    }
}
