//! What a kit is made of: protocols, cases, judges and recordings.

use core::fmt;
use std::sync::Arc;

use ubos_common::violation::Level;

/// A protocol as a kit sees it.
pub trait Protocol: 'static {
    /// One line of a recording: a message with its direction, an answer about a vector, an event.
    type Line: fmt::Debug;
    /// What is tested: a validator, a recording, a connection to a peer. Mostly a `dyn` trait.
    type Peer: ?Sized;

    /// A line as a report shows it below a failed case. The default is its `Debug` form.
    fn describe(line: &Self::Line) -> String {
        format!("{line:?}")
    }
}

/// How a case reaches what it tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A message or byte string is shown, and the peer's answer about it is judged.
    Vector,
    /// A recording that the peer brings is judged.
    Trace,
    /// The peer is driven, and what it does is judged.
    Drive,
}

impl Reach {
    /// `vector`, `trace` or `drive`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::Trace => "trace",
            Self::Drive => "drive",
        }
    }
}

/// One test of one clause: a scenario, a judge of its recording, and two peers that prove the judge.
///
/// See the [crate](crate) for an example.
pub struct Case<P: Protocol> {
    pub(crate) clause: &'static str,
    pub(crate) name: &'static str,
    pub(crate) reach: Reach,
    pub(crate) level: Level,
    pub(crate) also_breaks: Vec<&'static str>,
    pub(crate) scenario: Scenario<P>,
    pub(crate) judge: MakeJudge<P>,
    pub(crate) reference: MakePeer<P>,
    pub(crate) mutant: MakePeer<P>,
    /// Mutants that break the clause in one point alone, each with what it does wrong. They fail this case; what else they fail is
    /// not looked at.
    pub(crate) finer_mutants: Vec<(String, MakePeer<P>)>,
}

type Scenario<P> =
    Arc<dyn Fn(&mut <P as Protocol>::Peer, &mut Recorder<<P as Protocol>::Line>) + Send + Sync>;
type MakeJudge<P> = Arc<dyn Fn() -> Box<dyn Judge<<P as Protocol>::Line>> + Send + Sync>;
type MakePeer<P> = Arc<dyn Fn() -> Box<<P as Protocol>::Peer> + Send + Sync>;

impl<P: Protocol> Case<P> {
    /// A case of a MUST.
    ///
    /// * `scenario` acts on the peer and records what happens;
    /// * `judge` makes a judge of one recording;
    /// * `reference` makes a peer that keeps every clause of the kit;
    /// * `mutant` makes a peer that breaks `clause`, and no other but those of [`Case::also_breaks`].
    pub fn new<J: Judge<P::Line> + 'static>(
        reach: Reach,
        (clause, name): (&'static str, &'static str),
        scenario: impl Fn(&mut P::Peer, &mut Recorder<P::Line>) + Send + Sync + 'static,
        judge: impl Fn() -> J + Send + Sync + 'static,
        reference: impl Fn() -> Box<P::Peer> + Send + Sync + 'static,
        mutant: impl Fn() -> Box<P::Peer> + Send + Sync + 'static,
    ) -> Self {
        Self {
            clause,
            name,
            reach,
            level: Level::Must,
            also_breaks: Vec::new(),
            scenario: Arc::new(scenario),
            judge: Arc::new(move || Box::new(judge())),
            reference: Arc::new(reference),
            mutant: Arc::new(mutant),
            finer_mutants: Vec::new(),
        }
    }

    /// Names clauses that a peer which breaks this one may be found to break as well.
    #[must_use]
    pub fn also_breaks(mut self, clauses: &[&'static str]) -> Self {
        self.also_breaks.extend_from_slice(clauses);
        self
    }

    /// Sets the level of the clause; [`Level::Must`] is the default.
    #[must_use]
    pub const fn at_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// The clause that a breach breaks.
    #[must_use]
    pub const fn clause(&self) -> &'static str {
        self.clause
    }

    /// What is tested, in a few words; unique in its kit.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How the case reaches the peer.
    #[must_use]
    pub const fn reach(&self) -> Reach {
        self.reach
    }

    /// The level of the clause.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// A peer that keeps every clause of the kit.
    #[must_use]
    pub fn reference(&self) -> Box<P::Peer> {
        (self.reference)()
    }

    /// A peer that breaks the clause of this case.
    #[must_use]
    pub fn mutant(&self) -> Box<P::Peer> {
        (self.mutant)()
    }
}

impl<P: Protocol> Clone for Case<P> {
    fn clone(&self) -> Self {
        Self {
            clause: self.clause,
            name: self.name,
            reach: self.reach,
            level: self.level,
            also_breaks: self.also_breaks.clone(),
            scenario: Arc::clone(&self.scenario),
            judge: Arc::clone(&self.judge),
            reference: Arc::clone(&self.reference),
            mutant: Arc::clone(&self.mutant),
            finer_mutants: self.finer_mutants.clone(),
        }
    }
}

impl<P: Protocol> fmt::Debug for Case<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("clause", &self.clause)
            .field("name", &self.name)
            .field("reach", &self.reach)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// Reads a recording line by line, live or afterwards.
pub trait Judge<L> {
    /// Takes the next line.
    fn see(&mut self, line: &L);

    /// Gives the verdict. Called once, after the last line.
    fn verdict(&mut self) -> Verdict;
}

impl<L, J: Judge<L> + ?Sized> Judge<L> for Box<J> {
    fn see(&mut self, line: &L) {
        (**self).see(line);
    }

    fn verdict(&mut self) -> Verdict {
        (**self).verdict()
    }
}

/// What a judge decides.
// exhaustive: these are the four answers of a report
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The clause was tested and kept.
    Pass,
    /// The clause was broken.
    Fail {
        /// Where: a line, a pointer, a moment.
        place: String,
        /// What was seen there.
        seen: String,
    },
    /// The clause was not tested.
    NotApplicable {
        /// Why not.
        why: String,
    },
    /// The peer answered that it does not know what the case asks of it.
    Unknown {
        /// What it does not know.
        what: String,
    },
}

impl Verdict {
    /// The clause was broken at a place.
    pub fn fail(place: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::Fail {
            place: place.into(),
            seen: seen.into(),
        }
    }

    /// The clause was not tested.
    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::NotApplicable { why: why.into() }
    }

    /// The peer does not know what the case asks of it.
    pub fn unknown(what: impl Into<String>) -> Self {
        Self::Unknown { what: what.into() }
    }

    /// `pass`, `fail`, `not applicable` or `unknown`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "fail",
            Self::NotApplicable { .. } => "not applicable",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// Whether the clause was broken.
    #[must_use]
    pub const fn is_fail(&self) -> bool {
        matches!(self, Self::Fail { .. })
    }

    /// Whether the clause was tested.
    #[must_use]
    pub const fn is_tested(&self) -> bool {
        matches!(self, Self::Pass | Self::Fail { .. })
    }
}

/// Keeps the lines of one scenario, up to a bound.
#[derive(Debug)]
pub struct Recorder<L> {
    lines: Vec<L>,
    overflowed: bool,
    unknown: Option<String>,
}

impl<L> Recorder<L> {
    /// Lines that one scenario records. A scenario that goes on until its peer ends checks
    /// [`Recorder::is_full`], or a flooding peer never ends it.
    pub const BOUND: usize = 100_000;

    pub(crate) const fn new() -> Self {
        Self {
            lines: Vec::new(),
            overflowed: false,
            unknown: None,
        }
    }

    /// Adds a line. Above the bound the line is dropped, and the case fails as a flood.
    pub fn record(&mut self, line: L) {
        if self.lines.len() < Self::BOUND {
            self.lines.push(line);
        } else {
            self.overflowed = true;
        }
    }

    /// Records that the peer does not know what the case asks of it; the case ends as
    /// [`Verdict::Unknown`], whatever was recorded.
    pub fn peer_does_not_know(&mut self, what: impl Into<String>) {
        self.unknown.get_or_insert_with(|| what.into());
    }

    /// Whether a line was dropped: the case fails, and a scenario need not go on.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.overflowed
    }

    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> &[L] {
        &self.lines
    }

    /// A verdict that needs no judge.
    pub(crate) fn early_verdict(&mut self) -> Option<Verdict> {
        if let Some(what) = self.unknown.take() {
            return Some(Verdict::unknown(what));
        }
        self.overflowed
            .then(|| Verdict::fail(format!("line {}", Self::BOUND), "a flood without end"))
    }
}
