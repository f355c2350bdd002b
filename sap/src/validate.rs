//! Reading tasks and results with all findings: those of the shape, and those between members.

use std::collections::BTreeSet;

use ubos_common::json::{self, DecodeError, Limits, Raw};
use ubos_common::violation::{Level, Profile, Report, Violation};

use crate::error::ErrorCode;
use crate::evidence::Alignment;
use crate::ident::{CorrelationId, TaskId};
use crate::result::TaskResult;
use crate::secrets;
use crate::status::Status;
use crate::task::{Attachment, Task};

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

/// Reads a result.
///
/// # Errors
///
/// [`DecodeError`], with every finding. Spec: SAP 4.2
// impl: SAP-2-6, SAP-4.2-8
pub fn decode_result(bytes: &[u8], options: &Options) -> Result<(TaskResult, Report), DecodeError> {
    match json::decode::<TaskResult>(bytes, &options.limits, options.profile) {
        Ok((result, mut report)) => {
            Facts::of(&result).judge(options.profile, &mut report);
            if report.is_valid() {
                Ok((result, report))
            } else {
                Err(DecodeError::Invalid(report))
            }
        }
        // The shape is refused; what the members say of one another is told all the same.
        Err(DecodeError::Invalid(mut report)) => {
            if let Ok((loose, _)) =
                json::decode::<LooseResult<'_>>(bytes, &options.limits, Profile::Lenient)
            {
                loose.facts().judge(options.profile, &mut report);
            }
            Err(named(DecodeError::Invalid(report)))
        }
        Err(other) => Err(other),
    }
}

/// All findings about a result as it would be written, under the strict profile.
pub(crate) fn check_result(result: &TaskResult) -> Report {
    findings(&decode_result(&result.encode(), &Options::default()))
}

/// The findings of a decode, whichever way it went; a text that is no sound JSON is one finding.
// impl: SAP-2-5
#[must_use]
pub fn findings<T>(outcome: &Result<(T, Report), DecodeError>) -> Report {
    match outcome {
        Ok((_, report)) | Err(DecodeError::Invalid(report)) => report.clone(),
        Err(DecodeError::Json(error)) => {
            let mut report = Report::default();
            report.push(
                Violation::new(
                    error.pointer.clone(),
                    error.kind.code(),
                    "SAP-2-5",
                    Level::Must,
                    error.kind.to_string(),
                )
                .at(error.position),
            );
            report
        }
        Err(other) => {
            let mut report = Report::default();
            let what = other.to_string();
            report.push(Violation::new("", "refused", "SAP-2-5", Level::Must, what));
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
/// # let text = include_str!("../vectors/valid.jsonl").lines().next().unwrap();
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

/// What the rules between a result's members look at.
struct Facts<'a> {
    status: Option<Status>,
    alignment: Option<Alignment>,
    has_error: bool,
    code: Option<ErrorCode>,
    message: Option<&'a str>,
    has_output: bool,
    has_next_actions: bool,
}

impl<'a> Facts<'a> {
    fn of(result: &'a TaskResult) -> Self {
        let error = result.error.as_ref();
        Self {
            status: Some(result.status.clone()),
            alignment: Some(result.constitutional_evidence.alignment.clone()),
            has_error: error.is_some(),
            code: error.and_then(|error| error.code.clone()),
            message: error.and_then(|error| error.message.as_deref()),
            has_output: result.output.is_some(),
            has_next_actions: result.next_actions.as_ref().is_some_and(|n| !n.is_empty()),
        }
    }

    fn judge(&self, profile: Profile, report: &mut Report) {
        let mut find = |pointer: &str, code, clause, level, message| {
            report.push(Violation::new(pointer, code, clause, level, message));
        };
        match self.status {
            // impl: SAP-5-6
            Some(Status::Failed) => {
                if self.message.is_none_or(|message| message.trim().is_empty()) {
                    let level = match profile {
                        Profile::Strict => Level::Must,
                        Profile::Lenient => Level::Advice,
                    };
                    let why = "a failed result without a message";
                    find("/error/message", "missing", "SAP-5-6", level, why);
                }
                if self.code.as_ref().is_none_or(|code| !code.is_listed()) {
                    let why = "a failed result without a standard code";
                    find(
                        "/error/code",
                        "nonstandard_code",
                        "SAP-5-6",
                        Level::Should,
                        why,
                    );
                }
            }
            Some(Status::Escalated) if !self.has_next_actions => {
                let why = "escalated without a path of escalation";
                // impl: SAP-5-7
                find("/nextActions", "missing", "SAP-5-7", Level::Advice, why);
            }
            Some(Status::Partial) if !self.has_next_actions => {
                let why = "partial without a next action";
                // impl: SAP-5-4
                find("/nextActions", "missing", "SAP-5-4", Level::Should, why);
            }
            _ => {}
        }
        let is_data = matches!(self.status, Some(Status::Succeeded | Status::Partial));
        if is_data && !self.has_output {
            // impl: SAP-4-2
            find("/output", "missing", "SAP-4-2", Level::Should, "absent");
        }
        if self.status == Some(Status::Succeeded) {
            self.judge_success(find);
        }
    }

    // impl: SAP-4.2-9
    fn judge_success(
        &self,
        mut find: impl FnMut(&str, &'static str, &'static str, Level, &'static str),
    ) {
        if self
            .alignment
            .as_ref()
            .is_some_and(|a| *a != Alignment::Valid)
        {
            let why = "succeeded with an alignment that is not VALID";
            let at = "/constitutionalEvidence/alignment";
            find(at, "doubtful_success", "SAP-4.2-9", Level::Advice, why);
        }
        if self.has_error {
            let why = "succeeded with an error";
            find(
                "/error",
                "doubtful_success",
                "SAP-4.2-9",
                Level::Advice,
                why,
            );
        }
    }
}

// The members that [`Facts`] looks at, of a result whose shape is refused.
ubos_common::wire! {
    struct LooseResult<'a> {
        verbatim status: Raw<'a> = "status", "";
        verbatim error: Raw<'a> = "error", "";
        verbatim next_actions: Raw<'a> = "nextActions", "";
        verbatim output: Raw<'a> = "output", "";
    }
}

impl LooseResult<'_> {
    fn facts(&self) -> Facts<'static> {
        let limits = Limits::default();
        let lenient = Profile::Lenient;
        let status = self.status.and_then(|raw| raw.deserialize::<String>().ok());
        let error = self.error.and_then(|raw| {
            json::read_raw::<crate::error::ErrorObject>(raw, &limits, lenient).ok()
        });
        let has_message = match (&self.error, &error) {
            (None, _) => false,
            // No object, or a message of the wrong type: that has its finding already.
            (Some(_), None) => true,
            (Some(_), Some((error, _))) => {
                let message = error.message.as_deref();
                message.is_some_and(|message| !message.trim().is_empty())
            }
        };
        Facts {
            status: status.map(|word| Status::from(word.as_str())),
            alignment: None,
            has_error: self.error.is_some(),
            code: error.and_then(|(error, _)| error.code),
            message: has_message.then_some("said"),
            has_output: self.output.is_some(),
            has_next_actions: self.next_actions.is_some_and(|raw| raw.as_str() != "[]"),
        }
    }
}

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
