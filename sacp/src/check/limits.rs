//! What a message allows, and the names under which it says so.

use std::collections::{BTreeMap, BTreeSet};

use ubos_common::json::{Kind, RawBuf};

use super::amount::Amount;
use crate::graph::Graph;
use crate::registry::{Registry, looks};

/// Members of `ctx` and parameters that limit what may be spent.
pub(super) const BUDGETS: [&str; 2] = ["budget", "bdg"];
/// Members of `ctx` that name tools or verbs which may not be used.
pub(super) const FORBIDDEN: [&str; 4] =
    ["forbidden_tools", "forbidden_verbs", "forbidden", "forbid"];
/// The parameters of those that name them.
pub(super) const MADE: [&str; 6] = [
    "tool",
    "verb",
    "tools",
    "verbs",
    "supported_tools",
    "supported_verbs",
];

/// What a message and those around it allow.
#[derive(Clone, Default)]
pub(super) struct Limits {
    pub(super) budget: Option<(Amount, RawBuf)>,
    /// Whether a limit on what may be spent cannot be read.
    pub(super) is_unclear: bool,
    pub(super) forbidden: Forbidden,
}

impl Limits {
    /// The limits of each scope. A scope stands behind the one around it.
    pub(super) fn of_scopes<'a>(
        graph: &Graph,
        context: impl Fn(usize) -> Option<&'a BTreeMap<String, RawBuf>>,
    ) -> Vec<Self> {
        let mut limits: Vec<Self> = Vec::new();
        for (scope, known) in graph.scopes().iter().enumerate() {
            let parent = known.parent.and_then(|number| graph.step(number));
            let above = parent.and_then(|step| limits.get(step.scope)).cloned();
            limits.push(above.unwrap_or_default().within(context(scope)));
        }
        limits
    }

    /// With what a message inside adds; it may not take away.
    fn within(mut self, context: Option<&BTreeMap<String, RawBuf>>) -> Self {
        let Some(context) = context else { return self };
        for value in BUDGETS.iter().filter_map(|name| context.get(*name)) {
            // A number in quotes is refused, and is what the limit is taken for.
            let value = number_in(value).unwrap_or_else(|| value.clone());
            let Some(amount) = Amount::of(&value) else {
                self.is_unclear = true;
                continue;
            };
            if self.budget.as_ref().is_none_or(|(most, _)| amount < *most) {
                self.budget = Some((amount, value));
            }
        }
        for value in FORBIDDEN.iter().filter_map(|name| context.get(*name)) {
            for word in words(value).known {
                self.forbidden.add(word);
            }
        }
        self
    }
}

/// Names that may not be used.
#[derive(Clone, Default)]
pub(super) struct Forbidden {
    names: BTreeSet<String>,
    looks: BTreeSet<String>,
}

impl Forbidden {
    fn add(&mut self, name: String) {
        self.looks.insert(looks(&name));
        self.names.insert(name);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a name is one of them, or written in letters of another script that look the same.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name) || (!name.is_ascii() && self.looks.contains(&looks(name)))
    }

    pub(super) fn has_verb(&self, registry: Option<&dyn Registry>, verb: &str) -> bool {
        let def = registry.and_then(|registry| registry.verb(verb));
        self.has(verb) || def.is_some_and(|def| def.names().any(|name| self.has(name)))
    }
}

/// The texts of a list, or one text.
pub(super) struct Words {
    pub(super) known: Vec<String>,
    /// Whether it is a list of texts.
    pub(super) is_whole: bool,
}

pub(super) fn words(value: &RawBuf) -> Words {
    if value.kind() == Kind::String {
        return Words {
            known: value.deserialize().into_iter().collect(),
            is_whole: false,
        };
    }
    let entries: Vec<RawBuf> = value.deserialize().unwrap_or_default();
    let texts = entries.iter().filter(|entry| entry.kind() == Kind::String);
    let known: Vec<String> = texts.filter_map(|entry| entry.deserialize().ok()).collect();
    let is_whole = value.kind() == Kind::Array && known.len() == entries.len();
    Words { known, is_whole }
}

/// The number that a text holds and nothing else.
pub(super) fn number_in(value: &RawBuf) -> Option<RawBuf> {
    let text = value.deserialize::<String>().ok()?;
    let number = RawBuf::parse(text.trim()).ok()?;
    Amount::of(&number).is_some().then_some(number)
}

/// Whether a parameter of this name is read for what a step may do.
pub(super) fn is_reserved(name: &str) -> bool {
    is_read_by_name(name) || BUDGETS.contains(&name) || MADE.contains(&name)
}

/// Whether a parameter of this name means something in every verb.
pub(super) fn is_read_by_name(name: &str) -> bool {
    matches!(name, "out_fmt" | "subtask")
}
