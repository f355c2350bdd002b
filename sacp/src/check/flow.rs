//! What each step needs, and where it comes from: its parameters, the context, or a step before it.

use std::collections::BTreeMap;

use ubos_common::json::RawBuf;
use ubos_common::violation::Level;

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
        let Some(def) = plan
            .registry
            .and_then(|registry| registry.verb(&step.act.verb))
        else {
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
    let def = plan
        .registry
        .and_then(|registry| registry.verb(&step.act.verb));
    def.map_or_else(
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
            return Some(finding.mended_by([self.set(need, need.ty.blank())]));
        }
        if need.absence == Absence::Fine || self.is_handed_on(need) {
            return None;
        }
        Some(self.missing(need))
    }

    fn finding(&self, code: &'static str, level: Level, what: &str) -> Finding {
        Finding::of_step(self.step, code, "SACP-8-2", level, what)
    }

    fn set(&self, need: &Input, text: &str) -> Repair {
        let value = RawBuf::parse(text);
        Repair::SetParam {
            at: self.step.pointer.clone(),
            name: last_part(&need.name).to_owned(),
            value: value.unwrap_or_else(|_| ubos_common::json::Raw::NULL.to_owned()),
        }
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
        let set = |value| Repair::SetParam {
            at: self.step.pointer.clone(),
            name: name.to_owned(),
            value,
        };
        let blank = RawBuf::parse(need.ty.blank()).ok();
        finding.mended_by(need.ty.coerce(value).into_iter().chain(blank).map(set))
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
        let mut repairs = Vec::new();
        let declared = |param: &str| {
            self.needs
                .iter()
                .any(|other| last_part(&other.name) == last_part(param))
        };
        for (param, value) in self.params {
            if !declared(param) && is_like(param, name) && need.ty.takes(value) {
                repairs.push(Repair::RenameParam {
                    at: self.step.pointer.clone(),
                    from: param.clone(),
                    to: name.to_owned(),
                });
            }
        }
        for (key, value) in self.plan.context(self.step.scope).into_iter().flatten() {
            if is_like(key, name) && need.ty.takes(value) {
                repairs.push(self.set(need, value.as_str()));
            }
        }
        repairs.push(self.set(need, need.ty.blank()));
        self.finding(code, level, &what).mended_by(repairs)
    }

    /// Parameters that the verb does not name.
    fn undeclared(&self) -> Vec<Finding> {
        let declared = |param: &str| {
            let mut names = self.needs.iter();
            names.any(|need| need.name == param || last_part(&need.name) == param)
        };
        let undeclared = self
            .params
            .keys()
            .filter(|param| !declared(param) && *param != "subtask");
        let finding = |param: &String| {
            let what = format!("its verb has no input {param}");
            let at = self.step.pointer.clone();
            let name = param.clone();
            let remove = Repair::RemoveParam { at, name };
            let finding = self.finding("undeclared_param", Level::Advice, &what);
            finding
                .at(self.plan.param(self.step, param))
                .mended_by([remove])
        };
        undeclared.take(MAX_CHECK_FINDINGS).map(finding).collect()
    }
}

/// Whether two names may mean the same: one begins with the other, or few letters differ.
fn is_like(a: &str, b: &str) -> bool {
    let shorter = a.len().min(b.len());
    a.starts_with(b) || b.starts_with(a) || (shorter > 3 && distance(a, b) <= 2)
}
