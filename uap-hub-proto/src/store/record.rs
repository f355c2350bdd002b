//! The bytes of a record: protobuf, with the wire's own payloads and results inside.

use std::{sync::Arc, time::Duration};

use prost::{Message, Oneof};
use ubos_common::trace_context::TraceContext;

use crate::{
    capability::{Kind, Skill},
    id::JobId,
    message::JobResult,
    role::hub::{Job, Outcome, Record, Verdict},
    wire::{Payload, TestResult, TranslationResult},
};

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, tag = "1")]
    job: String,
    #[prost(oneof = "What", tags = "2, 3")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
enum What {
    #[prost(message, tag = "2")]
    Accepted(StoredJob),
    #[prost(message, tag = "3")]
    Ended(StoredOutcome),
}

#[derive(Clone, PartialEq, Message)]
struct StoredJob {
    /// Else a test.
    #[prost(bool, tag = "1")]
    is_translation: bool,
    #[prost(string, tag = "2")]
    r#type: String,
    #[prost(message, repeated, tag = "3")]
    payloads: Vec<Payload>,
    #[prost(string, optional, tag = "4")]
    agent: Option<String>,
    #[prost(string, optional, tag = "5")]
    group: Option<String>,
    #[prost(sint32, tag = "6")]
    priority: i32,
    #[prost(uint64, optional, tag = "7")]
    wait_limit_ms: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    time_limit_ms: Option<u64>,
    #[prost(uint32, optional, tag = "9")]
    max_attempts: Option<u32>,
    #[prost(string, optional, tag = "10")]
    label: Option<String>,
    #[prost(string, optional, tag = "11")]
    traceparent: Option<String>,
    #[prost(string, optional, tag = "12")]
    tracestate: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredOutcome {
    #[prost(uint32, tag = "1")]
    verdict: u32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(string, optional, tag = "3")]
    agent: Option<String>,
    #[prost(oneof = "StoredResult", tags = "4, 5")]
    result: Option<StoredResult>,
}

#[derive(Clone, PartialEq, Oneof)]
enum StoredResult {
    #[prost(message, tag = "4")]
    Test(TestResult),
    #[prost(message, tag = "5")]
    Translation(TranslationResult),
}

/// The numbers of verdicts; 0 is none.
const VERDICTS: [Verdict; 8] = [
    Verdict::Completed,
    Verdict::Failed,
    Verdict::Invalid,
    Verdict::Cancelled,
    Verdict::Refused,
    Verdict::Unplaced,
    Verdict::TimedOut,
    Verdict::Kept,
];

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They are no protobuf of that shape.
    #[error("the bytes are not a record")]
    Malformed,
    /// The job's id is no UUID.
    #[error("the job's id is not a UUID")]
    Id,
    /// The record says nothing, or a later version wrote it.
    #[error("the kind of the record is unknown")]
    Unknown,
}

/// The bytes of a record. An outcome's `store_error` is not among them.
// impl: HUB-6-1
#[must_use]
pub fn encode(job: JobId, record: &Record) -> Vec<u8> {
    let what = Some(match record {
        Record::Accepted(job) => What::Accepted(stored_job(job)),
        Record::Ended(outcome) => What::Ended(stored_outcome(outcome)),
    });
    let job = job.to_string();
    Stored { job, what }.encode_to_vec()
}

/// Reads a record.
///
/// # Errors
///
/// [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<(JobId, Record), DecodeError> {
    let stored = Stored::decode(bytes).map_err(|_| DecodeError::Malformed)?;
    let id = stored.job.parse().map_err(|_| DecodeError::Id)?;
    let record = match stored.what.ok_or(DecodeError::Unknown)? {
        What::Accepted(stored) => Record::Accepted(job(stored)?),
        What::Ended(stored) => Record::Ended(outcome(stored)?),
    };
    Ok((id, record))
}

fn stored_job(job: &Job) -> StoredJob {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let text = |text: &Arc<str>| text.as_ref().to_owned();
    StoredJob {
        is_translation: job.skill.kind() == Kind::Translation,
        r#type: job.skill.name().to_owned(),
        payloads: job.payloads.clone(),
        agent: job.agent.as_ref().map(ToString::to_string),
        group: job.group.as_ref().map(text),
        priority: job.priority.into(),
        wait_limit_ms: job.wait_limit.map(ms),
        time_limit_ms: job.time_limit.map(ms),
        max_attempts: job.max_attempts,
        label: job.label.as_ref().map(text),
        traceparent: job.trace.as_ref().map(TraceContext::traceparent),
        tracestate: (job.trace.as_ref())
            .and_then(TraceContext::tracestate)
            .map(str::to_owned),
    }
}

fn job(stored: StoredJob) -> Result<Job, DecodeError> {
    let skill = match stored.is_translation {
        true => Skill::translation(stored.r#type),
        false => Skill::test(stored.r#type),
    };
    let mut job = Job::new(skill, stored.payloads);
    job.agent = stored.agent.map(Into::into);
    job.group = stored.group.map(Into::into);
    job.priority = i8::try_from(stored.priority).map_err(|_| DecodeError::Malformed)?;
    job.wait_limit = stored.wait_limit_ms.map(Duration::from_millis);
    job.time_limit = stored.time_limit_ms.map(Duration::from_millis);
    job.max_attempts = stored.max_attempts;
    job.label = stored.label.map(Into::into);
    job.trace = (stored.traceparent)
        .and_then(|parent| TraceContext::read(&parent, stored.tracestate.as_deref()));
    Ok(job)
}

fn stored_outcome(outcome: &Outcome) -> StoredOutcome {
    let number = VERDICTS
        .iter()
        .zip(1..)
        .find(|(verdict, _)| **verdict == outcome.verdict);
    StoredOutcome {
        verdict: number.map_or(0, |(_, number)| number),
        message: outcome.message.clone(),
        agent: outcome.agent.as_ref().map(ToString::to_string),
        result: outcome.result.clone().map(|result| match result {
            JobResult::Test(result) => StoredResult::Test(result),
            JobResult::Translation(result) => StoredResult::Translation(result),
        }),
    }
}

fn outcome(stored: StoredOutcome) -> Result<Outcome, DecodeError> {
    let mut verdicts = VERDICTS.iter().zip(1..);
    let verdict = verdicts.find(|(_, number)| *number == stored.verdict);
    let (verdict, _) = verdict.ok_or(DecodeError::Unknown)?;
    let mut outcome = Outcome::new(*verdict, stored.message);
    outcome.agent = stored.agent.map(Into::into);
    outcome.result = stored.result.map(|result| match result {
        StoredResult::Test(result) => JobResult::Test(result),
        StoredResult::Translation(result) => JobResult::Translation(result),
    });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use ubos_common::id::IdSource;

    use super::*;

    // spec: HUB-6-1
    #[test]
    fn records_come_back_as_they_were() {
        let id = IdSource::seeded(1).next_id();
        let payload = Payload::file("p", "n", "text/plain", "data");
        let mut full = Job::translation("f", vec![payload.clone(), payload.clone()])
            .with_agent("agent".into())
            .with_group("g")
            .with_priority(-3)
            .with_wait_limit(Duration::from_millis(1))
            .with_time_limit(Duration::from_secs(9))
            .with_max_attempts(4);
        full.label = Some("l".into());
        full.trace = TraceContext::new([1; 16], [2; 8]);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut traced = Job::test("t", Vec::new());
        traced.trace = TraceContext::read(parent, ["a=1,b=2"]);
        assert!(full.trace.is_some() && traced.trace.is_some());
        let bare = Outcome::new(Verdict::Failed, "m");
        let mut rich = Outcome::new(Verdict::Kept, "m");
        rich.agent = Some("agent".into());
        rich.result = Some(TranslationResult::completed(vec![payload]).into());
        let records = [
            Record::Accepted(Job::test("t", Vec::new())),
            Record::Accepted(full),
            Record::Accepted(traced),
            Record::Ended(bare),
            Record::Ended(rich),
        ];
        for record in records {
            assert_eq!(decode(&encode(id, &record)), Ok((id, record)));
        }
        for verdict in VERDICTS {
            let record = Record::Ended(Outcome::new(verdict, ""));
            assert_eq!(decode(&encode(id, &record)), Ok((id, record)));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let id: JobId = IdSource::seeded(1).next_id();
        let of = |job: String, what| decode(&Stored { job, what }.encode_to_vec());
        assert_eq!(decode(b"\xff"), Err(DecodeError::Malformed));
        assert_eq!(of("x".into(), None), Err(DecodeError::Id));
        assert_eq!(of(id.to_string(), None), Err(DecodeError::Unknown));
        let unknown = What::Ended(StoredOutcome {
            verdict: 99,
            ..StoredOutcome::default()
        });
        assert_eq!(of(id.to_string(), Some(unknown)), Err(DecodeError::Unknown));
        let untraced = What::Accepted(StoredJob {
            traceparent: Some("00-0-0-0".into()),
            tracestate: Some("a=1".into()),
            ..StoredJob::default()
        });
        let job = Record::Accepted(Job::test("", Vec::new()));
        let read = of(id.to_string(), Some(untraced));
        assert_eq!(read, Ok((id, job)), "a place that is not valid is none");
        let far = What::Accepted(StoredJob {
            priority: 128,
            ..StoredJob::default()
        });
        assert_eq!(of(id.to_string(), Some(far)), Err(DecodeError::Malformed));
    }
}
