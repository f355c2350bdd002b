//! The inputs and outputs of an engine.

use core::time::Duration;

use ubos_common::trace_context::TraceContext;
use upp::{LlmRequest, ModelEvent, ToolCall, ToolExecution, UppError};

use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::event::AgentStreamEvent;
use crate::hooks::{HookAnswer, HookCall};
use crate::result::RunResult;
use crate::state::{AgentState, StateId, SubagentExecutionTrace};

/// Identifies one effect of a run.
pub type EffectId = u64;

/// What an engine requests, and what it reports.
///
/// An effect has an id; its result is an [`Input`] with the same id.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// Send a request to the model. The result is the first event of the response.
    Infer(EffectId, LlmRequest),
    /// Read the next event of a response.
    More(EffectId),
    /// Run a tool.
    Tool(EffectId, ToolCall, CallScope),
    /// Call a hook, a layer of middleware or the retry strategy.
    Hook(EffectId, HookCall),
    /// Wait. A duration of zero yields to other tasks.
    Sleep(EffectId, Duration),
    /// Save the state.
    Save(EffectId, CheckpointMetadata, AgentState),
    /// Drop an effect; its result is no longer needed.
    Cancel(EffectId),
    /// An event of the run.
    Event(AgentStreamEvent),
    /// A save failed. The run continues.
    SaveFailed(CheckpointError),
    /// The result of the run. It is the last output.
    Finished(RunResult),
}

/// The place of a tool call in its run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallScope {
    /// The step, from 1.
    pub step: u64,
    /// The state in which the tool is called.
    pub state_id: StateId,
    /// How many calls with the same id the same response has had before: 0, unless the model numbers its calls badly.
    pub nth: u64,
    /// The run's place in a distributed trace, as the state in which the tool is called says
    /// ([`AgentState::trace_context`](crate::AgentState::trace_context)).
    pub trace: Option<TraceContext>,
    /// Whether the call was requested before, by a process that ended before its result was recorded, or is made inside of
    /// such a call. It may have run.
    pub is_repeated: bool,
}

/// The result of an effect, or an abort.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input {
    /// The next event of a response; `None` where the stream ended before [`ModelEvent::Done`].
    Model(EffectId, Option<Result<ModelEvent, UppError>>),
    /// A tool has run, with the traces of the sub-agents that it ran.
    Tool(EffectId, ToolExecution, Vec<SubagentExecutionTrace>),
    /// A hook has returned.
    Hook(EffectId, Result<HookAnswer, UppError>),
    /// The request was not sent, because the middleware stops the run. It ends with a result where the model has
    /// responded before, else with an error.
    Stop(EffectId),
    /// The wait is over.
    Slept(EffectId),
    /// A save has ended.
    Saved(EffectId, Result<(), CheckpointError>),
    /// The caller cancels the run. Its result is `CANCELLED`.
    Abort,
    /// The time of the run is over. Its result is `TIMEOUT`.
    Expire,
}

#[cfg(feature = "tracing")]
impl Input {
    /// The kind of the input, for trace events.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Model(..) => "model",
            Self::Tool(..) => "tool",
            Self::Hook(..) => "hook",
            Self::Stop(_) => "stop",
            Self::Slept(_) => "slept",
            Self::Saved(..) => "saved",
            Self::Abort => "abort",
            Self::Expire => "expire",
        }
    }
}

/// An input was given to a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run has ended and takes no more input")]
#[non_exhaustive]
pub struct Closed;
