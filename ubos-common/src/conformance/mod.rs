//! Cases that test anybody's implementation of a protocol, clause by clause.
//!
//! A kit is a list of [`Case`]s for one [`Protocol`]. A case plays something against a peer, which is
//! recorded line by line, and a [`Judge`] reads the recording. The same judge serves as a live [`Tap`]
//! between two other parties.
//!
//! [`run`] judges a stranger. [`prove`] judges the kit: each case brings a good twin, which must pass every
//! case, and a bad twin, which must fail its own clause and nothing that the case does not say it drags
//! along. A judge that never fails, or fails for another reason than its clause, is found so.
//!
//! ```
//! use ubos_common::conformance::{Case, Judge, Protocol, Reach, Recorder, Verdict, prove, run};
//!
//! /// A peer of the toy protocol answers a number with the next one.
//! struct Toy;
//! impl Protocol for Toy {
//!     type Line = (u64, u64);
//!     type Peer = dyn FnMut(u64) -> u64;
//! }
//!
//! #[derive(Default)]
//! struct Answers(Option<String>);
//! impl Judge<(u64, u64)> for Answers {
//!     fn see(&mut self, &(asked, answered): &(u64, u64)) {
//!         if answered != asked + 1 {
//!             self.0 = Some(format!("{answered} for {asked}"));
//!         }
//!     }
//!     fn verdict(&mut self) -> Verdict {
//!         self.0.take().map_or(Verdict::Pass, |seen| Verdict::fail("the answer", seen))
//!     }
//! }
//!
//! let case = Case::<Toy> {
//!     clause: "TOY-1", name: "answers with the next number", reach: Reach::Drive, drags: &[],
//!     play: |peer, recorder| for n in [1, 7] { let answer = peer(n); recorder.record((n, answer)); },
//!     judge: || Box::<Answers>::default(),
//!     good: || Box::new(|n| n + 1),
//!     bad: || Box::new(|n| n),
//! };
//! prove(&[case]).unwrap();
//! let report = run(&[case], 1, |_| Ok(Box::new(|n| n * 2)));
//! assert!(!report.is_conformant());
//! assert!(report.to_string().contains("14 for 7"));
//! ```

mod report;
mod run;
mod vector;

pub use report::{ConformanceReport, Outcome};
pub use run::{ProofError, Tap, prove, run};
pub use vector::{SameVerdict, TestVector, ask_about};

/// A protocol, as a kit sees it.
pub trait Protocol: 'static {
    /// One line of a recording: a message with its direction, a verdict on a vector, an event.
    type Line;
    /// What is tested: a validator, a recording, a connection to a peer. Mostly a `dyn` trait.
    type Peer: ?Sized;
}

/// How a case reaches what it tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A message or byte string is shown, and the peer's verdict on it judged.
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

/// One test of one clause.
// exhaustive: kits are written as literals of it
pub struct Case<P: Protocol> {
    /// The clause that a breach breaks.
    pub clause: &'static str,
    /// What is tested, in a few words; unique in its kit.
    pub name: &'static str,
    /// How the case reaches the peer.
    pub reach: Reach,
    /// Clauses that a peer which breaks this one may be found to break, too.
    pub drags: &'static [&'static str],
    /// Does something to the peer and records what comes of it.
    pub play: fn(&mut P::Peer, &mut Recorder<P::Line>),
    /// Makes a judge of one recording.
    pub judge: fn() -> Box<dyn Judge<P::Line>>,
    /// Makes a peer that keeps every clause.
    pub good: fn() -> Box<P::Peer>,
    /// Makes a peer that breaks this clause alone.
    pub bad: fn() -> Box<P::Peer>,
}

impl<P: Protocol> Clone for Case<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol> Copy for Case<P> {}

impl<P: Protocol> core::fmt::Debug for Case<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Case")
            .field("clause", &self.clause)
            .field("name", &self.name)
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

/// Reads a recording line by line, live or afterwards.
pub trait Judge<L> {
    /// Takes the next line.
    fn see(&mut self, line: &L);

    /// Says what it came to. Called once, behind the last line.
    fn verdict(&mut self) -> Verdict;
}

/// What a judge says.
#[derive(Clone, Debug, PartialEq, Eq)]
// exhaustive: the three answers of the conformance report
pub enum Verdict {
    /// The clause was put to the test and held.
    Pass,
    /// The clause was broken.
    Fail {
        /// Where: a line, a pointer, a moment.
        place: String,
        /// What was seen there.
        seen: String,
    },
    /// The clause was not put to the test.
    NotApplicable {
        /// Why not.
        why: String,
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

    /// The clause was not put to the test.
    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::NotApplicable { why: why.into() }
    }

    /// `pass`, `fail` or `not applicable`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "fail",
            Self::NotApplicable { .. } => "not applicable",
        }
    }

    /// Whether the clause was broken.
    #[must_use]
    pub const fn is_fail(&self) -> bool {
        matches!(self, Self::Fail { .. })
    }
}

/// Keeps the lines of one play, up to a bound.
#[derive(Debug)]
pub struct Recorder<L> {
    lines: Vec<L>,
    bound: usize,
    cut: bool,
}

impl<L> Recorder<L> {
    /// Lines that one play records. A play that goes on until its peer ends looks at
    /// [`Recorder::is_full`], or a flood never ends.
    pub const BOUND: usize = 100_000;

    const fn new() -> Self {
        Self {
            lines: Vec::new(),
            bound: Self::BOUND,
            cut: false,
        }
    }

    /// Adds a line. Past the bound it is dropped, and the case fails as a flood.
    pub fn record(&mut self, line: L) {
        if self.lines.len() < self.bound {
            self.lines.push(line);
        } else {
            self.cut = true;
        }
    }

    /// Whether a line was dropped: the case fails, and there is no use in playing on.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.cut
    }

    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> &[L] {
        &self.lines
    }
}

#[cfg(test)]
mod tests;
