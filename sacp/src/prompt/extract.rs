//! Extraction of the one JSON object in a model's text.

use ubos_common::json::{Limits, Reader};
use ubos_common::violation::Profile;

use crate::error::Code;
use crate::reply::{ErrReply, Reply};

/// Why no single object was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExtractError {
    /// Longer than the limit on messages.
    #[error("the answer has {seen} bytes, but at most {limit} are read")]
    TooLong {
        /// Its length.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no object.
    #[error("the answer has no JSON object")]
    None,
    /// There is more than one object.
    #[error("the answer has several JSON objects, but must have one")]
    Several,
}

/// Finds the one JSON object in a text.
///
/// Spec: SACP 13
// impl: SACP-13-1
pub(super) fn extract(text: &str) -> Result<&str, ExtractError> {
    let limit = Limits::default().max_bytes;
    if text.len() > limit {
        return Err(ExtractError::TooLong {
            seen: text.len(),
            limit,
        });
    }
    let (mut found, mut from, mut attempts) = (None, 0, 0);
    while let Some(start) = text
        .get(from..)
        .and_then(|rest| rest.find('{'))
        .map(|at| from + at)
    {
        attempts += 1;
        // Each attempt may read to the end of the text, so their number is limited.
        if attempts > MAX_ATTEMPTS {
            return Err(if found.is_some() {
                ExtractError::Several
            } else {
                ExtractError::None
            });
        }
        let Some(object) = text.get(start..).and_then(object_at) else {
            from = start + 1;
            continue;
        };
        if found.replace(object).is_some() {
            return Err(ExtractError::Several);
        }
        from = start + object.len();
    }
    found.ok_or(ExtractError::None)
}

/// Reads a model's text as a reply of the protocol.
///
/// The error is [`Code::OutFmtViolation`] if the text has no single object, and the code of the first fault if the
/// object is not a reply.
///
/// Spec: SACP 4, 13
pub(crate) fn read_answer(text: &str) -> Result<Reply, ErrReply> {
    let object =
        extract(text).map_err(|err| ErrReply::new(Code::OutFmtViolation, err.to_string()))?;
    Reply::decode(object.as_bytes()).map_err(|refused| match Reply::from(&refused) {
        Reply::Err(error) => error,
        _ => ErrReply::new(
            Code::MalformedMessage,
            "the object is not a reply of the protocol",
        ),
    })
}

/// The complete object at the beginning of a text.
fn object_at(text: &str) -> Option<&str> {
    let mut reader = Reader::new(text.as_bytes(), &Limits::default(), Profile::Lenient).ok()?;
    reader.skip().ok()?;
    text.get(..reader.offset_here())
}

/// The most places to look for an object.
const MAX_ATTEMPTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    // spec: SACP-13-1
    #[test]
    fn none_or_several_objects_are_errors() {
        let of = |text| extract(text);
        assert_eq!(of("I cannot do that."), Err(ExtractError::None));
        assert_eq!(of("{\"a\":1"), Err(ExtractError::None));
        assert_eq!(of("x {\"a\":{\"b\":{}}} y"), Ok("{\"a\":{\"b\":{}}}"));
        assert_eq!(of("{\"a\":\"}{\"}"), Ok("{\"a\":\"}{\"}"));
        assert_eq!(of("{\"a\":1} or {\"a\":2}"), Err(ExtractError::Several));
        let refused = |text| read_answer(text).unwrap_err().code;
        assert_eq!(refused("prose"), Code::OutFmtViolation);
        assert_eq!(refused("{\"a\":1}"), Code::MissingField);
        assert_eq!(refused("{\"g\":\"G\",\"plan\":3}"), Code::MalformedPlan);
    }

    #[test]
    fn a_text_of_braces_is_not_read_over_and_over() {
        assert_eq!(extract(&"{".repeat(1_000_000)), Err(ExtractError::None));
        // The last place that is looked at.
        let after = |braces| "{ ".repeat(braces) + "{}";
        assert_eq!(extract(&after(63)), Ok("{}"));
        assert_eq!(extract(&after(64)), Err(ExtractError::None));
        let nested = "{\"a\":[".repeat(150_000);
        assert_eq!(extract(&nested), Err(ExtractError::None));
        let mut long = "x".repeat(Limits::default().max_bytes);
        assert_eq!(extract(&long), Err(ExtractError::None));
        long.push('x');
        assert!(matches!(extract(&long), Err(ExtractError::TooLong { .. })));
    }
}
