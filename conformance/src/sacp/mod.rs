//! Kits for SACP 0.1 and 1.0.
//!
//! [`vector_kit`] judges a validator with the messages of `vectors/sacp`. Which text a vector has, what a validator
//! answers about it and which clause it tests stands in `vectors/sacp/index.json`. [`executor_kit`] judges whatever runs
//! plans.
//!
//! ```
//! use ubos_conformance::sacp::{Answer, SacpVector, vector_kit};
//! use ubos_conformance::Expectations;
//!
//! let kit = vector_kit();
//! let report = kit.run(&Expectations::new().with_floor(kit.cases().len()), |_| {
//!     // A validator that answers as the protocol does: `VALID`, or `ERR` with a code.
//!     Ok(Box::new(|vector: &SacpVector| {
//!         let reply = sacp::validate::verdict(vector.message());
//!         Some(Answer::read(&sacp::ubos_common::json::to_vec(&reply)))
//!     }))
//! });
//! assert!(report.is_conformant(), "{report}");
//! ```

mod executor;
mod files;

use core::fmt;
use std::sync::LazyLock;

use sacp::validate::verdict;
use sacp::{Code, OutFmt, Reply, State, v1};
use serde::Deserialize;
use ubos_common::violation::Level;

pub use executor::{Executor, ExecutorLine, Executors, executor_kit, reference};

use crate::word_list::WordList;
use crate::{Kit, TestVector, Vectors, vector_kit as kit_of};

/// A message, and what a validator answers about it.
#[derive(Clone, Debug)]
pub struct SacpVector {
    entry: Entry,
    message: &'static [u8],
}

/// A line of the index.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    file: String,
    clause: String,
    code: Option<String>,
}

impl SacpVector {
    /// The bytes of the message.
    #[must_use]
    pub const fn message(&self) -> &'static [u8] {
        self.message
    }
}

impl TestVector for SacpVector {
    type Answer = Answer;

    fn clause(&self) -> &str {
        &self.entry.clause
    }

    fn name(&self) -> &str {
        &self.entry.file
    }

    fn expected(&self) -> Answer {
        self.entry
            .code
            .as_ref()
            .map_or(Answer::Valid, |code| Answer::Refused(code.clone()))
    }

    fn wrong(&self) -> Answer {
        match self.entry.code {
            Some(_) => Answer::Valid,
            None => Answer::Refused(Code::InternalError.as_str().to_owned()),
        }
    }
}

/// What a validator answered.
// exhaustive: the two answers of the protocol, and anything else
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `VALID`.
    Valid,
    /// `ERR` with this code.
    Refused(String),
    /// Neither.
    Unreadable,
}

impl Answer {
    /// Reads the JSON text of an answer.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        match Reply::decode(text) {
            Ok(Reply::Valid { .. }) => Self::Valid,
            Ok(Reply::Err(error)) => Self::Refused(error.code.as_str().to_owned()),
            _ => Self::Unreadable,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "VALID",
            Self::Refused(code) => code,
            Self::Unreadable => "neither VALID nor ERR",
        })
    }
}

/// A case for each clause that a single message can break.
///
/// The peer is a validator of both editions.
#[must_use]
pub fn vector_kit() -> Kit<Vectors<SacpVector>> {
    kit_of("sacp", &VECTORS, &CLAUSES, |vector| {
        Answer::read(&ubos_common::json::to_vec(&verdict(vector.message)))
    })
    .with_word_lists(&WORD_LISTS, |vector| {
        vector.entry.code.is_none().then_some(vector.message)
    })
    .at_level(Level::Advice, &["SACP-2-10"])
}

static VECTORS: LazyLock<Vec<SacpVector>> = LazyLock::new(|| {
    let index = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/vectors/sacp/index.json"
    ));
    let entries: Vec<Entry> = serde_json::from_str(index).unwrap_or_default();
    let message = |entry: Entry| {
        let (_, message) = files::FILES.iter().find(|(file, _)| *file == entry.file)?;
        Some(SacpVector { entry, message })
    };
    entries.into_iter().filter_map(message).collect()
});

const CLAUSES: [(&str, &str); 20] = [
    ("SACP-6-1", "accepts the samples of the specification"),
    ("SACP-2-1", "requires a goal and a plan"),
    ("SACP-2-2", "requires acts of three parts"),
    ("SACP-2-3", "checks the place of groups and joins"),
    ("SACP-2-4", "checks the types of optional members"),
    ("SACP-2-5", "knows three output formats"),
    ("SACP-2-6", "knows four states"),
    (
        "SACP-2-7",
        "accepts an empty plan and refuses an empty group",
    ),
    ("SACP-2-8", "checks the version"),
    ("SACP-2-9", "checks messages inside messages"),
    ("SACP-2-10", "accepts unknown members"),
    ("SACP-8-3", "refuses text that is not a message"),
    (
        "SACP1-4-1",
        "requires the members of 1.0 and refuses others",
    ),
    ("SACP1-4-2", "checks the alphabet and length of names"),
    (
        "SACP1-4-3",
        "requires a result or an error as the state demands",
    ),
    (
        "SACP1-4-4",
        "checks the names of extensions and the members of traces",
    ),
    ("SACP1-6-1", "requires the members of a step"),
    (
        "SACP1-6-2",
        "requires steps that form a graph without cycles",
    ),
    ("SACP1-7-1", "checks the form of results and errors"),
    ("SACP1-15-1", "refuses tuples in 1.0"),
];

const WORD_LISTS: [WordList; 6] = [
    WordList::new(&["SACP-2-5"], "/out_fmt", OutFmt::WORDS),
    WordList::new(&["SACP-2-6"], "/state", State::WORDS),
    WordList::new(&["SACP1-4-1"], "/out_fmt", OutFmt::WORDS),
    WordList::new(&["SACP1-4-1"], "/state", v1::State::WORDS),
    WordList::new(&["SACP1-6-1"], "/plan/*/on_error", v1::OnError::WORDS),
    WordList::new(
        &["SACP1-6-1"],
        "/plan/*/retry/strategy",
        v1::RetryStrategy::WORDS,
    ),
];
