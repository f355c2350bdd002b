//! Output discipline: who may answer in prose, and what everybody else must send.

use crate::error::Code;
use crate::reply::{ErrReply, Reply};

/// An answer that was let in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Admitted {
    /// An answer of the protocol.
    Structured(Box<Reply>),
    /// Prose, from one who may write it.
    Prose(String),
}

/// Whether an agent may answer in prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Voice {
    /// It answers with a JSON object.
    Structured,
    /// An Interface, a Formatter, or an agent that was told `out_fmt` human.
    MaySpeak,
}

/// Lets an answer in, or refuses it.
///
/// An agent on the wire sends bare JSON. What is an object and no answer of the protocol is refused whoever sent it.
///
/// # Errors
///
/// [`Code::OutFmtViolation`] for prose from one who may not write it, and for JSON that is no object; what is wrong with an
/// object that is no answer.
///
/// ```
/// use sacp::Code;
/// use sacp::role::{Voice, admit};
///
/// assert_eq!(admit(b"It rains.", Voice::Structured).unwrap_err().code, Code::OutFmtViolation);
/// assert!(admit(b"It rains.", Voice::MaySpeak).is_ok());
/// ```
///
/// Spec: SACP 4
// impl: SACP-4-1
pub fn admit(answer: &[u8], voice: Voice) -> Result<Admitted, ErrReply> {
    let text = core::str::from_utf8(answer)
        .map_err(|_| ErrReply::new(Code::OutFmtViolation, "an answer that is no UTF-8 text"))?;
    if text.trim_start().starts_with('{') {
        return Reply::decode(answer)
            .map(|reply| Admitted::Structured(Box::new(reply)))
            .map_err(|refused| match crate::validate::answer(&refused) {
                Reply::Err(error) => error,
                _ => ErrReply::new(Code::MalformedMessage, "no answer of the protocol"),
            });
    }
    match voice {
        Voice::MaySpeak => Ok(Admitted::Prose(text.to_owned())),
        Voice::Structured => {
            let what = "an answer that is no JSON object, from an agent that was not told to write for a person";
            Err(ErrReply::new(Code::OutFmtViolation, what))
        }
    }
}
