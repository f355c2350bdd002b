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
mod guard;
mod inference;
mod layers;
mod state;
mod steps;
mod tools;

use core::fmt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::machine::Outbox;
use ubos_common::time::{Mono, Now};
use upp::{ErrorCode, Stamp, UppError};

/// How long what is under way may take when a run is aborted: its error hook, and the present write of its journal.
#[cfg(any(feature = "canon", feature = "driver"))]
pub(crate) const GRACE: core::time::Duration = core::time::Duration::from_secs(10);

pub use config::{EngineConfig, RunStart};
pub use effects::{CallScope, Closed, EffectId, Input, Output};
use guard::guarded;
#[cfg(feature = "driver")]
pub(crate) use guard::panicked;
pub use state::Engine;
use state::{LayerCall, Phase, RunStage, TurnParts};

use crate::checkpoint::CheckpointError;
use crate::event::{AgentStreamEvent, EventData, UapEvent, UapEventType};
use crate::hooks::{HookAnswer, HookCall};
use crate::middleware::MiddlewareContext;
use crate::result::{AgentError, RunResult};
use crate::state::AgentState;
use crate::strategy::{Command, ExecutionContext, Outcome, StrategyRun};
use crate::trace_event::{debug, trace};

/// Begins the strategy, where the tools are such as an agent may have.
fn begin(config: &EngineConfig) -> Result<Box<dyn StrategyRun>, UppError> {
    if !config.are_tools_checked {
        crate::tools::check(config.llm.options().tools())?;
    }
    guarded("the strategy", || config.execution.begin())
}

/// In place of a strategy that could not begin.
struct Broken(UppError);

impl StrategyRun for Broken {
    fn next(&mut self, _: Outcome, _: &mut ExecutionContext<'_>) -> Command {
        Command::Fail(self.0.clone())
    }
}

/// The number of queued outputs from which on the engine accepts no input.
const OUTBOX: usize = 1024;

impl Engine {
    /// Starts a run. `ids` provides every id of the run.
    #[must_use]
    pub fn new(now: Now, config: EngineConfig, mut ids: IdSource, start: RunStart) -> Self {
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
            strategy: begin(&config).unwrap_or_else(|error| Box::new(Broken(error))),
            config,
            ids,
            agent_id: start.agent_id,
            session_id: start.session_id,
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
        debug!(
            messages = engine.state.messages().len(),
            layers = engine.config.layers.len(),
            hooks = engine.config.hooks,
            saves = engine.config.saves,
            "run started"
        );
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
            Input::Abort => {
                self.on_abort(now, UppError::new(ErrorCode::Cancelled, "uap", "cancelled"));
            }
            Input::Expire => {
                let error = UppError::new(ErrorCode::Timeout, "uap", "the run has taken too long");
                self.on_abort(now, error);
            }
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

    // impl: UAP-10-1, UAP-10-2
    pub(super) fn on_hook(&mut self, now: Now, id: EffectId, answer: Result<HookAnswer, UppError>) {
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

    pub(super) fn on_saved(&mut self, id: EffectId, result: Result<(), CheckpointError>) {
        if matches!(self.phase, Phase::Saving(waited) if waited == id) {
            self.phase = Phase::Idle;
            if let Err(error) = result {
                debug!(step = self.step, "save failed");
                let why = EventData::SaveFailed(error.to_string().into());
                self.event(UapEventType::SaveFailed, why);
                self.out.push(Output::SaveFailed(error));
            }
        }
    }

    fn on_abort(&mut self, now: Now, error: UppError) {
        let is_failing = matches!(
            self.phase,
            Phase::Failing(..) | Phase::Layer(_, LayerCall::Caught(..))
        );
        if !is_failing {
            debug!(step = self.step, "run aborted");
            self.fail(now, error);
        }
    }

    /// Ends the run with an error, unless a hook recovers.
    // impl: UAP-10-2
    pub(super) fn fail(&mut self, now: Now, error: UppError) {
        for id in self.running() {
            self.out.push(Output::Cancel(id));
        }
        // The rest of the agenda is not done: from here on the engine waits for a hook or a layer, or is closed.
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

    pub(super) fn running(&self) -> Vec<EffectId> {
        match &self.phase {
            Phase::Inferring(id, _)
            | Phase::Asking(id, _)
            | Phase::Sleeping(id, _)
            | Phase::Hook(id)
            | Phase::Saving(id)
            | Phase::Pausing(id)
            | Phase::Layer(id, _) => vec![*id],
            Phase::Tools(pending) => pending.round.running().collect(),
            Phase::Idle | Phase::Failing(..) | Phase::Closed => Vec::new(),
        }
    }

    pub(super) fn close(&mut self, result: RunResult) {
        debug!(
            step = self.step,
            code = result
                .as_ref()
                .err()
                .map(|failed| failed.error.code.as_str()),
            "run ended"
        );
        self.phase = Phase::Closed;
        self.out.push(Output::Finished(result));
    }

    pub(super) const fn next_effect(&mut self) -> EffectId {
        self.effects += 1;
        self.effects
    }

    // impl: UAP-11-3
    pub(super) fn event(&mut self, event_type: UapEventType, data: EventData) {
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

    pub(super) fn stamp(&mut self, now: Now) -> Stamp {
        Stamp::new(&mut self.ids, now.wall)
    }

    pub(super) fn refuse(&self, code: ErrorCode, what: &str) -> UppError {
        UppError::new(code, self.config.llm.options().model().provider(), what)
    }
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
                let data = EventData::Plan(plan.clone());
                Some((UapEventType::PlanCreated, data))
            }
            (None, step) => Some((UapEventType::PlanStepEnd, step?)),
        },
        _ => None,
    }
}

ubos_common::forward_machine! { [] Engine: Input => Output, Closed }

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("step", &self.step)
            .field("state", &self.state.id())
            .finish_non_exhaustive()
    }
}
