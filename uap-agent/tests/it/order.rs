//! The order of what happens at the end of a step.

use std::sync::Arc;

use futures::executor::block_on;
use uap_agent::engine::{Engine, EngineConfig, Input, Output, RunStart};
use uap_agent::{
    AgentState, AgentStreamEvent, CheckpointError, ExecutionStrategy, HookAnswer, HookCall,
    LoopOptions, PlanOptions, ReactOptions, UapEventType, plan, react, tool_loop,
};
use ubos_common::driver::Sleep;
use ubos_common::id::IdSource;
use upp::{LlmOptions, Message, ModelEvent, ModelReference, Reply, Stamp};

use crate::support::{Still, script};

/// What happens at the ends of a run's steps, in order: the engine is driven by hand, one effect at a time.
fn ends_of_steps(
    execution: &Arc<dyn ExecutionStrategy>,
    saved: &Result<(), CheckpointError>,
) -> Vec<&'static str> {
    let model: ModelReference = script([
        Reply::text(r#"{"steps":[{"id":"a","description":"x","dependsOn":[]}]}"#),
        Reply::text("done"),
    ]);
    let llm = upp::llm(LlmOptions::new(model.clone())).unwrap();
    let (now, ids) = (Still.now(), &mut IdSource::seeded(2));
    let input = Message::user(Stamp::new(ids, now.wall), "go");
    let mut start = RunStart::new("agent", AgentState::initial(ids), input);
    start.session_id = Some("s".into());
    let config = EngineConfig::new(llm, Arc::clone(execution));
    let config = config.with_hooks(true).with_saves(true);
    let mut engine = Engine::new(now, config, IdSource::seeded(3), start);
    let mut seen = Vec::new();
    while let Some(output) = engine.poll_output() {
        let input = match output {
            Output::Infer(id, request) => {
                let response = block_on(model.complete(request)).unwrap();
                Input::Model(id, Some(Ok(ModelEvent::Done(Box::new(response)))))
            }
            Output::Hook(id, HookCall::StopCondition(_)) => {
                seen.push("stop condition");
                Input::Hook(id, Ok(HookAnswer::Stop(false)))
            }
            Output::Hook(id, call) => {
                if matches!(call, HookCall::StepEnd(..)) {
                    seen.push("hook");
                }
                Input::Hook(id, Ok(HookAnswer::Done))
            }
            Output::Save(id, ..) => {
                seen.push("save");
                Input::Saved(id, saved.clone())
            }
            Output::Sleep(id, _) => Input::Slept(id),
            Output::Event(AgentStreamEvent::Uap(event)) => {
                if event.event_type == UapEventType::StepEnd {
                    seen.push("event");
                }
                continue;
            }
            _ => continue,
        };
        engine.handle_input(now, input).unwrap();
    }
    assert!(engine.is_closed());
    seen
}

// spec: UAP-10-1
#[test]
fn a_step_ends_with_hook_event_save_and_stop_condition() {
    let strategies = [
        (tool_loop(LoopOptions::default()).unwrap(), 1),
        (react(ReactOptions::default()).unwrap(), 1),
        (plan(PlanOptions::default()).unwrap(), 2),
    ];
    let full = CheckpointError::Full { limit: 1 };
    for (execution, steps) in strategies {
        let wanted = ["hook", "event", "save", "stop condition"].repeat(steps);
        assert_eq!(ends_of_steps(&execution, &Ok(())), wanted);
        assert_eq!(ends_of_steps(&execution, &Err(full.clone())), wanted);
    }
}
