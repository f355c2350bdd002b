//! A plan against the registry, and against itself, before anything runs.
//!
//! [`check_plan`] finds what can be known of a plan that has not begun: verbs, tools and pairs that nobody
//! serves; inputs that are missing or of another type by the flow of data; branches that write the same
//! name; steps that cannot run or whose output goes nowhere; too many steps at once; and a plan that
//! allows itself more than its context does. A [`Finding`] brings repairs, best first, and applying the
//! first one ([`repair`](fn@repair)) removes it. [`mend`] does so until no repair is left, within as many rounds as there were
//! findings. What only the sender can say is a [question](Finding::question), and has no repair.
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

mod amount;
mod flow;
mod limits;
mod mend;
mod order;
mod repair;
mod shape;
mod subject;
mod types;
mod widen;

use ubos_common::violation::Level;

use crate::any::MessageRef;
use crate::error::Code;
use crate::graph::{Graph, Step as Node};
use crate::limits::MAX_CHECK_FINDINGS;
use crate::registry::{Registry, look_up};

pub use mend::{Mended, mend};
pub use repair::{Repair, RepairError, repair};
pub use subject::{Config, Finding};
use subject::{SHOWN, Subject, distance, is_full, is_served};

/// Everything that can be known to be wrong with a plan before it runs, in the order of the graph.
///
/// Takes a [`Message`](crate::Message), a [`v1::Message`](crate::v1::Message) or an [`AnyMessage`](crate::AnyMessage).
/// Without a registry only what the message says of itself is looked at. At most
/// 1,000 are reported.
///
/// Spec: SACP 8, 10, 11
#[must_use]
pub fn check_plan<'a>(
    message: impl Into<MessageRef<'a>>,
    registry: Option<&dyn Registry>,
    config: &Config,
) -> Vec<Finding> {
    let message = message.into();
    let graph = Graph::from(message);
    let plan = Subject::new(message, &graph, registry);
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

/// Acts that nobody serves.
// impl: SACP-10-1
fn served(plan: &Subject<'_>, findings: &mut Vec<Finding>) {
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
        let what = format!(
            "{verb} with {tool}: {}{}",
            code.text(),
            mistaken(registry, code, verb, tool)
        );
        let at = || step.pointer.clone();
        let mut repairs = Vec::new();
        if let Some(def) = registry.tool(tool).filter(|_| code != Code::NoAgentFound) {
            let mut verbs = def.supported_verbs.clone();
            let is_known = |verb: &String| crate::registry::KNOWN_VERBS.contains(&verb.as_str());
            verbs.retain(|other| !is_known(other) && is_served(registry, other, tool));
            verbs.retain(|other| !plan.forbids_verb(step, other));
            verbs.sort_by_cached_key(|other| (distance(other, verb), other.clone()));
            let verbs = verbs.into_iter().take(SHOWN);
            repairs.extend(verbs.map(|verb| Repair::SetVerb { at: at(), verb }));
        }
        let tools = plan.tools_for(verb, tool).into_iter();
        let tools = tools.filter(|tool| !plan.forbids_tool(step, tool));
        repairs.extend(tools.map(|tool| Repair::SetTool { at: at(), tool }));
        if let Some(Repair::SetVerb { verb, .. }) = repairs.first() {
            plan.meant.borrow_mut().insert(step.number, verb.clone());
        }
        let clause = if code == Code::NoAgentFound {
            "SACP-11-6"
        } else {
            "SACP-10-1"
        };
        let finding = Finding::of_step(step, code.as_str(), clause, Level::Must, &what);
        findings.push(finding.mended_by(plan.or_removal(repairs, step)));
    }
}

/// The registered name that an unknown one could be mistaken for.
fn mistaken(registry: &dyn Registry, code: Code, verb: &str, tool: &str) -> String {
    let like = match code {
        Code::UnknownVerb => registry.verb_look_alike(verb),
        Code::UnknownTool => registry.look_alike(tool),
        _ => None,
    };
    like.map_or_else(String::new, |name| {
        format!("; it looks like {name:?}, which is registered")
    })
}

// impl: SACP-8-4
fn why_unserved(registry: &dyn Registry, verb: &str, tool: &str) -> Option<Code> {
    match look_up(registry, verb, tool) {
        Err(code) => Some(code),
        Ok(()) if is_served(registry, verb, tool) => None,
        Ok(()) => Some(Code::NoAgentFound),
    }
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
    pub(crate) const fn can_be_spawned(&self) -> bool {
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
pub fn gaps<'a>(message: impl Into<MessageRef<'a>>, registry: &dyn Registry) -> Vec<Gap> {
    let graph = Graph::from(message.into());
    // The step that stands for the subtask behind a plan is not the sender's and has no agent.
    let is_act = |step: &&Node| !step.pointer.ends_with("/subtask");
    let steps = graph.steps().iter().filter(is_act);
    steps.filter_map(|step| gap(step, registry)).collect()
}

fn gap(step: &Node, registry: &dyn Registry) -> Option<Gap> {
    let (verb, tool) = (step.act.verb.as_str(), step.act.tool.as_str());
    let code = why_unserved(registry, verb, tool)?;
    Some(Gap {
        number: step.number,
        pointer: step.pointer.clone(),
        verb: verb.into(),
        tool: tool.into(),
        code,
    })
}
