//! The result and the error of a run.

use futures_core::future::BoxFuture;
use upp::{Turn, UppError};

use crate::state::AgentState;

/// The result of a run.
///
/// Spec: UAP-1.1 4.4
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateResult {
    /// What the run added, without its input.
    pub turn: Turn,
    /// The state after the run.
    pub state: AgentState,
}

/// The result of a strategy's run: the specification has two names for it.
///
/// Spec: UAP-1.1 5.1
pub type ExecutionResult = GenerateResult;

impl GenerateResult {
    /// A result, such as one with which an error hook recovers.
    #[must_use]
    pub const fn new(turn: Turn, state: AgentState) -> Self {
        Self { turn, state }
    }
}

/// The error of a run, with its state and turn so far.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct AgentError {
    /// What went wrong.
    #[source]
    pub error: UppError,
    /// The last state from which a run can continue: every tool call in it has its result.
    pub state: AgentState,
    /// What the run had added; absent where the model had not responded yet.
    pub turn: Option<Turn>,
}

impl AgentError {
    pub(crate) fn new(error: UppError, state: AgentState, turn: Option<Turn>) -> Box<Self> {
        Box::new(Self { error, state, turn })
    }
}

/// A step that needs no more than the reason: `?` in a function that returns a [`UppError`].
impl From<Box<AgentError>> for UppError {
    fn from(error: Box<AgentError>) -> Self {
        error.error
    }
}

/// The result and the error of a run.
pub(crate) type RunResult = Result<GenerateResult, Box<AgentError>>;

/// The future of a hook. An error of a hook ends the run with that error.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, UppError>>;
