//! The form of the graph: who writes what at once, what cannot run, what goes nowhere, how much at once.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::violation::Level;

use super::flow::writers;
use super::repair::Repair;
use super::subject::{Config, Finding, Subject, is_full, is_served};
use super::types::inputs;
use crate::any::Edition;
use crate::graph::{OnError, Step};
use crate::registry::MERGE;

pub(super) fn check(plan: &Subject<'_>, config: &Config, findings: &mut Vec<Finding>) {
    conflicts(plan, config, findings);
    unreachable(plan, findings);
    unjoined(plan, findings);
    fan_out(plan, config, findings);
}

/// Two steps that may run at once, of which both give a name that a later one takes.
fn conflicts(plan: &Subject<'_>, config: &Config, findings: &mut Vec<Finding>) {
    /// Writers of one name that are compared.
    const COMPARED: usize = 64;
    let writers = writers(plan);
    let mut told = BTreeSet::new();
    let starts = Starts::of(plan, config);
    for reader in plan.acts() {
        if is_full(findings) {
            return;
        }
        let Some(def) = plan.def(reader) else {
            continue;
        };
        let params: BTreeMap<String, serde_json::Value> =
            reader.act.params.deserialize().unwrap_or_default();
        for need in inputs(&def.inputs) {
            let name = need.name.rsplit('.').next().unwrap_or_default().to_owned();
            if params.contains_key(&name) || params.contains_key(&need.name) {
                continue;
            }
            let known = writers.get(&(reader.scope, name.clone()));
            let numbers = known.into_iter().flatten().map(|(number, _)| *number);
            let before: Vec<usize> = numbers
                .filter(|number| plan.order.is_before(*number, reader.number))
                .collect();
            let recent = before.iter().rev().take(COMPARED);
            for (n, second) in recent.clone().enumerate() {
                let mut others = recent.clone().skip(n + 1);
                let clash = others.find(|first| are_unordered(plan, **first, *second));
                if let Some(first) = clash
                    && told.insert((*first, *second, name.clone()))
                {
                    findings.extend(conflict(plan, &starts, (*first, *second), &name, reader));
                }
            }
        }
    }
}

/// Whether two steps may run at once. One that stands in for the other never does.
fn are_unordered(plan: &Subject<'_>, first: usize, second: usize) -> bool {
    let replaces = |a: usize, b: usize| {
        plan.graph
            .step(a)
            .is_some_and(|step| step.policy.replaces == Some(b))
    };
    !plan.order.is_before(first, second)
        && !plan.order.is_before(second, first)
        && !replaces(first, second)
        && !replaces(second, first)
}

fn conflict(
    plan: &Subject<'_>,
    starts: &Starts,
    (first, second): (usize, usize),
    name: &str,
    reader: &Step,
) -> Option<Finding> {
    let (first, second) = (plan.graph.step(first)?, plan.graph.step(second)?);
    let what = format!(
        "gives {name}, and so does act {} at the same time; act {} takes it",
        first.number, reader.number
    );
    let finding = Finding::of_step(
        second,
        "conflicting_writes",
        "SACP-3-1",
        Level::Should,
        &what,
    );
    Some(finding.mended_by(in_order(plan, starts, first, second)))
}

/// How many steps start behind the same steps: a repair that makes one wait for one more may not bring too many together.
struct Starts {
    most: usize,
    counts: BTreeMap<(usize, BTreeSet<usize>), usize>,
}

impl Starts {
    /// Of 1.0 alone: in 0.1 no step is told to wait for another.
    fn of(plan: &Subject<'_>, config: &Config) -> Self {
        let mut counts = BTreeMap::new();
        if plan.message.edition() == Edition::V10 {
            for step in plan.graph.steps() {
                let after = step.after.iter().copied().collect();
                *counts.entry((step.scope, after)).or_default() += 1;
            }
        }
        Self {
            most: config.max_fan_out.max(1),
            counts,
        }
    }

    /// Whether a step that waits for these may wait for one more.
    fn has_room(&self, scope: usize, after: &[usize], more: usize) -> bool {
        let after = after.iter().copied().chain([more]).collect();
        self.counts
            .get(&(scope, after))
            .is_none_or(|count| *count < self.most)
    }

    /// Whether all of them may be staggered.
    fn have_room(&self, scope: usize, after: &[usize], steps: &[&Step]) -> bool {
        let mut earlier = steps.iter().take(steps.len().saturating_sub(self.most));
        earlier.all(|step| self.has_room(scope, after, step.number))
    }
}

/// Makes one wait for the other: the second for the first, where a fallback does not make that a cycle.
fn in_order(plan: &Subject<'_>, starts: &Starts, first: &Step, second: &Step) -> Option<Repair> {
    if plan.message.edition() == Edition::V10 {
        let ways = [(first, second), (second, first)];
        let (first, second) = ways.into_iter().find(|(first, second)| {
            starts.has_room(second.scope, &second.after, first.number)
                && !may_wait_for(plan, first.number, second.number)
        })?;
        return Some(Repair::DependOn {
            at: second.pointer.clone(),
            id: first.id.clone(),
        });
    }
    let group = top_group(&second.pointer)?;
    // Members that stand in the group itself; deeper ones have no order but that of all acts.
    let depth = |step: &Step| {
        step.pointer.matches("/parallel/").count() - group.matches("/parallel/").count()
    };
    let differ = depth(first) == 1 || depth(second) == 1;
    let at = group.to_owned();
    Some(if differ {
        Repair::InSequence { at }
    } else {
        Repair::Split { at, most: 1 }
    })
}

/// Whether who waits for a step may wait for another, also by way of fallbacks. Where too much would have to be looked at,
/// it may.
fn may_wait_for(plan: &Subject<'_>, step: usize, other: usize) -> bool {
    /// Dependencies that are looked at.
    const FOLLOWED: usize = 20_000;
    let (mut seen, mut stack, mut left) = (BTreeSet::new(), vec![step], FOLLOWED);
    while let Some(number) = stack.pop() {
        if number == other {
            return true;
        }
        let Some(step) = plan.graph.step(number).filter(|_| seen.insert(number)) else {
            continue;
        };
        let Some(rest) = left.checked_sub(step.after.len()) else {
            return true;
        };
        left = rest;
        // A fallback runs behind the step that it stands in for.
        stack.extend(step.after.iter().chain(&step.policy.replaces));
        if let Some(OnError::Fallback(fallback)) = step.policy.on_error {
            stack.push(fallback);
        }
    }
    false
}

/// The pointer of the entry of the plan that a step stands in.
fn top_group(pointer: &str) -> Option<&str> {
    let plan = pointer.rfind("/plan/")?;
    let inside = pointer.get(plan + "/plan/".len()..)?;
    let end = inside
        .find('/')
        .map_or(pointer.len(), |at| plan + "/plan/".len() + at);
    pointer.get(..end)
}

/// A fallback that waits for the step it stands in for. By way of a third step it is a cycle, which is
/// refused when the message is read.
// impl: SACP1-6-3
fn unreachable(plan: &Subject<'_>, findings: &mut Vec<Finding>) {
    for step in plan.graph.steps() {
        let Some(OnError::Fallback(fallback)) = step.policy.on_error else {
            continue;
        };
        let fallback = plan.graph.step(fallback);
        let Some(fallback) = fallback.filter(|other| other.after.contains(&step.number)) else {
            continue;
        };
        let number = step.number;
        let what = format!("never runs: it waits for act {number}, and runs only when that failed");
        let (at, id) = (fallback.pointer.clone(), step.id.clone());
        let finding = Finding::of_step(fallback, "unreachable", "SACP1-6-3", Level::Advice, &what);
        findings.push(finding.mended_by([Repair::Release { at, id }]));
    }
}

/// Outputs that nothing takes: of 1.0, ends without a name; of 0.1, a group at the end without a join.
fn unjoined(plan: &Subject<'_>, findings: &mut Vec<Finding>) {
    let is_end = |step: &&Step| !plan.is_taken(step.number) && step.policy.replaces.is_none();
    let keys = plan.graph.steps().iter();
    let keys: BTreeSet<&str> = keys
        .filter_map(|step| step.policy.output_key.as_deref())
        .collect();
    for (scope, known) in plan.graph.scopes().iter().enumerate() {
        let steps = known
            .steps
            .iter()
            .filter_map(|number| plan.graph.step(*number));
        let ends: Vec<&Step> = steps.filter(is_end).collect();
        if ends.len() < 2 || known.last.is_some() {
            continue;
        }
        match plan.message.edition() {
            Edition::V10 => {
                findings.extend(ends.iter().filter_map(|step| nameless_end(&keys, step)))
            }
            Edition::V01 => findings.extend(open_group(plan, scope, &ends)),
        }
    }
}

fn nameless_end(keys: &BTreeSet<&str>, step: &Step) -> Option<Finding> {
    if step.policy.output_key.is_some() {
        return None;
    }
    let free = |key: &String| !keys.contains(key.as_str()) && crate::v1::Name::fits(key);
    let mut names =
        core::iter::once(step.id.clone()).chain((1..).map(|n| format!("out{n}_{}", step.number)));
    let key = names.find(free)?;
    let what = "nothing waits for it, and its output has no name in the result";
    let at = step.pointer.clone();
    let finding = Finding::of_step(step, "never_joined", "SACP1-7-1", Level::Advice, what);
    Some(finding.mended_by([Repair::SetOutputKey { at, key }]))
}

// impl: SACP-3-1
fn open_group(plan: &Subject<'_>, scope: usize, ends: &[&Step]) -> Option<Finding> {
    let first = ends.first()?;
    let group = top_group(&first.pointer)?;
    let what = format!(
        "{} acts side by side end the plan, and no join brings them together",
        ends.len()
    );
    let mut finding = Finding::new(group, "never_joined", "SACP-3-1", Level::Advice, what);
    finding.step = Some(first.number);
    let known = plan.graph.scopes().get(scope)?;
    let joins = known
        .steps
        .iter()
        .filter_map(|number| plan.graph.step(*number));
    let used = joins
        .filter(|step| step.act.is_join())
        .map(|step| step.act.tool.clone())
        .next();
    let used = used.filter(|tool| {
        let is_served = |registry| is_served(registry, "join", tool);
        plan.registry.is_none_or(is_served) && !plan.forbids_tool(first, tool)
    });
    let tools = plan.tools_for("join", "").into_iter();
    let mut tools = tools.filter(|tool| !plan.forbids_tool(first, tool));
    let tool = used.or_else(|| tools.next());
    // A plan that may not join stays as it is.
    let tool = tool.unwrap_or_else(|| MERGE.to_owned());
    if plan.forbids_verb(first, "join") || plan.forbids_tool(first, &tool) {
        return Some(finding);
    }
    Some(finding.mended_by([Repair::Join {
        at: group.to_owned(),
        tool,
    }]))
}

/// More steps that become ready together than are allowed.
fn fan_out(plan: &Subject<'_>, config: &Config, findings: &mut Vec<Finding>) {
    let mut together: BTreeMap<(usize, &[usize]), Vec<&Step>> = BTreeMap::new();
    let shared: BTreeMap<*const usize, &[usize]> = plan
        .graph
        .steps()
        .iter()
        .map(|step| (step.after.as_ptr(), &step.after[..]))
        .collect();
    let mut by_list: BTreeMap<(usize, *const usize), Vec<&Step>> = BTreeMap::new();
    for step in plan
        .graph
        .steps()
        .iter()
        .filter(|step| step.policy.replaces.is_none())
    {
        by_list
            .entry((step.scope, step.after.as_ptr()))
            .or_default()
            .push(step);
    }
    for ((scope, list), steps) in by_list {
        let after = shared.get(&list).copied().unwrap_or_default();
        together.entry((scope, after)).or_default().extend(steps);
    }
    let starts = Starts::of(plan, config);
    for ((scope, after), mut steps) in together {
        // The lists came in the order of their addresses.
        steps.sort_unstable_by_key(|step| step.number);
        let (Some(first), true) = (steps.first(), steps.len() > config.max_fan_out.max(1)) else {
            continue;
        };
        let (seen, most) = (steps.len(), config.max_fan_out.max(1));
        let what = format!("{seen} acts may start at once, {most} are allowed");
        let repair = match plan.message.edition() {
            Edition::V01 => top_group(&first.pointer).map(|group| Repair::Split {
                at: group.to_owned(),
                most,
            }),
            // Waiting for a step is waiting for its fallback, too, which may wait for who knows what.
            Edition::V10 if steps.iter().any(|step| has_fallback(step)) => None,
            Edition::V10 if !starts.have_room(scope, after, &steps) => None,
            Edition::V10 => Some(Repair::Stagger {
                at: first.pointer.clone(),
                most,
            }),
        };
        let at = match &repair {
            Some(repair) => repair.at().to_owned(),
            None => first.pointer.clone(),
        };
        let mut finding = Finding::new(at, "fan_out", "SACP-3-1", Level::Should, what);
        finding.step = Some(first.number);
        findings.push(finding.mended_by(repair));
    }
}

const fn has_fallback(step: &Step) -> bool {
    matches!(step.policy.on_error, Some(OnError::Fallback(_)))
}
