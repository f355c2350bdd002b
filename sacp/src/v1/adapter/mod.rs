//! Conversion between 0.1 and 1.0, with a report of what the other edition cannot express.
//!
//! [`up`] is total but for an empty plan, which 1.0 cannot say and which is asked back. [`down`] refuses
//! what 0.1 cannot say, or drops it and lists it. From 0.1 up and down again gives the plan in its normal
//! form: a group of one is its member (unless a join follows), nested groups are flattened.
//!
//! Findings about meaning are MUSTs: [`Loss::Refuse`] refuses them, [`Loss::Drop`] turns them into advice.
//! What the other edition has no place for and does not change what is done (who sent it, when, traces) is
//! advice in either case.

mod down;
mod up;

pub use down::{Down, Loss, Refused, down};
pub use up::{Up, UpError, answer_up, up};

use ubos_common::violation::{Level, Report, Violation};

const CLAUSE: &str = "SACP1-15-1";

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
