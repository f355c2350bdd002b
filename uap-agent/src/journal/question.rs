//! Questions to persons, and their decisions.

use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::json::{MemberWriter, RawBuf, RawObject};
use ubos_common::time::{Now, Timestamp};
use upp::ToolCall;

use super::JournalError;
use crate::approval::ApprovalRequest;
use crate::engine::EffectId;

/// What a person is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuestionKind {
    /// Whether a tool may be called.
    Approval,
    /// What became of a call whose outcome is unknown: to approve is to call the tool again.
    Outcome,
}

impl QuestionKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Outcome => "outcome",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        [Self::Approval, Self::Outcome]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// A question to a person, as it stands in a journal. The call waits until it is decided.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The effect of the call.
    pub effect: EffectId,
    /// What is asked.
    pub kind: QuestionKind,
    /// The name of the tool.
    pub tool: Arc<str>,
    /// The id of the call.
    pub call_id: Arc<str>,
    /// The arguments of the call.
    pub arguments: RawObject,
    /// The digest of tool, call and arguments. A decision is bound to it.
    pub digest: Digest,
    /// When it was asked.
    pub asked: Timestamp,
    /// From when on nobody may answer: the call counts as rejected then. `None`: never.
    pub expires: Option<Timestamp>,
    /// Who may answer. Everybody where it is empty.
    pub may_answer: Vec<String>,
}

impl Question {
    pub(super) fn new(
        now: Now,
        effect: EffectId,
        kind: QuestionKind,
        call: &ToolCall,
        request: ApprovalRequest,
    ) -> Self {
        Self {
            effect,
            kind,
            tool: Arc::clone(&call.tool_name),
            call_id: Arc::clone(&call.tool_call_id),
            arguments: call.arguments.clone(),
            digest: call_digest(&call.tool_name, &call.tool_call_id, &call.arguments),
            asked: now.wall,
            expires: request.within.map(|span| now.wall.saturating_add(span)),
            may_answer: request.may_answer,
        }
    }

    /// Whether the time to answer is over.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// The digest of a call.
pub(super) fn call_digest(tool: &str, call_id: &str, arguments: &RawObject) -> Digest {
    let mut bytes = Vec::new();
    let mut object = MemberWriter::begin(&mut bytes);
    object.member("tool", tool);
    object.member("callId", call_id);
    object.member("arguments", arguments);
    object.end();
    Digest::of_bytes(&bytes)
}

/// What a person decides.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The tool is called.
    Approve,
    /// The tool is not called. The model is told the reason.
    Reject(Box<str>),
    /// The tool is not called. This is its result.
    Answer(RawBuf),
}

/// The decision of one question, bound to the digest that the person has seen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// The effect of the call.
    pub effect: EffectId,
    /// The digest of the question.
    pub digest: Digest,
    /// Who decides.
    pub by: Box<str>,
    /// The decision.
    pub verdict: Verdict,
}

impl Decision {
    /// The decision of a question.
    #[must_use]
    pub fn new(question: &Question, by: impl Into<Box<str>>, verdict: Verdict) -> Self {
        Self {
            effect: question.effect,
            digest: question.digest,
            by: by.into(),
            verdict,
        }
    }
}

/// Why a decision was refused. Nothing was recorded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionError {
    /// No such question was asked.
    #[error("effect {effect} has no question")]
    NoQuestion {
        /// The effect of the decision.
        effect: EffectId,
    },
    /// The question is decided already.
    #[error("effect {effect} is decided already, by {by}")]
    Decided {
        /// The effect of the decision.
        effect: EffectId,
        /// Who decided it.
        by: Box<str>,
    },
    /// The call has a result, or the run has ended.
    #[error("effect {effect} is not waited for any more")]
    Over {
        /// The effect of the decision.
        effect: EffectId,
    },
    /// The time to answer is over.
    #[error("effect {effect} could be decided until {until}")]
    Expired {
        /// The effect of the decision.
        effect: EffectId,
        /// When the question has expired.
        until: Timestamp,
    },
    /// The decision is bound to another call.
    #[error("effect {effect} has the digest {wanted}, but {seen} is decided")]
    Digest {
        /// The effect of the decision.
        effect: EffectId,
        /// The digest of the question.
        wanted: Digest,
        /// The digest of the decision.
        seen: Digest,
    },
    /// This person may not answer.
    #[error("{by} may not decide effect {effect}")]
    NotAllowed {
        /// The effect of the decision.
        effect: EffectId,
        /// Who tried to decide.
        by: Box<str>,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// The run waits for persons and has released its journal: the process may end. The cause of a run's error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the run waits for {} decisions", questions.len())]
#[non_exhaustive]
pub struct Paused {
    /// What is waited for.
    pub questions: Vec<Question>,
}

impl Paused {
    /// The code of the error with which a paused run ends.
    pub const CODE: &'static str = "PAUSED";

    /// The pause that ended a run; `None` where another error did.
    #[must_use]
    pub fn of(error: &upp::UppError) -> Option<&Self> {
        error.cause.as_deref()?.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: UAP-12-5
    #[test]
    fn a_digest_is_of_one_call_of_one_tool_with_its_arguments() {
        let arguments = |text| upp::object(text).unwrap();
        let of = |tool, id, text| call_digest(tool, id, &arguments(text));
        let digest = of("pay", "c", r#"{"sum":5}"#);
        assert_eq!(digest, of("pay", "c", r#"{"sum":5}"#));
        assert_ne!(digest, of("play", "c", r#"{"sum":5}"#));
        assert_ne!(digest, of("pay", "d", r#"{"sum":5}"#));
        assert_ne!(digest, of("pay", "c", r#"{"sum":6}"#));
    }
}
