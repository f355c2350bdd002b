//! The plan check: what it finds, and that its first repair mends it.

mod generated;
mod limits;

use sacp::check::{Config, Finding, Repair, check_plan, repair};
use sacp::registry::MemoryRegistry;
use sacp::{AnyMessage, Graph};
use serde_json::{Value, json};
use ubos_common::json as wire;
use ubos_common::violation::Level;

use crate::converge::library;
pub(crate) use crate::converge::read;

pub(crate) fn decode(message: &Value) -> AnyMessage {
    AnyMessage::decode(message.to_string().as_bytes())
        .unwrap()
        .0
}

pub(crate) fn old(plan: Value) -> Value {
    json!({"g": "G", "plan": plan})
}

pub(crate) fn new(steps: &[Value]) -> Value {
    json!({"proto_ver": "1.0.0", "msg_id": "m1", "ts": "2025-10-01T12:00:00Z", "sender": "p", "g": "G",
        "plan": steps, "state": "PENDING"})
}

pub(crate) fn step(id: &str, after: &[&str], more: Value) -> Value {
    let mut step = json!({"id": id, "verb": "search", "tool": "H_API", "params": {"city": "P"}, "depends_on": after});
    step.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    step
}

fn found(message: &Value, config: &Config) -> Vec<Finding> {
    check_plan(&decode(message), Some(&library()), config)
}

fn told(message: &Value) -> Vec<String> {
    let findings = found(message, &Config::default());
    let line = |f: &Finding| {
        format!(
            "{} {} {}",
            f.violation.level, f.violation.pointer, f.violation.code
        )
    };
    findings.iter().map(line).collect()
}

/// The findings, and what the first repair of the first makes of the message.
fn mended(message: &Value) -> (Vec<String>, Value) {
    let findings = found(message, &Config::default());
    let after = repair(&decode(message), &findings[0].repairs[0]).unwrap();
    let after: Value = serde_json::from_slice(&after.encode()).unwrap();
    let first = &findings[0].violation.code;
    let left = told(&after)
        .iter()
        .filter(|line| line.ends_with(first.as_ref()))
        .count();
    assert_eq!(
        left,
        told(message)
            .iter()
            .filter(|line| line.ends_with(first.as_ref()))
            .count()
            - 1
    );
    (told(message), after["plan"].clone())
}

// spec: SACP-10-1, SACP-8-4
#[test]
fn what_nobody_serves_is_found_with_what_would_do() {
    for (act, code, mended_to) in [
        (
            json!(["serch", "H_API", {"city": "P"}]),
            "UNKNOWN_VERB",
            json!(["search", "H_API", {"city": "P"}]),
        ),
        (
            json!(["search", "H_APJ", {"city": "P"}]),
            "UNKNOWN_TOOL",
            json!(["search", "H_API", {"city": "P"}]),
        ),
        (
            json!(["search", "RANK", {"city": "P"}]),
            "VERB_TOOL_MISMATCH",
            json!(["rank", "RANK", {"city": "P"}]),
        ),
        (json!(["s", "H_API", {"city": "P"}]), "", json!(null)),
    ] {
        let message = old(json!([act]));
        if code.is_empty() {
            assert!(told(&message).is_empty(), "{:?}", told(&message));
            continue;
        }
        let (told, plan) = mended(&message);
        assert_eq!(told[0], format!("MUST /plan/0 {code}"));
        assert_eq!(plan[0], mended_to);
    }
    // What nobody serves is not dropped: it was asked for. Another verb is offered before that.
    let repairs = |act: Value| {
        found(&old(json!([act])), &Config::default())[0]
            .repairs
            .clone()
    };
    assert_eq!(repairs(json!(["idle", "NOBODY", {}])), []);
    let at = || "/plan/0".to_owned();
    assert_eq!(
        repairs(json!(["serch", "RANK", {"hotels": []}])),
        [
            Repair::SetVerb {
                at: at(),
                verb: "rank".into()
            },
            Repair::RemoveStep { at: at() }
        ]
    );
    // The nearest verb is offered first.
    let near = repairs(json!(["cuont", "H_API2", {"of": []}]));
    let set = |verb: &str| {
        let verb = verb.into();
        Repair::SetVerb { at: at(), verb }
    };
    assert_eq!(near[..2], [set("count"), set("search")]);
    // Without a library nobody is looked for.
    let message = decode(&old(json!([["serch", "H_API", {}]])));
    assert!(check_plan(&message, None, &Config::default()).is_empty());
}

// spec: SACP-8-2
#[test]
fn inputs_have_the_types_that_their_verb_declares() {
    let (told, plan) = mended(&old(
        json!([["search", "H_API", {"city": "P", "p_max": "150"}]]),
    ));
    assert_eq!(told, ["MUST /plan/0/2/p_max INVALID_PARAM_TYPE"]);
    assert_eq!(plan[0][2]["p_max"], json!(150));
    let (told, plan) = mended(&old(json!([["search", "H_API", {"citi": "P"}]])));
    assert_eq!(
        told,
        [
            "MUST /plan/0 MISSING_FIELD",
            "ADVICE /plan/0/2/citi undeclared_param"
        ]
    );
    assert_eq!(plan[0][2], json!({"city": "P"}));
    let mut message = old(json!([["search", "H_API", {}]]));
    message["ctx"] = json!({"city": "P"});
    assert!(self::told(&message).is_empty());
    message["ctx"] = json!({"city": 7});
    assert_eq!(self::told(&message), ["MUST /plan/0 INVALID_PARAM_TYPE"]);
    // A bare name binds nothing, and is not required.
    assert!(self::told(&old(json!([["count", "H_API2", {"of": [1]}]]))).is_empty());
    assert_eq!(
        self::told(&old(json!([["count", "H_API2", {}]]))),
        ["ADVICE /plan/0 missing_input"]
    );
    let mut lang = old(json!([["merge", "MERGE", {}]]));
    lang["ctx"] = json!({"lang": "en"});
    assert!(self::told(&lang).is_empty());
}

// spec: SACP-8-2
#[test]
fn inputs_come_from_steps_before_and_not_beside_or_behind() {
    let search = json!(["search", "H_API", {"city": "P"}]);
    let rank = json!(["rank", "RANK", {}]);
    assert!(told(&old(json!([search, rank]))).is_empty());
    assert_eq!(
        told(&old(json!([rank, search]))),
        ["MUST /plan/0 MISSING_FIELD"]
    );
    assert_eq!(
        told(&old(
            json!([{"parallel": [search, rank]}, ["join", "MERGE", {}]])
        )),
        ["MUST /plan/0/parallel/1 MISSING_FIELD"]
    );
    // One unnamed output is handed on to the one input that is open; another type is not.
    assert!(told(&old(json!([search, rank, ["show", "PRES", {}]]))).is_empty());
    assert_eq!(
        told(&old(json!([["count", "H_API2", {"of": 1}], rank]))),
        ["MUST /plan/1 INVALID_PARAM_TYPE"]
    );
    let late = new(&[
        step(
            "r",
            &["s"],
            json!({"verb": "rank", "tool": "RANK", "params": {}}),
        ),
        step("s", &[], json!({})),
    ]);
    assert!(told(&late).is_empty());
}

// spec: SACP-8-2
#[test]
fn what_only_the_sender_knows_is_a_question_and_no_value_is_made_up() {
    for (params, input) in [
        (json!({}), "city"),
        (json!({"city": {"name": "P"}}), "city"),
        (json!({"city": "P", "p_max": "cheap"}), "p_max"),
        // A limit is not renamed.
        (json!({"budget": "P"}), "city"),
    ] {
        let findings = found(
            &old(json!([["search", "H_API", params]])),
            &Config::default(),
        );
        let first = &findings[0];
        assert_eq!(
            (first.question.as_deref(), &first.repairs[..]),
            (Some(input), &[][..]),
            "{params}"
        );
        assert_eq!(first.violation.level, Level::Must);
        assert!(
            findings.iter().all(|finding| finding.repairs.is_empty()),
            "{findings:?}"
        );
    }
    let findings = found(
        &old(json!([["search", "H_API", {"citi": "P"}]])),
        &Config::default(),
    );
    assert_eq!(findings[0].question, None);
}

// spec: SACP-8-2
#[test]
fn what_the_sender_did_not_mean_is_asked_for() {
    for city in [json!(null), json!([]), json!({}), json!(["P"])] {
        let message = old(json!([["search", "H_API", {"city": city}]]));
        let findings = found(&message, &Config::default());
        let [finding] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert_eq!(finding.question.as_deref(), Some("city"), "{city}");
    }
    let ranked = |hotels: Value| {
        found(
            &old(json!([["rank", "RANK", {"hotels": hotels}]])),
            &Config::default(),
        )
    };
    assert_eq!(ranked(json!(null))[0].repairs, []);
    assert_eq!(ranked(json!({}))[0].repairs.len(), 1);
}

#[test]
fn branches_that_write_one_name_are_put_in_order() {
    let search = json!(["search", "H_API", {"city": "P"}]);
    let rank = json!(["rank", "RANK", {}]);
    let both = json!({"parallel": [search, search]});
    let (told, plan) = mended(&old(json!([both, rank])));
    assert_eq!(told, ["SHOULD /plan/0/parallel/1 conflicting_writes"]);
    assert_eq!(plan, json!([search, search, rank]));
    let (_, plan) = mended(&old(json!([both, ["join", "MERGE", {}], rank])));
    assert_eq!(
        plan,
        json!([search, {"parallel": [search]}, ["join", "MERGE", {}], rank])
    );
    let (_, plan) = mended(&old(
        json!([{"parallel": [{"parallel": [search, search]}]}, rank]),
    ));
    assert_eq!(plan, json!([search, search, rank]));
    // Nobody takes it: no conflict.
    assert!(self::told(&old(json!([both, ["join", "MERGE", {}]]))).is_empty());
    let steps = [
        step("a", &[], json!({})),
        step("b", &[], json!({})),
        step(
            "r",
            &["a", "b"],
            json!({"verb": "rank", "tool": "RANK", "params": {}}),
        ),
    ];
    let (told, plan) = mended(&new(&steps));
    assert_eq!(told, ["SHOULD /plan/1 conflicting_writes"]);
    assert_eq!(plan[1]["depends_on"], json!(["a"]));
}

#[test]
fn what_cannot_run_or_goes_nowhere_is_found() {
    let falls = json!({"on_error": "fallback", "fallback_step": "f"});
    let (told, plan) = mended(&new(&[step("a", &[], falls), step("f", &["a"], json!({}))]));
    assert_eq!(told, ["ADVICE /plan/1 unreachable"]);
    assert_eq!(plan[1]["depends_on"], json!([]));
    let (told, plan) = mended(&new(&[
        step("a", &[], json!({})),
        step("b", &[], json!({"output_key": "a"})),
    ]));
    assert_eq!(told, ["ADVICE /plan/0 never_joined"]);
    assert_eq!(plan[0]["output_key"], "out1_1");
    let search = json!(["search", "H_API", {"city": "P"}]);
    let (told, plan) = mended(&old(json!([{"parallel": [search, search]}])));
    assert_eq!(told, ["ADVICE /plan/0 never_joined"]);
    assert_eq!(plan[1], json!(["join", "MERGE", {}]));
}

#[test]
fn too_much_at_once_is_divided() {
    let config = Config::default().with_max_fan_out(2);
    let search = json!(["search", "H_API", {"city": "P"}]);
    let wide = json!({"parallel": [search, {"parallel": [search, search]}, search, search]});
    let steps: Vec<Value> = (0..5)
        .map(|n| {
            step(
                &format!("s{n}"),
                &[],
                json!({"output_key": format!("k{n}")}),
            )
        })
        .collect();
    for message in [
        old(json!([wide, search])),
        old(json!([wide, ["join", "MERGE", {}]])),
        new(&steps),
    ] {
        let findings = found(&message, &config);
        assert_eq!(findings[0].violation.code, "fan_out");
        let after = repair(&decode(&message), &findings[0].repairs[0]).unwrap();
        let left = check_plan(&after, Some(&library()), &config);
        assert!(
            left.iter().all(|f| f.violation.code != "fan_out"),
            "{left:?}"
        );
        assert_eq!(
            Graph::from(&after).steps().len(),
            Graph::from(&decode(&message)).steps().len()
        );
    }
}

// Who takes turns waits for one more step, and there, too, as many may start at once.
#[test]
fn steps_take_no_turns_where_others_wait_already() {
    let config = Config::default().with_max_fan_out(2);
    let named = |id: &str, after: &[&str]| step(id, after, json!({"output_key": id}));
    let mut plan = vec![
        named("s", &[]),
        named("a", &["s"]),
        named("b", &["s"]),
        named("c", &["s"]),
    ];
    let repairs = |plan: &[Value]| {
        let findings = found(&new(plan), &config);
        let wide = findings
            .iter()
            .find(|f| f.violation.code == "fan_out")
            .unwrap();
        wide.repairs.clone()
    };
    plan.push(named("d", &["s", "a"]));
    let first = Repair::Stagger {
        at: "/plan/1".into(),
        most: 2,
    };
    assert_eq!(repairs(&plan), [first]);
    plan.push(named("e", &["s", "a"]));
    assert_eq!(repairs(&plan), []);
}

#[test]
fn repairs_are_data() {
    for text in [
        r#"{"repair":"set_verb","at":"/plan/0","verb":"v"}"#,
        r#"{"repair":"set_tool","at":"/plan/0","tool":"T"}"#,
        r#"{"repair":"set_param","at":"/plan/0","name":"n","value":null}"#,
        r#"{"repair":"rename_param","at":"/plan/0","from":"a","to":"b"}"#,
        r#"{"repair":"remove_param","at":"/plan/0","name":"n"}"#,
        r#"{"repair":"remove_step","at":"/plan/0"}"#,
        r#"{"repair":"join","at":"/plan/0","tool":"T"}"#,
        r#"{"repair":"in_sequence","at":"/plan/0"}"#,
        r#"{"repair":"split","at":"/plan/0","most":2}"#,
        r#"{"repair":"stagger","at":"/plan/0","most":2}"#,
        r#"{"repair":"depend_on","at":"/plan/0","id":"a"}"#,
        r#"{"repair":"release","at":"/plan/0","id":"a"}"#,
        r#"{"repair":"set_output_key","at":"/plan/0","key":"k"}"#,
        r#"{"repair":"set_context","at":"","name":"n","value":{"a":1e3}}"#,
        r#"{"repair":"set_raw","at":"/subtask"}"#,
    ] {
        let repair = text.parse::<Repair>().unwrap();
        assert_eq!(wire::to_string(&repair), text);
        assert!(!repair.to_string().is_empty());
        // One place behind the end is nowhere.
        let behind = text
            .replace("/plan/0", "/plan/1")
            .replace("\"at\":\"\"", "\"at\":\"/g\"");
        let behind = behind.parse::<Repair>().unwrap();
        let message = decode(&old(json!([["search", "H_API", {"a": 1}]])));
        let refused = self::repair(&message, &behind);
        assert!(refused.is_err() || text.contains("set_raw"), "{text}");
    }
    for bad in [
        r#"{"repair":"explode","at":""}"#,
        r#"{"repair":"set_verb","at":""}"#,
        r#"{"at":""}"#,
        "7",
    ] {
        assert!(bad.parse::<Repair>().is_err(), "{bad}");
    }
    let unknown = r#"{"repair":"explode","at":""}"#.parse::<Repair>();
    let said = unknown.unwrap_err().to_string();
    assert!(said.contains("no repair of that name"), "{said}");
    // Only those that wait for the same take turns.
    let waits = |id: &str, after: &[&str]| step(id, after, json!({}));
    let plan = [
        waits("s", &[]),
        waits("a", &["s"]),
        waits("b", &["s"]),
        waits("c", &["s"]),
        waits("d", &[]),
    ];
    let change = Repair::Stagger {
        at: "/plan/1".into(),
        most: 2,
    };
    let turns = repair(&decode(&new(&plan)), &change).unwrap();
    let after: Vec<Vec<usize>> = Graph::from(&turns)
        .steps()
        .iter()
        .map(|step| step.after.to_vec())
        .collect();
    assert_eq!(after, [vec![], vec![1], vec![1], vec![1, 2], vec![]]);
    // A step that goes takes the fallback from those that it stood for, and from nobody else.
    let falls = |to: &str| json!({"on_error": "fallback", "fallback_step": to});
    let plan = [
        step("a", &[], falls("f")),
        step("f", &[], json!({})),
        step("b", &[], falls("g")),
        step("g", &[], json!({})),
    ];
    let change = Repair::RemoveStep {
        at: "/plan/1".into(),
    };
    let left = repair(&decode(&new(&plan)), &change).unwrap();
    let left: Value = serde_json::from_slice(&left.encode()).unwrap();
    assert_eq!(
        (
            &left["plan"][0]["fallback_step"],
            &left["plan"][1]["fallback_step"]
        ),
        (&Value::Null, &json!("g"))
    );
    let message = decode(&old(json!([["search", "H_API", {}]])));
    for nowhere in [
        "/plan/7",
        "/plan/x",
        "/g",
        "nonsense",
        "/plan/0/2/subtask/plan/0",
    ] {
        let change = Repair::RemoveStep { at: nowhere.into() };
        assert!(repair(&message, &change).is_err(), "{nowhere}");
    }
}

#[test]
fn wide_and_hostile_plans_are_checked_within_bounds() {
    let act = json!(["search", "H_API", {"city": 1, "out_fmt": "human", "x": 1, "bdg": 9}]);
    let group = json!({"parallel": vec![act; 4_999]});
    let wide = json!({"g": "G", "out_fmt": "human", "ctx": {"bdg": 1}, "plan": [group, group]});
    let findings = found(&wide, &Config::default());
    assert_eq!(findings.len(), 1_000);
    // In 1.0 each of the second group would name all of the first.
    let old = sacp::Message::decode(wide.to_string().as_bytes()).unwrap();
    let name = |text: &str| sacp::v1::Id::new(text).unwrap();
    let at = sacp::v1::Ts::from(ubos_common::time::Timestamp::EPOCH);
    let config = sacp::v1::Up::new(name("a"), at, name("m"));
    assert!(sacp::v1::up(&old, &config).is_err());
}

#[test]
fn two_writers_are_put_in_the_order_that_no_fallback_makes_a_cycle() {
    let step = |id: &str, verb: &str, after: &[&str]| json!({"id": id, "verb": verb, "tool": if verb == "rank" { "RANK" } else { "H_API" }, "params": {}, "depends_on": after});
    let mut first = step("s0", "search", &[]);
    first["on_error"] = json!("fallback");
    first["fallback_step"] = json!("s4");
    let message = new(&[
        first,
        step("s3", "search", &[]),
        step("s4", "rank", &["s3", "s0"]),
    ]);
    let (read, _) = AnyMessage::decode(message.to_string().as_bytes()).unwrap();
    let findings = check_plan(&read, Some(&library()), &Config::default());
    let clash = |findings: &[Finding]| {
        let clash = |finding: &&Finding| finding.violation.code == "conflicting_writes";
        findings.iter().find(clash).cloned()
    };
    let finding = clash(&findings).unwrap();
    let mended = repair(&read, &finding.repairs[0]).unwrap();
    assert_eq!(
        clash(&check_plan(&mended, Some(&library()), &Config::default())),
        None
    );
}

#[test]
fn look_alikes_of_registered_names_are_named() {
    let mut message = old(json!([["search", "\u{41d}_API", {"city": "P"}]]));
    message["ctx"] = json!({});
    let findings = found(&message, &Config::default());
    assert!(
        findings[0]
            .violation
            .message
            .contains("looks like \"H_API\""),
        "{findings:?}"
    );
    let message = old(json!([["s\u{435}arch", "H_API", {"city": "P"}]]));
    let findings = found(&message, &Config::default());
    assert!(
        findings[0]
            .violation
            .message
            .contains("looks like \"search\""),
        "{findings:?}"
    );
}

// spec: SACP1-6-3
#[test]
fn a_fallback_that_waits_for_the_step_it_replaces_is_advice() {
    let message = new(&[
        step(
            "a",
            &[],
            json!({"on_error": "fallback", "fallback_step": "b"}),
        ),
        step("b", &["a"], json!({})),
    ]);
    let levels: Vec<Level> = found(&message, &Config::default())
        .into_iter()
        .filter(|finding| finding.violation.code == "unreachable")
        .map(|finding| finding.violation.level)
        .collect();
    assert_eq!(levels, [Level::Advice]);
}

#[test]
fn a_merge_is_served_by_an_empty_registry() {
    let group = json!({"parallel": [["define", "A", {}], ["define", "B", {}]]});
    let message = old(json!([group, ["join", "MERGE", {}]]));
    let registry = MemoryRegistry::default();
    let findings = check_plan(&decode(&message), Some(&registry), &Config::default());
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_join_with_another_tool_is_offered_the_merge() {
    let group = json!({"parallel": [["define", "A", {}], ["define", "B", {}]]});
    let message = old(json!([group, ["join", "MERG", {}]]));
    let registry = MemoryRegistry::default();
    let findings = check_plan(&decode(&message), Some(&registry), &Config::default());
    let at = "/plan/1".to_owned();
    let tool = "MERGE".to_owned();
    let merge = Repair::SetTool { at, tool };
    let offered = findings
        .iter()
        .any(|finding| finding.repairs.contains(&merge));
    assert!(offered, "{findings:?}");
}
