//! States and thread trees with known verdicts.

use std::sync::LazyLock;

use ubos_common::conformance::{Case, Protocol, Reach, SameVerdict, TestVector, ask_about};
use ubos_common::json::{Limits, Read, decode};
use ubos_common::violation::Profile;

use crate::state::AgentState;
use crate::tree::ThreadTree;

ubos_common::words! {
    /// What a file is.
    closed pub enum Kind {
        /// A state.
        State = "uap-state",
        /// A thread tree.
        Tree = "uap-thread-tree",
    }
}

ubos_common::wire! {
    /// A file and its verdict.
    pub struct FileVector {
        /// Its name, unique among all.
        required name: String = "name", "";
        /// What it is.
        required kind: Kind = "kind", "";
        /// The clause that it is about.
        required clause: String = "clause", "";
        /// Pointers of the MUST findings; none where it is valid. One that is no sound JSON has the pointer to the whole.
        required must: Vec<String> = "must", "";
        /// The file's text.
        required text: String = "text", "";
    }
}

impl FileVector {
    /// Whether it is valid.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.must.is_empty()
    }
}

/// All vectors: the valid ones, then the others.
#[must_use]
pub fn vectors() -> &'static [FileVector] {
    &PARSED
}

static PARSED: LazyLock<Vec<FileVector>> = LazyLock::new(|| {
    let valid = include_str!("../../vectors/valid.jsonl").lines();
    let invalid = include_str!("../../vectors/invalid.jsonl").lines();
    valid.chain(invalid).map(parsed).collect()
});

#[expect(clippy::expect_used, reason = "our own file, read by a test")]
fn parsed<T: for<'a> Read<'a>>(line: &str) -> T {
    let read = decode(line.as_bytes(), &Limits::default(), Profile::Strict);
    read.map(|(value, _)| value).expect("a line of the vectors")
}

/// Asking a validator: whether a text is valid as what it is.
#[derive(Clone, Copy, Debug)]
pub struct Files;

impl Protocol for Files {
    type Line = (&'static FileVector, bool);
    type Peer = dyn FnMut(Kind, &[u8]) -> bool;
}

impl TestVector for FileVector {
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
fn ours(kind: Kind, text: &[u8]) -> bool {
    let limits = Limits::default();
    match kind {
        Kind::State => AgentState::from_json(text, &limits).is_ok(),
        _ => ThreadTree::from_json(text, &limits).is_ok(),
    }
}

/// One that is wrong about every vector of a clause, and about no other.
fn wrong_about(clause: &'static str) -> Box<<Files as Protocol>::Peer> {
    Box::new(move |kind, text| {
        let mut own = vectors().iter().filter(|vector| vector.clause == clause);
        let is_own = own.any(|vector| vector.text.as_bytes() == text && vector.kind == kind);
        ours(kind, text) != is_own
    })
}

macro_rules! cases {
    ($($clause:literal $name:literal;)*) => {
        /// A case for each clause that a file alone can show.
        pub const FILES: &[Case<Files>] = &[$(Case {
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
            good: || Box::new(ours),
            bad: || wrong_about($clause),
        }),*];
    };
}

cases! {
    "UAP-12-6" "states of 1.0 and 1.1 are read, and what is none is refused";
    "UAP-12-1" "every member of a state is read";
    "UPP-1" "messages have the members of their type";
    "UAP-3-1" "a state is named by a UUIDv4";
    "UAP-8-5" "traces of sub-agents have their members";
    "UAP-5-6" "steps of a plan have one of four statuses";
    "UAP-7-2" "thread trees hold together";
}
