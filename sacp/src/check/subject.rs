//! The subject of the checks: a plan with its graph and registry, and the findings about it.

use core::cell::RefCell;
use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::json::RawBuf;
use ubos_common::violation::{Level, Violation};

use super::limits::Limits;
use super::order;
use super::repair::Repair;
use crate::any::MessageRef;
use crate::graph::{Graph, Step as Node};
use crate::limits::MAX_CHECK_FINDINGS;
use crate::message::OutFmt;
use crate::registry::{MERGE, Registry, VerbDef, look_up};

/// What a check takes for too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Steps that may be ready at the same time.
    pub(super) max_fan_out: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_fan_out: 64 }
    }
}

impl Config {
    /// Sets how many steps may be ready at the same time.
    #[must_use]
    pub const fn with_max_fan_out(mut self, steps: usize) -> Self {
        self.max_fan_out = steps;
        self
    }
}

/// What is wrong with a plan, and what would mend it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// Where, how much it matters, and in words.
    pub violation: Violation,
    /// The step's number in the graph.
    pub step: Option<usize>,
    /// What would mend it, best first. None of them makes up a value, or allows what the sender did not allow.
    pub repairs: Vec<Repair>,
    /// The input that only the sender can give, where that is what is wrong.
    pub question: Option<String>,
}

/// What is wrong and where; what would mend it stands in [`repairs`](Self::repairs).
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation.fmt(f)
    }
}

impl Finding {
    pub(super) fn new(
        pointer: impl Into<String>,
        code: &'static str,
        clause: &'static str,
        level: Level,
        what: String,
    ) -> Self {
        Self {
            violation: Violation::new(pointer, code, clause, level, what),
            step: None,
            repairs: Vec::new(),
            question: None,
        }
    }

    pub(super) fn of_step(
        step: &Node,
        code: &'static str,
        clause: &'static str,
        level: Level,
        what: &str,
    ) -> Self {
        let what = format!("act {}: {what}", step.number);
        let mut finding = Self::new(step.pointer.clone(), code, clause, level, what);
        finding.step = Some(step.number);
        finding
    }

    pub(super) fn at(mut self, pointer: String) -> Self {
        self.violation.pointer = pointer;
        self
    }

    /// The same as a question to the sender.
    pub(super) fn asking(mut self, input: &str) -> Self {
        self.question = Some(input.to_owned());
        self
    }

    pub(super) fn mended_by(mut self, repairs: impl IntoIterator<Item = Repair>) -> Self {
        self.repairs.extend(repairs);
        self
    }
}

/// What the checks look at.
pub(super) struct Subject<'a> {
    pub(super) message: MessageRef<'a>,
    pub(super) graph: &'a Graph,
    pub(super) registry: Option<&'a dyn Registry>,
    pub(super) order: order::Order,
    /// By number, whether a step is waited for.
    pub(super) taken: Vec<bool>,
    /// What each message allows, by scope.
    pub(super) limits: Vec<Limits>,
    /// By the number of a step, the verb that its first repair gives it: further findings take that for granted.
    pub(super) meant: RefCell<BTreeMap<usize, String>>,
    /// By verb, the tools that an agent carries it out with.
    tools: RefCell<BTreeMap<String, Vec<String>>>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(
        message: MessageRef<'a>,
        graph: &'a Graph,
        registry: Option<&'a dyn Registry>,
    ) -> Self {
        let mut plan = Self {
            message,
            graph,
            registry,
            order: order::Order::of(graph),
            taken: taken(graph),
            limits: Vec::new(),
            meant: RefCell::default(),
            tools: RefCell::default(),
        };
        plan.limits = Limits::of_scopes(graph, |scope| plan.context(scope));
        plan
    }

    /// The definition of a step's verb, or of the verb that was meant.
    pub(super) fn def(&self, step: &Node) -> Option<Arc<VerbDef>> {
        let meant = self.meant.borrow();
        let verb = meant.get(&step.number).unwrap_or(&step.act.verb);
        self.registry.and_then(|registry| registry.verb(verb))
    }

    pub(super) fn is_taken(&self, number: usize) -> bool {
        self.taken.get(number).copied().unwrap_or(false)
    }

    /// Steps with a verb and tool of their own: not those that stand for a subtask at the top of its message.
    pub(super) fn acts(&self) -> impl Iterator<Item = &'a Node> {
        let graph = self.graph;
        let last: Vec<usize> = graph
            .scopes()
            .iter()
            .filter_map(|scope| scope.last)
            .collect();
        let steps = graph.steps().iter();
        steps.filter(move |step| {
            last.binary_search(&step.number).is_err() && !last.contains(&step.number)
        })
    }

    /// The context of a scope.
    pub(super) fn context(&self, scope: usize) -> Option<&'a BTreeMap<String, RawBuf>> {
        match (
            self.graph.scopes().get(scope)?.message.as_deref(),
            self.message,
        ) {
            (Some(nested), _) => nested.context.as_ref(),
            (None, message) if scope == 0 => message.context(),
            _ => None,
        }
    }

    /// How the answer of a scope is wanted.
    pub(super) fn out_fmt(&self, scope: usize) -> Option<&'a OutFmt> {
        match (
            self.graph.scopes().get(scope)?.message.as_deref(),
            self.message,
        ) {
            (Some(nested), _) => nested.out_fmt.as_ref(),
            (None, MessageRef::V01(message)) => message.out_fmt.as_ref(),
            (None, MessageRef::V10(message)) => message.out_fmt.as_ref(),
        }
    }

    /// The pointer of a scope's message.
    pub(super) fn root(&self, scope: usize) -> String {
        let parent = self
            .graph
            .scopes()
            .get(scope)
            .and_then(|scope| scope.parent);
        let parent = parent.and_then(|number| self.graph.step(number));
        parent.map(Node::subtask_pointer).unwrap_or_default()
    }

    /// The pointer of a step's parameter.
    pub(super) fn param(&self, step: &Node, name: &str) -> String {
        let params = match self.message {
            MessageRef::V01(_) => "2",
            MessageRef::V10(_) => "params",
        };
        let name = name.replace('~', "~0").replace('/', "~1");
        format!("{}/{params}/{name}", step.pointer)
    }

    /// Whether the messages around a step forbid a verb under any of its names.
    pub(super) fn forbids_verb(&self, step: &Node, verb: &str) -> bool {
        let limits = self.limits.get(step.scope);
        limits.is_some_and(|limits| limits.forbidden.has_verb(self.registry, verb))
    }

    /// Whether they forbid a tool.
    pub(super) fn forbids_tool(&self, step: &Node, tool: &str) -> bool {
        let limits = self.limits.get(step.scope);
        limits.is_some_and(|limits| limits.forbidden.has(tool))
    }

    /// Repairs with one more behind them: taking the step away, where the message can do without it. It is never the
    /// best one, since it drops what the sender asked for.
    pub(super) fn or_removal(&self, mut repairs: Vec<Repair>, step: &Node) -> Vec<Repair> {
        let only = matches!(self.message, MessageRef::V10(m) if m.plan.len() == 1);
        if !repairs.is_empty() && !only {
            let at = step.pointer.clone();
            repairs.push(Repair::RemoveStep { at });
        }
        repairs
    }

    /// Tools other than a step's own with which an agent carries out a verb, most like the given one first.
    pub(super) fn tools_for(&self, verb: &str, like: &str) -> Vec<String> {
        let Some(registry) = self.registry else {
            return Vec::new();
        };
        let mut known = self.tools.borrow_mut();
        if !known.contains_key(verb) && known.len() >= CANDIDATES {
            return Vec::new();
        }
        let tools = known
            .entry(verb.to_owned())
            .or_insert_with(|| served_tools(registry, verb));
        let mut tools: Vec<&String> = tools.iter().filter(|tool| *tool != like).collect();
        tools.sort_by_cached_key(|tool| (distance(tool, like), *tool));
        tools.into_iter().take(SHOWN).cloned().collect()
    }
}

/// Tools with which the best agents for a verb carry it out.
fn served_tools(registry: &dyn Registry, verb: &str) -> Vec<String> {
    let agents = registry.best_for(verb, CANDIDATES);
    let named = agents.iter().flat_map(|agent| {
        let tools = agent.supported_tools.iter().take(CANDIDATES);
        tools.map(String::as_str)
    });
    let merge = (verb == "join").then_some(MERGE);
    let named: BTreeSet<&str> = named.chain(merge).collect();
    let served = named
        .into_iter()
        .filter(|tool| is_served(registry, verb, tool));
    served.take(CANDIDATES).map(str::to_owned).collect()
}

fn taken(graph: &Graph) -> Vec<bool> {
    let mut taken = vec![false; graph.steps().len() + 1];
    let mut last = core::ptr::null();
    for step in graph.steps() {
        // Members of a group share one list, which is looked at once.
        if core::mem::replace(&mut last, step.after.as_ptr()) == step.after.as_ptr() {
            continue;
        }
        // A fallback that waits for the step it stands in for never takes its output.
        let taken_by = |number: &&usize| step.policy.replaces != Some(**number);
        for number in step.after.iter().filter(taken_by) {
            if let Some(slot) = taken.get_mut(*number) {
                *slot = true;
            }
        }
    }
    taken
}

/// Verbs, agents and tools that are looked at for repairs.
const CANDIDATES: usize = 64;
/// Repairs of one sort that are offered.
pub(super) const SHOWN: usize = 3;

pub(super) fn is_served(registry: &dyn Registry, verb: &str, tool: &str) -> bool {
    look_up(registry, verb, tool).is_ok()
        && (crate::registry::KNOWN_VERBS.contains(&verb) || registry.serves(verb, tool))
}

/// Whether enough has been found.
pub(super) const fn is_full(findings: &[Finding]) -> bool {
    findings.len() >= MAX_CHECK_FINDINGS
}

/// How many letters must change to make one word of the other; long words are as far apart as they are long.
pub(super) fn distance(a: &str, b: &str) -> usize {
    /// Letters that are compared.
    const LONGEST: usize = 64;
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    if a.len() > LONGEST || b.len() > LONGEST {
        return a.len().max(b.len());
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (n, letter) in a.chars().enumerate() {
        let diagonal = core::mem::replace(&mut row, vec![n + 1]);
        for (m, other) in b.iter().enumerate() {
            let at = |index: usize| diagonal.get(index).copied().unwrap_or(usize::MAX / 2);
            let left = row.last().copied().unwrap_or(0);
            let change = at(m) + usize::from(letter != *other);
            row.push(change.min(at(m + 1) + 1).min(left + 1));
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn one_long_word_is_as_far_from_any_other_as_it_is_long() {
        let [long, short] = [65, 64].map(|letters| "a".repeat(letters));
        assert_eq!(distance(&short, &short), 0);
        assert_eq!((distance(&long, &short), distance(&short, &long)), (65, 65));
        assert_eq!(distance(&long, &long), 65);
    }
}
