//! Engines and recorders in the lab: late, doubled and reordered results, and a crash at each durable effect.

use core::time::Duration;
use std::collections::BTreeSet;

use uap_agent::engine::{self, Engine, EngineConfig, RunStart};
use uap_agent::journal::recorder::{Input, Output};
use uap_agent::journal::{Ownership, Recorder, Recording};
use uap_agent::{AgentState, LoopOptions, tool_loop};
use ubos_common::id::IdSource;
use ubos_common::json::RawObject;
use ubos_common::testing::{Actions, Arrival, CrashPoint, Lab, Wiring};
use ubos_common::time::{Mono, Now, Timestamp};
use upp::{
    AssistantMessage, ContentBlock, CycleUsage, LlmOptions, LlmRequest, LlmResponse, Message,
    ModelEvent, Stamp, ToolCall, ToolExecution, object,
};

use crate::support::{echo, script};

pub(crate) const NOW: Now = Now::new(Mono::ZERO, Timestamp::EPOCH);

pub(crate) fn config() -> EngineConfig {
    let options = LlmOptions::new(script([])).with_tools([echo("echo")]);
    let strategy = tool_loop(LoopOptions::default()).unwrap();
    EngineConfig::new(upp::llm(options).unwrap(), strategy).with_hooks(true)
}

pub(crate) fn start() -> RunStart {
    let ids = &mut IdSource::seeded(2);
    let state = AgentState::initial(ids);
    let input = Message::user(Stamp::new(ids, NOW.wall), "go");
    RunStart::new("agent", state, input)
}

/// Two calls, then a text.
fn respond(request: LlmRequest) -> LlmResponse {
    let calls = (request.messages.len() == 1).then(|| {
        let call = |id: &str| ToolCall::new(id.into(), "echo".into(), object("{}").unwrap());
        vec![call("c1"), call("c2")]
    });
    let content = vec![ContentBlock::text(format!("{}", request.messages.len()))];
    let message = AssistantMessage::new(request.stamp, content, calls);
    LlmResponse::new(message, CycleUsage::new(1, 1, 0, 0), "stop")
}

/// The result of an effect; `None` for outputs without one.
fn perform(output: engine::Output) -> Option<engine::Input> {
    Some(match output {
        engine::Output::Infer(id, request) => {
            let done = ModelEvent::Done(Box::new(respond(request)));
            engine::Input::Model(id, Some(Ok(done)))
        }
        engine::Output::Tool(id, call, _) => {
            let (name, call_id) = (call.tool_name.clone(), call.tool_call_id.clone());
            let result = call.arguments.clone().into();
            let execution = ToolExecution::new(name, call_id, call.arguments, result, false, 0);
            engine::Input::Tool(id, execution, Vec::new())
        }
        engine::Output::Hook(id, uap_agent::HookCall::StopCondition(_)) => {
            engine::Input::Hook(id, Ok(uap_agent::HookAnswer::Stop(false)))
        }
        engine::Output::Hook(id, _) => engine::Input::Hook(id, Ok(uap_agent::HookAnswer::Done)),
        engine::Output::Sleep(id, _) => engine::Input::Slept(id),
        _ => return None,
    })
}

/// The texts of a run's messages.
fn texts(output: &engine::Output) -> Option<Vec<String>> {
    let engine::Output::Finished(result) = output else {
        return None;
    };
    let state = &result.as_ref().unwrap().state;
    Some(state.messages().iter().map(Message::text).collect())
}

/// Answers every effect twice, after delays that a seed draws.
struct Unreliable(IdSource);

impl Wiring<Engine> for Unreliable {
    type Event = Vec<String>;
    type Answer = engine::Input;

    fn deliver(&mut self, engine: &mut Engine, now: Now, arrival: Arrival<'_, engine::Input>) {
        if let Arrival::Answer(input) = arrival {
            // A doubled result may come after the end.
            let _ = engine.handle_input(now, input);
        }
    }

    fn perform(
        &mut self,
        _: &mut Engine,
        _: Now,
        output: engine::Output,
        actions: &mut Actions<Vec<String>, engine::Input>,
    ) {
        if let Some(texts) = texts(&output) {
            actions.event(texts);
        }
        let copy = match &output {
            engine::Output::Infer(id, request) => {
                perform(engine::Output::Infer(*id, request.clone()))
            }
            engine::Output::Tool(id, call, scope) => {
                perform(engine::Output::Tool(*id, call.clone(), scope.clone()))
            }
            engine::Output::Hook(id, call) => perform(engine::Output::Hook(*id, call.clone())),
            _ => None,
        };
        for input in [perform(output), copy].into_iter().flatten() {
            actions.answer(Duration::from_millis(self.0.bits() % 50), input);
        }
    }
}

// spec: UAP-8-4
#[test]
fn doubled_and_reordered_results_give_the_same_run() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let mut lab = Lab::new(seed);
        let engine = Engine::new(NOW, config(), IdSource::seeded(3), start());
        let node = lab.add(engine, Unreliable(IdSource::seeded(seed)));
        lab.run(1_000);
        assert!(lab.machine(node).is_closed(), "seed {seed}");
        let mut events = lab.take_events();
        assert_eq!(events.len(), 1, "seed {seed}");
        seen.insert(events.remove(0).2);
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

/// Keeps the journal, and crashes at one write, before or after it is done.
struct Process {
    config: EngineConfig,
    crash: CrashPoint,
    entries: Vec<RawObject>,
}

impl Process {
    fn begin(&self, now: Now) -> Recorder {
        Recorder::begin(now, &self.config, 3, start(), &Ownership::default())
    }

    /// Whether the journal holds the result of an effect.
    fn has_result(&self, effect: u64) -> bool {
        let recording = Recording::from_entries(&self.entries).unwrap();
        recording.answer(effect).is_some()
    }
}

impl Wiring<Recorder> for Process {
    type Event = Vec<String>;
    type Answer = Input;

    fn deliver(&mut self, recorder: &mut Recorder, now: Now, arrival: Arrival<'_, Input>) {
        if let Arrival::Answer(input) = arrival {
            recorder.handle_input(now, input).unwrap();
        }
    }

    fn perform(
        &mut self,
        _: &mut Recorder,
        _: Now,
        output: Output,
        actions: &mut Actions<Vec<String>, Input>,
    ) {
        let down = Duration::from_secs(1);
        match output {
            Output::Write(first, entries) => {
                if self.crash.is_now() {
                    return actions.crash(down);
                }
                assert_eq!(first, self.entries.len() as u64);
                self.entries.extend(entries);
                if self.crash.is_now() {
                    return actions.crash(down);
                }
                actions.answer(Duration::from_millis(1), Input::Written(Ok(())));
            }
            Output::Engine(output) => {
                if let engine::Output::Tool(id, ..) | engine::Output::Infer(id, _) = &*output {
                    assert!(!self.has_result(*id), "effect {id} is repeated");
                }
                if let Some(texts) = texts(&output) {
                    actions.event(texts);
                }
                if let Some(input) = perform(*output) {
                    actions.answer(Duration::from_millis(10), Input::Engine(input));
                }
            }
            _ => {}
        }
    }

    fn restart(&mut self, now: Now, _: &mut Actions<Vec<String>, Input>) -> Option<Recorder> {
        if self.entries.is_empty() {
            return Some(self.begin(now));
        }
        let recording = Recording::from_entries(&self.entries).unwrap();
        Some(
            recording
                .resume(now, &self.config, &Ownership::default())
                .unwrap(),
        )
    }
}

// spec: UAP-12-5
#[test]
fn a_crash_at_each_write_leads_to_the_same_end() {
    let (mut runs, mut ends) = (0, BTreeSet::new());
    CrashPoint::at_each(|crash| {
        let process = Process {
            config: config(),
            crash: crash.clone(),
            entries: Vec::new(),
        };
        let mut lab = Lab::new(7);
        let recorder = process.begin(NOW);
        let node = lab.add(recorder, process);
        lab.run(1_000);
        assert!(lab.machine(node).is_closed());
        let events = lab.take_events();
        let end = events.last().expect("the run has ended");
        ends.insert(end.2.clone());
        runs += 1;
    });
    assert!(runs > 20, "{runs} crashes");
    assert_eq!(ends.len(), 1, "{ends:?}");
}
