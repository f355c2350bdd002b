//! A plan against the registry, before anything runs.

use ubos_common::violation::{Level, Report, Violation};

use crate::error::Code;
use crate::message::Message;
use crate::plan::Step;
use crate::registry::{Registry, look_up};

/// An act that the registry cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The act's number, from 1.
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

/// Every act of a plan that the registry cannot serve, in order.
///
/// Spec: SACP 10, 11
#[must_use]
pub fn gaps(message: &Message, registry: &dyn Registry) -> Vec<Gap> {
    message
        .plan
        .steps()
        .iter()
        .filter_map(|step| gap(step, registry))
        .collect()
}

fn gap(step: &Step<'_>, registry: &dyn Registry) -> Option<Gap> {
    let (verb, tool) = (step.act.verb.as_str(), step.act.tool.as_str());
    let code = match look_up(registry, verb, tool) {
        Err(code) => code,
        Ok(()) if crate::registry::KNOWN_VERBS.contains(&verb) => return None,
        Ok(()) if registry.agents_for(verb, tool).is_empty() => Code::NoAgentFound,
        Ok(()) => return None,
    };
    Some(Gap {
        number: step.number,
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
