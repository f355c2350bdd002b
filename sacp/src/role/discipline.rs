//! Output discipline: which answers may be prose, and which must be structured.

use crate::error::Code;
use crate::reply::{ErrReply, Reply};

/// An answer that may be given on: of an agent to an orchestrator, or of an orchestrator to the sender.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// A reply of the protocol.
    Reply(Reply),
    /// Prose, from an agent that may write it.
    Prose(String),
}

/// The form that an agent's answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerForm {
    /// A JSON object.
    Structured,
    /// A JSON object or prose: for an Interface, a Formatter, or an agent that was asked for `out_fmt` human.
    Prose,
}

/// Admits or refuses an agent's answer.
///
/// Agents send bare JSON. A JSON object must be a reply of the protocol, whatever the form.
///
/// # Errors
///
/// [`Code::OutFmtViolation`] for prose where a structured answer is required, and for JSON that is not an object; the
/// code of the fault for an object that is not a reply.
///
/// ```
/// use sacp::Code;
/// use sacp::role::{AnswerForm, admit};
///
/// assert_eq!(admit(b"It rains.", AnswerForm::Structured).unwrap_err().code, Code::OutFmtViolation);
/// assert!(admit(b"It rains.", AnswerForm::Prose).is_ok());
/// ```
///
/// Spec: SACP 4
// impl: SACP-4-1
pub fn admit(answer: &[u8], form: AnswerForm) -> Result<Answer, ErrReply> {
    let text = core::str::from_utf8(answer)
        .map_err(|_| ErrReply::new(Code::OutFmtViolation, "the answer is not UTF-8 text"))?;
    if text.trim_start().starts_with('{') {
        return Reply::decode(answer).map(Answer::Reply).map_err(|refused| {
            match Reply::from(&refused) {
                Reply::Err(error) => error,
                _ => ErrReply::new(
                    Code::MalformedMessage,
                    "the object is not a reply of the protocol",
                ),
            }
        });
    }
    match form {
        AnswerForm::Prose => Ok(Answer::Prose(text.to_owned())),
        AnswerForm::Structured => {
            let what = "the answer is prose, but must be a JSON object: this agent was not asked for out_fmt human";
            Err(ErrReply::new(Code::OutFmtViolation, what))
        }
    }
}
