//! Runs with subtasks inside one another, and runs that are taken up elsewhere.

use core::time::Duration;

use sacp::Message;
use sacp::Retry;
use sacp::runner::{Cause, Config, End, Input, Output, Recovery, Rule, Runner, StepState, Ticket};
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

fn at(millis: u64) -> Now {
    Now::new(Mono::from_millis(millis), Timestamp::EPOCH)
}

fn run(text: &str, config: Config) -> Runner {
    let message = Message::decode(text.as_bytes()).unwrap();
    Runner::new(&message, config).unwrap()
}

fn begun(text: &str, config: Config) -> Runner {
    let mut run = run(text, config);
    run.start(at(0));
    run
}

fn drain(run: &mut Runner) -> Vec<Output> {
    core::iter::from_fn(|| run.poll_output()).collect()
}

fn asked(run: &mut Runner) -> Vec<Ticket> {
    let ticket = |output: Output| match output {
        Output::Dispatch { ticket, .. } => Some(ticket),
        _ => None,
    };
    drain(run).into_iter().filter_map(ticket).collect()
}

fn one(run: &mut Runner) -> Ticket {
    let asked = asked(run);
    assert_eq!(asked.len(), 1, "{asked:?}");
    asked[0]
}

fn done(run: &mut Runner, now: Now, ticket: Ticket, output: &str) {
    let output = RawBuf::parse(output).unwrap();
    run.handle_input(now, Input::Succeeded { ticket, output })
        .unwrap();
}

fn fail(run: &mut Runner, ticket: Ticket) {
    let cause = Cause::tool("no route");
    run.handle_input(at(0), Input::Failed { ticket, cause })
        .unwrap();
}

#[test]
fn a_saved_count_of_tries_that_no_run_reaches_ends_the_tries() {
    let text = r#"{"g":"G","plan":[["a","T",{}]]}"#;
    let retry = Rule {
        verb: Some("a".into()),
        recoveries: vec![Recovery::Retry(Retry::fixed(9, Duration::ZERO))],
        ..Rule::default()
    };
    let config = Config::default().with_rule(retry);
    let mut before = begun(text, config.clone());
    let a = one(&mut before);
    fail(&mut before, a);
    let saved = String::from_utf8(before.save(at(0)).unwrap()).unwrap();
    let forged = saved.replace("\"tries\":1", "\"tries\":4294967295");
    assert_ne!(saved, forged);
    let mut after = run(text, config);
    after.restore(at(0), forged.as_bytes()).unwrap();
    let again = one(&mut after);
    fail(&mut after, again);
    assert_eq!(after.end(), Some(&End::Failed));
}

#[test]
fn nothing_is_told_after_the_end() {
    let mut run = begun(r#"{"g":"G","plan":[["a","T",{}]]}"#, Config::default());
    run.pause(at(0)).unwrap();
    run.cancel(at(0)).unwrap();
    let outputs = drain(&mut run);
    assert!(
        matches!(outputs.last(), Some(Output::Ended(_))),
        "{outputs:?}"
    );
}

// spec: SACP-2-9
#[test]
fn a_run_that_was_saved_inside_the_subtask_behind_the_plan_goes_on_there() {
    let text =
        r#"{"g":"G","plan":[["a","T",{}]],"subtask":{"g":"H","plan":[["b","T",{}],["c","T",{}]]}}"#;
    let mut before = begun(text, Config::default());
    let a = one(&mut before);
    done(&mut before, at(0), a, "1");
    let b = one(&mut before);
    done(&mut before, at(0), b, "2");
    let c = one(&mut before);
    let saved = before.save(at(0)).unwrap();
    let mut after = run(text, Config::default());
    after.restore(at(0), &saved).unwrap();
    let again = one(&mut after);
    assert_eq!(again.step, c.step);
    assert_eq!(after.end(), None);
    done(&mut after, at(0), again, "3");
    let outputs = drain(&mut after);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    assert_eq!(outcome.end, End::Done);
    assert!(
        outcome
            .steps
            .iter()
            .all(|step| step.state == StepState::Done)
    );
}

#[test]
fn a_subtask_that_is_tried_again_runs_the_subtasks_inside_it_again() {
    let text = r#"{"g":"G","plan":[["x","T",{"subtask":{"g":"H","plan":[
        ["y","T",{"subtask":{"g":"I","plan":[["a","T",{}]]}}],["b","T",{}]]}}]]}"#;
    let retry = Rule {
        verb: Some("x".into()),
        recoveries: vec![Recovery::Retry(Retry::fixed(2, Duration::ZERO))],
        ..Rule::default()
    };
    let config = Config::default().with_rule(retry).with_max_bytes(1000, 600);
    let mut run = begun(text, config);
    let inmost = one(&mut run);
    // Its output is given up with the attempt: twice as much would be over the bound.
    let long = format!("\"{}\"", "x".repeat(150));
    done(&mut run, at(0), inmost, &long);
    let second = one(&mut run);
    fail(&mut run, second);
    let again = one(&mut run);
    assert_eq!((again.step, again.attempt), (inmost.step, 2));
    done(&mut run, at(0), again, "1");
    let second = one(&mut run);
    done(&mut run, at(0), second, "2");
    assert_eq!(run.end(), Some(&End::Done));
    assert_eq!(run.view(at(0), 1).state, StepState::Done);
}

#[test]
fn an_output_longer_than_the_plan_is_taken_up_again() {
    let text = r#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#;
    let mut before = begun(text, Config::default());
    let a = one(&mut before);
    done(&mut before, at(0), a, "[1,2,3,4,5,6,7,8,9]");
    let saved = before.save(at(0)).unwrap();
    let mut after = run(text, Config::default());
    after.restore(at(0), &saved).unwrap();
    assert_eq!(
        after.output(1).map(RawBuf::as_str),
        Some("[1,2,3,4,5,6,7,8,9]")
    );
}

// spec: SACP-3-5
#[test]
fn a_step_that_holds_a_subtask_has_its_time_limit_also_where_it_is_taken_up() {
    let text =
        r#"{"g":"G","plan":[["x","T",{"subtask":{"g":"H","plan":[["a","T",{}],["b","T",{}]]}}]]}"#;
    let config = Config::default().with_step_timeout(Duration::from_millis(100));
    let mut before = begun(text, config.clone());
    let saved = before.save(at(0)).unwrap();
    drain(&mut before);
    let mut after = run(text, config);
    after.restore(at(0), &saved).unwrap();
    let a = one(&mut after);
    done(&mut after, at(60), a, "1");
    one(&mut after);
    assert_eq!(after.poll_timeout(), Some(Mono::from_millis(100)));
    after.handle_timeout(at(100));
    assert_eq!(after.end(), Some(&End::Failed));
}
