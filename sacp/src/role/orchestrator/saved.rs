//! A saved run, and what the answer says of it beside its steps.

use ubos_common::json::{self, RawBuf};
use ubos_common::time::Now;
use ubos_common::violation::Profile;

use crate::runner::{ResumeError, Runner};
use crate::v1::Metrics;

ubos_common::wire! {
    /// A run, and what it took.
    pub(super) struct Saved {
        required version: u64 = "sacp_orchestrator", "SACP-3-1";
        verbatim run: RawBuf = "run", "SACP-3-1";
        optional spent: Metrics = "spent", "SACP1-4-4";
        optional spawned: u64 = "spawned", "SACP-3-1";
    }
}

impl Saved {
    /// A run with nothing spent.
    pub(super) fn of(run: &str) -> Self {
        let mut saved = Self::new(VERSION);
        saved.run = RawBuf::parse(run).ok();
        saved
    }

    pub(super) fn read(text: &[u8]) -> Result<Self, ResumeError> {
        let unreadable = |error: String| ResumeError::Unreadable(error);
        let limits = crate::runner::saved_limits(text.len());
        let (saved, _) = json::decode::<Self>(text, &limits, Profile::Strict)
            .map_err(|error| unreadable(error.to_string()))?;
        match (saved.version, &saved.run) {
            (VERSION, Some(_)) => Ok(saved),
            (VERSION, None) => Err(unreadable("it has no run".to_owned())),
            (seen, _) => Err(ResumeError::Version {
                seen,
                wanted: VERSION,
            }),
        }
    }

    pub(super) fn restore(&self, now: Now, runner: &mut Runner) -> Result<(), ResumeError> {
        let run = self.run.as_ref().map_or("", |run| run.as_str());
        runner.restore(now, run.as_bytes())
    }
}

/// The format that is written and read.
const VERSION: u64 = 1;
