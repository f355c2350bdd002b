//! The result of an effect.

use upp::{LlmResponse, ToolExecution, UppError};

use crate::hooks::HookAnswer;
use crate::state::SubagentExecutionTrace;

/// The result of an effect, without the effect's id. Of a streamed response only the whole is recorded.
#[derive(Clone, Debug)]
pub(in crate::journal) enum EffectResult {
    Response(Box<LlmResponse>),
    /// The model failed, and whether a part of its response was received before.
    Failed(UppError, bool),
    /// The model's stream ended without a response, and whether a part was received before.
    NoResponse(bool),
    /// The request was not sent.
    Stopped,
    Tool(ToolExecution, Vec<SubagentExecutionTrace>),
    /// The wait is over.
    Slept,
    Hook(HookAnswer),
    /// The hook failed.
    HookFailed(UppError),
    Saved,
    /// The save failed.
    SaveFailed(Box<str>),
    Abort,
    /// The time of the run is over.
    Expired,
}
