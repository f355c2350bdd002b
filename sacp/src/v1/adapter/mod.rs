//! Conversion between 0.1 and 1.0, with a report of what the other edition cannot express.
//!
//! [`up`] converts every message except one with an empty plan, which 1.0 cannot express. [`down`] refuses what 0.1
//! cannot express, or drops and lists it. A plan that goes from 0.1 up and down again is in its normal form: a group of
//! one is its member (unless a join follows), and nested groups are flattened.
//!
//! Findings about meaning are MUSTs: [`Profile::Strict`](ubos_common::violation::Profile::Strict) refuses them, and the
//! lenient profile turns them into advice. Members that the other edition does not have and that do not change what is
//! done (the sender, the time, traces) are advice in both profiles.

mod down;
mod up;

pub use down::{Down, down};
pub(crate) use up::steps_of;
pub use up::{Up, answer_up, up};

use ubos_common::violation::{Level, Report, Violation};

use crate::reply::Clarify;

const CLAUSE: &str = "SACP1-15-1";

/// Why a message cannot be expressed in the other edition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The plan of a message of 0.1 is empty: the question to answer with.
    #[error("the plan is empty, but 1.0 needs at least one step")]
    Empty(Clarify),
    /// What the other edition cannot express, one finding each.
    #[error("the other edition cannot express the message:\n{0}")]
    Lossy(Report),
}

/// Records a loss.
fn lose(report: &mut Report, pointer: impl Into<String>, level: Level, what: impl Into<String>) {
    report.push(Violation::new(pointer, "lost", CLAUSE, level, what.into()));
}

/// The extensions that keep members of 0.1 which 1.0 does not have.
mod ext {
    pub(super) const SUBTASK: &str = "sacp.subtask";
    pub(super) const MSG_ID: &str = "sacp.msg_id";
    pub(super) const REPLY_TO: &str = "sacp.reply_to";
    pub(super) const GOAL: &str = "sacp.g";
    pub(super) const EXTRA: &str = "sacp.extra";
}
