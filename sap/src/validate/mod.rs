//! Reading tasks and results with all findings: those of the shape, and those between members.

mod result;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use ubos_common::json::{self, DecodeError, Limits, Raw};
use ubos_common::violation::{Level, Profile, Report, Violation};

use crate::ident::{CorrelationId, TaskId};
use crate::secrets;
use crate::task::{Attachment, Task};

pub use result::decode_result;
pub(crate) use result::{check_result, is_valid_result};

/// How messages are read: how strictly, and within which limits. Where a task gives no pressure level, the lenient
/// profile reads `consulted`.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How strictly they are judged; strict by default.
    pub(crate) profile: Profile,
    /// Bounds on one message.
    pub(crate) limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: Profile::Strict,
            limits: Limits::default(),
        }
    }
}

impl Options {
    /// Sets the bounds on one message.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

/// A profile, all else as by default.
impl From<Profile> for Options {
    fn from(profile: Profile) -> Self {
        Self {
            profile,
            ..Self::default()
        }
    }
}

/// Reads a task.
///
/// ```
/// use sap::validate::{Options, decode_task};
/// use sap::ubos_common::json::DecodeError;
///
/// let Err(DecodeError::Invalid(report)) = decode_task(b"{\"protocolVersion\":\"1\"}", &Options::default()) else {
///     panic!("refused")
/// };
/// assert_eq!(report.len(), 9); // eight MUST findings, and the contract that a task should have
/// assert!(report.iter().any(|finding| finding.pointer == "/taskId" && finding.code == "missing"));
/// ```
///
/// # Errors
///
/// [`DecodeError`], with every finding. Spec: SAP 4.1
pub fn decode_task(bytes: &[u8], options: &Options) -> Result<(Task, Report), DecodeError> {
    // Looked at where it stands: a task is large to move.
    // impl: SAP-2-6
    let mut outcome = json::decode::<Task>(bytes, &options.limits, options.profile);
    if let Ok((task, report)) = &mut outcome {
        between_members(task, options, report);
    }
    outcome.map_err(named)
}

/// Reads a task without the advice, which takes longer than reading.
#[cfg(feature = "driver")]
pub(crate) fn decode_task_alone(bytes: &[u8], options: &Options) -> Result<Task, DecodeError> {
    json::decode_alone(bytes, &options.limits, options.profile).map_err(named)
}

/// Whether what a typed message was written as is JSON within the limits, and has no member twice. Of a task whose members
/// are [strict](json::Write::is_strict) that is all that is to be seen.
pub(crate) fn is_sound(encoded: &[u8], options: &Options) -> bool {
    json::decode_alone::<Raw<'_>>(encoded, &options.limits, options.profile).is_ok()
}

/// A message that is no object has broken a clause as well.
// impl: SAP-2-5
fn named(error: DecodeError) -> DecodeError {
    let DecodeError::Invalid(report) = error else {
        return error;
    };
    DecodeError::Invalid(report.map(|mut finding| {
        if finding.clause.is_empty() {
            finding.clause = NO_OBJECT.into();
        }
        finding
    }))
}

fn between_members(task: &Task, options: &Options, report: &mut Report) {
    let max_findings = options.limits.max_findings;
    unlisted_principles(task, max_findings, report);
    let attachments = task.attachments.as_deref().unwrap_or_default();
    for (index, attachment) in attachments.iter().enumerate() {
        if report.len() >= max_findings {
            break;
        }
        attachment_uri(index, attachment, report);
    }
    let found = secrets::scan(task, secrets::SecretPolicy::Advise);
    report.extend_under("", found);
}

/// The findings of a decode, whichever way it went; a text that is no sound JSON is one finding.
// impl: SAP-2-5
#[must_use]
pub fn findings<T>(outcome: &Result<(T, Report), DecodeError>) -> Report {
    match outcome {
        Ok((_, report)) | Err(DecodeError::Invalid(report)) => report.clone(),
        Err(error) => {
            let broken = |pointer: String, code, what: String| {
                Violation::new(pointer, code, "SAP-2-5", Level::Must, what)
            };
            let mut report = Report::default();
            report.push(match error {
                DecodeError::Json(error) => {
                    let what = error.kind.to_string();
                    broken(error.pointer.clone(), error.kind.code(), what).at(error.position)
                }
                other => broken(String::new(), "refused", other.to_string()),
            });
            report
        }
    }
}

/// Says of a task whose contract's schema is none, or is not to be used, that nothing will be held against it: a descriptor
/// is kept as it is.
///
/// Apart from reading, for compiling a schema costs more than all of that.
///
/// ```
/// use sap::validate::{Options, contract_advice, decode_task};
/// # let text = include_str!("../../vectors/valid.jsonl").lines().next().unwrap();
/// # let vector: serde_json::Value = serde_json::from_str(text)?;
/// # let mut task: serde_json::Value = serde_json::from_str(vector["text"].as_str().unwrap())?;
/// # task["outputContract"] = serde_json::json!({"schema": {"type": "jsonish"}, "format": "json"});
/// # let text = task.to_string();
///
/// let (task, _) = decode_task(text.as_bytes(), &Options::default())?;
/// let advice = contract_advice(&task);
/// assert_eq!(advice.iter().next().unwrap().pointer, "/outputContract/schema");
/// assert!(advice.is_valid());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Spec: SAP 4.1
// impl: SAP-4.1-10
#[cfg(feature = "schema")]
#[must_use]
pub fn contract_advice(task: &Task) -> Report {
    let contract = task.output_contract.as_ref();
    let schema = contract.and_then(|contract| contract.schema.as_ref());
    let refused =
        schema.and_then(|schema| ubos_common::schema::Schema::compile(schema.as_str()).err());
    let mut report = Report::default();
    if let Some(why) = refused {
        report.push(Violation::new(
            "/outputContract/schema",
            "descriptor",
            "SAP-4.1-10",
            Level::Advice,
            format!("kept, and not enforced: {why}"),
        ));
    }
    report
}

/// The ids of a message that may be invalid, as far as they can be read.
#[must_use]
pub fn ids_of(bytes: &[u8], limits: &Limits) -> (Option<TaskId>, Option<CorrelationId>) {
    match json::decode::<Ids<'_>>(bytes, limits, Profile::Lenient) {
        Ok((ids, _)) => (readable(ids.task_id), readable(ids.correlation_id)),
        Err(_) => (None, None),
    }
}

/// The issuer of a task that may be invalid, as far as it can be read.
#[cfg(feature = "nats")]
pub(crate) fn issuer_of(bytes: &[u8], limits: &Limits) -> Option<String> {
    let (issued, _) = json::decode::<Issued<'_>>(bytes, limits, Profile::Lenient).ok()?;
    readable(issued.issuer?.agent_id)
}

// impl: SAP-4.1-7
fn unlisted_principles(task: &Task, max_findings: usize, report: &mut Report) {
    let context = &task.constitutional_context;
    let (Some(pressure), Some(principles)) = (&context.pressure, &context.principles) else {
        return;
    };
    // Mostly both are few; many are sorted once.
    let is_listed: &dyn Fn(&String) -> bool = if principles.len() <= 8 {
        &|name| principles.contains(name)
    } else {
        let listed: BTreeSet<&String> = principles.iter().collect();
        &move |name: &String| listed.contains(name)
    };
    let room = max_findings.saturating_sub(report.len());
    let unlisted = pressure.keys().filter(|name| !is_listed(name));
    for name in unlisted.take(room) {
        report.push(Violation::new(
            format!("/constitutionalContext/pressure/{}", escape(name)),
            "unlisted_principle",
            "SAP-4.1-7",
            Level::Advice,
            "pressure on a principle that is not among the principles",
        ));
    }
}

// impl: SAP-11-4
fn attachment_uri(index: usize, attachment: &Attachment, report: &mut Report) {
    let Some(uri) = attachment.uri.as_deref() else {
        return;
    };
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    let plain = ["http", "ftp"]
        .iter()
        .any(|word| scheme.eq_ignore_ascii_case(word));
    let authority = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let message = if plain {
        "an attachment fetched without encryption"
    } else if user.contains(':') {
        "an attachment whose uri holds a password"
    } else {
        return;
    };
    report.push(Violation::new(
        format!("/attachments/{index}/uri"),
        "insecure_uri",
        "SAP-11-4",
        Level::Should,
        message,
    ));
}

/// A member name as a token of a pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

const NO_OBJECT: &str = "SAP-2-5";

ubos_common::wire! {
    struct Ids<'a> {
        verbatim task_id: Raw<'a> = "taskId", "";
        verbatim correlation_id: Raw<'a> = "correlationId", "";
    }
}

#[cfg(feature = "nats")]
ubos_common::wire! {
    struct Issued<'a> {
        optional issuer: IssuedBy<'a> = "issuer", "";
    }
}

#[cfg(feature = "nats")]
ubos_common::wire! {
    struct IssuedBy<'a> {
        verbatim agent_id: Raw<'a> = "agentId", "";
    }
}

fn readable<T: core::str::FromStr>(raw: Option<Raw<'_>>) -> Option<T> {
    raw?.deserialize::<String>().ok()?.parse().ok()
}
