//! The plan check: what it finds, and that its first repair mends it.

use proptest::prelude::*;
use sacp::check::{Config, Finding, Repair, check_plan, repair};
use sacp::registry::{MemoryRegistry, Registry, VerbDef};
use sacp::{AnyMessage, Graph};
use serde_json::{Value, json};
use ubos_common::json as wire;
use ubos_common::violation::Level;

pub(crate) use crate::converge::read;
use crate::converge::{WORDS, judge, library};

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

// spec: SACP-4-2
#[test]
fn a_plan_does_not_allow_itself_more_than_its_context() {
    let mut message = old(
        json!([["search", "H_API", {"city": "P", "bdg": 200, "out_fmt": "human"}],
        ["search", "H_API2", {"city": "P", "subtask": {"g": "S", "ctx": {"budget": 300}, "out_fmt": "human",
            "plan": [["search", "H_API2", {"city": "P"}]]}}]]),
    );
    message["ctx"] = json!({"bdg": 150, "forbidden_tools": ["H_API2"]});
    let musts: Vec<_> = told(&message)
        .into_iter()
        .filter(|line| line.starts_with("MUST"))
        .collect();
    assert_eq!(
        musts,
        [
            "MUST /plan/0/2/bdg MALFORMED_PLAN",
            "MUST /plan/0/2/out_fmt OUT_FMT_VIOLATION",
            "MUST /plan/1/2/subtask MALFORMED_PLAN",
            "MUST /plan/1/2/subtask OUT_FMT_VIOLATION",
            "MUST /plan/1 MALFORMED_PLAN",
            "MUST /plan/1/2/subtask/plan/0 MALFORMED_PLAN",
        ]
    );
    let mut mended = decode(&message);
    for _ in 0..20 {
        let findings = check_plan(&mended, Some(&library()), &Config::default());
        let Some(first) = findings.iter().find(|f| f.violation.level == Level::Must) else {
            break;
        };
        mended = repair(&mended, &first.repairs[0]).unwrap();
    }
    let text = String::from_utf8(mended.encode()).unwrap();
    assert!(
        !text.contains("human")
            && !text.contains("300")
            && !text.contains("200")
            && !text.contains("\"H_API2\",{")
    );
    // The last step of a message that says human may write prose.
    let mut last = old(json!([["search", "H_API", {"city": "P", "out_fmt": "human"}]]));
    last["out_fmt"] = json!("human");
    assert!(told(&last).iter().all(|line| !line.contains("OUT_FMT")));
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
    }
    for bad in [
        r#"{"repair":"explode","at":""}"#,
        r#"{"repair":"set_verb","at":""}"#,
        r#"{"at":""}"#,
        "7",
    ] {
        assert!(bad.parse::<Repair>().is_err(), "{bad}");
    }
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

fn act() -> impl Strategy<Value = Value> {
    let verb = prop::sample::select(vec![
        "search", "s", "count", "rank", "show", "merge", "idle", "serch", "find",
    ]);
    let tool = prop::sample::select(vec![
        "H_API", "H_API2", "RANK", "PRES", "MERGE", "NOBODY", "H_APJ",
    ]);
    let params = prop::sample::select(vec![
        json!({}),
        json!({"city": "P"}),
        json!({"city": 7}),
        json!({"citi": "P", "p_max": "9"}),
        json!({"bdg": 200}),
        json!({"hotels": []}),
        json!({"items": {}, "out_fmt": "human"}),
        json!({"of": null, "budget": 5}),
        json!({"city": "P", "budget": "250", "subtask": {"g": "S", "ctx": {"budget": "300"},
            "plan": [["rank", "RANK", {"hotel": []}], {"parallel": [["search", "H_API", {}], ["search", "RANK", {}]]}]}}),
        json!({"citi": 7, "out_fmt": ["human"], "hotel": "x", "subtask": 7}),
    ]);
    (verb, tool, params).prop_map(|(verb, tool, params)| json!([verb, tool, params]))
}

fn old_message() -> impl Strategy<Value = Value> {
    let item = act().prop_recursive(2, 8, 4, |inner| {
        prop::collection::vec(inner, 1..4).prop_map(|members| json!({"parallel": members}))
    });
    let plan = prop::collection::vec((item, any::<bool>()), 0..5).prop_map(|items| {
        let mut plan = Vec::new();
        for (item, join) in items {
            let is_group = item.is_object();
            plan.push(item);
            if is_group && join {
                plan.push(json!(["join", "MERGE", {}]));
            }
        }
        Value::Array(plan)
    });
    let ctx = prop::sample::select(vec![
        json!({}),
        json!({"bdg": 100}),
        json!({"city": "P", "forbidden": ["H_API", "rank"]}),
        json!({"budget": "100", "bdg": 1e3, "forbidden_tools": "RANK", "hotels": "x"}),
        json!({"budget": {}, "forbid": [7, "search"], "items": 7}),
        json!({"forbidden": ["MERGE", "join"]}),
    ]);
    (plan.clone(), plan, ctx, any::<(bool, bool)>()).prop_map(
        |(plan, inner, ctx, (nested, human))| {
            let mut message = json!({"g": "G", "ctx": ctx, "plan": plan});
            if nested {
                message["subtask"] =
                    json!({"g": "S", "ctx": {"bdg": 150}, "plan": inner, "out_fmt": "human"});
            }
            if human {
                message["out_fmt"] = json!("human");
            }
            message
        },
    )
}

fn new_message() -> impl Strategy<Value = Value> {
    prop::collection::vec((act(), 0..8usize, 0..8usize, any::<bool>(), 0..6usize), 1..8).prop_map(|parts| {
        let id = |n: usize| format!("s{n}");
        let mut steps = Vec::new();
        let mut used = std::collections::BTreeSet::new();
        for (n, (act, first, second, keyed, fallback)) in parts.iter().enumerate() {
            let after: Vec<String> = [first, second].into_iter().filter(|m| **m < n).map(|m| id(*m)).collect();
            let mut step = json!({"id": id(n), "verb": act[0], "tool": act[1], "params": act[2], "depends_on": after});
            if *keyed {
                step["output_key"] = json!(format!("k{n}"));
            }
            let stand_in = n + fallback;
            if *fallback > 0 && stand_in < parts.len() && used.insert(stand_in) {
                step["on_error"] = json!("fallback");
                step["fallback_step"] = json!(id(stand_in));
            }
            steps.push(step);
        }
        let mut message = new(&steps);
        match parts.len() % 3 {
            0 => message["ctx"] = json!({"budget": "100", "forbidden_tools": ["RANK"]}),
            1 => message["out_fmt"] = json!("human"),
            _ => {}
        }
        message
    })
}

/// Applying the first repair of each finding leaves one finding of its code less, or more of them gone.
fn first_repairs_mend(message: &Value) -> Result<(), TestCaseError> {
    let config = Config::default().with_max_fan_out(3);
    // Some of what is drawn makes no graph, which the reader says.
    let Ok((read, _)) = AnyMessage::decode(message.to_string().as_bytes()) else {
        return Ok(());
    };
    let library = library();
    let before = check_plan(&read, Some(&library), &config);
    let count = |findings: &[Finding], code: &str| {
        findings.iter().filter(|f| f.violation.code == code).count()
    };
    for finding in &before {
        let code = finding.violation.code.as_ref();
        let Some(first) = finding.repairs.first() else {
            // Nothing else does for it, or only the sender can say it, or a step more would wait for too many.
            prop_assert!(
                finding.question.is_some()
                    || matches!(finding.violation.level, Level::Advice | Level::Should)
                    || matches!(
                        code,
                        "NO_AGENT_FOUND" | "VERB_TOOL_MISMATCH" | "MALFORMED_PLAN"
                    )
                    || code.starts_with("UNKNOWN")
                    || finding.violation.pointer.contains("/ctx/"),
                "{finding:?}"
            );
            continue;
        };
        let mended = repair(&read, first);
        prop_assert!(mended.is_ok(), "{first:?} {mended:?} {message}");
        let after = check_plan(&mended.unwrap(), Some(&library), &config);
        let is_still_there = after.iter().any(|f| f.violation == finding.violation);
        let fewer = count(&after, code) < count(&before, code);
        prop_assert!(
            !is_still_there || fewer,
            "{first:?} leaves {finding:?} of {message}"
        );
        for other in &finding.repairs {
            let text = wire::to_string(other);
            prop_assert_eq!(&text.parse::<Repair>().unwrap(), other);
        }
    }
    Ok(())
}

/// First repairs end, within as many rounds as there were findings, without a value or a permission that nobody gave.
fn first_repairs_converge(message: &Value) -> Result<(), TestCaseError> {
    let config = Config::default().with_max_fan_out(3);
    let Ok((message, _)) = AnyMessage::decode(message.to_string().as_bytes()) else {
        return Ok(());
    };
    let judged = judge(&message, Some(&library()), &WORDS, &config, usize::MAX);
    judged.map_err(TestCaseError::fail)
}

#[test]
fn what_a_repair_would_bring_to_light_is_found_at_once() {
    let search = json!(["search", "H_API", {"city": "P"}]);
    let prose = json!(["search", "H_API", {"city": "P", "out_fmt": "human"}]);
    let with =
        |ctx: Value, plan: Value| json!({"g": "G", "ctx": ctx, "plan": plan, "out_fmt": "human"});
    let falls = json!({"on_error": "fallback", "fallback_step": "f"});
    let ends = [
        step("a", &[], falls),
        step("f", &["a"], json!({})),
        step("b", &[], json!({})),
    ];
    let rank = json!({"verb": "rank", "tool": "RANK", "params": {}});
    let wide = |rest: &[Value]| {
        let others = (0..3).map(|n| {
            step(
                &format!("w{n}"),
                &["a"],
                json!({"output_key": format!("k{n}")}),
            )
        });
        let writers = [
            step("a", &[], json!({})),
            step("b", &[], json!({})),
            step("r", &["a", "b"], rank.clone()),
        ];
        new(&others
            .chain(writers)
            .chain(rest.iter().cloned())
            .collect::<Vec<_>>())
    };
    for (message, count) in [
        // The parameters of a verb that is mistyped.
        (old(json!([["serch", "H_API", {"citi": "P"}]])), 3),
        // Amounts above a limit that is a text.
        (
            with(
                json!({"budget": "100"}),
                json!([["search", "H_API", {"city": "P", "budget": 250}]]),
            ),
            3,
        ),
        // Prose of a step that a join would stand behind.
        (with(json!({}), json!([{"parallel": [prose, search]}])), 3),
        // An end that its own fallback waits for.
        (new(&ends), 3),
        // Steps that a further one would wait with.
        (wide(&[]), 2),
    ] {
        let config = Config::default().with_max_fan_out(3);
        let found = found(&message, &config);
        assert_eq!(found.len(), count, "{found:?}");
        first_repairs_converge(&message).unwrap();
    }
}

#[test]
fn an_amount_in_quotes_that_is_not_allowed_takes_one_round() {
    let act = json!(["search", "H_API", {"budget": "250"}]);
    let message = json!({"g": "G", "ctx": {"budget": 100}, "plan": [act]});
    let config = Config::default();
    judge(&decode(&message), None, &[], &config, usize::MAX).unwrap();
}

proptest! {
    // Each case checks a plan as often as it has findings; the fuzz target tries more.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn first_repairs_converge_in_0_1(message in old_message()) {
        first_repairs_converge(&message)?;
    }

    #[test]
    fn first_repairs_converge_in_1_0(message in new_message()) {
        first_repairs_converge(&message)?;
    }
}

proptest! {
    #[test]
    fn the_first_repair_removes_its_finding_in_0_1(message in old_message()) {
        first_repairs_mend(&message)?;
    }

    #[test]
    fn the_first_repair_removes_its_finding_in_1_0(message in new_message()) {
        first_repairs_mend(&message)?;
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

/// Pointers of the MUST findings about the limits of a plan.
fn limits(ctx: Value, plan: Value) -> Vec<String> {
    let mut message = old(plan);
    message["ctx"] = ctx;
    let findings = check_plan(&decode(&message), None, &Config::default());
    let musts = findings
        .into_iter()
        .filter(|finding| finding.violation.level == Level::Must);
    musts.map(|finding| finding.violation.pointer).collect()
}

// spec: SACP-9-1
#[test]
fn a_limit_or_an_amount_that_cannot_be_read_allows_nothing() {
    let act = |budget: &str| -> Value {
        serde_json::from_str(&format!(r#"[["search","H_API",{{"budget":{budget}}}]]"#)).unwrap()
    };
    let text = |ctx: &str, act: &str| {
        let message = format!(
            r#"{{"g":"G","ctx":{{"budget":{ctx}}},"plan":[["search","H_API",{{"budget":{act}}}]]}}"#
        );
        let (read, _) = AnyMessage::decode(message.as_bytes()).unwrap();
        let findings = check_plan(&read, None, &Config::default());
        let pointers = findings.into_iter().map(|f| f.violation.pointer);
        pointers.collect::<Vec<_>>()
    };
    let own = ["/plan/0/2/budget"];
    for amount in [
        "1e999",
        &"9".repeat(400),
        "\"250\"",
        "null",
        "[1]",
        "100.00000000000000001",
    ] {
        assert_eq!(text("100", amount), own, "{amount}");
    }
    for amount in ["1e2", "100.0", "0.1e3", "-1e999"] {
        assert!(text("100", amount).is_empty(), "{amount}");
    }
    assert_eq!(limits(json!({"budget": "100"}), act("1")), ["/ctx/budget"]);
    // Without a limit nothing is held against it.
    assert!(limits(json!({}), act("\"low\"")).is_empty());
    assert_eq!(
        limits(json!({"budget": "100"}), act("\"x\"")),
        ["/ctx/budget", "/plan/0/2/budget"]
    );
}

// spec: SACP-9-1
#[test]
fn what_is_forbidden_stays_forbidden_however_it_is_written() {
    let del = || json!([["del", "RM", {}]]);
    for forbidden in [json!("RM"), json!(["RM", 1])] {
        let found = limits(json!({"forbidden_tools": forbidden}), del());
        assert_eq!(found, ["/ctx/forbidden_tools", "/plan/0"]);
    }
    for made in [
        json!([["define", "RM", {}]]),
        json!([["instantiate", "RM_AGENT", {"tool": "RM", "verb": "del"}]]),
        json!([["instantiate", "A", {"tools": ["LS", "RM"]}]]),
        json!([["register", "A", {"supported_tools": ["RM"]}]]),
        json!([["register", "A", {"supported_tools": {"0": "RM"}}]]),
        // The second letter is Cyrillic.
        json!([["del", "R\u{41c}", {}]]),
    ] {
        let found = limits(json!({"forbidden_tools": ["RM"]}), made.clone());
        assert_eq!(found.len(), 1, "{made}");
    }
    assert!(
        limits(
            json!({"forbidden_tools": ["rm"]}),
            json!([["instantiate", "A", {"tool": "LS"}]])
        )
        .is_empty()
    );
}

// spec: SACP-9-1
#[test]
fn a_forbidden_verb_is_forbidden_under_each_of_its_names() {
    let mut registry = library();
    let def = json!({"name": "delete", "description": "d", "inputs": [], "outputs": "string", "aliases": ["del"]});
    registry.add_verb(read::<VerbDef>(&def)).unwrap();
    let mut message = old(json!([["del", "RM", {}]]));
    message["ctx"] = json!({"forbidden_verbs": ["delete"]});
    let findings = check_plan(&decode(&message), Some(&registry), &Config::default());
    let is_ban = |finding: &Finding| finding.violation.message.contains("ctx forbids");
    assert_eq!(findings.iter().filter(|finding| is_ban(finding)).count(), 1);
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
