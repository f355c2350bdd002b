//! The policy of rules.

use sap::alignment::{Assessment, Policy as _, Rules, Subject};
use sap::number::Psi;
use sap::{Alignment, ConstitutionalContext, PressureLevel, RiskTolerance};
use ubos_common::json::RawBuf;

fn context(principles: &[&str], risk: RiskTolerance) -> ConstitutionalContext {
    let mut context = ConstitutionalContext::new(PressureLevel::Instant);
    context.principles = Some(principles.iter().map(|&p| p.into()).collect());
    context.risk_tolerance = Some(risk);
    context
}

fn assess(rules: &Rules, context: &ConstitutionalContext, citations: &[String]) -> Assessment {
    let capability = "a.b".parse().unwrap();
    let output = RawBuf::parse("\"Some Text\"").unwrap();
    rules.assess(
        &Subject::admission(&capability, context).proposing(Some(output.as_raw()), citations),
    )
}

#[test]
fn a_rule_binds_where_its_principle_is_named() {
    let rules = Rules::default().forbid("privacy", "SOME text");
    let named = assess(&rules, &context(&["privacy"], RiskTolerance::High), &[]);
    assert_eq!(
        (named.alignment, named.violations.len()),
        (Alignment::NonConstitutional, 1)
    );
    let other = assess(&rules, &context(&["other"], RiskTolerance::High), &[]);
    assert_eq!(
        (other.alignment, other.violations.len(), other.checks.len()),
        (Alignment::Valid, 0, 1)
    );
    let none = assess(&rules, &context(&[], RiskTolerance::High), &[]);
    assert_eq!(none.alignment, Alignment::NonConstitutional);
    assert_eq!(none.checks[0].status.as_deref(), Some("FAIL"));
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
    let rules = Rules::default().deliberate_above("pause", 30.0);
    let verdict = |psi: f64, level| {
        let mut context = context(&["pause"], RiskTolerance::High);
        context.pressure_level = level;
        context.pressure = Some([("pause".to_owned(), Psi::new(psi).unwrap())].into());
        let assessment = assess(&rules, &context, &[]);
        assert_eq!(assessment.readings["pause"].value(), psi);
        assessment.alignment
    };
    assert_eq!(verdict(30.0, PressureLevel::Instant), Alignment::Valid);
    assert_eq!(verdict(30.5, PressureLevel::Instant), Alignment::Escalate);
    assert_eq!(verdict(30.5, PressureLevel::Consulted), Alignment::Valid);
}
