//! A plan that allows itself more than its context does, or whose limits cannot be read.

use std::collections::BTreeMap;

use ubos_common::json::{Kind, RawBuf};
use ubos_common::violation::Level;

use super::amount::Amount;
use super::flow::may_take;
use super::limits::{BUDGETS, FORBIDDEN, Limits, MADE, number_in, words};
use super::repair::Repair;
use super::subject::{Finding, Subject, is_full};
use crate::error::Code;
use crate::graph::Step;
use crate::message::OutFmt;

/// Verbs whose parameters name tools and verbs that are made.
const MAKERS: [&str; 3] = ["define", "instantiate", "register"];
// impl: SACP-4-2, SACP-9-1
pub(super) fn check(plan: &Subject<'_>, findings: &mut Vec<Finding>) {
    for (scope, known) in plan.graph.scopes().iter().enumerate() {
        let parent = known.parent.and_then(|number| plan.graph.step(number));
        if let Some(parent) = parent
            && let Some(above) = plan.limits.get(parent.scope)
        {
            nested(plan, scope, parent, above, findings);
        }
        unreadable(plan, scope, known.parent, findings);
    }
    for step in plan.acts() {
        let Some(limits) = plan.limits.get(step.scope).filter(|_| !is_full(findings)) else {
            continue;
        };
        of_step(plan, step, limits, findings);
    }
}

/// Limits of a message that cannot be read: what they forbid is not known, so nothing is allowed.
fn unreadable(
    plan: &Subject<'_>,
    scope: usize,
    parent: Option<usize>,
    findings: &mut Vec<Finding>,
) {
    let Some(context) = plan.context(scope) else {
        return;
    };
    let root = plan.root(scope);
    let mut found = |name: &str, what: &str, value: Option<RawBuf>| {
        let pointer = format!("{root}/ctx/{name}");
        let code = Code::InvalidParamType.as_str();
        let mut finding = Finding::new(pointer, code, "SACP-9-1", Level::Must, what.to_owned());
        finding.step = parent;
        let (at, name) = (root.clone(), name.to_owned());
        let repair = value.map(|value| Repair::SetContext { at, name, value });
        findings.push(finding.mended_by(repair));
    };
    for name in BUDGETS {
        let Some(value) = context
            .get(name)
            .filter(|value| Amount::of(value).is_none())
        else {
            continue;
        };
        let what = "a limit on what may be spent is a number";
        found(name, what, number_in(value));
    }
    for name in FORBIDDEN {
        let Some(value) = context.get(name).filter(|value| !words(value).is_whole) else {
            continue;
        };
        let one = (value.kind() == Kind::String).then(|| format!("[{}]", value.as_str()));
        let list = one.and_then(|text| RawBuf::parse(&text).ok());
        found(name, "what is forbidden is a list of names", list);
    }
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
            let own = context.get(name);
            let own =
                own.and_then(|own| Amount::of(&number_in(own).unwrap_or_else(|| own.clone())));
            if own.is_some_and(|amount| amount > *most) {
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

/// A step with a tool or verb that the context forbids, or that makes one.
fn forbidden(
    plan: &Subject<'_>,
    step: &Step,
    params: &BTreeMap<String, RawBuf>,
    limits: &Limits,
    findings: &mut Vec<Finding>,
) {
    let at = || step.pointer.clone();
    let banned = &limits.forbidden;
    if banned.is_empty() {
        return;
    }
    let (verb, tool) = (step.act.verb.as_str(), step.act.tool.as_str());
    let is_banned_verb = banned.has_verb(plan.registry, verb);
    if is_banned_verb || banned.has(tool) {
        let what = format!("ctx forbids {verb} with {tool}");
        let tools = if is_banned_verb {
            Vec::new()
        } else {
            plan.tools_for(verb, tool)
        };
        let others = tools.into_iter().filter(|tool| !banned.has(tool));
        let repairs = others.map(|tool| Repair::SetTool { at: at(), tool });
        let finding = too_much(step, &what);
        findings.push(finding.mended_by(plan.or_removal(repairs.collect(), step)));
    }
    if !MAKERS.contains(&verb) {
        return;
    }
    for (name, value) in MADE
        .iter()
        .filter_map(|name| Some((name, params.get(*name)?)))
    {
        let made = words(value);
        let is_read = made.is_whole || value.kind() == Kind::String;
        let one = made
            .known
            .iter()
            .find(|word| banned.has_verb(plan.registry, word));
        let what = match one {
            Some(word) => format!("ctx forbids {word:?}, and it makes one"),
            None if !is_read => format!("its {name} cannot be read, and ctx forbids some"),
            None => continue,
        };
        let finding = too_much(step, &what).at(plan.param(step, name));
        findings.push(finding);
    }
}

/// The finding of a step that allows itself more than its context does.
fn too_much(step: &Step, what: &str) -> Finding {
    let code = Code::MalformedPlan.as_str();
    Finding::of_step(step, code, "SACP-9-1", Level::Must, what)
}

/// A step that may spend more than its context allows, or says so in a way that cannot be read.
fn spending(
    plan: &Subject<'_>,
    step: &Step,
    params: &BTreeMap<String, RawBuf>,
    limits: &Limits,
    findings: &mut Vec<Finding>,
) {
    if limits.budget.is_none() && !limits.is_unclear {
        return;
    }
    for (name, value) in BUDGETS
        .iter()
        .filter_map(|name| Some((name, params.get(*name)?)))
    {
        let amount = Amount::of(value);
        let most = limits.budget.as_ref();
        let what = match (&amount, most) {
            (None, _) => format!("its {name} is no number that can be held against that of ctx"),
            (Some(amount), Some((most, _))) if amount > most => {
                format!("its {name} is above that of ctx")
            }
            _ => continue,
        };
        // The number that was meant, where it is allowed; else the most that is.
        let meant = amount.is_none().then(|| number_in(value)).flatten();
        let fits = |value: &RawBuf| {
            let own = Amount::of(value);
            most.is_some_and(|(most, _)| own.is_some_and(|own| own <= *most))
        };
        let meant = meant.filter(fits);
        let values = meant
            .into_iter()
            .chain(most.map(|(_, value)| value.clone()))
            .filter(|value| may_take(plan, step, name, value));
        let finding = too_much(step, &what).at(plan.param(step, name));
        findings.push(finding.mended_by(values.map(|value| Repair::SetParam {
            at: step.pointer.clone(),
            name: (*name).to_owned(),
            value,
        })));
    }
}

fn of_step(plan: &Subject<'_>, step: &Step, limits: &Limits, findings: &mut Vec<Finding>) {
    let params: BTreeMap<String, RawBuf> = step.act.params.deserialize().unwrap_or_default();
    spending(plan, step, &params, limits, findings);
    forbidden(plan, step, &params, limits, findings);
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
        let (at, name) = (step.pointer.clone(), "out_fmt".to_owned());
        findings.push(finding.mended_by([Repair::RemoveParam { at, name }]));
    }
}

/// The last step of a message that says human.
fn may_write_prose(plan: &Subject<'_>, step: &Step) -> bool {
    let scopes = plan.graph.scopes();
    let steps = scopes.first().into_iter().flat_map(|scope| &scope.steps);
    let is_end = |number: &&usize| {
        let step = plan.graph.step(**number);
        !plan.is_taken(**number) && step.is_some_and(|step| step.policy.replaces.is_none())
    };
    step.scope == 0
        && plan.out_fmt(0) == Some(&OutFmt::Human)
        && steps.filter(is_end).eq([&step.number])
}
