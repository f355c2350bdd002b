//! The data of an agent's events.

use std::sync::Arc;

use ubos_common::json::RawObject;
use upp::{TokenUsage, ToolCall, ToolExecution};

use crate::state::PlanStep;

ubos_common::wire! {
    /// The members that the data of an agent's event may have; each type of event has some of them.
    pub(super) struct Data {
        /// Step of a loop.
        nullable iteration: u64 = "iteration", "UAP-11-3";
        /// Step of another strategy.
        nullable phase: Arc<str> = "phase", "UAP-11-3";
        /// Planning.
        nullable plan: Vec<PlanStep> = "plan", "UAP-11-3";
        /// Execution.
        nullable plan_step: PlanStep = "planStep", "UAP-11-3";
        /// Reasoning.
        nullable reasoning: Arc<str> = "reasoning", "UAP-11-3";
        /// Action.
        nullable tool_calls: Vec<ToolCall> = "toolCalls", "UAP-11-3";
        /// Observation.
        nullable observations: Vec<ToolExecution> = "observations", "UAP-11-3";
        /// Sub-agents.
        nullable subagent_id: Arc<str> = "subagentId", "UAP-8-3";
        /// Sub-agents.
        nullable subagent_type: Arc<str> = "subagentType", "UAP-8-3";
        /// Sub-agents.
        nullable parent_tool_call_id: Arc<str> = "parentToolCallId", "UAP-8-3";
        /// Sub-agents.
        nullable prompt: Arc<str> = "prompt", "UAP-8-3";
        /// Sub-agents.
        nullable inner_event: RawObject = "innerEvent", "UAP-8-3";
        /// Sub-agents.
        nullable success: bool = "success", "UAP-8-3";
        /// Sub-agents.
        nullable result: Arc<str> = "result", "UAP-8-3";
        /// Sub-agents.
        nullable error: Arc<str> = "error", "UAP-8-3";
        /// Sub-agents.
        nullable usage: TokenUsage = "usage", "UAP-8-3";
    }
}

impl Data {
    pub(super) fn title(&self) -> String {
        match (&self.plan_step, &self.phase, self.iteration) {
            (Some(step), ..) => step.description.to_string(),
            (None, Some(phase), _) if **phase != *"complete" => phase.to_string(),
            _ => String::new(),
        }
    }
}

/// A plan in lines.
pub(super) fn plan_text(plan: &[PlanStep]) -> String {
    let line = |step: &PlanStep| {
        let after = match step.depends_on.join(", ") {
            none if none.is_empty() => none,
            some => format!(" (after {some})"),
        };
        format!("{}  {}{after}", step.id, step.description)
    };
    plan.iter().map(line).collect::<Vec<_>>().join("\n")
}
