//! Repairs of generated plans converge.

use proptest::prelude::*;
use sacp::AnyMessage;
use sacp::check::{Config, Finding, Repair, check_plan, repair};
use serde_json::{Value, json};
use ubos_common::json as wire;
use ubos_common::violation::Level;

use crate::converge::{WORDS, judge, library};

use super::{found, new, old, step};

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
