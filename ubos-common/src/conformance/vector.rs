//! Vectors: messages and files whose verdict is known.

use super::{Judge, Recorder, Verdict};

/// A message or file whose verdict is known.
pub trait TestVector: 'static {
    /// The clause that it is about.
    fn clause(&self) -> &str;

    /// What to call it in a report.
    fn name(&self) -> &str;

    /// The verdict.
    fn is_valid(&self) -> bool;
}

/// Asks a validator about every vector of a clause, and records what it says.
///
/// ```
/// use ubos_common::conformance::{Case, Protocol, Reach, SameVerdict, TestVector, ask_about, prove};
///
/// struct Number(&'static str, bool);
/// impl TestVector for Number {
///     fn clause(&self) -> &str { "TOY-1" }
///     fn name(&self) -> &str { self.0 }
///     fn is_valid(&self) -> bool { self.1 }
/// }
/// static NUMBERS: [Number; 2] = [Number("1", true), Number("one", false)];
///
/// struct Toy;
/// impl Protocol for Toy {
///     type Line = (&'static Number, bool);
///     type Peer = dyn FnMut(&str) -> bool;
/// }
/// let case = Case::<Toy> {
///     clause: "TOY-1", name: "numbers are told from words", reach: Reach::Vector, drags: &[],
///     play: |peer, recorder| ask_about(&NUMBERS, "TOY-1", recorder, |number| peer(number.0)),
///     judge: || Box::<SameVerdict>::default(),
///     good: || Box::new(|text| text.parse::<u8>().is_ok()),
///     bad: || Box::new(|_| true),
/// };
/// prove(&[case]).unwrap();
/// ```
pub fn ask_about<V: TestVector>(
    vectors: &'static [V],
    clause: &str,
    recorder: &mut Recorder<(&'static V, bool)>,
    mut is_valid: impl FnMut(&V) -> bool,
) {
    for vector in vectors.iter().filter(|vector| vector.clause() == clause) {
        let said = is_valid(vector);
        recorder.record((vector, said));
    }
}

/// Holds a validator's verdicts against those of the vectors.
#[derive(Debug, Default)]
pub struct SameVerdict {
    wrong: Option<(String, bool)>,
    judged: usize,
}

impl<V: TestVector> Judge<(&'static V, bool)> for SameVerdict {
    fn see(&mut self, (vector, said): &(&'static V, bool)) {
        self.judged += 1;
        if *said != vector.is_valid() && self.wrong.is_none() {
            self.wrong = Some((vector.name().to_owned(), *said));
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.wrong.take() {
            Some((name, true)) => Verdict::fail(name, "taken for valid"),
            Some((name, false)) => Verdict::fail(name, "refused"),
            None if self.judged == 0 => Verdict::not_applicable("no vector of this clause"),
            None => Verdict::Pass,
        }
    }
}
