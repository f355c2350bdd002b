//! Limits of the context, and what is forbidden.

use sacp::AnyMessage;
use sacp::check::{Config, Finding, Repair, check_plan, repair};
use sacp::registry::Registry;
use sacp::registry::VerbDef;
use serde_json::{Value, json};
use ubos_common::violation::Level;

use crate::converge::{judge, library};
use crate::registry::{agent, tool};

use super::{decode, old, read, told};

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
fn an_amount_in_quotes_that_is_not_allowed_takes_one_round() {
    let act = json!(["search", "H_API", {"budget": "250"}]);
    let message = json!({"g": "G", "ctx": {"budget": 100}, "plan": [act]});
    let config = Config::default();
    judge(&decode(&message), None, &[], &config, usize::MAX).unwrap();
}

#[test]
fn of_two_equal_limits_the_first_is_offered() {
    let text =
        r#"{"g":"G","ctx":{"budget":150,"bdg":1.5e2},"plan":[["search","H_API",{"budget":200}]]}"#;
    let (message, _) = AnyMessage::decode(text.as_bytes()).unwrap();
    let findings = check_plan(&message, None, &Config::default());
    let mut repairs = findings.iter().flat_map(|finding| &finding.repairs);
    let set = repairs.find_map(|repair| match repair {
        Repair::SetParam { value, .. } => Some(value.as_str()),
        _ => None,
    });
    assert_eq!(set, Some("150"), "{findings:?}");
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
    for other in [
        json!([["instantiate", "A", {"tool": "LS"}]]),
        json!([["del", "ÜBER", {}]]),
    ] {
        let found = limits(json!({"forbidden_tools": ["rm"]}), other.clone());
        assert!(found.is_empty(), "{other} {found:?}");
    }
    // What cannot be read is of no matter where nothing is forbidden.
    let unread = || json!([["register", "A", {"supported_tools": {"0": "RM"}}]]);
    assert_eq!(limits(json!({}), unread()), [""; 0]);
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

// spec: SACP-8-2
#[test]
fn no_repair_sets_a_parameter_that_says_what_may_be_spent() {
    let mut registry = library();
    for (verb, id, input) in [("spend", "PAY", "budget"), ("waste", "BURN", "ctx.budget")] {
        let def = json!({"name": verb, "description": "d", "outputs": "any",
            "inputs": [{"name": input, "type": "string"}]});
        registry.add_verb(read::<VerbDef>(&def)).unwrap();
        registry.add_tool(tool(id, &[verb])).unwrap();
        registry.add_agent(agent(id, verb, id, None)).unwrap();
    }
    let message = json!({"g": "G", "ctx": {"budget": 150}, "plan": [["spend", "PAY", {}]]});
    let message = AnyMessage::decode(message.to_string().as_bytes())
        .unwrap()
        .0;
    let findings = check_plan(&message, Some(&registry), &Config::default());
    let about = |finding: &&Finding| finding.violation.message.contains("budget");
    let finding = findings.iter().find(about).unwrap();
    assert_eq!(finding.question.as_deref(), Some("budget"));
    assert!(finding.repairs.is_empty(), "{finding:?}");
    // Nor does one set it to a number where the verb wants a text.
    let mut message = old(json!([["waste", "BURN", {"budget": 300}]]));
    message["ctx"] = json!({"budget": 150});
    let findings = check_plan(&decode(&message), Some(&registry), &Config::default());
    let above = |finding: &&Finding| finding.violation.message.contains("above that of ctx");
    assert_eq!(findings.iter().find(above).unwrap().repairs, []);
}
