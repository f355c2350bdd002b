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

#[test]
fn an_answer_to_the_life_before_is_refused() {
    let text = r#"{"g":"G","plan":[["a","T",{}]]}"#;
    let mut before = begun(text, Config::default());
    let saved = before.save(at(0)).unwrap();
    let mut after = run(text, Config::default());
    after.restore(at(0), &saved).unwrap();
    let new = one(&mut after);
    // The life before tries again, too: its second attempt is not that of this life.
    let old = one(&mut before);
    let second = Ticket {
        attempt: new.attempt,
        ..old
    };
    let output = RawBuf::parse("1").unwrap();
    let input = |ticket| Input::Succeeded {
        ticket,
        output: output.clone(),
    };
    assert!(after.handle_input(at(0), input(second)).is_err());
    assert_ne!(second.id(), new.id());
    after.handle_input(at(0), input(new)).unwrap();
    assert_eq!(after.end(), Some(&End::Done));
}

#[test]
fn a_saved_run_is_that_of_one_plan_alone() {
    let text = |more: &str, head: &str| {
        format!(
            r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING"{head},
            "plan":[{{"id":"a","verb":"v","tool":"T","params":{{}}}},{{"id":"b","verb":"v","tool":"T","params":{{}}{more}}}]}}"#
        )
    };
    let of = |text: &str| {
        let message = sacp::v1::Message::decode(text.as_bytes()).unwrap();
        Runner::new(&message, Config::default()).unwrap()
    };
    let mut before = of(&text("", ""));
    before.start(at(0));
    let saved = before.save(at(0)).unwrap();
    assert!(of(&text("", "")).restore(at(0), &saved).is_ok());
    for other in [
        text(r#","depends_on":["a"]"#, ""),
        text(r#","timeout_ms":5"#, ""),
        text(r#","retry":{"max_attempts":2}"#, ""),
        text(r#","on_error":"continue""#, ""),
        text(r#","output_key":"k""#, ""),
        text("", r#","test_mode":true"#),
        text("", "").replace(r#""msg_id":"m""#, r#""msg_id":"n""#),
        text("", "").replace(r#""g":"G""#, r#""g":"H""#),
        text("", "").replacen(r#""tool":"T""#, r#""tool":"U""#, 1),
        text("", "").replacen(r#""verb":"v""#, r#""verb":"w""#, 1),
        text("", "").replace(r#""id":"b""#, r#""id":"c""#),
        text("", "").replacen(r#""params":{}"#, r#""params":{"n":1}"#, 1),
    ] {
        let refused = of(&other).restore(at(0), &saved);
        assert_eq!(
            refused,
            Err(sacp::runner::ResumeError::OtherPlan),
            "{other}"
        );
    }
}

// Deadlines go on, not anew: of the run, and of a step whose subtask runs.
#[test]
fn deadlines_go_on_after_a_restore() {
    let text = r#"{"g":"G","plan":[["a","T",{"subtask":{"g":"S","plan":[["b","T",{}]]}}]]}"#;
    let seconds = Duration::from_secs;
    let timed = |config: Config| {
        let before = begun(text, config.clone());
        let saved = before.save(at(4_000)).unwrap();
        let mut after = run(text, config);
        after.restore(at(100_000), &saved).unwrap();
        after.poll_timeout()
    };
    let run_timeout = Config::default().with_run_timeout(seconds(10));
    assert_eq!(timed(run_timeout), Some(at(106_000).mono));
    let step_timeout = Config::default().with_step_timeout(seconds(10));
    assert_eq!(timed(step_timeout), Some(at(106_000).mono));
}

#[test]
fn attempts_and_ranks_come_back() {
    let text = r#"{"g":"G","plan":[["a","T",{}]]}"#;
    let rule = Rule {
        recoveries: vec![Recovery::OtherAgents { up_to: 5 }],
        ..Rule::default()
    };
    let config = Config::default().with_rule(rule);
    let mut before = begun(text, config.clone());
    for _ in 0..2 {
        let ticket = one(&mut before);
        fail(&mut before, ticket);
    }
    let saved = before.save(at(0)).unwrap();
    let mut after = run(text, config);
    after.restore(at(0), &saved).unwrap();
    let outputs = drain(&mut after);
    let Some(Output::Dispatch { ticket, rank, .. }) = outputs.first() else {
        panic!("{outputs:?}")
    };
    assert_eq!((ticket.attempt, *rank), (4, 2));
}

fn new(steps: &[&str], config: Config) -> Runner {
    let steps: Vec<String> = (steps.iter().enumerate())
        .map(|(n, more)| format!(r#"{{"id":"s{n}","verb":"v{n}","tool":"T","params":{{}}{more}}}"#))
        .collect();
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","state":"PENDING","plan":[{}]}}"#,
        steps.join(",")
    );
    let message = sacp::v1::Message::decode(text.as_bytes()).unwrap();
    Runner::new(&message, config).unwrap()
}

#[test]
fn a_slot_is_free_again_when_its_attempt_succeeds() {
    let mut run = begun(
        r#"{"g":"G","plan":[{"parallel":[["a","T",{}],["b","T",{}],["c","T",{}]]}]}"#,
        Config::default().with_max_running(1),
    );
    for step in 1..=3 {
        let ticket = one(&mut run);
        assert_eq!(ticket.step, step);
        done(&mut run, at(0), ticket, "1");
    }
    assert_eq!(run.end(), Some(&End::Done));
}

#[test]
fn a_step_that_has_ended_has_no_deadline() {
    let text =
        r#"{"g":"G","plan":[["a","T",{"subtask":{"g":"S","plan":[["b","T",{}]]}}],["c","T",{}]]}"#;
    let mut run = begun(
        text,
        Config::default().with_step_timeout(Duration::from_secs(5)),
    );
    let inner = one(&mut run);
    done(&mut run, at(1_000), inner, "1");
    let next = one(&mut run);
    assert_eq!(run.poll_timeout(), Some(at(6_000).mono));
    run.handle_timeout(at(5_000));
    done(&mut run, at(5_000), next, "2");
    assert_eq!((run.end(), run.poll_timeout()), (Some(&End::Done), None));
}

#[test]
fn what_ends_beside_a_subtask_that_is_stopped_ends_all_the_same() {
    let text = r#"{"g":"G","plan":[{"parallel":[["a","T",{"subtask":{"g":"S","plan":[["b","T",{}]]}}],["c","T",{}]]}]}"#;
    let rule = Rule {
        recoveries: vec![Recovery::Continue],
        ..Rule::default()
    };
    let config = Config::default().with_step_timeout(Duration::from_secs(5));
    let mut run = begun(text, config.with_rule(rule));
    assert_eq!(asked(&mut run).len(), 2);
    run.handle_timeout(at(5_000));
    assert_eq!(run.end(), Some(&End::Done));
    let outputs = drain(&mut run);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    let states: Vec<StepState> = outcome.steps.iter().map(|step| step.state).collect();
    assert_eq!(states[..2], [StepState::Failed, StepState::Failed]);
}

#[test]
fn an_output_may_be_as_long_as_its_limit() {
    let text = r#"{"g":"G","plan":[["a","T",{}]]}"#;
    for (output, end) in [("12345", End::Done), ("123456", End::Failed)] {
        let mut run = begun(text, Config::default().with_max_bytes(5, 50));
        let ticket = one(&mut run);
        done(&mut run, at(0), ticket, output);
        assert_eq!(run.end(), Some(&end), "{output}");
    }
}

// spec: SACP1-6-3
#[test]
fn a_fallback_that_fails_ends_the_run_whatever_its_own_policy_says() {
    let falls = r#","on_error":"fallback","fallback_step":"s1""#;
    let mut run = new(&[falls, r#","on_error":"continue""#], Config::default());
    run.start(at(0));
    for _ in 0..2 {
        let ticket = one(&mut run);
        fail(&mut run, ticket);
    }
    assert_eq!(run.end(), Some(&End::Failed));
}

// spec: SACP1-6-3
#[test]
fn who_waits_for_a_fallback_that_was_not_needed_is_told_why_it_is_skipped() {
    let falls = r#","on_error":"fallback","fallback_step":"s1""#;
    let mut run = new(&[falls, "", r#","depends_on":["s1"]"#], Config::default());
    run.start(at(0));
    let ticket = one(&mut run);
    done(&mut run, at(0), ticket, "1");
    let outputs = drain(&mut run);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    // Nothing went wrong with the fallback itself.
    for (n, wanted) in [(1, None), (2, Some(&Cause::Dependency))] {
        let skipped = &outcome.steps[n];
        let cause = skipped.failure.as_ref().map(|failure| &failure.cause);
        assert_eq!((skipped.state, cause), (StepState::Skipped, wanted));
    }
}

#[test]
fn a_saved_step_is_replaced_by_a_step_that_replaces_it() {
    let falls = r#","on_error":"fallback","fallback_step":"s1""#;
    let mut run = new(&[falls, ""], Config::default());
    run.start(at(0));
    let saved = String::from_utf8(run.save(at(0)).unwrap()).unwrap();
    let forged = saved.replacen("\"running\"", "\"replaced\"", 1);
    let refused = new(&[falls, ""], Config::default()).restore(at(0), forged.as_bytes());
    assert_eq!(
        refused,
        Err(sacp::runner::ResumeError::Inconsistent { step: 1 })
    );
}

#[test]
fn a_saved_fallback_step_that_has_failed_replaces_nothing() {
    let falls = r#","on_error":"fallback","fallback_step":"s1""#;
    let mut run = new(&[falls, ""], Config::default());
    run.start(at(0));
    let saved = String::from_utf8(run.save(at(0)).unwrap()).unwrap();
    let forged = saved.replacen("\"waiting\"", "\"failed\"", 1);
    let mut again = new(&[falls, ""], Config::default());
    again.restore(at(0), forged.as_bytes()).unwrap();
    let ticket = one(&mut again);
    fail(&mut again, ticket);
    assert_eq!(again.end(), Some(&End::Failed));
}

#[test]
fn a_run_that_is_saved_while_a_fallback_runs_goes_on_with_it() {
    let falls = r#","on_error":"fallback","fallback_step":"s1""#;
    let mut run = new(&[falls, ""], Config::default());
    run.start(at(0));
    let first = one(&mut run);
    fail(&mut run, first);
    assert_eq!(one(&mut run).step, 2);
    let saved = run.save(at(0)).unwrap();
    let mut again = new(&[falls, ""], Config::default());
    again.restore(at(0), &saved).unwrap();
    let fallback = one(&mut again);
    assert_eq!(fallback.step, 2);
    done(&mut again, at(0), fallback, "7");
    let outputs = drain(&mut again);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    assert_eq!((outcome.end, outcome.steps.len()), (End::Done, 2));
    assert_eq!(outcome.steps[0].output.as_ref().unwrap().as_str(), "7");
}

#[test]
fn a_fallback_that_is_done_already_gives_its_output() {
    let rule = Rule {
        verb: Some("b".into()),
        recoveries: vec![Recovery::Fallback(1)],
        ..Rule::default()
    };
    let text = r#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#;
    let mut run = begun(text, Config::default().with_rule(rule));
    let first = one(&mut run);
    done(&mut run, at(0), first, "9");
    let second = one(&mut run);
    fail(&mut run, second);
    let outputs = drain(&mut run);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    assert_eq!(outcome.end, End::Done);
    assert_eq!(outcome.steps[1].output.as_ref().unwrap().as_str(), "9");
}

#[test]
fn a_step_took_the_time_from_its_first_attempt_to_its_end() {
    let text = r#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#;
    let mut run = begun(text, Config::default());
    let first = one(&mut run);
    done(&mut run, at(12), first, "1");
    let second = one(&mut run);
    done(&mut run, at(15), second, "2");
    let outputs = drain(&mut run);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    let took: Vec<Option<Duration>> = outcome.steps.iter().map(|step| step.took).collect();
    assert_eq!(took, [12, 3].map(|ms| Some(Duration::from_millis(ms))));
}

#[test]
fn a_step_that_is_begun_again_with_its_subtask_stands_for_nobody() {
    let text = r#"{"g":"G","plan":[["x","T",{"subtask":{"g":"H","plan":[
        {"parallel":[["b","T",{}],["c","T",{}],["d","T",{}]]}]}}]]}"#;
    let of = |verb: &str, recovery: Recovery| Rule {
        verb: Some(verb.into()),
        recoveries: vec![recovery],
        ..Rule::default()
    };
    let config = Config::default()
        .with_rule(of("x", Recovery::Retry(Retry::fixed(2, Duration::ZERO))))
        .with_rule(of("b", Recovery::Fallback(3)));
    let mut run = begun(text, config);
    let first = asked(&mut run);
    // The second stands for the first; then the third ends the attempt.
    fail(&mut run, first[0]);
    fail(&mut run, first[2]);
    let again = asked(&mut run);
    done(&mut run, at(0), again[1], "7");
    done(&mut run, at(0), again[0], "5");
    done(&mut run, at(0), again[2], "6");
    assert_eq!(run.end(), Some(&End::Done));
    assert_eq!(run.output(2).map(RawBuf::as_str), Some("5"));
}

#[test]
fn what_only_a_fallback_waits_for_is_part_of_the_result() {
    let falls = r#","on_error":"fallback","fallback_step":"s2""#;
    let mut run = new(&["", falls, r#","depends_on":["s0"]"#], Config::default());
    run.start(at(0));
    for (ticket, output) in asked(&mut run).into_iter().zip(["1", "2"]) {
        done(&mut run, at(0), ticket, output);
    }
    let outputs = drain(&mut run);
    let Some(Output::Ended(outcome)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    assert_eq!(outcome.result.as_ref().map(RawBuf::as_str), Some("[1,2]"));
}

#[test]
fn a_runner_that_refused_a_saved_run_runs_as_if_nothing_had_been() {
    let text = r#"{"g":"G","plan":[{"parallel":[["a","T",{}],["b","T",{}]]},["join","C",{}],
        ["d","T",{"subtask":{"g":"S","plan":[["e","T",{}]]}}]]}"#;
    let mut other = begun(text, Config::default());
    let first = asked(&mut other);
    done(&mut other, at(0), first[0], "1");
    let saved = String::from_utf8(other.save(at(0)).unwrap()).unwrap();
    // The step behind the join has begun before the join.
    let forged = saved.replacen(
        "\"waiting\",\"attempt\":0}]",
        "\"running\",\"attempt\":0}]",
        1,
    );
    let (head, tail) = saved.rsplit_once("\"waiting\"").unwrap();
    let forged = if forged == saved {
        format!("{head}\"running\"{tail}")
    } else {
        forged
    };
    let mut run = run(text, Config::default());
    run.restore(at(0), forged.as_bytes()).unwrap_err();
    run.start(at(0));
    let group = asked(&mut run);
    assert_eq!(group.len(), 2);
    done(&mut run, at(0), group[0], "1");
    // The join waits for both.
    assert_eq!(asked(&mut run), []);
    done(&mut run, at(0), group[1], "1");
    for _ in ["join", "e"] {
        let ticket = one(&mut run);
        done(&mut run, at(0), ticket, "1");
    }
    assert_eq!(run.end(), Some(&End::Done));
}

#[test]
fn a_fallback_that_waits_for_what_failed_ends_the_run_at_once() {
    let goes_on = r#","on_error":"continue""#;
    let falls = r#","on_error":"fallback","fallback_step":"s2""#;
    let steps = [goes_on, falls, r#","depends_on":["s0"]"#, ""];
    let mut run = new(&steps, Config::default());
    run.start(at(0));
    let tickets = asked(&mut run);
    assert_eq!(tickets.len(), 3);
    fail(&mut run, tickets[0]);
    fail(&mut run, tickets[1]);
    // The fourth step still runs.
    assert_eq!(run.end(), Some(&End::Failed));
}

#[test]
fn who_waits_for_what_failed_is_skipped_while_others_run() {
    let config = Config::default().with_step_events(true);
    let waits = r#","depends_on":["s0","s1"]"#;
    let mut run = new(&[r#","on_error":"continue""#, "", waits], config);
    run.start(at(0));
    let tickets = asked(&mut run);
    fail(&mut run, tickets[0]);
    let skipped = Output::Step {
        step: 3,
        state: StepState::Skipped,
    };
    assert!(drain(&mut run).contains(&skipped));
    done(&mut run, at(0), tickets[1], "1");
    assert_eq!(run.end(), Some(&End::Done));
}

#[test]
fn a_step_that_holds_a_subtask_is_told_to_run() {
    let text = r#"{"g":"G","plan":[["x","T",{"subtask":{"g":"H","plan":[["a","T",{}]]}}]]}"#;
    let mut run = begun(text, Config::default().with_step_events(true));
    let runs = |step| Output::Step {
        step,
        state: StepState::Running,
    };
    let outputs = drain(&mut run);
    assert!(
        outputs.contains(&runs(1)) && outputs.contains(&runs(2)),
        "{outputs:?}"
    );
}

#[test]
fn a_run_whose_steps_wait_for_each_other_is_not_done() {
    let of = |verb: &str, recovery| Rule {
        verb: Some(verb.into()),
        recoveries: vec![recovery],
        ..Rule::default()
    };
    let config = Config::default()
        .with_rule(of("a", Recovery::Fallback(2)))
        .with_rule(of("b", Recovery::Fallback(1)));
    let mut run = begun(
        r#"{"g":"G","plan":[{"parallel":[["a","T",{}],["b","T",{}]]}]}"#,
        config,
    );
    for ticket in asked(&mut run) {
        fail(&mut run, ticket);
    }
    assert_eq!(run.end(), Some(&End::Failed));
}

#[test]
fn the_outputs_of_a_run_may_be_as_long_as_their_limit() {
    let text = r#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#;
    for (bytes, end) in [(10, End::Done), (9, End::Failed)] {
        let mut run = begun(text, Config::default().with_max_bytes(9, bytes));
        for _ in 0..2 {
            let ticket = one(&mut run);
            done(&mut run, at(0), ticket, "12345");
        }
        assert_eq!(run.end(), Some(&end));
    }
    // The output of a fallback counts for both steps that have it, as in a saved run that is taken up.
    let text = r#"{"g":"G","plan":[["a","T",{}],["b","T",{}],["c","T",{}]]}"#;
    let rule = Rule {
        verb: Some("b".into()),
        recoveries: vec![Recovery::Fallback(1)],
        ..Rule::default()
    };
    for (bytes, end) in [(11, End::Done), (10, End::Failed)] {
        let config = Config::default().with_max_bytes(9, bytes);
        let mut run = begun(text, config.with_rule(rule.clone()));
        for output in [Some("12345"), None, Some("1")] {
            let ticket = one(&mut run);
            match output {
                Some(output) => done(&mut run, at(0), ticket, output),
                None => fail(&mut run, ticket),
            }
        }
        assert_eq!(run.end(), Some(&end));
    }
}

#[test]
fn a_saved_run_whose_steps_are_all_done_ends() {
    let text = r#"{"g":"G","plan":[["a","T",{"subtask":{"g":"S","plan":[["b","T",{}]]}}]]}"#;
    let run = begun(text, Config::default());
    let saved = String::from_utf8(run.save(at(0)).unwrap()).unwrap();
    // Nobody saves this: the step around the subtask ends with it.
    let forged = saved.replacen("\"running\"", "\"failed\"", 1);
    let forged = forged.replacen("\"ready\"", "\"failed\"", 1);
    assert_ne!(forged, saved);
    let mut again = self::run(text, Config::default());
    again.restore(at(0), forged.as_bytes()).unwrap();
    let outputs = drain(&mut again);
    assert!(
        matches!(outputs.last(), Some(Output::Ended(_))),
        "{outputs:?}\n{forged}"
    );
    // A step whose subtask has ended ends with it.
    let forged = saved.replacen("\"running\"", "\"failed\"", 1);
    let mut again = self::run(text, Config::default());
    again.restore(at(0), forged.as_bytes()).unwrap();
    assert!(again.output(1).is_some(), "{forged}");
    // Where the answer of the subtask is too large, none of its steps starts.
    let text = r#"{"g":"G","plan":[{"parallel":[["a","T",{"subtask":{"g":"S","plan":[["b","T",{}]]}}],["c","T",{}]]}]}"#;
    let rule = Rule {
        verb: Some("a".into()),
        recoveries: vec![Recovery::Continue],
        ..Rule::default()
    };
    let config = Config::default().with_max_bytes(9, 9).with_rule(rule);
    let run = begun(text, config.clone());
    let saved = String::from_utf8(run.save(at(0)).unwrap()).unwrap();
    let (head, tail) = saved.rsplit_once("\"running\"").unwrap();
    let mut again = self::run(text, config);
    again
        .restore(at(0), format!("{head}\"failed\"{tail}").as_bytes())
        .unwrap();
    assert_eq!(one(&mut again).step, 2);
}

#[test]
fn a_driver_that_takes_no_output_is_told_to_give_no_input() {
    fn accepts<M: ubos_common::machine::Machine>(machine: &M) -> bool {
        machine.accepts_input()
    }
    let acts = vec![r#"["a","T",{}]"#; 1_100].join(",");
    let text = format!(r#"{{"g":"G","plan":[{{"parallel":[{acts}]}}]}}"#);
    let config = Config::default()
        .with_max_running(1_100)
        .with_step_events(true);
    let mut run = begun(&text, config);
    assert!(!run.accepts_input() && !accepts(&run));
    assert!(drain(&mut run).len() >= 2_200);
    assert!(run.accepts_input() && accepts(&run));
    // Two outputs are not too many.
    let text = r#"{"g":"G","plan":[{"parallel":[["a","T",{}],["b","T",{}]]}]}"#;
    assert!(accepts(&begun(text, Config::default())));
}

/// A runner that stays idle for 5 seconds at most, with these recoveries for the verb `x`.
fn idle_5s(recoveries: Vec<Recovery>) -> Config {
    let rule = Rule {
        verb: Some("x".into()),
        recoveries,
        ..Rule::default()
    };
    let config = Config::default().with_idle_timeout(Duration::from_secs(5));
    config.with_rule(rule)
}

// spec: SACP-3-3
#[test]
fn two_attempts_of_a_subtask_that_end_together_fail_it_once() {
    let text = r#"{"g":"G","plan":[["x","T",{"subtask":{"g":"S","plan":[
        {"parallel":[["a","T",{}],["b","T",{}]]}]}}]]}"#;
    let twice = vec![Recovery::Retry(Retry::fixed(2, Duration::ZERO))];
    let mut run = begun(text, idle_5s(twice));
    assert_eq!(asked(&mut run).len(), 2);
    run.handle_timeout(at(5_000));
    // The failure of the one stops the other: it neither fails the subtask again nor ends the next attempt.
    let again = asked(&mut run);
    assert_eq!(again.len(), 2, "{:?}", run.end());
    for ticket in again {
        done(&mut run, at(5_000), ticket, "1");
    }
    assert_eq!(run.end(), Some(&End::Done));
}

// spec: SACP-3-5
#[test]
fn what_replaces_the_subtask_behind_a_plan_ends_with_the_subtask_around_it() {
    let text = r#"{"g":"G","plan":[["x","T",{"subtask":{"g":"S","plan":[["a","T",{}]],
        "subtask":{"g":"L","plan":[["b","T",{}]]}}}]]}"#;
    let instead = Rule {
        verb: Some("subtask".into()),
        recoveries: vec![Recovery::OtherAct(sacp::Act::new("c", "T"))],
        ..Rule::default()
    };
    let twice = vec![Recovery::Retry(Retry::fixed(2, Duration::ZERO))];
    let config = idle_5s(twice).with_rule(instead);
    let mut run = begun(text, config.with_step_timeout(Duration::from_secs(6)));
    let a = one(&mut run);
    done(&mut run, at(0), a, "1");
    let b = one(&mut run);
    fail(&mut run, b);
    assert_eq!(asked(&mut run).len(), 1);
    // Both limits are over: that of the act that replaces, and that of the whole subtask, which begins anew.
    run.handle_timeout(at(6_000));
    for step in ["a", "b"] {
        assert_eq!(run.end(), None, "{step}");
        let ticket = one(&mut run);
        done(&mut run, at(6_000), ticket, "1");
    }
    assert_eq!(run.end(), Some(&End::Done));
}

#[test]
fn a_saved_step_whose_inputs_are_all_there_starts() {
    let text = r#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#;
    let mut before = begun(text, Config::default());
    let a = one(&mut before);
    done(&mut before, at(0), a, "1");
    let b = one(&mut before);
    let saved = String::from_utf8(before.save(at(0)).unwrap()).unwrap();
    let earlier = saved.replace("\"running\"", "\"waiting\"");
    assert_ne!(saved, earlier);
    let mut after = run(text, Config::default());
    after.restore(at(0), earlier.as_bytes()).unwrap();
    assert_eq!(one(&mut after).step, b.step);
}

#[test]
fn a_saved_run_does_not_write_what_is_zero() {
    let before = begun(r#"{"g":"G","plan":[["a","T",{}]]}"#, Config::default());
    let saved = String::from_utf8(before.save(at(0)).unwrap()).unwrap();
    for name in ["tries", "rank", "recovery", "stands_for"] {
        assert!(!saved.contains(name), "{saved}");
    }
}
