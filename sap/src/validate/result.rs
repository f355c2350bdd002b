//! Results: their members, and what those say of one another.

use ubos_common::json::{self, DecodeError, Limits, Raw, Write as _};
use ubos_common::violation::{Level, Profile, Report, Violation};

use super::{Options, findings, is_sound, named};
use crate::error::ErrorCode;
use crate::evidence::Alignment;
use crate::result::TaskResult;
use crate::status::Status;

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

/// Whether a strict reader takes a result, written as these bytes: each member does, the bytes are sound and within the
/// limits, and the members say nothing wrong of one another.
pub(crate) fn is_valid_result(result: &TaskResult, encoded: &[u8]) -> bool {
    let options = Options::default();
    let mut report = Report::default();
    Facts::of(result).judge(options.profile, &mut report);
    report.is_valid() && result.is_strict() && is_sound(encoded, &options)
}

/// All findings about a result as it would be written, under the strict profile.
pub(crate) fn check_result(result: &TaskResult) -> Report {
    findings(&decode_result(&result.encode(), &Options::default()))
}

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
