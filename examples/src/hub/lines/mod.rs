//! What happens, one JSON line each.
//!
//! ```text
//! fit   shortens what a peer chose
//! page  what tests read of them
//! ```

mod fit;
#[cfg(test)]
mod page;

use std::fmt;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use prost_types::Timestamp;
use serde_json::{Map, Value, json};
use uap_hub_proto::capability::{Kind, Skill};
use uap_hub_proto::convert;
use uap_hub_proto::id::{ClientId, JobId};
use uap_hub_proto::message::JobResult;
use uap_hub_proto::role::hub::{AgentInfo, Event, JobEvent, Outcome, Verdict};
use uap_hub_proto::state::State;
use uap_hub_proto::wire::{
    Attachment, Payload, PayloadRequirement, Severity, StepReport, StepStatus, Summary,
};
use ubos_common::os::Clock;

use crate::out::Out;
#[cfg(test)]
pub(super) use page::Page;

/// A skill of an agent; of a translation what it makes, where the agent says so.
fn ability(skill: &Skill, info: &AgentInfo) -> Value {
    let mut members = json!({
        "kind": match skill.kind() {
            Kind::Test => "test",
            Kind::Translation => "translation",
        },
        "type": skill.name(),
    });
    let makes = info.target_payloads.get(skill).map(|payloads| {
        let payload = |one: &PayloadRequirement| {
            json!({
                "type": one.r#type,
                "mime_types": one.accepted_mime_types,
                "always": one.is_required,
                "many": one.is_repeatable,
            })
        };
        payloads.iter().map(payload).collect::<Vec<_>>()
    });
    if let Some(makes) = makes.filter(|makes| !makes.is_empty()) {
        set(&mut members, "makes", makes.into());
    }
    members
}

/// Bytes of a line about an agent: anybody who may register chooses what is in it.
const MAX_AGENT_BYTES: usize = 16 << 10;
/// Bytes of a line about a job on its way: its agent chooses what is in it.
const MAX_JOB_BYTES: usize = 1 << 20;
/// Bytes of a line with the end of a job: a message of 64 MiB in base64, and what is around it.
const MAX_END_BYTES: usize = 96 << 20;
/// Bytes of text that is given as text, however much longer that is than base64.
const MAX_ESCAPED_BYTES: usize = 1 << 20;

/// Standard output, until somebody closes it. Saying something never waits: what has to be told waits for
/// [`room`](Self::room) before, and news finds room or is counted.
#[derive(Clone)]
pub(super) struct Lines {
    out: Out,
    clock: Clock,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::to(io::stdout())
    }
}

impl Lines {
    /// Lines that are written there.
    pub(super) fn to(to: impl Write + Send + 'static) -> Self {
        let clock = Clock::default();
        let at = clock;
        let left_out = move |lines| line(&at, "left-out", json!({"lines": lines}), MAX_AGENT_BYTES);
        let out = Out::start(to, left_out);
        Self { out, clock }
    }

    /// Prints a line that has to be told; members that are null are left out.
    pub(super) fn say(&self, event: &str, members: Value) {
        self.out
            .add(line(&self.clock, event, members, MAX_JOB_BYTES));
    }

    /// Prints news, or counts it where there is no room.
    fn news(&self, event: &str, members: Value, most_bytes: usize) {
        self.out.news(line(&self.clock, event, members, most_bytes));
    }

    /// Whether lines find room.
    pub(super) fn has_room(&self) -> bool {
        self.out.has_room()
    }

    /// Waits until they do, or nobody reads.
    pub(super) async fn room(&self) {
        self.out.room().await;
    }

    /// Whether nobody reads.
    pub(super) fn is_broken(&self) -> bool {
        self.out.is_broken()
    }

    /// Waits until nobody reads.
    pub(super) async fn broken(&self) {
        self.out.broken().await;
    }

    /// Waits until all is written, or nobody reads.
    pub(super) async fn flushed(&self) {
        self.out.flushed().await;
    }

    /// A new agent, and what it can do.
    pub(super) fn registered(&self, agent: &ClientId, name: &str, info: Option<&AgentInfo>) {
        let skills = info.map(|info| info.skills.iter().map(|skill| ability(skill, info)));
        let members = json!({
            "agent": agent.as_str(),
            "name": name,
            "skills": skills.map(Iterator::collect::<Vec<_>>),
        });
        self.news("agent-registered", members, MAX_AGENT_BYTES);
    }

    /// Other news of agents.
    pub(super) fn agent(&self, event: &Event) {
        let gone = |agent: &ClientId, reason| json!({"agent": agent.as_str(), "reason": reason});
        let (name, members) = match event {
            Event::AgentAvailable { agent } => {
                ("agent-listening", json!({"agent": agent.as_str()}))
            }
            Event::AgentAway { agent, reason } => ("agent-away", gone(agent, reason)),
            Event::AgentGone { agent, reason } => ("agent-gone", gone(agent, reason)),
            Event::Audit(audit) => (
                "audit",
                json!({
                    "kind": format!("{:?}", audit.kind),
                    "agent": audit.agent.as_ref().map(|agent| agent.as_str()),
                    "session": audit.session.as_ref().map(|session| session.as_str()),
                }),
            ),
            _ => return,
        };
        self.news(name, members, MAX_AGENT_BYTES);
    }

    /// Events of agents that nobody saw.
    pub(super) fn missed(&self, events: u64) {
        self.news("missed", json!({"events": events}), MAX_AGENT_BYTES);
    }

    /// Why a job waits for an agent; without an id it was not submitted, because the agent that it names is not there.
    pub(super) fn waiting(&self, job: Option<JobId>, label: Option<&str>, why: &str) {
        let job = job.map(|job| job.to_string());
        let members = json!({"job": job, "id": label, "reason": why});
        self.news("waiting", members, MAX_JOB_BYTES);
    }

    /// News of a job, or its end, which has to be told.
    pub(super) fn job(&self, job: JobId, label: Option<&str>, event: &JobEvent) {
        let (name, mut members) = match event {
            JobEvent::Offered { session, agent } => (
                "proposed",
                json!({"session": session.as_str(), "agent": agent.as_str()}),
            ),
            JobEvent::Accepted { session } => ("accepted", json!({"session": session.as_str()})),
            JobEvent::Declined { session, reason } => (
                "rejected",
                json!({"session": session.as_str(), "reason": reason}),
            ),
            JobEvent::Ready { session } => ("ready", json!({"session": session.as_str()})),
            JobEvent::Started { session } => ("init-sent", json!({"session": session.as_str()})),
            JobEvent::Cut { session, reason } => (
                "cut",
                json!({"session": session.as_str(), "reason": reason}),
            ),
            JobEvent::Resumed { session } => ("resumed", json!({"session": session.as_str()})),
            JobEvent::Requeued {
                session,
                attempts,
                reason,
            } => (
                "requeued",
                json!({"session": session.as_str(), "attempts": attempts, "reason": reason}),
            ),
            JobEvent::Status { state, message, at } => (
                "status",
                json!({"state": state_word(*state), "message": message, "agent_at": time(at.as_ref())}),
            ),
            JobEvent::Telemetry { telemetry, at } => (
                "telemetry",
                json!({
                    "agent_at": time(at.as_ref()),
                    "message": telemetry.message,
                    "severity": Severity::try_from(telemetry.severity)
                        .map(|severity| severity.as_str_name()).ok(),
                    "source": telemetry.source,
                    "attachments": attachments(&telemetry.attachments),
                }),
            ),
            JobEvent::Ended(outcome) => return self.end(job, label, outcome),
            _ => return,
        };
        set(&mut members, "job", job.to_string().into());
        set(&mut members, "id", label.into());
        self.news(name, members, MAX_JOB_BYTES);
    }

    /// The end of a job: `result` where its agent gave one, else `failed`.
    pub(super) fn end(&self, job: JobId, label: Option<&str>, outcome: &Outcome) {
        // Beside a result the outcome has the beginning of its words alone.
        let words = outcome.result.as_ref().map(JobResult::message);
        let words = words.filter(|words| words.starts_with(&outcome.message));
        let mut members = json!({
            "job": job.to_string(),
            "id": label,
            "state": verdict_word(outcome.verdict),
            "message": words.unwrap_or(&outcome.message),
            "agent": outcome.agent.as_ref().map(|agent| agent.as_str()),
            "store_error": outcome.store_error,
        });
        match &outcome.result {
            Some(JobResult::Test(result)) => {
                set(
                    &mut members,
                    "reports",
                    result.reports.iter().map(report).collect(),
                );
                set(
                    &mut members,
                    "attachments",
                    attachments(&result.attachments),
                );
                set(
                    &mut members,
                    "summary",
                    result.summary.as_ref().map(summary).into(),
                );
            }
            Some(JobResult::Translation(result)) => {
                set(
                    &mut members,
                    "payloads",
                    result.payloads.iter().map(payload).collect(),
                );
                set(
                    &mut members,
                    "summary",
                    result.summary.as_ref().map(summary).into(),
                );
            }
            None => {}
        }
        let is_result = outcome.result.is_some()
            || matches!(outcome.verdict, Verdict::Completed | Verdict::Invalid);
        let name = if is_result { "result" } else { "failed" };
        self.out
            .add(line(&self.clock, name, members, MAX_END_BYTES));
    }
}

/// A line of no more than so many bytes, and a few; it says how many were left out.
fn line(clock: &Clock, event: &str, mut members: Value, most_bytes: usize) -> String {
    let left_out = fit::shorten(&mut members, most_bytes);
    let mut line = Map::from_iter([
        ("event".to_owned(), event.into()),
        ("at".to_owned(), clock.now().wall.to_string().into()),
    ]);
    if let Value::Object(members) = members {
        line.extend(members.into_iter().filter(|(_, value)| !value.is_null()));
    }
    if left_out > 0 {
        line.insert("left_out_bytes".to_owned(), left_out.into());
    }
    let mut text = Value::Object(line).to_string();
    text.push('\n');
    text
}

const fn state_word(state: State) -> &'static str {
    match state {
        State::Acknowledged => "ACKNOWLEDGED",
        State::Running => "RUNNING",
        State::Completed => "COMPLETED",
        State::Failed => "FAILED",
        State::Invalid => "INVALID",
    }
}

pub(super) const fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Completed => "COMPLETED",
        Verdict::Failed => "FAILED",
        Verdict::Invalid => "INVALID",
        Verdict::Cancelled => "CANCELLED",
        Verdict::Refused => "REFUSED",
        Verdict::Unplaced => "UNPLACED",
        Verdict::TimedOut => "TIMED_OUT",
        Verdict::Kept => "KEPT",
        _ => "UNKNOWN",
    }
}

fn report(step: &StepReport) -> Value {
    let status = StepStatus::try_from(step.status).map(|status| status.as_str_name());
    let steps: Vec<_> = step.steps.iter().map(report).collect();
    json!({"name": step.name, "status": status.ok(), "summary": step.summary.as_ref().map(summary), "steps": steps})
}

fn summary(summary: &Summary) -> Value {
    let seconds = |duration: &prost_types::Duration| {
        std::time::Duration::try_from(*duration)
            .ok()
            .map(|span| span.as_secs_f64())
    };
    json!({
        "total_seconds": summary.total_duration.as_ref().and_then(seconds),
        "start_time": time(summary.start_time.as_ref()),
        "metadata": summary.metadata.as_ref().and_then(|found| convert::from_struct(found).ok()),
    })
}

/// A time of an agent's clock, if it is one.
fn time(at: Option<&Timestamp>) -> Option<String> {
    let at = convert::from_timestamp(at?).ok()?;
    Some(at.to_string())
}

fn payload(payload: &Payload) -> Value {
    let mut made = payload
        .attachment
        .as_ref()
        .map_or_else(|| json!({}), attachment);
    set(&mut made, "type", payload.r#type.as_str().into());
    if let Some(metadata) = payload
        .metadata
        .as_ref()
        .and_then(|found| convert::from_struct(found).ok())
    {
        set(&mut made, "metadata", metadata.into());
    }
    made
}

fn attachments(all: &[Attachment]) -> Value {
    if all.is_empty() {
        return Value::Null;
    }
    all.iter().map(attachment).collect()
}

/// As jobs are written: text where the bytes are UTF-8, but for long ones that JSON would make longer than base64 does.
fn attachment(attachment: &Attachment) -> Value {
    let mut made = json!({"name": attachment.name, "mime_type": attachment.mime_type});
    let data = &attachment.data;
    let is_short = |text: &str| {
        data.len() <= MAX_ESCAPED_BYTES || fit::size(&text) <= data.len().div_ceil(3) * 4
    };
    match std::str::from_utf8(data) {
        Ok(text) if is_short(text) => set(&mut made, "text", text.into()),
        _ => set(&mut made, "base64", BASE64.encode(&attachment.data).into()),
    }
    made
}

/// Sets a member of an object.
fn set(object: &mut Value, name: &str, member: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), member);
    }
}
