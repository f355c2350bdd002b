//! The validator: every finding of a message, and the answer that they make.

use ubos_common::json::{self, DecodeError, Limits};
use ubos_common::violation::{Level, Profile, Report, Violation};

use crate::error::Code;
use crate::message::Message;
use crate::reply::{ErrReply, Reply};

/// Reads a message and lists every finding. Knows no registry: see [`check`](crate::check).
///
/// # Errors
///
/// The findings, of which at least one is a MUST, or the place where the text is no sound JSON.
///
/// ```
/// use sacp::validate::{answer, validate};
///
/// let refused = validate(br#"{"g":"X","plan":[["find","T",{}],["sort","T"]]}"#).unwrap_err();
/// let reply = ubos_common::json::to_string(&answer(&refused));
/// assert_eq!(
///     reply,
///     r#"{"status":"ERR","code":"MALFORMED_PLAN","details":"act 2 has 2 parts where 3 are wanted","pointer":"/plan/1"}"#
/// );
/// ```
///
/// Spec: SACP 8
pub fn validate(bytes: &[u8]) -> Result<(Message, Report), DecodeError> {
    json::decode::<Message>(bytes, &Limits::default(), Profile::Strict)
}

/// The answer to a message that is refused: its first MUST finding.
///
/// Spec: SACP 8
#[must_use]
pub fn answer(refused: &DecodeError) -> Reply {
    Reply::Err(match refused {
        DecodeError::Json(err) => ErrReply::new(
            Code::MalformedMessage,
            format!("{} ({})", err.kind, err.position),
        )
        .at(&err.pointer),
        DecodeError::Invalid(report) => {
            let first = report.iter().find(|finding| finding.level == Level::Must);
            first.map_or_else(
                || ErrReply::new(Code::MalformedMessage, "no message"),
                |finding| ErrReply::new(code_of(finding), details(finding)).at(&finding.pointer),
            )
        }
        _ => ErrReply::new(Code::MalformedMessage, "no message"),
    })
}

/// The code of a finding.
///
/// Spec: SACP 8
#[must_use]
pub fn code_of(finding: &Violation) -> Code {
    match (finding.clause.as_ref(), finding.code.as_ref()) {
        ("SACP-2-1", "missing") => Code::MissingField,
        ("SACP-2-2" | "SACP-2-3", _) => Code::MalformedPlan,
        ("SACP-2-6", _) => Code::InvalidState,
        ("SACP-2-8", "bad_value") => Code::UnsupportedVersion,
        _ => Code::MalformedMessage,
    }
}

fn details(finding: &Violation) -> String {
    match finding.pointer.as_str() {
        "" => finding.message.to_string(),
        pointer if finding.code == "missing" => {
            format!("{} is absent", pointer.trim_start_matches('/'))
        }
        _ => finding.message.to_string(),
    }
}
