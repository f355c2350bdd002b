//! The closed list of error codes, and what cannot be parameters.

use core::fmt;

use serde::Serialize;
use ubos_common::json::{Kind, RawBuf, RawObject};

/// Why a message is refused or has failed. One code for each condition.
///
/// Spec: SACP 8
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The text is not a SACP message, or a member has the wrong type.
    MalformedMessage,
    /// `g` or `plan` is absent.
    MissingField,
    /// The plan is not an array of acts, groups and joins.
    MalformedPlan,
    /// A parameter has another type than its verb declares.
    InvalidParamType,
    /// The state is unknown, or the lifecycle has no such transition.
    InvalidState,
    /// No verb with this name is registered.
    UnknownVerb,
    /// No tool with this name is registered.
    UnknownTool,
    /// The tool does not support the verb.
    VerbToolMismatch,
    /// The answer is prose, but must be structured.
    OutFmtViolation,
    /// The `proto_ver` is not supported.
    UnsupportedVersion,
    /// No agent offers the pair of verb and tool.
    NoAgentFound,
    /// An act failed and no recovery was left.
    StepFailed,
    /// A missing agent could not be spawned.
    SpawnFailed,
    /// A fault of the implementation.
    InternalError,
}

impl Code {
    /// All codes, in the order of the catalogue.
    pub(crate) const ALL: [Self; 14] = [
        Self::MalformedMessage,
        Self::MissingField,
        Self::MalformedPlan,
        Self::InvalidParamType,
        Self::InvalidState,
        Self::UnknownVerb,
        Self::UnknownTool,
        Self::VerbToolMismatch,
        Self::OutFmtViolation,
        Self::UnsupportedVersion,
        Self::NoAgentFound,
        Self::StepFailed,
        Self::SpawnFailed,
        Self::InternalError,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MalformedMessage => "MALFORMED_MESSAGE",
            Self::MissingField => "MISSING_FIELD",
            Self::MalformedPlan => "MALFORMED_PLAN",
            Self::InvalidParamType => "INVALID_PARAM_TYPE",
            Self::InvalidState => "INVALID_STATE",
            Self::UnknownVerb => "UNKNOWN_VERB",
            Self::UnknownTool => "UNKNOWN_TOOL",
            Self::VerbToolMismatch => "VERB_TOOL_MISMATCH",
            Self::OutFmtViolation => "OUT_FMT_VIOLATION",
            Self::UnsupportedVersion => "UNSUPPORTED_VERSION",
            Self::NoAgentFound => "NO_AGENT_FOUND",
            Self::StepFailed => "STEP_FAILED",
            Self::SpawnFailed => "SPAWN_FAILED",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }

    /// A short description.
    #[must_use]
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::MalformedMessage => "not a SACP message, or a member has the wrong type",
            Self::MissingField => "a required member is absent",
            Self::MalformedPlan => "the plan is not a list of acts, groups and joins",
            Self::InvalidParamType => "a parameter has another type than its verb declares",
            Self::InvalidState => "the state is unknown, or the lifecycle has no such transition",
            Self::UnknownVerb => "no verb with that name is registered",
            Self::UnknownTool => "no tool with that name is registered",
            Self::VerbToolMismatch => "the tool does not support the verb",
            Self::OutFmtViolation => "the answer is prose, but must be structured",
            Self::UnsupportedVersion => "the version of the protocol is not supported",
            Self::NoAgentFound => "no agent offers the pair of verb and tool",
            Self::StepFailed => "an act failed and no recovery was left",
            Self::SpawnFailed => "a missing agent could not be spawned",
            Self::InternalError => "a fault of the implementation",
        }
    }

    /// The code for a word on the wire.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a value cannot be the parameters of an act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// It does not serialize to JSON within the limits.
    #[error("the parameters cannot be written as JSON: {0}")]
    Unwritable(String),
    /// It is no object.
    #[error("parameters are an object, not {seen}")]
    NoObject {
        /// What it is.
        seen: Kind,
    },
}

impl ParamsError {
    /// The parameters that a value stands for.
    pub(crate) fn params<T: Serialize + ?Sized>(value: &T) -> Result<RawObject, Self> {
        let raw = RawBuf::from_serialize(value).map_err(|err| Self::Unwritable(err.to_string()))?;
        let seen = raw.kind();
        RawObject::new(raw).ok_or(Self::NoObject { seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_texts_name_one_code_each() {
        let texts: std::collections::BTreeSet<_> =
            Code::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_eq!(Code::from_word(code.as_str()), Some(code));
        }
        assert_eq!(Code::from_word("OOPS"), None);
    }
}
