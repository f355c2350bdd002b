//! A plan against the registry, and against itself, before anything runs.
//!
//! [`check_plan`] finds what can be known of a plan that has not begun: verbs, tools and pairs that nobody
//! serves; inputs that are missing or of another type by the flow of data; branches that write the same
//! name; steps that cannot run or whose output goes nowhere; too many steps at once; and a plan that
//! allows itself more than its context does. Every [`Finding`] brings repairs, best first, and applying the
//! first one ([`repair`](fn@repair)) removes it.
//!
//! ```
//! use sacp::AnyMessage;
//! use sacp::check::{Config, check_plan, repair};
//!
//! let text = br#"{"g":"X","ctx":{"budget":100},"plan":[["book","H_API",{"budget":250}]]}"#;
//! let (message, _) = AnyMessage::decode(text)?;
//! let findings = check_plan(&message, None, &Config::default());
//! assert_eq!(findings[0].violation.pointer, "/plan/0/2/budget");
//! let mended = repair(&message, &findings[0].repairs[0])?;
//! assert!(check_plan(&mended, None, &Config::default()).is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod flow;
mod order;
mod repair;
mod shape;
mod types;
mod widen;

use std::collections::BTreeMap;

use ubos_common::json::RawBuf;
use ubos_common::violation::{Level, Report, Violation};

use crate::any::AnyMessage;
use crate::error::Code;
use crate::graph::{Graph, Step as Node};
use crate::limits::MAX_CHECK_FINDINGS;
use crate::message::{Message, OutFmt};
use crate::registry::{Registry, look_up};

pub use repair::{Repair, RepairError, repair};

/// What a check takes for too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Steps that may be ready at the same time.
    max_fan_out: usize,
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
    /// What would mend it, best first.
    pub repairs: Vec<Repair>,
}

/// Everything that can be known to be wrong with a plan before it runs, in the order of the graph.
///
/// Without a registry only what the message says of itself is looked at. At most
/// [`MAX_CHECK_FINDINGS`] are told.
///
/// Spec: SACP 8, 10, 11
#[must_use]
pub fn check_plan(
    message: &AnyMessage,
    registry: Option<&dyn Registry>,
    config: &Config,
) -> Vec<Finding> {
    let graph = message.graph();
    let plan = Plan::new(message, &graph, registry);
    let mut findings = Vec::new();
    if registry.is_some() {
        served(&plan, &mut findings);
        flow::check(&plan, &mut findings);
    }
    shape::check(&plan, config, &mut findings);
    widen::check(&plan, &mut findings);
    findings.sort_by_key(|finding| finding.step);
    findings.truncate(MAX_CHECK_FINDINGS);
    findings
}

/// Whether enough has been found.
const fn is_full(findings: &[Finding]) -> bool {
    findings.len() >= MAX_CHECK_FINDINGS
}

/// The findings as a report.
#[must_use]
pub fn report(findings: &[Finding]) -> Report {
    let mut report = Report::default();
    for finding in findings {
        report.push(finding.violation.clone());
    }
    report
}

impl Finding {
    fn new(
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
        }
    }

    fn of_step(
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

    fn at(mut self, pointer: String) -> Self {
        self.violation.pointer = pointer;
        self
    }

    fn mended_by(mut self, repairs: impl IntoIterator<Item = Repair>) -> Self {
        self.repairs.extend(repairs);
        self
    }
}

/// What the checks look at.
struct Plan<'a> {
    message: &'a AnyMessage,
    graph: &'a Graph,
    registry: Option<&'a dyn Registry>,
    order: order::Order,
    /// By number, whether a step is waited for.
    taken: Vec<bool>,
}

impl<'a> Plan<'a> {
    fn new(message: &'a AnyMessage, graph: &'a Graph, registry: Option<&'a dyn Registry>) -> Self {
        Self {
            message,
            graph,
            registry,
            order: order::Order::of(graph),
            taken: taken(graph),
        }
    }

    fn is_taken(&self, number: usize) -> bool {
        self.taken.get(number).copied().unwrap_or(false)
    }

    /// Steps with a verb and tool of their own: not those that stand for a subtask at the top of its message.
    fn acts(&self) -> impl Iterator<Item = &'a Node> {
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
    fn context(&self, scope: usize) -> Option<&'a BTreeMap<String, RawBuf>> {
        match (
            self.graph.scopes().get(scope)?.message.as_deref(),
            self.message,
        ) {
            (Some(nested), _) => nested.context.as_ref(),
            (None, AnyMessage::V01(message)) if scope == 0 => message.context.as_ref(),
            (None, AnyMessage::V10(message)) if scope == 0 => message.ctx.as_ref(),
            _ => None,
        }
    }

    /// How the answer of a scope is wanted.
    fn out_fmt(&self, scope: usize) -> Option<&'a OutFmt> {
        match (
            self.graph.scopes().get(scope)?.message.as_deref(),
            self.message,
        ) {
            (Some(nested), _) => nested.out_fmt.as_ref(),
            (None, AnyMessage::V01(message)) => message.out_fmt.as_ref(),
            (None, AnyMessage::V10(message)) => message.out_fmt.as_ref(),
        }
    }

    /// The pointer of a scope's message.
    fn root(&self, scope: usize) -> String {
        let parent = self
            .graph
            .scopes()
            .get(scope)
            .and_then(|scope| scope.parent);
        let parent = parent.and_then(|number| self.graph.step(number));
        parent.map(Node::subtask_pointer).unwrap_or_default()
    }

    /// The pointer of a step's parameter.
    fn param(&self, step: &Node, name: &str) -> String {
        let params = match self.message {
            AnyMessage::V01(_) => "2",
            AnyMessage::V10(_) => "params",
        };
        let name = name.replace('~', "~0").replace('/', "~1");
        format!("{}/{params}/{name}", step.pointer)
    }

    /// Taking a step away, where the message can do without it.
    fn removal(&self, step: &Node) -> Option<Repair> {
        let only = matches!(self.message, AnyMessage::V10(m) if m.plan.len() == 1);
        (!only).then(|| Repair::RemoveStep {
            at: step.pointer.clone(),
        })
    }

    /// Tools other than a step's own with which an agent carries out a verb, most like the given one first.
    fn tools_for(&self, verb: &str, like: &str) -> Vec<String> {
        let Some(registry) = self.registry else {
            return Vec::new();
        };
        let agents = registry.query(&crate::registry::Query::default().with_verb(verb));
        let mut tools: Vec<String> = agents
            .iter()
            .take(CANDIDATES)
            .flat_map(|agent| agent.supported_tools.iter().cloned())
            .filter(|tool| tool != like && is_served(registry, verb, tool))
            .collect();
        tools.sort_by_cached_key(|tool| (distance(tool, like), tool.clone()));
        tools.dedup();
        tools.truncate(SHOWN);
        tools
    }
}

fn taken(graph: &Graph) -> Vec<bool> {
    let mut taken = vec![false; graph.steps().len() + 1];
    let mut last = core::ptr::null();
    for step in graph.steps() {
        // Members of a group share one list, which is looked at once.
        if core::mem::replace(&mut last, step.after.as_ptr()) == step.after.as_ptr() {
            continue;
        }
        for number in step.after.iter() {
            if let Some(slot) = taken.get_mut(*number) {
                *slot = true;
            }
        }
    }
    taken
}

/// Agents that are looked at for repairs.
const CANDIDATES: usize = 64;
/// Repairs of one sort that are offered.
const SHOWN: usize = 3;

fn is_served(registry: &dyn Registry, verb: &str, tool: &str) -> bool {
    look_up(registry, verb, tool).is_ok()
        && (crate::registry::KNOWN_VERBS.contains(&verb)
            || !registry.agents_for(verb, tool).is_empty())
}

/// Acts that nobody serves.
// impl: SACP-10-1, SACP-11-6
fn served(plan: &Plan<'_>, findings: &mut Vec<Finding>) {
    let Some(registry) = plan.registry else {
        return;
    };
    for step in plan.acts() {
        if is_full(findings) {
            return;
        }
        let (verb, tool) = (step.act.verb.as_str(), step.act.tool.as_str());
        let Some(code) = why_unserved(registry, verb, tool) else {
            continue;
        };
        let what = format!("{verb} with {tool}: {}", code.text());
        let at = || step.pointer.clone();
        let mut repairs = Vec::new();
        if let Some(def) = registry.tool(tool).filter(|_| code != Code::NoAgentFound) {
            let mut verbs = def.supported_verbs.clone();
            let is_known = |verb: &String| crate::registry::KNOWN_VERBS.contains(&verb.as_str());
            verbs.retain(|other| !is_known(other) && is_served(registry, other, tool));
            verbs.sort_by_cached_key(|other| (distance(other, verb), other.clone()));
            let verbs = verbs.into_iter().take(SHOWN);
            repairs.extend(verbs.map(|verb| Repair::SetVerb { at: at(), verb }));
        }
        let tools = plan.tools_for(verb, tool).into_iter();
        repairs.extend(tools.map(|tool| Repair::SetTool { at: at(), tool }));
        repairs.extend(plan.removal(step));
        let clause = if code == Code::NoAgentFound {
            "SACP-11-6"
        } else {
            "SACP-10-1"
        };
        let finding = Finding::of_step(step, code.as_str(), clause, Level::Must, &what);
        findings.push(finding.mended_by(repairs));
    }
}

fn why_unserved(registry: &dyn Registry, verb: &str, tool: &str) -> Option<Code> {
    match look_up(registry, verb, tool) {
        Err(code) => Some(code),
        Ok(()) if is_served(registry, verb, tool) => None,
        Ok(()) => Some(Code::NoAgentFound),
    }
}

/// How many letters must change to make one word of the other; long words are as far apart as they are long.
fn distance(a: &str, b: &str) -> usize {
    /// Letters that are compared.
    const LONGEST: usize = 64;
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    if a.len() > LONGEST || b.len() > LONGEST {
        return a.len().max(b.len());
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (n, letter) in a.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row, vec![n + 1]);
        diagonal.push(0);
        for (m, other) in b.iter().enumerate() {
            let at = |index: usize| diagonal.get(index).copied().unwrap_or(usize::MAX / 2);
            let left = row.last().copied().unwrap_or(0);
            let change = at(m) + usize::from(letter != *other);
            row.push(change.min(at(m + 1) + 1).min(left + 1));
        }
    }
    row.last().copied().unwrap_or(0)
}

/// An act that the registry cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The act's number over the message and its subtasks, from 1: that of its step in a [`Graph`].
    pub number: usize,
    /// The act's pointer.
    pub pointer: String,
    /// Its verb.
    pub verb: String,
    /// Its tool.
    pub tool: String,
    /// Why it cannot be served.
    pub code: Code,
}

impl Gap {
    /// Whether a spawn can close it: a mismatched pair is a mistake of the plan.
    #[must_use]
    pub const fn can_be_spawned(&self) -> bool {
        matches!(
            self.code,
            Code::UnknownVerb | Code::UnknownTool | Code::NoAgentFound
        )
    }
}

/// Every act of a message, those of its subtasks included, that the registry cannot serve, in order.
///
/// Spec: SACP 10, 11
#[must_use]
pub fn gaps(message: &Message, registry: &dyn Registry) -> Vec<Gap> {
    let graph = Graph::of_message(message);
    // The step that stands for the subtask behind a plan is not the sender's and has no agent.
    let is_act = |step: &&Node| !step.pointer.ends_with("/subtask");
    let steps = graph.steps().iter().filter(is_act);
    steps.filter_map(|step| gap(step, registry)).collect()
}

fn gap(step: &Node, registry: &dyn Registry) -> Option<Gap> {
    let (verb, tool) = (step.act.verb.as_str(), step.act.tool.as_str());
    let code = match look_up(registry, verb, tool) {
        Err(code) => code,
        Ok(()) if crate::registry::KNOWN_VERBS.contains(&verb) => return None,
        Ok(()) if registry.agents_for(verb, tool).is_empty() => Code::NoAgentFound,
        Ok(()) => return None,
    };
    Some(Gap {
        number: step.place,
        pointer: step.pointer.clone(),
        verb: verb.into(),
        tool: tool.into(),
        code,
    })
}

/// The same as findings.
///
/// Spec: SACP 10
#[must_use]
pub fn check(message: &Message, registry: &dyn Registry) -> Report {
    let mut report = Report::default();
    for gap in gaps(message, registry) {
        let what = format!("act {}: {} with {}", gap.number, gap.verb, gap.tool);
        report.push(Violation::new(
            gap.pointer,
            gap.code.as_str(),
            "SACP-10-1",
            Level::Must,
            what,
        ));
    }
    report
}
