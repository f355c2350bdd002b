//! What is refused: by the check of the plan, and by the authorizer.

use std::sync::Arc;

use sacp::registry::{AgentRecord, MemoryRegistry, Registry};
use sacp::role::orchestrator::{Orchestrator, OrchestratorConfig, Output};
use sacp::role::{AllowList, Answer, Grant};
use sacp::{AnyMessage, Code, Reply, v1};
use ubos_common::id::IdSource;

use super::{
    ONE, TWO, TWO_AND_MERGE, answer, delegations, drain, error, library, new_answer, now, result,
    start, start_new,
};

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
    assert!(error.details.contains("may not have"), "{error:?}");
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
