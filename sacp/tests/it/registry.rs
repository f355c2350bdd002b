//! Registry, planner, spawning.

use core::time::Duration;
use sacp::AnyMessage;
use sacp::Graph;
use sacp::check::gaps;
use sacp::spawn::PromptSpawner;

use sacp::registry::{
    AgentRecord, Embedder, EmbeddingRecord, Health, MemoryRegistry, Query, QueryMessage, Registry,
    RegistryError, Shared, Subject, ToolDef, VerbDef, answer, look_up,
};
use sacp::role::{Planner, RegistryPlanner, keeps_constraints};
use sacp::spawn::{Spawner, spawn_missing, spawn_request};
use sacp::{Code, Message, MessageRef, Reply};
use ubos_common::json::{self, Limits, RawBuf, Read};
use ubos_common::time::{Mono, Now, Timestamp};
use ubos_common::violation::Profile;

pub(crate) fn verb(name: &str, aliases: &[&str]) -> VerbDef {
    let mut verb = VerbDef::new(
        name.into(),
        "does".into(),
        vec![],
        RawBuf::parse("\"string\"").unwrap(),
    );
    verb.aliases = Some(aliases.iter().map(|&a| a.into()).collect());
    verb
}

pub(crate) fn tool(id: &str, verbs: &[&str]) -> ToolDef {
    ToolDef::new(
        id.into(),
        "offers".into(),
        verbs.iter().map(|&v| v.into()).collect(),
    )
}

pub(crate) fn agent(name: &str, verb: &str, tool: &str, score: Option<f64>) -> AgentRecord {
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
    assert_eq!(look_up(&registry, "join", "MERGE"), Ok(()));
    assert_eq!(look_up(&registry, "join", "ZIP"), Err(Code::UnknownTool));
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
    let planned = RegistryPlanner::default()
        .plan(
            (&message(r#"[["s","H_API",{}],["check","VISA",{}]]"#)).into(),
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
    let refused = RegistryPlanner::default()
        .plan((&message(r#"[["rank","H_API",{}]]"#)).into(), &registry)
        .unwrap_err();
    assert!(
        matches!(*refused, Reply::Err(e) if e.code == Code::VerbToolMismatch && e.pointer.as_deref() == Some("/plan/0"))
    );
    let open = message(r#"[["rank","H_API",{}],["s","H_API",{}]]"#);
    assert_eq!(gaps(&open, &registry).len(), 1);
}

// spec: SACP-2-7
#[test]
fn an_empty_plan_is_asked_back() {
    let reply = RegistryPlanner::default()
        .plan((&message("[]")).into(), &registry())
        .unwrap_err();
    assert_eq!(
        json::to_string(&*reply),
        r#"{"status":"REQ_CLARIFY","missing":["plan"],"details":"nothing to do","reply_to":"m"}"#
    );
    let (_, report) = AnyMessage::decode(br#"{"g":"G","plan":[]}"#).unwrap();
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
        Some("/ctx/a")
    );
}

/// Registers what is asked for, or says so and does not, or refuses.
enum Maker {
    Honest,
    Idle,
    Unable,
}

impl Spawner for Maker {
    fn spawn(
        &mut self,
        request: MessageRef<'_>,
        registry: &mut dyn Registry,
    ) -> Result<String, String> {
        let graph = Graph::from(request);
        let steps = graph.steps();
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
        spawn_missing(Timestamp::EPOCH, &plan, &mut with, &mut Maker::Honest).unwrap(),
        ["VISA_AGENT"]
    );
    assert!(gaps(&plan, &with).is_empty());
    for maker in [&mut Maker::Idle, &mut Maker::Unable] {
        let error = spawn_missing(Timestamp::EPOCH, &plan, &mut registry(), maker).unwrap_err();
        assert_eq!(
            (error.code, error.pointer.as_deref()),
            (Code::SpawnFailed, Some("/plan/1"))
        );
        assert_eq!(error.reply_to.as_deref(), Some("m"));
    }
    let mismatch = spawn_missing(
        Timestamp::EPOCH,
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
        Timestamp::EPOCH,
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
    let request = spawn_request(&gaps(&tested, &registry())[0], &tested, Timestamp::EPOCH).unwrap();
    let AnyMessage::V01(request) = request else {
        panic!("{request:?}")
    };
    let read = Message::decode(&request.encode()).unwrap();
    assert_eq!((read.g.as_str(), read.is_test()), ("SPAWN_AGENT", true));
    assert_eq!(
        read.context.unwrap()["missing_capability"].as_str(),
        "\"check/VISA\""
    );
}

fn names(found: &[std::sync::Arc<AgentRecord>]) -> Vec<&str> {
    found
        .iter()
        .map(|agent| agent.agent_name.as_str())
        .collect()
}

/// Four agents that differ in everything a query can ask for.
fn many() -> MemoryRegistry {
    let mut registry = registry();
    for (name, verb, tool, score, input, output, tag) in [
        (
            "A",
            "search",
            "H_API",
            Some(0.5),
            "ctx.history",
            "list",
            "travel",
        ),
        ("B", "s", "H_API", Some(0.9), "history", "list", "legal"),
        ("C", "rank", "RANK", None, "ctx.items", "list", "travel"),
        (
            "D",
            "rank",
            "H_API",
            Some(0.5),
            "xhistory",
            "text",
            "travel",
        ),
    ] {
        let mut agent = agent(name, verb, tool, score);
        agent.inputs = vec![input.into(), "window".into()];
        agent.outputs = vec![output.into()];
        agent.tags = Some(vec![tag.into(), "all".into()]);
        registry.add_agent(agent).unwrap();
    }
    registry.remove_agent("HOTELS");
    registry
}

// spec: SACP-11-2
#[test]
fn a_query_is_met_by_those_who_meet_every_member_best_first() {
    let registry = many();
    let found = |query: &str| {
        let text = format!("{{\"query\":{query}}}");
        let (asked, _) =
            json::decode::<QueryMessage>(text.as_bytes(), &Limits::default(), Profile::Strict)
                .unwrap();
        names(&answer(&registry, &asked.query, None).matches).join(" ")
    };
    assert_eq!(found(r#"{"verb":"search"}"#), "B A");
    assert_eq!(found(r#"{"verb":"s","tool":"H_API"}"#), "B A");
    assert_eq!(found(r#"{"tool":"H_API"}"#), "B A D");
    assert_eq!(found(r#"{"inputs":["history"]}"#), "B A");
    assert_eq!(found(r#"{"inputs":["ctx.history"]}"#), "A");
    assert_eq!(
        found(r#"{"inputs":["history","window"],"output_type":"list"}"#),
        "B A"
    );
    assert_eq!(found(r#"{"tags":["travel","all"]}"#), "A D C");
    assert_eq!(found(r#"{"output_type":"text"}"#), "D");
    assert_eq!(found(r#"{"tool":"H_API","output_type":"text"}"#), "D");
    assert_eq!(
        found(r#"{"inputs":["xhistory"],"tool":"H_API","output_type":"list"}"#),
        ""
    );
    assert_eq!(
        found(r#"{"inputs":["ctx.items"],"tool":"H_API","output_type":"list"}"#),
        ""
    );
    assert_eq!(found("{}"), "B A D C");
    assert_eq!(found(r#"{"verb":"rank","tags":["legal"]}"#), "");
    assert_eq!(found(r#"{"verb":"none"}"#), "");
    let none = answer(&registry, &Query::default().with_verb("none"), None);
    assert_eq!(json::to_string(&none), r#"{"status":"OK","matches":[]}"#);
    let mut texts = Query::default();
    texts.output_type = Some("text".into());
    let one = answer(&registry, &texts, None);
    assert!(json::to_string(&one).starts_with(r#"{"status":"OK","matches":[{"agent_name":"D","#));
}

/// Two axes: a text is as far along each as it has that letter.
struct Axes;

impl Embedder for Axes {
    fn dimension(&self) -> usize {
        2
    }

    fn embed(&self, text: &str) -> Option<Vec<f32>> {
        let count = |letter| u8::try_from(text.matches(letter).count()).map_or(0.0, f32::from);
        Some(vec![count('x'), count('y')]).filter(|vector| vector.iter().any(|n| *n > 0.0))
    }
}

// spec: SACP-11-2, SACP-11-3
#[test]
fn equals_in_confidence_come_by_nearness_then_by_name() {
    let mut registry = registry();
    registry.remove_agent("HOTELS");
    for (name, score, embedding) in [
        ("A", 0.5, None),
        ("B", 0.5, Some([0.0, 1.0])),
        ("C", 0.5, Some([1.0, 0.0])),
        ("D", 0.5, Some([1.0, 0.0])),
        ("E", 0.6, Some([0.0, 1.0])),
    ] {
        let mut agent = agent(name, "search", "H_API", Some(score));
        agent.embedding = embedding.map(Vec::from);
        agent.tags = Some(vec!["xxy".into()]);
        registry.add_agent(agent).unwrap();
    }
    let mut query = Query::default();
    query.tags = Some(vec!["xxy".into()]);
    assert_eq!(
        names(&answer(&registry, &query, None).matches),
        ["E", "A", "B", "C", "D"]
    );
    assert_eq!(
        names(&answer(&registry, &query, Some(&Axes)).matches),
        ["E", "C", "D", "B", "A"]
    );
    let pointless = Query::default().with_verb("search");
    assert_eq!(
        names(&answer(&registry, &pointless, Some(&Axes)).matches),
        ["E", "A", "B", "C", "D"]
    );
    let near_to = |goal: &str, top, threshold| {
        let vector = Axes.embed(goal).unwrap();
        registry.similar(&vector, top, threshold).unwrap()
    };
    let near = near_to("xxy", 3, 0.1);
    let near: Vec<_> = near
        .iter()
        .map(|near| near.agent.agent_name.clone())
        .collect();
    assert_eq!(near, ["C", "D", "B"]);
    assert_eq!(near_to("x", 9, 0.5).len(), 2);
}

// spec: SACP-11-1, SACP-11-3
#[test]
fn a_record_with_a_vector_or_number_that_is_none_is_refused_and_the_old_one_stays() {
    let mut registry = registry();
    let with = |embedding: &[f64]| {
        let mut agent = agent("HOTELS", "rank", "H_API", None);
        agent.embedding = Some(embedding.to_vec());
        agent
    };
    registry.add_agent(with(&[1.0, 2.0])).unwrap();
    for (embedding, why) in [
        (&[0.0, 0.0][..], RegistryError::ZeroVector),
        (&[f64::NAN, 1.0], RegistryError::NotFinite),
        (&[1e300, 1.0], RegistryError::NotFinite),
        (&[1.0], RegistryError::Dimension { seen: 1, wanted: 2 }),
        (&[], RegistryError::Dimension { seen: 0, wanted: 2 }),
    ] {
        assert_eq!(registry.add_agent(with(embedding)), Err(why));
        assert_eq!(registry.similar(&[1.0, 2.0], 1, 0.9).unwrap().len(), 1);
    }
    let mut nan = agent("HOTELS", "search", "H_API", Some(f64::NAN));
    assert_eq!(
        registry.add_agent(nan.clone()),
        Err(RegistryError::NotFinite)
    );
    nan.confidence_score = Some(0.1);
    registry.add_agent(nan).unwrap();
    assert_eq!(
        registry.similar(&[1.0, 2.0], 1, 0.9).unwrap(),
        [],
        "the record that replaces has no vector"
    );
    let record = r#"{"agent_name":"P","supported_verbs":[],"supported_tools":[],"inputs":[],"outputs":[],"description":"",
        "embedding":[0.5],"tags":["t"],"tool.interface":"f()","confidence_score":1,"agent_location":"in","version":"2.0","own":7}"#;
    let (read, _) =
        json::decode::<AgentRecord>(record.as_bytes(), &Limits::default(), Profile::Strict)
            .unwrap();
    assert_eq!(read.tool_interface.as_deref(), Some("f()"));
    let written: serde_json::Value = serde_json::from_str(&json::to_string(&read)).unwrap();
    assert_eq!(
        (&written["tool.interface"], &written["own"]),
        (&"f()".into(), &7.into())
    );
}

// spec: SACP-11-5
#[test]
fn a_shared_registry_takes_the_place_of_the_default() {
    let shared = Shared::new(registry());
    let mut here = shared.clone();
    std::thread::scope(|scope| {
        let add = move || here.add_agent(agent("NEW", "search", "H_API", Some(1.0)));
        scope.spawn(add).join().unwrap().unwrap();
    });
    let registry: &dyn Registry = &shared;
    assert_eq!(names(&registry.agents_for("s", "H_API")), ["NEW", "HOTELS"]);
    assert!(gaps(&message(r#"[["s","H_API",{}]]"#), registry).is_empty());
    assert_eq!(shared.write().query(&Query::default()).len(), 2);
    assert_eq!(registry.query(&Query::default()).len(), 2);
    assert_eq!(names(&registry.best_for("s", 1)), ["NEW"]);
    assert!(registry.serves("s", "H_API") && !registry.serves("s", "NONE"));
    assert!(registry.agent("NEW").is_some());
    let mut there = shared.clone();
    there.add_verb(verb("sail", &[])).unwrap();
    there.add_tool(tool("BOAT", &["sail"])).unwrap();
    assert_eq!(there.add_tool(tool("", &[])), Err(RegistryError::NoName));
    assert!(registry.verb("sail").is_some() && registry.tool("BOAT").is_some());
    let along = EmbeddingRecord::new("NEW".into(), vec![0.0, 1.0], String::new());
    there.set_embedding(&along).unwrap();
    assert_eq!(registry.cosine("NEW", &[0.0, 2.0]), Some(1.0));
    // Cyrillic letters among Latin ones.
    assert_eq!(registry.look_alike("BОAT").as_deref(), Some("BOAT"));
    assert_eq!(registry.verb_look_alike("sаil").as_deref(), Some("sail"));
    assert!(there.remove_agent("NEW") && registry.agent("NEW").is_none());
}

// spec: SACP-11-6
#[test]
fn the_registry_tells_definitions_and_whether_somebody_is_there_for_a_step() {
    let mut registry = registry();
    let mut defined = verb("generate", &["g"]);
    defined.inputs = vec![RawBuf::parse("\"topic\"").unwrap()];
    registry.add_verb(defined.clone()).unwrap();
    let told = registry.verb("g").unwrap();
    assert_eq!(
        (&told.inputs, &told.outputs),
        (&defined.inputs, &defined.outputs)
    );
    assert_eq!(registry.tool("H_API").unwrap().supported_verbs, ["search"]);
    assert!(
        registry.verb("none").is_none()
            && registry.tool("none").is_none()
            && registry.agent("none").is_none()
    );
    assert!(
        !registry.agents_for("search", "H_API").is_empty()
            && registry.agents_for("rank", "H_API").is_empty()
    );
    let taken = registry.add_verb(verb("other", &["g"])).unwrap_err();
    assert_eq!(
        taken,
        RegistryError::AliasTaken {
            alias: "g".into(),
            verb: "generate".into()
        }
    );
    assert!(
        registry.add_verb(verb("g", &[])).is_err()
            && registry.add_verb(verb("x", &["rank"])).is_err()
    );
    registry.add_verb(verb("generate", &[])).unwrap();
    registry.add_verb(verb("other", &["g"])).unwrap();
}

#[test]
fn leases_run_out_health_is_apart_and_changes_are_told() {
    let now = |seconds: u64| Now::new(Mono::from_millis(seconds * 1000), Timestamp::EPOCH);
    let mut registry = registry();
    let from = registry.revision();
    let lasts = Duration::from_secs(10);
    registry
        .add_for(now(0), agent("A", "search", "H_API", None), lasts)
        .unwrap();
    registry
        .add_for(now(0), agent("B", "search", "H_API", None), lasts)
        .unwrap();
    assert_eq!(registry.expires_next(), Some(now(10).mono));
    assert!(registry.renew(now(5), "A") && !registry.renew(now(5), "HOTELS"));
    assert_eq!(registry.expire(now(9)), [""; 0]);
    assert_eq!(registry.expire(now(10)), ["B"]);
    registry.set_health("A", Health::Unhealthy).unwrap();
    assert_eq!(
        names(&registry.agents_for("search", "H_API")),
        ["A", "HOTELS"],
        "the catalogue stays"
    );
    assert_eq!(names(&registry.ready_for("search", "H_API")), ["HOTELS"]);
    registry.set_health("A", Health::Degraded).unwrap();
    assert_eq!(
        names(&registry.ready_for("search", "H_API")),
        ["HOTELS", "A"]
    );
    assert!(registry.set_health("B", Health::Degraded).is_err());
    let Some(changes) = registry.changes_since(from) else {
        panic!()
    };
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.subject, &*change.name))
        .collect();
    let wanted = [
        (Subject::Agent, "A"),
        (Subject::Agent, "B"),
        (Subject::AgentExpired, "B"),
        (Subject::Health, "A"),
        (Subject::Health, "A"),
    ];
    assert_eq!(told, wanted);
    assert_eq!(registry.changes_since(registry.revision()), Some(vec![]));
    for _ in 0..2000 {
        registry
            .add_agent(agent("A", "search", "H_API", None))
            .unwrap();
    }
    assert_eq!(registry.changes_since(from), None);
    assert_eq!(
        registry.health("A"),
        Health::Degraded,
        "how it is stands apart from what it is"
    );
    assert_eq!(registry.expires_next(), None);
}

#[test]
fn spawning_is_guarded_against_loops_and_names_that_look_alike() {
    let refused = |text: &str| {
        let message = Message::decode(text.as_bytes()).unwrap();
        let refused = spawn_missing(
            Timestamp::EPOCH,
            &message,
            &mut registry(),
            &mut PromptSpawner::default(),
        );
        refused.unwrap_err().details
    };
    assert!(refused(r#"{"g":"G","plan":[["search","HAPI",{}]]}"#).contains("looks like \"H_API\""));
    assert!(refused(r#"{"g":"G","plan":[["search","h_ap1",{}]]}"#).contains("looks like"));
    assert!(
        refused("{\"g\":\"G\",\"plan\":[[\"se\u{430}rch\",\"X\",{}]]}")
            .contains("no name of letters")
    );
    let path = |path: &str| {
        format!(r#"{{"g":"G","plan":[["v","T",{{}}]],"ctx":{{"spawn_path":{path}}}}}"#)
    };
    assert!(refused(&path(r#"["v/T"]"#)).contains("while it is being made"));
    assert!(refused(&path(r#"["a","b","c","d"]"#)).contains("4 deep"));
}

// spec: SACP-10-1
#[test]
fn a_verb_that_lists_its_own_name_as_an_alias_can_be_replaced() {
    let mut registry = registry();
    registry.add_verb(verb("find", &["find", "f"])).unwrap();
    registry.add_verb(verb("find", &["find"])).unwrap();
    assert!(registry.verb("find").is_some());
    assert!(registry.verb("f").is_none());
}

// spec: SACP-14-1
#[test]
fn two_verbs_of_one_missing_tool_are_spawned_once_each_and_nobody_is_replaced() {
    let plan = message(r#"[["check","VISA",{}],["renew","VISA",{}]]"#);
    let mut with = registry();
    let mut spawner = PromptSpawner::default();
    let made = spawn_missing(Timestamp::EPOCH, &plan, &mut with, &mut spawner).unwrap();
    assert_eq!(made, ["VISA_AGENT", "VISA_renew_AGENT"]);
    assert!(made.iter().all(|name| spawner.prompts.contains_key(name)));
    assert!(gaps(&plan, &with).is_empty());
    // Where both names are taken nobody loses theirs.
    let plan = message(r#"[["check","SEA",{}]]"#);
    for name in ["SEA_AGENT", "SEA_check_AGENT"] {
        with.add_agent(agent(name, "swim", "SEA", None)).unwrap();
    }
    let error = spawn_missing(Timestamp::EPOCH, &plan, &mut with, &mut spawner).unwrap_err();
    assert_eq!(error.code, Code::SpawnFailed);
    assert!(error.details.contains("taken"), "{error}");
    assert_eq!(with.agent("SEA_AGENT").unwrap().supported_verbs, ["swim"]);
}

#[test]
fn a_revision_that_never_was_has_no_changes() {
    let registry = registry();
    let none = Some(vec![]);
    assert_eq!(registry.changes_since(u64::MAX), none);
    assert_eq!(MemoryRegistry::default().changes_since(0), none);
}

#[test]
fn records_of_strangers_have_bounds() {
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let record = |verbs: usize, tools: usize, tags: usize| {
        let mut record = AgentRecord::new(
            "A".into(),
            names(verbs),
            names(tools),
            vec![],
            vec![],
            "d".into(),
        );
        record.tags = Some(names(tags));
        record
    };
    let mut registry = MemoryRegistry::default();
    registry.add_agent(record(64, 64, 256)).unwrap();
    for (record, list, seen, limit) in [
        (record(257, 1, 0), "supported_verbs", 257, 256),
        (record(1, 257, 0), "supported_tools", 257, 256),
        (record(1, 1, 257), "tags", 257, 256),
        (record(65, 64, 0), "pairs", 4160, 4096),
    ] {
        assert_eq!(
            registry.add_agent(record),
            Err(RegistryError::TooLong { list, seen, limit })
        );
    }
    assert_eq!(registry.agents_for("n63", "n63").len(), 1);
    let mut long = verb("long", &[]);
    long.inputs = vec![RawBuf::parse("1").unwrap(); 257];
    let (list, seen, limit) = ("inputs", 257, 256);
    assert_eq!(
        registry.add_verb(long),
        Err(RegistryError::TooLong { list, seen, limit })
    );
}

#[test]
fn definitions_that_are_added_are_told() {
    let mut registry = MemoryRegistry::default();
    let from = registry.revision();
    registry.add_tool(tool("H_API", &["search"])).unwrap();
    registry.add_verb(verb("search", &[])).unwrap();
    let changes = registry.changes_since(from).unwrap();
    let told = changes.iter().map(|change| (change.subject, &*change.name));
    let wanted = [(Subject::Tool, "H_API"), (Subject::Verb, "search")];
    assert_eq!(told.collect::<Vec<_>>(), wanted);
}
