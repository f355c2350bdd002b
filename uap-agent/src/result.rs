//! How a run ends.

use upp::{Turn, UppError};

use crate::state::AgentState;

/// What a run came to.
///
/// Spec: UAP-1.1 4.4
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateResult {
    /// All that the run added, its input left out.
    pub turn: Turn,
    /// The state after it.
    pub state: AgentState,
}

/// What a strategy's run comes to: the specification has two names for it.
///
/// Spec: UAP-1.1 5.1
pub type ExecutionResult = GenerateResult;

impl GenerateResult {
    /// A result of the developer's own: what an error hook recovers with.
    #[must_use]
    pub const fn new(turn: Turn, state: AgentState) -> Self {
        Self { turn, state }
    }
}

/// Why a run came to nothing, and how far it was.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct AgentError {
    /// What went wrong.
    #[source]
    pub error: UppError,
    /// The last state that a run can go on from: every call in it has its result.
    pub state: AgentState,
    /// What the run had added by then; absent where the model had not answered yet.
    pub turn: Option<Turn>,
}

impl AgentError {
    pub(crate) fn new(error: UppError, state: AgentState, turn: Option<Turn>) -> Box<Self> {
        Box::new(Self { error, state, turn })
    }
}

/// How a run ends.
pub(crate) type RunResult = Result<GenerateResult, Box<AgentError>>;
