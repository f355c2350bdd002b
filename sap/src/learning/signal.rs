//! Signals: what one result, or one operator, says about a kind of task.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::canon::{self, Domain};
use ubos_common::json::{self, Fault, Raw, RawBuf, RawObject, Read, Reader, Write};
use ubos_common::time::{Timestamp, WholeSecond};
use ubos_common::violation::Profile;

use super::object::object;
use crate::context::PressureLevel;
use crate::error::{ErrorCode, StoreError};
use crate::evidence::{
    Alignment, BodyDigest, Fingerprint, PolicyCheck, PolicyViolation, digest_text,
};
use crate::ident::{AgentId, Capability, CorrelationId, NameError, TaskId};
use crate::lifecycle::body_digest;
use crate::limits::unbounded;
use crate::number::Number;
use crate::result::TaskResult;
use crate::status::Status;
use crate::task::Task;

digest_text! {
    /// Names one signal: the digest of what it was made of, so that the same thing said twice is one signal.
    SignalId
}

digest_text! {
    /// Names an issuer by the digest of its id: signals of one issuer are told from those of others by it, and a log of
    /// signals holds no text of his.
    IssuerDigest
}

impl From<&AgentId> for IssuerDigest {
    fn from(issuer: &AgentId) -> Self {
        let domain = Domain::new("sap 2026 issuer of a signal");
        Self(canon::Digest::of(&domain, issuer.as_str().as_bytes()))
    }
}

ubos_common::words! {
    /// Who speaks in a signal. Spec: SAP 7
    closed pub enum SignalSource {
        /// A result.
        Result = "result",
        /// An operator.
        Operator = "operator",
    }
}

ubos_common::wire! {
    /// What one result, or one operator, says about a kind of task. Spec: SAP 7
    pub struct Signal {
        /// Names the signal; one that comes twice counts once.
        required id: SignalId = "id", "SAP-7-5";
        /// When the result was reported, or the operator spoke.
        required at: WholeSecond = "at", "SAP-7-1";
        /// Who speaks.
        required source: SignalSource = "source", "SAP-7-1";
        /// The task.
        required task_id: TaskId = "taskId", "SAP-7-1";
        /// Its correlation id.
        required correlation_id: CorrelationId = "correlationId", "SAP-7-1";
        /// What was done.
        required capability: Capability = "capability", "SAP-7-1";
        /// How much deliberation the decision got.
        required pressure_level: PressureLevel = "pressureLevel", "SAP-7-2";
        /// Who issued the task; absent where an operator speaks, and in older logs.
        optional issuer: IssuerDigest = "issuer", "SAP-7-1";
        /// The domain of the task.
        optional territory: String = "territory", "SAP-7-1";
        /// The essence of its payload; absent where the payload has no exact canonical form.
        optional fingerprint: Fingerprint = "fingerprint", "SAP-7-1";
        /// The status of the result.
        optional status: Status = "status", "SAP-7-1";
        /// The verdict of the result.
        optional alignment: Alignment = "alignment", "SAP-7-1";
        /// Whether the cache answered, so that nothing was computed.
        optional cache_hit: bool = "cacheHit", "SAP-7-6";
        /// Pressure by principle, as it was when the decision was made.
        optional pressure_readings: BTreeMap<String, Number> = "pressureReadings", "SAP-7-2";
        /// What was found, principle by principle.
        optional policy_checks: Vec<PolicyCheck> = "policyChecks", "SAP-7-1";
        /// Issues.
        optional violations: Vec<PolicyViolation> = "violations", "SAP-7-1";
        /// What was used up.
        optional metrics: RawObject = "metrics", "SAP-7-1";
        /// What was proposed to be done next.
        optional next_actions: Vec<RawObject> = "nextActions", "SAP-7-1";
        /// Digests of the members of the payload and of the output.
        optional observed: Observed = "observed", "SAP-7-2";
        /// What the operator says.
        optional feedback: Feedback = "feedback", "SAP-7-1";
    }
}

ubos_common::wire! {
    /// What a result was computed of, as digests: which members of a payload matter can be learned of them, and
    /// nothing of what they hold.
    pub struct Observed {
        /// Digest by top-level member of the payload.
        required members: BTreeMap<String, BodyDigest> = "members", "SAP-7-2";
        /// Digest of the output; where it was not given out as a success, of how the task ended instead.
        required output: BodyDigest = "output", "SAP-7-2";
    }
}

ubos_common::wire! {
    /// What an operator says of an outcome. Spec: SAP 7
    pub struct Feedback {
        /// Who says it.
        required operator: AgentId = "operator", "SAP-7-1";
        /// How good the outcome is.
        optional rating: Rating = "rating", "SAP-7-1";
        /// What should be done otherwise.
        optional notes: String = "notes", "SAP-7-1";
        /// Whether the outcome is approved.
        optional approved: bool = "approved", "SAP-7-1";
    }
}

impl Feedback {
    /// Whether it speaks for the outcome; `None` where it does not say.
    ///
    /// An approval or its refusal says more than a rating; a rating of 3 says nothing.
    pub(crate) fn is_good(&self) -> Option<bool> {
        self.approved.or_else(|| match self.rating?.0 {
            0..=2 => Some(false),
            3 => None,
            _ => Some(true),
        })
    }
}

/// How good an outcome is, from 1, useless, to 5, as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rating(u8);

impl TryFrom<u8> for Rating {
    type Error = NameError;

    fn try_from(stars: u8) -> Result<Self, NameError> {
        match stars {
            1..=5 => Ok(Self(stars)),
            _ => Err(NameError {
                wanted: RATING_WANTED,
            }),
        }
    }
}

impl From<Rating> for u8 {
    fn from(rating: Rating) -> Self {
        rating.0
    }
}

const RATING_WANTED: &str = "a whole number from 1 to 5";

impl Read<'_> for Rating {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.number()?;
        let stars: Option<u8> = text.parse().ok();
        let rating = stars.and_then(|stars| Self::try_from(stars).ok());
        rating.ok_or_else(|| reader.bad_value_seen(at, RATING_WANTED, text))
    }
}

impl Write for Rating {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl Signal {
    /// Top-level members of a payload that are observed; a payload of more is not.
    pub(crate) const MAX_OBSERVED: usize = 64;

    /// What a result says; `None` for QUEUED and RUNNING, which say nothing yet.
    ///
    /// The fingerprint is that of the task's payload under the extractor of its capability, `None` where it has
    /// none. Spec: SAP 7
    // impl: SAP-7-6
    #[must_use]
    pub fn of_result(
        task: &Task,
        fingerprint: Option<Fingerprint>,
        result: &TaskResult,
    ) -> Option<Self> {
        if !result.status.is_terminal() && result.status != Status::Partial {
            return None;
        }
        let evidence = &result.constitutional_evidence;
        let hit = evidence.cache.as_ref().and_then(|cache| cache.hit);
        let context = &task.constitutional_context;
        let mut signal = Self::new(
            SignalId(body_digest(&result.encode())),
            result.reported_at,
            SignalSource::Result,
            result.task_id,
            result.correlation_id,
            task.target.capability.clone(),
            context.pressure_level,
        );
        signal.issuer = Some(IssuerDigest::from(&task.issuer.agent_id));
        signal.territory.clone_from(&context.territory);
        signal.fingerprint = fingerprint;
        signal.status = Some(result.status.clone());
        signal.alignment = Some(evidence.alignment.clone());
        signal.cache_hit = Some(hit == Some(true));
        signal
            .pressure_readings
            .clone_from(&evidence.pressure_readings);
        signal.policy_checks.clone_from(&evidence.policy_checks);
        signal.violations.clone_from(&evidence.violations);
        signal.metrics.clone_from(&result.metrics);
        signal.next_actions.clone_from(&result.next_actions);
        // A hit repeats what was observed when it was computed.
        if hit != Some(true) {
            signal.observed = end_of(result).and_then(|end| Observed::of(&task.payload, end));
        }
        Some(signal)
    }

    /// What an operator says of the outcome that `about` is the signal of.
    ///
    /// It stands under the same capability, territory and fingerprint, with the same pressure.
    ///
    /// ```
    /// # use sap::*;
    /// # use sap::ubos_common::{id::IdSource, json::RawObject, time::Timestamp};
    /// # let task = Task::draft(&mut IdSource::seeded(1), Timestamp::EPOCH, Issuer::new("a".parse()?, AgentKind::Agent),
    /// #     Target::new("a.b".parse()?), ConstitutionalContext::new(PressureLevel::Instant), RawObject::empty());
    /// # let result = TaskResult::of(&task, Timestamp::EPOCH, Producer::new("b".parse()?, ProducerKind::Agent),
    /// #     Status::Succeeded, ConstitutionalEvidence::new(Alignment::Valid));
    /// use sap::learning::{Feedback, Rating, Signal};
    ///
    /// let said = Signal::of_result(&task, None, &result).expect("a terminal result");
    /// let mut feedback = Feedback::new("ada".parse()?);
    /// feedback.rating = Some(Rating::try_from(2)?);
    /// feedback.notes = Some("ask for the year first".into());
    /// let signal = Signal::of_operator(&said, Timestamp::EPOCH, feedback);
    /// assert_eq!((signal.task_id, signal.fingerprint), (said.task_id, said.fingerprint));
    /// assert_ne!(signal.id, said.id);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of_operator(about: &Self, at: Timestamp, feedback: Feedback) -> Self {
        let said = object(|said| {
            said.member("about", &about.id);
            said.member("at", &at);
            said.member("feedback", &feedback);
        });
        let mut signal = Self::new(
            SignalId(body_digest(said.as_str().as_bytes())),
            at.into(),
            SignalSource::Operator,
            about.task_id,
            about.correlation_id,
            about.capability.clone(),
            about.pressure_level,
        );
        signal.territory.clone_from(&about.territory);
        signal.fingerprint = about.fingerprint;
        signal
            .pressure_readings
            .clone_from(&about.pressure_readings);
        signal.feedback = Some(feedback);
        signal
    }
}

impl Observed {
    /// The digests; `None` where a value has no exact canonical form, or there are too many members.
    fn of(payload: &RawObject, end: BodyDigest) -> Option<Self> {
        let limits = unbounded();
        let read = json::read_raw::<BTreeMap<String, Raw<'_>>>;
        let (members, _) = read(payload.as_raw(), &limits, Profile::Strict).ok()?;
        if members.len() > Signal::MAX_OBSERVED {
            return None;
        }
        let digests = members
            .into_iter()
            .map(|(name, value)| Some((name, exact(value)?)));
        Some(Self::new(digests.collect::<Option<_>>()?, end))
    }
}

/// The digest of what the payload came to: the output of a success, or else that the task had none for what it is.
/// `None` where its end says nothing of the payload, such as one for its time.
fn end_of(result: &TaskResult) -> Option<BodyDigest> {
    let violations = result.constitutional_evidence.violations.as_deref();
    let violations = violations.unwrap_or_default();
    match (&result.status, result.error_code()) {
        (Status::Succeeded, _) => exact(result.output.as_ref().map_or(Raw::NULL, RawBuf::as_raw)),
        // The pressure of the task has stopped it, whatever its payload.
        (Status::Failed | Status::Escalated, _)
            if !violations.is_empty()
                && violations.iter().all(PolicyViolation::is_by_threshold) =>
        {
            None
        }
        (Status::Escalated, _)
        | (Status::Failed, Some(ErrorCode::NonConstitutional | ErrorCode::Unprocessable)) => {
            let code = result.error_code().map_or("", ErrorCode::as_str);
            let end = format!("{} {code}", result.status);
            // In a domain of its own, so that it equals no output.
            let domain = Domain::new("sap 2026 end of a task without output");
            Some(BodyDigest(canon::Digest::of(&domain, end.as_bytes())))
        }
        _ => None,
    }
}

fn exact(value: Raw<'_>) -> Option<BodyDigest> {
    let digest = canon::digest_slice(&Domain::plain(), value.as_str().as_bytes());
    digest.ok().map(BodyDigest)
}

/// Takes signals as they are made: a learner, a log, a queue to one of them.
///
/// A processor calls it on a thread of its own: it may take its time, and holds up no task. The signals of what ends
/// meanwhile wait, as many as [`Processor::signals`](crate::processor::Processor::signals) says.
pub trait SignalSink: fmt::Debug + Send + Sync {
    /// Takes a signal.
    ///
    /// # Errors
    ///
    /// It is not kept; the result is delivered all the same, with a warning.
    fn emit(&self, signal: Signal) -> Result<(), StoreError>;
}

/// All of them take it, such as a learner and the trials; the first that does not keep it says why.
impl SignalSink for Vec<Arc<dyn SignalSink>> {
    fn emit(&self, signal: Signal) -> Result<(), StoreError> {
        let taken = self.iter().map(|sink| sink.emit(signal.clone()));
        taken.fold(Ok(()), Result::and)
    }
}
