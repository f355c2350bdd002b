//! The state machine that runs an agent: it requests effects and takes their results.
//!
//! The model, tools, hooks, waits and saves are effects. The engine does no IO, reads no clock and draws no randomness
//! beyond its arguments: the same inputs at the same times give the same outputs. [`crate::agent`] drives it over
//! futures; a test, a journal or a simulation drives it
//! in its own way.
//!
//! ```text
//!            +--------------------------- answers -----------------------------+
//!            v                                                                 |
//! agenda: hook, event, save, ask the strategy  --> Infer | Tool | Hook | Save --> world
//! ```

mod config;
mod effects;
mod inference;
mod layers;
mod steps;
mod tools;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};
use upp::{ErrorCode, List, Message, Messages, Stamp, TokenUsage, ToolExecution, Turn, UppError};

pub use config::{EngineConfig, RunStart};
pub use effects::{CallScope, Closed, EffectId, Input, Output};
use inference::Attempt;
use layers::LayerCall;

use crate::checkpoint::CheckpointError;
use crate::event::{AgentStreamEvent, EventData, UapEvent, UapEventType};
use crate::hooks::{HookAnswer, HookCall};
use crate::middleware::MiddlewareContext;
use crate::result::{AgentError, RunResult};
use crate::state::AgentState;
use crate::strategy::{Outcome, StrategyRun};
use crate::trace_event::trace;

/// The number of commands without an effect after which the engine requests a pause, so that a strategy which
/// never requests an effect blocks neither the executor nor an abort.
const MOVES: u32 = 256;

/// The number of queued outputs from which on the engine accepts no input.
const OUTBOX: usize = 1024;

/// One run of an agent.
pub struct Engine {
    config: EngineConfig,
    ids: IdSource,
    agent_id: Arc<str>,
    session_id: Option<Arc<str>>,
    strategy: Box<dyn StrategyRun>,
    context: MiddlewareContext,
    /// The number of layers that the run has entered.
    entered: usize,
    stage: RunStage,
    state: AgentState,
    /// Whether the state holds the input.
    has_input: bool,
    step: u64,
    added: TurnParts,
    agenda: VecDeque<AgendaItem>,
    phase: Phase,
    /// Commands of the strategy since the last input.
    moves: u32,
    /// The prompt of the pending request. It is added to the state together with the response.
    prompt: Option<Message>,
    /// A round of tool calls that is about to start.
    pending: Option<Box<tools::ToolRound>>,
    effects: EffectId,
    tool_rounds: u64,
    /// How often the pending request was repeated because of its output.
    output_attempts: u32,
    out: Outbox<Output>,
}

/// What the run has added so far.
#[derive(Default)]
struct TurnParts {
    messages: Messages,
    executions: List<ToolExecution>,
    usage: TokenUsage,
    cycles: u64,
    data: Option<RawBuf>,
}

impl TurnParts {
    fn turn(&self) -> Option<Turn> {
        let (messages, executions) = (self.messages.clone(), self.executions.clone());
        let mut turn = Turn::new(messages, executions, self.usage.clone(), self.cycles).ok()?;
        turn.data.clone_from(&self.data);
        Some(turn)
    }
}

/// What the engine does before it asks the strategy for the next command.
enum AgendaItem {
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
enum RunStage {
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
enum Phase {
    Idle,
    /// Waits for the retry strategy.
    Asking(EffectId, Box<Attempt>),
    Sleeping(EffectId, Box<Attempt>),
    Inferring(EffectId, Box<Attempt>),
    Tools(Box<tools::ToolRound>),
    Hook(EffectId),
    Saving(EffectId),
    Pausing(EffectId),
    Failing(EffectId, Box<AgentError>),
    Layer(EffectId, LayerCall),
    Closed,
}

impl Engine {
    /// Starts a run. `ids` provides every id of the run.
    #[must_use]
    pub fn new(
        now: Now,
        config: EngineConfig,
        strategy: Box<dyn StrategyRun>,
        mut ids: IdSource,
        start: RunStart,
    ) -> Self {
        let context = MiddlewareContext {
            agent_id: Arc::clone(&start.agent_id),
            system: config.llm.options().system().cloned(),
            input: start.input,
            state: start.state.clone(),
            metadata: BTreeMap::new(),
            now,
            ids: IdSource::seeded(ids.bits()),
        };
        let mut engine = Self {
            config,
            ids,
            agent_id: start.agent_id,
            session_id: start.session_id,
            strategy,
            context,
            entered: 0,
            stage: RunStage::Before,
            state: start.state,
            has_input: false,
            step: 0,
            added: TurnParts::default(),
            agenda: VecDeque::new(),
            phase: Phase::Idle,
            moves: 0,
            prompt: None,
            pending: None,
            effects: 0,
            tool_rounds: 0,
            output_attempts: 0,
            out: Outbox::new(OUTBOX),
        };
        engine.enter(now, 0);
        engine.advance(now);
        engine
    }

    /// Takes the result of an effect, or an abort. The result of an effect that was cancelled is ignored.
    ///
    /// # Errors
    ///
    /// [`Closed`] after the run has ended.
    pub fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Closed> {
        if matches!(self.phase, Phase::Closed) {
            return Err(Closed);
        }
        self.moves = 0;
        trace!(
            step = self.step,
            input = input.name(),
            "engine takes an input"
        );
        match input {
            Input::Model(id, item) => self.on_model(now, id, item),
            Input::Tool(id, execution, traces) => self.on_tool(now, id, execution, traces),
            Input::Stop(id) => self.on_stop(now, id),
            Input::Hook(id, answer) => self.on_hook(now, id, answer),
            Input::Saved(id, result) => self.on_saved(id, result),
            Input::Slept(id) => self.on_slept(id),
            Input::Abort => self.on_abort(now),
        }
        self.advance(now);
        Ok(())
    }

    /// Does nothing: an engine has no timeouts, because waiting is an effect.
    pub const fn handle_timeout(&mut self, _now: Now) {}

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// Always `None`: an engine has no timeouts.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    /// Whether the engine takes input: the run has not ended, and its outputs were drained.
    #[must_use]
    pub fn accepts_input(&self) -> bool {
        !matches!(self.phase, Phase::Closed) && !self.out.is_full()
    }

    /// Whether the run has ended and every output was taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed) && self.out.is_empty()
    }

    /// The state as it stands.
    #[must_use]
    pub const fn state(&self) -> &AgentState {
        &self.state
    }

    /// An error of the run, with the state and the turn so far.
    #[cfg(feature = "canon")]
    pub(crate) fn error(&self, error: UppError) -> Box<AgentError> {
        AgentError::new(error, self.state.clone(), self.added.turn())
    }

    fn on_hook(&mut self, now: Now, id: EffectId, answer: Result<HookAnswer, UppError>) {
        match &self.phase {
            Phase::Hook(waited) if *waited == id => {
                self.phase = Phase::Idle;
                match answer {
                    Ok(HookAnswer::Stop(true)) => self.complete(),
                    Ok(_) => {}
                    Err(error) => self.fail(now, error),
                }
            }
            Phase::Failing(waited, _) if *waited == id => {
                let Phase::Failing(_, failure) = core::mem::replace(&mut self.phase, Phase::Idle)
                else {
                    return;
                };
                match answer {
                    Ok(HookAnswer::Recovered(result)) => self.leave(now, self.entered, result),
                    // What the error hook itself fails with does not hide what it was told of.
                    _ => self.catch(now, self.entered, failure),
                }
            }
            Phase::Layer(waited, _) if *waited == id => self.on_layer(now, answer),
            Phase::Asking(waited, _) if *waited == id => self.on_attempt(now, answer),
            _ => {}
        }
    }

    fn on_saved(&mut self, id: EffectId, result: Result<(), CheckpointError>) {
        if matches!(self.phase, Phase::Saving(waited) if waited == id) {
            self.phase = Phase::Idle;
            if let Err(error) = result {
                self.out.push(Output::SaveFailed(error));
            }
        }
    }

    fn on_abort(&mut self, now: Now) {
        let is_failing = matches!(
            self.phase,
            Phase::Failing(..) | Phase::Layer(_, LayerCall::Caught(..))
        );
        if !is_failing {
            self.fail(now, UppError::cancelled("uap"));
        }
    }

    /// Ends the run with an error, unless a hook recovers.
    fn fail(&mut self, now: Now, error: UppError) {
        for id in self.running() {
            self.out.push(Output::Cancel(id));
        }
        self.agenda.clear();
        let failure = AgentError::new(error, self.state.clone(), self.added.turn());
        if self.config.hooks && self.stage == RunStage::Running {
            let id = self.next_effect();
            self.out
                .push(Output::Hook(id, HookCall::Error(failure.clone())));
            self.phase = Phase::Failing(id, failure);
        } else {
            self.catch(now, self.entered, failure);
        }
    }

    fn running(&self) -> Vec<EffectId> {
        match &self.phase {
            Phase::Inferring(id, _)
            | Phase::Asking(id, _)
            | Phase::Sleeping(id, _)
            | Phase::Hook(id)
            | Phase::Saving(id)
            | Phase::Pausing(id)
            | Phase::Layer(id, _) => vec![*id],
            Phase::Tools(round) => round.running(),
            Phase::Idle | Phase::Failing(..) | Phase::Closed => Vec::new(),
        }
    }

    fn close(&mut self, result: RunResult) {
        self.agenda.clear();
        trace!(step = self.step, is_ok = result.is_ok(), "run ended");
        self.phase = Phase::Closed;
        self.out.push(Output::Finished(result));
    }

    const fn next_effect(&mut self) -> EffectId {
        self.effects += 1;
        self.effects
    }

    fn event(&mut self, event_type: UapEventType, data: EventData) {
        let planned = self
            .config
            .plan_events
            .then(|| plan_event(&event_type, &data))
            .flatten();
        // A step of the plan lies inside the step of the run.
        let is_start = event_type == UapEventType::StepStart;
        let mut events = vec![(event_type, data)];
        if let Some(planned) = planned {
            events.insert(usize::from(is_start), planned);
        }
        for (event_type, data) in events {
            let agent = Arc::clone(&self.agent_id);
            let event = UapEvent::new(event_type, self.step, agent, data);
            self.out.push(Output::Event(AgentStreamEvent::Uap(event)));
        }
    }

    fn stamp(&mut self, now: Now) -> Stamp {
        Stamp::new(&mut self.ids, now.wall)
    }

    fn refuse(&self, code: ErrorCode, what: &str) -> UppError {
        UppError::new(code, self.config.llm.options().model().provider(), what)
    }
}

/// Calls code of the developer's that the machine itself asks; a panic is an error that says no more, for it may hold
/// secrets.
fn guarded<T>(who: &str, code: impl FnOnce() -> T) -> Result<T, UppError> {
    std::panic::catch_unwind(AssertUnwindSafe(code)).map_err(|_| panicked(who))
}

/// Somebody of the developer's has panicked.
pub(crate) fn panicked(who: &str) -> UppError {
    UppError::new(ErrorCode::ProviderError, "uap", format!("{who} panicked"))
}

/// What an event of a step tells of the plan.
fn plan_event(event_type: &UapEventType, data: &EventData) -> Option<(UapEventType, EventData)> {
    let EventData::Phase {
        plan, plan_step, ..
    } = data
    else {
        return None;
    };
    let step = plan_step.clone().map(EventData::PlanStep);
    match event_type {
        UapEventType::StepStart => Some((UapEventType::PlanStepStart, step?)),
        UapEventType::StepEnd => match (plan, step) {
            (Some(plan), _) => {
                let data = EventData::Plan(Arc::clone(plan));
                Some((UapEventType::PlanCreated, data))
            }
            (None, step) => Some((UapEventType::PlanStepEnd, step?)),
        },
        _ => None,
    }
}

impl Machine for Engine {
    type Input<'a> = Input;
    type Output = Output;
    type Error = Closed;

    fn handle_input(&mut self, now: Now, input: Input) -> Result<(), Closed> {
        self.handle_input(now, input)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.poll_output()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.poll_timeout()
    }

    fn accepts_input(&self) -> bool {
        self.accepts_input()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("step", &self.step)
            .field("state", &self.state.id())
            .finish_non_exhaustive()
    }
}
