//! Subtasks run inside their steps.

use core::time::Duration;

use sacp::runner::{Config, End, Input, Output, Recovery, Rule, Runner, StepState, Ticket};
use sacp::{Message, Reply, Retry};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::Timestamp;

use super::{answer, dispatched, done, drain, fail, first, message, now, outcome, runner, started};

// spec: SACP-2-9
#[test]
fn a_subtask_runs_inside_its_step_or_behind_the_plan() {
    let text = r#"{"msg_id":"m","g":"G","plan":[["a","T",{"subtask":{"g":"H","plan":[["b","U",{}],["c","U",{}]]}}],["d","T",{}]],
        "subtask":{"msg_id":"n","g":"I","plan":[["e","W",{}]]}}"#;
    let request = Message::decode(text.as_bytes()).unwrap();
    let mut run = Runner::new(&request, Config::default()).unwrap();
    run.start(now(0));
    let mut order = Vec::new();
    let outputs = loop {
        let outputs = drain(&mut run);
        match &outputs[..] {
            [Output::Dispatch { ticket, act, .. }] => {
                order.push(act.verb.clone());
                done(&mut run, *ticket);
            }
            _ => break outputs,
        }
    };
    assert_eq!(order, ["b", "c", "d", "e"]);
    let answer = answer(&outputs, &request);
    let results = answer.context.unwrap()["results"].as_str().to_owned();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["1"]["ctx"]["results"]["2"], "out 4");
    assert_eq!(
        (&results["1"]["reply_to"], &results["1"]["state"]),
        (&"m".into(), &"DONE".into())
    );
    assert_eq!(
        (&results["2"], &results["subtask"]["reply_to"]),
        (&"out 2".into(), &"n".into())
    );
    assert_eq!(results["subtask"]["ctx"]["result"], "out 6");
}

#[test]
fn a_failed_subtask_fails_its_step() {
    let plan =
        r#"[["a","T",{"subtask":{"g":"H","plan":[{"parallel":[["b","U",{}],["c","U",{}]]}]}}]]"#;
    let retry = Rule {
        verb: Some("a".into()),
        recoveries: vec![Recovery::Retry(Retry::fixed(2, Duration::ZERO))],
        ..Rule::default()
    };
    let mut run = runner(plan, Config::default().with_rule(retry));
    assert_eq!(started(&mut run), [2, 3]);
    done(&mut run, first(2));
    fail(&mut run, first(3));
    let again = dispatched(&drain(&mut run));
    assert_eq!(
        again,
        [
            Ticket {
                step: 2,
                attempt: 2,
                epoch: 0
            },
            Ticket {
                step: 3,
                attempt: 2,
                epoch: 0
            }
        ]
    );
    fail(&mut run, again[0]);
    let outputs = drain(&mut run);
    let Reply::Err(error) =
        outcome(&outputs).answer(Timestamp::EPOCH, &message(plan), &mut IdSource::seeded(1))
    else {
        panic!()
    };
    assert_eq!(error.details, "act 1: act 1 of its subtask: no route");
    assert_eq!(outputs[0], Output::Cancel { ticket: again[1] });
}

#[test]
fn the_steps_of_a_subtask_whose_answer_is_too_large_run_again() {
    let rule = |verb: &str, recovery: Recovery| Rule {
        verb: Some(verb.into()),
        recoveries: vec![recovery],
        ..Rule::default()
    };
    let again = Recovery::Retry(Retry::fixed(2, Duration::ZERO));
    // The output of a step fits, the answer of a subtask does not.
    let config = Config::default()
        .with_max_bytes(20, 20)
        .with_rule(rule("o", again))
        .with_rule(rule("i", Recovery::Continue))
        .with_rule(rule("a", Recovery::OtherAgents { up_to: 1 }));
    let steps = |tickets: &[Ticket]| -> Vec<(usize, u32)> {
        tickets.iter().map(|t| (t.step, t.attempt)).collect()
    };
    let plan = r#"[["a","S",{"subtask":{"g":"H","plan":[["b","U",{}],["c","U",{}]]}}]]"#;
    let mut run = runner(plan, config.clone());
    for attempt in [1, 2] {
        for step in [2, 3] {
            let tickets = dispatched(&drain(&mut run));
            assert_eq!(steps(&tickets), [(step, attempt)]);
            done(&mut run, tickets[0]);
        }
    }
    assert_eq!(run.end(), Some(&End::Failed));
    // The subtask inside another one, which fails later.
    let plan = r#"[["o","S",{"subtask":{"g":"H","plan":[{"parallel":[
        ["i","S",{"subtask":{"g":"I","plan":[["x","T",{}]]}}],["y","T",{}]]}]}}]]"#;
    let mut run = runner(plan, config);
    done(&mut run, first(4));
    fail(&mut run, first(3));
    let tickets = dispatched(&drain(&mut run));
    assert_eq!(steps(&tickets), [(3, 1), (4, 1), (3, 2), (4, 2)]);
}

#[test]
fn a_step_of_a_subtask_that_is_stopped_leaves_its_place() {
    let skip = Rule {
        recoveries: vec![Recovery::Skip(RawBuf::parse("null").unwrap())],
        ..Rule::default()
    };
    let config = Config::default()
        .with_max_running(1)
        .with_step_timeout(Duration::from_secs(5))
        .with_rule(skip);
    let plan =
        r#"[["a","S",{"subtask":{"g":"H","plan":[["b","U",{}],["c","U",{}]]}}],["d","T",{}]]"#;
    let mut run = runner(plan, config);
    let inner = dispatched(&drain(&mut run))[0];
    let output = RawBuf::parse("1").unwrap();
    let ticket = inner;
    run.handle_input(now(4), Input::Succeeded { ticket, output })
        .unwrap();
    drain(&mut run);
    // The subtask's time is over while its second step runs.
    run.handle_timeout(now(5));
    assert_eq!(started(&mut run), [2]);
}

#[test]
fn a_step_of_a_failed_subtask_that_was_ready_does_not_start() {
    let again = Rule {
        verb: Some("a".into()),
        recoveries: vec![Recovery::Retry(Retry::fixed(2, Duration::from_secs(60)))],
        ..Rule::default()
    };
    let config = Config::default().with_max_running(1).with_rule(again);
    let plan =
        r#"[["a","S",{"subtask":{"g":"H","plan":[{"parallel":[["b","U",{}],["c","U",{}]]}]}}]]"#;
    let mut run = runner(plan, config);
    assert_eq!(started(&mut run), [2]);
    fail(&mut run, first(2));
    assert_eq!(started(&mut run), [0; 0]);
    run.handle_timeout(now(61));
    assert_eq!(started(&mut run), [2]);
}

#[test]
fn a_subtask_that_is_done_has_no_deadline() {
    let config = Config::default().with_step_timeout(Duration::from_secs(60));
    let plan = r#"[["a","S",{"subtask":{"g":"H","plan":[["b","U",{}]]}}],["d","T",{}]]"#;
    let mut run = runner(plan, config);
    assert_eq!(run.poll_timeout(), Some(now(60).mono));
    done(&mut run, first(3));
    assert_eq!(run.poll_timeout(), Some(now(61).mono), "that of the next");
}

#[test]
fn a_subtask_whose_last_step_has_no_output_answers_without_one() {
    let go_on = Rule {
        verb: Some("b".into()),
        recoveries: vec![Recovery::Continue],
        ..Rule::default()
    };
    let plan = r#"[["a","S",{"subtask":{"g":"H","plan":[["b","U",{}]]}}]]"#;
    let mut run = runner(plan, Config::default().with_rule(go_on));
    let ticket = dispatched(&drain(&mut run))[0];
    fail(&mut run, ticket);
    let outputs = drain(&mut run);
    let answer = answer(&outputs, &message(plan));
    let results = answer.context.unwrap()["results"].as_str().to_owned();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["1"]["ctx"].get("result"), None, "{results}");
}

#[test]
fn a_subtask_that_times_out_stops_its_steps_and_no_others() {
    let skip = Rule {
        recoveries: vec![Recovery::Skip(RawBuf::parse("null").unwrap())],
        ..Rule::default()
    };
    let config = Config::default()
        .with_step_timeout(Duration::from_secs(5))
        .with_rule(skip);
    let plan = r#"[{"parallel":[["o","T",{}],["a","S",{"subtask":{"g":"H","plan":[["b","U",{}],["c","U",{}]]}}]]}]"#;
    let mut run = runner(plan, config);
    let tickets = dispatched(&drain(&mut run));
    let [other, inner] = tickets[..] else {
        panic!("{tickets:?}")
    };
    let output = RawBuf::parse("1").unwrap();
    let succeeded = Input::Succeeded {
        ticket: inner,
        output,
    };
    run.handle_input(now(4), succeeded).unwrap();
    let behind = dispatched(&drain(&mut run));
    // The other step and the subtask time out together, the second of its steps not yet.
    run.handle_timeout(now(5));
    let outputs = drain(&mut run);
    let cancelled: Vec<Ticket> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Cancel { ticket } => Some(*ticket),
            _ => None,
        })
        .collect();
    assert_eq!(cancelled, [other, behind[0]]);
    let outcome = outcome(&outputs);
    let skipped = [other.step, 2].map(|step| outcome.steps[step - 1].state);
    assert_eq!((outcome.end, skipped), (End::Done, [StepState::Done; 2]));
}

#[test]
fn a_wait_for_another_attempt_ends_with_the_subtask_around_it() {
    let of = |verb: &str, recovery: Recovery| Rule {
        verb: Some(verb.into()),
        recoveries: vec![recovery],
        ..Rule::default()
    };
    let again = Recovery::Retry(Retry::fixed(2, Duration::from_secs(60)));
    let config = Config::default()
        .with_rule(of("b", again))
        .with_rule(of("a", Recovery::Skip(RawBuf::parse("null").unwrap())));
    let plan = r#"[["a","S",{"subtask":{"g":"H","plan":[{"parallel":[["b","U",{}],["c","U",{}]]}]}}],["d","T",{}]]"#;
    let mut run = runner(plan, config);
    fail(&mut run, first(3));
    assert_eq!(run.poll_timeout(), Some(now(61).mono));
    fail(&mut run, first(4));
    assert_eq!(run.poll_timeout(), None);
}
