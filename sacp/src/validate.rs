//! The validator: all findings of a message, and the answer to it.

use ubos_common::json::{DecodeError, Limits};
use ubos_common::violation::{Level, Report, Violation};

use crate::any::{AnyMessage, Edition, Peek};
use crate::error::Code;
use crate::reply::{Clarify, ErrReply, Reply};
use crate::source::Source;

/// The answer of a validator to a message of either edition: `VALID`, or `ERR` with the first finding. Both
/// have the id of the message, if it could be read.
///
/// ```
/// use sacp::validate::verdict;
/// use ubos_common::json::to_string;
///
/// assert_eq!(to_string(&verdict(br#"{"msg_id":"m1","g":"X","plan":[]}"#)), r#"{"status":"VALID","reply_to":"m1"}"#);
/// assert!(to_string(&verdict(b"Dear agent,")).starts_with(r#"{"status":"ERR","code":"MALFORMED_MESSAGE""#));
/// ```
///
/// Spec: SACP 8
// impl: SACP-8-1
#[must_use]
pub fn verdict(bytes: &[u8]) -> Reply {
    match AnyMessage::decode(bytes) {
        Ok((message, _)) => Reply::Valid {
            reply_to: message.msg_id().map(str::to_owned),
        },
        Err(refused) => answer_to(bytes, &refused),
    }
}

/// Admits a message that is to run: as [`verdict`], and an empty plan is asked back.
///
/// # Errors
///
/// The answer to send in place of running it: `ERR`, or `REQ_CLARIFY` if the plan is empty.
///
/// Spec: SACP 4, 8
// impl: SACP-2-7
pub fn admit(bytes: &[u8]) -> Result<AnyMessage, Reply> {
    let (message, _) = AnyMessage::decode(bytes).map_err(|refused| answer_to(bytes, &refused))?;
    if message.is_empty() {
        let mut clarify = Clarify::new(["plan"], "the plan has no acts");
        clarify.reply_to = message.msg_id().map(str::to_owned);
        return Err(Reply::Clarify(clarify));
    }
    Ok(message)
}

/// All findings of any text, in document order. The codes of MUST findings are
/// those of [`Code`].
///
/// With an `edition`, a `proto_ver` of another one is refused.
///
/// Spec: SACP 8
#[must_use]
pub fn findings(bytes: &[u8], edition: Option<Edition>) -> Report {
    let decoded = match edition {
        Some(edition) => AnyMessage::decode_as(bytes, edition),
        None => AnyMessage::decode(bytes),
    };
    let report = match decoded {
        Ok((_, report)) | Err(DecodeError::Invalid(report)) => report,
        Err(DecodeError::Json(err)) => {
            let mut report = Report::default();
            report.push(
                Violation::new(
                    err.pointer.clone(),
                    err.kind.code(),
                    "SACP-8-3",
                    Level::Must,
                    err.kind.to_string(),
                )
                .at(err.position),
            );
            report
        }
        Err(_) => Report::default(),
    };
    let coded = report.map(|mut finding| {
        if finding.level == Level::Must {
            finding.code = code_of(&finding).as_str().into();
        }
        finding
    });
    match core::str::from_utf8(bytes) {
        Ok(text) if !coded.is_empty() => Source::new(text).place(coded),
        _ => coded,
    }
}

// impl: SACP-8-3
impl From<&DecodeError> for Reply {
    /// The answer to a refused message: its first MUST finding, or that its version is not supported.
    ///
    /// ```
    /// use sacp::{Message, Reply};
    /// use sacp::ubos_common::json::to_string;
    ///
    /// let refused = Message::decode(br#"{"g":"X","plan":[["find","T",{}],["sort","T"]]}"#).unwrap_err();
    /// let reply = to_string(&Reply::from(&refused));
    /// assert_eq!(
    ///     reply,
    ///     r#"{"status":"ERR","code":"MALFORMED_PLAN","details":"act 2 has 2 parts where 3 are wanted","pointer":"/plan/1"}"#
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn from(refused: &DecodeError) -> Self {
        Self::Err(match refused {
            DecodeError::Json(err) => ErrReply::new(
                Code::MalformedMessage,
                format!("{} ({})", err.kind, err.position),
            )
            .at(&err.pointer),
            DecodeError::Invalid(report) => {
                let musts = || {
                    let musts = report.iter();
                    musts.filter(|finding| finding.level == Level::Must)
                };
                // By the rules of a version that is not supported, the rest means nothing.
                let mut version = musts().filter(|finding| {
                    finding.pointer == "/proto_ver" && code_of(finding) == Code::UnsupportedVersion
                });
                version.next().or_else(|| musts().next()).map_or_else(
                    || ErrReply::new(Code::MalformedMessage, "not a message"),
                    |finding| {
                        ErrReply::new(code_of(finding), details(finding)).at(&finding.pointer)
                    },
                )
            }
            _ => ErrReply::new(Code::MalformedMessage, "not a message"),
        })
    }
}

/// The answer to a refused message, with the id of the refused message if it can be read.
#[must_use]
pub(crate) fn answer_to(bytes: &[u8], refused: &DecodeError) -> Reply {
    let mut reply = Reply::from(refused);
    if let Reply::Err(error) = &mut reply {
        let peek = Peek::whole(bytes, &Limits::default()).unwrap_or_default();
        let msg_id = peek.msg_id.filter(|id| !id.is_empty());
        error.reply_to = msg_id.map(Into::into);
    }
    reply
}

/// The code of a finding.
///
/// Spec: SACP 8
// impl: SACP-8-4
#[must_use]
pub(crate) fn code_of(finding: &Violation) -> Code {
    if let Some(code) = Code::from_word(&finding.code) {
        return code;
    }
    match (finding.clause.as_ref(), finding.code.as_ref()) {
        ("SACP-2-1", "missing") => Code::MissingField,
        ("SACP-2-2" | "SACP-2-3", _) => Code::MalformedPlan,
        ("SACP-2-6", _) => Code::InvalidState,
        ("SACP-2-8", "bad_value") => Code::UnsupportedVersion,
        ("SACP1-4-1", "bad_value") if finding.pointer == "/proto_ver" => Code::UnsupportedVersion,
        _ => Code::MalformedMessage,
    }
}

fn details(finding: &Violation) -> String {
    if finding.message == "absent" {
        format!("{} is absent", finding.pointer.trim_start_matches('/'))
    } else {
        finding.message.to_string()
    }
}
