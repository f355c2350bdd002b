//! What the author of a peer declares about it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// What a peer supports, which cases it is known to fail, and how many cases must judge it.
///
/// As a file it is a JSON object; every member may be absent:
///
/// ```json
/// {
///   "floor": 30,
///   "supports": ["OSW-2", "OSW-4.3-1"],
///   "out_of_reach": {"OSW-2-6": "the agent takes any number of calls"},
///   "known_failures": {"one call too many is busy": "repaired in the next release"}
/// }
/// ```
///
/// ```
/// use ubos_conformance::Expectations;
///
/// let file = br#"{"floor":30,"known_failures":{"answers echo the ids of their call":"a bug"}}"#;
/// let expectations = Expectations::from_json(file).unwrap();
/// assert_eq!(expectations.floor(), 30);
/// assert!(Expectations::from_json(br#"{"flor":30}"#).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expectations {
    floor: Option<usize>,
    supports: Option<Vec<String>>,
    out_of_reach: BTreeMap<String, String>,
    known_failures: BTreeMap<String, String>,
}

impl Expectations {
    /// Nothing is declared: every case of a MUST has to judge the peer, and to pass.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many cases have to judge the peer; with fewer the run fails. The default is 0.
    #[must_use]
    pub const fn with_floor(mut self, floor: usize) -> Self {
        self.floor = Some(floor);
        self
    }

    /// Sets the floor unless there is one already.
    #[must_use]
    pub fn or_floor(mut self, floor: usize) -> Self {
        self.floor.get_or_insert(floor);
        self
    }

    /// Adds a clause, or the beginning of clauses' ids, that the peer supports. Once one is added, clauses
    /// that are not supported are not tested.
    #[must_use]
    pub fn with_supported(mut self, clause: impl Into<String>) -> Self {
        self.supports
            .get_or_insert_with(Vec::new)
            .push(clause.into());
        self
    }

    /// Declares that a clause cannot be tested with this peer, and why.
    #[must_use]
    pub fn with_out_of_reach(mut self, clause: impl Into<String>, why: impl Into<String>) -> Self {
        self.out_of_reach.insert(clause.into(), why.into());
        self
    }

    /// Declares that the peer is known to fail a case, and why. The case runs, and is reported when it passes.
    #[must_use]
    pub fn with_known_failure(mut self, case: impl Into<String>, why: impl Into<String>) -> Self {
        self.known_failures.insert(case.into(), why.into());
        self
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file is no such object, or has a member that is not known; the error says where.
    pub fn from_json(text: &[u8]) -> Result<Self, ExpectationsError> {
        serde_json::from_slice(text).map_err(ExpectationsError)
    }

    /// How many cases have to judge the peer.
    #[must_use]
    pub fn floor(&self) -> usize {
        self.floor.unwrap_or(0)
    }

    pub(crate) fn is_supported(&self, clause: &str) -> bool {
        self.supports
            .as_ref()
            .is_none_or(|supported| supported.iter().any(|prefix| covers(prefix, clause)))
    }

    /// What is declared as supported and covers none of these clauses.
    pub(crate) fn supported_nowhere<'a>(
        &'a self,
        clauses: &BTreeSet<&str>,
    ) -> impl Iterator<Item = &'a str> {
        let covers_none = |prefix: &&str| !clauses.iter().any(|clause| covers(prefix, clause));
        let supported = self.supports.iter().flatten().map(String::as_str);
        supported.filter(covers_none)
    }

    pub(crate) fn out_of_reach(&self) -> impl Iterator<Item = (&str, &str)> {
        self.out_of_reach
            .iter()
            .map(|(clause, why)| (clause.as_str(), why.as_str()))
    }

    pub(crate) fn known_failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.known_failures
            .iter()
            .map(|(case, why)| (case.as_str(), why.as_str()))
    }
}

/// Whether a clause is the one named, or one below it: `OSW-4` covers `OSW-4.3-1`, and not `OSW-41-1`.
fn covers(prefix: &str, clause: &str) -> bool {
    clause
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
}

/// Why a file of expectations cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not a file of expectations: {0}")]
pub struct ExpectationsError(#[source] serde_json::Error);
