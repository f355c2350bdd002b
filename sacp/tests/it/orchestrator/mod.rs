//! One message from its arrival to its answer.

mod access;
mod edition;
mod saved;
mod spawning;

use sacp::Graph;
use sacp::registry::{Health, MemoryRegistry, Registry, Shared};
use sacp::role::Answer;
use sacp::role::orchestrator::{
    Delegation, Input, Orchestrator, OrchestratorConfig, OrchestratorError, Output,
};
use sacp::runner::{Cause, Config, Recovery, Rule, Ticket};
use sacp::{AnyMessage, Code, ErrReply, Message, OutFmt, Reply, v1};
use ubos_common::id::IdSource;
use ubos_common::time::{Mono, Now, Timestamp};

use crate::registry::{agent, tool, verb};

fn now() -> Now {
    Now::new(Mono::ZERO, Timestamp::EPOCH)
}

pub(crate) fn library() -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    for (name, of) in [("get", "ONE"), ("get", "TWO"), ("present", "PRES")] {
        registry.add_verb(verb(name, &[])).unwrap();
        registry.add_tool(tool(of, &[name])).unwrap();
        registry
            .add_agent(agent(&format!("{of}_AGENT"), name, of, None))
            .unwrap();
    }
    registry
}

fn start(text: &str, config: OrchestratorConfig) -> Orchestrator<MemoryRegistry> {
    Orchestrator::new(
        now(),
        Message::decode(text.as_bytes()).unwrap(),
        library(),
        config,
        IdSource::seeded(7),
    )
    .unwrap()
}

/// The message of 0.1 that is delegated.
fn old(delegation: &Delegation) -> &Message {
    match &delegation.message {
        AnyMessage::V01(message) => message,
        other => panic!("{other:?}"),
    }
}

fn drain<R: Registry>(orchestrator: &mut Orchestrator<R>) -> Vec<Output> {
    core::iter::from_fn(|| orchestrator.poll_output()).collect()
}

fn delegations(wanted: &[Output]) -> Vec<Delegation> {
    let delegation = |wanted: &Output| match wanted {
        Output::Delegate(delegation) => Some((**delegation).clone()),
        _ => None,
    };
    wanted.iter().filter_map(delegation).collect()
}

fn answer<R: Registry>(orchestrator: &mut Orchestrator<R>, ticket: Ticket, text: &str) {
    orchestrator
        .handle_input(
            now(),
            Input::Answered {
                ticket,
                bytes: text.as_bytes().to_vec(),
            },
        )
        .unwrap();
}

fn result(value: &str) -> String {
    format!(r#"{{"g":"G","plan":[],"ctx":{{"result":{value}}},"state":"DONE"}}"#)
}

fn error(wanted: &[Output]) -> &ErrReply {
    match wanted.last() {
        Some(Output::Answer(finished)) => match &**finished {
            Answer::Reply(Reply::Err(error)) => error,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

const TWO_AND_MERGE: &str = r#"{"msg_id":"m","g":"G","ctx":{"a":1},"plan":[{"parallel":[["get","ONE",{"p":1}],["get","TWO",{}]]},["join","MERGE",{}]]}"#;

// spec: SACP-3-2, SACP-3-8
#[test]
fn acts_are_delegated_to_registered_agents_and_gathered() {
    let mut run = start(TWO_AND_MERGE, OrchestratorConfig::default());
    let asked = delegations(&drain(&mut run));
    let names: Vec<_> = asked
        .iter()
        .map(|ask| ask.agent.agent_name.clone())
        .collect();
    assert_eq!(names, ["ONE_AGENT", "TWO_AGENT"]);
    assert!(!run.is_closed());
    let first = old(&asked[0]);
    assert_eq!(Message::decode(&first.encode()).unwrap(), *first);
    assert_eq!(
        (first.g.as_str(), first.msg_id.as_deref()),
        ("G", Some("m.1.1"))
    );
    assert_eq!(
        Graph::from(&first.plan).steps()[0].act.params.as_str(),
        r#"{"p":1}"#
    );
    assert_eq!(first.context.as_ref().unwrap()["a"].as_str(), "1");
    answer(&mut run, asked[1].ticket, &result("2"));
    answer(&mut run, asked[0].ticket, &result("1"));
    let wanted = drain(&mut run);
    let [Output::Answer(finished)] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    let Answer::Reply(Reply::Message(reply)) = &**finished else {
        panic!("{finished:?}")
    };
    assert_eq!(reply.context.as_ref().unwrap()["result"].as_str(), "[1,2]");
    assert_eq!(reply.reply_to.as_deref(), Some("m"));
    assert!(run.is_closed());
    assert_eq!(run.cancel(now()), Err(OrchestratorError::Closed));
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    let config = OrchestratorConfig::default().with_run(Config::default().with_max_running(0));
    let request = Message::decode(TWO_AND_MERGE.as_bytes()).unwrap();
    let refused = Orchestrator::new(now(), request, library(), config, IdSource::seeded(7));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "max_running is 0, but must be at least 1"
    );
}

// spec: SACP-3-8
#[test]
fn a_later_act_sees_earlier_results() {
    let text = r#"{"g":"G","plan":[["get","ONE",{}],["get","TWO",{}],["get","ONE",{}]]}"#;
    let mut run = start(text, OrchestratorConfig::default().with_max_shared_bytes(5));
    let mut seen = Vec::new();
    for value in ["\"aaa\"", "\"b\"", "0"] {
        let ask = delegations(&drain(&mut run)).remove(0);
        let ctx = old(&ask).context.clone().unwrap();
        let member = |name: &str| {
            ctx.get(name)
                .map(|value| value.as_str().to_owned())
                .unwrap_or_default()
        };
        seen.push((member("inputs"), member("results")));
        answer(&mut run, ask.ticket, &result(value));
    }
    let wanted = [
        ("", ""),
        (r#"["aaa"]"#, r#"{"1":"aaa"}"#),
        (r#"["b"]"#, r#"{"2":"b"}"#),
    ];
    assert_eq!(
        seen,
        wanted.map(|(inputs, results)| (inputs.to_owned(), results.to_owned()))
    );
}

// spec: SACP-4-2, SACP-4-1
#[test]
fn what_is_delegated_is_raw_but_for_the_one_who_writes_for_a_person() {
    let text = r#"{"msg_id":"m","g":"G","plan":[["get","ONE",{}],["present","PRES",{}]],"out_fmt":"human"}"#;
    let config = || OrchestratorConfig::default().with_formatter("PRES_AGENT");
    let mut run = start(text, config());
    let first = delegations(&drain(&mut run)).remove(0);
    assert_eq!(old(&first).out_fmt, Some(OutFmt::Raw));
    answer(&mut run, first.ticket, &result("1"));
    let last = delegations(&drain(&mut run)).remove(0);
    assert_eq!(old(&last).out_fmt, Some(OutFmt::Human));
    answer(&mut run, last.ticket, "There is one.");
    let wanted = drain(&mut run);
    assert_eq!(
        wanted,
        [Output::Answer(Box::new(Answer::Prose(
            "There is one.".into()
        )))]
    );
    // The same agent in a message that is raw, and another in one that is human, must not speak.
    let mut run = start(&text.replace("human", "raw"), config());
    let first = delegations(&drain(&mut run)).remove(0);
    answer(&mut run, first.ticket, "One, I think.");
    let wanted = drain(&mut run);
    assert!(
        error(&wanted)
            .details
            .contains("not asked for out_fmt human"),
        "{wanted:?}"
    );
}

// spec: SACP-3-3
#[test]
fn the_next_best_agent_takes_over_where_the_rules_say_so() {
    let mut registry = library();
    registry
        .add_agent(agent("BETTER", "get", "ONE", Some(0.9)))
        .unwrap();
    registry
        .add_agent(agent("SICK", "get", "ONE", Some(0.8)))
        .unwrap();
    registry.set_health("SICK", Health::Unhealthy).unwrap();
    let rule = Rule {
        recoveries: vec![Recovery::OtherAgents { up_to: 5 }],
        ..Rule::default()
    };
    let config = OrchestratorConfig::default().with_run(Config::default().with_rule(rule));
    let request = Message::decode(br#"{"g":"G","plan":[["get","ONE",{}]]}"#).unwrap();
    let mut run = Orchestrator::new(
        now(),
        request,
        Shared::new(registry),
        config,
        IdSource::seeded(7),
    )
    .unwrap();
    let mut names = Vec::new();
    loop {
        let wanted = drain(&mut run);
        let Some(ask) = delegations(&wanted).pop() else {
            assert!(
                error(&wanted).details.contains("no agent is available"),
                "{wanted:?}"
            );
            break;
        };
        names.push(ask.agent.agent_name.clone());
        run.handle_input(
            now(),
            Input::Failed {
                ticket: ask.ticket,
                cause: Cause::tool("down"),
            },
        )
        .unwrap();
    }
    assert_eq!(names, ["BETTER", "ONE_AGENT"]);
}

#[test]
fn answers_out_of_place_are_refused_and_wrong_ones_fail_the_step() {
    let mut run = start(
        r#"{"g":"G","plan":[["get","ONE",{}]]}"#,
        OrchestratorConfig::default(),
    );
    let ask = delegations(&drain(&mut run)).remove(0);
    let other = Ticket {
        step: 9,
        attempt: 1,
        epoch: 0,
    };
    for said in [
        Input::Answered {
            ticket: other,
            bytes: vec![],
        },
        Input::Progress { ticket: other },
    ] {
        assert_eq!(
            run.handle_input(now(), said),
            Err(OrchestratorError::NotRequested)
        );
    }
    answer(
        &mut run,
        ask.ticket,
        r#"{"g":"G","plan":[],"reply_to":"somebody-else"}"#,
    );
    assert_eq!(
        error(&drain(&mut run)).details,
        "act 1: the answer belongs to another message"
    );
    for (text, why) in [
        (r#"{"status":"VALID"}"#, "has no result"),
        (
            r#"{"status":"ERR","code":"INTERNAL_ERROR","details":"boom"}"#,
            "boom",
        ),
        (
            r#"{"g":"G","plan":[],"state":"FAILED"}"#,
            "the agent failed",
        ),
        ("{", "UnexpectedEnd"),
    ] {
        let mut run = start(
            r#"{"g":"G","plan":[["get","ONE",{}]]}"#,
            OrchestratorConfig::default(),
        );
        let ask = delegations(&drain(&mut run)).remove(0);
        answer(&mut run, ask.ticket, text);
        let wanted = drain(&mut run);
        let error = error(&wanted);
        assert_eq!(error.code, Code::StepFailed);
        assert!(
            error.details.contains(why) || why == "UnexpectedEnd",
            "{error}"
        );
    }
}

// spec: SACP-2-7
#[test]
fn what_an_agent_lacks_and_an_empty_plan_are_asked_back() {
    let mut run = start(TWO_AND_MERGE, OrchestratorConfig::default());
    let asked = delegations(&drain(&mut run));
    answer(
        &mut run,
        asked[0].ticket,
        r#"{"status":"REQ_CLARIFY","missing":["date"],"details":"which?"}"#,
    );
    let wanted = drain(&mut run);
    let [Output::Cancel { ticket }, Output::Answer(finished)] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    assert_eq!(*ticket, asked[1].ticket);
    let Answer::Reply(Reply::Clarify(clarify)) = &**finished else {
        panic!()
    };
    assert_eq!(
        (clarify.missing.as_slice(), clarify.reply_to.as_deref()),
        (&["date".to_owned()][..], Some("m"))
    );
    let mut run = start(r#"{"g":"G","plan":[]}"#, OrchestratorConfig::default());
    let wanted = drain(&mut run);
    assert!(
        matches!(&wanted[..], [Output::Answer(f)] if matches!(**f, Answer::Reply(Reply::Clarify(_))))
    );
}

#[test]
fn cancel_stops_every_question() {
    let mut run = start(TWO_AND_MERGE, OrchestratorConfig::default());
    drain(&mut run);
    run.cancel(now()).unwrap();
    let wanted = drain(&mut run);
    assert!(
        matches!(
            &wanted[..],
            [
                Output::Cancel { .. },
                Output::Cancel { .. },
                Output::Answer(_)
            ]
        ),
        "{wanted:?}"
    );
    assert_eq!(error(&wanted).details, "cancelled");
}

// spec: SACP-2-6
#[test]
fn an_answer_that_is_not_at_its_end_is_none() {
    let mut run = start(
        r#"{"g":"G","plan":[["get","ONE",{}]]}"#,
        OrchestratorConfig::default(),
    );
    let asked = delegations(&drain(&mut run));
    // The question itself, sent back.
    let echo = String::from_utf8(asked[0].message.encode()).unwrap();
    answer(&mut run, asked[0].ticket, &echo);
    assert!(error(&drain(&mut run)).details.contains("PENDING"));
}

// spec: SACP-2-9, SACP-4-2
#[test]
fn an_act_of_a_subtask_is_delegated_with_goal_and_context_of_the_subtask_and_raw() {
    let text = r#"{"msg_id":"m","g":"G","ctx":{"a":1},"out_fmt":"human","plan":[["get","ONE",{}],
        ["get","TWO",{"subtask":{"g":"H","ctx":{"b":2},"plan":[["get","TWO",{}],["present","PRES",{}]]}}]]}"#;
    let config = OrchestratorConfig::default().with_formatter("PRES_AGENT");
    let mut run = start(text, config);
    let asked = delegations(&drain(&mut run));
    answer(&mut run, asked[0].ticket, &result("1"));
    let asked = delegations(&drain(&mut run));
    let inner = old(&asked[0]);
    let ctx = inner.context.as_ref().unwrap();
    assert_eq!((inner.g.as_str(), ctx["b"].as_str()), ("H", "2"));
    assert!(
        !ctx.contains_key("a") && !ctx.contains_key("results"),
        "{ctx:?}"
    );
    answer(&mut run, asked[0].ticket, &result("5"));
    let asked = delegations(&drain(&mut run));
    let inner = old(&asked[0]);
    assert_eq!(
        inner.context.as_ref().unwrap()["results"].as_str(),
        r#"{"1":5}"#
    );
    assert_eq!(inner.out_fmt(), OutFmt::Raw);
}

#[test]
fn the_id_of_a_delegation_begins_with_that_of_its_request_unless_that_is_long() {
    for (length, is_kept) in [(96, true), (97, false)] {
        let id = "m".repeat(length);
        let text = format!(r#"{{"msg_id":"{id}","g":"G","plan":[["get","ONE",{{}}]]}}"#);
        let mut run = start(&text, OrchestratorConfig::default());
        let asked = delegations(&drain(&mut run));
        let own = old(&asked[0]).msg_id.as_deref().unwrap();
        assert_eq!(own.starts_with(&id), is_kept, "{own}");
    }
}

// spec: SACP-3-8
#[test]
fn a_join_with_merge_needs_no_registration() {
    let text = r#"{"g":"G","plan":[{"parallel":[["get","ONE",{}],["get","TWO",{}]]},["join","MERGE",{}]]}"#;
    let mut orchestrator = start(text, OrchestratorConfig::default());
    for delegation in delegations(&drain(&mut orchestrator)) {
        answer(&mut orchestrator, delegation.ticket, &result("1"));
    }
    let outputs = drain(&mut orchestrator);
    assert!(
        matches!(outputs.last(), Some(Output::Answer(last)) if matches!(&**last, Answer::Reply(Reply::Message(_)))),
        "{outputs:?}"
    );
}

/// An orchestrator of a message of 1.0 with these steps and further members.
fn request_new(steps: &str, more: &str) -> v1::Message {
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"o","g":"G",
        "plan":[{steps}],"state":"PENDING"{more}}}"#
    );
    v1::Message::decode(text.as_bytes()).unwrap()
}

fn start_new(steps: &str, more: &str, config: OrchestratorConfig) -> Orchestrator<MemoryRegistry> {
    let message = request_new(steps, more);
    Orchestrator::new(now(), message, library(), config, IdSource::seeded(7)).unwrap()
}

/// The delegated message of 1.0, as its agent reads it.
fn new(delegation: &Delegation) -> v1::Message {
    v1::Message::decode(&delegation.message.encode()).unwrap()
}

/// The answer of an agent to a message of 1.0.
fn state_of(request: &v1::Message, state: &str, more: &str) -> String {
    let mut text = String::from_utf8(request.encode()).unwrap();
    text = text.replace(
        r#""state":"PENDING""#,
        &format!(r#""state":"{state}"{more}"#),
    );
    let id = request.msg_id.as_str();
    text.replacen(
        &format!(r#""msg_id":"{id}""#),
        &format!(r#""msg_id":"answer-{state}","reply_to":"{id}""#),
        1,
    )
}

fn new_answer(outputs: &[Output]) -> v1::Message {
    match outputs.last() {
        Some(Output::Answer(last)) => match &**last {
            // What is sent can be read.
            Answer::Reply(Reply::V10(answer)) => v1::Message::decode(&answer.encode()).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

const ONE: &str = r#"{"id":"one","verb":"get","tool":"ONE","params":{},"output_key":"a"}"#;
const TWO: &str = r#"{"id":"two","verb":"get","tool":"TWO","params":{"n":1},"depends_on":["one"],"output_key":"b"}"#;

#[test]
fn progress_keeps_an_agent_that_is_slow() {
    let at = |seconds: u64| Now::new(Mono::from_millis(seconds * 1000), Timestamp::EPOCH);
    let idle = core::time::Duration::from_secs(10);
    let config = Config::default().with_idle_timeout(Some(idle));
    let config = OrchestratorConfig::default().with_run(config);
    let mut run = start(r#"{"g":"G","plan":[["get","ONE",{}]]}"#, config);
    let ticket = delegations(&drain(&mut run))[0].ticket;
    run.handle_input(at(8), Input::Progress { ticket }).unwrap();
    assert_eq!(run.poll_timeout(), Some(at(18).mono));
}
