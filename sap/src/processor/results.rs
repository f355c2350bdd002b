//! The results of one run.

use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::time::Now;

use super::answer::{Delivery, Warning};
use super::flight::Flight;
use super::handler::{HandlerError, Outcome, Progress};
use super::hooks::ContractFinding;
use super::race::Ended;
use super::state::Processor;
use crate::alignment::{Assessment, Subject};
use crate::cache::{self, CacheRecord, CacheStore, Decision, Essence, Found, Keys, SAP_VERSION};
use crate::error::{ErrorCode, ErrorObject};
use crate::evidence::{Alignment, CacheEvidence, ConstitutionalEvidence, Fingerprint};
use crate::number::Whole;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;
use crate::validate::{Options, decode_result};

pub(super) struct Run<'p> {
    processor: &'p Processor,
    pub(super) task: Arc<Task>,
    /// The verdict before anything was computed.
    pub(super) admission: Assessment,
    /// What every result from here on says of the cache.
    cache: Option<CacheEvidence>,
    /// Where a good outcome is written.
    write: Option<(Keys, Arc<dyn CacheStore>)>,
    essence: Arc<dyn Essence>,
    /// Once they were looked for.
    keys: Option<Keys>,
}

impl<'p> Run<'p> {
    pub(super) fn new(
        processor: &'p Processor,
        task: Arc<Task>,
        essence: Arc<dyn Essence>,
    ) -> Self {
        let admission = Assessment::valid(&task.constitutional_context);
        Self {
            processor,
            task,
            admission,
            cache: None,
            write: None,
            essence,
            keys: None,
        }
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject::admission(
            &self.task.target.capability,
            &self.task.constitutional_context,
        )
    }

    fn result(&self, now: Now, status: Status, evidence: ConstitutionalEvidence) -> TaskResult {
        let producer = self.processor.producer.clone();
        let mut result = TaskResult::of(&self.task, now.wall, producer, status, evidence);
        result.constitutional_evidence.cache.clone_from(&self.cache);
        result
    }

    /// A result of which nothing is known but its status.
    pub(super) fn interim(&self, now: Now, status: Status) -> TaskResult {
        self.result(now, status, self.admission.clone().into())
    }

    pub(super) fn failed(&self, now: Now, code: ErrorCode, message: &str) -> TaskResult {
        let message = if message.trim().is_empty() {
            code.as_str().to_owned()
        } else {
            message.to_owned()
        };
        self.interim(now, Status::Failed).with_error(code, message)
    }

    /// Asks the cache; gives the result where the run ends here.
    // impl: SAP-6-3, SAP-6-5, SAP-6-6
    pub(super) async fn look_up(
        &mut self,
        now: Now,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Option<TaskResult> {
        let policy = self.task.constitutional_context.cache_policy.clone();
        if !cache::is_read(policy.as_ref()) {
            return None;
        }
        self.keys = self
            .keys
            .or_else(|| Keys::of(&self.task, self.essence.as_ref()).ok());
        let keys = self.keys;
        let record = match &keys {
            Some(keys) => self.find(keys, sink).await,
            None => None,
        };
        let found = match (&keys, &record) {
            (None, _) => Found::NoKey,
            (_, None) => Found::Nothing,
            (_, Some(record)) => Found::Record(record),
        };
        // Whether it must be checked again is asked first: the answer takes its time.
        let mut to_recheck = None;
        let mut decision = cache::decide(policy.as_ref(), found, now.wall, |record| {
            to_recheck = Some(record.clone());
            Alignment::Valid
        });
        let mut rechecked = None;
        if let Some(record) = to_recheck {
            let output = record.output.as_raw();
            let subject = self.subject().proposing(Some(output), &record.citations);
            let assessment = self.processor.policy.judge(subject).await;
            let verdict = assessment.alignment.clone();
            decision = cache::decide(policy.as_ref(), found, now.wall, |_| verdict);
            rechecked = Some(assessment);
        }
        self.cache = Some(cache_evidence(false, keys.as_ref(), None));
        match (decision, record) {
            (Decision::Hit { age_sec }, Some(record)) => {
                let assessment = rechecked.unwrap_or_else(|| self.admission.clone());
                self.cache = Some(cache_evidence(true, keys.as_ref(), Some(age_sec)));
                Some(self.hit(now, assessment, record))
            }
            (Decision::Refuse { why }, _) => {
                Some(self.failed(now, ErrorCode::CacheMiss, &why.to_string()))
            }
            (Decision::Compute { write: true, .. }, _) => {
                self.write = keys.zip(self.processor.cache.clone());
                None
            }
            _ => None,
        }
    }

    /// Names what the task's outcome depends on, for learning.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        let keys = self.keys;
        let keys = keys.or_else(|| Keys::of(&self.task, self.essence.as_ref()).ok());
        keys.map(|keys| keys.fingerprint)
    }

    /// Joins those that compute the same outcome at the same time; `None` where nobody may wait for it.
    // impl: SAP-6-11
    pub(super) fn flight(&self) -> Option<Flight> {
        let (keys, _) = self.write.as_ref()?;
        let policy = self.task.constitutional_context.cache_policy.as_ref()?;
        // No record is young enough, so another one's outcome would not answer.
        let never = policy
            .max_age_sec
            .as_ref()
            .is_some_and(|max| max.value() == 0);
        (!never).then(|| self.processor.flights.join(keys.key))
    }

    async fn find(
        &self,
        keys: &Keys,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> Option<CacheRecord> {
        match self.processor.cache.as_ref()?.find(&keys.key).await {
            Ok(lookup) => {
                if lookup.damaged > 0 {
                    let records = lookup.damaged;
                    sink(Delivery::Warning(Warning::CacheDamaged { records }));
                }
                lookup.record
            }
            Err(error) => {
                sink(Delivery::Warning(Warning::Cache(error)));
                None
            }
        }
    }

    fn hit(&self, now: Now, assessment: Assessment, record: CacheRecord) -> TaskResult {
        let mut evidence = ConstitutionalEvidence::from(assessment);
        evidence.citations = Some(record.citations);
        let mut result = self.result(now, Status::Succeeded, evidence);
        result.output = Some(record.output);
        result
    }

    /// A report of the handler as a result. A part that breaks a principle ends the run.
    pub(super) async fn progress(&self, now: Now, progress: Progress) -> TaskResult {
        let output = progress.output.as_ref().map(RawBuf::as_raw);
        let assessment = match output {
            None => self.admission.clone(),
            Some(_) => {
                let subject = self.subject().proposing(output, &progress.citations);
                self.processor.policy.judge(subject).await
            }
        };
        if assessment.alignment != Alignment::Valid {
            let outcome = Outcome {
                output: progress.output,
                citations: progress.citations,
                next_actions: progress.next_actions,
                ..Outcome::default()
            };
            return self.by_verdict(now, assessment, outcome);
        }
        let mut evidence = ConstitutionalEvidence::from(assessment);
        if !progress.citations.is_empty() {
            evidence.citations = Some(progress.citations);
        }
        let mut result = self.result(now, progress.status, evidence);
        result.output = progress.output;
        result.next_actions = progress.next_actions;
        result.metrics = progress.metrics;
        result
    }

    /// The last result of a run.
    pub(super) async fn end(
        &mut self,
        now: Now,
        ended: Ended,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> TaskResult {
        match ended {
            Ended::Outcome(outcome) => self.judge(now, *outcome, sink).await,
            Ended::Error(error) => self.by_error(now, error),
            Ended::Panicked => self.failed(now, ErrorCode::Internal, "the handler panicked"),
            Ended::Cancelled => self.interim(now, Status::Cancelled),
            Ended::TimedOut(why) => self.failed(now, ErrorCode::Timeout, why),
            Ended::OverBudget(over) => self.failed(now, ErrorCode::RateLimit, &over.to_string()),
        }
    }

    fn by_error(&self, now: Now, error: HandlerError) -> TaskResult {
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
                let mut evidence = ConstitutionalEvidence::from(self.admission.clone());
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

    /// An outcome is held against its contract and its principles, and kept if it is good.
    async fn judge(
        &mut self,
        now: Now,
        outcome: Outcome,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) -> TaskResult {
        let output = outcome.output.as_ref().map(RawBuf::as_raw);
        // impl: SAP-4.2-7
        if let (Some(contract), Some(output)) = (&self.task.output_contract, output) {
            match self.processor.contract.check(contract, output).await {
                ContractFinding::Kept => {}
                ContractFinding::Broken(pointers) => {
                    let why = format!("the output breaks its contract at {}", pointers.join(", "));
                    return self.failed(now, ErrorCode::Unprocessable, &why);
                }
                ContractFinding::NotEnforced(why) => {
                    sink(Delivery::Warning(Warning::Contract(why)));
                }
            }
        }
        let subject = self.subject().proposing(output, &outcome.citations);
        let assessment = self.processor.policy.judge(subject).await;
        if assessment.alignment != Alignment::Valid {
            return self.by_verdict(now, assessment, outcome);
        }
        let mut evidence = ConstitutionalEvidence::from(assessment);
        evidence.citations = Some(outcome.citations);
        let mut result = self.result(now, Status::Succeeded, evidence);
        result.output = outcome.output;
        result.artifacts = outcome.artifacts;
        result.metrics = outcome.metrics;
        result.next_actions = outcome.next_actions;
        result.meta = outcome.meta;
        self.keep(now, &result, sink).await;
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

    // impl: SAP-6-7
    async fn keep(
        &mut self,
        now: Now,
        result: &TaskResult,
        sink: &mut (dyn FnMut(Delivery<'_>) + Send),
    ) {
        let (Some((keys, store)), Some(output)) = (self.write.take(), &result.output) else {
            return;
        };
        // Only what may be sent is kept.
        if !crate::validate::check_result(result).is_valid() {
            return;
        }
        let record = CacheRecord::new(
            keys.key,
            now.wall.into(),
            result.producer.agent_id.clone(),
            Alignment::Valid,
            output.clone(),
            result
                .constitutional_evidence
                .citations
                .clone()
                .unwrap_or_default(),
            keys.fingerprint,
            SAP_VERSION.into(),
        );
        if let Err(error) = store.put(&record).await {
            sink(Delivery::Warning(Warning::Cache(error)));
        }
    }

    /// The result and its bytes, or where it would not pass a strict reader, one that says so.
    // impl: SAP-5-1
    pub(super) fn validated(&self, now: Now, result: TaskResult) -> (TaskResult, Vec<u8>) {
        let bytes = result.encode();
        if is_bare(&result) || decode_result(&bytes, &Options::default()).is_ok() {
            return (result, bytes);
        }
        let why = "the handler made a result that is not valid";
        let result = self.failed(now, ErrorCode::Internal, why);
        let bytes = result.encode();
        (result, bytes)
    }
}

/// A RUNNING result in which nothing is a handler's, and which is therefore valid.
fn is_bare(result: &TaskResult) -> bool {
    result.status == Status::Running
        && result.output.is_none()
        && result.metrics.is_none()
        && result.next_actions.is_none()
        && result.constitutional_evidence.alignment == Alignment::Valid
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
