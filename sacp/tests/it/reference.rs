//! A reference interpreter: small plans, every fate of every step, every order of results, against a naive reading of the
//! rules.

use core::time::Duration;

use sacp::runner::{Config, End, Output, Recovery, ResumeError, Rule, Runner, StepState};
use sacp::{Graph, OnError, Retry, v1};

use crate::runner::{dispatched, done, drain, fail, now, plan, run_of};

/// What becomes of the attempts at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Good,
    Bad,
    /// The first attempt fails, the second does not.
    Late,
}

/// What the rules say, worked out without time: each step's end, or none where the message failed.
fn expected(graph: &Graph, good: &dyn Fn(usize) -> bool) -> Option<Vec<StepState>> {
    let count = graph.steps().len();
    let mut states: Vec<Option<StepState>> = vec![None; count + 1];
    let mut called = vec![false; count + 1];
    // Steps are settled in any order in which each comes behind what it waits for.
    for _ in 0..=2 * count {
        for step in graph.steps() {
            let n = step.number;
            if states[n].is_some() || (step.policy.replaces.is_some() && !called[n]) {
                continue;
            }
            if step.after.iter().any(|before| {
                matches!(
                    states[*before],
                    Some(StepState::Failed | StepState::Skipped)
                )
            }) {
                if called[n] {
                    return None;
                }
                states[n] = Some(StepState::Skipped);
            } else if step
                .after
                .iter()
                .all(|before| states[*before] == Some(StepState::Done))
            {
                states[n] = Some(match step.policy.on_error {
                    _ if good(n) => StepState::Done,
                    _ if step.policy.replaces.is_some() => return None,
                    Some(OnError::Continue) => StepState::Failed,
                    Some(OnError::Fallback(other)) => {
                        called[other] = true;
                        match states[other] {
                            Some(StepState::Done) => StepState::Done,
                            _ => continue,
                        }
                    }
                    _ => return None,
                });
            }
        }
    }
    Some(
        states
            .into_iter()
            .skip(1)
            .map(|state| state.unwrap_or(StepState::Skipped))
            .collect(),
    )
}

/// Runs a message in every order in which its outcomes can come, and holds each run against the rules.
fn explore(message: &v1::Message, config: &Config, fates: &[Fate]) -> usize {
    let graph = &Graph::from(message);
    let attempts = |n: usize| {
        graph
            .step(n)
            .and_then(|step| step.policy.retry)
            .map_or(1, |retry| retry.max_attempts)
    };
    let good = |n: usize| match fates[n - 1] {
        Fate::Good => true,
        Fate::Late => attempts(n) > 1,
        Fate::Bad => false,
    };
    let expected = expected(graph, &good);
    let mut orders = 0;
    let mut choices: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut run = run_of(message, config.clone());
        let mut running = Vec::new();
        let mut depth = 0;
        let mut ended = None;
        loop {
            for output in drain(&mut run) {
                match output {
                    Output::Dispatch { ticket, .. } => {
                        let before = &graph.step(ticket.step).unwrap().after;
                        assert!(
                            before
                                .iter()
                                .all(|n| run.view(now(0), *n).state == StepState::Done)
                        );
                        assert!(ticket.attempt <= attempts(ticket.step));
                        running.push(ticket);
                    }
                    Output::Cancel { ticket } => running.retain(|other| *other != ticket),
                    Output::Ended(outcome) => ended = Some(outcome),
                    other => panic!("{other:?}"),
                }
            }
            if ended.is_some() {
                break;
            }
            assert!(
                !running.is_empty(),
                "a run that neither runs nor ends: {graph:?} {fates:?}"
            );
            if depth == choices.len() {
                choices.push((0, running.len()));
            }
            let ticket = running.remove(choices[depth].0);
            depth += 1;
            match fates[ticket.step - 1] {
                Fate::Good => done(&mut run, ticket),
                Fate::Late if ticket.attempt > 1 => done(&mut run, ticket),
                _ => fail(&mut run, ticket),
            }
        }
        let outcome = ended.unwrap();
        assert!(running.is_empty() && run.is_closed());
        match &expected {
            Some(states) => {
                let seen: Vec<_> = outcome.steps.iter().map(|step| step.state).collect();
                assert_eq!(
                    (outcome.end, &seen),
                    (End::Done, states),
                    "{graph:?} {fates:?}"
                );
            }
            None => assert_eq!(outcome.end, End::Failed, "{graph:?} {fates:?}"),
        }
        orders += 1;
        // The next order: the last choice that has another.
        choices.truncate(depth);
        while choices.last().is_some_and(|(taken, of)| taken + 1 == *of) {
            choices.pop();
        }
        match choices.last_mut() {
            Some((taken, _)) => *taken += 1,
            None => return orders,
        }
    }
}

fn fates(count: usize, each: &[Fate], with: &mut dyn FnMut(&[Fate])) {
    let total = each.len().pow(u32::try_from(count).unwrap());
    for n in 0..total {
        let mut rest = n;
        let fates: Vec<Fate> = (0..count)
            .map(|_| {
                let fate = each[rest % each.len()];
                rest /= each.len();
                fate
            })
            .collect();
        with(&fates);
    }
}

/// Plans of up to four acts: every way to cut them into groups that follow one another.
// spec: SACP-3-1, SACP-3-3
#[test]
fn plans_of_four_acts_end_as_the_rules_say_in_every_order() {
    let mut orders = 0;
    for count in 1..=4_usize {
        for cuts in 0..1_usize << (count - 1) {
            let mut after: Vec<Vec<usize>> = Vec::new();
            let (mut before, mut members): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
            for n in 1..=count {
                after.push(before.clone());
                members.push(n);
                if cuts >> (n - 1) & 1 == 1 {
                    before = core::mem::take(&mut members);
                }
            }
            let after: Vec<&[usize]> = after.iter().map(Vec::as_slice).collect();
            for policy in [
                "",
                r#","on_error":"continue""#,
                r#","retry":{"max_attempts":2}"#,
            ] {
                let message = plan(&after, |_| policy.to_owned());
                fates(count, &[Fate::Good, Fate::Bad, Fate::Late], &mut |fates| {
                    orders += explore(&message, &Config::default(), fates);
                });
            }
        }
    }
    assert!(orders > 10_000, "{orders}");
}

/// Every graph of three steps, each of which fails fast, continues, or has a fallback step.
// spec: SACP1-6-3
#[test]
fn graphs_of_three_steps_with_fallbacks_end_as_the_rules_say_in_every_order() {
    let mut orders = 0;
    for edges in 0..1_usize << 3 {
        let second: Vec<usize> = (edges & 1 == 1).then_some(1).into_iter().collect();
        let third: Vec<usize> = (1..=2).filter(|n| edges >> n & 1 == 1).collect();
        for ways in 0..27_usize {
            let way = |n: u32| ways / 3_usize.pow(n - 1) % 3;
            let fallbacks: Vec<u32> = (1..=3).filter(|n| way(*n) == 2).collect();
            let mut after: Vec<&[usize]> = vec![&[], &second, &third];
            after.extend(fallbacks.iter().map(|_| -> &[usize] { &[] }));
            let message = plan(&after, |n| match u32::try_from(n) {
                Ok(n @ 1..=3) if way(n) == 1 => r#","on_error":"continue""#.to_owned(),
                Ok(n @ 1..=3) if way(n) == 2 => {
                    let place = fallbacks.iter().position(|other| *other == n).unwrap();
                    format!(r#","on_error":"fallback","fallback_step":"s{}""#, 4 + place)
                }
                _ => String::new(),
            });
            fates(
                3 + fallbacks.len(),
                &[Fate::Good, Fate::Bad],
                &mut |fates| orders += explore(&message, &Config::default(), fates),
            );
        }
    }
    assert!(orders > 5_000, "{orders}");
}

/// A run that is saved and restored between any two results ends as one that was not.
#[test]
fn a_restored_run_ends_as_an_unbroken_one() {
    let text = br#"{"msg_id":"m","g":"G","plan":[["a","T",{}],{"parallel":[["b","T",{}],["c","T",{"subtask":
        {"g":"H","plan":[["d","T",{}],["e","T",{}]]}}],["x","X",{}]]},["join","J",{}],["f","T",{}]],
        "subtask":{"g":"I","plan":[["i","T",{}]]}}"#;
    let message = sacp::Message::decode(text).unwrap();
    let rule = Rule {
        tool: Some("X".into()),
        recoveries: vec![
            Recovery::Retry(Retry::fixed(2, Duration::from_secs(1))),
            Recovery::Skip(ubos_common::json::RawBuf::parse("null").unwrap()),
        ],
        ..Rule::default()
    };
    let config = Config::default().with_rule(rule);
    let play = |cut: Option<usize>| {
        let mut run = Runner::new(&message, config.clone()).unwrap();
        run.start(now(0));
        let mut running = Vec::new();
        for turn in 0.. {
            if cut == Some(turn) {
                let saved = run.save(now(1))?;
                run = Runner::new(&message, config.clone()).unwrap();
                run.restore(now(1), &saved).unwrap();
                running.clear();
            }
            let outputs = drain(&mut run);
            running.extend(dispatched(&outputs));
            if let Some(Output::Ended(outcome)) = outputs.last() {
                let ends: Vec<_> = outcome
                    .steps
                    .iter()
                    .map(|step| (step.state, step.output.clone()))
                    .collect();
                return Some((outcome.end, ends, outcome.result.clone()));
            }
            if running.is_empty() {
                let due = run.poll_timeout().expect("a run that waits for nothing");
                run.handle_timeout(ubos_common::time::Now::new(due, now(0).wall));
                continue;
            }
            let ticket = running.remove(0);
            let is_x = run.graph().step(ticket.step).unwrap().act.tool == "X";
            if is_x {
                fail(&mut run, ticket)
            } else {
                done(&mut run, ticket)
            }
        }
        None
    };
    let whole = play(None).unwrap();
    let cuts = (0..30).take_while(|cut| {
        play(Some(*cut))
            .inspect(|end| assert_eq!(*end, whole, "cut {cut}"))
            .is_some()
    });
    assert!(cuts.count() > 8);
}

#[test]
fn a_saved_run_of_another_plan_is_refused() {
    let message = |plan: &str| {
        sacp::Message::decode(format!("{{\"g\":\"G\",\"plan\":{plan}}}").as_bytes()).unwrap()
    };
    let plan = message(r#"[["a","T",{}],["b","T",{}]]"#);
    let mut run = Runner::new(&plan, Config::default()).unwrap();
    assert_eq!(run.save(now(0)), None);
    run.start(now(0));
    let saved = String::from_utf8(run.save(now(0)).unwrap()).unwrap();
    let restore = |text: &str| {
        let mut other = Runner::new(&plan, Config::default()).unwrap();
        let refused = other.restore(now(0), text.as_bytes()).unwrap_err();
        other.start(now(0));
        assert_eq!(
            dispatched(&drain(&mut other)).len(),
            1,
            "a refused restore changes nothing"
        );
        refused
    };
    assert_eq!(
        run.restore(now(0), saved.as_bytes()),
        Err(ResumeError::Started)
    );
    assert!(matches!(restore("{}"), ResumeError::Unreadable(_)));
    assert!(matches!(
        restore(&saved.replace("\"sacp_run\":2", "\"sacp_run\":3")),
        ResumeError::Version { seen: 3, .. }
    ));
    let ahead = saved.replacen("\"waiting\"", "\"running\"", 1);
    assert_eq!(restore(&ahead), ResumeError::Inconsistent { step: 2 });
    let inner = saved.replacen("\"running\"", "\"inner\"", 1);
    assert_eq!(restore(&inner), ResumeError::Inconsistent { step: 1 });
    let replaced = saved.replacen("\"running\"", "\"replaced\"", 1);
    assert_eq!(restore(&replaced), ResumeError::Inconsistent { step: 1 });
    let mut other = Runner::new(
        &message(r#"[["a","T",{}],["c","T",{}]]"#),
        Config::default(),
    )
    .unwrap();
    assert_eq!(
        other.restore(now(0), saved.as_bytes()),
        Err(ResumeError::OtherPlan)
    );
}
