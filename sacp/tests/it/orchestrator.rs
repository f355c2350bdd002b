//! One message from its arrival to its answer.

use std::sync::Arc;

use sacp::Graph;
use sacp::registry::{AgentRecord, Health, MemoryRegistry, Registry, Shared};
use sacp::role::Answer;
use sacp::role::orchestrator::{
    Delegation, Input, Orchestrator, OrchestratorConfig, OrchestratorError, Output, RestoreError,
};
use sacp::role::{AllowList, Grant};
use sacp::runner::{Cause, Config, Recovery, Rule, Ticket};
use sacp::spawn::{PromptSpawner, serve};
use sacp::{AnyMessage, Code, ErrReply, Message, MessageRef, OutFmt, Reply, v1};
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

// spec: SACP-14-1
#[test]
fn what_is_missing_is_spawned_by_messages_and_the_plan_goes_on() {
    let text = r#"{"msg_id":"m","g":"TRIP","plan":[["check","VISA",{"citizenship":"PT"}]]}"#;
    let mut run = start(text, OrchestratorConfig::default().with_spawning(true));
    let wanted = drain(&mut run);
    let [Output::Spawn(request)] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    let read = Message::decode(&request.encode()).unwrap();
    let ctx = read.context.clone().unwrap();
    assert_eq!(
        (read.g.as_str(), read.out_fmt()),
        ("SPAWN_AGENT", OutFmt::Raw)
    );
    assert_eq!(ctx["input_hints"].as_str(), r#"["citizenship"]"#);
    assert!(ctx.contains_key("missing_capability") && ctx.contains_key("output_expectation"));
    // The service elsewhere has a registry of its own.
    let mut service = MemoryRegistry::default();
    let confirmation = serve(
        now(),
        &read,
        &mut service,
        &mut PromptSpawner::default(),
        "c-1",
    );
    let Reply::Message(confirmed) = &confirmation else {
        panic!("{confirmation:?}")
    };
    assert_eq!(
        (confirmed.g.as_str(), confirmed.reply_to.as_deref()),
        ("SPAWN_AGENT", Some("m.spawn.1"))
    );
    let record: serde_json::Value = confirmed.context.as_ref().unwrap()["agent"]
        .deserialize()
        .unwrap();
    assert_eq!(record["agent_name"], "VISA_AGENT");
    run.handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let asked = delegations(&drain(&mut run));
    assert_eq!(asked[0].agent.agent_name, "VISA_AGENT");
    assert_eq!(
        run.registry().agent("VISA_AGENT").unwrap().inputs,
        ["citizenship"]
    );
}

// spec: SACP-14-1
#[test]
fn a_spawn_that_fails_or_is_not_what_was_asked_for_ends_the_message() {
    let text = r#"{"msg_id":"m","g":"TRIP","plan":[["check","VISA",{}]]}"#;
    let refused = |reply: Reply| {
        let mut run = start(text, OrchestratorConfig::default().with_spawning(true));
        drain(&mut run);
        run.handle_input(now(), Input::Spawned(Box::new(reply)))
            .unwrap();
        let wanted = drain(&mut run);
        let error = error(&wanted);
        assert_eq!(
            (error.code, error.pointer.as_deref()),
            (Code::SpawnFailed, Some("/plan/0"))
        );
        error.details.clone()
    };
    assert!(refused(Reply::Err(ErrReply::new(Code::SpawnFailed, "no room"))).contains("no room"));
    assert!(refused(Reply::Valid { reply_to: None }).contains("no confirmation"));
    let confirmation = |agent: &AgentRecord, reply_to: &str| {
        let record = ubos_common::json::to_string(agent);
        let text = format!(
            r#"{{"g":"SPAWN_AGENT","plan":[],"state":"DONE","reply_to":"{reply_to}","ctx":{{"agent":{record}}}}}"#
        );
        Reply::Message(Box::new(Message::decode(text.as_bytes()).unwrap()))
    };
    let wrong = agent("VISA_AGENT", "check", "OTHER", None);
    assert!(refused(confirmation(&wrong, "m.spawn.1")).contains("not what was asked for"));
    let right = agent("VISA_AGENT", "check", "VISA", None);
    assert!(refused(confirmation(&right, "m.spawn.2")).contains("another request"));
    // Without a spawner, and for a pair that does not go together, the gap itself is the answer.
    let mut run = start(text, OrchestratorConfig::default());
    assert_eq!(error(&drain(&mut run)).code, Code::UnknownVerb);
    let mismatch = r#"{"g":"G","plan":[["present","ONE",{}]]}"#;
    let mut run = start(mismatch, OrchestratorConfig::default().with_spawning(true));
    assert_eq!(error(&drain(&mut run)).code, Code::VerbToolMismatch);
}

// spec: SACP-14-1, SACP-3-4
#[test]
fn test_mode_reaches_what_is_spawned_and_nobody_is_asked() {
    let text = r#"{"g":"TRIP","plan":[["check","VISA",{}]],"test_mode":true}"#;
    let mut run = start(text, OrchestratorConfig::default().with_spawning(true));
    let wanted = drain(&mut run);
    let [Output::Spawn(request)] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    assert!(MessageRef::from(&**request).is_test());
    let mut service = MemoryRegistry::default();
    let confirmation = serve(
        now(),
        &**request,
        &mut service,
        &mut PromptSpawner::default(),
        "c",
    );
    assert!(
        service.query(&sacp::registry::Query::default()).is_empty(),
        "a rehearsal registers nothing at the service"
    );
    run.handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let wanted = drain(&mut run);
    assert!(matches!(&wanted[..], [Output::Answer(_)]), "{wanted:?}");
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

// spec: SACP-3-7
#[test]
fn nobody_is_asked_where_a_subtask_has_an_act_that_nobody_serves() {
    let inside = r#"{"g":"G","plan":[["get","ONE",{}],["get","TWO",{"subtask":{"g":"H","plan":[["fly","ONE",{}]]}}]]}"#;
    let mut run = start(inside, OrchestratorConfig::default());
    let wanted = drain(&mut run);
    assert!(delegations(&wanted).is_empty(), "{wanted:?}");
    let error = error(&wanted);
    assert_eq!(
        (error.code, error.pointer.as_deref()),
        (Code::UnknownVerb, Some("/plan/1/2/subtask/plan/0"))
    );
    let behind =
        r#"{"g":"G","plan":[["get","ONE",{}]],"subtask":{"g":"H","plan":[["get","SIX",{}]]}}"#;
    let mut run = start(behind, OrchestratorConfig::default());
    assert_eq!(self::error(&drain(&mut run)).code, Code::UnknownTool);
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

// spec: SACP-3-4
#[test]
fn a_rehearsal_leaves_the_registry_as_it_is() {
    let text = r#"{"g":"TRIP","plan":[["check","VISA",{}],["check","VISA",{}]],"test_mode":true}"#;
    let mut run = start(text, OrchestratorConfig::default().with_spawning(true));
    let wanted = drain(&mut run);
    let [Output::Spawn(request)] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    let mut service = MemoryRegistry::default();
    let confirmation = serve(
        now(),
        &**request,
        &mut service,
        &mut PromptSpawner::default(),
        "c",
    );
    run.handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let wanted = drain(&mut run);
    let [Output::Answer(finished)] = &wanted[..] else {
        panic!("{wanted:?}")
    };
    assert!(matches!(&**finished, Answer::Reply(Reply::Message(_))));
    assert_eq!(run.registry().agent("VISA_AGENT"), None);
    assert_eq!(run.registry().tool("VISA"), None);
}

// spec: SACP-3-4, SACP-8-2
#[test]
fn a_rehearsed_spawn_excuses_no_other_fault_of_its_act() {
    use ubos_common::json::RawBuf;
    let mut registry = library();
    let input = RawBuf::parse(r#"{"name":"n","type":"number"}"#).unwrap();
    let mut check = verb("check", &[]);
    check.inputs = vec![input];
    registry.add_verb(check).unwrap();
    for (n, is_refused) in [("1", false), ("\"one\"", true)] {
        let text =
            format!(r#"{{"g":"TRIP","plan":[["check","VISA",{{"n":{n}}}]],"test_mode":true}}"#);
        let message = Message::decode(text.as_bytes()).unwrap();
        let config = OrchestratorConfig::default().with_spawning(true);
        let ids = IdSource::seeded(7);
        let mut run = Orchestrator::new(now(), message, registry.clone(), config, ids).unwrap();
        let wanted = drain(&mut run);
        let [Output::Spawn(request)] = &wanted[..] else {
            panic!("{wanted:?}")
        };
        let mut service = MemoryRegistry::default();
        let spawner = &mut PromptSpawner::default();
        let confirmation = serve(now(), &**request, &mut service, spawner, "c");
        run.handle_input(now(), Input::Spawned(Box::new(confirmation)))
            .unwrap();
        let wanted = drain(&mut run);
        let [Output::Answer(answer)] = &wanted[..] else {
            panic!("{wanted:?}")
        };
        assert_eq!(
            matches!(&**answer, Answer::Reply(Reply::Clarify(_))),
            is_refused,
            "{answer:?}"
        );
    }
}

const WIDE: &str = r#"{"msg_id":"m","g":"G","ctx":{"forbidden_tools":["ONE"],"budget":1},
    "plan":[["get","ONE",{"budget":99}]]}"#;

// spec: SACP-3-7, SACP-9-1
#[test]
fn a_plan_with_a_must_finding_is_refused_before_anything_is_delegated() {
    let mut strict = start(WIDE, OrchestratorConfig::default());
    let outputs = drain(&mut strict);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    let refused = error(&outputs);
    assert_eq!(refused.code, Code::MalformedPlan);
    assert_eq!(refused.pointer.as_deref(), Some("/plan/0/2/budget"));
    assert_eq!(refused.reply_to.as_deref(), Some("m"));
}

#[test]
fn a_plan_whose_limits_are_broken_spawns_nobody() {
    let text = r#"{"g":"G","ctx":{"budget":"1"},"plan":[["fly","NOBODY",{}]]}"#;
    let config = OrchestratorConfig::default().with_spawning(true);
    let mut orchestrator = start(text, config);
    let outputs = drain(&mut orchestrator);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    assert_eq!(error(&outputs).pointer.as_deref(), Some("/ctx/budget"));
}

#[test]
fn overruled_findings_are_named_in_the_answer() {
    let config = OrchestratorConfig::default().with_overruling(true);
    let mut lax = start(WIDE, config);
    let outputs = drain(&mut lax);
    let [delegation] = &delegations(&outputs)[..] else {
        panic!("{outputs:?}")
    };
    answer(&mut lax, delegation.ticket, &result("1"));
    let outputs = drain(&mut lax);
    let Some(Output::Answer(last)) = outputs.last() else {
        panic!("{outputs:?}")
    };
    let Answer::Reply(Reply::Message(done)) = &**last else {
        panic!("{last:?}")
    };
    assert_eq!(
        done.context.as_ref().unwrap()["overruled"].as_str(),
        r#"[{"pointer":"/plan/0/2/budget","code":"MALFORMED_PLAN"},{"pointer":"/plan/0","code":"MALFORMED_PLAN"}]"#
    );
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
fn start_new(steps: &str, more: &str, config: OrchestratorConfig) -> Orchestrator<MemoryRegistry> {
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"o","g":"G",
        "plan":[{steps}],"state":"PENDING"{more}}}"#
    );
    let message = v1::Message::decode(text.as_bytes()).unwrap();
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

// spec: SACP-3-2, SACP1-7-1
#[test]
fn a_message_of_1_0_is_delegated_and_answered_in_its_edition() {
    let more = r#","ctx":{"lang":"de"},"trace":{"trace_id":"t","span_id":"s-1"}"#;
    let config = OrchestratorConfig::default;
    let mut orchestrator = start_new(&format!("{ONE},{TWO}"), more, config());
    let asked = delegations(&drain(&mut orchestrator));
    let first = new(&asked[0]);
    assert_eq!(
        (first.msg_id.as_str(), first.sender.as_str()),
        ("m.1.1", "o")
    );
    assert_eq!(first.recipient.as_deref(), Some("ONE_AGENT"));
    assert_eq!(first.plan.len(), 1);
    let trace = first.trace.as_ref().unwrap();
    assert_eq!(trace.parent_span_id.as_deref(), Some("s-1"));
    let done = state_of(&first, "DONE", r#","result":{"outputs":{"a":11}}"#);
    answer(&mut orchestrator, asked[0].ticket, &done);
    let asked = delegations(&drain(&mut orchestrator));
    let second = new(&asked[0]);
    let ctx = second.ctx.as_ref().unwrap();
    assert_eq!(
        (ctx["lang"].as_str(), ctx["inputs"].as_str()),
        ("\"de\"", "[11]")
    );
    // Other keys than the one that was asked for: all of them are the output.
    let done = state_of(&second, "DONE", r#","result":{"outputs":{"x":1,"y":2}}"#);
    answer(&mut orchestrator, asked[0].ticket, &done);
    let last = new_answer(&drain(&mut orchestrator));
    assert_eq!(
        (last.reply_to.as_deref(), last.sender.as_str()),
        (Some("m"), "o")
    );
    let result = last.result.unwrap();
    assert_eq!(result.outputs["a"].as_str(), "11");
    assert_eq!(result.outputs["b"].as_str(), r#"{"x":1,"y":2}"#);
    let trace = last.trace.unwrap();
    assert_eq!(trace.parent_span_id.as_deref(), Some("s-1"));
}

// spec: SACP1-5-1
#[test]
fn states_of_a_delegation_go_forward_alone() {
    let mut orchestrator = start_new(ONE, "", OrchestratorConfig::default());
    let asked = delegations(&drain(&mut orchestrator));
    let request = new(&asked[0]);
    let ticket = asked[0].ticket;
    for state in ["ACCEPTED", "IN_PROGRESS", "WAITING", "IN_PROGRESS"] {
        answer(&mut orchestrator, ticket, &state_of(&request, state, ""));
        assert!(drain(&mut orchestrator).is_empty(), "{state}");
    }
    answer(
        &mut orchestrator,
        ticket,
        &state_of(&request, "ACCEPTED", ""),
    );
    let last = new_answer(&drain(&mut orchestrator));
    let error = last.error.unwrap();
    assert!(
        error
            .message
            .contains("does not go from IN_PROGRESS to ACCEPTED"),
        "{}",
        &*error.message
    );
    assert_eq!(error.step_id.as_deref(), Some("one"));
}

// spec: SACP1-7-1
#[test]
fn a_failed_step_of_1_0_is_tried_again_and_a_cancelled_one_fails() {
    let retry = r#""params":{},"retry":{"max_attempts":2,"backoff_ms":0}"#;
    let steps = ONE.replace(r#""params":{}"#, retry);
    let mut orchestrator = start_new(&steps, "", OrchestratorConfig::default());
    let asked = delegations(&drain(&mut orchestrator));
    let late = r#","error":{"code":"TIMEOUT","message":"late","retryable":true}"#;
    let failed = state_of(&new(&asked[0]), "FAILED", late);
    answer(&mut orchestrator, asked[0].ticket, &failed);
    let asked = delegations(&drain(&mut orchestrator));
    assert_eq!(new(&asked[0]).msg_id.as_str(), "m.1.2");
    let cancelled = state_of(&new(&asked[0]), "CANCELLED", "");
    answer(&mut orchestrator, asked[0].ticket, &cancelled);
    assert_eq!(
        new_answer(&drain(&mut orchestrator)).state,
        v1::State::Failed
    );
}

// spec: SACP-3-7, SACP-9-1
#[test]
fn a_message_of_1_0_is_checked_and_refused_in_its_edition() {
    let ctx = r#","ctx":{"forbidden_tools":["ONE"]}"#;
    let mut strict = start_new(ONE, ctx, OrchestratorConfig::default());
    let outputs = drain(&mut strict);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    let error = new_answer(&outputs).error.unwrap();
    assert_eq!(*error.code, v1::Code::MalformedMessage);
    assert!(error.details.unwrap().as_str().contains("/plan/0"));
    let config = OrchestratorConfig::default().with_overruling(true);
    let mut lax = start_new(ONE, ctx, config);
    let asked = delegations(&drain(&mut lax));
    let done = state_of(&new(&asked[0]), "DONE", r#","result":{"outputs":{"a":1}}"#);
    answer(&mut lax, asked[0].ticket, &done);
    let ext = new_answer(&drain(&mut lax)).ext.unwrap();
    assert!(
        ext.value("sacp.overruled")
            .unwrap()
            .as_str()
            .contains("MALFORMED_PLAN")
    );
}

// spec: SACP1-14-1
#[test]
fn what_a_message_of_1_0_lacks_is_spawned_in_its_edition() {
    let step = r#"{"id":"v","verb":"check","tool":"VISA","params":{"citizenship":"PT"},"output_key":"visa"}"#;
    let config = OrchestratorConfig::default().with_spawning(true);
    let mut orchestrator = start_new(step, "", config);
    let outputs = drain(&mut orchestrator);
    let [Output::Spawn(request)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let read = v1::Message::decode(&request.encode()).unwrap();
    assert_eq!(read.msg_id.as_str(), "m.spawn.1");
    // Our own check lets it pass, whatever is registered.
    let findings =
        sacp::check::check_plan(request, Some(&library()), &sacp::check::Config::default());
    let musts = findings
        .iter()
        .filter(|finding| finding.violation.level == ubos_common::violation::Level::Must);
    assert_eq!(musts.count(), 0, "{findings:?}");
    let mut service = library();
    let confirmation = serve(
        now(),
        &read,
        &mut service,
        &mut PromptSpawner::default(),
        "c-1",
    );
    let Reply::V10(made) = &confirmation else {
        panic!("{confirmation:?}")
    };
    // A DONE answer names each step.
    let steps = made.result.as_ref().unwrap().step_results.as_ref().unwrap();
    let steps: serde_json::Value = steps.deserialize().unwrap();
    let ids: Vec<_> = read.plan.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(steps.as_object().unwrap().keys().collect::<Vec<_>>(), ids);
    assert_eq!(
        steps[ids[0]],
        serde_json::json!({"state": "DONE", "attempts": 1})
    );
    orchestrator
        .handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let asked = delegations(&drain(&mut orchestrator));
    assert_eq!(asked[0].agent.agent_name, "VISA_AGENT");
}

#[test]
fn gaps_inside_subtasks_spawn_the_right_thing_under_ids_that_differ() {
    let text = r#"{"msg_id":"m","g":"G","plan":[["get","ONE",{"subtask":{"g":"S","plan":[["check","VISA",{"citizenship":"PT"}]]}}]],
        "subtask":{"g":"T","plan":[["fly","PLANE",{"to":"X"}]]}}"#;
    let message = Message::decode(text.as_bytes()).unwrap();
    let mut seen = Vec::new();
    for gap in sacp::check::gaps(&message, &library()) {
        let request = sacp::spawn::spawn_request(&gap, &message, Timestamp::EPOCH).unwrap();
        let hints = MessageRef::from(&request).context().unwrap()["input_hints"].clone();
        let id = MessageRef::from(&request).msg_id().unwrap().to_owned();
        seen.push((id, hints.as_str().to_owned()));
    }
    let hints: Vec<&str> = seen.iter().map(|(_, hints)| hints.as_str()).collect();
    assert_eq!(hints, [r#"["citizenship"]"#, r#"["to"]"#]);
    assert_ne!(seen[0].0, seen[1].0);
}

// spec: SACP-3-2
#[test]
fn an_orchestrator_pauses_and_is_taken_up_elsewhere() {
    let config = OrchestratorConfig::default;
    let mut before = start_new(&format!("{ONE},{TWO}"), "", config());
    let asked = delegations(&drain(&mut before));
    before.pause(now()).unwrap();
    let first = new(&asked[0]);
    let done = state_of(&first, "DONE", r#","result":{"outputs":{"a":11}}"#);
    answer(&mut before, asked[0].ticket, &done);
    assert_eq!(drain(&mut before), [Output::Paused]);
    let saved = before.save(now()).unwrap();
    before.resume(now()).unwrap();
    let late = delegations(&drain(&mut before))[0].ticket;
    let text = format!(
        r#"{{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","recipient":"o","g":"G",
        "plan":[{ONE},{TWO}],"state":"PENDING"}}"#
    );
    let message = v1::Message::decode(text.as_bytes()).unwrap();
    let restore = |saved: &[u8]| {
        let ids = IdSource::seeded(8);
        Orchestrator::restore(now(), message.clone(), library(), config(), ids, saved)
    };
    assert!(matches!(restore(b"{}"), Err(RestoreError::Run(_))));
    let mut after = restore(&saved).unwrap();
    after.resume(now()).unwrap();
    let asked = delegations(&drain(&mut after));
    let second = new(&asked[0]);
    assert_eq!(second.ctx.as_ref().unwrap()["inputs"].as_str(), "[11]");
    let done = state_of(&second, "DONE", r#","result":{"outputs":{"b":2}}"#);
    let bytes = done.clone().into_bytes();
    let refused = after.handle_input(
        now(),
        Input::Answered {
            ticket: late,
            bytes,
        },
    );
    assert_eq!(refused, Err(OrchestratorError::NotRequested));
    answer(&mut after, asked[0].ticket, &done);
    let result = new_answer(&drain(&mut after)).result.unwrap();
    assert_eq!(
        (result.outputs["a"].as_str(), result.outputs["b"].as_str()),
        ("11", "2")
    );
    assert_eq!(after.pause(now()), Err(OrchestratorError::Closed));
}

// spec: SACP-3-2, SACP-14-1
#[test]
fn a_run_whose_agent_is_gone_goes_on_once_it_is_spawned() {
    let text =
        r#"{"msg_id":"m","g":"G","plan":[["get","ONE",{}],["check","VISA",{}],["get","TWO",{}]]}"#;
    let config = || OrchestratorConfig::default().with_spawning(true);
    let spawned = |run: &mut Orchestrator<MemoryRegistry>| {
        let wanted = drain(run);
        let [Output::Spawn(request)] = &wanted[..] else {
            panic!("{wanted:?}")
        };
        let mut service = MemoryRegistry::default();
        let mut spawner = PromptSpawner::default();
        serve(now(), &**request, &mut service, &mut spawner, "c")
    };
    let mut before = start(text, config());
    let confirmation = spawned(&mut before);
    before
        .handle_input(now(), Input::Spawned(Box::new(confirmation.clone())))
        .unwrap();
    let asked = delegations(&drain(&mut before));
    answer(&mut before, asked[0].ticket, &result("1"));
    let saved = before.save(now()).unwrap();
    // The registry of the next life does not know who was spawned.
    let restore = |saved: &[u8]| {
        let message = Message::decode(text.as_bytes()).unwrap();
        let ids = IdSource::seeded(8);
        Orchestrator::restore(now(), message, library(), config(), ids, saved)
    };
    assert!(matches!(restore(b"{}"), Err(RestoreError::Run(_))));
    let mut after = restore(&saved).unwrap();
    let confirmation = spawned(&mut after);
    after
        .handle_input(now(), Input::Spawned(Box::new(confirmation)))
        .unwrap();
    let asked = delegations(&drain(&mut after));
    let names: Vec<&str> = asked.iter().map(|ask| &*ask.agent.agent_name).collect();
    assert_eq!(names, ["VISA_AGENT"], "the first act has run");
}

// spec: SACP1-4-4, SACP1-7-1
#[test]
fn every_answer_of_1_0_has_a_trace_of_its_own_and_what_its_agents_took() {
    let retried = ONE.replace(r#""a"}"#, r#""a","retry":{"max_attempts":2}}"#);
    let asked_in =
        r#","trace":{"trace_id":"t","span_id":"s-1","metrics":{"cost_usd":7,"tokens_in":1000}}"#;
    let mut run = start_new(&retried, asked_in, OrchestratorConfig::default());
    let late = r#","error":{"code":"TIMEOUT","message":"late","retryable":true}"#;
    let good = r#","result":{"outputs":{"a":1}}"#;
    for (state, outcome) in [("FAILED", late), ("DONE", good)] {
        let asked = delegations(&drain(&mut run));
        let text = state_of(&new(&asked[0]), state, outcome);
        let mut told: serde_json::Value = serde_json::from_str(&text).unwrap();
        // Twice this cost is no number that JSON can write.
        let metrics = serde_json::json!({"cost_usd": 1e308, "tokens_in": 20, "tokens_out": 3});
        told["trace"] = serde_json::json!({ "metrics": metrics });
        answer(&mut run, asked[0].ticket, &told.to_string());
    }
    let done = new_answer(&drain(&mut run));
    let read: serde_json::Value = serde_json::from_slice(&done.encode()).unwrap();
    let trace = &read["trace"];
    assert_eq!(trace["attempt"], 2, "{read}");
    assert_eq!(
        trace["metrics"],
        serde_json::json!({"latency_ms": 0, "tool_calls": 2, "tokens_in": 40, "tokens_out": 6, "cost_usd": 1e308})
    );
    // An answer to a message that does not run copies nothing either.
    let refused = format!(r#"{asked_in},"ctx":{{"forbidden_tools":["ONE"]}}"#);
    let mut refused = start_new(ONE, &refused, OrchestratorConfig::default());
    let refused = new_answer(&drain(&mut refused));
    let read: serde_json::Value = serde_json::from_slice(&refused.encode()).unwrap();
    assert_eq!(
        read["trace"],
        serde_json::json!({"trace_id": "t", "span_id": read["msg_id"], "parent_span_id": "s-1"})
    );
}

// spec: SACP-2-7, SACP-9-1
#[test]
fn an_input_that_only_the_sender_knows_is_asked_for() {
    let mut registry = library();
    let verb = r#"{"name":"go","description":"d","outputs":"any","inputs":[{"name":"to","type":"string"},{"name":"at","type":"string"}]}"#;
    let limits = ubos_common::json::Limits::default();
    let profile = ubos_common::violation::Profile::Strict;
    let verb = ubos_common::json::decode(verb.as_bytes(), &limits, profile);
    registry.add_verb(verb.unwrap().0).unwrap();
    let tool = sacp::registry::ToolDef::new("TAXI".into(), "d".into(), vec!["go".into()]);
    registry.add_tool(tool).unwrap();
    let (verbs, tools) = (vec!["go".into()], vec!["TAXI".into()]);
    let agent = AgentRecord::new("DRIVER".into(), verbs, tools, vec![], vec![], "d".into());
    registry.add_agent(agent).unwrap();
    let answer = |text: &str, registry: MemoryRegistry| {
        let (message, _) = AnyMessage::decode(text.as_bytes()).unwrap();
        let config = OrchestratorConfig::default();
        let mut run =
            Orchestrator::new(now(), message, registry, config, IdSource::seeded(1)).unwrap();
        let outputs = drain(&mut run);
        match &outputs[..] {
            [Output::Answer(answer)] => (**answer).clone(),
            other => panic!("{other:?}"),
        }
    };
    let old = r#"{"msg_id":"m","g":"G","plan":[["go","TAXI",{"at":"7"}],["go","TAXI",{"to":"P","at":"9"}]]}"#;
    let Answer::Reply(Reply::Clarify(asked)) = answer(old, registry.clone()) else {
        panic!()
    };
    assert_eq!(asked.missing, ["to"]);
    assert_eq!(asked.reply_to.as_deref(), Some("m"));
    // A fault that no answer mends is told first.
    let bad = old.replace(
        r#""g":"G","#,
        r#""g":"G","ctx":{"forbidden_tools":["TAXI"]},"#,
    );
    let refused = answer(&bad, registry.clone());
    assert!(
        matches!(refused, Answer::Reply(Reply::Err(error)) if error.code == Code::MalformedPlan)
    );
    let new = r#"{"proto_ver":"1.0.0","msg_id":"m","ts":"2025-10-01T12:00:00Z","sender":"s","g":"G",
        "plan":[{"id":"a","verb":"go","tool":"TAXI","params":{"at":"9"}}],"state":"PENDING"}"#;
    let Answer::Reply(Reply::V10(asked)) = answer(new, registry) else {
        panic!()
    };
    let details = asked.error.as_ref().unwrap().details.as_ref().unwrap();
    assert_eq!(details.as_str(), r#"{"missing":"to"}"#);
}

fn decisions(outputs: &[Output]) -> Vec<(usize, Option<&str>, Option<&str>, bool)> {
    let decided = outputs.iter().filter_map(|output| match output {
        Output::Decided(decision) => Some(decision),
        _ => None,
    });
    let told = decided.map(|d| {
        (
            d.step,
            d.sender.as_deref(),
            d.agent.as_deref(),
            d.is_allowed,
        )
    });
    told.collect()
}

fn lets(sender: &str, verb: &str, agent: Option<&str>) -> AllowList {
    let grant = Grant {
        verb: Some(verb.into()),
        agent: agent.map(str::to_owned),
        ..Grant::default()
    };
    AllowList::default().with(sender, grant)
}

// spec: SACP1-7-1
#[test]
fn who_may_not_ask_is_denied_before_anything_is_delegated() {
    let with = |list: AllowList| OrchestratorConfig::default().with_authorizer(Arc::new(list));
    // Allowed: one decision for the verb and tool, one for the delegation.
    let mut run = start_new(ONE, "", with(lets("s", "get", None)));
    let outputs = drain(&mut run);
    let one = (1, Some("s"), Some("ONE_AGENT"), true);
    assert_eq!(decisions(&outputs), [one, one]);
    assert_eq!(delegations(&outputs).len(), 1);
    // The second step is denied: the first is not begun.
    let only = Grant {
        tool: Some("ONE".into()),
        ..Grant::default()
    };
    let mut run = start_new(
        &format!("{ONE},{TWO}"),
        "",
        with(AllowList::default().with("s", only)),
    );
    let outputs = drain(&mut run);
    assert_eq!(decisions(&outputs), [one, (2, Some("s"), None, false)]);
    assert!(delegations(&outputs).is_empty());
    let error = new_answer(&outputs).error.unwrap();
    assert_eq!(
        (&*error.code, error.step_id.as_deref()),
        (&v1::Code::AuthzDenied, Some("two"))
    );
    for list in [
        AllowList::default(),
        lets("t", "get", None),
        lets("s", "put", None),
        lets("s", "get", Some("TWO_AGENT")),
    ] {
        let outputs = drain(&mut start_new(ONE, "", with(list)));
        assert_eq!(decisions(&outputs), [(1, Some("s"), None, false)]);
        assert!(delegations(&outputs).is_empty());
    }
    // The host knows better who asks.
    let config = with(lets("s", "get", None)).with_requester("mallory");
    let outputs = drain(&mut start_new(ONE, "", config));
    assert_eq!(decisions(&outputs), [(1, Some("mallory"), None, false)]);
}

#[test]
fn a_message_of_0_1_has_the_sender_that_its_host_names() {
    let config = |name: Option<&str>| {
        let config =
            OrchestratorConfig::default().with_authorizer(Arc::new(lets("s", "get", None)));
        name.map_or_else(
            || config.clone(),
            |name| config.clone().with_requester(name),
        )
    };
    let outputs = drain(&mut start(TWO_AND_MERGE, config(Some("s"))));
    // The orchestrator joins by itself.
    assert_eq!(decisions(&outputs).len(), 4);
    assert_eq!(delegations(&outputs).len(), 2);
    let outputs = drain(&mut start(TWO_AND_MERGE, config(None)));
    assert_eq!(decisions(&outputs), [(1, None, None, false)]);
    let Some(Output::Answer(answer)) = outputs.last() else {
        panic!()
    };
    let Answer::Reply(Reply::Err(error)) = &**answer else {
        panic!()
    };
    assert_eq!(
        (error.code, error.pointer.as_deref()),
        (Code::StepFailed, Some("/plan/0/parallel/0"))
    );
}

#[test]
fn nothing_is_spawned_for_who_may_not_have_it() {
    let step = r#"{"id":"v","verb":"check","tool":"VISA","params":{},"output_key":"visa"}"#;
    let config = |list: AllowList| {
        let config = OrchestratorConfig::default().with_spawning(true);
        config.with_authorizer(Arc::new(list))
    };
    let outputs = drain(&mut start_new(step, "", config(lets("s", "get", None))));
    assert_eq!(decisions(&outputs), [(1, Some("s"), None, false)]);
    assert_eq!(
        *new_answer(&outputs).error.unwrap().code,
        v1::Code::AuthzDenied
    );
    // A grant for one agent is none for an agent that is yet to be made.
    let outputs = drain(&mut start_new(
        step,
        "",
        config(lets("s", "check", Some("VISA_AGENT"))),
    ));
    assert!(!decisions(&outputs)[0].3);
    let outputs = drain(&mut start_new(step, "", config(lets("s", "check", None))));
    assert_eq!(decisions(&outputs), [(1, Some("s"), None, true)]);
    assert!(matches!(outputs.last(), Some(Output::Spawn(_))));
}

/// Allows each access the first time only.
#[derive(Debug, Default)]
struct Once(std::sync::Mutex<std::collections::BTreeSet<Option<String>>>);

impl sacp::role::Authorizer for Once {
    fn allows(&self, access: &sacp::role::Access<'_>) -> bool {
        self.0
            .lock()
            .unwrap()
            .insert(access.agent.map(str::to_owned))
    }
}

#[test]
fn a_permission_that_is_taken_back_denies_the_delegation() {
    let config = OrchestratorConfig::default().with_authorizer(Arc::new(Once::default()));
    let outputs = drain(&mut start_new(ONE, "", config));
    assert!(delegations(&outputs).is_empty());
    let allowed: Vec<bool> = decisions(&outputs)
        .iter()
        .map(|decision| decision.3)
        .collect();
    assert_eq!(allowed, [true, false]);
    let error = new_answer(&outputs).error.unwrap();
    assert_eq!(
        (&*error.code, error.step_id.as_deref()),
        (&v1::Code::AuthzDenied, Some("one"))
    );
}
