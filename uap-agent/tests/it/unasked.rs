//! Inputs that an engine does not wait for.

use core::time::Duration;

use futures::executor::block_on;
use uap_agent::engine::{Engine, Input, Output};
use uap_agent::{CheckpointError, HookAnswer, HookCall};
use ubos_common::id::IdSource;
use upp::{ModelEvent, ModelReference, Reply, StreamEvent, StreamEventType, ToolExecution, object};

use crate::lab::{NOW, config, start};
use crate::support::script;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Model,
    Tool,
    Hook,
    Sleep,
    Save,
}

/// An input of each other kind for an effect; of every kind where the effect is not `waits`.
fn others(id: u64, waits: Option<Waits>) -> Vec<Input> {
    let ran = ToolExecution::new(
        "echo".into(),
        "c1".into(),
        object("{}").unwrap(),
        upp::json_text("late"),
        true,
        0,
    );
    let full = CheckpointError::Full { limit: 1 };
    let mut inputs = vec![
        (Waits::Model, Input::Model(id, None)),
        (Waits::Model, Input::Stop(id)),
        (Waits::Tool, Input::Tool(id, ran, Vec::new())),
        (Waits::Hook, Input::Hook(id, Ok(HookAnswer::Stop(true)))),
        (Waits::Sleep, Input::Slept(id)),
        (Waits::Save, Input::Saved(id, Err(full))),
    ];
    inputs.retain(|(kind, _)| waits != Some(*kind));
    inputs.into_iter().map(|(_, input)| input).collect()
}

/// The result of an effect; the model is heard before it answers, and every request waits first.
fn result(
    output: Output,
    model: &ModelReference,
    asked: &mut Option<ModelEvent>,
) -> Option<(u64, Waits, Input)> {
    Some(match output {
        Output::Infer(id, request) => {
            let response = block_on(model.complete(request)).unwrap();
            *asked = Some(ModelEvent::Done(Box::new(response)));
            let begun = StreamEvent::bare(StreamEventType::MessageStart, 0);
            (
                id,
                Waits::Model,
                Input::Model(id, Some(Ok(ModelEvent::Event(begun)))),
            )
        }
        Output::More(id) => (id, Waits::Model, Input::Model(id, asked.take().map(Ok))),
        Output::Tool(id, call, _) => {
            let (name, call_id) = (call.tool_name.clone(), call.tool_call_id.clone());
            let ran = ToolExecution::new(
                name,
                call_id,
                call.arguments.clone(),
                call.arguments.into(),
                false,
                0,
            );
            (id, Waits::Tool, Input::Tool(id, ran, Vec::new()))
        }
        Output::Hook(id, call) => {
            let answer = match call {
                HookCall::StopCondition(_) => HookAnswer::Stop(false),
                HookCall::Attempt(..) => HookAnswer::Ask(Some(Duration::from_secs(1))),
                HookCall::Before(_, context)
                | HookCall::After(_, context, _)
                | HookCall::Caught(_, context, _) => HookAnswer::Layer(context, Ok(None)),
                _ => HookAnswer::Done,
            };
            (id, Waits::Hook, Input::Hook(id, Ok(answer)))
        }
        Output::Sleep(id, _) => (id, Waits::Sleep, Input::Slept(id)),
        Output::Save(id, ..) => (id, Waits::Save, Input::Saved(id, Ok(()))),
        _ => return None,
    })
}

/// A run of every kind of effect, whose engine gets inputs for which it does not wait, or none of them; aborted at an
/// effect, where there is one.
fn run(is_disturbed: bool, mut abort_at: Option<u64>) -> Vec<String> {
    let calls = ["c1", "c2"]
        .into_iter()
        .fold(Reply::text("calls"), |reply, id| {
            reply.calling(id, "echo", object("{}").unwrap())
        });
    let model: ModelReference = script([calls, Reply::text("done")]);
    let config = config()
        .with_layers(["layer"])
        .with_retries(true)
        .with_saves(true);
    let mut start = start();
    start.session_id = Some("s".into());
    let mut engine = Engine::new(NOW, config, IdSource::seeded(3), start);
    let (mut seen, mut asked) = (Vec::new(), None);
    let mut waiting: Vec<(u64, Waits, Input)> = Vec::new();
    loop {
        while let Some(output) = engine.poll_output() {
            seen.push(format!("{output:?}"));
            if let Output::Cancel(id) = &output {
                waiting.retain(|(waited, ..)| waited != id);
            }
            waiting.extend(result(output, &model, &mut asked));
        }
        if waiting.is_empty() {
            assert!(engine.is_closed());
            return seen;
        }
        let (id, waits, input) = waiting.remove(0);
        if is_disturbed {
            let disturbing = others(id, Some(waits))
                .into_iter()
                .chain(others(id - 1, None))
                .chain(others(id + 9, None));
            for input in disturbing {
                let text = format!("{input:?}");
                engine.handle_input(NOW, input).unwrap();
                let output = engine.poll_output();
                assert!(output.is_none(), "{text} at {id}, {waits:?}: {output:?}");
            }
        }
        if abort_at.take_if(|at| *at == id).is_some() {
            engine.handle_input(NOW, Input::Abort).unwrap();
            waiting.insert(0, (id, waits, input));
        } else {
            engine.handle_input(NOW, input).unwrap();
        }
    }
}

// spec: UAP-8-4
#[test]
fn an_engine_ignores_what_it_does_not_wait_for() {
    let undisturbed = run(false, None);
    for kind in [
        "Infer", "More", "Tool", "Sleep", "Save", "Before", "After", "Attempt",
    ] {
        assert!(
            undisturbed.iter().any(|output| output.contains(kind)),
            "{kind}"
        );
    }
    assert_eq!(run(true, None), undisturbed);
    for at in 1..20 {
        assert_eq!(run(true, Some(at)), run(false, Some(at)), "{at}");
    }
}

// spec: UAP-11-1
#[test]
fn an_engine_takes_no_input_before_its_outputs_are_taken_and_after_its_end() {
    let mut engine = Engine::new(NOW, config(), IdSource::seeded(3), start());
    let heard = |id| {
        let delta = StreamEvent::bare(StreamEventType::MessageStart, 0);
        Input::Model(id, Some(Ok(ModelEvent::Event(delta))))
    };
    let mut inference = None;
    while let Some(output) = engine.poll_output() {
        match output {
            Output::Hook(id, _) => engine
                .handle_input(NOW, Input::Hook(id, Ok(HookAnswer::Done)))
                .unwrap(),
            Output::Infer(id, _) => inference = Some(id),
            _ => {}
        }
    }
    let id = inference.unwrap();
    let taken = (0..10_000).take_while(|_| {
        let accepts = engine.accepts_input();
        engine.handle_input(NOW, heard(id)).unwrap();
        accepts
    });
    let taken = taken.count();
    assert!((100..2_000).contains(&taken), "{taken}");
    while engine.poll_output().is_some() {}
    assert!(engine.accepts_input() && !engine.is_closed());
    engine.handle_input(NOW, Input::Abort).unwrap();
    while let Some(output) = engine.poll_output() {
        if let Output::Hook(id, _) = output {
            engine
                .handle_input(NOW, Input::Hook(id, Ok(HookAnswer::Done)))
                .unwrap();
            assert!(!engine.accepts_input() && !engine.is_closed());
        }
    }
    assert!(!engine.accepts_input() && engine.is_closed());
    assert!(engine.handle_input(NOW, Input::Abort).is_err());
}
