//! `uap-state` and `uap-thread-tree`: what agents of UAP-1.1 keep.

use uap_agent::AgentState;
use uap_agent::StateError;
use uap_agent::ThreadTree;
use ubos_common::json::{DecodeError, Limits};
use ubos_common::violation::{Level, Report, Violation};

use super::kind::Kind;

/// A state of version 1.1 or 1.0.
pub const STATE: Kind = Kind {
    name: "uap-state",
    about: "a state of UAP, of version 1.1 or 1.0",
    profiles: &[],
    max_bytes: MAX_BYTES,
    judge: |bytes, _| {
        let Err(error) = AgentState::from_json(bytes, &limits()) else {
            return Report::default();
        };
        match error {
            StateError::Invalid(error) => of_json(error, "UAP-12-6"),
            other => one("/version", "version", "UAP-12-6", other.to_string()),
        }
    },
};

/// A thread tree.
pub const TREE: Kind = Kind {
    name: "uap-thread-tree",
    about: "a thread tree of UAP",
    profiles: &[],
    max_bytes: MAX_BYTES,
    judge: |bytes, _| match ThreadTree::from_json(bytes, &limits()) {
        Ok(_) => Report::default(),
        Err(error) => of_json(error, "UAP-7-2"),
    },
};

const MAX_BYTES: usize = 64 << 20;

fn limits() -> Limits {
    Limits::default().with_max_bytes(MAX_BYTES)
}

fn of_json(error: DecodeError, clause: &'static str) -> Report {
    match error {
        DecodeError::Invalid(report) => report,
        error => one("", "no_json", clause, error.to_string()),
    }
}

fn one(pointer: &str, code: &'static str, clause: &'static str, why: String) -> Report {
    let mut report = Report::default();
    let pointer = pointer.to_owned();
    report.push(Violation::new(pointer, code, clause, Level::Must, why));
    report
}
