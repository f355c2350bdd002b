//! Extraction of the one JSON object in a model's text.

use ubos_common::json::{Limits, Reader};
use ubos_common::violation::Profile;

use crate::error::Code;
use crate::reply::{ErrReply, Reply};

/// The form that an answer may have.
///
/// Agents on the wire must send bare JSON; the other policies are for models.
///
/// Spec: SACP 4, 13
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerPolicy {
    /// The JSON alone, white space around it allowed.
    Bare,
    /// Fences or prose may surround it, as long as there is only one object.
    #[default]
    OneObject,
}

/// Why no single object was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// Longer than the limit on messages.
    #[error("an answer of {seen} bytes where at most {limit} are read")]
    TooLong {
        /// Its length.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no object.
    #[error("no JSON object in the answer")]
    None,
    /// There is more than one object.
    #[error("several JSON objects in the answer where one is wanted")]
    Several,
    /// There is text around the object, but the policy allows none.
    #[error("text around the JSON object, where only the object is allowed")]
    Around,
}

/// Finds the one JSON object in a text.
///
/// # Errors
///
/// There is no object or more than one, or text around it that the policy does not allow.
///
/// ```
/// use sacp::prompt::{AnswerPolicy, ExtractError, extract};
///
/// let text = "Sure! ```json\n{\"g\":\"X\"}\n``` (a {brace} means nothing)";
/// assert_eq!(extract(text, AnswerPolicy::OneObject), Ok("{\"g\":\"X\"}"));
/// assert_eq!(extract(text, AnswerPolicy::Bare), Err(ExtractError::Around));
/// assert_eq!(extract("{} {}", AnswerPolicy::OneObject), Err(ExtractError::Several));
/// ```
///
/// Spec: SACP 13
pub fn extract(text: &str, policy: AnswerPolicy) -> Result<&str, ExtractError> {
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
    let object = found.ok_or(ExtractError::None)?;
    if policy == AnswerPolicy::Bare && text.trim() != object {
        return Err(ExtractError::Around);
    }
    Ok(object)
}

/// Reads a model's text as a reply of the protocol.
///
/// # Errors
///
/// [`Code::OutFmtViolation`] where there is no one object, [`Code::MalformedMessage`] and its kin where it is no answer.
///
/// Spec: SACP 4, 13
pub fn read_answer(text: &str, policy: AnswerPolicy) -> Result<Reply, ErrReply> {
    let object = extract(text, policy)
        .map_err(|err| ErrReply::new(Code::OutFmtViolation, err.to_string()))?;
    Reply::decode(object.as_bytes()).map_err(|refused| match crate::validate::answer(&refused) {
        Reply::Err(error) => error,
        _ => ErrReply::new(Code::MalformedMessage, "no answer of the protocol"),
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
        let of = |text| extract(text, AnswerPolicy::OneObject);
        assert_eq!(of("I cannot do that."), Err(ExtractError::None));
        assert_eq!(of("{\"a\":1"), Err(ExtractError::None));
        assert_eq!(of("x {\"a\":{\"b\":{}}} y"), Ok("{\"a\":{\"b\":{}}}"));
        assert_eq!(of("{\"a\":\"}{\"}"), Ok("{\"a\":\"}{\"}"));
        assert_eq!(of("{\"a\":1} or {\"a\":2}"), Err(ExtractError::Several));
        assert_eq!(extract(" {} \n", AnswerPolicy::Bare), Ok("{}"));
        let refused = |text| read_answer(text, AnswerPolicy::OneObject).unwrap_err().code;
        assert_eq!(refused("prose"), Code::OutFmtViolation);
        assert_eq!(refused("{\"a\":1}"), Code::MissingField);
        assert_eq!(refused("{\"g\":\"G\",\"plan\":3}"), Code::MalformedPlan);
    }

    #[test]
    fn a_text_of_braces_is_not_read_over_and_over() {
        assert_eq!(
            extract(&"{".repeat(1_000_000), AnswerPolicy::OneObject),
            Err(ExtractError::None)
        );
        let nested = "{\"a\":[".repeat(150_000);
        assert_eq!(
            extract(&nested, AnswerPolicy::OneObject),
            Err(ExtractError::None)
        );
        let long = "x".repeat(Limits::default().max_bytes + 1);
        assert!(matches!(
            extract(&long, AnswerPolicy::OneObject),
            Err(ExtractError::TooLong { .. })
        ));
    }
}
