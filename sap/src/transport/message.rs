//! What a consumer says about a task.

use core::fmt;

use ubos_common::json::{self, DecodeError, RawBuf};
use ubos_common::violation::{OneLine, Profile};

#[cfg(feature = "http")]
use crate::ident::CorrelationId;
use crate::receipt::{Ack, Nack};
use crate::result::TaskResult;
use crate::validate::{Options, decode_result};

/// What a consumer says about a task: a receipt, or a result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// It was taken; results follow.
    Ack(Ack),
    /// It was turned away; nothing follows.
    Nack(Nack),
    /// How far it is.
    Result(Box<TaskResult>),
}

/// What it says, in one line for people: of a result its status and its error, and never its output.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(ack) => write!(f, "{}", ack.status),
            Self::Nack(nack) => write!(f, "{nack}"),
            Self::Result(result) => {
                write!(f, "{}", result.status)?;
                if let Some(code) = result.error_code() {
                    write!(f, ": {code}")?;
                }
                let error = result.error.as_ref();
                match error.and_then(|error| error.message.as_deref()) {
                    Some(message) => write!(f, ": {}", OneLine(message)),
                    None => Ok(()),
                }
            }
        }
    }
}

ubos_common::wire! {
    /// The one member that tells them apart.
    struct StatusOnly {
        optional status: RawBuf = "status", "SAP-4.3-1";
    }
}

impl Message {
    /// Reads a message. A receipt is known by its status, everything else is read as a result.
    ///
    /// # Errors
    ///
    /// [`DecodeError`], with every finding.
    pub fn decode(bytes: &[u8], options: &Options) -> Result<Self, DecodeError> {
        let (seen, _) = json::decode::<StatusOnly>(bytes, &options.limits, Profile::Lenient)?;
        let read = (&options.limits, options.profile);
        match seen.status.as_ref().map(RawBuf::as_str) {
            Some("\"ACK\"") => json::decode(bytes, read.0, read.1).map(|(ack, _)| Self::Ack(ack)),
            Some("\"NACK\"") => {
                json::decode(bytes, read.0, read.1).map(|(nack, _)| Self::Nack(nack))
            }
            _ => decode_result(bytes, options).map(|(result, _)| Self::Result(Box::new(result))),
        }
    }

    /// The compact JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ack(ack) => json::to_vec(ack),
            Self::Nack(nack) => json::to_vec(nack),
            Self::Result(result) => result.encode(),
        }
    }
}

impl Message {
    /// Bytes of all that a handler said in it.
    pub(super) fn bytes(&self) -> usize {
        let Self::Result(result) = self else {
            return 0;
        };
        let output = result
            .output
            .as_ref()
            .map_or(0, |output| output.as_str().len());
        let objects = result.metrics.iter().chain(&result.meta);
        let lists = [&result.artifacts, &result.next_actions];
        let objects = objects.chain(lists.into_iter().flatten().flatten());
        let objects: usize = objects.map(|object| object.as_str().len()).sum();
        let citations = result.constitutional_evidence.citations.iter().flatten();
        output + objects + citations.map(String::len).sum::<usize>()
    }

    /// Whether nothing follows it.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Self::Ack(_) => false,
            Self::Nack(_) => true,
            Self::Result(result) => result.status.is_terminal(),
        }
    }

    /// Its correlation id, where that is known.
    #[cfg(feature = "http")]
    pub(crate) const fn correlation_id(&self) -> Option<&CorrelationId> {
        match self {
            Self::Ack(ack) => Some(&ack.correlation_id),
            Self::Nack(nack) => nack.correlation_id.as_ref(),
            Self::Result(result) => Some(&result.correlation_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use ubos_common::json::RawObject;

    use super::*;
    use crate::error::ErrorCode;
    use crate::samples;
    use crate::status::Status;

    #[test]
    fn whatever_is_long_in_a_message_counts() {
        let object = || RawObject::parse(r#"{"a":12345}"#).unwrap();
        let bytes = object().as_str().len();
        let count = |fill: &dyn Fn(&mut TaskResult)| {
            let mut result = samples::result(&samples::task(), Status::Partial);
            result.constitutional_evidence.citations = None;
            let before = Message::Result(Box::new(result.clone())).bytes();
            fill(&mut result);
            Message::Result(Box::new(result)).bytes() - before
        };
        let fills: [&dyn Fn(&mut TaskResult); 6] = [
            &|result| result.output = Some(object().into()),
            &|result| result.metrics = Some(object()),
            &|result| result.meta = Some(object()),
            &|result| result.artifacts = Some(vec![object()]),
            &|result| result.next_actions = Some(vec![object()]),
            &|result| {
                result.constitutional_evidence.citations = Some(vec!["x".repeat(bytes)]);
            },
        ];
        for (number, fill) in fills.into_iter().enumerate() {
            assert_eq!(count(fill), bytes, "{number}");
        }
    }

    #[test]
    fn a_message_for_people_is_one_line_without_an_output() {
        let task = samples::task();
        let result = |status| {
            let mut result = samples::result(&task, status);
            result.output = RawBuf::parse("\"secret\"").ok();
            result
        };
        let failed = result(Status::Failed).with_error(ErrorCode::Internal, "one\ntwo");
        for (message, shown) in [
            (Message::Ack(Ack::from(&task)), "ACK"),
            (
                Message::Nack(Nack::not_here(&task)),
                "NOT_FOUND: no such capability or agent here: \"a.b\"",
            ),
            (
                Message::Result(Box::new(result(Status::Succeeded))),
                "SUCCEEDED",
            ),
            (
                Message::Result(Box::new(failed)),
                "FAILED: INTERNAL: one\\ntwo",
            ),
        ] {
            assert_eq!(message.to_string(), shown);
        }
    }
}
