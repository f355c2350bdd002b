//! The checkers for authors: what is right passes, each thing that is wrong is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::executor::block_on;
use proptest::prelude::*;
use uap_agent::strategy::{Command, ExecutionContext, Inference, Outcome, StrategyRun};
use uap_agent::{
    AgentOptions, EventData, ExecutionStrategy, LoopOptions, PlanOptions, ReactOptions, plan,
    react, tool_loop,
};
use ubos_common::json::RawBuf;
use ubos_conformance::uap::{
    StrategyBreach, StreamFault, check_strategy, check_strategy_with, check_stream_equals_generate,
};
use upp::{ErrorCode, Reply, ScriptedModel};

use crate::support::{Noting, calling, options};

/// A strategy that is a function of what happened and of how often it was asked.
#[derive(Clone, Copy)]
struct Made(fn(u64, Outcome, &mut ExecutionContext<'_>) -> Command);

impl ExecutionStrategy for Made {
    fn name(&self) -> &str {
        "made"
    }
    fn begin(&self) -> Box<dyn StrategyRun> {
        Box::new(MadeRun(self.0, 0))
    }
}

struct MadeRun(fn(u64, Outcome, &mut ExecutionContext<'_>) -> Command, u64);

impl StrategyRun for MadeRun {
    fn next(&mut self, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
        self.1 += 1;
        (self.0)(self.1, outcome, context)
    }
}

const fn phase() -> EventData {
    EventData::phase("made")
}

/// Asks, reflects on the answer with the tools put away, and asks again while tools are called.
fn reflect(_: u64, outcome: Outcome, context: &mut ExecutionContext<'_>) -> Command {
    match outcome {
        Outcome::Started => Command::StartStep(phase()),
        Outcome::StepStarted => Command::Infer(Inference::action()),
        Outcome::Inferred {
            ran_tools: true, ..
        } => Command::Infer(Inference::aside("reflect", "Was it right?")),
        Outcome::Inferred { response, .. } if context.state.reasoning().len() < 3 => {
            Command::Reason(response.message.text().into())
        }
        Outcome::Inferred { .. } | Outcome::Applied => Command::EndStep(phase()),
        Outcome::StepEnded if context.step < 2 => Command::StartStep(phase()),
        Outcome::Failed(error) => Command::Fail(error),
        _ => Command::Finish,
    }
}

fn strategies() -> [Arc<dyn ExecutionStrategy>; 4] {
    [
        tool_loop(LoopOptions::default()).unwrap(),
        react(ReactOptions::default()).unwrap(),
        plan(PlanOptions::default()).unwrap(),
        Arc::new(Made(reflect)),
    ]
}

// spec: UAP-5-5, UAP-2-2
#[test]
fn our_strategies_and_one_from_outside_do_what_strategies_do() {
    for strategy in strategies() {
        if let Err(fault) = check_strategy(strategy.as_ref()) {
            panic!("{}: {fault}", strategy.name());
        }
    }
    let limited: [Arc<dyn ExecutionStrategy>; 3] = [
        tool_loop(LoopOptions::default().with_max_iterations(2)).unwrap(),
        react(ReactOptions::default().with_max_steps(2)).unwrap(),
        plan(
            PlanOptions::default()
                .with_max_plan_steps(1)
                .with_allow_replan(false),
        )
        .unwrap(),
    ];
    for strategy in limited {
        if let Err(fault) = check_strategy(strategy.as_ref()) {
            panic!("{}, limited: {fault}", strategy.name());
        }
    }
}

#[test]
fn a_script_of_the_authors_reaches_what_is_special() {
    let bad_plan_first = || {
        [
            Reply::text("no plan"),
            Reply::text(r#"{"steps":[{"id":"a","description":"x"}]}"#),
            calling("", "c", r#"{"a":1}"#),
            Reply::text("done"),
        ]
    };
    check_strategy_with(strategies()[2].as_ref(), bad_plan_first).unwrap();
    // A model that never answers ends with the abort that the checker sends.
    check_strategy_with(strategies()[0].as_ref(), || {
        [Reply::default().after(core::future::pending)]
    })
    .unwrap();
}

fn breach_of(next: fn(u64, Outcome, &mut ExecutionContext<'_>) -> Command) -> StrategyBreach {
    check_strategy(&Made(next)).unwrap_err().breach
}

#[test]
fn strategies_that_do_otherwise_are_found() {
    let panics = breach_of(|n, outcome, context| match outcome {
        Outcome::Failed(_) => panic!("unforeseen"),
        outcome => reflect(n, outcome, context),
    });
    assert_eq!(panics, StrategyBreach::Panicked);
    let spins = breach_of(|n, outcome, context| match outcome {
        Outcome::StepStarted if context.step > 1 => Command::EndStep(phase()),
        Outcome::StepEnded => Command::StartStep(phase()),
        outcome => reflect(n, outcome, context),
    });
    assert!(
        matches!(spins, StrategyBreach::EndlessMoves { .. }),
        "{spins}"
    );
    let retries = breach_of(|n, outcome, context| match outcome {
        Outcome::Failed(_) => Command::Infer(Inference::action()),
        outcome => reflect(n, outcome, context),
    });
    assert!(
        matches!(retries, StrategyBreach::EndlessQuestions { .. }),
        "{retries}"
    );
    let stays = breach_of(|n, outcome, context| match outcome {
        Outcome::Inferred { .. } => Command::Infer(Inference::action()),
        outcome => reflect(n, outcome, context),
    });
    assert!(
        matches!(stays, StrategyBreach::EndlessQuestions { .. }),
        "{stays}"
    );
    let open = breach_of(|n, outcome, context| match outcome {
        Outcome::Applied => Command::Finish,
        outcome => reflect(n, outcome, context),
    });
    assert_eq!(open, StrategyBreach::StepOpen { step: 1 });
    let twice = breach_of(|n, outcome, context| match outcome {
        Outcome::Applied => Command::StartStep(phase()),
        outcome => reflect(n, outcome, context),
    });
    assert_eq!(twice, StrategyBreach::StepOpen { step: 1 });
    let outside = breach_of(|n, outcome, context| match outcome {
        Outcome::Started => Command::Infer(Inference::action()),
        outcome => reflect(n, outcome, context),
    });
    assert_eq!(
        outside,
        StrategyBreach::OutsideStep {
            doing: "asking the model"
        }
    );
    let early = breach_of(|_, _, _| Command::Finish);
    assert_eq!(early, StrategyBreach::NoAnswer);
}

#[test]
fn a_strategy_whose_runs_share_something_is_found() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let fault = check_strategy(&Made(|n, outcome, context| match outcome {
        Outcome::Applied => {
            let runs = RUNS.fetch_add(1, Ordering::Relaxed);
            if runs.is_multiple_of(2) {
                Command::EndStep(phase())
            } else {
                Command::Reason("again".into())
            }
        }
        outcome => reflect(n, outcome, context),
    }))
    .unwrap_err();
    assert!(
        matches!(fault.breach, StrategyBreach::NotDeterministic { .. }),
        "{fault}"
    );
    assert!(
        fault
            .to_string()
            .starts_with("answers alone, the second run: "),
        "{fault}"
    );
}

fn with(replies: &[Reply]) -> AgentOptions {
    options(&Arc::new(ScriptedModel::new(replies.to_vec())))
}

#[test]
fn a_stream_that_comes_to_something_else_is_found() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let replies = [Reply::text("a"), Reply::text("b")];
    let fickle = Made(|n, outcome, context| match outcome {
        Outcome::Applied if RUNS.fetch_add(1, Ordering::Relaxed) == 0 => {
            Command::Reason("more".into())
        }
        outcome => reflect(n, outcome, context),
    });
    let make = || with(&replies).with_execution(Arc::new(fickle));
    let fault = block_on(check_stream_equals_generate(make, "go")).unwrap_err();
    assert!(
        matches!(&fault, StreamFault::State { at, .. } if at == "/messages/2"),
        "{fault}"
    );
    let mut runs = 0;
    let make = || {
        runs += 1;
        with(&[
            [Reply::text("a"), Reply::text("b")][runs % 2].clone(),
            Reply::text("c"),
        ])
    };
    let fault = block_on(check_stream_equals_generate(make, "go")).unwrap_err();
    assert!(
        matches!(&fault, StreamFault::State { at, .. } if at == "/messages/1"),
        "{fault}"
    );
    let mut runs = 0;
    let make = || {
        runs += 1;
        with(&replies[..2 * (runs % 2)])
    };
    let fault = block_on(check_stream_equals_generate(make, "go")).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "read to the end: generating succeeds, the stream fails"
    );
}

/// Replies as models give them: texts, calls of tools that work, fail, panic and are not there, plans, errors.
fn reply() -> impl Strategy<Value = Reply> {
    let text = "[a-zé ]{0,12}";
    let arguments = prop_oneof![
        Just("{}"),
        Just(r#"{"a":1}"#),
        Just(r#"{"fail":1}"#),
        Just(r#"{"panic":1}"#)
    ];
    let calls = prop::collection::vec(
        (prop_oneof![3 => Just("echo"), 1 => Just("none")], arguments),
        1..4,
    );
    let steps = prop::collection::vec(("[ab]", prop::collection::vec("[ab]", 0..2)), 0..3);
    prop_oneof![
        3 => (text, 1..5_usize).prop_map(|(text, pieces)| Reply::text(text).in_pieces_of(pieces)),
        4 => (text, calls).prop_map(|(text, calls)| {
            calls.into_iter().enumerate().fold(Reply::text(text), |reply, (n, (tool, arguments))| {
                reply.calling(format!("c{n}"), tool, upp::object(arguments).unwrap())
            })
        }),
        2 => steps.prop_map(|steps| {
            let steps: Vec<String> = steps
                .iter()
                .map(|(id, on)| format!(r#"{{"id":"{id}","description":"x","dependsOn":{on:?}}}"#))
                .collect();
            Reply::text(format!(r#"{{"steps":[{}]}}"#, steps.join(",")))
        }),
        1 => Just(Reply::text("{}").with_data(RawBuf::parse(r#"{"steps":[{"description":"x"}]}"#).unwrap())),
        1 => Just(Reply::error(ErrorCode::RateLimited, "slow down")),
    ]
}

proptest! {
    // spec: UAP-11-2
    #[test]
    fn a_stream_ends_in_the_state_of_generate(
        replies in prop::collection::vec(reply(), 0..8),
        stop_at in prop::option::of(1..4_u64),
    ) {
        for strategy in strategies() {
            let make = || {
                let hooks = Noting { stop_at, ..Noting::default() };
                with(&replies).with_execution(Arc::clone(&strategy)).with_strategy(Arc::new(hooks))
            };
            let same = block_on(check_stream_equals_generate(make, "go"));
            prop_assert!(same.is_ok(), "{}: {}", strategy.name(), same.unwrap_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_script_of_the_models_leads_a_strategy_astray(replies in prop::collection::vec(reply(), 1..6)) {
        for strategy in strategies() {
            let fault = check_strategy_with(strategy.as_ref(), || replies.clone()).err();
            prop_assert!(fault.is_none(), "{}: {}", strategy.name(), fault.unwrap());
        }
    }
}
