//! A world without time in which the engine runs a strategy: every answer comes at once, and the same each time.

use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ubos_common::id::IdSource;
use ubos_common::json::{Limits, RawObject, to_string};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    FnTool, LlmOptions, Message, ModelReference, ModelStream, Stamp, Tool, ToolCall, ToolExecution,
    json_text,
};

use super::breach::StrategyBreach;
use super::monitor::{MonitoredStrategy, Observations};
use uap_agent::AgentState;
use uap_agent::engine::{EffectId, Engine, EngineConfig, Input, Output, RunStart};
use uap_agent::strategy::StrategyRun;
use uap_agent::{AgentError, GenerateResult};
use uap_agent::{AgentStreamEvent, UapEventType};
use uap_agent::{HookAnswer, HookCall};

/// Questions to the model in one run.
const QUESTIONS: usize = 256;

/// One run, before it begins.
pub(super) struct Simulation {
    pub(super) run: Box<dyn StrategyRun>,
    pub(super) model: ModelReference,
    /// Of its ids: two runs of one conversation have two.
    pub(super) seed: u64,
    /// Whether the agent has tools.
    pub(super) tools: bool,
    /// Where the stop condition says stop.
    pub(super) stop_at: Option<u64>,
    /// In place of which answer the abort comes, counted from 0.
    pub(super) abort_at: Option<usize>,
}

/// One run, when it is over.
#[derive(Default)]
pub(super) struct Record {
    /// All that was asked and told, a line each.
    pub(super) log: Vec<String>,
    pub(super) questions: usize,
    pub(super) answers: usize,
    pub(super) steps: u64,
    pub(super) aborted: bool,
    /// Each state that was seen, and how it was written then.
    states: Vec<(AgentState, String)>,
    pub(super) result: Option<Result<GenerateResult, Box<AgentError>>>,
}

impl Simulation {
    /// Runs from a state to the end.
    pub(super) fn run(self, start: &AgentState) -> Result<Record, StrategyBreach> {
        let seen = Observations::default();
        let mut ids = IdSource::seeded(self.seed);
        let input = Message::user(Stamp::new(&mut ids, NOW.wall), "go on");
        let mut options = LlmOptions::new(self.model);
        if self.tools {
            options = options.with_tools(["echo", "fail"].map(offered));
        }
        // A model of the checker's can do all that its options ask.
        let llm = upp::llm(options).map_err(|_| StrategyBreach::Stalled)?;
        let model = Arc::clone(llm.options().model());
        let strategy = Arc::new(MonitoredStrategy::new(self.run, seen.clone()));
        let config = EngineConfig::new(llm, strategy)
            .with_hooks(true)
            .with_saves(true);
        let mut run_start = RunStart::new("agent", start.clone(), input);
        run_start.session_id = Some("session".into());
        let mut world = SimulatedWorld {
            model,
            stop_at: self.stop_at,
            streams: BTreeMap::new(),
            record: Record::default(),
        };
        world.keep(start);
        let engine = Engine::new(NOW, config, ids, run_start);
        let record = world.drive(engine, self.abort_at, &seen)?;
        record.check_kept()?;
        Ok(record)
    }
}

const NOW: Now = Now::new(Mono::ZERO, Timestamp::EPOCH);

fn offered(name: &str) -> Arc<dyn Tool> {
    let never = |_, _| async { Ok(json_text("")) };
    Arc::new(FnTool::new(name, "", RawObject::empty(), never))
}

struct SimulatedWorld {
    model: ModelReference,
    stop_at: Option<u64>,
    streams: BTreeMap<EffectId, ModelStream>,
    record: Record,
}

impl SimulatedWorld {
    fn drive(
        mut self,
        mut engine: Engine,
        abort_at: Option<usize>,
        seen: &Observations,
    ) -> Result<Record, StrategyBreach> {
        let mut waiting = VecDeque::new();
        loop {
            while let Some(effect) = engine.poll_output() {
                self.take(effect, &mut waiting)?;
            }
            if let Some(breach) = seen.breach() {
                return Err(breach);
            }
            if self.record.result.is_some() {
                return Ok(self.record);
            }
            if self.record.questions > QUESTIONS {
                return Err(StrategyBreach::EndlessQuestions { limit: QUESTIONS });
            }
            let aborts = !self.record.aborted && abort_at == Some(self.record.answers);
            let answer = if aborts {
                self.record.aborted = true;
                Input::Abort
            } else {
                let effect = waiting.pop_front().ok_or(StrategyBreach::Stalled)?;
                self.record.answers += 1;
                self.answer(effect)
            };
            if engine.handle_input(NOW, answer).is_err() {
                return Err(StrategyBreach::Stalled);
            }
        }
    }

    /// Notes what the engine gives out, and lets what wants an answer wait for it.
    fn take(
        &mut self,
        effect: Output,
        waiting: &mut VecDeque<Output>,
    ) -> Result<(), StrategyBreach> {
        let line = match &effect {
            Output::Infer(_, request) => {
                self.record.questions += 1;
                let schema = request.structure.as_ref().map(|schema| schema.as_str());
                let (asked, tools) = (to_string(&request.messages), request.tools.len());
                format!("ask {asked} tools {tools} structure {schema:?}")
            }
            Output::Tool(_, call, _) => format!("tool {}", to_string(call)),
            Output::Hook(_, call) => {
                self.keep_of(call);
                format!("hook {call:?}")
            }
            Output::Save(_, metadata, state) => {
                self.keep(state);
                format!("save {} {}", to_string(metadata), state.to_json())
            }
            Output::Event(event) => {
                self.count(event)?;
                format!("event {}", to_string(event))
            }
            Output::Cancel(id) => {
                waiting.retain(|effect| id_of(effect) != Some(*id));
                self.streams.remove(id);
                format!("cancel {id}")
            }
            Output::Finished(result) => {
                match result {
                    Ok(result) => self.keep(&result.state),
                    Err(error) => self.keep(&error.state),
                }
                format!("end {result:?}")
            }
            // Nothing is retried here: what sleeps pauses a strategy that moves and moves.
            _ => String::new(),
        };
        self.record.log.push(line);
        match effect {
            Output::Finished(result) => self.record.result = Some(result),
            effect if id_of(&effect).is_some() => waiting.push_back(effect),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, event: &AgentStreamEvent) -> Result<(), StrategyBreach> {
        if let AgentStreamEvent::Uap(event) = event
            && event.event_type == UapEventType::StepStart
        {
            self.record.steps += 1;
            let (wanted, seen) = (self.record.steps, event.step);
            if wanted != seen {
                return Err(StrategyBreach::StepNumber { wanted, seen });
            }
        }
        Ok(())
    }

    fn keep(&mut self, state: &AgentState) {
        self.record.states.push((state.clone(), state.to_json()));
    }

    fn keep_of(&mut self, call: &HookCall) {
        match call {
            HookCall::StopCondition(state) | HookCall::StepStart(state) => self.keep(state),
            HookCall::StepEnd(_, result) | HookCall::Complete(result) => self.keep(&result.state),
            HookCall::Error(error) => self.keep(&error.state),
            _ => {}
        }
    }

    fn answer(&mut self, effect: Output) -> Input {
        match effect {
            Output::Infer(id, request) => {
                let stream = self.model.stream(request);
                self.streams.insert(id, stream);
                self.say(id)
            }
            Output::More(id) => self.say(id),
            Output::Tool(id, call, _) => Input::Tool(id, execution(&call), Vec::new()),
            Output::Save(id, ..) => Input::Saved(id, Ok(())),
            Output::Sleep(id, _) => Input::Slept(id),
            Output::Hook(id, HookCall::StopCondition(state)) => {
                let stops = self.stop_at == Some(state.step());
                Input::Hook(id, Ok(HookAnswer::Stop(stops)))
            }
            Output::Hook(id, _) => Input::Hook(id, Ok(HookAnswer::Done)),
            // Nothing else waits for an answer.
            _ => Input::Abort,
        }
    }

    /// The next piece of what the model says. A model that says nothing for now never will: the run is ended.
    fn say(&mut self, id: EffectId) -> Input {
        let mut cx = Context::from_waker(Waker::noop());
        let next = self
            .streams
            .get_mut(&id)
            .map(|s| s.as_mut().poll_next(&mut cx));
        match next {
            Some(Poll::Ready(item)) => Input::Model(id, item),
            Some(Poll::Pending) => {
                self.record.aborted = true;
                Input::Abort
            }
            None => Input::Model(id, None),
        }
    }
}

const fn id_of(effect: &Output) -> Option<EffectId> {
    match effect {
        Output::Infer(id, _)
        | Output::More(id)
        | Output::Tool(id, ..)
        | Output::Hook(id, _)
        | Output::Sleep(id, _)
        | Output::Save(id, ..) => Some(*id),
        _ => None,
    }
}

fn execution(call: &ToolCall) -> ToolExecution {
    let fails = &*call.tool_name == "fail";
    let result = if fails {
        json_text("it failed")
    } else {
        call.arguments.clone().into()
    };
    ToolExecution::new(
        Arc::clone(&call.tool_name),
        Arc::clone(&call.tool_call_id),
        call.arguments.clone(),
        result,
        fails,
        0,
    )
}

impl Record {
    /// Whether every state is what it was, reads back, and can be gone on from.
    fn check_kept(&self) -> Result<(), StrategyBreach> {
        for (state, written) in &self.states {
            if state.to_json() != *written {
                return Err(StrategyBreach::StateChanged);
            }
            let invalid = |why| Err(StrategyBreach::InvalidState { why });
            match AgentState::from_json(written.as_bytes(), &Limits::default()) {
                Ok(read) if read == *state => {}
                Ok(_) => return invalid("it reads back as another"),
                Err(_) => return invalid("it does not read back"),
            }
        }
        Ok(())
    }

    /// Whether every call in every state has its result.
    pub(super) fn check_calls(&self) -> Result<(), StrategyBreach> {
        let all = self.states.iter().all(|(state, _)| has_results(state));
        if all {
            return Ok(());
        }
        let why = "a call in it has no result behind it";
        Err(StrategyBreach::InvalidState { why })
    }
}

fn has_results(state: &AgentState) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in state.messages() {
        match message {
            Message::ToolResult(message) => {
                for result in &message.results {
                    open.retain(|id| *id != &*result.tool_call_id);
                }
            }
            _ if !open.is_empty() => return false,
            // What a strategy asked aside offered no tools: a call in its answer is but a part of it.
            Message::Assistant(answer) if !is_aside(message) => {
                open.extend(answer.calls().iter().map(|call| &*call.tool_call_id));
            }
            _ => {}
        }
    }
    open.is_empty()
}

fn is_aside(message: &Message) -> bool {
    message
        .metadata()
        .is_some_and(|metadata| metadata.get("uap").is_some())
}
