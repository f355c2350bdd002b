//! The edges of the plan check: single repairs, what is handed on, and what a repair must leave alone.

use sacp::AnyMessage;
use sacp::check::{Config, Finding, Repair, RepairError, check_plan, repair};
use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use serde_json::{Value, json};

use crate::check::{decode, new, old, read, step};

/// What a repair makes of a message.
fn after(message: &Value, change: &Value) -> Value {
    let change = change.to_string().parse::<Repair>().unwrap();
    let after = repair(&decode(message), &change).unwrap();
    serde_json::from_slice(&after.encode()).unwrap()
}

/// A registry of these verbs, each with its inputs and outputs; one tool and one agent serve them all.
fn registry(verbs: &[(&str, Value, Value)]) -> MemoryRegistry {
    let mut registry = MemoryRegistry::default();
    let names: Vec<&str> = verbs.iter().map(|(name, ..)| *name).collect();
    for (name, inputs, outputs) in verbs {
        let verb = json!({"name": name, "description": "d", "inputs": inputs, "outputs": outputs});
        registry.add_verb(read::<VerbDef>(&verb)).unwrap();
    }
    let tool = json!({"id": "T", "description": "d", "supported_verbs": names});
    registry.add_tool(read::<ToolDef>(&tool)).unwrap();
    let agent = json!({"agent_name": "A", "supported_verbs": names, "supported_tools": ["T"], "inputs": [], "outputs": [],
        "description": "d"});
    registry.add_agent(read::<AgentRecord>(&agent)).unwrap();
    registry
}

fn found(message: &Value, registry: Option<&dyn Registry>) -> Vec<Finding> {
    check_plan(&decode(message), registry, &Config::default())
}

fn codes(plan: Value, registry: &MemoryRegistry) -> Vec<String> {
    let findings = found(&old(plan), Some(registry));
    let code = |finding: &Finding| finding.violation.code.to_string();
    findings.iter().map(code).collect()
}

// spec: SACP-8-4
#[test]
fn a_step_that_goes_hands_on_what_it_waited_for() {
    let free = json!({"id": "a", "verb": "v", "tool": "T", "params": {}});
    let plan = [
        free,
        step("b", &[], json!({})),
        step("c", &["a", "b"], json!({})),
        step("d", &["c"], json!({})),
        step("e", &["b", "c"], json!({})),
    ];
    let change = json!({"repair": "remove_step", "at": "/plan/2"});
    let after_removal = after(&new(&plan), &change);
    let waits = |n: usize| after_removal["plan"][n]["depends_on"].clone();
    assert_eq!([waits(2), waits(3)], [json!(["a", "b"]), json!(["b", "a"])]);
    let change = json!({"repair": "depend_on", "at": "/plan/0", "id": "b"});
    let waiting = after(&new(&plan), &change);
    assert_eq!(waiting["plan"][0]["depends_on"], json!(["b"]));
}

// spec: SACP-8-4
#[test]
fn the_last_member_of_a_group_takes_the_join_behind_it_along() {
    let act = |tool: &str| json!(["v", tool, {}]);
    let group = json!({"parallel": [act("G")]});
    let plan = json!([act("A"), act("B"), group, ["join", "J", {}], act("C")]);
    let change = json!({"repair": "remove_step", "at": "/plan/2/parallel/0"});
    let left = after(&old(plan), &change);
    assert_eq!(left["plan"], json!([act("A"), act("B"), act("C")]));
}

// spec: SACP-8-4
#[test]
fn a_group_stays_while_it_has_a_member_and_the_last_act_of_a_plan_may_go() {
    let act = |tool: &str| json!(["v", tool, {}]);
    let plan = json!([{"parallel": [act("A"), act("B")]}, ["join", "J", {}]]);
    let change = json!({"repair": "remove_step", "at": "/plan/0/parallel/0"});
    let left = after(&old(plan), &change);
    let wanted = json!([{"parallel": [act("B")]}, ["join", "J", {}]]);
    assert_eq!(left["plan"], wanted);
    let change = json!({"repair": "remove_step", "at": "/plan/0"});
    assert_eq!(after(&old(json!([act("A")])), &change)["plan"], json!([]));
}

// spec: SACP-8-4
#[test]
fn other_tools_are_offered_for_sixty_four_verbs_each_time_they_come() {
    let names: Vec<String> = (0..66).map(|n| format!("v{n}")).collect();
    let verbs: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), json!([]), json!("any")))
        .collect();
    let act = |n: usize| json!([names[n], "NONE", {}]);
    let plan = (0..66).chain([0, 63, 64]).map(act).collect();
    let findings = found(&old(plan), Some(&registry(&verbs)));
    let offers = |finding: &Finding| match &finding.repairs[..] {
        [Repair::SetTool { tool, .. }, Repair::RemoveStep { .. }] => tool == "T",
        [] => false,
        other => panic!("{other:?}"),
    };
    let unknown = findings
        .iter()
        .filter(|finding| finding.violation.code == "UNKNOWN_TOOL");
    let offered: Vec<bool> = unknown.map(offers).collect();
    let wanted = [&[true; 64][..], &[false; 2], &[true, true, false]].concat();
    assert_eq!(offered, wanted);
}

// spec: SACP-8-4
#[test]
fn a_value_set_in_the_context_leaves_the_others() {
    let change = json!({"repair": "set_context", "at": "", "name": "n", "value": 1});
    let mut message = old(json!([]));
    assert_eq!(after(&message, &change)["ctx"], json!({"n": 1}));
    message["ctx"] = json!({"a": 2});
    assert_eq!(after(&message, &change)["ctx"], json!({"a": 2, "n": 1}));
}

// spec: SACP-3-1
#[test]
fn an_open_group_is_joined_as_the_plan_joins_elsewhere_and_not_where_it_may_not() {
    let group = json!({"parallel": [["v", "A", {}], ["v", "B", {}]]});
    let mut message = old(json!([group, ["join", "OWN", {}], group]));
    let offered = |message: &Value, library: Option<&dyn Registry>| {
        let findings = found(message, library);
        let open = findings
            .iter()
            .find(|finding| finding.violation.code == "never_joined")
            .unwrap();
        open.repairs.clone()
    };
    let join = |tool: &str| Repair::Join {
        at: "/plan/2".to_owned(),
        tool: tool.to_owned(),
    };
    assert_eq!(offered(&message, None), [join("OWN")]);
    message["ctx"] = json!({"forbidden_tools": ["OWN"]});
    assert_eq!(offered(&message, None), [join("MERGE")]);
    message["ctx"] = json!({"forbidden_verbs": ["join"]});
    assert_eq!(offered(&message, None), []);
    // Where somebody joins, that tool is offered before the one that nobody needs to have.
    let library = registry(&[("join", json!([]), json!("any"))]);
    message["ctx"] = json!({});
    assert_eq!(offered(&message, Some(&library)), [join("T")]);
}

// spec: SACP-8-2
#[test]
fn what_the_step_before_gives_is_handed_on_where_nothing_is_left_open() {
    let text = json!([{"name": "text", "type": "string"}]);
    let library = registry(&[
        ("any", json!([]), json!("any")),
        ("one", json!([]), json!("string")),
        ("named", json!([]), json!({"other": "string"})),
        ("number", json!([]), json!("integer")),
        ("take", text, json!("any")),
        (
            "two",
            json!([{"name": "text", "type": "string"}, {"name": "x", "type": "string"}]),
            json!("any"),
        ),
        (
            "optional",
            json!([{"name": "text", "type": "string"}, {"name": "x", "type": "string", "required": false}]),
            json!("any"),
        ),
    ]);
    let after =
        |verb: &str, taker: &str| codes(json!([[verb, "T", {}], [taker, "T", {}]]), &library);
    assert_eq!(after("one", "take"), [""; 0]);
    assert_eq!(after("one", "optional"), [""; 0]);
    assert_eq!(after("one", "two"), ["MISSING_FIELD"; 2]);
    for verb in ["any", "named", "number"] {
        assert_eq!(after(verb, "take"), ["MISSING_FIELD"], "{verb}");
    }
}

// spec: SACP-8-2
#[test]
fn types_are_alternatives_where_several_are_named() {
    let input = json!([{"name": "city", "type": ["string", "null"]}]);
    let library = registry(&[("go", input, json!("any"))]);
    for (city, wanted) in [
        (json!("P"), &[][..]),
        (json!(null), &[]),
        (json!(7), &["INVALID_PARAM_TYPE"]),
    ] {
        let found = codes(json!([["go", "T", {"city": city}]]), &library);
        assert_eq!(found, wanted, "{city}");
    }
}

// spec: SACP-8-4
#[test]
fn a_parameter_that_has_a_meaning_is_not_renamed() {
    let inputs = |name: &str, other: &str| json!([{"name": name, "type": "number"}, {"name": other, "type": "number"}]);
    let library = registry(&[
        ("declared", inputs("rate", "rates"), json!("any")),
        ("limit", inputs("budgets", "x"), json!("any")),
        ("made", inputs("tooly", "x"), json!("any")),
        ("near", inputs("window", "x"), json!("any")),
        ("short", inputs("axy", "x"), json!("any")),
    ]);
    let renames = |verb: &str, param: &str| {
        let message = old(json!([[verb, "T", {param: 5, "x": 1}]]));
        let findings = found(&message, Some(&library));
        let mut repairs = findings.iter().flat_map(|finding| &finding.repairs);
        repairs.any(|repair| matches!(repair, Repair::RenameParam { .. }))
    };
    assert!(renames("near", "windo"));
    for (verb, param) in [
        ("declared", "rates"),
        ("limit", "budget"),
        ("made", "tool"),
        // Any two names of three letters are almost alike.
        ("short", "abc"),
    ] {
        assert!(!renames(verb, param), "{param}");
    }
    // Nor to a name that is taken.
    let known = json!([{"name": "ctx.window", "type": "number"}]);
    let library = registry(&[("near", known, json!("any"))]);
    let message = old(json!([["near", "T", {"window": 1, "windo": 2}]]));
    let findings = found(&message, Some(&library));
    assert!(
        findings.iter().all(|f| f.repairs.is_empty()),
        "{findings:?}"
    );
    let (at, from, to) = ("/plan/0".to_owned(), "windo".into(), "window".into());
    let change = Repair::RenameParam { at, from, to };
    let at = "/plan/0".to_owned();
    let refused = repair(&decode(&message), &change);
    assert_eq!(refused, Err(RepairError::NoPlace { at }));
}

#[test]
fn the_tool_most_like_the_one_that_nobody_has_is_offered_first() {
    let mut library = registry(&[("go", json!([]), json!("any"))]);
    for id in ["CAR", "TRAIN"] {
        let tool = json!({"id": id, "description": "d", "supported_verbs": ["go"]});
        library.add_tool(read::<ToolDef>(&tool)).unwrap();
        let agent = crate::registry::agent(id, "go", id, None);
        library.add_agent(agent).unwrap();
    }
    let message = old(json!([["go", "TRAM", {}]]));
    let first = &found(&message, Some(&library))[0].repairs[0];
    assert!(
        matches!(first, Repair::SetTool { tool, .. } if tool == "TRAIN"),
        "{first:?}"
    );
}

#[test]
fn a_step_gives_its_output_under_its_key() {
    let text = json!([{"name": "text", "type": "string"}]);
    let library = registry(&[
        ("write", json!([]), json!("string")),
        ("idle", json!([]), json!("any")),
        ("take", text, json!("any")),
    ]);
    let of = |id: &str, after: &[&str], verb: &str| {
        step(id, after, json!({"verb": verb, "tool": "T", "params": {}}))
    };
    let mut plan = [
        of("a", &[], "write"),
        of("b", &["a"], "idle"),
        of("c", &["b"], "take"),
    ];
    let missing = |plan: &[Value]| {
        let findings = found(&new(plan), Some(&library));
        findings.iter().any(|f| f.violation.code == "MISSING_FIELD")
    };
    assert!(missing(&plan));
    plan[0]["output_key"] = json!("text");
    assert!(!missing(&plan));
}

// spec: SACP-8-2, SACP1-6-2
#[test]
fn steps_come_before_others_whatever_the_order_of_the_list() {
    let hotels = json!([{"name": "hotels", "type": "array"}]);
    let library = registry(&[
        ("find", json!([]), json!({"hotels": "array"})),
        ("idle", json!([]), json!("any")),
        ("rank", hotels, json!("any")),
    ]);
    let step = |id: &str, verb: &str, after: &[&str]| json!({"id": id, "verb": verb, "tool": "T", "params": {}, "depends_on": after});
    let plan = [
        step("c", "rank", &["b"]),
        step("b", "idle", &["a"]),
        step("a", "find", &[]),
    ];
    let findings = found(&new(&plan), Some(&library));
    let is_missing = |finding: &&Finding| finding.violation.code == "MISSING_FIELD";
    assert_eq!(findings.iter().find(is_missing), None);
}

#[test]
fn digits_that_look_like_letters_are_looked_through() {
    let mut library = registry(&[("go", json!([]), json!("any"))]);
    let tool = json!({"id": "5PA_1O", "description": "d", "supported_verbs": ["go"]});
    library.add_tool(read::<ToolDef>(&tool)).unwrap();
    assert_eq!(library.look_alike("SPA-l0").as_deref(), Some("5PA_1O"));
    let many: Vec<String> = (0..257).map(|n| format!("v{n}")).collect();
    let tool = json!({"id": "MANY", "description": "d", "supported_verbs": many});
    assert!(library.add_tool(read::<ToolDef>(&tool)).is_err());
}

#[test]
fn a_removed_agent_is_told() {
    use sacp::registry::Subject;
    let mut library = registry(&[("go", json!([]), json!("any"))]);
    let from = library.revision();
    assert!(!library.remove_agent("B") && library.remove_agent("A"));
    let changes = library.changes_since(from).unwrap();
    let told: Vec<_> = changes
        .iter()
        .map(|change| (change.subject, &*change.name))
        .collect();
    assert_eq!(told, [(Subject::AgentRemoved, "A")]);
    let message: AnyMessage = decode(&old(json!([["go", "T", {}]])));
    assert_eq!(sacp::check::gaps(&message, &library).len(), 1);
}
