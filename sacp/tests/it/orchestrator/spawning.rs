//! Agents that are missing are spawned before the run.

use sacp::registry::Registry;
use sacp::registry::{AgentRecord, MemoryRegistry};
use sacp::role::Answer;
use sacp::role::orchestrator::{Input, Orchestrator, OrchestratorConfig, Output};
use sacp::spawn::{PromptSpawner, serve};
use sacp::{Code, ErrReply, Message, MessageRef, OutFmt, Reply, State};
use ubos_common::id::IdSource;
use ubos_common::time::Timestamp;

use crate::registry::{agent, verb};

use super::{delegations, drain, error, library, now, start};

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
    for change in [
        (|answer| answer.g = "OTHER".into()) as fn(&mut Message),
        |answer| answer.state = Some(State::Pending),
    ] {
        let mut other = confirmation(&right, "m.spawn.1");
        let Reply::Message(answer) = &mut other else {
            panic!("{other:?}")
        };
        change(answer);
        assert!(refused(other).contains("no confirmation"));
    }
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

#[test]
fn gaps_inside_subtasks_spawn_the_right_thing_under_ids_that_differ() {
    let text = r#"{"msg_id":"m","g":"G","plan":[["get","ONE",{"subtask":{"g":"S","plan":[["check","VISA",{"citizenship":"PT"}]]}}]],
        "subtask":{"g":"T","plan":[["fly","PLANE",{"to":"X"}]]}}"#;
    let message = Message::decode(text.as_bytes()).unwrap();
    let mut seen = Vec::new();
    for gap in sacp::check::gaps(&message, &library()) {
        let request = sacp::spawn::spawn_request(&gap, &message, Timestamp::EPOCH).unwrap();
        let context = MessageRef::from(&request).context().unwrap();
        let hints = context["input_hints"].clone();
        let path = format!(r#"["{}/{}"]"#, gap.verb, gap.tool);
        assert_eq!(context["spawn_path"].as_str(), path);
        let id = MessageRef::from(&request).msg_id().unwrap().to_owned();
        seen.push((id, hints.as_str().to_owned()));
    }
    let hints: Vec<&str> = seen.iter().map(|(_, hints)| hints.as_str()).collect();
    assert_eq!(hints, [r#"["citizenship"]"#, r#"["to"]"#]);
    assert_ne!(seen[0].0, seen[1].0);
}
