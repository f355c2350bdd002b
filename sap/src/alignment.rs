//! Alignment: the verdict on a proposed output in its context, and what led to it.

use core::fmt;
use std::collections::BTreeMap;

use ubos_common::json::Raw;

use crate::context::{ConstitutionalContext, PressureLevel, RiskTolerance};
use crate::evidence::{Alignment, ConstitutionalEvidence, PolicyCheck, PolicyViolation};
use crate::ident::Capability;
use crate::number::Number;

/// What is judged.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// What is done.
    pub capability: &'a Capability,
    /// The alignment inputs of the task.
    pub context: &'a ConstitutionalContext,
    /// What is proposed; absent at admission, before anything is computed.
    pub output: Option<Raw<'a>>,
    /// What grounds it.
    pub citations: &'a [String],
}

impl<'a> Subject<'a> {
    /// A task before anything is computed.
    #[must_use]
    pub const fn admission(capability: &'a Capability, context: &'a ConstitutionalContext) -> Self {
        Self {
            capability,
            context,
            output: None,
            citations: &[],
        }
    }

    /// The same task with a proposed output.
    #[must_use]
    pub const fn proposing(mut self, output: Option<Raw<'a>>, citations: &'a [String]) -> Self {
        self.output = output;
        self.citations = citations;
        self
    }
}

/// A verdict that explains itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Assessment {
    /// The verdict.
    pub alignment: Alignment,
    /// Pressure by principle, as it was when the verdict was made.
    pub readings: BTreeMap<String, Number>,
    /// What was found, principle by principle.
    pub checks: Vec<PolicyCheck>,
    /// What is wrong.
    pub violations: Vec<PolicyViolation>,
}

impl Assessment {
    /// VALID, with the pressure of the context as readings and nothing checked.
    #[must_use]
    pub fn valid(context: &ConstitutionalContext) -> Self {
        let pressure = context.pressure.iter().flatten();
        Self {
            alignment: Alignment::Valid,
            readings: pressure
                .map(|(name, psi)| (name.clone(), Number::from(psi)))
                .collect(),
            checks: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// The evidence of a result, without citations and cache.
    #[must_use]
    pub fn into_evidence(self) -> ConstitutionalEvidence {
        let mut evidence = ConstitutionalEvidence::new(self.alignment);
        evidence.pressure_readings = Some(self.readings);
        evidence.policy_checks = Some(self.checks);
        evidence.violations = (!self.violations.is_empty()).then_some(self.violations);
        evidence
    }
}

/// Gives verdicts: a pure function of its subject.
pub trait Policy: fmt::Debug + Send + Sync {
    /// The verdict.
    fn assess(&self, subject: &Subject<'_>) -> Assessment;
}

/// Takes everything for aligned: what holds where no checker is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a unit")]
pub struct AlwaysValid;

impl Policy for AlwaysValid {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        Assessment::valid(subject.context)
    }
}

/// A small policy of rules, applied in the order in which they were added.
///
/// | rule | broken by | severity |
/// |---|---|---|
/// | [`forbid`](Self::forbid) | an output that contains the words, whatever their case | high |
/// | [`cite`](Self::cite) | an output without a citation | medium |
/// | [`deliberate_above`](Self::deliberate_above) | more pressure than that on a task decided instantly | medium |
///
/// A rule binds where its principle is among the task's, or the task names none. A broken rule of high severity
/// is NON_CONSTITUTIONAL, and so is any under a low risk tolerance; else the verdict is ESCALATE. Each principle
/// of the task has a check that says what was found.
///
/// ```
/// use sap::alignment::{Policy as _, Rules, Subject};
/// use sap::{Alignment, ConstitutionalContext, PressureLevel};
/// use ubos_common::json::RawBuf;
///
/// let rules = Rules::default().forbid("privacy", "home address");
/// let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
/// context.principles = Some(vec!["privacy".into()]);
/// let (capability, output) = ("desk.answer".parse()?, RawBuf::parse("\"The Home Address is\"")?);
/// let subject = Subject::admission(&capability, &context).proposing(Some(output.as_raw()), &[]);
/// let assessment = rules.assess(&subject);
/// assert_eq!(assessment.alignment, Alignment::NonConstitutional);
/// assert_eq!(assessment.violations[0].principle.as_deref(), Some("privacy"));
/// assert_eq!(assessment.checks[0].status.as_deref(), Some("FAIL"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<(String, Rule)>);

#[derive(Clone, Debug)]
enum Rule {
    Forbid(String),
    Cite,
    DeliberateAbove(f64),
}

impl Rules {
    /// Forbids words in outputs.
    #[must_use]
    pub fn forbid(mut self, principle: &str, words: &str) -> Self {
        self.0
            .push((principle.into(), Rule::Forbid(words.to_lowercase())));
        self
    }

    /// Demands a citation with every output.
    #[must_use]
    pub fn cite(mut self, principle: &str) -> Self {
        self.0.push((principle.into(), Rule::Cite));
        self
    }

    /// Demands that a task under more than `psi` of pressure is not decided instantly.
    #[must_use]
    pub fn deliberate_above(mut self, principle: &str, psi: f64) -> Self {
        self.0.push((principle.into(), Rule::DeliberateAbove(psi)));
        self
    }
}

impl Policy for Rules {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        let mut assessment = Assessment::valid(subject.context);
        let output = subject.output.map(|raw| raw.as_str().to_lowercase());
        let named = subject.context.principles.as_deref().unwrap_or_default();
        let binding = |principle: &String| named.is_empty() || named.contains(principle);
        let rules = self.0.iter().filter(|(principle, _)| binding(principle));
        for (principle, rule) in rules {
            if let Some((severity, evidence)) = rule.breach(principle, subject, output.as_deref()) {
                let violation = PolicyViolation::with(principle, severity, evidence);
                assessment.violations.push(violation);
            }
        }
        assessment.alignment = verdict(&assessment.violations, subject.context);
        let broken: Vec<&str> = assessment
            .violations
            .iter()
            .filter_map(|violation| violation.principle.as_deref())
            .collect();
        let unnamed = broken.iter().filter(|p| !named.iter().any(|n| n == *p));
        let principles = named.iter().map(String::as_str).chain(unnamed.copied());
        assessment.checks = principles.map(|name| check(name, &broken)).collect();
        assessment
    }
}

impl Rule {
    /// Severity and evidence, if the rule is broken. The evidence does not repeat the output.
    fn breach(
        &self,
        principle: &str,
        subject: &Subject<'_>,
        output: Option<&str>,
    ) -> Option<(&'static str, String)> {
        match self {
            Self::Forbid(words) => output
                .is_some_and(|text| text.contains(words))
                .then(|| (HIGH, format!("the output contains {words:?}"))),
            Self::Cite => (output.is_some() && subject.citations.is_empty())
                .then(|| (MEDIUM, "the output cites nothing".into())),
            Self::DeliberateAbove(psi) => {
                let pressure = subject.context.pressure.as_ref()?.get(principle)?.value();
                let instant = subject.context.pressure_level == PressureLevel::Instant;
                (instant && pressure > *psi).then(|| {
                    let evidence = format!("{pressure} PSI decided instantly, {psi} is the bound");
                    (MEDIUM, evidence)
                })
            }
        }
    }
}

fn verdict(violations: &[PolicyViolation], context: &ConstitutionalContext) -> Alignment {
    let is_high = |violation: &PolicyViolation| violation.severity.as_deref() == Some(HIGH);
    if violations.is_empty() {
        Alignment::Valid
    } else if violations.iter().any(is_high) || context.risk_tolerance == Some(RiskTolerance::Low) {
        Alignment::NonConstitutional
    } else {
        Alignment::Escalate
    }
}

fn check(principle: &str, broken: &[&str]) -> PolicyCheck {
    if broken.contains(&principle) {
        PolicyCheck::with(principle, "FAIL", "a rule of this principle is broken")
    } else {
        PolicyCheck::with(principle, "PASS", "no rule of this principle is broken")
    }
}

const HIGH: &str = "high";
const MEDIUM: &str = "medium";
