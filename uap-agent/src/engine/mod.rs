//! The machine that runs an agent: it asks the world for effects and takes their answers.
//!
//! Everything that takes time or may fail is an effect of the world: the model, tools, hooks, the store. The engine
//! does no IO, reads no clock and draws no randomness but what it is given; the same answers at the same times give
//! the same states and events. [`crate::agent`] drives it over futures; a test, a journal or a simulation may drive
//! it otherwise.
//!
//! ```text
//!            +--------------------------- answers -----------------------------+
//!            v                                                                 |
//! agenda: hook, event, save, ask the strategy  --> Infer | Tool | Hook | Save --> world
//! ```

mod inference;
mod layers;
mod steps;
mod tools;

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::machine::{Machine, Outbox};
use ubos_common::time::{Mono, Now};
use upp::{
    ErrorCode, List, LlmInstance, LlmRequest, Message, Messages, ModelEvent, Stamp, TokenUsage,
    ToolCall, ToolExecution, Turn, UppError,
};

use crate::checkpoint::{CheckpointError, CheckpointMetadata};
use crate::event::{AgentStreamEvent, EventData, UapEvent, UapEventType};
use crate::hooks::{HookAnswer, HookCall};
use crate::middleware::MiddlewareContext;
use crate::repair::RepairPolicy;
use crate::result::{AgentError, GenerateResult};
use crate::state::{AgentState, StateId, SubagentExecutionTrace};
use crate::strategy::{Outcome, StrategyRun};
use inference::Question;
use layers::Layer;

/// Moves of a strategy after which the world is asked for a pause, where nothing has been asked of it: a strategy that
/// goes on and on must hold up neither the executor nor an abort.
const MOVES: u32 = 256;

/// Outputs that may wait before the engine takes no more input.
const OUTBOX: usize = 1024;

/// Names one effect among those of its run.
pub type EffectId = u64;

/// What the engine asks of the world, and what it tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Ask the model, and answer with the first piece of what it says.
    Infer(EffectId, LlmRequest),
    /// Answer with the next piece.
    More(EffectId),
    /// Run a tool.
    Tool(EffectId, ToolCall, CallScope),
    /// Call a hook.
    Hook(EffectId, HookCall),
    /// Wait. For no time at all: let others have their turn first.
    Sleep(EffectId, Duration),
    /// Keep the state.
    Save(EffectId, CheckpointMetadata, AgentState),
    /// Drop an effect: no answer is wanted any more.
    Cancel(EffectId),
    /// An event for whoever listens.
    Event(AgentStreamEvent),
    /// A save went wrong. The run goes on; somebody should know.
    SaveFailed(CheckpointError),
    /// The end; nothing comes after it.
    Finished(Result<GenerateResult, Box<AgentError>>),
}

/// Where in a run a tool is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallScope {
    /// The step, from 1.
    pub step: u64,
    /// The state as it stood.
    pub state_id: StateId,
}

/// What the world answers.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// A piece of what the model says; none where its stream ended without an answer.
    Model(EffectId, Option<Result<ModelEvent, UppError>>),
    /// A tool has run, and with it these agents.
    Tool(EffectId, ToolExecution, Vec<SubagentExecutionTrace>),
    /// A hook has been called.
    Hook(EffectId, Result<HookAnswer, UppError>),
    /// The question was not asked: the run ends here, well, where the model has answered before.
    Stop(EffectId),
    /// The time is over.
    Slept(EffectId),
    /// A save is done, or is not.
    Saved(EffectId, Result<(), CheckpointError>),
    /// The caller wants the run ended.
    Abort,
}

/// An input came after the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run has ended")]
#[non_exhaustive]
pub struct Closed;

/// What a run is made with.
#[non_exhaustive]
pub struct EngineConfig {
    /// The model's options.
    pub llm: LlmInstance,
    /// The agent that runs.
    pub agent_id: Arc<str>,
    /// Whether there are hooks to call.
    pub has_hooks: bool,
    /// How many layers of middleware stand around the run.
    pub layers: usize,
    /// Whether somebody says how failed questions are asked again.
    pub retries: bool,
    /// Whether plans are told in events of their own, beside those of the steps.
    pub plan_events: bool,
    /// What is done about calls and outputs that are wrong.
    pub repair: Option<Arc<dyn RepairPolicy>>,
    /// Whether states are to be kept.
    pub saves: bool,
    /// Under which session; stands in the state's metadata.
    pub session_id: Option<Arc<str>>,
    /// Makes every id of the run.
    pub ids: IdSource,
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig")
            .field("llm", &self.llm)
            .field("agent_id", &self.agent_id)
            .field("layers", &self.layers)
            .field("session_id", &self.session_id)
            .finish_non_exhaustive()
    }
}

impl EngineConfig {
    /// A run without hooks, middleware, session or saves.
    #[must_use]
    pub fn new(llm: LlmInstance, agent_id: impl Into<Arc<str>>, ids: IdSource) -> Self {
        Self {
            llm,
            agent_id: agent_id.into(),
            has_hooks: false,
            layers: 0,
            retries: false,
            plan_events: false,
            repair: None,
            saves: false,
            session_id: None,
            ids,
        }
    }
}

/// One run of an agent.
pub struct Engine {
    config: EngineConfig,
    strategy: Box<dyn StrategyRun>,
    context: MiddlewareContext,
    /// Layers of middleware that the run has come through.
    entered: usize,
    stage: Stage,
    state: AgentState,
    /// Whether the input is in the state.
    has_input: bool,
    step: u64,
    added: Added,
    agenda: VecDeque<Op>,
    phase: Phase,
    /// Moves of the strategy since the last answer.
    moves: u32,
    /// What the strategy says in the question that is out; joins the state together with its answer.
    prompt: Option<Message>,
    /// A round of tool calls that is about to be told.
    pending: Option<Box<tools::Round>>,
    effects: EffectId,
    tool_rounds: u64,
    /// How often the question that is out has been asked again for its output's sake.
    output_attempts: u32,
    out: Outbox<Effect>,
}

/// What the run has added so far.
#[derive(Default)]
struct Added {
    messages: Messages,
    executions: List<ToolExecution>,
    usage: TokenUsage,
    cycles: u64,
    data: Option<ubos_common::json::RawBuf>,
}

impl Added {
    fn turn(&self) -> Option<Turn> {
        let (messages, executions) = (self.messages.clone(), self.executions.clone());
        let mut turn = Turn::new(messages, executions, self.usage.clone(), self.cycles).ok()?;
        turn.data.clone_from(&self.data);
        Some(turn)
    }
}

/// What is still to be done before the strategy is asked again, or to ask it.
enum Op {
    Hook(HookCall),
    Event(UapEventType, EventData),
    Save,
    Tools,
    Next(Box<Outcome>),
    /// Build the hook call when its turn comes, from the state as it is then.
    StepEnd,
    StopCondition,
    /// End the run, well, whatever stands behind.
    Stop,
    Complete,
    /// Fail after the hooks that stand before.
    Fail(Box<UppError>),
}

/// How far the request is.
///
/// ```text
/// Before -> Running -> After -> (closed)
///    |         |         |
///    +---------+---------+----> errors pass the layers that were entered, outwards
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    Running,
    After,
}

/// What the engine waits for.
///
/// ```text
/// Layer (before) -> Idle <-> (Asking, Sleeping,) Inferring -> Idle | Tools -> Idle
/// Idle <-> Hook, Saving, Pausing;  any -> Failing (the error hook) -> Layer (after, caught) -> Closed
/// ```
enum Phase {
    Idle,
    /// Whether, and when, the question may be asked.
    Asking(EffectId, Box<Question>),
    Sleeping(EffectId, Box<Question>),
    Inferring(EffectId, Box<Question>),
    Tools(Box<tools::Round>),
    Hook(EffectId),
    Saving(EffectId),
    Pausing(EffectId),
    Failing(EffectId, Box<AgentError>),
    Layer(EffectId, Layer),
    Closed,
}

impl Engine {
    /// A run from a state, with an input.
    #[must_use]
    pub fn new(
        now: Now,
        mut config: EngineConfig,
        strategy: Box<dyn StrategyRun>,
        state: &AgentState,
        input: Message,
    ) -> Self {
        let context = MiddlewareContext {
            agent_id: Arc::clone(&config.agent_id),
            system: config.llm.options().system.clone(),
            input,
            state: state.clone(),
            metadata: BTreeMap::new(),
            now,
            ids: IdSource::seeded(config.ids.bits()),
        };
        let mut engine = Self {
            config,
            strategy,
            context,
            entered: 0,
            stage: Stage::Before,
            state: state.clone(),
            has_input: false,
            step: 0,
            added: Added::default(),
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

    /// Takes an answer. One to an effect that is not waited for is void.
    ///
    /// # Errors
    ///
    /// The run has ended.
    pub fn handle_answer(&mut self, now: Now, answer: Answer) -> Result<(), Closed> {
        if matches!(self.phase, Phase::Closed) {
            return Err(Closed);
        }
        self.moves = 0;
        match answer {
            Answer::Model(id, item) => self.on_model(now, id, item),
            Answer::Tool(id, execution, traces) => self.on_tool(now, id, execution, traces),
            Answer::Stop(id) => self.on_stop(now, id),
            Answer::Hook(id, answer) => self.on_hook(now, id, answer),
            Answer::Saved(id, result) => self.on_saved(id, result),
            Answer::Slept(id) => self.on_slept(id),
            Answer::Abort => self.on_abort(now),
        }
        self.advance(now);
        Ok(())
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.pop()
    }

    /// The state as it stands.
    #[must_use]
    pub const fn state(&self) -> &AgentState {
        &self.state
    }

    /// The error that a run ends with which nobody goes on with: the state and the turn as they stand.
    #[cfg(feature = "canon")]
    pub(crate) fn abandon(&self, error: UppError) -> Box<AgentError> {
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
                self.out.push(Effect::SaveFailed(error));
            }
        }
    }

    fn on_abort(&mut self, now: Now) {
        let is_failing = matches!(
            self.phase,
            Phase::Failing(..) | Phase::Layer(_, Layer::Caught(..))
        );
        if !is_failing {
            self.fail(now, UppError::cancelled("uap"));
        }
    }

    /// Ends the run with an error, unless a hook recovers.
    fn fail(&mut self, now: Now, error: UppError) {
        for id in self.running() {
            self.out.push(Effect::Cancel(id));
        }
        self.agenda.clear();
        let failure = AgentError::new(error, self.state.clone(), self.added.turn());
        if self.config.has_hooks && self.stage == Stage::Running {
            let id = self.next_effect();
            self.out
                .push(Effect::Hook(id, HookCall::Error(failure.clone())));
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

    fn close(&mut self, result: Result<GenerateResult, Box<AgentError>>) {
        self.agenda.clear();
        self.phase = Phase::Closed;
        self.out.push(Effect::Finished(result));
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
            let agent = Arc::clone(&self.config.agent_id);
            let event = UapEvent::new(event_type, self.step, agent, data);
            self.out.push(Effect::Event(AgentStreamEvent::Uap(event)));
        }
    }

    fn stamp(&mut self, now: Now) -> Stamp {
        Stamp::new(&mut self.config.ids, now.wall)
    }

    fn refuse(&self, code: ErrorCode, what: &str) -> UppError {
        UppError::new(code, self.config.llm.options().model.provider(), what)
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
    type Input<'a> = Answer;
    type Output = Effect;
    type Error = Closed;

    fn handle_input(&mut self, now: Now, answer: Answer) -> Result<(), Closed> {
        self.handle_answer(now, answer)
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll_output(&mut self) -> Option<Effect> {
        self.poll_effect()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    fn accepts_input(&self) -> bool {
        !matches!(self.phase, Phase::Closed) && !self.out.is_full()
    }

    fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed) && self.out.is_empty()
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
