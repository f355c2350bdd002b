//! What is said of steps: their names and their ends, drawn while they happen or read from a store.

use opensentience_wire::message::Status as CallStatus;
use sap::Status;
use uap_hub_proto::role::hub::Verdict;

/// The end of a step that ended well.
pub const DONE: &str = "done";
/// The name of the run of the report's agent.
pub const WRITES_REPORT: &str = "writes the report";

/// The end of a step that failed.
#[must_use]
pub fn failed(why: &str) -> String {
    format!("failed: {why}")
}

/// The end of a task; the cache may have been asked, and have answered.
#[must_use]
pub fn task_end(status: &Status, cache_hit: Option<bool>) -> String {
    match (status, cache_hit) {
        (Status::Succeeded, Some(true)) => "from the cache".to_owned(),
        (Status::Succeeded, _) => DONE.to_owned(),
        (status, _) => failed(status.as_str()),
    }
}

/// The end of a call, and why where it failed.
#[must_use]
pub fn call_end(status: &CallStatus, why: &str) -> String {
    match status {
        CallStatus::Succeeded => DONE.to_owned(),
        CallStatus::Canceled => "canceled".to_owned(),
        _ => failed(why),
    }
}

/// The end of a job or a session.
#[must_use]
pub fn job_end(verdict: Verdict) -> String {
    match verdict {
        Verdict::Completed => DONE.to_owned(),
        verdict => failed(&format!("{verdict:?}")),
    }
}

/// The name of a job: the share of the folder that it counts, from 0.
#[must_use]
pub fn share(share: u64) -> String {
    format!("share {}", share.saturating_add(1))
}

/// The name of a session.
#[must_use]
pub fn session(agent: &str) -> String {
    format!("session with {agent}")
}

/// The name of a step of an agent.
#[must_use]
pub fn agent_step(step: u64) -> String {
    format!("step {step}")
}
