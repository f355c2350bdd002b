//! The agent's run: an engine of UAP with a journal, a scripted model and one tool.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::executor::block_on;
use uap_agent::engine::{self, EffectId, EngineConfig, RunStart};
use uap_agent::journal::recorder::{Input, Output};
use uap_agent::journal::{Ownership, Recorder, Recording};
use uap_agent::{AgentState, LoopOptions, tool_loop};
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::testing::{Actions, Arrival, CrashPoint, Lab, Wiring};
use ubos_common::time::Now;
use upp::{
    FnTool, LlmModel, LlmOptions, Message, ModelStream, Reply, ScriptedModel, Stamp, Tool,
    ToolCall, ToolExecution, json_text, llm, object,
};

use super::{DOWN, Event, Ledger};

const SEED: u64 = 11;

/// The process in which the agent runs: what it needs to begin, and the journal on its disk.
pub(super) struct Process {
    world: Option<World>,
}

impl Process {
    pub(super) fn new(crash: &CrashPoint, ledger: &Ledger) -> Self {
        let model = Arc::new(ScriptedModel::with(|request| {
            let answered = request
                .messages
                .iter()
                .any(|message| matches!(message, Message::ToolResult(_)));
            Some(if answered {
                Reply::text("It will rain.")
            } else {
                Reply::default().calling("c1", "lookup", object("{}").ok()?)
            })
        }));
        let world = World {
            model,
            journal: Rc::default(),
            recorded: BTreeSet::new(),
            responses: Vec::new(),
            crash: crash.clone(),
            ledger: ledger.clone(),
        };
        Self { world: Some(world) }
    }

    /// Starts the run, once: a plan that asks again waits for the same run.
    pub(super) fn start(&mut self, lab: &mut Lab<Event>) {
        if let Some(world) = self.world.take() {
            let recorder = world.begin(lab.now());
            lab.add(recorder, world);
        }
    }
}

struct World {
    model: Arc<ScriptedModel>,
    journal: Rc<RefCell<Vec<RawObject>>>,
    /// Tool calls whose results are in the journal.
    recorded: BTreeSet<EffectId>,
    responses: Vec<(EffectId, ModelStream)>,
    crash: CrashPoint,
    ledger: Ledger,
}

/// What the world answers.
enum Answer {
    Engine(Box<engine::Input>),
    Written,
}

impl World {
    fn config(&self) -> EngineConfig {
        let model: Arc<dyn LlmModel> = self.model.clone();
        // The engine asks for a tool that it knows; the lab's world is what runs it.
        let lookup = FnTool::new("lookup", "", object("{}").unwrap(), |_, _| async {
            Ok(json_text("rain"))
        });
        let options = LlmOptions::new(model).with_tools([Arc::new(lookup) as Arc<dyn Tool>]);
        let llm = llm(options).unwrap();
        EngineConfig::new(llm, tool_loop(LoopOptions::default()).unwrap())
    }

    fn begin(&self, now: Now) -> Recorder {
        let mut ids = IdSource::seeded(SEED);
        let state = AgentState::initial(&mut ids);
        let input = Message::user(Stamp::new(&mut ids, now.wall), "Will it rain?");
        let start = RunStart::new("forecaster", state, input);
        Recorder::begin(now, &self.config(), SEED, start, &Ownership::default())
    }

    /// The next event of a response.
    fn read(&mut self, id: EffectId) -> engine::Input {
        let response = self.responses.iter_mut().find(|(of, _)| *of == id);
        let event = response.and_then(|(_, stream)| block_on(stream.next()));
        engine::Input::Model(id, event)
    }

    fn run_tool(&self, id: EffectId, call: ToolCall) -> engine::Input {
        let mut outside = self.ledger.borrow_mut();
        outside.lookups += 1;
        outside.repeated_lookups += usize::from(self.recorded.contains(&id));
        let execution = ToolExecution::new(
            call.tool_name,
            call.tool_call_id,
            call.arguments,
            json_text("rain"),
            false,
            1,
        );
        engine::Input::Tool(id, execution, Vec::new())
    }
}

impl Wiring<Recorder> for World {
    type Event = Event;
    type Answer = Answer;

    fn deliver(&mut self, recorder: &mut Recorder, now: Now, arrival: Arrival<'_, Answer>) {
        let input = match arrival {
            Arrival::Answer(Answer::Engine(input)) => Input::Engine(*input),
            Arrival::Answer(Answer::Written) => Input::Written(Ok(())),
            _ => return,
        };
        recorder.handle_input(now, input).unwrap();
    }

    fn perform(
        &mut self,
        _: &mut Recorder,
        _: Now,
        output: Output,
        actions: &mut Actions<Event, Answer>,
    ) {
        let output = match output {
            Output::Write(place, entries) => {
                let mut journal = self.journal.borrow_mut();
                assert_eq!(journal.len() as u64, place, "one writer, in order");
                journal.extend(entries);
                if self.crash.is_now() {
                    return actions.crash(DOWN);
                }
                return actions.answer(Duration::from_millis(1), Answer::Written);
            }
            Output::Engine(output) => *output,
            _ => return,
        };
        let (after, input) = match output {
            engine::Output::Infer(id, request) => {
                self.responses.push((id, self.model.stream(request)));
                (50, self.read(id))
            }
            engine::Output::More(id) => (1, self.read(id)),
            engine::Output::Tool(id, call, _) => (90, self.run_tool(id, call)),
            engine::Output::Sleep(id, _) => (1, engine::Input::Slept(id)),
            engine::Output::Finished(result) => {
                let text = result.unwrap().turn.response.text();
                let text = ubos_common::json::to_string(text.as_str());
                return actions.event(Event::Done("RUN", text));
            }
            _ => return,
        };
        actions.answer(
            Duration::from_millis(after),
            Answer::Engine(Box::new(input)),
        );
    }

    fn restart(&mut self, now: Now, _: &mut Actions<Event, Answer>) -> Option<Recorder> {
        self.responses.clear();
        let entries = self.journal.borrow().clone();
        if entries.is_empty() {
            return Some(self.begin(now));
        }
        let recording = Recording::from_entries(&entries).unwrap();
        let outstanding = recording.outstanding();
        self.recorded = recording
            .effects()
            .map(|effect| effect.effect)
            .filter(|id| !outstanding.iter().any(|open| open.effect == *id))
            .collect();
        Some(
            recording
                .resume(now, &self.config(), &Ownership::default())
                .unwrap(),
        )
    }
}
