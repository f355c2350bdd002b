//! A plan that allows itself more than its context does.

use std::collections::BTreeMap;

use ubos_common::json::RawBuf;
use ubos_common::violation::Level;

use super::repair::Repair;
use super::subject::{Finding, Subject, is_full};
use crate::error::Code;
use crate::graph::Step;
use crate::message::OutFmt;

/// Members of `ctx` and parameters that limit what may be spent.
const BUDGETS: [&str; 2] = ["budget", "bdg"];
/// Members of `ctx` that name tools or verbs which may not be used.
const FORBIDDEN: [&str; 4] = ["forbidden_tools", "forbidden_verbs", "forbidden", "forbid"];

// impl: SACP-4-2
pub(super) fn check(plan: &Subject<'_>, findings: &mut Vec<Finding>) {
    let scopes = plan.graph.scopes();
    let mut limits: Vec<Limits> = Vec::new();
    for (scope, known) in scopes.iter().enumerate() {
        let parent = known.parent.and_then(|number| plan.graph.step(number));
        let above = parent.and_then(|step| limits.get(step.scope)).cloned();
        let above = above.unwrap_or_default();
        if let Some(parent) = parent {
            nested(plan, scope, parent, &above, findings);
        }
        limits.push(above.within(plan.context(scope)));
    }
    for step in plan.acts() {
        let Some(limits) = limits.get(step.scope).filter(|_| !is_full(findings)) else {
            continue;
        };
        of_step(plan, step, limits, findings);
    }
}

/// What a message and those around it allow.
#[derive(Clone, Default)]
struct Limits {
    budget: Option<(f64, RawBuf)>,
    forbidden: Vec<String>,
}

impl Limits {
    /// With what a message inside adds; it may not take away.
    fn within(mut self, context: Option<&BTreeMap<String, RawBuf>>) -> Self {
        let Some(context) = context else { return self };
        for name in BUDGETS {
            let Some((amount, value)) = context.get(name).and_then(number) else {
                continue;
            };
            if self.budget.as_ref().is_none_or(|(most, _)| amount < *most) {
                self.budget = Some((amount, value));
            }
        }
        for name in FORBIDDEN {
            let words = context
                .get(name)
                .and_then(|value| value.deserialize::<Vec<String>>().ok());
            self.forbidden.extend(words.unwrap_or_default());
        }
        self
    }
}

fn number(value: &RawBuf) -> Option<(f64, RawBuf)> {
    Some((value.deserialize().ok()?, value.clone()))
}

/// A message inside another one: its budget and its format.
fn nested(
    plan: &Subject<'_>,
    scope: usize,
    parent: &Step,
    above: &Limits,
    findings: &mut Vec<Finding>,
) {
    let root = plan.root(scope);
    let found = |code: Code, clause, what: String, repair| {
        let mut finding = Finding::new(root.clone(), code.as_str(), clause, Level::Must, what);
        finding.step = Some(parent.number);
        finding.mended_by([repair])
    };
    if let (Some((most, value)), Some(context)) = (&above.budget, plan.context(scope)) {
        for name in BUDGETS {
            let own = context.get(name).and_then(number);
            if own.is_some_and(|(amount, _)| amount > *most) {
                let what = format!("its {name} is above that of the message around it");
                let repair = Repair::SetContext {
                    at: root.clone(),
                    name: name.to_owned(),
                    value: value.clone(),
                };
                findings.push(found(Code::MalformedPlan, "SACP-9-1", what, repair));
            }
        }
    }
    if plan.out_fmt(scope) == Some(&OutFmt::Human) {
        let what = "prose is asked for in the middle of a plan".to_owned();
        let repair = Repair::SetRaw { at: root.clone() };
        findings.push(found(Code::OutFmtViolation, "SACP-4-2", what, repair));
    }
}

/// A step with a tool or verb that the context forbids.
fn forbidden(plan: &Subject<'_>, step: &Step, limits: &Limits, findings: &mut Vec<Finding>) {
    let at = || step.pointer.clone();
    let banned = |word: &String| limits.forbidden.contains(word);
    if banned(&step.act.tool) || banned(&step.act.verb) {
        let what = format!("ctx forbids {} with {}", step.act.verb, step.act.tool);
        let tools = if banned(&step.act.verb) {
            Vec::new()
        } else {
            plan.tools_for(&step.act.verb, &step.act.tool)
        };
        let others = tools.into_iter().filter(|tool| !banned(tool));
        let repairs = others.map(|tool| Repair::SetTool { at: at(), tool });
        let finding = Finding::of_step(
            step,
            Code::MalformedPlan.as_str(),
            "SACP-9-1",
            Level::Must,
            &what,
        );
        findings.push(finding.mended_by(repairs.chain(plan.removal(step))));
    }
}

fn of_step(plan: &Subject<'_>, step: &Step, limits: &Limits, findings: &mut Vec<Finding>) {
    let params: BTreeMap<String, RawBuf> = step.act.params.deserialize().unwrap_or_default();
    let at = || step.pointer.clone();
    for name in BUDGETS {
        let own = params.get(name).and_then(number);
        let (Some((amount, _)), Some((most, value))) = (own, &limits.budget) else {
            continue;
        };
        if amount > *most {
            let what = format!("its {name} is above that of ctx");
            let finding = Finding::of_step(
                step,
                Code::MalformedPlan.as_str(),
                "SACP-9-1",
                Level::Must,
                &what,
            );
            let finding = finding.at(plan.param(step, name));
            findings.push(finding.mended_by([Repair::SetParam {
                at: at(),
                name: name.to_owned(),
                value: value.clone(),
            }]));
        }
    }
    forbidden(plan, step, limits, findings);
    let human = params
        .get("out_fmt")
        .is_some_and(|value| value.as_str() == "\"human\"");
    if human && !may_write_prose(plan, step) {
        let what = "prose is asked for in the middle of a plan";
        let finding = Finding::of_step(
            step,
            Code::OutFmtViolation.as_str(),
            "SACP-4-2",
            Level::Must,
            what,
        );
        let finding = finding.at(plan.param(step, "out_fmt"));
        let name = "out_fmt".to_owned();
        findings.push(finding.mended_by([Repair::RemoveParam { at: at(), name }]));
    }
}

/// The last step of a message that says human.
fn may_write_prose(plan: &Subject<'_>, step: &Step) -> bool {
    step.scope == 0 && plan.out_fmt(0) == Some(&OutFmt::Human) && !plan.is_taken(step.number)
}
