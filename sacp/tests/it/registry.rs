//! Registry, planner, spawning.

use sacp::check::{check, gaps};
use sacp::registry::{
    AgentRecord, MemoryRegistry, Registry, RegistryError, ToolDef, VerbDef, look_up,
};
use sacp::role::{Planner, RegistryPlanner, keeps_constraints};
use sacp::spawn::{Spawner, spawn_missing, spawn_request};
use sacp::{Code, Message, Reply};
use ubos_common::json::{self, Limits, RawBuf, Read};
use ubos_common::violation::Profile;

fn verb(name: &str, aliases: &[&str]) -> VerbDef {
    let mut verb = VerbDef::new(
        name.into(),
        "does".into(),
        vec![],
        RawBuf::parse("\"string\"").unwrap(),
    );
    verb.aliases = Some(aliases.iter().map(|&a| a.into()).collect());
    verb
}

fn tool(id: &str, verbs: &[&str]) -> ToolDef {
    ToolDef::new(
        id.into(),
        "offers".into(),
        verbs.iter().map(|&v| v.into()).collect(),
    )
}

fn agent(name: &str, verb: &str, tool: &str, score: Option<f64>) -> AgentRecord {
    let mut agent = AgentRecord::new(
        name.into(),
        vec![verb.into()],
        vec![tool.into()],
        vec![],
        vec![],
        "is".into(),
    );
    agent.confidence_score = score;
    agent
}

fn registry() -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    registry.add_verb(verb("search", &["s"])).unwrap();
    registry.add_verb(verb("rank", &[])).unwrap();
    registry.add_tool(tool("H_API", &["search"])).unwrap();
    registry
        .add_agent(agent("HOTELS", "search", "H_API", None))
        .unwrap();
    registry
}

fn message(plan: &str) -> Message {
    Message::decode(
        format!("{{\"msg_id\":\"m\",\"g\":\"G\",\"ctx\":{{\"a\":1}},\"plan\":{plan}}}").as_bytes(),
    )
    .unwrap()
}

fn absent<T: for<'a> Read<'a>>(text: &str) -> usize {
    match json::decode::<T>(text.as_bytes(), &Limits::default(), Profile::Strict) {
        Ok(_) => 0,
        Err(json::DecodeError::Invalid(report)) => report.len(),
        Err(err) => panic!("{err}"),
    }
}

// spec: SACP-10-1
#[test]
fn pairs_are_looked_up_by_name_and_alias() {
    let registry = registry();
    assert_eq!(look_up(&registry, "search", "H_API"), Ok(()));
    assert_eq!(look_up(&registry, "s", "H_API"), Ok(()));
    assert_eq!(look_up(&registry, "find", "H_API"), Err(Code::UnknownVerb));
    assert_eq!(look_up(&registry, "search", "NONE"), Err(Code::UnknownTool));
    assert_eq!(
        look_up(&registry, "rank", "H_API"),
        Err(Code::VerbToolMismatch)
    );
    assert_eq!(look_up(&registry, "define", "ANY"), Ok(()));
    assert_eq!(look_up(&registry, "instantiate", "ANY"), Ok(()));
    assert_eq!(look_up(&registry, "join", "MERGE"), Err(Code::UnknownTool));
    assert_eq!(absent::<VerbDef>("{}"), 4);
    assert_eq!(absent::<ToolDef>("{}"), 3);
}

// spec: SACP-11-1
#[test]
fn an_agent_needs_six_members_and_its_name_replaces() {
    assert_eq!(absent::<AgentRecord>("{}"), 6);
    let mut registry = registry();
    registry
        .add_agent(agent("HOTELS", "rank", "H_API", None))
        .unwrap();
    assert!(registry.agents_for("search", "H_API").is_empty());
    assert_eq!(registry.agents_for("rank", "H_API").len(), 1);
    assert!(registry.remove_agent("HOTELS") && !registry.remove_agent("HOTELS"));
    assert!(registry.agents_for("rank", "H_API").is_empty());
    assert_eq!(
        registry.add_agent(agent("", "a", "b", None)),
        Err(RegistryError::NoName)
    );
}

#[test]
fn agents_come_best_first() {
    let mut registry = registry();
    for (name, score) in [
        ("B", Some(0.5)),
        ("A", Some(0.5)),
        ("C", Some(0.9)),
        ("D", None),
    ] {
        registry
            .add_agent(agent(name, "search", "H_API", score))
            .unwrap();
    }
    let names: Vec<_> = registry
        .agents_for("s", "H_API")
        .iter()
        .map(|a| a.agent_name.clone())
        .collect();
    assert_eq!(names, ["C", "A", "B", "D", "HOTELS"]);
}

#[test]
fn the_planner_names_what_is_missing_and_refuses_what_cannot_be() {
    let registry = registry();
    let planned = RegistryPlanner
        .plan(
            &message(r#"[["s","H_API",{}],["check","VISA",{}]]"#),
            &registry,
        )
        .unwrap();
    assert_eq!(
        (
            planned.missing.len(),
            planned.missing[0].number,
            planned.missing[0].code
        ),
        (1, 2, Code::UnknownVerb)
    );
    let refused = RegistryPlanner
        .plan(&message(r#"[["rank","H_API",{}]]"#), &registry)
        .unwrap_err();
    assert!(
        matches!(*refused, Reply::Err(e) if e.code == Code::VerbToolMismatch && e.pointer.as_deref() == Some("/plan/0"))
    );
    let report = check(
        &message(r#"[["rank","H_API",{}],["s","H_API",{}]]"#),
        &registry,
    );
    assert_eq!((report.len(), report.is_valid()), (1, false));
}

// spec: SACP-2-7
#[test]
fn an_empty_plan_is_asked_back() {
    let reply = RegistryPlanner
        .plan(&message("[]"), &registry())
        .unwrap_err();
    assert_eq!(
        json::to_string(&*reply),
        r#"{"status":"REQ_CLARIFY","missing":["plan"],"details":"nothing to do","reply_to":"m"}"#
    );
    let (_, report) = sacp::validate::validate(br#"{"g":"G","plan":[]}"#).unwrap();
    assert!(report.is_valid() && !report.is_empty());
}

#[test]
fn a_planner_that_changes_goal_or_context_is_found() {
    let before = message("[]");
    let mut after = before.clone();
    assert!(keeps_constraints(&before, &after).is_ok());
    after.set_context("b", RawBuf::parse("2").unwrap());
    assert!(keeps_constraints(&before, &after).is_ok());
    after.set_context("a", RawBuf::parse("2").unwrap());
    assert_eq!(
        keeps_constraints(&before, &after)
            .unwrap_err()
            .pointer
            .as_deref(),
        Some("/ctx")
    );
}

/// Registers what is asked for, or says so and does not, or refuses.
enum Maker {
    Honest,
    Idle,
    Unable,
}

impl Spawner for Maker {
    fn spawn(&mut self, request: &Message, registry: &mut dyn Registry) -> Result<String, String> {
        let steps = request.plan.steps();
        let made: serde_json::Value = steps[1].act.params.deserialize().unwrap();
        let (v, t) = (
            made["verb"].as_str().unwrap(),
            made["tool"].as_str().unwrap(),
        );
        match self {
            Self::Honest => {
                registry.add_verb(verb(v, &[])).unwrap();
                registry.add_tool(tool(t, &[v])).unwrap();
                registry
                    .add_agent(agent(&steps[1].act.tool, v, t, None))
                    .unwrap();
            }
            Self::Idle => {}
            Self::Unable => return Err("no factory".into()),
        }
        Ok(steps[1].act.tool.clone())
    }
}

// spec: SACP-14-1
#[test]
fn what_is_missing_is_spawned_once_and_a_broken_promise_is_an_error() {
    let plan = message(r#"[["s","H_API",{}],["check","VISA",{}],["check","VISA",{}]]"#);
    let mut with = registry();
    assert_eq!(
        spawn_missing(&plan, &mut with, &mut Maker::Honest).unwrap(),
        ["VISA_AGENT"]
    );
    assert!(gaps(&plan, &with).is_empty());
    for maker in [&mut Maker::Idle, &mut Maker::Unable] {
        let error = spawn_missing(&plan, &mut registry(), maker).unwrap_err();
        assert_eq!(
            (error.code, error.pointer.as_deref()),
            (Code::SpawnFailed, Some("/plan/1"))
        );
        assert_eq!(error.reply_to.as_deref(), Some("m"));
    }
    let mismatch = spawn_missing(
        &message(r#"[["rank","H_API",{}]]"#),
        &mut registry(),
        &mut Maker::Honest,
    )
    .unwrap_err();
    assert_eq!(mismatch.code, Code::VerbToolMismatch);
    let wide: Vec<String> = (0..9)
        .map(|n| format!("[\"v{n}\",\"T{n}\",{{}}]"))
        .collect();
    let error = spawn_missing(
        &message(&format!("[{}]", wide.join(","))),
        &mut registry(),
        &mut Maker::Honest,
    )
    .unwrap_err();
    assert!(error.details.contains("8 agents"), "{error}");
}

#[test]
fn a_spawn_request_is_a_valid_message_that_carries_test_mode() {
    let mut tested = message(r#"[["check","VISA",{}]]"#);
    tested.test_mode = Some(true);
    let request = spawn_request(&gaps(&tested, &registry())[0], &tested);
    let read = Message::decode(&request.encode()).unwrap();
    assert_eq!((read.goal(), read.is_test()), ("SPAWN_AGENT", true));
    assert_eq!(
        read.context.unwrap()["missing_capability"].as_str(),
        "\"check/VISA\""
    );
}
