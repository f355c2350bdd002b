//! Runs of plans: order, failures and recoveries, timeouts, subtasks, limits.

mod limits;
mod subtasks;

use core::time::Duration;

use sacp::Retry;
use sacp::runner::{
    Cause, Config, End, Input, Outcome, Output, Recovery, Rule, Runner, RunnerError, StartError,
    StepState, Ticket,
};
use sacp::{Act, Code, Message, OutFmt, Reply, State, v1};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::machine::Machine;
use ubos_common::time::{Mono, Now, Timestamp};

pub(crate) fn now(seconds: u64) -> Now {
    Now::new(Mono::from_millis(seconds * 1000), Timestamp::EPOCH)
}

fn message(plan: &str) -> Message {
    let text = format!("{{\"msg_id\":\"m\",\"g\":\"G\",\"ctx\":{{\"a\":1}},\"plan\":{plan}}}");
    Message::decode(text.as_bytes()).unwrap()
}

fn runner(plan: &str, config: Config) -> Runner {
    let mut runner = Runner::new(&message(plan), config).unwrap();
    runner.start(now(0));
    runner
}

pub(crate) fn drain(runner: &mut Runner) -> Vec<Output> {
    core::iter::from_fn(|| runner.poll_output()).collect()
}

pub(crate) fn dispatched(outputs: &[Output]) -> Vec<Ticket> {
    let ticket = |output: &Output| match output {
        Output::Dispatch { ticket, .. } => Some(*ticket),
        _ => None,
    };
    outputs.iter().filter_map(ticket).collect()
}

fn started(runner: &mut Runner) -> Vec<usize> {
    dispatched(&drain(runner))
        .iter()
        .map(|ticket| ticket.step)
        .collect()
}

pub(crate) const fn first(step: usize) -> Ticket {
    Ticket {
        step,
        attempt: 1,
        epoch: 0,
    }
}

pub(crate) fn done(runner: &mut Runner, ticket: Ticket) {
    let output = RawBuf::parse(&format!("\"out {}\"", ticket.step)).unwrap();
    runner
        .handle_input(now(1), Input::Succeeded { ticket, output })
        .unwrap();
}

pub(crate) fn fail(runner: &mut Runner, ticket: Ticket) {
    let cause = Cause::tool("no route");
    runner
        .handle_input(now(1), Input::Failed { ticket, cause })
        .unwrap();
}

fn outcome(outputs: &[Output]) -> &Outcome {
    match outputs.last() {
        Some(Output::Ended(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

fn answer(outputs: &[Output], request: &Message) -> Message {
    match outcome(outputs).answer(Timestamp::EPOCH, request, &mut IdSource::seeded(1)) {
        Reply::Message(message) => *message,
        other => panic!("{other:?}"),
    }
}

// spec: SACP-3-1
#[test]
fn a_join_gets_the_outputs_of_its_group_in_plan_order() {
    let plan =
        r#"[["a","T",{}],{"parallel":[["b","T",{}],["c","T",{}]]},["join","J",{}],["d","T",{}]]"#;
    let mut run = runner(plan, Config::default());
    assert_eq!(started(&mut run), [1]);
    done(&mut run, first(1));
    assert_eq!(started(&mut run), [2, 3]);
    done(&mut run, first(3));
    assert_eq!(started(&mut run), [0; 0]);
    done(&mut run, first(2));
    let join = drain(&mut run);
    let Output::Dispatch { inputs, act, .. } = &join[0] else {
        panic!("{join:?}")
    };
    assert!(act.is_join());
    let seen: Vec<_> = inputs
        .iter()
        .map(|(step, output)| (*step, output.as_str()))
        .collect();
    assert_eq!(seen, [(2, "\"out 2\""), (3, "\"out 3\"")]);
    done(&mut run, first(4));
    done(&mut run, first(5));
    assert_eq!(run.state(), State::Done);
}

// spec: SACP-3-8, SACP-3-2
#[test]
fn an_answer_has_all_outputs_by_act_number() {
    let plan = r#"[["a","T",{}],{"parallel":[["b","T",{}],["c","T",{}]]}]"#;
    let mut run = runner(plan, Config::default());
    for step in 1..=3 {
        done(&mut run, first(step));
    }
    assert_eq!(run.output(1).map(RawBuf::as_str), Some("\"out 1\""));
    let outputs = drain(&mut run);
    let answer = answer(&outputs, &message(plan));
    let ctx = answer.context.clone().unwrap();
    assert_eq!(ctx["result"].as_str(), r#"["out 2","out 3"]"#);
    assert_eq!(
        ctx["results"].as_str(),
        r#"{"1":"out 1","2":"out 2","3":"out 3"}"#
    );
    assert_eq!(ctx["a"].as_str(), "1");
    assert_eq!(answer.reply_to.as_deref(), Some("m"));
    assert_eq!(
        (answer.msg_id.as_deref(), answer.state()),
        (
            Some(IdSource::seeded(1).uuid().to_string().as_str()),
            State::Done
        )
    );
    assert_eq!(Message::decode(&answer.encode()).unwrap(), answer);
    let mut nameless = message(plan);
    nameless.msg_id = None;
    assert_eq!(self::answer(&outputs, &nameless).reply_to, None);
}

// spec: SACP-4-3
#[test]
fn a_summary_is_structured_and_short() {
    let mut request = message(r#"[["a","T",{}]]"#);
    request.out_fmt = Some(OutFmt::Summary);
    let mut run = Runner::new(&request, Config::default()).unwrap();
    run.start(now(0));
    done(&mut run, first(1));
    let answer = answer(&drain(&mut run), &request);
    let ctx = answer.context.clone().unwrap();
    assert_eq!(
        (ctx["result"].as_str(), ctx.contains_key("results")),
        ("\"out 1\"", false)
    );
    assert_eq!(answer.out_fmt(), OutFmt::Summary);
}

// spec: SACP-3-3
#[test]
fn a_failed_step_without_a_rule_ends_the_run() {
    let plan = r#"[{"parallel":[["a","T",{}],["b","T",{}]]},["c","T",{}]]"#;
    let mut run = runner(plan, Config::default());
    drain(&mut run);
    fail(&mut run, first(2));
    let outputs = drain(&mut run);
    assert!(matches!(
        outputs[..],
        [
            Output::Cancel {
                ticket: Ticket {
                    step: 1,
                    attempt: 1,
                    epoch: 0
                }
            },
            Output::Ended(_)
        ]
    ));
    let Reply::Err(error) =
        outcome(&outputs).answer(Timestamp::EPOCH, &message(plan), &mut IdSource::seeded(1))
    else {
        panic!()
    };
    assert_eq!(
        (error.code, error.pointer.as_deref()),
        (Code::StepFailed, Some("/plan/0/parallel/1"))
    );
    assert_eq!(error.details, "act 2: no route");
    assert_eq!(error.reply_to.as_deref(), Some("m"));
    assert!(run.is_closed() && run.state() == State::Failed);
    assert_eq!(run.view(now(0), 3).state, StepState::Cancelled);
}

// spec: SACP-3-3
#[test]
fn recoveries_apply_in_order() {
    let then = vec![
        Recovery::Retry(Retry::fixed(2, Duration::from_secs(3))),
        Recovery::OtherAgents { up_to: 1 },
        Recovery::OtherAct(Act::new("guess", "U")),
        Recovery::Skip(RawBuf::parse("null").unwrap()),
    ];
    let config = Config::default()
        .with_rule(Rule {
            verb: Some("x".into()),
            recoveries: vec![],
            ..Rule::default()
        })
        .with_rule(Rule {
            tool: Some("T".into()),
            recoveries: then,
            ..Rule::default()
        });
    let mut run = runner(r#"[["a","T",{}],["b","V",{}]]"#, config);
    let dispatch = |run: &mut Runner| match &drain(run)[..] {
        [
            Output::Dispatch {
                ticket, act, rank, ..
            },
        ] => (*ticket, act.verb.clone(), *rank),
        other => panic!("{other:?}"),
    };
    assert_eq!(dispatch(&mut run), (first(1), "a".into(), 0));
    fail(&mut run, first(1));
    assert_eq!(
        (drain(&mut run), run.poll_timeout()),
        (vec![], Some(now(4).mono))
    );
    run.handle_timeout(now(3));
    assert_eq!(drain(&mut run), []);
    run.handle_timeout(now(4));
    let ticket = |attempt| Ticket {
        step: 1,
        attempt,
        epoch: 0,
    };
    assert_eq!(dispatch(&mut run), (ticket(2), "a".into(), 0));
    fail(&mut run, ticket(2));
    assert_eq!(dispatch(&mut run), (ticket(3), "a".into(), 1));
    fail(&mut run, ticket(3));
    assert_eq!(dispatch(&mut run), (ticket(4), "guess".into(), 0));
    fail(&mut run, ticket(4));
    assert_eq!(dispatch(&mut run).1, "b");
    assert_eq!(run.output(1).map(RawBuf::as_str), Some("null"));
    fail(&mut run, first(2));
    assert_eq!(run.end(), Some(&End::Failed));
}

#[test]
fn a_permanent_failure_is_not_retried() {
    let rule = Rule {
        recoveries: vec![
            Recovery::Retry(Retry::fixed(9, Duration::ZERO)),
            Recovery::Continue,
        ],
        ..Rule::default()
    };
    let mut run = runner(
        r#"[["a","T",{}],["b","T",{}]]"#,
        Config::default().with_rule(rule),
    );
    let cause = Cause::permanent("no such hotel");
    run.handle_input(
        now(1),
        Input::Failed {
            ticket: first(1),
            cause,
        },
    )
    .unwrap();
    let outputs = drain(&mut run);
    assert_eq!(outcome(&outputs).end, End::Done);
    let failed = answer(&outputs, &message("[]")).context.unwrap()["failed"]
        .as_str()
        .to_owned();
    assert_eq!(
        failed,
        r#"{"1":"no such hotel","2":"a step that it depends on failed or was skipped"}"#
    );
}

/// A message of 1.0: each step with the steps that it depends on, and with further members.
pub(crate) fn plan(after: &[&[usize]], members: impl Fn(usize) -> String) -> v1::Message {
    let step = |(n, after): (usize, &&[usize])| {
        let after: Vec<String> = after.iter().map(|n| format!("\"s{n}\"")).collect();
        let n = n + 1;
        format!(
            r#"{{"id":"s{n}","verb":"v","tool":"T","params":{{}},"depends_on":[{}]{}}}"#,
            after.join(","),
            members(n)
        )
    };
    let steps: Vec<String> = after.iter().enumerate().map(step).collect();
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G","plan":[{}],"state":"PENDING"}}"#,
        steps.join(",")
    );
    v1::Message::decode(text.as_bytes()).unwrap()
}

pub(crate) fn run_of(message: &v1::Message, config: Config) -> Runner {
    let mut runner = Runner::new(message, config).unwrap();
    runner.start(now(0));
    runner
}

// spec: SACP1-6-3
#[test]
fn a_fallback_step_runs_on_failure_and_feeds_the_dependents() {
    // 1 falls back to 3; 2 waits for 1; 4 waits for 3 itself.
    let plan = || {
        plan(&[&[], &[1], &[], &[3]], |n| match n {
            1 => r#","on_error":"fallback","fallback_step":"s3""#.to_owned(),
            _ => String::new(),
        })
    };
    let mut run = run_of(&plan(), Config::default());
    assert_eq!(started(&mut run), [1]);
    fail(&mut run, first(1));
    assert_eq!(started(&mut run), [3]);
    done(&mut run, first(3));
    let next = drain(&mut run);
    assert_eq!(dispatched(&next), [first(2), first(4)]);
    let Output::Dispatch { inputs, .. } = &next[0] else {
        panic!()
    };
    assert_eq!(inputs.iter().next().unwrap().1.as_str(), "\"out 3\"");
    // Not called, it does not run, and neither does what waits for it.
    let mut run = run_of(&plan(), Config::default());
    done(&mut run, first(1));
    drain(&mut run);
    done(&mut run, first(2));
    let outputs = drain(&mut run);
    let states: Vec<_> = outcome(&outputs)
        .steps
        .iter()
        .map(|step| step.state)
        .collect();
    assert_eq!(
        states,
        [
            StepState::Done,
            StepState::Done,
            StepState::Skipped,
            StepState::Skipped
        ]
    );
    // Failing, it ends the message.
    let mut run = run_of(&plan(), Config::default());
    fail(&mut run, first(1));
    fail(&mut run, first(3));
    assert_eq!(run.end(), Some(&End::Failed));
}

// spec: SACP1-6-3
#[test]
fn a_fallback_step_that_is_not_called_ends_nothing_where_it_waits_for_a_failed_step() {
    // 2 falls back to 3, which waits for 1.
    let plan = plan(&[&[], &[], &[1]], |n| match n {
        1 => r#","on_error":"continue""#.to_owned(),
        2 => r#","on_error":"fallback","fallback_step":"s3""#.to_owned(),
        _ => String::new(),
    });
    for (second, end) in [
        (done as fn(&mut Runner, Ticket), End::Done),
        (fail, End::Failed),
    ] {
        let mut run = run_of(&plan, Config::default());
        fail(&mut run, first(1));
        assert_eq!(run.end(), None, "the second step runs");
        second(&mut run, first(2));
        assert_eq!(run.end(), Some(&end));
    }
}

// spec: SACP-3-4
#[test]
fn test_mode_simulates_every_act() {
    let inner = r#"["a","T",{"subtask":{"g":"H","plan":[["b","U",{}]]}}]"#;
    for (top, ctx) in [("true", "false"), ("false", "true")] {
        let text = format!(
            r#"{{"g":"G","plan":[{inner},["c","T",{{}}]],"test_mode":{top},"ctx":{{"test_mode":{ctx}}}}}"#
        );
        let mut run = Runner::new(
            &Message::decode(text.as_bytes()).unwrap(),
            Config::default(),
        )
        .unwrap();
        run.start(now(0));
        let outputs = drain(&mut run);
        assert!(matches!(outputs[..], [Output::Ended(_)]), "{outputs:?}");
        let outcome = outcome(&outputs);
        assert!(
            outcome
                .steps
                .iter()
                .all(|step| step.state == StepState::Done)
        );
        let simulated = r#"{"simulated":true,"verb":"c","tool":"T","inputs":1}"#;
        assert_eq!(outcome.result.as_ref().unwrap().as_str(), simulated);
    }
}

// spec: SACP-3-7
#[test]
fn a_message_that_cannot_run_is_refused() {
    let refused = |text: &str, config| {
        Runner::new(&Message::decode(text.as_bytes()).unwrap(), config).unwrap_err()
    };
    let empty = refused(r#"{"msg_id":"m","g":"G","plan":[]}"#, Config::default());
    let reply = ubos_common::json::to_string(&empty.reply(&message("[]")));
    assert_eq!(
        reply,
        r#"{"status":"REQ_CLARIFY","missing":["plan"],"details":"nothing to do","reply_to":"m"}"#
    );
    let inner = refused(
        r#"{"g":"G","plan":[["a","T",{"subtask":{"g":"H","plan":[]}}]]}"#,
        Config::default(),
    );
    assert_eq!(
        inner,
        StartError::Empty {
            pointer: "/plan/0/2/subtask".into()
        }
    );
    let ended = refused(
        r#"{"g":"G","plan":[["a","T",{}]],"state":"DONE"}"#,
        Config::default(),
    );
    let Reply::Err(error) = ended.reply(&message("[]")) else {
        panic!()
    };
    assert_eq!(error.code, Code::InvalidState);
    let many = refused(
        r#"{"g":"G","plan":[["a","T",{}],["b","T",{}]]}"#,
        Config::default().with_max_steps(1),
    );
    assert_eq!(many, StartError::TooManySteps { seen: 2, limit: 1 });
}

#[test]
fn a_refused_input_changes_nothing() {
    let mut run = Runner::new(
        &message(r#"[["a","T",{}],["b","T",{}]]"#),
        Config::default(),
    )
    .unwrap();
    let not_running = |started| Err(RunnerError::NotRunning { started });
    assert_eq!(run.cancel(now(0)), not_running(false));
    assert_eq!(run.resume(now(0)), not_running(false));
    run.start(now(0));
    drain(&mut run);
    assert!(run.is_running(first(1)));
    for step in [0, 2, 3, usize::MAX] {
        assert!(!run.is_running(first(step)));
        let input = Input::Failed {
            ticket: first(step),
            cause: Cause::tool(""),
        };
        assert_eq!(
            run.handle_input(now(1), input),
            Err(RunnerError::NotDispatched {
                ticket: first(step)
            })
        );
    }
    assert_eq!(drain(&mut run), []);
    done(&mut run, first(1));
    let again = Input::Progress { ticket: first(1) };
    assert_eq!(
        run.handle_input(now(1), again),
        Err(RunnerError::NotDispatched { ticket: first(1) })
    );
    run.cancel(now(1)).unwrap();
    assert_eq!(run.pause(now(1)), not_running(true));
    let late = Input::Progress { ticket: first(2) };
    assert_eq!(run.handle_input(now(1), late), not_running(true));
}

#[test]
fn an_attempt_that_ended_leaves_its_place_however_it_ended() {
    let config = Config::default()
        .with_max_running(1)
        .with_step_timeout(Duration::from_secs(5))
        .with_rule(Rule {
            recoveries: vec![Recovery::Retry(Retry::fixed(3, Duration::ZERO))],
            ..Rule::default()
        });
    let mut run = runner(r#"[{"parallel":[["a","T",{}],["b","T",{}]]}]"#, config);
    let start = |run: &mut Runner, wanted: (usize, u32)| {
        let tickets = dispatched(&drain(run));
        let [ticket] = tickets[..] else {
            panic!("one attempt wanted: {tickets:?}")
        };
        assert_eq!((ticket.step, ticket.attempt), wanted);
        ticket
    };
    let ticket = start(&mut run, (1, 1));
    let cause = Cause::Tool {
        code: None,
        message: "no".into(),
        retryable: true,
    };
    let failed = Input::Failed { ticket, cause };
    run.handle_input(now(1), failed).unwrap();
    start(&mut run, (1, 2));
    Machine::handle_timeout(&mut run, now(6));
    let ticket = start(&mut run, (1, 3));
    done(&mut run, ticket);
    start(&mut run, (2, 1));
}

#[test]
fn a_run_ends_once_where_several_steps_fail_together() {
    let config = Config::default().with_step_timeout(Duration::from_secs(5));
    let mut run = runner(r#"[{"parallel":[["a","T",{}],["b","T",{}]]}]"#, config);
    drain(&mut run);
    run.handle_timeout(now(5));
    let outputs = drain(&mut run);
    let ends = outputs
        .iter()
        .filter(|output| matches!(output, Output::Ended(_)));
    assert_eq!(ends.count(), 1);
}

#[test]
fn a_paused_run_starts_nothing() {
    let mut run = runner(r#"[["a","T",{}],["b","T",{}]]"#, Config::default());
    drain(&mut run);
    run.pause(now(1)).unwrap();
    assert_eq!(drain(&mut run), []);
    done(&mut run, first(1));
    assert_eq!(drain(&mut run), [Output::Paused]);
    run.resume(now(2)).unwrap();
    assert_eq!(started(&mut run), [2]);
}

// spec: SACP1-6-3
#[test]
fn a_run_without_need_of_its_fallback_step_ends_while_it_is_paused() {
    let plan = plan(&[&[], &[]], |n| match n {
        1 => r#","on_error":"fallback","fallback_step":"s2""#.to_owned(),
        _ => String::new(),
    });
    let mut run = run_of(&plan, Config::default());
    run.pause(now(1)).unwrap();
    done(&mut run, first(1));
    assert_eq!(run.end(), Some(&End::Done));
}

#[test]
fn step_events_report_every_change() {
    let rule = Rule {
        recoveries: vec![Recovery::Retry(Retry::fixed(2, Duration::from_secs(1)))],
        ..Rule::default()
    };
    let config = Config::default().with_step_events(true).with_rule(rule);
    let mut run = runner(r#"[["a","T",{}]]"#, config);
    fail(&mut run, first(1));
    run.handle_timeout(now(2));
    let attempt = 2;
    done(
        &mut run,
        Ticket {
            attempt,
            ..first(1)
        },
    );
    let told = drain(&mut run);
    let states: Vec<_> = told
        .iter()
        .filter_map(|output| match output {
            Output::Step { step: 1, state } => Some(*state),
            _ => None,
        })
        .collect();
    let (running, waiting) = (StepState::Running, StepState::Waiting);
    assert_eq!(states, [running, waiting, running, StepState::Done]);
}
