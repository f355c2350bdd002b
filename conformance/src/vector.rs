//! Kits of vectors: messages and files about which the right answer is known.

use core::fmt;
use core::marker::PhantomData;

use crate::case::{Case, Judge, Protocol, Reach, Verdict};
use crate::kit::Kit;

/// A message or file, and the right answer about it.
pub trait TestVector: 'static + Sync {
    /// What a validator answers.
    type Answer: Clone + PartialEq + fmt::Debug + fmt::Display + Send + Sync;

    /// The clause that it is about.
    fn clause(&self) -> &str;

    /// What it is called in a report.
    fn name(&self) -> &str;

    /// The right answer.
    fn expected(&self) -> Self::Answer;

    /// A wrong answer, for the mutant of the clause.
    fn wrong(&self) -> Self::Answer;
}

/// The answer of a validator that tells valid from invalid and nothing else.
// exhaustive: a document is valid or it is not
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The document keeps every MUST.
    Valid,
    /// The document breaks a MUST.
    Invalid,
}

impl Validity {
    /// [`Validity::Valid`] where `valid` is true.
    #[must_use]
    pub const fn of(valid: bool) -> Self {
        if valid { Self::Valid } else { Self::Invalid }
    }

    /// The other answer.
    #[must_use]
    pub const fn opposite(self) -> Self {
        Self::of(matches!(self, Self::Invalid))
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
        })
    }
}

/// A validator under test: anybody's, behind any transport.
pub trait Validator<V: TestVector> {
    /// Answers about one vector; `None` where the validator does not know its kind.
    fn answer(&mut self, vector: &V) -> Option<V::Answer>;
}

impl<V: TestVector, F: FnMut(&V) -> Option<V::Answer>> Validator<V> for F {
    fn answer(&mut self, vector: &V) -> Option<V::Answer> {
        self(vector)
    }
}

/// The protocol of asking a validator about vectors.
pub struct Vectors<V>(PhantomData<V>);

impl<V> fmt::Debug for Vectors<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vectors")
    }
}

/// A vector that was shown, and what was answered about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered<A> {
    /// The name of the vector.
    pub vector: String,
    /// The right answer.
    pub expected: A,
    /// The answer of the validator.
    pub answer: A,
}

impl<V: TestVector> Protocol for Vectors<V> {
    type Line = Answered<V::Answer>;
    type Peer = dyn Validator<V>;

    fn describe(line: &Self::Line) -> String {
        format!("{}: {}", line.vector, line.answer)
    }
}

/// A kit with one case for each of `clauses`, which are pairs of an id and a name: the validator has to
/// give the right answer about every vector of the clause.
///
/// `reference` answers as it should. The mutants answer wrongly about the vectors of one clause.
///
/// ```
/// use ubos_conformance::{Expectations, TestVector, Validity, vector_kit};
///
/// struct Number(&'static str, bool);
/// impl TestVector for Number {
///     type Answer = Validity;
///     fn clause(&self) -> &str { "TOY-1" }
///     fn name(&self) -> &str { self.0 }
///     fn expected(&self) -> Validity { Validity::of(self.1) }
///     fn wrong(&self) -> Validity { self.expected().opposite() }
/// }
/// static NUMBERS: [Number; 2] = [Number("1", true), Number("one", false)];
///
/// let kit = vector_kit("toy", &NUMBERS, &[("TOY-1", "numbers are told from words")], |number| {
///     Validity::of(number.0.parse::<u8>().is_ok())
/// });
/// kit.prove().unwrap();
/// let gullible = kit.run(&Expectations::new(), |_| Ok(Box::new(|_: &Number| Some(Validity::Valid))));
/// assert!(gullible.to_string().contains("one: valid where invalid is wanted"));
/// ```
pub fn vector_kit<V: TestVector>(
    name: &'static str,
    vectors: &'static [V],
    clauses: &[(&'static str, &'static str)],
    reference: fn(&V) -> V::Answer,
) -> Kit<Vectors<V>> {
    let cases = clauses.iter().map(|&(clause, case)| {
        Case::new(
            Reach::Vector,
            (clause, case),
            move |validator: &mut (dyn Validator<V> + 'static), recorder| {
                for vector in vectors.iter().filter(|vector| vector.clause() == clause) {
                    match validator.answer(vector) {
                        Some(answer) => recorder.record(Answered {
                            vector: vector.name().to_owned(),
                            expected: vector.expected(),
                            answer,
                        }),
                        None => recorder.peer_does_not_know(vector.name()),
                    }
                }
            },
            SameAnswer::default,
            move || -> Box<dyn Validator<V>> {
                Box::new(move |vector: &V| Some(reference(vector)))
            },
            move || -> Box<dyn Validator<V>> {
                Box::new(move |vector: &V| {
                    Some(if vector.clause() == clause {
                        vector.wrong()
                    } else {
                        reference(vector)
                    })
                })
            },
        )
    });
    Kit::new(name, cases)
}

/// Compares the answers of a validator with the right ones.
#[derive(Default)]
struct SameAnswer {
    wrong: Option<(String, String)>,
    judged: usize,
}

impl<A: PartialEq + fmt::Display> Judge<Answered<A>> for SameAnswer {
    fn see(&mut self, line: &Answered<A>) {
        self.judged += 1;
        if line.answer != line.expected {
            let seen = format!("{} where {} is wanted", line.answer, line.expected);
            self.wrong
                .get_or_insert_with(|| (line.vector.clone(), seen));
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.wrong.take() {
            Some((vector, seen)) => Verdict::fail(vector, seen),
            None if self.judged == 0 => Verdict::not_applicable("no vector of this clause"),
            None => Verdict::Pass,
        }
    }
}
