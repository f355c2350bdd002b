use core::time::Duration;

use proptest::prelude::*;
use ubos_common::json::RawBuf;
use ubos_common::machine::Machine as _;
use ubos_common::time::{Mono, Now, Timestamp};

use super::*;
use crate::error::Code;
use crate::message::Message;
use crate::message::State;

fn now(seconds: u64) -> Now {
    Now::new(Mono::from_millis(seconds * 1000), Timestamp::EPOCH)
}

fn runner(plan: &str, config: Config) -> Runner {
    let text = format!("{{\"msg_id\":\"m\",\"g\":\"G\",\"plan\":{plan}}}");
    let mut runner = Runner::new(Message::decode(text.as_bytes()).unwrap(), config);
    runner.start(now(0));
    runner
}

fn drain(runner: &mut Runner) -> Vec<Output> {
    core::iter::from_fn(|| runner.poll_output()).collect()
}

fn dispatched(outputs: &[Output]) -> Vec<usize> {
    outputs
        .iter()
        .filter_map(|o| {
            if let Output::Dispatch { step, .. } = o {
                Some(*step)
            } else {
                None
            }
        })
        .collect()
}

fn done(runner: &mut Runner, step: usize) {
    let output = RawBuf::parse(&format!("\"out {step}\"")).unwrap();
    runner
        .handle_input(now(1), Input::Succeeded { step, output })
        .unwrap();
}

// spec: SACP-3-1
#[test]
fn acts_run_in_order_groups_side_by_side_and_a_join_sees_its_group_in_plan_order() {
    let plan =
        r#"[["a","T",{}],{"parallel":[["b","T",{}],["c","T",{}]]},["join","J",{}],["d","T",{}]]"#;
    let mut run = runner(plan, Config::default());
    assert_eq!(dispatched(&drain(&mut run)), [1]);
    done(&mut run, 1);
    assert_eq!(dispatched(&drain(&mut run)), [2, 3]);
    done(&mut run, 3);
    assert_eq!(dispatched(&drain(&mut run)), [0; 0]);
    done(&mut run, 2);
    let join = drain(&mut run);
    let Output::Dispatch {
        step: 4, inputs, ..
    } = &join[0]
    else {
        panic!("{join:?}")
    };
    assert_eq!(
        inputs.iter().map(RawBuf::as_str).collect::<Vec<_>>(),
        ["\"out 2\"", "\"out 3\""]
    );
    done(&mut run, 4);
    done(&mut run, 5);
    assert_eq!(run.state(), &State::Done);
}

// spec: SACP-3-8, SACP-3-2
#[test]
fn the_answer_has_the_last_output_and_all_by_act_number() {
    let mut run = runner(r#"[["a","T",{}],["b","T",{}]]"#, Config::default());
    done(&mut run, 1);
    done(&mut run, 2);
    let outputs = drain(&mut run);
    let Some(Output::Finished(reply)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    assert_eq!(reply.ctx["result"].as_str(), "\"out 2\"");
    assert_eq!(
        reply.ctx["results"].as_str(),
        r#"{"1":"out 1","2":"out 2"}"#
    );
    assert_eq!(
        (reply.reply_to.as_deref(), reply.message.state()),
        (Some("m"), State::Done)
    );
    assert_eq!(
        Message::decode(&reply.message.encode()).unwrap(),
        reply.message
    );
}

#[test]
fn a_failed_step_ends_the_run_and_cancels_what_runs() {
    let mut run = runner(
        r#"[{"parallel":[["a","T",{}],["b","T",{}]]},["c","T",{}]]"#,
        Config::default(),
    );
    drain(&mut run);
    run.handle_input(
        now(1),
        Input::Failed {
            step: 2,
            why: "no route".into(),
        },
    )
    .unwrap();
    let outputs = drain(&mut run);
    let [Output::Cancel { step: 1 }, Output::Failed(error)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (error.code, error.pointer.as_deref()),
        (Code::StepFailed, Some("/plan/0/parallel/1"))
    );
    assert!(error.details.contains("act 2"), "{error}");
    assert!(run.is_closed());
}

// spec: SACP-3-5
#[test]
fn deadlines_and_cancel_end_the_run_as_failed() {
    let config = Config::default().with_step_timeout(Duration::from_secs(5));
    let mut run = runner(r#"[["a","T",{}]]"#, config.clone());
    drain(&mut run);
    run.handle_timeout(now(4));
    assert_eq!(
        (drain(&mut run), run.poll_timeout()),
        (vec![], Some(now(5).mono))
    );
    run.handle_timeout(now(5));
    let outputs = drain(&mut run);
    assert!(
        matches!(&outputs[..], [Output::Cancel { step: 1 }, Output::Failed(e)] if e.details.contains("time"))
    );
    let mut run = runner(r#"[["a","T",{}]]"#, config);
    drain(&mut run);
    run.handle_input(now(1), Input::Cancel).unwrap();
    assert!(
        matches!(&drain(&mut run)[..], [Output::Cancel { step: 1 }, Output::Failed(e)] if e.code == Code::StepFailed)
    );
}

// spec: SACP-3-4
#[test]
fn test_mode_reaches_every_act() {
    for text in [
        r#"{"g":"G","plan":[["a","T",{}]],"test_mode":true,"ctx":{"test_mode":false}}"#,
        r#"{"g":"G","plan":[["a","T",{}]],"test_mode":false,"ctx":{"test_mode":true}}"#,
    ] {
        let mut run = Runner::new(Message::decode(text.as_bytes()).unwrap(), Config::default());
        run.start(now(0));
        assert!(
            matches!(
                run.poll_output(),
                Some(Output::Dispatch {
                    test_mode: true,
                    ..
                })
            ),
            "{text}"
        );
    }
}

#[test]
fn inputs_out_of_place_change_nothing() {
    let mut run = runner(r#"[["a","T",{}],["b","T",{}]]"#, Config::default());
    drain(&mut run);
    let input = |step| Input::Failed {
        step,
        why: String::new(),
    };
    for step in [0, 2, 3, usize::MAX] {
        assert_eq!(
            run.handle_input(now(1), input(step)),
            Err(RunnerError::NotDispatched { step })
        );
    }
    assert_eq!(drain(&mut run), []);
    done(&mut run, 1);
    assert_eq!(
        run.handle_input(now(1), input(1)),
        Err(RunnerError::NotDispatched { step: 1 })
    );
    run.handle_input(now(1), Input::Cancel).unwrap();
    assert!(matches!(
        run.handle_input(now(1), input(2)),
        Err(RunnerError::NotRunning { .. })
    ));
}

#[test]
fn no_more_run_at_once_than_are_allowed() {
    let acts: Vec<String> = (0..10).map(|n| format!("[\"v{n}\",\"T\",{{}}]")).collect();
    let plan = format!("[{{\"parallel\":[{}]}}]", acts.join(","));
    let mut run = runner(&plan, Config::default().with_max_running(3));
    let mut seen = dispatched(&drain(&mut run));
    assert_eq!(seen.len(), 3);
    while let Some(step) = seen.pop() {
        done(&mut run, step);
        seen.extend(dispatched(&drain(&mut run)));
        assert!(seen.len() <= 3);
    }
    assert_eq!(run.state(), &State::Done);
}

#[test]
fn an_output_over_its_bound_fails_the_step() {
    let mut run = runner(
        r#"[["a","T",{}]]"#,
        Config {
            max_output_bytes: 4,
            ..Config::default()
        },
    );
    drain(&mut run);
    let output = RawBuf::parse("\"long\"").unwrap();
    run.handle_input(now(1), Input::Succeeded { step: 1, output })
        .unwrap();
    assert!(matches!(&drain(&mut run)[..], [Output::Failed(_)]));
}

/// Plans of acts and nested groups, as text.
fn plan() -> impl Strategy<Value = String> {
    let act = Just("[\"v\",\"T\",{}]".to_owned());
    let entry = act.prop_recursive(3, 12, 4, |inner| {
        prop::collection::vec(inner, 1..4)
            .prop_map(|members| format!("{{\"parallel\":[{}]}}", members.join(",")))
    });
    prop::collection::vec(entry, 1..5).prop_map(|entries| format!("[{}]", entries.join(",")))
}

proptest! {
    /// Against a naive reading of the rules: a step may run when all that its entry waits for has ended.
    #[test]
    fn any_order_of_outcomes_runs_every_act_once_and_in_order(plan in plan(), picks: Vec<u8>) {
        let mut run = runner(&plan, Config::default());
        let text = format!("{{\"g\":\"G\",\"plan\":{plan}}}");
        let message = Message::decode(text.as_bytes()).unwrap();
        let (mut running, mut ended, mut picks) = (dispatched(&drain(&mut run)), Vec::new(), picks.into_iter());
        while !running.is_empty() {
            let pick = usize::from(picks.next().unwrap_or(0)) % running.len();
            let step = running.swap_remove(pick);
            done(&mut run, step);
            ended.push(step);
            for next in dispatched(&drain(&mut run)) {
                let after = &message.plan.steps()[next - 1].after;
                prop_assert!(after.iter().all(|n| ended.contains(n)));
                running.push(next);
            }
        }
        let mut sorted = ended.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (1..=run.steps()).collect::<Vec<_>>());
        prop_assert_eq!(run.state(), &State::Done);
    }
}
