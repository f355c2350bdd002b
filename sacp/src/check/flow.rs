//! What each step needs, and where it comes from: its parameters, the context, or a step before it.

use std::collections::BTreeMap;

use ubos_common::json::RawBuf;
use ubos_common::violation::Level;

use super::limits::{is_read_by_name, is_reserved};
use super::repair::Repair;
use super::subject::{Finding, Subject, distance, is_full};
use super::types::{Absence, Input, Outputs, Type, inputs, outputs};
use crate::error::Code;
use crate::graph::Step;
use crate::limits::MAX_CHECK_FINDINGS;

/// Names that steps give, with who gives them.
pub(super) type Writers = BTreeMap<(usize, String), Vec<(usize, Type)>>;

// impl: SACP-8-2
pub(super) fn check(plan: &Subject<'_>, findings: &mut Vec<Finding>) {
    let writers = writers(plan);
    for step in plan.acts() {
        if is_full(findings) {
            return;
        }
        let Some(def) = plan.def(step) else {
            continue;
        };
        let params: BTreeMap<String, RawBuf> = step.act.params.deserialize().unwrap_or_default();
        let needs = inputs(&def.inputs);
        let flow = Flow {
            plan,
            step,
            writers: &writers,
            params: &params,
            needs: &needs,
        };
        for need in &needs {
            findings.extend(flow.judge(need));
        }
        if !needs.is_empty() {
            findings.extend(flow.undeclared());
        }
    }
}

/// Every name that a step gives.
pub(super) fn writers(plan: &Subject<'_>) -> Writers {
    let mut writers = Writers::new();
    for step in plan.acts() {
        let gives = gives(plan, step);
        let mut add = |name: String, ty| {
            let list = writers.entry((step.scope, name)).or_default();
            list.push((step.number, ty));
        };
        if let Some(key) = &step.policy.output_key {
            add(key.clone(), gives.whole);
        }
        for (name, ty) in gives.named {
            add(name, ty);
        }
    }
    writers
}

fn gives(plan: &Subject<'_>, step: &Step) -> Outputs {
    plan.def(step).map_or_else(
        || Outputs {
            whole: Type::ANY,
            named: Vec::new(),
        },
        |def| outputs(&def.outputs),
    )
}

/// The last part of a dotted name: `history` of `ctx.history`.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

struct Flow<'a> {
    plan: &'a Subject<'a>,
    step: &'a Step,
    writers: &'a Writers,
    params: &'a BTreeMap<String, RawBuf>,
    needs: &'a [Input],
}

impl Flow<'_> {
    fn judge(&self, need: &Input) -> Option<Finding> {
        let name = last_part(&need.name);
        if let Some(value) = self
            .params
            .get(&need.name)
            .or_else(|| self.params.get(name))
        {
            return (!need.ty.takes(value)).then(|| self.wrong_param(need, value));
        }
        let context = self.plan.context(self.step.scope);
        if let Some(value) = context.and_then(|ctx| ctx.get(name)) {
            let what = format!("{name} is taken from ctx and is not {}", need.ty.word());
            return (!need.ty.takes(value)).then(|| self.wrong_flow(need, value, &what));
        }
        let known = self.writers.get(&(self.step.scope, name.to_owned()));
        let before =
            |(number, _): &&(usize, Type)| self.plan.order.is_before(*number, self.step.number);
        let mut given = known.into_iter().flatten().filter(before).peekable();
        if let Some((number, ty)) = given.peek().copied() {
            if given.any(|(_, ty)| need.ty.overlaps(*ty)) {
                return None;
            }
            let what = format!(
                "{name} comes from act {number} as {}, not {}",
                ty.word(),
                need.ty.word()
            );
            let finding = self.finding(Code::InvalidParamType.as_str(), Level::Must, &what);
            return Some(finding.asking(name));
        }
        if need.absence == Absence::Fine || self.is_handed_on(need) {
            return None;
        }
        Some(self.missing(need))
    }

    fn finding(&self, code: &'static str, level: Level, what: &str) -> Finding {
        Finding::of_step(self.step, code, "SACP-8-2", level, what)
    }

    fn wrong_param(&self, need: &Input, value: &RawBuf) -> Finding {
        let kind = value.kind();
        let what = format!("{} wants {}, {kind} seen", need.name, need.ty.word());
        self.wrong_flow(need, value, &what)
    }

    fn wrong_flow(&self, need: &Input, value: &RawBuf, what: &str) -> Finding {
        let mut finding = self.finding(Code::InvalidParamType.as_str(), Level::Must, what);
        let names = [need.name.as_str(), last_part(&need.name)];
        let own = names
            .into_iter()
            .find(|name| self.params.contains_key(*name));
        if let Some(name) = own {
            finding = finding.at(self.plan.param(self.step, name));
        }
        let name = own.unwrap_or_else(|| last_part(&need.name));
        // What else reads a parameter of this name would read it anew.
        let is_free = match own {
            Some(name) => !is_read_by_name(name),
            None => !is_reserved(name),
        };
        match need.ty.coerce(value).filter(|_| is_free) {
            Some(value) => finding.mended_by([Repair::SetParam {
                at: self.step.pointer.clone(),
                name: name.to_owned(),
                value,
            }]),
            None => finding.asking(name),
        }
    }

    /// Whether the step just before gives one unnamed thing, which this is the only need left for.
    fn is_handed_on(&self, need: &Input) -> bool {
        let open = self.needs.iter().filter(|other| {
            let name = last_part(&other.name);
            other.absence == Absence::Refused
                && !self.params.contains_key(name)
                && !self.params.contains_key(&other.name)
        });
        let [before] = self.step.after[..] else {
            return false;
        };
        let before = self.plan.graph.step(before);
        open.count() <= 1
            && before.is_some_and(|before| {
                let gives = gives(self.plan, before);
                gives.named.is_empty() && gives.whole != Type::ANY && need.ty.overlaps(gives.whole)
            })
    }

    fn missing(&self, need: &Input) -> Finding {
        let (code, level) = if need.absence == Absence::Refused {
            (Code::MissingField.as_str(), Level::Must)
        } else {
            ("missing_input", Level::Advice)
        };
        let what = format!("nothing gives its input {}", need.name);
        let name = last_part(&need.name);
        let params = self.params.iter();
        let renames = params.filter_map(|(param, value)| self.rename(param, value, need));
        let finding = self.finding(code, level, &what);
        match renames.collect::<Vec<_>>() {
            none if none.is_empty() => finding.asking(name),
            some => finding.mended_by(some),
        }
    }

    fn is_declared(&self, param: &str) -> bool {
        let mut names = self.needs.iter();
        names.any(|need| last_part(&need.name) == last_part(param))
    }

    /// Calls a parameter that the verb does not name like a need that it may have been written for.
    fn rename(&self, param: &str, value: &RawBuf, need: &Input) -> Option<Repair> {
        let name = last_part(&need.name);
        let given = self.params.contains_key(name) || self.params.contains_key(&need.name);
        let fits =
            !given && !self.is_declared(param) && is_like(param, name) && need.ty.takes(value);
        let is_free = !is_reserved(param) && !is_reserved(name);
        (fits && is_free).then(|| Repair::RenameParam {
            at: self.step.pointer.clone(),
            from: param.to_owned(),
            to: name.to_owned(),
        })
    }

    /// Parameters that the verb does not name.
    fn undeclared(&self) -> Vec<Finding> {
        let undeclared = self
            .params
            .iter()
            .filter(|(param, _)| !self.is_declared(param) && *param != "subtask");
        let finding = |(param, value): (&String, &RawBuf)| {
            let what = format!("its verb has no input {param}");
            let needs = self.needs.iter();
            let renames = needs.filter_map(|need| self.rename(param, value, need));
            let finding = self.finding("undeclared_param", Level::Advice, &what);
            finding
                .at(self.plan.param(self.step, param))
                .mended_by(renames)
        };
        undeclared.take(MAX_CHECK_FINDINGS).map(finding).collect()
    }
}

/// Whether a parameter of a step may have this value, as far as its verb says.
pub(super) fn may_take(plan: &Subject<'_>, step: &Step, param: &str, value: &RawBuf) -> bool {
    let needs = plan.def(step).map(|def| inputs(&def.inputs));
    let mut needs = needs.into_iter().flatten();
    needs.all(|need| need.name != param && last_part(&need.name) != param || need.ty.takes(value))
}

/// Whether two names may mean the same: one begins with the other, or few letters differ.
fn is_like(a: &str, b: &str) -> bool {
    let shorter = a.len().min(b.len());
    a.starts_with(b) || b.starts_with(a) || (shorter > 3 && distance(a, b) <= 2)
}
