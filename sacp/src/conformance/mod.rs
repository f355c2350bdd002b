//! A kit that tests anybody's validator of SACP, clause by clause, with the messages of [`VECTORS`].
//!
//! ```
//! use sacp::conformance::{Reference, cases};
//! use ubos_common::conformance::{prove, run};
//!
//! prove(&cases()).unwrap();
//! let report = run(&cases(), cases().len(), |_| Ok(Box::new(Reference)));
//! assert!(report.is_conformant());
//! ```

mod vectors;

use ubos_common::conformance::{Case, Judge, Protocol, Reach, Recorder, Verdict};
use ubos_common::json;

use crate::error::Code;
use crate::reply::Reply;
use crate::validate::verdict;

pub use vectors::VECTORS;

/// A message and what a validator must say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vector {
    /// The file in `vectors/`.
    pub file: &'static str,
    /// The clause that it is about.
    pub clause: &'static str,
    /// The bytes of the message.
    pub message: &'static [u8],
    /// The code that it is refused with; `None` where it is valid.
    pub code: Option<Code>,
}

/// A validator: anybody's, behind whatever transport.
pub trait Validator {
    /// The answer to a message: a JSON object with `status`.
    fn answer(&mut self, message: &[u8]) -> Vec<u8>;
}

/// This crate's validator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Validator for Reference {
    fn answer(&mut self, message: &[u8]) -> Vec<u8> {
        json::to_vec(&verdict(message))
    }
}

/// Validators, as the kit sees them.
#[derive(Clone, Copy, Debug)]
pub struct Validators;

impl Protocol for Validators {
    type Line = Shown;
    type Peer = dyn Validator;
}

/// A message that was shown, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shown {
    /// The message.
    pub vector: Vector,
    /// The answer.
    pub answer: Vec<u8>,
}

macro_rules! cases {
    ($($clause:literal, $name:literal;)*) => {
        /// The kit: a case for each clause that a message can break.
        #[must_use]
        pub fn cases() -> Vec<Case<Validators>> {
            vec![$(Case {
                clause: $clause,
                name: $name,
                reach: Reach::Vector,
                drags: &[],
                play: |peer, recorder| show($clause, peer, recorder),
                judge: || Box::<Compares>::default(),
                good: || Box::new(Reference),
                bad: || Box::new(Blind { clause: $clause }),
            }),*]
        }
    };
}

cases! {
    "SACP-6-1", "takes the samples of the specification";
    "SACP-2-1", "wants a goal and a plan";
    "SACP-2-2", "wants acts of three parts";
    "SACP-2-3", "wants groups and joins where they may stand";
    "SACP-2-4", "wants optional members of their types";
    "SACP-2-5", "knows three formats";
    "SACP-2-6", "knows four states";
    "SACP-2-7", "takes an empty plan and no empty group";
    "SACP-2-8", "knows the version";
    "SACP-2-9", "looks into messages inside messages";
    "SACP-2-10", "takes unknown members";
    "SACP-8-3", "refuses what is no message";
    "SACP1-4-1", "wants the members of 1.0 and no others";
    "SACP1-4-2", "wants names of their alphabet and length";
    "SACP1-4-3", "wants result or error as the state says";
    "SACP1-4-4", "wants extensions named and traces closed";
    "SACP1-6-1", "wants the members of a step";
    "SACP1-6-2", "wants steps that make a graph";
    "SACP1-7-1", "wants results and errors of their form";
    "SACP1-15-1", "refuses tuples in 1.0";
}

fn show(clause: &str, peer: &mut dyn Validator, recorder: &mut Recorder<Shown>) {
    for vector in VECTORS.into_iter().filter(|vector| vector.clause == clause) {
        let answer = peer.answer(vector.message);
        recorder.record(Shown { vector, answer });
    }
}

/// Compares each answer with what the vector wants.
#[derive(Default)]
struct Compares {
    seen: usize,
    fault: Option<(String, String)>,
}

impl Judge<Shown> for Compares {
    fn see(&mut self, line: &Shown) {
        self.seen += 1;
        let told = match (Reply::decode(&line.answer), line.vector.code) {
            (Ok(Reply::Valid { .. }), None) => return,
            (Ok(Reply::Err(error)), Some(code)) if error.code == code => return,
            (Ok(Reply::Valid { .. }), Some(code)) => format!("VALID where {code} is wanted"),
            (Ok(Reply::Err(error)), None) => format!("{} where VALID is wanted", error.code),
            (Ok(Reply::Err(error)), Some(code)) => format!("{} where {code} is wanted", error.code),
            _ => "neither VALID nor ERR".to_owned(),
        };
        let place = || (line.vector.file.to_owned(), told);
        self.fault.get_or_insert_with(place);
    }

    fn verdict(&mut self) -> Verdict {
        match (self.fault.take(), self.seen) {
            (Some((place, seen)), _) => Verdict::fail(place, seen),
            (None, 0) => Verdict::not_applicable("nothing was shown"),
            (None, _) => Verdict::Pass,
        }
    }
}

/// Gets the messages of one clause wrong, and all others right.
struct Blind {
    clause: &'static str,
}

impl Validator for Blind {
    fn answer(&mut self, message: &[u8]) -> Vec<u8> {
        let known = VECTORS.iter().find(|vector| vector.message == message);
        match known.filter(|vector| vector.clause == self.clause) {
            Some(vector) if vector.code.is_some() => br#"{"status":"VALID"}"#.to_vec(),
            Some(_) => br#"{"status":"ERR","code":"INTERNAL_ERROR","details":"blind"}"#.to_vec(),
            None => Reference.answer(message),
        }
    }
}
