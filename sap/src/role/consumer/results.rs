//! The results of one task.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::time::Now;

use super::message::Written;
use super::work::{HandlerError, Outcome, Progress};
use crate::alignment::{Assessment, all_unchecked};
use crate::cache::{CacheRecord, Keys, SAP_VERSION};
use crate::error::{ErrorCode, ErrorObject};
use crate::evidence::{Alignment, CacheEvidence, ConstitutionalEvidence};
use crate::future::LARGE;
use crate::number::Whole;
use crate::result::{Producer, TaskResult};
use crate::status::Status;
use crate::task::Task;
use crate::validate::{check_result, is_valid_result};

/// What the results of a task are made of.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) task: Arc<Task>,
    producer: Arc<Producer>,
    /// The verdict before anything was computed; VALID until it was asked for.
    pub(super) admitted: Option<Assessment>,
    /// What every result from here on says of the cache.
    cache: Option<CacheEvidence>,
}

impl Results {
    pub(super) fn new(task: Arc<Task>, producer: Arc<Producer>) -> Self {
        Self {
            task,
            producer,
            admitted: None,
            cache: None,
        }
    }

    pub(super) fn admission(&self) -> Assessment {
        let valid = || Assessment::valid(&self.task.constitutional_context);
        self.admitted.clone().unwrap_or_else(valid)
    }

    /// What is known of an outcome that was not held against this task.
    fn unchecked(&self) -> Assessment {
        let mut assessment = self.admission();
        let why = "the cache answers; with mustAlign it is checked";
        let constraints = all_unchecked(&self.task.constitutional_context, why);
        assessment.checks.extend(constraints);
        assessment
    }

    fn result(&self, now: Now, status: Status, evidence: ConstitutionalEvidence) -> TaskResult {
        let producer = Producer::clone(&self.producer);
        let mut result = TaskResult::of(&self.task, now.wall, producer, status, evidence);
        result.constitutional_evidence.cache.clone_from(&self.cache);
        result
    }

    /// A result of which nothing is known but its status.
    pub(super) fn interim(&self, now: Now, status: Status) -> TaskResult {
        self.result(now, status, self.admission().into())
    }

    // impl: SAP-8-1
    pub(super) fn failed(&self, now: Now, code: ErrorCode, message: &str) -> TaskResult {
        let message = if message.trim().is_empty() {
            code.as_str().to_owned()
        } else {
            message.to_owned()
        };
        self.interim(now, Status::Failed).with_error(code, message)
    }

    /// The cache was looked at, and does not answer.
    pub(super) fn missed(&mut self) {
        self.cache = Some(cache_evidence(false, None, None));
    }

    /// The record answers, with its new verdict where it was checked again.
    pub(super) fn hit(
        &mut self,
        now: Now,
        record: &CacheRecord,
        keys: &Keys,
        age_sec: u64,
        rechecked: Option<Assessment>,
    ) -> TaskResult {
        self.cache = Some(cache_evidence(true, Some(keys), Some(age_sec)));
        let assessment = rechecked.unwrap_or_else(|| self.unchecked());
        let mut evidence = ConstitutionalEvidence::from(assessment);
        evidence.citations = Some(record.citations.clone());
        let mut result = self.result(now, Status::Succeeded, evidence);
        result.output = Some(record.output.clone());
        result
    }

    /// A report of the handler as a result. A part that breaks a principle is the last.
    pub(super) fn progress(&self, now: Now, progress: Progress, verdict: Assessment) -> TaskResult {
        if verdict.alignment != Alignment::Valid {
            let outcome = Outcome {
                output: progress.output,
                citations: progress.citations,
                next_actions: progress.next_actions,
                ..Outcome::default()
            };
            return self.by_verdict(now, verdict, outcome);
        }
        let mut evidence = ConstitutionalEvidence::from(verdict);
        if !progress.citations.is_empty() {
            evidence.citations = Some(progress.citations);
        }
        let mut result = self.result(now, progress.status, evidence);
        result.output = progress.output;
        result.next_actions = progress.next_actions;
        result.metrics = progress.metrics;
        result
    }

    // impl: SAP-8-1
    pub(super) fn by_error(&self, now: Now, error: HandlerError) -> TaskResult {
        match error {
            HandlerError::Failed {
                code,
                message,
                details,
            } => {
                let mut result = self.failed(now, code, &message);
                if let Some(error) = &mut result.error {
                    error.details = details;
                }
                result
            }
            HandlerError::Escalated {
                message,
                next_actions,
            } => {
                let mut evidence = ConstitutionalEvidence::from(self.admission());
                evidence.alignment = Alignment::Escalate;
                let mut result = self.result(now, Status::Escalated, evidence);
                let mut error = ErrorObject::new();
                error.message = Some(message);
                result.error = Some(error);
                result.next_actions = Some(next_actions);
                result
            }
        }
    }

    pub(super) fn succeeded(&self, now: Now, outcome: Outcome, verdict: Assessment) -> TaskResult {
        let mut evidence = ConstitutionalEvidence::from(verdict);
        evidence.citations = Some(outcome.citations);
        let mut result = self.result(now, Status::Succeeded, evidence);
        result.output = outcome.output;
        result.artifacts = outcome.artifacts;
        result.metrics = outcome.metrics;
        result.next_actions = outcome.next_actions;
        result.meta = outcome.meta;
        result
    }

    /// The end that a verdict other than VALID demands. What breaks a principle is not handed out; what somebody
    /// has to decide about is.
    // impl: SAP-4.2-9
    pub(super) fn by_verdict(
        &self,
        now: Now,
        mut assessment: Assessment,
        outcome: Outcome,
    ) -> TaskResult {
        let escalate = assessment.alignment == Alignment::Escalate;
        let principles: Vec<String> = assessment
            .violations
            .iter()
            .filter_map(|violation| violation.principle.clone())
            .collect();
        let proposed = core::mem::take(&mut assessment.next_actions);
        let mut evidence = ConstitutionalEvidence::from(assessment);
        if !escalate {
            let why = format!("not aligned with {}", principles.join(", "));
            let code = ErrorCode::NonConstitutional;
            return self
                .result(now, Status::Failed, evidence)
                .with_error(code, why);
        }
        evidence.citations = Some(outcome.citations);
        let mut result = self.result(now, Status::Escalated, evidence);
        result.output = outcome.output;
        // The handler's path of escalation, or the policy's, or a review.
        let own = outcome.next_actions;
        let proposed = own.or_else(|| (!proposed.is_empty()).then_some(proposed));
        result.next_actions = proposed.or_else(|| Some(vec![review(&principles)]));
        result
    }

    /// What the cache keeps of a result; only what may be sent.
    // impl: SAP-6-7
    pub(super) fn record(&self, now: Now, result: &TaskResult, keys: Keys) -> Option<CacheRecord> {
        let output = result.output.clone()?;
        if !check_result(result).is_valid() {
            return None;
        }
        let citations = result.constitutional_evidence.citations.clone();
        Some(CacheRecord::new(
            keys.key,
            now.wall.into(),
            self.producer.agent_id.clone(),
            Alignment::Valid,
            output,
            citations.unwrap_or_default(),
            keys.fingerprint,
            SAP_VERSION.into(),
        ))
    }

    /// The result and its bytes, or where it would not pass a strict reader, one that says so.
    // impl: SAP-5-1
    pub(super) fn written(&self, now: Now, result: TaskResult) -> Written {
        let encoded = result.encode();
        if is_bare(&result, &encoded) || is_valid_result(&result, &encoded) {
            let encoded = encoded.into();
            return Written { result, encoded };
        }
        let why = "handler or policy made a result that is not valid";
        let mut result = self.failed(now, ErrorCode::Internal, why);
        let mut encoded = result.encode();
        if !is_valid_result(&result, &encoded) {
            // It is the policy's evidence.
            let alignment = result.constitutional_evidence.alignment;
            result.constitutional_evidence = ConstitutionalEvidence::new(alignment);
            encoded = result.encode();
        }
        let encoded = encoded.into();
        Written { result, encoded }
    }
}

/// A short RUNNING result in which nothing is a handler's, and which is therefore valid.
fn is_bare(result: &TaskResult, encoded: &[u8]) -> bool {
    encoded.len() <= LARGE
        && result.status == Status::Running
        && result.output.is_none()
        && result.metrics.is_none()
        && result.next_actions.is_none()
}

fn cache_evidence(hit: bool, keys: Option<&Keys>, age_sec: Option<u64>) -> CacheEvidence {
    let mut evidence = CacheEvidence::new();
    evidence.hit = Some(hit);
    if hit {
        evidence.cache_key = keys.map(|keys| keys.key.to_string());
        evidence.age_sec = age_sec.and_then(|age| Whole::try_from(age).ok());
    }
    evidence
}

/// The path of escalation where neither handler nor policy names one.
fn review(principles: &[String]) -> RawObject {
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    object.member("action", "review");
    object.member("principles", principles);
    object.end();
    let text = String::from_utf8(text).unwrap_or_default();
    let value = RawBuf::parse(&text).ok();
    value.and_then(RawObject::new).unwrap_or_default()
}
