//! Messages with known verdicts.

use std::sync::LazyLock;

use ubos_common::conformance::{Case, Protocol, Reach, SameVerdict, TestVector, ask_about};
use ubos_common::json::{self, Read};
use ubos_common::violation::Profile;

use crate::limits::unbounded;
use crate::validate::{Options, decode_result, decode_task};

ubos_common::words! {
    /// What kind of message a vector is.
    closed pub enum Kind {
        /// A task.
        Task = "task",
        /// A result.
        Result = "result",
    }
}

ubos_common::wire! {
    /// A message and its verdict.
    pub struct Vector {
        /// Its name, unique among all.
        required name: String = "name", "";
        /// What it is.
        required kind: Kind = "kind", "";
        /// The clause that it is about.
        required clause: String = "clause", "";
        /// Pointers of the MUST findings under the strict profile; none where it is valid.
        required strict: Vec<String> = "strict", "";
        /// Whether the lenient profile reads it.
        required lenient: bool = "lenient", "";
        /// The message as it stands on the wire.
        required text: String = "text", "";
    }
}

impl Vector {
    /// Whether it is valid under the strict profile.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.strict.is_empty()
    }
}

/// All vectors: the valid ones, then the others.
#[must_use]
pub fn vectors() -> &'static [Vector] {
    &PARSED
}

static PARSED: LazyLock<Vec<Vector>> = LazyLock::new(|| {
    let valid = include_str!("../../vectors/valid.jsonl").lines();
    let invalid = include_str!("../../vectors/invalid.jsonl").lines();
    valid.chain(invalid).map(parsed).collect()
});

#[expect(clippy::expect_used, reason = "our own file, read by a test")]
pub(super) fn parsed<T: for<'a> Read<'a>>(line: &str) -> T {
    let outcome = json::decode(line.as_bytes(), &unbounded(), Profile::Strict);
    outcome
        .map(|(value, _)| value)
        .expect("a line of the vectors")
}

/// Asking a validator: whether a text is a valid message of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Validator;

impl Protocol for Validator {
    type Line = (&'static Vector, bool);
    type Peer = dyn FnMut(Kind, &[u8]) -> bool;
}

impl TestVector for Vector {
    fn clause(&self) -> &str {
        &self.clause
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_valid(&self) -> bool {
        self.is_valid()
    }
}

/// This crate's validator.
fn strict(kind: Kind, text: &[u8]) -> bool {
    match kind {
        Kind::Task => decode_task(text, &Options::default()).is_ok(),
        _ => decode_result(text, &Options::default()).is_ok(),
    }
}

/// One that is wrong about every vector of a clause, and about no other.
fn wrong_about(clause: &'static str) -> Box<<Validator as Protocol>::Peer> {
    Box::new(move |kind, text| {
        let mut own = vectors().iter().filter(|vector| vector.clause == clause);
        let is_own = own.any(|vector| vector.text.as_bytes() == text && vector.kind == kind);
        strict(kind, text) != is_own
    })
}

macro_rules! cases {
    ($($clause:literal $name:literal;)*) => {
        /// A case for each clause that a message alone can show.
        pub const VECTORS: &[Case<Validator>] = &[$(Case {
            clause: $clause,
            name: $name,
            reach: Reach::Vector,
            drags: &[],
            play: |peer, recorder| {
                ask_about(vectors(), $clause, recorder, |vector| {
                    peer(vector.kind.clone(), vector.text.as_bytes())
                });
            },
            judge: || Box::<SameVerdict>::default(),
            good: || Box::new(strict),
            bad: || wrong_about($clause),
        }),*];
    };
}

cases! {
    "SAP-2-1" "the version is the string 2.0";
    "SAP-2-2" "members that are not known are passed over";
    "SAP-2-5" "what is no sound JSON object is refused";
    "SAP-3-1" "ids are hyphenated UUIDs";
    "SAP-3-2" "times are UTC, to the second, and exist";
    "SAP-4.1-1" "a task has its required members";
    "SAP-4.1-2" "a parent may be absent or null";
    "SAP-4.1-3" "an issuer has an id and a kind";
    "SAP-4.1-4" "a capability is namespaced";
    "SAP-4.1-5" "a context has a pressure level";
    "SAP-4.1-6" "members of a context have their types";
    "SAP-4.1-8" "a cache policy has its types";
    "SAP-4.1-9" "a payload is an object";
    "SAP-4.1-10" "a contract's schema is an object";
    "SAP-4.1-11" "telemetry has its types";
    "SAP-4.1-12" "a reply route has its types";
    "SAP-4.1-13" "attachments, tags and meta have their types";
    "SAP-4.1-14" "the specification's task lacks its level";
    "SAP-4.2-1" "a result has its required members";
    "SAP-4.2-2" "a status is one of seven words";
    "SAP-4.2-3" "every result has an alignment";
    "SAP-4.2-4" "evidence has its types";
    "SAP-4.2-5" "an output is any value";
    "SAP-4.2-6" "the other members of a result have their types";
    "SAP-4.2-8" "the specification's result is valid";
    "SAP-4-1" "null is no absence";
    "SAP-4-3" "closed words match exactly, open ones are open";
    "SAP-5-6" "a failed result says why";
}
