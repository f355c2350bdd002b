//! The entries of a journal.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ubos_common::canon::Digest;
use ubos_common::time::Now;
use upp::Message;

use super::super::answer::EffectResult;
use super::super::lease::LeaseEntry;
use super::super::question::{Decision, Question};
use crate::engine::EffectId;
use crate::state::AgentState;

/// The version of the format.
pub(in crate::journal) const VERSION: u64 = 3;

/// One entry.
#[derive(Clone, Debug)]
pub(in crate::journal) enum Entry {
    /// The start of the run: the first entry, and no other.
    Begin(Box<BeginEntry>),
    /// An effect was requested.
    Effect(EffectEntry),
    /// An effect has a result.
    Answer(AnswerEntry),
    /// The run is taken over, or its lease is renewed or released. Version 1 wrote `resumed` for the first.
    Lease(LeaseEntry),
    /// A person is asked.
    Question(Now, Box<Question>),
    /// A person has decided.
    Decision(Now, Box<Decision>),
    /// The run has ended.
    End(EndEntry),
}

/// The start of a run: everything that is needed to repeat it.
#[derive(Clone, Debug)]
pub(in crate::journal) struct BeginEntry {
    pub(in crate::journal) at: Now,
    /// The version of the format, which decides how fingerprints are taken.
    pub(in crate::journal) version: u64,
    /// Who has the first lease.
    pub(in crate::journal) owner: Arc<str>,
    /// The term of that lease.
    pub(in crate::journal) term: Option<Duration>,
    /// Whether there is a policy for approvals.
    pub(in crate::journal) approvals: bool,
    pub(in crate::journal) agent_id: Arc<str>,
    pub(in crate::journal) session_id: Option<Arc<str>>,
    pub(in crate::journal) strategy: Box<str>,
    pub(in crate::journal) has_hooks: bool,
    /// Names of the middleware, outermost first.
    pub(in crate::journal) layers: Vec<String>,
    /// Whether there is a retry strategy.
    pub(in crate::journal) retries: bool,
    /// Whether there is a repair policy.
    pub(in crate::journal) repairs: bool,
    pub(in crate::journal) plan_events: bool,
    pub(in crate::journal) saves: bool,
    /// The seed of all ids of the run.
    pub(in crate::journal) seed: u64,
    /// Fingerprints of the options of the model.
    pub(in crate::journal) program: BTreeMap<String, HexDigest>,
    pub(in crate::journal) input: Message,
    pub(in crate::journal) state: AgentState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) struct EffectEntry {
    pub(in crate::journal) id: EffectId,
    pub(in crate::journal) kind: Kind,
    pub(in crate::journal) fingerprint: Fingerprint,
}

#[derive(Clone, Debug)]
pub(in crate::journal) struct AnswerEntry {
    pub(in crate::journal) at: Now,
    /// `None` for an abort.
    pub(in crate::journal) id: Option<EffectId>,
    pub(in crate::journal) result: EffectResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) struct EndEntry {
    pub(in crate::journal) success: bool,
    pub(in crate::journal) fingerprint: Fingerprint,
}

/// The fingerprint of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) struct Fingerprint {
    /// Of the whole request.
    pub(in crate::journal) whole: Digest,
    /// Of its content without ids and times: equal in two runs that make the same request.
    pub(in crate::journal) content: Digest,
}

/// The kind of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) enum Kind {
    Infer,
    Tool,
    Hook,
    Sleep,
    Save,
}

impl Kind {
    pub(in crate::journal) const fn as_str(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Sleep => "sleep",
            Self::Save => "save",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        [Self::Infer, Self::Tool, Self::Hook, Self::Sleep, Self::Save]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// A digest as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) struct HexDigest(pub(in crate::journal) Digest);
