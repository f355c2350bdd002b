//! Timeouts, and the bounds of steps, outputs and settings.

use core::time::Duration;

use sacp::runner::{
    Cause, Config, End, Input, Output, Recovery, Rule, Runner, RunnerError, Ticket,
};
use sacp::{Code, Message, Reply, Retry, State};
use ubos_common::id::IdSource;
use ubos_common::json::RawBuf;
use ubos_common::time::{Mono, Now, Timestamp};

use super::{dispatched, done, drain, fail, first, message, now, outcome, plan, run_of, runner};

// spec: SACP1-6-4
#[test]
fn a_timeout_applies_to_each_attempt() {
    let one = plan(&[&[]], |_| {
        r#","timeout_ms":2000,"retry":{"max_attempts":2,"backoff_ms":1000}"#.to_owned()
    });
    let mut run = run_of(&one, Config::default());
    drain(&mut run);
    run.handle_timeout(now(2));
    assert_eq!(drain(&mut run), [Output::Cancel { ticket: first(1) }]);
    let late = Input::Succeeded {
        ticket: first(1),
        output: RawBuf::parse("1").unwrap(),
    };
    assert_eq!(
        run.handle_input(now(2), late.clone()),
        Err(RunnerError::NotDispatched { ticket: first(1) })
    );
    run.handle_timeout(now(3));
    assert_eq!(
        dispatched(&drain(&mut run)),
        [Ticket {
            step: 1,
            attempt: 2,
            epoch: 0
        }]
    );
    assert_eq!(
        run.handle_input(now(3), late),
        Err(RunnerError::NotDispatched { ticket: first(1) })
    );
    run.handle_timeout(now(5));
    let outputs = drain(&mut run);
    let failure = outcome(&outputs).failure.clone().unwrap();
    assert_eq!(failure.step, Some(1));
    assert!(matches!(failure.cause, Cause::Timeout { .. }));
    assert_eq!(outcome(&outputs).steps[0].attempts, 2);
}

// spec: SACP-3-5
#[test]
fn timeouts_and_cancel_end_the_run() {
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
        outcome(&outputs)
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("timeout of 5s")
    );
    let mut run = runner(r#"[["a","T",{}]]"#, config);
    drain(&mut run);
    run.cancel(now(1)).unwrap();
    let outputs = drain(&mut run);
    assert!(matches!(
        outputs[..],
        [Output::Cancel { .. }, Output::Ended(_)]
    ));
    assert_eq!(outcome(&outputs).end, End::Cancelled);
    let Reply::Err(error) =
        outcome(&outputs).answer(Timestamp::EPOCH, &message("[]"), &mut IdSource::seeded(1))
    else {
        panic!()
    };
    assert_eq!(
        (error.code, error.details.as_str()),
        (Code::StepFailed, "cancelled")
    );
    let mut run = runner(
        r#"[["a","T",{}]]"#,
        Config::default().with_run_timeout(Duration::from_secs(9)),
    );
    drain(&mut run);
    assert_eq!(run.poll_timeout(), Some(now(9).mono));
    run.handle_timeout(now(9));
    assert!(
        outcome(&drain(&mut run))
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("the run exceeded")
    );
}

#[test]
fn progress_extends_the_idle_timeout_alone() {
    let config = Config::default()
        .with_idle_timeout(Duration::from_secs(2))
        .with_step_timeout(Duration::from_secs(5));
    let mut run = runner(r#"[["a","T",{}]]"#, config.clone());
    drain(&mut run);
    for second in [1, 2, 3] {
        run.handle_input(now(second), Input::Progress { ticket: first(1) })
            .unwrap();
    }
    run.handle_timeout(now(4));
    assert_eq!((run.end(), run.poll_timeout()), (None, Some(now(5).mono)));
    run.handle_timeout(now(5));
    assert!(
        outcome(&drain(&mut run))
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("exceeded its timeout")
    );
    let mut run = runner(r#"[["a","T",{}]]"#, config);
    run.handle_timeout(now(2));
    assert!(
        outcome(&drain(&mut run))
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("no progress for 2s")
    );
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let refused = |config: Config| {
        let request = message(r#"[["a","T",{}]]"#);
        Runner::new(&request, config).unwrap_err().to_string()
    };
    for (config, why) in [
        (
            Config::default().with_max_running(0),
            "max_running is 0, but must be at least 1",
        ),
        (
            Config::default().with_max_steps(0),
            "max_steps is 0, but must be at least 1",
        ),
        (
            Config::default().with_max_bytes(0, 1),
            "max_output_bytes is 0, but must be at least 1",
        ),
        (
            Config::default().with_max_bytes(1, 0),
            "max_total_bytes is 0, but must be at least 1",
        ),
        (
            Config::default().with_step_timeout(Duration::ZERO),
            "step_timeout is 0ns, but a timeout must be longer than zero",
        ),
        (
            Config::default().with_idle_timeout(Duration::ZERO),
            "idle_timeout is 0ns, but a timeout must be longer than zero",
        ),
        (
            Config::default().with_run_timeout(Duration::ZERO),
            "run_timeout is 0ns, but a timeout must be longer than zero",
        ),
    ] {
        assert_eq!(refused(config), why);
    }
}

#[test]
fn max_running_limits_running_steps() {
    let acts: Vec<String> = (0..10).map(|n| format!("[\"v{n}\",\"T\",{{}}]")).collect();
    let plan = format!("[{{\"parallel\":[{}]}}]", acts.join(","));
    let mut run = runner(&plan, Config::default().with_max_running(3));
    let mut seen = dispatched(&drain(&mut run));
    assert_eq!(seen.len(), 3);
    while let Some(ticket) = seen.pop() {
        done(&mut run, ticket);
        seen.extend(dispatched(&drain(&mut run)));
        assert!(seen.len() <= 3);
    }
    assert_eq!(run.state(), State::Done);
}

#[test]
fn an_output_over_its_limit_fails_the_step() {
    let plan = r#"[["a","T",{}],["b","T",{}]]"#;
    let mut run = runner(plan, Config::default().with_max_bytes(4, 99));
    done(&mut run, first(1));
    assert!(
        outcome(&drain(&mut run))
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("more than 4 bytes")
    );
    let mut run = runner(plan, Config::default().with_max_bytes(9, 9));
    done(&mut run, first(1));
    done(&mut run, first(2));
    assert!(
        outcome(&drain(&mut run))
            .failure
            .as_ref()
            .unwrap()
            .to_string()
            .contains("of the run have more than 9 bytes")
    );
}

#[test]
fn ten_thousand_steps_in_two_groups_run() {
    let acts = vec![r#"["v","T",{}]"#; 5000].join(",");
    let plan = format!("[{{\"parallel\":[{acts}]}},{{\"parallel\":[{acts}]}}]");
    let mut request = message(&plan);
    request.test_mode = Some(true);
    let mut run = Runner::new(&request, Config::default()).unwrap();
    run.start(now(0));
    assert_eq!(outcome(&drain(&mut run)).end, End::Done);
}

#[test]
fn a_timeout_before_the_start_changes_nothing() {
    let request = Message::decode(br#"{"g":"G","plan":[["get","ONE",{}]]}"#).unwrap();
    let mut run = Runner::new(&request, Config::default()).unwrap();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    run.handle_timeout(now);
    assert_eq!(run.poll_output(), None);
    assert_eq!(run.end(), None);
    run.start(now);
    assert!(matches!(run.poll_output(), Some(Output::Dispatch { .. })));
}

#[test]
fn a_value_that_stands_in_for_an_output_has_its_bounds() {
    let request = Message::decode(br#"{"g":"G","plan":[["get","ONE",{}]]}"#).unwrap();
    let value = RawBuf::parse("\"too long for this\"").unwrap();
    let rule = Rule {
        recoveries: vec![Recovery::Skip(value)],
        ..Rule::default()
    };
    let config = Config::default().with_max_bytes(10, 100).with_rule(rule);
    let mut run = Runner::new(&request, config).unwrap();
    let now = Now::new(Mono::ZERO, Timestamp::EPOCH);
    run.start(now);
    let Some(Output::Dispatch { ticket, .. }) = run.poll_output() else {
        panic!("no dispatch")
    };
    let cause = Cause::permanent("down");
    run.handle_input(now, Input::Failed { ticket, cause })
        .unwrap();
    assert_eq!(run.end(), Some(&End::Failed));
}

#[test]
fn a_step_that_does_not_run_has_no_deadline() {
    let twice = vec![Recovery::Retry(Retry::fixed(2, Duration::ZERO))];
    let rule = Rule {
        verb: Some("x".into()),
        recoveries: twice,
        ..Rule::default()
    };
    let config = Config::default().with_step_timeout(Duration::from_secs(5));
    let config = config.with_rule(rule);
    let subtask = r#"[["x","T",{"subtask":{"g":"H","plan":[["a","T",{}]]}}]]"#;
    for (plan, step) in [(r#"[["x","T",{}]]"#, 1), (subtask, 2)] {
        let mut run = runner(plan, config.clone());
        assert_eq!(run.poll_timeout(), Some(now(5).mono));
        run.pause(now(1)).unwrap();
        // It is to be tried again, but not before the run goes on.
        fail(&mut run, first(step));
        assert_eq!((run.end(), run.poll_timeout()), (None, None));
    }
}
