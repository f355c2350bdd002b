//! States and thread trees with known verdicts.

use std::sync::LazyLock;

use ubos_common::json::{Limits, Read, decode};
use ubos_common::violation::Profile;

use crate::word_list::WordList;
use crate::{Kit, TestVector, Validity, Vectors, vector_kit};
use uap_agent::{AgentState, PlanStepStatus, ThreadTree};
use upp::MessageType;

ubos_common::words! {
    /// The kind of a file.
    closed pub enum FileKind {
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
        /// Its kind.
        required kind: FileKind = "kind", "";
        /// The clause that it tests.
        required clause: String = "clause", "";
        /// The pointers of the MUST findings; empty if it is valid. A file that is not valid JSON has the empty pointer.
        required must: Vec<String> = "must", "";
        /// The file's text.
        required text: String = "text", "";
    }
}

/// All vectors: the valid ones, then the others.
#[must_use]
pub fn vectors() -> &'static [FileVector] {
    &PARSED
}

static PARSED: LazyLock<Vec<FileVector>> = LazyLock::new(|| {
    let valid = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/vectors/uap/valid.jsonl"
    ))
    .lines();
    let invalid = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/vectors/uap/invalid.jsonl"
    ))
    .lines();
    valid.chain(invalid).map(parsed).collect()
});

#[expect(clippy::expect_used, reason = "our own file, read by a test")]
fn parsed<T: for<'a> Read<'a>>(line: &str) -> T {
    let read = decode(line.as_bytes(), &Limits::default(), Profile::Strict);
    read.map(|(value, _)| value).expect("a line of the vectors")
}

impl TestVector for FileVector {
    type Answer = Validity;

    fn clause(&self) -> &str {
        &self.clause
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn expected(&self) -> Validity {
        Validity::of(self.must.is_empty())
    }

    fn wrong(&self) -> Validity {
        self.expected().opposite()
    }
}

/// The verdict of this project's validator.
fn reference(vector: &FileVector) -> Validity {
    let limits = Limits::default();
    let text = vector.text.as_bytes();
    Validity::of(match vector.kind {
        FileKind::State => AgentState::from_json(text, &limits).is_ok(),
        _ => ThreadTree::from_json(text, &limits).is_ok(),
    })
}

/// A case for each clause that a file alone can show.
#[must_use]
pub fn file_kit() -> Kit<Vectors<FileVector>> {
    let clauses = [
        (
            "UAP-12-6",
            "states of 1.0 and 1.1 are read, and other files are refused",
        ),
        ("UAP-12-1", "every member of a state is read"),
        ("UPP-1", "messages have the members of their type"),
        ("UAP-3-1", "a state is named by a UUIDv4"),
        ("UAP-8-5", "traces of sub-agents have their members"),
        ("UAP-5-6", "steps of a plan have one of four statuses"),
        ("UAP-7-2", "thread trees are consistent"),
    ];
    vector_kit("uap-state", vectors(), &clauses, reference).with_word_lists(&WORD_LISTS, |vector| {
        vector.must.is_empty().then_some(vector.text.as_bytes())
    })
}

const WORD_LISTS: [WordList; 5] = [
    WordList::new(&["UAP-5-6"], "/plan/*/status", PlanStepStatus::WORDS),
    // The roles of 1.0 are the types of 1.1.
    WordList::new(&["UAP-12-6"], "/messages/*/role", MessageType::WORDS),
    WordList::new(&["UPP-1"], "/messages/*/type", MessageType::WORDS),
    WordList::new(
        &["UPP-1"],
        "/messages/*/content/*/type",
        &[
            "text",
            "reasoning",
            "image",
            "document",
            "audio",
            "video",
            "binary",
        ],
    ),
    WordList::new(
        &["UPP-1"],
        "/messages/*/content/*/source/type",
        &["base64", "url", "bytes", "text"],
    ),
];
