//! The policy of rules.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ubos_common::json::{MemberWriter, RawBuf, RawObject};

use super::constraints::{self, shown};
use super::dear::{self, Owned};
use super::output::Output;
use super::predicate::Predicate;
use super::reading::{reading_of, taken_apart};
use super::severity::Severity;
use super::texts::texts_of;
use super::{Assessment, Policy, Subject};
use crate::context::{ConstitutionalContext, PressureLevel, RiskTolerance};
use crate::evidence::{Alignment, PolicyCheck, PolicyViolation};
use crate::future::{BoxFuture, apart, ready};
use crate::ident::Capability;
use crate::learning::Heuristics;

/// A policy of rules, applied in the order in which they were added.
///
/// | rule | broken by | severity | from level |
/// |---|---|---|---|
/// | [`threshold`](Self::threshold) | more pressure on the principle than the level is enough for | medium | instant |
/// | [`forbid`](Self::forbid) | an output with a text or a name that contains the words as people read them | high | instant |
/// | [`require`](Self::require) | an output for which the [`Predicate`] does not hold | as given | consulted |
/// | [`cite`](Self::cite) | an output without a citation | medium | consulted |
/// | [`constraint`](Self::constraint) | an output that breaks a constraint of the task | high | consulted |
///
/// How much is checked depends on the level of the task:
///
/// | level | what is checked |
/// |---|---|
/// | instant | pressure, and forbidden words |
/// | consulted | every rule, and the task's constraints |
/// | deliberated | as consulted, with the rules of principles that the task does not name; a constraint that nobody can check is an issue of low severity |
///
/// A rule binds where its principle is among the task's, or the task names none, or the principle was found
/// broken in such tasks before ([`learned`](Self::learned)). A constraint of a task is a predicate where it
/// begins with `output `; any other text is checked where [`constraint`](Self::constraint) says how, and is
/// listed as `UNCHECKED` otherwise.
///
/// The verdict, by the gravest issue and the risk tolerance of the task:
///
/// | | low | medium, or absent | high |
/// |---|---|---|---|
/// | high | NON_CONSTITUTIONAL | NON_CONSTITUTIONAL | NON_CONSTITUTIONAL |
/// | medium | NON_CONSTITUTIONAL | ESCALATE | ESCALATE |
/// | low | ESCALATE | ESCALATE | VALID |
///
/// ESCALATE comes with next actions: to decide again at a higher level, or to review.
///
/// ```
/// use sap::alignment::{Policy as _, Rules, Subject};
/// use sap::{Alignment, ConstitutionalContext, PressureLevel};
/// use sap::ubos_common::json::RawBuf;
///
/// let rules = Rules::default().forbid("privacy", "home address");
/// let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
/// context.principles = Some(vec!["privacy".into()]);
/// context.constraints = Some(vec!["output . length < 100".into()]);
/// let (capability, output) = ("desk.answer".parse()?, RawBuf::parse("\"The Home Address is\"")?);
/// let mut subject = Subject::admission(&capability, &context);
/// subject.output = Some(output.as_raw());
/// let assessment = rules.assess(&subject);
/// assert_eq!(assessment.alignment, Alignment::NonConstitutional);
/// assert_eq!(assessment.violations[0].principle.as_deref(), Some("privacy"));
/// assert_eq!(assessment.checks[0].status.as_deref(), Some("FAIL"));
/// assert_eq!(assessment.checks[1].status.as_deref(), Some("PASS"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<(String, Rule)>,
    thresholds: Vec<(String, PressureLevel, f64)>,
    constraints: Vec<(String, Predicate)>,
    learned: Option<Arc<Heuristics>>,
}

#[derive(Clone, Debug)]
enum Rule {
    /// As they are read, and where they are one name, as its words.
    Forbid(String, Option<String>),
    Require(Predicate, Severity),
    Cite,
}

impl Rules {
    /// Forbids words in outputs, as people read them: in any case and Unicode form, with any white space between them
    /// and with characters in them that nobody sees, and as one name such as `homeAddress`.
    #[must_use]
    pub fn forbid(self, principle: &str, words: &str) -> Self {
        let apart = is_name(words).then(|| taken_apart(words)).flatten();
        let apart = apart.map(|words| reading_of(&words));
        self.with(principle, Rule::Forbid(reading_of(words), apart))
    }

    /// Demands that a predicate holds for every output.
    #[must_use]
    pub fn require(self, principle: &str, predicate: Predicate, severity: Severity) -> Self {
        self.with(principle, Rule::Require(predicate, severity))
    }

    /// Demands a citation with every output.
    #[must_use]
    pub fn cite(self, principle: &str) -> Self {
        self.with(principle, Rule::Cite)
    }

    /// Says up to how much pressure on a principle a level is enough: a task at [`PressureLevel::Instant`] under more
    /// of it is not decided instantly. What is learned goes before it once an operator has
    /// [approved](crate::learning::Threshold::approved) it.
    #[must_use]
    pub fn threshold(mut self, principle: &str, level: PressureLevel, psi: f64) -> Self {
        self.thresholds.push((principle.into(), level, psi));
        self
    }

    /// Says how a constraint in words, such as `Cite constitutional sources`, is checked.
    #[must_use]
    pub fn constraint(mut self, text: &str, predicate: Predicate) -> Self {
        self.constraints.push((text.into(), predicate));
        self
    }

    /// The same rules with what was learned: thresholds where none is given here, approved ones in the place of those
    /// that are, and principles that bind because they were found broken before.
    // impl: SAP-7-2
    #[must_use]
    pub fn learned(mut self, heuristics: Arc<Heuristics>) -> Self {
        self.learned = Some(heuristics);
        self
    }

    fn with(mut self, principle: &str, rule: Rule) -> Self {
        self.rules.push((principle.into(), rule));
        self
    }

    /// Principles that bind although the task does not name them.
    fn found_broken<'s>(&'s self, subject: &Subject<'s>) -> BTreeSet<&'s str> {
        let territory = subject.context.territory.as_deref();
        let learned = self.learned.iter();
        let broken = learned.flat_map(|learned| learned.broken(subject.capability, territory));
        broken.map(|entry| entry.principle.as_str()).collect()
    }

    /// Up to how much pressure on each principle the task's level is enough, where that is known.
    fn bounds<'s>(&'s self, subject: &Subject<'_>) -> HashMap<&'s str, f64> {
        let level = subject.context.pressure_level;
        let given = self.thresholds.iter().filter(|(_, at, _)| *at == level);
        let mut bounds: HashMap<&str, f64> = given
            .map(|(principle, _, psi)| (principle.as_str(), *psi))
            .collect();
        let territory = subject.context.territory.as_deref();
        let learned = self.learned.iter();
        let learned =
            learned.flat_map(|learned| learned.thresholds_of(subject.capability, territory, level));
        let mut seen = HashSet::new();
        for threshold in learned.filter(|threshold| seen.insert(&threshold.principle)) {
            match bounds.entry(&threshold.principle) {
                Entry::Vacant(place) => drop(place.insert(threshold.psi)),
                // What an operator has set stays until an operator has approved what goes before it.
                Entry::Occupied(mut set) if threshold.approved_by.is_some() => {
                    set.insert(threshold.psi);
                }
                Entry::Occupied(_) => {}
            }
        }
        bounds
    }

    fn pressure(&self, subject: &Subject<'_>, found: &mut Found<'_>) {
        let Some(pressure) = &subject.context.pressure else {
            return;
        };
        let bounds = self.bounds(subject);
        for (principle, psi) in pressure {
            let Some(bound) = bounds.get(principle.as_str()) else {
                continue;
            };
            if psi.value() > *bound && found.binds(principle) {
                let level = subject.context.pressure_level;
                let evidence = format!(
                    "{}{} PSI decided at the level {}, {bound} is the bound",
                    PolicyViolation::BY_THRESHOLD,
                    psi.value(),
                    level
                );
                found.issue(principle, Severity::Medium, evidence);
                found.is_under_pressure = true;
            }
        }
    }

    fn rules<'s>(
        &'s self,
        subject: &Subject<'_>,
        found: &mut Found<'s>,
        output: Option<&mut Output<'_>>,
    ) {
        let is_instant = subject.context.pressure_level == PressureLevel::Instant;
        let Some(output) = output else {
            let all = self.rules.iter().map(|(principle, _)| principle.as_str());
            return found.unjudged.extend(all);
        };
        let whole = output.whole;
        let mut texts = None;
        let mut read = |words: &str| {
            let texts = texts.get_or_insert_with(|| texts_of(whole));
            (texts.text.contains(words), texts.is_cut)
        };
        for (principle, rule) in &self.rules {
            let is_quick = matches!(rule, Rule::Forbid(..));
            if is_instant && !is_quick {
                found.unjudged.insert(principle);
                continue;
            }
            if !found.binds(principle) {
                continue;
            }
            match rule {
                Rule::Forbid(words, apart) => {
                    let (has, is_cut) = read(words);
                    let has = has || apart.as_ref().is_some_and(|words| read(words).0);
                    // What cannot be known is not taken for kept.
                    let evidence = match (has, is_cut) {
                        (true, _) => format!("the output contains {words:?}"),
                        (false, true) => format!("too long to be read for {words:?}"),
                        (false, false) => continue,
                    };
                    found.issue(principle, Severity::High, evidence);
                }
                Rule::Require(predicate, severity) => {
                    // What cannot be known is not taken for kept.
                    let evidence = match predicate.holds_within(output) {
                        Ok(true) => continue,
                        Ok(false) => format!("the output does not keep {predicate}"),
                        Err(spent) => format!("{predicate}: {spent}"),
                    };
                    found.issue(principle, *severity, evidence);
                }
                Rule::Cite if subject.citations.is_empty() => {
                    let evidence = "the output cites nothing".to_owned();
                    found.issue(principle, Severity::Medium, evidence);
                }
                _ => {}
            }
        }
    }
}

impl Rules {
    /// About how many steps a verdict takes: each rule, and each term of a predicate, may look at all of the output.
    fn price(&self, subject: &Subject<'_>) -> usize {
        let rules = self.rules.iter().map(|(_, rule)| match rule {
            Rule::Require(predicate, _) => predicate.terms(),
            Rule::Forbid(..) | Rule::Cite => 1,
        });
        let constraints = constraints::looks(subject.context, &self.constraints);
        let looks = 1 + rules.sum::<usize>() + constraints;
        let is_read = (self.rules.iter()).any(|(_, rule)| matches!(rule, Rule::Forbid(..)));
        let reads = if is_read { dear::reading(subject) } else { 0 };
        let learned = self.learned.as_ref();
        let learned = learned.map_or(0, |learned| {
            learned.thresholds.len() + learned.catalogue.len()
        });
        dear::price(subject, looks) + reads + self.thresholds.len() + learned
    }
}

impl Policy for Rules {
    fn assess(&self, subject: &Subject<'_>) -> Assessment {
        let mut assessment = Assessment::valid(subject.context);
        let named = subject.context.principles.as_deref().unwrap_or_default();
        let mut found = Found {
            named,
            is_named: named.iter().map(String::as_str).collect(),
            learned: self.found_broken(subject),
            is_thorough: subject.context.pressure_level == PressureLevel::Deliberated,
            unjudged: HashSet::new(),
            issues: Vec::new(),
            is_under_pressure: false,
        };
        self.pressure(subject, &mut found);
        let mut output = subject.output.map(Output::new);
        self.rules(subject, &mut found, output.as_mut());
        let constraints = constraints::check(subject, &self.constraints, output.as_mut());
        assessment.checks = found.checks();
        for checked in constraints {
            if let Some((severity, evidence)) = checked.issue {
                // A text of the task's own: it must not be taken for a principle of that name.
                let name = format!("{}{}", PolicyViolation::OF_CONSTRAINT, checked.name);
                found.issue(&name, severity, evidence);
            }
            assessment.checks.push(checked.check);
        }
        assessment.alignment = verdict(&found, subject.context);
        if assessment.alignment == Alignment::Escalate {
            assessment.next_actions = vec![next_action(subject, &found)];
        }
        let issues = found.issues.into_iter();
        let violations = issues.map(|(principle, severity, evidence)| {
            PolicyViolation::with(&principle, &severity.to_string(), evidence)
        });
        assessment.violations = violations.collect();
        assessment
    }

    fn assess_apart<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Assessment> {
        if self.price(&subject) <= dear::DEAR {
            return ready(self.assess(&subject));
        }
        let (rules, owned) = (self.clone(), Owned::of(&subject));
        Box::pin(apart(move || rules.assess(&owned.subject())))
    }
}

/// What has been found so far.
struct Found<'a> {
    named: &'a [String],
    /// The same: there may be as many as a task has room for.
    is_named: HashSet<&'a str>,
    learned: BTreeSet<&'a str>,
    is_thorough: bool,
    /// Principles of which not every rule was held against an output.
    unjudged: HashSet<&'a str>,
    issues: Vec<(String, Severity, String)>,
    is_under_pressure: bool,
}

impl Found<'_> {
    fn binds(&self, principle: &str) -> bool {
        self.named.is_empty()
            || self.is_thorough
            || self.is_named.contains(principle)
            || self.learned.contains(principle)
    }

    fn issue(&mut self, principle: &str, severity: Severity, evidence: String) {
        self.issues.push((principle.to_owned(), severity, evidence));
    }

    /// A check for each principle that has an issue, and for each other one of the task: of more than a few of those, one for
    /// the rest.
    fn checks(&self) -> Vec<PolicyCheck> {
        let broken: BTreeSet<&str> = self
            .issues
            .iter()
            .map(|(name, _, _)| name.as_str())
            .collect();
        let named = self.named.iter().take(MAX_LISTED).map(String::as_str);
        let listed: BTreeSet<&str> = named.clone().collect();
        let unlisted = broken.difference(&listed).copied();
        let check = |name: &str| {
            if broken.contains(name) {
                PolicyCheck::with(name, "FAIL", "a rule of this principle is broken")
            } else if self.unjudged.contains(name) {
                PolicyCheck::with(&shown(name), "UNCHECKED", UNJUDGED)
            } else {
                PolicyCheck::with(&shown(name), "PASS", "no rule of this principle is broken")
            }
        };
        let mut checks: Vec<PolicyCheck> = named.chain(unlisted).map(check).collect();
        if self.named.len() > MAX_LISTED {
            let more = format!("{} more principles", self.named.len() - MAX_LISTED);
            let mut rest = self.named.iter().skip(MAX_LISTED);
            checks.push(
                match rest.any(|name| self.unjudged.contains(name.as_str())) {
                    true => PolicyCheck::with(&more, "UNCHECKED", UNJUDGED),
                    false => {
                        let why = "no rule of them is broken but those listed";
                        PolicyCheck::with(&more, "PASS", why)
                    }
                },
            );
        }
        checks
    }
}

/// Whether words are one name, such as `homeAddress` or `home_address`, and no phrase or mark: taken apart, `KEY-----` would be
/// any key.
fn is_name(words: &str) -> bool {
    let mut parts = words.split(['_', '-', '.']);
    parts.all(|part| {
        part.starts_with(char::is_alphabetic) && part.chars().all(char::is_alphanumeric)
    })
}

/// Why it is not said that a principle is kept: before there is an output, and at the level instant.
const UNJUDGED: &str = "not every rule of this principle was held against an output";
/// Principles of a task that are listed one by one.
const MAX_LISTED: usize = 64;

fn verdict(found: &Found<'_>, context: &ConstitutionalContext) -> Alignment {
    let gravest = found.issues.iter().map(|(_, severity, _)| *severity).max();
    let (low, high) = (RiskTolerance::Low, RiskTolerance::High);
    match (gravest, &context.risk_tolerance) {
        (None, _) => Alignment::Valid,
        (Some(Severity::High), _) => Alignment::NonConstitutional,
        (Some(Severity::Medium), Some(risk)) if *risk == low => Alignment::NonConstitutional,
        (Some(Severity::Low), Some(risk)) if *risk == high => Alignment::Valid,
        _ => Alignment::Escalate,
    }
}

/// The path of escalation: the same task at the next level, or at the last one a review.
fn next_action(subject: &Subject<'_>, found: &Found<'_>) -> RawObject {
    let level = subject.context.pressure_level;
    let higher = match level {
        PressureLevel::Instant => PressureLevel::Consulted,
        _ => PressureLevel::Deliberated,
    };
    let is_new_decision = found.is_under_pressure && level != higher;
    let action = if is_new_decision {
        "decide again"
    } else {
        "review"
    };
    let names = found.issues.iter().map(|(name, _, _)| name.as_str());
    let plain = |name: &'_ str| {
        let constraint = name.strip_prefix(PolicyViolation::OF_CONSTRAINT);
        constraint.unwrap_or(name).to_owned()
    };
    let principles: BTreeSet<String> = names.map(plain).collect();
    let principles: Vec<String> = principles.into_iter().collect();
    let mut context = Vec::new();
    let mut object = MemberWriter::begin(&mut context);
    object.member(
        "pressureLevel",
        if is_new_decision {
            &higher
        } else {
            &PressureLevel::Deliberated
        },
    );
    object.member("principles", &principles);
    object.end();
    let mut text = Vec::new();
    let mut object = MemberWriter::begin(&mut text);
    object.member("action", action);
    object.member("target", &Target(subject.capability));
    object.member("constitutionalContext", &Verbatim(&context));
    object.end();
    let text = String::from_utf8(text).unwrap_or_default();
    let value = RawBuf::parse(&text).ok();
    value.and_then(RawObject::new).unwrap_or_default()
}

struct Target<'a>(&'a Capability);

impl ubos_common::json::Write for Target<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = MemberWriter::begin(out);
        object.member("capability", self.0);
        object.end();
    }
}

struct Verbatim<'a>(&'a [u8]);

impl ubos_common::json::Write for Verbatim<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::learning::{CatalogueEntry, Count, Evidence};

    /// The price of a verdict over 100,000 bytes, where a task names constraints.
    fn price(rules: &Rules, constraints: &[&str]) -> usize {
        let mut context = ConstitutionalContext::new(PressureLevel::Consulted);
        context.constraints = Some(constraints.iter().map(|&text| text.into()).collect());
        let (capability, output) = ("desk.answer".parse().unwrap(), "1".repeat(100_000));
        let output = RawBuf::parse(&output).unwrap();
        let mut subject = Subject::admission(&capability, &context);
        subject.output = Some(output.as_raw());
        rules.price(&subject)
    }

    #[test]
    fn all_that_was_learned_is_looked_at() {
        let entry = CatalogueEntry {
            capability: "desk.other".parse().unwrap(),
            territory: None,
            principle: "p".to_owned(),
            statuses: BTreeMap::new(),
            severities: BTreeMap::new(),
            evidence: Evidence::new(Count::default(), 0, None),
        };
        let learned = Heuristics {
            catalogue: vec![entry; 3],
            ..Heuristics::default()
        };
        let bare = Rules::default();
        let all = bare.clone().learned(Arc::new(learned));
        assert_eq!(price(&all, &[]), price(&bare, &[]) + 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn each_term_looks_at_the_output() {
        let terms = ["/* exists"; 16].join(" and ");
        let predicate: Predicate = terms.parse().unwrap();
        let bare = Rules::default();
        let look = price(&bare, &[]);
        let required = bare.clone().require("p", predicate.clone(), Severity::Low);
        assert_eq!(price(&required, &[]), 17 * look);
        let worded = bare.clone().constraint("in words", predicate);
        assert_eq!(price(&worded, &[]), look);
        assert_eq!(price(&worded, &["in words", "in words"]), 33 * look);
        assert_eq!(price(&bare, &[&format!("output {terms}")]), 17 * look);
        assert_eq!(price(&bare, &["words that nobody knows"]), look);
    }
}
