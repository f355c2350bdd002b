//! Messages with known verdicts.

use std::sync::LazyLock;

use sap::validate::{Options, decode_result, decode_task};
use sap::{AgentKind, Alignment, CacheMode, Priority, ProducerKind, RiskTolerance, Status};
use ubos_common::json::{self, Limits, Read};
use ubos_common::violation::{Level, Profile};

use crate::word_list::WordList;
use crate::{Kit, TestVector, Validity, Vectors};

/// What kind of message a vector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A task.
    Task,
    /// A result.
    Result,
}

impl MessageKind {
    /// `task` or `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Result => "result",
        }
    }
}

/// A message, and what a validator finds in it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[non_exhaustive]
pub struct Vector {
    /// Its name, unique among all.
    pub name: String,
    /// What it is.
    #[serde(deserialize_with = "kind")]
    pub kind: MessageKind,
    /// The clause that it is about.
    pub clause: String,
    /// Pointers of the MUST findings under the strict profile; none where the message is valid.
    pub strict: Vec<String>,
    /// Whether the lenient profile reads it.
    pub lenient: bool,
    /// The message as it stands on the wire.
    pub text: String,
}

fn kind<'de, D: serde::Deserializer<'de>>(from: D) -> Result<MessageKind, D::Error> {
    let word: String = serde::Deserialize::deserialize(from)?;
    Ok(match word.as_str() {
        "task" => MessageKind::Task,
        _ => MessageKind::Result,
    })
}

/// All vectors: the valid ones, then the others.
#[must_use]
pub fn vectors() -> &'static [Vector] {
    &PARSED
}

static PARSED: LazyLock<Vec<Vector>> = LazyLock::new(|| {
    let valid = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/vectors/sap/valid.jsonl"
    ));
    let invalid = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/vectors/sap/invalid.jsonl"
    ));
    let lines = valid.lines().chain(invalid.lines());
    #[expect(clippy::expect_used, reason = "the files are part of this crate")]
    lines
        .map(|line| serde_json::from_str(line).expect("a line of the vectors"))
        .collect()
});

impl TestVector for Vector {
    type Answer = Validity;

    fn clause(&self) -> &str {
        &self.clause
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn expected(&self) -> Validity {
        Validity::of(self.strict.is_empty())
    }

    fn wrong(&self) -> Validity {
        self.expected().opposite()
    }
}

/// The kit for validators, with a case for each clause that a message alone can show.
#[must_use]
pub fn vector_kit() -> Kit<Vectors<Vector>> {
    crate::vector_kit("sap", vectors(), CLAUSES, |vector| {
        let (text, options) = (vector.text.as_bytes(), Options::default());
        Validity::of(match vector.kind {
            MessageKind::Task => decode_task(text, &options).is_ok(),
            MessageKind::Result => decode_result(text, &options).is_ok(),
        })
    })
    .with_word_lists(&WORD_LISTS, |vector| {
        vector.strict.is_empty().then_some(vector.text.as_bytes())
    })
    .at_level(Level::Should, &["SAP-2-2"])
    .at_level(Level::Advice, &["SAP-2-5"])
}

/// Reads a message leniently and without a bound: what is wrong with it is judged elsewhere.
pub(super) fn lenient<T: for<'a> Read<'a>>(bytes: &[u8]) -> Option<T> {
    let read = json::decode(bytes, &unbounded(), Profile::Lenient);
    read.ok().map(|(value, _)| value)
}

pub(super) fn unbounded() -> Limits {
    Limits::default()
        .with_max_bytes(usize::MAX)
        .with_max_depth(Limits::DEEPEST)
        .with_max_members(usize::MAX)
        .with_max_array_len(usize::MAX)
        .with_max_string_bytes(usize::MAX)
}

const CLAUSES: &[(&str, &str)] = &[
    ("SAP-2-1", "the version is the string 2.0"),
    ("SAP-2-2", "members that are not known are passed over"),
    ("SAP-2-5", "what is no sound JSON object is refused"),
    ("SAP-3-1", "ids are hyphenated UUIDs"),
    ("SAP-3-2", "times are UTC, to the second, and exist"),
    ("SAP-4.1-1", "a task has its required members"),
    ("SAP-4.1-2", "a parent may be absent or null"),
    ("SAP-4.1-3", "an issuer has an id and a kind"),
    ("SAP-4.1-4", "a capability is namespaced"),
    ("SAP-4.1-5", "a context has a pressure level"),
    ("SAP-4.1-6", "members of a context have their types"),
    ("SAP-4.1-8", "a cache policy has its types"),
    ("SAP-4.1-9", "a payload is an object"),
    ("SAP-4.1-10", "a contract's schema is an object"),
    ("SAP-4.1-11", "telemetry has its types"),
    ("SAP-4.1-12", "a reply route has its types"),
    ("SAP-4.1-13", "attachments, tags and meta have their types"),
    ("SAP-4.1-14", "the specification's task lacks its level"),
    ("SAP-4.2-1", "a result has its required members"),
    ("SAP-4.2-2", "a status is one of seven words"),
    ("SAP-4.2-3", "every result has an alignment"),
    ("SAP-4.2-4", "evidence has its types"),
    ("SAP-4.2-5", "an output is any value"),
    (
        "SAP-4.2-6",
        "the other members of a result have their types",
    ),
    ("SAP-4.2-8", "the specification's result is valid"),
    ("SAP-4-1", "null is no absence"),
    ("SAP-4-3", "closed words match exactly, open ones are open"),
    ("SAP-5-6", "a failed result says why"),
];

const WORD_LISTS: [WordList; 8] = [
    WordList::new(
        &["SAP-4.1-3", "SAP-4-3"],
        "/issuer/agentKind",
        AgentKind::WORDS,
    ),
    WordList::new(
        &["SAP-4.1-5", "SAP-4-3"],
        "/constitutionalContext/pressureLevel",
        &["instant", "consulted", "deliberated"],
    ),
    WordList::new(
        &["SAP-4.1-6", "SAP-4-3"],
        "/constitutionalContext/riskTolerance",
        RiskTolerance::WORDS,
    ),
    WordList::new(
        &["SAP-4.1-8", "SAP-4-3"],
        "/constitutionalContext/cachePolicy/mode",
        CacheMode::WORDS,
    ),
    WordList::new(
        &["SAP-4.1-11", "SAP-4-3"],
        "/telemetry/priority",
        Priority::WORDS,
    ),
    WordList::new(
        &["SAP-4.2-1", "SAP-4-3"],
        "/producer/agentKind",
        ProducerKind::WORDS,
    ),
    WordList::new(&["SAP-4.2-2", "SAP-4-3"], "/status", Status::WORDS),
    WordList::new(
        &["SAP-4.2-3", "SAP-4-3"],
        "/constitutionalEvidence/alignment",
        Alignment::WORDS,
    ),
];
