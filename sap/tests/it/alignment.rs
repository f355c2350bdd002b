//! The policy of rules.

use futures::executor::block_on;
use sap::Psi;
use sap::alignment::{Assessment, Policy as _, Rules, Severity, Subject, WhatIf, what_if};
use sap::validate::Options;
use sap::{Alignment, ConstitutionalContext, ConstitutionalEvidence, PressureLevel, RiskTolerance};
use ubos_common::json::RawBuf;

use crate::samples::{read_result, read_task, result, task, with};

fn context(principles: &[&str], risk: RiskTolerance) -> ConstitutionalContext {
    let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
    context.principles = Some(principles.iter().map(|&p| p.into()).collect());
    context.risk_tolerance = Some(risk);
    context
}

fn assess(rules: &Rules, context: &ConstitutionalContext, citations: &[String]) -> Assessment {
    let capability = "a.b".parse().unwrap();
    let output = RawBuf::parse("\"Some Text\"").unwrap();
    let mut subject = Subject::admission(&capability, context);
    subject.output = Some(output.as_raw());
    subject.citations = citations;
    rules.assess(&subject)
}

#[test]
fn a_rule_binds_where_its_principle_is_named() {
    let rules = Rules::default().forbid("privacy", "SOME text");
    let named = assess(&rules, &context(&["privacy"], RiskTolerance::High), &[]);
    assert_eq!(
        (&named.alignment, named.violations.len()),
        (&Alignment::NonConstitutional, 1)
    );
    let other = assess(&rules, &context(&["other"], RiskTolerance::High), &[]);
    assert_eq!(
        (&other.alignment, other.violations.len(), other.checks.len()),
        (&Alignment::Valid, 0, 1)
    );
    let none = assess(&rules, &context(&[], RiskTolerance::High), &[]);
    assert_eq!(none.alignment, Alignment::NonConstitutional);
    assert_eq!(none.checks[0].status.as_deref(), Some("FAIL"));
    // Evidence of nothing wrong has no violations.
    let violations = |it: &Assessment| ConstitutionalEvidence::from(it.clone()).violations;
    assert_eq!(violations(&named).map(|all| all.len()), Some(1));
    assert_eq!(violations(&other), None);
}

// spec: SAP-4.2-9
#[test]
fn words_are_forbidden_however_they_are_escaped() {
    let rules = Rules::default()
        .forbid("privacy", "home \"address\"")
        .forbid("privacy", "1e3")
        .forbid("privacy", "never");
    let context = context(&["privacy"], RiskTolerance::High);
    let capability = "a.b".parse().unwrap();
    for (output, found) in [
        (r#"["a",{"b":"The Home \"Address\" is"}]"#, 1),
        (r#""h\u006fme \u0022ADDRESS\u0022""#, 1),
        (r#"{"home \u0022address\"":[1E3]}"#, 2),
        // What only the escapes spell is not there.
        (r#"["a line\never","home","\"address\""]"#, 0),
    ] {
        let output = RawBuf::parse(output).unwrap();
        let mut subject = Subject::admission(&capability, &context);
        subject.output = Some(output.as_raw());
        let assessment = rules.assess(&subject);
        assert_eq!(assessment.violations.len(), found, "{output:?}");
    }
}

// spec: SAP-4.2-9
#[test]
fn words_are_forbidden_as_people_read_them() {
    let rules = Rules::default()
        .forbid("privacy", "Home\u{a0} address")
        .forbid("privacy", "cafe\u{301}")
        .forbid("privacy", "ΟΔΟΣ")
        .forbid("privacy", "Straße")
        .forbid("privacy", "IP address");
    let context = context(&["privacy"], RiskTolerance::High);
    let capability = "a.b".parse().unwrap();
    for (output, found) in [
        ("my home\u{2003}\\t\\nADDRESS", 1),
        ("h\u{200b}ome ad\u{ad}dre\u{2060}ss", 1),
        ("\u{ff28}ome \u{1d41a}ddress", 1),
        ("the Caf\u{e9}", 1),
        ("homeAddress", 1),
        ("my_home_address", 1),
        ("home-address2", 1),
        ("homeAddress of the CAF\u{c9}", 2),
        ("η οδος", 1),
        ("Η ΟΔΟΣ", 1),
        ("οδοσ\u{3ae}μαντ\u{3b7}ς", 1),
        ("HAUPTSTRASSE", 1),
        ("STRA\u{1e9e}E", 1),
        ("userIPAddress", 1),
        ("USER_IPAddress", 1),
        ("user\u{200b}IP\u{e0001}Address", 1),
        ("HOMEAddress", 1),
        ("HOME\u{ad}Address", 1),
        ("home\\u0001 add\\u007fress", 1),
        ("home\\u0000Address", 1),
        ("userIPaddress", 0),
        ("at home; address unknown", 0),
        ("cafe", 0),
        ("homeaddress", 0),
    ] {
        for output in [format!("\"{output}\""), format!("{{\"{output}\":1}}")] {
            let output = RawBuf::parse(&output).unwrap();
            let mut subject = Subject::admission(&capability, &context);
            subject.output = Some(output.as_raw());
            let assessment = rules.assess(&subject);
            assert_eq!(assessment.violations.len(), found, "{output:?}");
        }
    }
}

#[test]
fn a_long_text_is_looked_through_for_each_of_many_rules() {
    let words = || ". contains \"some\"".parse().unwrap();
    let rule = |rules: Rules, n: u8| rules.require(&format!("rule {n}"), words(), Severity::High);
    let rules = (0..20).fold(Rules::default(), rule);
    let (capability, mut context) = ("a.b".parse().unwrap(), context(&[], RiskTolerance::High));
    context.pressure_level = PressureLevel::Deliberated;
    let output = RawBuf::parse(&format!("\"{}some\"", "x".repeat(100_000))).unwrap();
    let mut subject = Subject::admission(&capability, &context);
    subject.output = Some(output.as_raw());
    assert_eq!(rules.assess(&subject).alignment, Alignment::Valid);
}

#[test]
fn risk_tolerance_decides_about_lesser_breaches() {
    let rules = Rules::default().cite("sources");
    for (risk, wanted) in [
        (RiskTolerance::Low, Alignment::NonConstitutional),
        (RiskTolerance::Medium, Alignment::Escalate),
        (RiskTolerance::High, Alignment::Escalate),
    ] {
        let context = context(&["sources"], risk);
        assert_eq!(assess(&rules, &context, &[]).alignment, wanted);
        assert_eq!(
            assess(&rules, &context, &["ubos://a".into()]).alignment,
            Alignment::Valid
        );
    }
}

#[test]
fn pressure_above_the_bound_is_not_decided_instantly() {
    let rules = Rules::default().threshold("pause", PressureLevel::Instant, 30.0);
    let verdict = |psi: f64, level| {
        let mut context = context(&["pause"], RiskTolerance::High);
        context.pressure_level = level;
        context.pressure = Some([("pause".to_owned(), Psi::try_from(psi).unwrap())].into());
        let assessment = assess(&rules, &context, &[]);
        assert_eq!(f64::from(&assessment.readings["pause"]), psi);
        assessment.alignment
    };
    assert_eq!(verdict(30.0, PressureLevel::Instant), Alignment::Valid);
    assert_eq!(verdict(30.5, PressureLevel::Instant), Alignment::Escalate);
    assert_eq!(verdict(30.5, PressureLevel::Consulted), Alignment::Valid);
}

#[test]
fn a_level_decides_how_much_is_checked() {
    let rules = Rules::default()
        .forbid("privacy", "some text")
        .cite("sources")
        .require("form", ". is object".parse().unwrap(), Severity::Medium);
    let verdict = |level, principles: &[&str]| {
        let mut context = context(principles, RiskTolerance::High);
        context.pressure_level = level;
        context.constraints = Some(vec!["output . length < 5".into(), "be kind".into()]);
        let assessment = assess(&rules, &context, &[]);
        let broken = assessment.violations.iter();
        let broken: Vec<String> = broken.map(|v| v.principle.clone().unwrap()).collect();
        (assessment.alignment, broken)
    };
    // No principle of the operator's has such a name.
    let long = "constraint: output . length < 5".to_owned();
    let other = &["other"][..];
    assert_eq!(
        verdict(PressureLevel::Instant, other),
        (Alignment::Valid, vec![])
    );
    assert_eq!(
        verdict(PressureLevel::Instant, &[]),
        (Alignment::NonConstitutional, vec!["privacy".into()])
    );
    assert_eq!(
        verdict(PressureLevel::Consulted, other),
        (Alignment::NonConstitutional, vec![long.clone()])
    );
    let all = ["privacy", "sources", "form", &long, "constraint: be kind"].map(str::to_owned);
    assert_eq!(
        verdict(PressureLevel::Deliberated, other),
        (Alignment::NonConstitutional, all.to_vec())
    );
}

// spec: SAP-4.2-4, SAP-6-5
#[test]
fn no_principle_is_said_to_be_kept_before_all_its_rules_ran() {
    let rules = Rules::default().cite("sources").forbid("privacy", "x");
    let capability = "a.b".parse().unwrap();
    let output = RawBuf::parse("1").unwrap();
    let status = |level, output: Option<&RawBuf>| {
        let mut context = context(&["sources", "other"], RiskTolerance::High);
        context.pressure_level = level;
        let cited = ["ubos://a".to_owned()];
        let mut subject = Subject::admission(&capability, &context);
        subject.output = output.map(RawBuf::as_raw);
        subject.citations = &cited;
        let checks = rules.assess(&subject).checks.into_iter();
        let words: Vec<_> = checks.map(|check| check.status.unwrap()).collect();
        words.join(" ")
    };
    let (instant, consulted) = (PressureLevel::Instant, PressureLevel::Consulted);
    assert_eq!(status(consulted, None), "UNCHECKED PASS");
    assert_eq!(status(instant, Some(&output)), "UNCHECKED PASS");
    assert_eq!(status(consulted, Some(&output)), "PASS PASS");
}

#[test]
fn constraints_are_kept_broken_or_said_to_be_unchecked() {
    let rules = Rules::default().constraint("No PII", "not . contains \"text\"".parse().unwrap());
    let assessed = |constraints: &[&str], level| {
        let mut context = context(&[], RiskTolerance::Medium);
        context.pressure_level = level;
        context.constraints = Some(constraints.iter().map(|&c| c.into()).collect());
        let assessment = assess(&rules, &context, &[]);
        let statuses = assessment
            .checks
            .iter()
            .map(|check| check.status.clone().unwrap());
        (assessment.alignment, statuses.collect::<Vec<_>>())
    };
    let (consulted, deliberated) = (PressureLevel::Consulted, PressureLevel::Deliberated);
    let of = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        assessed(&["output . is string", "be kind", "output ."], consulted),
        (Alignment::Valid, of(&["PASS", "UNCHECKED", "UNCHECKED"]))
    );
    assert_eq!(
        assessed(&["No PII", "output . is number"], consulted),
        (Alignment::NonConstitutional, of(&["FAIL", "FAIL"]))
    );
    // Whom nobody can check, somebody has to look at, where the matter is weighed at length.
    assert_eq!(
        assessed(&["be kind"], deliberated),
        (Alignment::Escalate, of(&["UNCHECKED"]))
    );
    let many = vec!["be kind"; 100];
    assert_eq!(assessed(&many, consulted).1.len(), 65);
}

#[test]
fn escalation_says_what_to_do_next() {
    let rules = Rules::default()
        .threshold("pause", PressureLevel::Instant, 30.0)
        .cite("sources");
    let action = |level| {
        let mut context = context(&[], RiskTolerance::High);
        context.pressure_level = level;
        context.pressure = Some([("pause".to_owned(), Psi::try_from(31.0).unwrap())].into());
        let assessment = assess(&rules, &context, &[]);
        assert_eq!(assessment.alignment, Alignment::Escalate);
        let [action] = &assessment.next_actions[..] else {
            panic!("one action")
        };
        action.deserialize::<serde_json::Value>().unwrap()
    };
    let again = action(PressureLevel::Instant);
    assert_eq!(again["action"], "decide again");
    assert_eq!(again["target"]["capability"], "a.b");
    assert_eq!(again["constitutionalContext"]["pressureLevel"], "consulted");
    assert_eq!(
        again["constitutionalContext"]["principles"],
        serde_json::json!(["pause"])
    );
    assert_eq!(action(PressureLevel::Consulted)["action"], "review");
}

#[test]
fn another_context_flips_stored_outcomes_and_runs_nothing() {
    let task = read_task(&task(), &Options::default()).unwrap().0;
    let read = |result| read_result(&result, &Options::default()).unwrap().0;
    let outputless = with(result(), "/output", None);
    let stored = [(task.clone(), read(result())), (task, read(outputless))];
    let rules = Rules::default().forbid("strategic_pause", "learning");
    let flips = |principles: &[&str]| {
        let other = |context: &ConstitutionalContext| {
            let mut other = context.clone();
            other.principles = Some(principles.iter().map(|&p| p.into()).collect());
            other
        };
        let outcomes = stored.iter().map(|(task, result)| (task, result));
        what_if(&rules, outcomes, other).collect::<Vec<_>>()
    };
    assert!(matches!(
        flips(&["blueprint_thinking"])[..],
        [WhatIf::Same, WhatIf::Unknown]
    ));
    let flipped = flips(&["strategic_pause"]);
    let [
        WhatIf::Flips {
            from: Alignment::Valid,
            to,
        },
        WhatIf::Unknown,
    ] = &flipped[..]
    else {
        panic!("{flipped:?}");
    };
    assert_eq!(
        to.violations[0].principle.as_deref(),
        Some("strategic_pause")
    );
}

#[test]
fn what_the_constraints_of_a_task_cost_is_bounded() {
    let elements = vec!["7"; 100_000].join(",");
    let output = RawBuf::parse(&format!(r#"{{"l":[{elements}]}}"#)).unwrap();
    let mut context = context(&[], RiskTolerance::Medium);
    context.pressure_level = PressureLevel::Consulted;
    let constraints = (8..72).map(|bound| format!("output /l/* < {bound}"));
    context.constraints = Some(constraints.collect());
    let capability = "a.b".parse().unwrap();
    let mut subject = Subject::admission(&capability, &context);
    subject.output = Some(output.as_raw());
    let judged = |rules: &Rules| {
        let assessment = rules.assess(&subject);
        let outcomes = assessment.checks.iter();
        let outcomes = outcomes.filter_map(|check| check.status.clone()).collect();
        (assessment.alignment, outcomes)
    };
    // There are steps for one; it is read once, and what is left out is said.
    let (alignment, outcomes): (_, Vec<String>) = judged(&Rules::default());
    assert_eq!((alignment, outcomes.len()), (Alignment::Valid, 64));
    assert_eq!(outcomes[0], "PASS");
    assert_eq!(outcomes[1..], vec!["UNCHECKED".to_owned(); 63]);
    // What a rule of the policy cannot know is not taken for kept.
    let mut strict = Rules::default();
    for bound in [8, 9] {
        let predicate = format!("/l/* < {bound}").parse().unwrap();
        strict = strict.require("form", predicate, Severity::High);
    }
    assert_eq!(judged(&strict).0, Alignment::NonConstitutional);
}

/// What a processor asks for is made where it holds up nobody, and is what the policy finds.
// spec: SAP-4.2-9
#[test]
fn what_takes_its_time_is_judged_apart() {
    let rules = Rules::default()
        .forbid("privacy", "home address")
        .forbid("privacy", "caf\u{e9}")
        .require("form", "/* < 8".parse().unwrap(), Severity::High);
    let capability = "a.b".parse().unwrap();
    let judged = |output: &str, constraints: &[&str]| {
        let mut context = context(&["privacy"], RiskTolerance::High);
        let constraints = constraints.iter().map(|&text| text.into());
        context.constraints = Some(constraints.collect());
        let output = RawBuf::parse(output).unwrap();
        let mut subject = Subject::admission(&capability, &context);
        subject.output = Some(output.as_raw());
        let judging = || block_on(rules.assess_apart(subject));
        let mut waking = std::task::Context::from_waker(std::task::Waker::noop());
        let mut poll = || rules.assess_apart(subject).as_mut().poll(&mut waking);
        // A thread may be done before it is asked, but not each time. Without a driver nobody waits.
        let is_apart = (0..20).any(|_| poll().is_pending()) || cfg!(not(feature = "driver"));
        assert_eq!(judging(), rules.assess(&subject));
        (judging().violations.len(), is_apart)
    };
    for (text, end, found) in [
        ("lorem ipsum ", "homeAddress", 1),
        ("\u{301}", "the cafe\u{301} at my home  ADDRESS", 2),
        ("lorem ", "home\", \"address", 0),
    ] {
        let output = format!("[\"{}{end}\"]", text.repeat((1 << 20) / text.len()));
        assert_eq!(judged(&output, &[]), (found, true), "{text:?}");
    }
    // Short outputs are dear under many terms, and cheap under few.
    let output = format!("[\"{}\"]", "é".repeat(2_000));
    let term = "output /0 contains \"x\"";
    let terms = [term; 64];
    assert_eq!(judged(&output, &[term]).1, cfg!(not(feature = "driver")));
    assert!(judged(&output, &terms).1);
}

// spec: SAP-4.2-9
#[test]
fn words_are_forbidden_however_they_are_joined() {
    for words in [
        "home_address",
        "homeAddress",
        "home address",
        "home-address",
    ] {
        let rules = Rules::default().forbid("privacy", words);
        let context = context(&["privacy"], RiskTolerance::High);
        let capability = "a.b".parse().unwrap();
        for output in [
            "my home address",
            "homeAddress",
            "HOME_ADDRESS",
            "home.address",
        ] {
            let output = RawBuf::from_serialize(output).unwrap();
            let mut subject = Subject::admission(&capability, &context);
            subject.output = Some(output.as_raw());
            let found = rules.assess(&subject).violations.len();
            assert_eq!(found, 1, "{words} in {output:?}");
        }
    }
}

// spec: SAP-4.2-9
#[test]
fn what_is_no_name_is_forbidden_as_it_is_written() {
    let capability = "a.b".parse().unwrap();
    let context = context(&["privacy"], RiskTolerance::High);
    for (words, output) in [
        ("PRIVATE KEY-----", "a private key"),
        ("-----BEGIN", "we begin"),
        ("1.5", "1 5"),
    ] {
        let rules = Rules::default().forbid("privacy", words);
        for (output, found) in [(output, 0), (&*format!("x {words} x"), 1)] {
            let output = RawBuf::from_serialize(output).unwrap();
            let mut subject = Subject::admission(&capability, &context);
            subject.output = Some(output.as_raw());
            assert_eq!(
                rules.assess(&subject).violations.len(),
                found,
                "{words} in {output:?}"
            );
        }
    }
}

// spec: SAP-4.2-4
#[test]
fn of_many_principles_few_are_listed() {
    let rules = Rules::default().forbid("last", "some text");
    let names = (0..10_000).map(|n| format!("{n} {}", "long ".repeat(100)));
    let mut many = context(&[], RiskTolerance::High);
    many.principles = Some(names.chain(["last".to_owned()]).collect());
    let assessment = assess(&rules, &many, &[]);
    assert_eq!(assessment.alignment, Alignment::NonConstitutional);
    let said = |check: &sap::PolicyCheck| {
        (
            check.principle.clone().unwrap(),
            check.status.clone().unwrap(),
        )
    };
    let said: Vec<_> = assessment.checks.iter().map(said).collect();
    assert_eq!(said.len(), 66);
    assert!(said.iter().all(|(name, _)| name.chars().count() <= 120));
    assert!(said.contains(&("last".to_owned(), "FAIL".to_owned())));
    assert!(said.contains(&("9937 more principles".to_owned(), "PASS".to_owned())));
}

#[test]
fn an_array_is_read_once_for_all_constraints() {
    let elements = vec!["7"; 90_000].join(",");
    let output = RawBuf::parse(&format!(r#"{{"l":[{elements}]}}"#)).unwrap();
    let mut context = context(&[], RiskTolerance::Medium);
    context.pressure_level = PressureLevel::Consulted;
    let constraints = (0..64).map(|bound| format!("output /l length > {bound}"));
    context.constraints = Some(constraints.collect());
    let capability = "a.b".parse().unwrap();
    let mut subject = Subject::admission(&capability, &context);
    subject.output = Some(output.as_raw());
    let assessment = Rules::default().assess(&subject);
    let checks = assessment.checks.iter();
    let kept = checks.filter(|check| check.status.as_deref() == Some("PASS"));
    assert_eq!(kept.count(), 64);
}
