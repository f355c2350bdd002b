//! Tasks and results of any shape, for fuzzing and property tests: valid ones, their corners included.
//!
//! ```
//! use arbitrary::{Arbitrary as _, Unstructured};
//! use sap::{SecretPolicy, Task, TaskResult, dispatch, report};
//!
//! let bytes: Vec<u8> = (0..=255).cycle().take(4_096).collect();
//! let mut source = Unstructured::new(&bytes);
//! assert!(dispatch(&Task::arbitrary(&mut source)?, SecretPolicy::Refuse).is_ok());
//! assert!(report(&TaskResult::arbitrary(&mut source)?).is_ok());
//! # Ok::<(), arbitrary::Error>(())
//! ```

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Result, Unstructured};
use ubos_common::json::{self, Limits, Members, RawBuf, RawObject, Read, to_vec};
use ubos_common::time::{Timestamp, WholeSecond};
use ubos_common::violation::Profile;

use crate::context::{CacheMode, CachePolicy, ConstitutionalContext, PressureLevel, RiskTolerance};
use crate::error::{ErrorCode, ErrorObject};
use crate::evidence::{
    Alignment, CacheEvidence, ConstitutionalEvidence, PolicyCheck, PolicyViolation,
};
use crate::ident::{AgentId, Capability, CorrelationId, TaskId, Version};
use crate::number::{Amount, MAX_WHOLE, Number, Psi, Whole};
use crate::result::{Producer, ProducerKind, TaskResult};
use crate::status::Status;
use crate::task::{
    AgentKind, Attachment, Budget, Issuer, OutputContract, Priority, ReplyTo, Target, Task,
    Telemetry,
};

/// Messages to begin with, as they stand on the wire: the published vectors, valid and not.
pub fn seeds() -> impl Iterator<Item = String> {
    let valid = include_str!("../vectors/valid.jsonl").lines();
    let lines = valid.chain(include_str!("../vectors/invalid.jsonl").lines());
    lines.filter_map(|line| {
        let members = read::<BTreeMap<String, RawBuf>>(line.as_bytes())?;
        members.get("text")?.deserialize().ok()
    })
}

impl<'a> Arbitrary<'a> for Task {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut issuer = Issuer::new(agent_id(u)?, pick(u, AgentKind::WORDS)?);
        issuer.name = maybe(u, text)?;
        issuer.extra = extra(u)?;
        let mut target = Target::new(capability(u)?);
        target.agent_id = maybe(u, text)?;
        target.routing_hints = maybe(u, object)?;
        let context = ConstitutionalContext::arbitrary(u)?;
        let (task_id, correlation_id) = (task_id(u)?, correlation_id(u)?);
        let at = time(u)?;
        let payload = object(u)?;
        let version = Version::V2;
        let mut task = Self::new(
            version,
            task_id,
            correlation_id,
            at,
            issuer,
            target,
            context,
            payload,
        );
        task.parent_task_id = maybe(u, self::task_id)?;
        task.output_contract = maybe(u, contract)?;
        task.telemetry = maybe(u, telemetry)?;
        task.reply_to = maybe(u, reply_to)?;
        task.attachments = maybe(u, |u| list(u, attachment))?;
        task.tags = maybe(u, |u| list(u, text))?;
        task.meta = maybe(u, object)?;
        task.extra = extra(u)?;
        Ok(task)
    }
}

impl<'a> Arbitrary<'a> for ConstitutionalContext {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let levels = [
            PressureLevel::Instant,
            PressureLevel::Consulted,
            PressureLevel::Deliberated,
        ];
        let mut context = Self::new(*u.choose(&levels)?);
        context.principles = maybe(u, |u| list(u, text))?;
        context.pressure = maybe(u, |u| map(u, psi))?;
        context.objectives = maybe(u, |u| list(u, text))?;
        context.constraints = maybe(u, |u| list(u, text))?;
        context.risk_tolerance = maybe(u, |u| pick(u, RiskTolerance::WORDS))?;
        context.territory = maybe(u, text)?;
        context.references = maybe(u, |u| list(u, text))?;
        context.cache_policy = maybe(u, |u| {
            let mut policy = CachePolicy::new();
            policy.mode = maybe(u, |u| pick(u, CacheMode::WORDS))?;
            policy.max_age_sec = maybe(u, whole)?;
            policy.must_align = u.arbitrary()?;
            Ok(policy)
        })?;
        context.extra = extra(u)?;
        Ok(context)
    }
}

impl<'a> Arbitrary<'a> for TaskResult {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let producer = Producer::new(agent_id(u)?, pick(u, ProducerKind::WORDS)?);
        let status: Status = pick(u, Status::WORDS)?;
        let evidence = ConstitutionalEvidence::arbitrary(u)?;
        let (task_id, correlation_id) = (task_id(u)?, correlation_id(u)?);
        let at = time(u)?;
        let version = Version::V2;
        let mut result = Self::new(
            version,
            task_id,
            correlation_id,
            at,
            producer,
            status,
            evidence,
        );
        result.output = maybe(u, value)?;
        result.artifacts = maybe(u, |u| list(u, object))?;
        result.metrics = maybe(u, object)?;
        result.error = maybe(u, error)?;
        result.next_actions = maybe(u, |u| list(u, object))?;
        result.meta = maybe(u, object)?;
        result.extra = extra(u)?;
        // What fails says why.
        if result.status == Status::Failed {
            let mut error = result.error.take().unwrap_or_else(ErrorObject::new);
            error.message = Some(format!("failed: {}", text(u)?));
            result.error = Some(error);
        }
        Ok(result)
    }
}

impl<'a> Arbitrary<'a> for ConstitutionalEvidence {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut evidence = Self::new(pick(u, Alignment::WORDS)?);
        evidence.pressure_readings = maybe(u, |u| map(u, number))?;
        evidence.policy_checks = maybe(u, |u| {
            list(u, |u| {
                let mut check = PolicyCheck::new();
                check.principle = maybe(u, text)?;
                check.status = maybe(u, text)?;
                check.notes = maybe(u, text)?;
                Ok(check)
            })
        })?;
        evidence.violations = maybe(u, |u| {
            list(u, |u| {
                let mut violation = PolicyViolation::new();
                violation.principle = maybe(u, text)?;
                violation.severity = maybe(u, text)?;
                violation.evidence = maybe(u, text)?;
                Ok(violation)
            })
        })?;
        evidence.citations = maybe(u, |u| list(u, text))?;
        evidence.cache = maybe(u, |u| {
            let mut cache = CacheEvidence::new();
            cache.hit = u.arbitrary()?;
            cache.cache_key = maybe(u, text)?;
            cache.age_sec = maybe(u, whole)?;
            Ok(cache)
        })?;
        evidence.extra = extra(u)?;
        Ok(evidence)
    }
}

fn contract(u: &mut Unstructured<'_>) -> Result<OutputContract> {
    let mut contract = OutputContract::new();
    contract.schema = maybe(u, object)?;
    contract.format = maybe(u, text)?;
    Ok(contract)
}

fn telemetry(u: &mut Unstructured<'_>) -> Result<Telemetry> {
    let mut telemetry = Telemetry::new();
    telemetry.priority = maybe(u, |u| pick(u, Priority::WORDS))?;
    telemetry.deadline = maybe(u, time)?;
    telemetry.budget = maybe(u, |u| {
        let mut budget = Budget::new();
        budget.tokens = maybe(u, amount)?;
        budget.seconds = maybe(u, amount)?;
        budget.extra = extra(u)?;
        Ok(budget)
    })?;
    telemetry.trace = u.arbitrary()?;
    Ok(telemetry)
}

fn reply_to(u: &mut Unstructured<'_>) -> Result<ReplyTo> {
    let mut reply_to = ReplyTo::new();
    reply_to.endpoint = maybe(u, text)?;
    reply_to.expect_ack = u.arbitrary()?;
    Ok(reply_to)
}

fn attachment(u: &mut Unstructured<'_>) -> Result<Attachment> {
    let mut attachment = Attachment::new();
    attachment.uri = maybe(u, text)?;
    attachment.kind = maybe(u, text)?;
    attachment.digest = maybe(u, text)?;
    Ok(attachment)
}

fn error(u: &mut Unstructured<'_>) -> Result<ErrorObject> {
    let mut error = ErrorObject::new();
    error.code = maybe(u, |u| {
        let own = text(u)?;
        Ok(if u.arbitrary()? {
            pick(u, ErrorCode::WORDS)?
        } else {
            ErrorCode::from(own.as_str())
        })
    })?;
    error.message = maybe(u, text)?;
    error.details = maybe(u, object)?;
    Ok(error)
}

fn maybe<'a, T>(
    u: &mut Unstructured<'a>,
    make: impl FnOnce(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if u.arbitrary()? {
        make(u).map(Some)
    } else {
        Ok(None)
    }
}

/// Elements that a list has at most.
const MAX_ELEMENTS: usize = 4;

fn list<'a, T>(
    u: &mut Unstructured<'a>,
    mut make: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let len = u.int_in_range(0..=MAX_ELEMENTS)?;
    (0..len).map(|_| make(u)).collect()
}

fn map<'a, T>(
    u: &mut Unstructured<'a>,
    mut make: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<BTreeMap<String, T>> {
    let members = list(u, |u| Ok((text(u)?, make(u)?)))?;
    Ok(members.into_iter().collect())
}

fn pick<T: for<'w> From<&'w str>>(u: &mut Unstructured<'_>, words: &[&str]) -> Result<T> {
    u.choose(words).map(|word| T::from(word))
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    let text = <&str>::arbitrary(u)?;
    Ok(text.chars().take(24).collect())
}

fn agent_id(u: &mut Unstructured<'_>) -> Result<AgentId> {
    format!("a{}", text(u)?)
        .parse()
        .map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn capability(u: &mut Unstructured<'_>) -> Result<Capability> {
    let mut segment = || -> Result<String> {
        let kept = text(u)?;
        let kept = kept.chars().filter(|c| *c != '.' && !c.is_whitespace());
        Ok(['c'].into_iter().chain(kept).collect())
    };
    format!("{}.{}", segment()?, segment()?)
        .parse()
        .map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn time(u: &mut Unstructured<'_>) -> Result<WholeSecond> {
    let seconds = u.int_in_range(Timestamp::MIN.unix()..=Timestamp::MAX.unix())?;
    Timestamp::from_unix(seconds)
        .map(WholeSecond::from)
        .ok_or(arbitrary::Error::IncorrectFormat)
}

fn task_id(u: &mut Unstructured<'_>) -> Result<TaskId> {
    hyphenated(u)?
        .parse()
        .map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn correlation_id(u: &mut Unstructured<'_>) -> Result<CorrelationId> {
    hyphenated(u)?
        .parse()
        .map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn hyphenated(u: &mut Unstructured<'_>) -> Result<String> {
    let (a, b, c, d): (u32, u16, u16, u16) = u.arbitrary()?;
    let e = u64::arbitrary(u)? >> 16;
    Ok(format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}"))
}

fn psi(u: &mut Unstructured<'_>) -> Result<Psi> {
    let psi = f64::from(u.int_in_range(0..=1_000_u16)?) / 10.0;
    Psi::try_from(psi).map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn number(u: &mut Unstructured<'_>) -> Result<Number> {
    let number = f64::arbitrary(u)?;
    match Number::try_from(number).ok() {
        Some(number) => Ok(number),
        None => psi(u).map(|psi| Number::from(&psi)),
    }
}

fn amount(u: &mut Unstructured<'_>) -> Result<Amount> {
    let amount = f64::from(u32::arbitrary(u)?) / 4.0;
    Amount::try_from(amount).map_err(|_| arbitrary::Error::IncorrectFormat)
}

fn whole(u: &mut Unstructured<'_>) -> Result<Whole> {
    let whole = u.int_in_range(0..=MAX_WHOLE)?;
    Whole::try_from(whole).map_err(|_| arbitrary::Error::IncorrectFormat)
}

/// Members that no type knows.
fn extra(u: &mut Unstructured<'_>) -> Result<Members<'static>> {
    let mut members = Members::new();
    for _ in 0..u.int_in_range(0..=2)? {
        members.insert(format!("x-{}", text(u)?), value(u)?);
    }
    Ok(members)
}

fn object(u: &mut Unstructured<'_>) -> Result<RawObject> {
    let members = map(u, value)?;
    read(&to_vec(&members)).ok_or(arbitrary::Error::IncorrectFormat)
}

/// Any JSON value, not deep.
fn value(u: &mut Unstructured<'_>) -> Result<RawBuf> {
    let text = match u.int_in_range(0..=7)? {
        0 => "null".into(),
        1 => bool::arbitrary(u)?.to_string().into_bytes(),
        2 => i64::arbitrary(u)?.to_string().into_bytes(),
        3 => to_vec(&number(u)?),
        4 => b"1.50e+3".to_vec(),
        5 => to_vec(&list(u, text)?),
        6 => to_vec(&map(u, |_| Ok(RawObject::empty()))?),
        _ => to_vec(&text(u)?),
    };
    read(&text).ok_or(arbitrary::Error::IncorrectFormat)
}

fn read<T: for<'a> Read<'a>>(text: &[u8]) -> Option<T> {
    let outcome = json::decode(text, &Limits::default(), Profile::Strict);
    outcome.ok().map(|(value, _)| value)
}
