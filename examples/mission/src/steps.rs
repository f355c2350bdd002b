//! The log of steps: what a mission does that no protocol's store holds.
//!
//! Tasks are in the transcript, calls in the audit, jobs in the hub's store and the run of the agent in its journal. Here
//! are the mission itself, its parts, the acts of its plan, and what the tool process told of its time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use ubos_common::log::Log;
use ubos_common::time::Timestamp;

use super::trace::Span;

/// The log, for one mission.
#[derive(Clone, Debug)]
pub struct StepLog {
    log: Arc<Log>,
    run: Arc<str>,
}

/// A record: a step begins, ends, or both.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// The mission's correlation id.
    pub run: String,
    /// The step.
    pub id: String,
    /// Where it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Begin>,
    /// Where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// The beginning of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// When.
    pub at: String,
    /// The step that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The protocol, by its name on the screen.
    pub who: String,
    /// What is done.
    pub name: String,
    /// Whether the tool process does it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_tools: bool,
}

/// The end of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: String,
    /// How.
    pub outcome: String,
}

impl StepLog {
    /// The log of a mission.
    pub fn new(log: Arc<Log>, run: impl Into<Arc<str>>) -> Self {
        let run = run.into();
        Self { log, run }
    }

    /// A step begins, or has been: then its end is written with it.
    pub fn write(&self, span: &Span) {
        let begin = Begin {
            at: span.started.to_string(),
            parent: span.parent.clone(),
            who: span.who.name().to_owned(),
            name: span.name.clone(),
            in_tools: span.in_tools,
        };
        let end = span.ended.map(|at| End::new(at, &span.outcome));
        self.append(&span.id, Some(begin), end);
    }

    /// A step ends.
    pub fn end(&self, id: &str, at: Timestamp, outcome: &str) {
        self.append(id, None, Some(End::new(at, outcome)));
    }

    fn append(&self, id: &str, begin: Option<Begin>, end: Option<End>) {
        let record = Record {
            run: self.run.to_string(),
            id: id.to_owned(),
            begin,
            end,
        };
        let bytes = serde_json::to_vec(&record).unwrap_or_default();
        // The work goes on where it cannot be written; what is missing is told when the stores are read.
        let _ = self.log.append(&bytes);
    }
}

impl End {
    fn new(at: Timestamp, outcome: &str) -> Self {
        Self {
            at: at.to_string(),
            outcome: outcome.to_owned(),
        }
    }
}
