//! The state of a run, which every part of the engine works on.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::machine::Outbox;
use upp::tool_loop::ToolRound;
use upp::{
    List, LlmRequest, LlmResponse, Message, Messages, TokenUsage, ToolExecution, Turn, UppError,
};

use super::config::EngineConfig;
use super::effects::{EffectId, Output};
use crate::event::{EventData, UapEventType};
use crate::hooks::HookCall;
use crate::middleware::MiddlewareContext;
use crate::result::{AgentError, GenerateResult};
use crate::state::AgentState;
use crate::strategy::{Inference, Outcome, StrategyRun};

/// One run of an agent.
pub struct Engine {
    pub(super) config: EngineConfig,
    pub(super) ids: IdSource,
    pub(super) agent_id: Arc<str>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) strategy: Box<dyn StrategyRun>,
    pub(super) context: MiddlewareContext,
    /// The number of layers that the run has entered.
    pub(super) entered: usize,
    pub(super) stage: RunStage,
    pub(super) state: AgentState,
    /// Whether the state holds the input.
    pub(super) has_input: bool,
    pub(super) step: u64,
    pub(super) added: TurnParts,
    pub(super) agenda: VecDeque<AgendaItem>,
    pub(super) phase: Phase,
    /// Commands of the strategy since the last input.
    pub(super) moves: u32,
    /// The prompt of the pending request. It is added to the state together with the response.
    pub(super) prompt: Option<Message>,
    /// A round of tool calls that is about to start.
    pub(super) pending: Option<Box<PendingRound>>,
    pub(super) effects: EffectId,
    pub(super) tool_rounds: u64,
    /// How often the pending request was repeated because of its output.
    pub(super) output_attempts: u32,
    pub(super) out: Outbox<Output>,
}

/// What the run has added so far.
#[derive(Default)]
pub(super) struct TurnParts {
    pub(super) messages: Messages,
    pub(super) executions: List<ToolExecution>,
    pub(super) usage: TokenUsage,
    pub(super) cycles: u64,
    pub(super) data: Option<RawBuf>,
}

impl TurnParts {
    // impl: UAP-5-1
    pub(super) fn turn(&self) -> Option<Turn> {
        let (messages, executions) = (self.messages.clone(), self.executions.clone());
        let mut turn = Turn::new(messages, executions, self.usage.clone(), self.cycles).ok()?;
        turn.data.clone_from(&self.data);
        Some(turn)
    }
}

/// What the engine does before it asks the strategy for the next command.
pub(super) enum AgendaItem {
    Hook(HookCall),
    Event(UapEventType, EventData),
    Save,
    Tools,
    Next(Box<Outcome>),
    /// Calls the hook with the state at that time.
    StepEnd,
    StopCondition,
    /// Ends the run with a result, and drops the rest of the agenda.
    Stop,
    Complete,
    /// Fails the run, after the hooks before it.
    Fail(Box<UppError>),
}

/// How far the run is.
///
/// ```text
/// Before -> Running -> After -> (closed)
///    |         |         |
///    +---------+---------+----> errors pass the layers that were entered, outwards
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStage {
    Before,
    Running,
    After,
}

/// What the engine waits for.
///
/// ```text
/// LayerCall (before) -> Idle <-> (Asking, Sleeping,) Inferring -> Idle | Tools -> Idle
/// Idle <-> Hook, Saving, Pausing;  any -> Failing (the error hook) -> LayerCall (after, caught) -> Closed
/// ```
pub(super) enum Phase {
    Idle,
    /// Waits for the retry strategy.
    Asking(EffectId, Box<Attempt>),
    Sleeping(EffectId, Box<Attempt>),
    Inferring(EffectId, Box<Attempt>),
    Tools(Box<PendingRound>),
    Hook(EffectId),
    Saving(EffectId),
    Pausing(EffectId),
    Failing(EffectId, Box<AgentError>),
    Layer(EffectId, LayerCall),
    Closed,
}

/// A request to the model, and how often it was sent.
pub(super) struct Attempt {
    pub(super) inference: Inference,
    pub(super) request: LlmRequest,
    /// From 1.
    pub(super) attempt: u32,
    /// Whether a part of the response was received.
    pub(super) was_heard: bool,
    /// The error of the last attempt, until the next one begins.
    pub(super) failure: Option<UppError>,
}

/// A round of tool calls, and the response that it belongs to.
pub(super) struct PendingRound {
    /// Messages that are added to the state together with the results, so that no call in it lacks its result.
    pub(super) messages: Vec<Message>,
    /// How many calls with an id were started.
    pub(super) started: BTreeMap<Arc<str>, u64>,
    pub(super) response: Box<LlmResponse>,
    /// The calls are as repaired.
    pub(super) round: ToolRound,
}

/// The call of a layer that is pending.
pub(super) enum LayerCall {
    Before(usize),
    /// With the result that the layer received.
    After(usize, Box<GenerateResult>),
    Caught(usize, Box<AgentError>),
}
